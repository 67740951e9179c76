import type { Duration } from "../../values/duration.ts";
import type { Json, Jsonify } from "../../values/json.ts";
import type { RetryPolicy } from "../retry.ts";
import type { Coalesce, Disposition, IdempotencyUntil, Labels } from "../run.ts";
import type { Schema } from "../schema.ts";
import type { Stream, StreamWriter } from "../stream.ts";
import type { Wait } from "../wait.ts";

/** The argument of a step's function. */
export interface StepTools {
  /** Fires when the run was cancelled or is late (`finishWithin`), its lease was lost, or the engine stops. */
  readonly abortSignal: AbortSignal;
  /**
   * The same for every attempt at this step of this run and of its retries from the failure: pass it to external
   * systems, so that they recognise a repeated call.
   */
  readonly idempotencyKey: string;
  /** 1 for the first attempt, one more after each failed one. An attempt that a crash interrupted is not counted. */
  readonly attempt: number;
  /**
   * Opens a stream of the run, which others read while the step is executed (`engine.readStream()`). What an attempt
   * writes counts once its step has completed; until then, readers see it as long as no other attempt follows.
   *
   * @throws {ConflictError} Another step is writing to it.
   * @throws {RangeError} The execution has opened 16 other streams.
   */
  stream<T = Json>(stream: Stream<T> | string): StreamWriter<T>;
  /**
   * Reads the items that completed steps have written to a stream of the run.
   *
   * @throws {ConflictError} This step is writing to it.
   */
  readStream<T = Json>(stream: Stream<T> | string): AsyncIterable<Jsonify<T>>;
}

/** Options of a step. */
export interface StepOptions {
  /** How often and when the step is retried. Default: the job's policy, or no retries. */
  retry?: RetryPolicy;
  /**
   * How long one attempt may take. After that its `abortSignal` fires, and the attempt fails with a
   * `TimeoutError` even if its function never settles; a later result is ignored. Default: no limit.
   */
  timeout?: Duration;
}

/** Options of a wait. */
export interface WaitForSignalOptions {
  /** How long signals are accepted from now on. Default: without limit. */
  timeout?: Duration;
  /** Until when signals are accepted. Set this or `timeout`, not both. */
  deadline?: Date | string;
  /** Information for those who may signal: any JSON value. */
  metadata?: unknown;
}

/** How the payload of a signal is checked. */
export interface PayloadOptions<Payload> {
  /** A Standard Schema. If it refuses a payload, the job's call throws a `ValidationError`, on a replay too. */
  schema?: Schema<unknown, Payload>;
}

/** A wait that was prepared, with the type of the payload that its schema makes, if it has one. */
export interface PreparedWait<Payload = Json> extends Wait {
  /** Used only for type inference: it is never set. */
  readonly payloadType?: Payload;
}

/** Options of a child run. */
export interface InvokeOptions {
  /** Runs with this key, of any job, are executed one after another. A child does not inherit it. */
  concurrencyKey?: string;
  /** Labels besides those of the run that starts it, which it inherits; of two with the same key, this one counts. */
  labels?: Labels;
  /** From -1,000 to 1,000: higher ones are claimed first. Default: that of the run that starts it. */
  priority?: number;
  /**
   * Not claimed before this instant: a `Date`, or ISO 8601 with a time zone; a date alone is its midnight in UTC. Not
   * together with `delay`.
   */
  startAt?: Date | string;
  /** The same as `startAt`, as a duration from now. */
  delay?: Duration;
  /** If it has not started this long after it was due, it fails as `expired`. Default: that of its job. */
  startWithin?: Duration;
  /** If it has not ended this long after its first start, it fails as `timeout`. Default: that of its job. */
  finishWithin?: Duration;
}

/** One of several child runs. */
export interface InvokeItem<Input> extends InvokeOptions {
  /** The input. */
  input: Input;
}

/** Options of a run that is started without waiting for it. */
export interface StepTriggerOptions extends InvokeOptions {
  /** Runs with different keys take turns. Default: that of the run that starts it. */
  fairnessKey?: string;
  /** If a run of the same job with this key exists, it is returned instead of a new one. */
  idempotencyKey?: string;
  /** Which runs with the `idempotencyKey` count; if none does, there is a new one. Default: `forever`. */
  idempotencyUntil?: IdempotencyUntil;
  /** What to do when runs of this job and key exist already. Needs a `concurrencyKey`. Default: add another run. */
  coalesce?: Coalesce;
}

/** The run that {@linkcode StepContext.trigger} has started or found. */
export interface StepTriggerResult {
  /** The run. */
  runId: string;
  /** Whether it is new. */
  disposition: Disposition;
}

/** How a child run of {@linkcode StepContext.invokeAll} ended. */
export type ChildOutcome<Output = unknown> =
  | { runId: string; status: "completed"; output: Output }
  | { runId: string; status: "failed" | "cancelled"; error: string };

/** Writes log lines: each is a `log:write` event, and is kept when the `persistLogs()` plugin is in use. */
export interface StepLog {
  /** Writes a line of level `info`. */
  info(message: string, data?: unknown): void;
  /** Writes a line of level `warn`. */
  warn(message: string, data?: unknown): void;
  /** Writes a line of level `error`. */
  error(message: string, data?: unknown): void;
}

/** A slot of a schedule: an instant at which it is due. */
export interface ScheduleSlot {
  /** The instant: ISO 8601 in UTC. */
  readonly at: string;
  /** The zone of the schedule, such as `Europe/Berlin`. */
  readonly timezone: string;
  /** The date of the slot in that zone, such as `2040-01-31`. In UTC it may be the day before or after. */
  readonly localDate: string;
  /** The slot before this one by the pattern, whether it was fired or not: ISO 8601 in UTC. `null`: there is none. */
  readonly previousAt: string | null;
}
