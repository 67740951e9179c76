import { isoTime } from "../values/iso_time.ts";
import type { EngineEvent, EventOf, EventType, JobHappening, RunHappening, ScheduleSkip } from "../model/event.ts";
import { toFailure } from "../model/to_failure.ts";
import { failureReport } from "../model/failure.ts";
import type { Host } from "../model/host.ts";
import type { RunIdentity } from "../model/run.ts";
import type { StrandedJob } from "../model/hold.ts";
import { type Logger, toLogger } from "../model/logger.ts";
import { namesOf } from "../values/option_names.ts";
import { kindOf } from "../values/unknown_values.ts";

/** Receives events of one type. An error that it throws is only written to the engine's logger. */
export type Listener<E extends EngineEvent = EngineEvent> = (event: E) => void;

/** Subscribes to events of one type, or to all (`"*"`), until the returned function is called. */
export interface Listen {
  /** Subscribes to events of one type. */
  <T extends EventType>(type: T, listener: Listener<EventOf<T>>): () => void;
  /** Subscribes to all events. */
  (type: "*", listener: Listener): () => void;
}

/** An event without its time and its number. */
type Unstamped = EngineEvent extends infer E ? E extends EngineEvent ? Omit<E, "timestamp" | "sequence"> : never
  : never;

const EVENTS = namesOf<EventType | "*">()(
  "* run:trigger run:coalesced run:leased run:lease-renewed run:start run:waiting run:hold run:resume run:diverged",
  "run:progress run:complete run:fail run:cancel run:retry run:delete step:start step:complete step:fail step:cancel",
  "log:write job:pause job:resume schedule:skip worker:stranded worker:error",
);

/** What to call after a commit of an engine of this process, by its store; with the hub whose commits do not count. */
export type ActivityListeners = Map<() => void, Hub | undefined>;

/** Publishes this engine's events in this process. */
export class Hub {
  readonly #host: Host;
  readonly #logger: Logger;
  readonly #listeners = new Map<EventType | "*", Set<Listener>>();
  readonly #runListeners = new Map<string, Set<(type: RunHappening["type"]) => void>>();
  readonly #activityListeners: ActivityListeners;
  #observer: ((jobName: string, happening: RunHappening) => void) | null = null;
  #sequence = 0;

  /** Creates a hub; `logger` gets the errors of its listeners, and `activityListeners` are those of all with its store. */
  constructor(host: Host, logger: Logger = toLogger(undefined), activityListeners: ActivityListeners = new Map()) {
    this.#host = host;
    this.#logger = logger;
    this.#activityListeners = activityListeners;
  }

  /**
   * Subscribes to events of one type, or to all (`"*"`), until the returned function is called.
   *
   * @throws {TypeError} There are no such events, or the listener is no function.
   */
  on<T extends EventType>(type: T, listener: Listener<EventOf<T>>): () => void;
  /** Subscribes to all events. */
  on(type: "*", listener: Listener): () => void;
  on(type: EventType | "*", listener: Listener<never>): () => void {
    if (typeof type !== "string") throw new TypeError(`on() needs the name of an event, not ${kindOf(type)}`);
    if (!Object.hasOwn(EVENTS, type)) {
      throw new TypeError(`There is no event "${type}"; there are ${Object.keys(EVENTS).join(", ")}`);
    }
    if (typeof listener !== "function") throw new TypeError(`on("${type}") needs a function, not ${kindOf(listener)}`);
    const own: Listener = (event) => (listener as Listener)(event); // receives only events of its type
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(own));
    return () => void listeners.delete(own);
  }

  /** Sets the listener for each event of a run, before it is built: at most one. It must not throw. */
  observe(observer: (jobName: string, happening: RunHappening) => void): void {
    this.#observer = observer;
  }

  /**
   * Calls back whenever this hub, or that of another engine with the same `Store` object, publishes an event of any run,
   * until the returned function is called.
   *
   * @param except A hub whose events do not count.
   */
  onActivity(listener: () => void, except?: Hub): () => void {
    this.#activityListeners.set(listener, except);
    return () => void this.#activityListeners.delete(listener);
  }

  /** Calls back with the type of each event of one run that is published, until the returned function is called. */
  onRun(runId: string, listener: (type: RunHappening["type"]) => void): () => void {
    const own = (type: RunHappening["type"]) => listener(type);
    const listeners = this.#runListeners.get(runId) ?? new Set();
    this.#runListeners.set(runId, listeners.add(own));
    return () => {
      listeners.delete(own);
      if (listeners.size === 0 && this.#runListeners.get(runId) === listeners) this.#runListeners.delete(runId);
    };
  }

  /**
   * Publishes an event of a run, after the commit. An event without listeners is not built.
   *
   * @param at When it happened, if not now.
   */
  publish(run: RunIdentity, happening: RunHappening, at?: number): void {
    this.#observer?.(run.jobName, happening);
    if (this.hears(happening.type)) {
      this.#publish({ ...happening, runId: run.id, jobName: run.jobName, labels: run.labels }, at);
    }
    const ofRun = this.#runListeners.size === 0 ? undefined : this.#runListeners.get(run.id);
    if (ofRun !== undefined) { for (const listener of [...ofRun]) listener(happening.type); }
    this.noteCommit();
  }

  /** Notes that something was committed of which no event tells: who reads the journal looks at once. */
  noteCommit(): void {
    for (const [listener, except] of this.#activityListeners) if (except !== this) listener();
  }

  /** Publishes jobs that no live worker knows. Returns whether anybody listens. */
  publishStranded(jobs: readonly StrandedJob[]): boolean {
    const isHeard = this.hears("worker:stranded");
    if (isHeard) this.#publish({ type: "worker:stranded", jobs });
    return isHeard;
  }

  /** Publishes that slots of a schedule were skipped, after the commit. */
  publishSkip(skip: ScheduleSkip): void {
    if (this.hears("schedule:skip")) this.#publish({ type: "schedule:skip", ...skip });
  }

  /** Publishes an event of a job, after the commit. */
  publishJob(happening: JobHappening): void {
    this.#publish(happening);
  }

  /** Publishes an error of the engine itself as `worker:error`. */
  publishError(error: unknown): void {
    if (this.hears("worker:error")) this.#publish({ type: "worker:error", error });
  }

  /** Whether anybody listens to events of a type: what only such an event needs is not made for nobody. */
  hears(type: EventType): boolean {
    return (this.#listeners.get(type)?.size ?? 0) + (this.#listeners.get("*")?.size ?? 0) > 0;
  }

  #publish(happening: Unstamped, at = this.#host.now()): void {
    const event: EngineEvent = { ...happening, timestamp: isoTime(at), sequence: ++this.#sequence };
    for (const type of [event.type, "*"] as const) {
      for (const listener of [...this.#listeners.get(type) ?? []]) this.#notify(listener, event);
    }
  }

  async #notify(listener: Listener, event: EngineEvent): Promise<void> {
    try {
      await listener(event);
    } catch (error) {
      this.#logger.error(`A listener of "${event.type}" failed: ${failureReport(toFailure(error))}`);
    }
  }
}
