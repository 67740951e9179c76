import type { Json, Jsonify } from "./json.ts";
import { kindOf } from "./kind_of.ts";
import { checkName } from "./name.ts";
import { checkOptionNames } from "./option_names.ts";
import { checkRetryPolicy, type RetryPolicy } from "./retry.ts";
import { checkSchema, type Schema, type SchemaInput, type SchemaOutput } from "./schema.ts";
import type { Wait, WaitResult } from "./wait.ts";

/** What the function of a step is given. */
export interface StepTools {
  /** Fires when the run was cancelled, when its lease was lost, or when the engine stops. */
  readonly abortSignal: AbortSignal;
  /**
   * The same for every attempt at this step of this run and of its retries from the failure: hand it to outside systems,
   * so that they recognise a repeated call.
   */
  readonly idempotencyKey: string;
  /** 1 for the first attempt, one more after each that failed. One that a crash cut short is not counted. */
  readonly attempt: number;
}

/** How a step is executed. */
export interface StepOptions {
  /** How often and when it is tried again. Default: as its job says, or not at all. */
  retry?: RetryPolicy;
  /**
   * How long one attempt may take, in milliseconds. Then its `abortSignal` fires, and it has failed with a
   * `TimeoutError` even if its function never settles; what that returns later is ignored. Default: as long as it takes.
   */
  timeout?: number;
}

/** What a wait is prepared with. */
export interface WaitForSignalOptions {
  /** How long signals count, in milliseconds from now. Default: for ever. */
  timeout?: number;
  /** Until when signals count: instead of `timeout`. */
  deadline?: Date | string;
  /** What to tell those who may signal: any JSON. */
  metadata?: unknown;
}

/** What a payload has to fit. */
export interface PayloadOptions<Payload> {
  /** A Standard Schema. A payload that it refuses throws a `ValidationError` into the job, on a replay too. */
  schema?: Schema<unknown, Payload>;
}

/** Writes log lines: each is a `log:write` event, and is kept when the `persistLogs()` plugin is in use. */
export interface StepLog {
  /** Tells what is going on. */
  info(message: string, data?: unknown): void;
  /** Tells what somebody may want to look at. */
  warn(message: string, data?: unknown): void;
  /** Tells what went wrong. */
  error(message: string, data?: unknown): void;
}

/**
 * What a job's function works with. When a run was interrupted the function is called again from the beginning;
 * steps that were recorded answer what they answered then, and are not executed again.
 *
 * When the run parks, is cancelled, loses its lease, or the engine stops, what the job awaits here never settles: no
 * `try` can swallow it, and `finally` does not run. What has to be tidied up belongs into a step, which hears of it by
 * its `abortSignal`.
 */
export interface StepContext {
  /** The id of the run. */
  readonly runId: string;
  /** 1 for the first execution of the run, one more after each interruption. */
  readonly execution: number;
  /** Fires when the run was cancelled, when its lease was lost, or when the engine stops. */
  readonly abortSignal: AbortSignal;
  /**
   * Executes a function and records what it returns, so that it is never executed again once it is recorded.
   *
   * The value comes back after one round trip through JSON, the first time as on every replay. A name that is
   * used again is another step (`name#2`), so that loops work; steps that run side by side need names of their own.
   *
   * The function may be executed again if the process dies before its result was recorded.
   *
   * @throws {StepError} The last attempt threw, took too long, or returned what cannot be kept as JSON.
   */
  run<T>(name: string, work: (tools: StepTools) => T | Promise<T>, options?: StepOptions): Promise<Jsonify<T>>;
  /**
   * Pauses for so many milliseconds. While a run pauses it holds no worker, no lease and no memory: what comes after
   * the pause is executed when the run is taken up again, by whichever worker.
   *
   * A pause never throws into the job. `finally` and `using` around it do not run while the run waits.
   */
  sleep(name: string, ms: number): Promise<void>;
  /** Pauses until an instant of the wall clock. One in the past is over at once. */
  sleepUntil(name: string, date: Date | string): Promise<void>;
  /**
   * Prepares a wait without pausing on it, so that its id can be handed out first. A signal that comes before the run
   * pauses is kept. On a replay it is the same wait, with its first deadline.
   *
   * @returns The wait as it was prepared.
   */
  prepareWait(name: string, options?: WaitForSignalOptions): Promise<Wait>;
  /** Pauses until a signal or the deadline ends a wait. */
  waitFor<Payload = Json>(wait: Pick<Wait, "id">, options?: PayloadOptions<Payload>): Promise<WaitResult<Payload>>;
  /** Prepares a wait and pauses on it. */
  wait<Payload = Json>(
    name: string,
    options?: WaitForSignalOptions & PayloadOptions<Payload>,
  ): Promise<WaitResult<Payload>>;
  /**
   * Reports how far the run has come: one event a call. The latest report is kept with the run's next write, or 100 ms
   * after the call; a crash may lose one that was not yet written. Silent while a replay passes what was reported before.
   */
  progress(current: number, total?: number, message?: string): void;
  /** Writes log lines. Silent while a replay passes what was written before. */
  readonly log: StepLog;
}

/**
 * A job: what {@linkcode defineJob} makes. `Input` is what a trigger takes, `Output` what a completed run shows.
 */
export interface Job<Input = unknown, Output = unknown> {
  /** What runs of this job are known by. */
  readonly name: string;
  /** Checks the input of a trigger. */
  readonly input: Schema<Input, unknown>;
  /** Checks what the function returns. */
  readonly output: Schema | null;
  /** How often and when its steps are tried again, unless they say otherwise. */
  readonly retry: RetryPolicy;
  /** The function. It receives the parsed input as it was stored. */
  readonly run: (step: StepContext, input: unknown) => unknown;
  /** Only a type: it has no value. */
  readonly outputType?: Output;
}

/** What {@linkcode defineJob} takes. */
export interface JobDefinition<S extends Schema, Output> {
  /** What runs of this job are known by: 1 to 255 characters. Unique in an engine. */
  name: string;
  /**
   * A Standard Schema (zod, valibot, arktype, ...). The input is parsed once, when a run is triggered, as the JSON that
   * is stored: a `Date` is a string by then.
   */
  input: S;
  /** A Standard Schema. A run whose function returns something else fails, also if the schema takes over 30 seconds. */
  output?: Schema<Output, unknown>;
  /** How often and when its steps are tried again, unless they say otherwise. Default: not at all. */
  retry?: RetryPolicy;
  /** Does the work, in steps. */
  run: (step: StepContext, input: Jsonify<SchemaOutput<S>>) => Output | Promise<Output>;
}

/**
 * Defines a job.
 *
 * @example
 * ```ts
 * import { defineJob } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   async run(step, input) {
 *     return await step.run("compose", () => `Hello, ${input.name}!`);
 *   },
 * });
 * console.log(greet.name);
 * ```
 *
 * @throws {ValidationError} The name cannot be one.
 * @throws {TypeError} An option is unknown, `input` or `output` is no Standard Schema, or `run` is no function.
 * @throws {RangeError} A number of the retry policy is out of range.
 */
export function defineJob<const S extends Schema, Output>(
  definition: JobDefinition<S, Output>,
): Job<SchemaInput<S>, Jsonify<Output>> {
  checkName(definition.name, "The name of a job");
  checkDefinition(definition);
  const { retry = {} } = definition;
  checkRetryPolicy(retry);
  return {
    name: definition.name,
    input: definition.input as Schema<SchemaInput<S>, unknown>,
    output: definition.output ?? null,
    retry: { ...retry },
    // What was stored is what the schema answered, so it has the type that the function asks for.
    run: definition.run as Job["run"],
  };
}

const JOB_OPTIONS: Record<keyof JobDefinition<Schema, unknown>, true> = {
  name: true,
  input: true,
  output: true,
  retry: true,
  run: true,
};

function checkDefinition(definition: { name: string; input?: unknown; output?: unknown; run?: unknown }): void {
  const { name, input, output, run } = definition;
  checkOptionNames(definition, JOB_OPTIONS, `defineJob() of job "${name}"`);
  checkSchema(input, `The input of job "${name}"`);
  if (output !== undefined) checkSchema(output, `The output of job "${name}"`);
  if (typeof run !== "function") throw new TypeError(`Job "${name}" needs a function run, not ${kindOf(run)}`);
}
