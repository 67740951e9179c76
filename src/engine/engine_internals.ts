import type { Host } from "../model/host.ts";
import type { Job } from "../model/job.ts";
import type { BulkOperation, Retention, StoredRun } from "../model/run.ts";
import type { Store } from "../store/store.ts";
import type { Enqueued } from "../store/new_run.ts";
import type { JournalReader } from "../events/journal_reader.ts";
import type { StreamReader } from "../events/stream_reader.ts";
import type { BulkRetriggerOptions, BulkSelection } from "./bulk/bulk_selection.ts";
import type { BulkGuard, BulkResult } from "./bulk/perform_bulk.ts";
import type { Health } from "./operate/health.ts";
import type { Messages } from "./messages.ts";
import type { OutageLog } from "./outage_log.ts";
import type { MetricsSource } from "./operate/statistics/monitor.ts";
import type { TriggerGuard, TriggerOptions } from "./triggers/new_run.ts";
import type { Signal, SignalReceipt, Wait } from "../model/wait.ts";

/** What an engine exposes only to the other parts of this package. */
export interface EngineInternals {
  /** Reads the journal and publishes the events of all runs, no matter which process executes them. */
  reader: JournalReader;
  /** Reads streams of items. */
  items: StreamReader;
  /** Logs that the store does not answer. */
  outages: OutageLog;
  /** The names of the plugins that it uses. */
  plugins: Set<string>;
  /** Time, timers, randomness and ids. */
  host: Host;
  /** The store, for reads that bypass the engine. Its first call creates its tables. */
  store: Store;
  /** How long runs are kept after their end, in milliseconds. */
  retention: Retention;
  /** The newest version of each job. */
  jobs(): Iterable<Job>;
  /** Whether the engine has stopped: event streams that are opened now end at once. */
  isStopped(): boolean;
  /** Looks for due runs and slots at once. */
  wake(): void;
  /** The runs whose jobs do something outside of their steps. */
  runsInOwnCode(): string[];
  /** Gives the engine up as the death of its process does. Its host and its store must not answer it any more. */
  discard(): void;
  /** Calls back each time the engine has stopped. */
  onStop(listener: () => void): void;
  /** Asks for a run, as `Engine.trigger()` does, if a guard allows it. The input was read from JSON. */
  trigger(jobName: string, input: unknown, options: TriggerOptions, guard: TriggerGuard): Promise<Enqueued>;
  /** Does `Engine.cancel()`. */
  cancel(runId: string, by: string | null): Promise<StoredRun>;
  /** Refuses a signal whose payload does not fit the schema of its wait. */
  checkPayload(wait: Wait, signal: Signal): Promise<void>;
  /** Does `Engine.signal()` with a payload that was checked against the schema of its wait, or is a duplicate. */
  signal(waitId: string, signal: Signal, by: string | null): Promise<SignalReceipt>;
  /** Checks and sends messages. */
  messages: Messages;
  /** Performs an operation on many runs, as `Engine.cancelRuns()` does, as far as a guard allows it. */
  performBulk(
    operation: BulkOperation,
    selection: BulkSelection,
    options: BulkRetriggerOptions,
    guard: BulkGuard,
  ): Promise<BulkResult>;
  /** The part of the health of the process that is known without a call to the store. */
  liveness(): Health;
  /** What metrics are made of. */
  metrics(): Promise<MetricsSource>;
}

/** The key of an engine's {@linkcode EngineInternals}: a symbol private to this package. */
export const INTERNALS: unique symbol = Symbol("internals");

/**
 * The internals of an engine.
 *
 * @throws {TypeError} It was not created by `createEngine()`.
 */
export function internalsOf(engine: object): EngineInternals {
  const internals = (engine as { [INTERNALS]?: EngineInternals })[INTERNALS]; // only an engine can have this symbol
  if (internals === undefined) throw new TypeError("The engine was not created by createEngine()");
  return internals;
}
