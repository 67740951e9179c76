import type { Engine } from "../engine/engine.ts";
import type { EngineOptions } from "../engine/engine_options.ts";
import type { Jobs } from "../engine/job_handle.ts";
import type { RetriggerOptions } from "../engine/triggers/triggers.ts";
import type { ExportHistoryOptions } from "../engine/runs/export_history.ts";
import type { TriggerOptions, TriggerResult } from "../engine/triggers/new_run.ts";
import type { EngineEvent } from "../model/event.ts";
import type { ExportedHistory } from "../model/exported_history.ts";
import type { Job } from "../model/job.ts";
import type { Stream } from "../model/stream.ts";
import type { Json, Jsonify } from "../values/json.ts";
import type { Run } from "../model/run.ts";
import type { MemoryStore } from "../stores/memory/memory_store.ts";
import type { SignalReceipt } from "../model/wait.ts";
import type { Duration } from "../values/duration.ts";
import type { RunExpectations } from "./expect_run.ts";
import type { Replaced } from "./fake_globals.ts";
import type { FakeStep } from "./fakes.ts";

/** Options of {@linkcode createTestEngine}. */
export interface TestEngineOptions<J extends Jobs> {
  /** The jobs. */
  jobs: J;
  /** The data sources of the jobs: a database of the test, such as `await sqliteDataSource(":memory:")`. */
  dataSources?: EngineOptions<J>["dataSources"];
  /** When the clock stands at first. Default: 2030-01-01T00:00:00Z. */
  now?: Date | string;
  /** What the random numbers of the engine follow. Default: 1. */
  seed?: number;
  /** How many workers there are. Default: 1. */
  workers?: number;
  /** For how many milliseconds of real time a function of a step may hang before time can move on. Default: 200. */
  patience?: Duration;
  /** Whether the end of the test throws if a fake was never used. Default: `throw`. */
  unusedFakes?: "throw" | "ignore";
}

/** A run: what `trigger()` has returned, or its id. */
export type RunRef = string | { readonly id: string };

/** Where and when a worker is to die. */
export type CrashMoment = "before" | "after";

/**
 * An engine in a test, on a store in memory and a clock that only the test moves. Each call that does something returns
 * when nothing more can happen without time.
 */
export interface TestEngine<J extends Jobs = Jobs> extends AsyncDisposable {
  /** The engine of the first worker that is alive. */
  readonly engine: Engine<J>;
  /** The store. */
  readonly store: MemoryStore;
  /** What the clock says. */
  readonly now: Date;
  /** All events of all workers, in the order in which they were published. */
  readonly events: readonly EngineEvent[];
  /** What the engine, {@linkcode TestEngine.fakeDate} and {@linkcode TestEngine.fakeChance} have found suspicious. */
  readonly warnings: readonly string[];
  /** What has happened, as text. */
  readonly trace: string;
  /** Asks for a run, as `Engine.trigger()` does. */
  trigger<Input>(job: Job<Input>, input: NoInfer<Input>, options?: TriggerOptions): Promise<TriggerResult>;
  /**
   * Signals the open wait of a run.
   *
   * @param options `signalId`: default a new one. `occurrence`: of several waits of one name, the first is 1; default: the
   * newest that is open.
   * @throws {TypeError} The run has no such open wait.
   */
  signal(
    run: RunRef,
    waitName: string,
    payload: Json,
    options?: { signalId?: string; occurrence?: number },
  ): Promise<SignalReceipt>;
  /** Cancels a run. */
  cancel(run: RunRef): Promise<Run>;
  /** Triggers a run again. */
  retrigger(run: RunRef, options?: RetriggerOptions): Promise<TriggerResult>;
  /**
   * Lets time pass, from one due instant to the next: `"2d"`, `"90m"`, `"1d12h"`, or milliseconds.
   *
   * @throws {RangeError} It is negative, or goes past the year 9999.
   */
  advance(duration: Duration): Promise<void>;
  /**
   * Lets time pass up to an instant.
   *
   * @throws {RangeError} It has passed, or is past the year 9999.
   */
  advanceTo(date: Date | string): Promise<void>;
  /** When something is due next; `null`: nothing is. */
  next(): Date | null;
  /**
   * Lets time pass until all runs have ended.
   *
   * @throws {Error} Some run has not ended, and nothing is due: the message names what they wait for.
   */
  drain(): Promise<void>;
  /** What a test expects of a run. */
  expectRun(run: RunRef): RunExpectations;
  /** Replaces the function of a step, in all its occurrences or in one (`insert#2`). */
  fake<Input>(job: Job<Input>, stepName: string): FakeStep<Input>;
  /**
   * Kills a worker and starts another one. The runs that it executed are claimed when their leases have expired, after 30
   * seconds.
   *
   * @param options `worker`: its number, from 1. Default: all.
   */
  crash(options?: { worker?: number }): Promise<void>;
  /** Kills the worker that records this step next, right before or after the commit, and starts another one. */
  crashAt(stepName: string, moment: CrashMoment): void;
  /** Stops all workers and starts as many with other code: these jobs replace those of the same name, and of their `aliases`. */
  deploy(jobs: Jobs): Promise<void>;
  /** Starts another worker. */
  addWorker(): Promise<void>;
  /** The items of a stream of a run that count now. */
  readStream<T = Json>(run: RunRef, stream: Stream<T> | string): Promise<Jsonify<T>[]>;
  /** Exports the history of a run, for `replay()`. */
  exportHistory(run: RunRef, options?: ExportHistoryOptions): Promise<ExportedHistory>;
  /** Replaces `Date` until the end of the block: it reads the clock of the test. Reads outside of steps are warned of. */
  fakeDate(): Replaced;
  /** Does `fakeChance()`. Random numbers that a job draws outside of steps are warned of. */
  fakeChance(seed?: number): Replaced;
}
