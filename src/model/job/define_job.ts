import { checkName } from "../../values/name.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import type { Duration } from "../../values/duration.ts";
import type { Jsonify } from "../../values/json.ts";
import { isInstance, isObject, kindOf } from "../../values/unknown_values.ts";
import { withoutUndefined } from "../../values/without_undefined.ts";
import { type EndContext, endJobName } from "../end.ts";
import { type FlowDefinition, readJobFlow } from "../flow.ts";
import type { Job, JobEnd, StepContext } from "../job.ts";
import { checkRetryPolicy, type RetryPolicy } from "../retry.ts";
import { ENDED, type TerminalStatus } from "../run.ts";
import { checkSchema, type Schema, type SchemaInput, type SchemaOutput, type Schemas } from "../schema.ts";
import {
  type ChangeDefinition,
  type Changes,
  checkRecordName,
  type JobChanges,
  readJobChanges,
} from "./job_changes.ts";
import type { MessageSchemas, NoMessages } from "./job_messages.ts";

/** How a job cleans up after its runs. */
export interface EndDefinition<Input = unknown> {
  /** After which ends. Default: `completed`, `failed` and `cancelled`. */
  statuses?: readonly TerminalStatus[];
  /** If a clean-up has not ended this long after its start, it fails. Default: no limit. */
  finishWithin?: Duration;
  /** What changed of it for runs that have recorded something. */
  changes?: Changes;
  /** Cleans up, in steps of a run of its own. */
  run: (step: StepContext, end: EndContext<Input>) => unknown;
}

/** The definition of a job, for {@linkcode defineJob}. */
export interface JobDefinition<
  S extends Schema,
  Output,
  Name extends string = string,
  Waits extends Schemas = Record<never, never>,
  M extends MessageSchemas = NoMessages,
> extends FlowDefinition, ChangeDefinition {
  /** The job's name: 1 to 255 characters, unique in an engine. */
  name: Name;
  /**
   * A Standard Schema (zod, valibot, arktype, ...). The input is parsed once, when a run is triggered, as the JSON that
   * is stored: a `Date` is a string by then.
   */
  input: S;
  /** A Standard Schema. The run fails if the function's result does not fit, or if the schema takes over 30 seconds. */
  output?: Schema<Output, unknown>;
  /**
   * Standard Schemas of the payloads of its waits, by their names: a signal that does not fit is refused, and its wait stays
   * open. `step.wait("approve")` has the schema and the type of `approve`.
   */
  waits?: Waits;
  /**
   * Cleans up after a run, however it ended: in another run, which is added in the commit that ends the first. Whether a run
   * has one is decided at its trigger.
   */
  onEnd?: EndDefinition<Jsonify<SchemaOutput<S>>>;
  /**
   * The messages that its runs take: names to Standard Schemas. Each message is parsed when it is sent, as the JSON that is
   * stored. Default: none.
   */
  messages?: M;
  /** The default retry policy of its steps. Default: no retries. */
  retry?: RetryPolicy;
  /** Does the work, in steps. */
  run: (step: StepContext<Waits, M>, input: Jsonify<SchemaOutput<S>>) => Output | Promise<Output>;
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
 * @throws {ValidationError} The name is not valid.
 * @throws {TypeError} An option is unknown, `input` or `output` is not a Standard Schema, or `run` is not a function.
 * @throws {RangeError} A priority, a duration, a limit or a number of the retry policy is out of range.
 */
export function defineJob<
  const S extends Schema,
  Output,
  const Name extends string = string,
  Waits extends Schemas = Record<never, never>,
  const M extends MessageSchemas = NoMessages,
>(definition: JobDefinition<S, Output, Name, Waits, M>): Job<SchemaInput<S>, Jsonify<Output>, Name, M> {
  if (!isObject(definition)) throw new TypeError(`defineJob() takes { name, input, run }, not ${kindOf(definition)}`);
  checkName(definition.name, "The name of a job");
  checkDefinition(definition);
  const { retry = {} } = definition;
  checkRetryPolicy(retry, ` of job "${definition.name}"`);
  const subject = `job "${definition.name}"`;
  const changes = readJobChanges(definition, subject);
  return {
    name: definition.name,
    input: definition.input as Schema<SchemaInput<S>, unknown>, // the input type of S, which TypeScript cannot derive
    output: definition.output ?? null,
    waits: readSchemas("waits", subject, definition.waits),
    messages: readSchemas("messages", subject, definition.messages) as M, // the same schemas
    retry: { ...retry },
    flow: readJobFlow(definition, subject),
    changes,
    onEnd: readEnd(definition, subject, changes),
    endOf: null,
    previous: readPrevious(definition),
    // The stored value is the schema's output, so it has the type of the function's parameter; so has its context.
    run: definition.run as unknown as Job["run"],
  };
}

const JOB_OPTIONS = namesOf<keyof JobDefinition<Schema, unknown>>()(
  "name input output waits onEnd messages retry priority startWithin finishWithin limits aliases version continues",
  "previous changes onDivergence upgradeInput recheckInput run",
);

const END_OPTIONS: Record<keyof EndDefinition, true> = { statuses: true, finishWithin: true, changes: true, run: true };
// What an end run receives is made when it is executed.
const ANY_INPUT: Schema = { "~standard": { version: 1, vendor: "holdfast", validate: (value) => ({ value }) } };

/** Checks how a job cleans up, and makes the hidden job that does. */
function readEnd<S extends Schema, Waits extends Schemas>(
  definition: Omit<JobDefinition<S, unknown, string, Waits>, "run">,
  subject: string,
  endOf: JobChanges,
): JobEnd | null {
  const { name, onEnd, aliases = [], version, continues, onDivergence, retry } = definition;
  if (onEnd === undefined) return null;
  checkOptionNames(onEnd, END_OPTIONS, `onEnd of ${subject}`);
  const { finishWithin, changes, run } = onEnd;
  const statuses: readonly TerminalStatus[] = onEnd.statuses ?? ENDED;
  if (!Array.isArray(statuses) || !statuses.every((status) => ENDED.includes(status))) {
    throw new TypeError(`onEnd.statuses of ${subject} must be a list of ${ENDED.join(", ")}`);
  }
  if (typeof run !== "function") throw new TypeError(`onEnd of ${subject} needs a function run, not ${kindOf(run)}`);
  checkName(endJobName(name), `The name of a job with onEnd, with ":end",`);
  const own = `onEnd of ${subject}`;
  const others = { version, continues, changes, onDivergence, aliases: aliases.map(endJobName) };
  const given = withoutUndefined(others);
  const job: Job = {
    name: endJobName(name),
    input: ANY_INPUT,
    output: null,
    waits: readSchemas("waits", own),
    messages: {},
    retry: { ...retry },
    flow: readJobFlow(finishWithin === undefined ? {} : { finishWithin }, own),
    changes: readJobChanges({ name: endJobName(name), ...given, recheckInput: false }, own),
    onEnd: null,
    endOf,
    previous: [],
    run: run as Job["run"], // it receives an EndContext
  };
  return { statuses: Object.freeze([...new Set(statuses)]), job };
}

/** Checks and copies the schemas of an option. Names are given without an occurrence. */
function readSchemas(option: string, job: string, given: Schemas = {}): Schemas {
  if (typeof given !== "object" || given === null || isInstance(given, Array)) {
    throw new TypeError(`${option} of ${job} must be an object of schemas by names, not ${kindOf(given)}`);
  }
  for (const [name, schema] of Object.entries(given)) {
    checkRecordName(name, `A name in ${option} of ${job}`);
    checkSchema(schema, `${option}.${name} of ${job}`);
  }
  return Object.freeze(Object.assign(Object.create(null), given));
}

/** The definitions of earlier versions, and those that they have before them: of the same name. */
function readPrevious({ name, previous = [] }: ChangeDefinition & { name: string }): readonly Job[] {
  if (!isInstance(previous, Array)) {
    throw new TypeError(`previous of job "${name}" must be an array, not ${kindOf(previous)}`);
  }
  const jobs = previous as readonly Job[]; // the type of the option only names what is checked here
  for (const job of jobs) {
    if (typeof job?.changes !== "object" || !isInstance(job.previous, Array)) {
      throw new TypeError(`previous of job "${name}" has something that defineJob() has not made`);
    }
    if (job.name === name) continue;
    throw new TypeError(`previous of job "${name}" has a definition of job "${job.name}": it must have the same name`);
  }
  return Object.freeze([...new Set(jobs.flatMap((job) => [job, ...job.previous]))]);
}

function checkDefinition(definition: { name: string; input?: unknown; output?: unknown; run?: unknown }): void {
  const { name, input, output, run } = definition;
  checkOptionNames(definition, JOB_OPTIONS, `defineJob() of job "${name}"`);
  checkSchema(input, `The input of job "${name}"`);
  if (output !== undefined) checkSchema(output, `The output of job "${name}"`);
  if (typeof run !== "function") throw new TypeError(`Job "${name}" needs a function run, not ${kindOf(run)}`);
}
