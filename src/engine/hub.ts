import { isoTime } from "../time.ts";
import type { EngineEvent, EventOf, EventType, RunEvent, RunHappening } from "../event.ts";
import { describeFailure } from "../error.ts";
import { failureReport } from "../failure.ts";
import type { Host } from "../host.ts";
import type { Lease } from "../lease.ts";
import type { RunIdentity } from "../run.ts";
import { type Logger, toLogger } from "./logger.ts";

/** Receives events of one type. What it throws goes to the engine's logger and harms nothing. */
export type Listener<E extends EngineEvent = EngineEvent> = (event: E) => void;

/** How to listen: to events of one type, or to all (`"*"`), until the returned function is called. */
export interface Listen {
  /** Hears events of one type. */
  <T extends EventType>(type: T, listener: Listener<EventOf<T>>): () => void;
  /** Hears all events. */
  (type: "*", listener: Listener): () => void;
}

/** Hears events of runs, each with the lease under which it happened; `null` for what is no part of an execution. */
export type RunListener = (event: RunEvent, lease: Lease | null) => void;

/** Tells everybody in this process what has happened. The one place where events are built. */
export class Hub {
  readonly #host: Host;
  readonly #logger: Logger;
  readonly #listeners = new Map<EventType | "*", Set<Listener>>();
  readonly #runListeners = new Map<string, Set<RunListener>>();
  readonly #allRunsListeners = new Set<RunListener>();
  #sequence = 0;

  /** Makes a hub without listeners; `logger` gets what they throw. */
  constructor(host: Host, logger: Logger = toLogger(undefined)) {
    this.#host = host;
    this.#logger = logger;
  }

  /** Hears events of one type, or all (`"*"`), until the returned function is called. */
  on<T extends EventType>(type: T, listener: Listener<EventOf<T>>): () => void;
  /** Hears all events. */
  on(type: "*", listener: Listener): () => void;
  on(type: EventType | "*", listener: Listener<never>): () => void {
    const own: Listener = (event) => (listener as Listener)(event);
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(own));
    return () => void listeners.delete(own);
  }

  /** Hears the events of all runs, until the returned function is called. */
  onRuns(listener: RunListener): () => void {
    const own: RunListener = (event, lease) => listener(event, lease);
    this.#allRunsListeners.add(own);
    return () => void this.#allRunsListeners.delete(own);
  }

  /** Hears the events of one run, until the returned function is called. */
  onRun(runId: string, listener: RunListener): () => void {
    const own: RunListener = (event, lease) => listener(event, lease);
    const listeners = this.#runListeners.get(runId) ?? new Set();
    this.#runListeners.set(runId, listeners.add(own));
    return () => {
      listeners.delete(own);
      if (listeners.size === 0 && this.#runListeners.get(runId) === listeners) this.#runListeners.delete(runId);
    };
  }

  /** Tells what happened to a run, after it was committed. An event that nobody listens to is not built. */
  publish(run: RunIdentity, happening: RunHappening, lease: Lease | null = null): void {
    const ofRun = this.#runListeners.get(run.id);
    if (ofRun === undefined && this.#allRunsListeners.size === 0 && !this.#isHeard(happening.type)) return;
    const event = this.runEvent(run, happening);
    this.#tell(event);
    for (const listener of [...ofRun ?? [], ...this.#allRunsListeners]) {
      this.#tellOne((event) => listener(event as RunEvent, lease), event);
    }
  }

  /** Tells that something went wrong in the engine itself. */
  publishError(error: unknown): void {
    if (!this.#isHeard("worker:error")) return;
    this.#tell({ type: "worker:error", error, timestamp: isoTime(this.#host.now()), sequence: ++this.#sequence });
  }

  /** Builds the event of a run without telling it. */
  runEvent(run: RunIdentity, happening: RunHappening): RunEvent {
    return {
      ...happening,
      runId: run.id,
      jobName: run.jobName,
      labels: run.labels,
      timestamp: isoTime(this.#host.now()),
      sequence: ++this.#sequence,
    };
  }

  /** The event as it is to be told after one of a certain sequence: it may have waited, and have a lower one. */
  numberedAfter(sequence: number, event: RunEvent): RunEvent {
    return event.sequence > sequence ? event : { ...event, sequence: ++this.#sequence };
  }

  #isHeard(type: EventType): boolean {
    return (this.#listeners.get(type)?.size ?? 0) + (this.#listeners.get("*")?.size ?? 0) > 0;
  }

  #tell(event: EngineEvent): void {
    for (const type of [event.type, "*"] as const) {
      for (const listener of [...this.#listeners.get(type) ?? []]) this.#tellOne(listener, event);
    }
  }

  async #tellOne(listener: Listener, event: EngineEvent): Promise<void> {
    try {
      await listener(event);
    } catch (error) {
      this.#logger.error(`A listener of "${event.type}" failed: ${failureReport(describeFailure(error))}`);
    }
  }
}
