import type { Jsonify } from "./json.ts";
import { checkName } from "./name.ts";
import type { Schema, SchemaInput, SchemaOutput } from "./schema.ts";

/** What the function of a step is given. */
export interface StepTools {
  /** Fires when the run was cancelled, when its lease was lost, or when the engine stops. */
  readonly abortSignal: AbortSignal;
  /** The same for every attempt at this step of this run: hand it to outside systems, so that they can tell. */
  readonly idempotencyKey: string;
  /** 1 for the first attempt. One that a crash cut short is not counted. */
  readonly attempt: number;
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
   * @throws {StepError} The function threw, or what it returned cannot be kept as JSON.
   */
  run<T>(name: string, work: (tools: StepTools) => T | Promise<T>): Promise<Jsonify<T>>;
  /**
   * Tells how far the run has come. It is kept with the run's next write; a crash may lose it. Silent while a
   * replay passes what was told before.
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
  /** The function. It receives the parsed input as it was stored. */
  readonly run: (step: StepContext, input: unknown) => unknown;
  /** Only a type: it has no value. */
  readonly outputType?: Output;
}

/** What {@linkcode defineJob} takes. */
export interface JobDefinition<S extends Schema, Output> {
  /** What runs of this job are known by: 1 to 255 characters. Unique in an engine. */
  name: string;
  /** A Standard Schema (zod, valibot, arktype, ...). The input is parsed once, when a run is triggered. */
  input: S;
  /** A Standard Schema. A run whose function returns something else fails. */
  output?: Schema<Output, unknown>;
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
 */
export function defineJob<const S extends Schema, Output>(
  definition: JobDefinition<S, Output>,
): Job<SchemaInput<S>, Jsonify<Output>> {
  checkName(definition.name, "The name of a job");
  return {
    name: definition.name,
    input: definition.input as Schema<SchemaInput<S>, unknown>,
    output: definition.output ?? null,
    // What was stored is what the schema answered, so it has the type that the function asks for.
    run: definition.run as Job["run"],
  };
}
