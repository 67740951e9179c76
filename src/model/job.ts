import type {
  JobMessage,
  KeyedRun,
  MessageSchemas,
  NoMessages,
  ReceiveOptions,
  ReceiveResult,
} from "./job/job_messages.ts";
import type { ReceivedMessage, SentMessage } from "./message.ts";
import type { Duration } from "../values/duration.ts";
import { type FlowDefinition, type JobFlow, readJobFlow } from "./flow.ts";
import {
  type ChangeDefinition,
  type Changes,
  checkRecordName,
  type JobChanges,
  readJobChanges,
} from "./job/job_changes.ts";
import type { Json, Jsonify } from "../values/json.ts";
import type { Stream, StreamWriter } from "./stream.ts";
import { isInstance, kindOf } from "../values/unknown_values.ts";
import { checkName } from "../values/name.ts";
import {
  type Coalesce,
  type Disposition,
  ENDED,
  type IdempotencyUntil,
  type Labels,
  type TerminalStatus,
} from "./run.ts";
import { type EndContext, endJobName } from "./end.ts";
import { checkOptionNames, namesOf } from "../values/option_names.ts";
import { checkRetryPolicy, type RetryPolicy } from "./retry.ts";
import { checkSchema, type Schema, type SchemaInput, type SchemaOutput } from "./schema.ts";
import type { DataSource, StepTransactionOptions } from "./data_source.ts";
import type { Wait, WaitResult } from "./wait.ts";

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

/** Standard Schemas, by the names of what they check. */
export type Schemas = { readonly [name: string]: Schema };

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

/**
 * The API that a job's function works with. After an interruption the function is called again from the beginning;
 * recorded steps return their saved output and are not executed again.
 *
 * When the run parks, is cancelled, loses its lease, or the engine stops, what the job awaits here never settles: no
 * `try` can swallow it, and `finally` does not run. Put cleanup into a step: its `abortSignal` fires.
 *
 * `Waits` are the waits of the job ({@linkcode JobDefinition.waits}).
 */
// deno-lint-ignore no-explicit-any -- a function that takes a step of any job takes each of them
export interface StepContext<Waits extends Schemas = Record<never, never>, M extends MessageSchemas = any> {
  /** The id of the run. */
  readonly runId: string;
  /** 1 for the first execution of the run, one more after each interruption. */
  readonly execution: number;
  /**
   * The slot for which a schedule has made the run: ISO 8601 in UTC. A retry has the slot of the old run. `null` in any
   * other run.
   */
  readonly slotAt: string | null;
  /**
   * The same slot with the zone of its schedule, the date there, and the slot before it, as they were when the schedule
   * made the run: also in a retry, and after a change of the schedule.
   */
  readonly slot: ScheduleSlot | null;
  /** Fires when the run was cancelled or is late (`finishWithin`), its lease was lost, or the engine stops. */
  readonly abortSignal: AbortSignal;
  /**
   * Executes a function and records what it returns, so that it is never executed again once it is recorded.
   *
   * The value is returned after one round trip through JSON, the first time as on every replay. A name that is used
   * again is another step (`name#2`), so that loops work; steps that run in parallel need different names.
   *
   * The function may be executed again if the process dies before its result was recorded.
   *
   * @throws {StepError} The last attempt threw, took too long, or returned a value that cannot be stored as JSON.
   */
  run<T>(name: string, work: (tools: StepTools) => T | Promise<T>, options?: StepOptions): Promise<Jsonify<T>>;
  /**
   * Executes a function in a transaction of your database, and records what it returns: a step like
   * {@linkcode StepContext.run}, except that what the function writes and the record are one commit. So it takes effect
   * once, whatever happens to the process.
   *
   * The function is executed again while nothing was committed, so it must do nothing but SQL. On SQLite it is
   * synchronous. If it throws, all is rolled back, and the attempt has failed.
   *
   * @param source A data source of the engine: `store.dataSource()`, named in `dataSources` of `createEngine()`.
   * @param work Is given `tx`, to read and write with and to trigger runs. `tx` ends with it.
   * @throws {StepError} The last attempt threw, took too long, or returned a value that cannot be stored as JSON.
   */
  transaction<Tx, T>(
    name: string,
    source: DataSource<Tx>,
    work: (tx: Tx, tools: StepTools) => T | Promise<T>,
    options?: StepTransactionOptions,
  ): Promise<Jsonify<T>>;
  /**
   * Pauses for some time: `step.sleep("nap", "2h")`. A paused run holds no worker, no lease and no memory: the code after the pause is
   * executed when the run resumes, on any worker.
   *
   * A pause never throws into the job. `finally` and `using` around it do not run while the run waits.
   */
  sleep(name: string, duration: Duration): Promise<void>;
  /** Pauses until an instant of the wall clock. An instant in the past ends the pause at once. */
  sleepUntil(name: string, date: Date | string): Promise<void>;
  /**
   * Prepares a wait without pausing on it, so that its id can be handed out first. A signal that arrives before the
   * run pauses is kept. A replay returns the same wait, with its first deadline. With a `schema`, or one among the `waits`
   * of the job, a payload that does not fit is refused when it is sent, and forms know what to ask.
   *
   * @returns The wait as it was prepared.
   */
  prepareWait<Name extends keyof Waits & string>(
    name: Name,
    options?: WaitForSignalOptions,
  ): Promise<PreparedWait<SchemaOutput<Waits[Name]>>>;
  /** Prepares a wait that is not among the `waits` of the job, or has another schema. */
  prepareWait<Payload = Json>(
    name: string,
    options?: WaitForSignalOptions & PayloadOptions<Payload>,
  ): Promise<PreparedWait<Payload>>;
  /** Pauses until a signal or the deadline ends a wait. The payload is checked by the schema with which it was prepared. */
  waitFor<Payload = Json>(
    wait: Pick<PreparedWait<Payload>, "id" | "payloadType">,
    options?: { schema?: undefined },
  ): Promise<WaitResult<Payload>>;
  /** Pauses until a signal or the deadline ends a wait, and checks the payload by a schema. */
  waitFor<Payload = Json>(wait: Pick<Wait, "id">, options?: PayloadOptions<Payload>): Promise<WaitResult<Payload>>;
  /** Prepares a wait and pauses on it. */
  wait<Name extends keyof Waits & string>(
    name: Name,
    options?: WaitForSignalOptions,
  ): Promise<WaitResult<SchemaOutput<Waits[Name]>>>;
  /** Prepares a wait that is not among the `waits` of the job, or has another schema, and pauses on it. */
  wait<Payload = Json>(
    name: string,
    options?: WaitForSignalOptions & PayloadOptions<Payload>,
  ): Promise<WaitResult<Payload>>;
  /**
   * Takes the oldest unread message that was sent to the run, also one that came before this call, or waits for the next
   * one. Each message is taken once; a replay returns the same one. Like every pause, it holds no worker.
   *
   * @param name The name of the message, and of this receive; with `names` the name of the receive alone.
   * @returns `null`: none came in time, or the inbox is closed. With `max` an array, empty then.
   * @throws {TypeError} The job has no such message, or an option is not valid.
   */
  receive<Name extends keyof M & string, const Options extends ReceiveOptions = Record<never, never>>(
    name: Name,
    options?: Options & { names?: undefined },
  ): Promise<ReceiveResult<JobMessage<M, Name>, Options>>;
  /** Takes the oldest unread message of several names. */
  receive<Name extends keyof M & string, const Options extends ReceiveOptions>(
    name: string,
    options: Options & { names: readonly Name[] },
  ): Promise<ReceiveResult<JobMessage<M, Name>, Options>>;
  /**
   * Answers a message: a step of the name `respond:` with the id of the message, which `engine.ask()` waits for.
   *
   * @param value What the asker gets: any JSON; `null` for `undefined`.
   * @throws {TypeError} The message has an answer.
   * @throws {SerializationError} The value cannot be stored as JSON.
   */
  respond(message: Pick<ReceivedMessage, "id">, value: unknown): Promise<void>;
  /**
   * Sends a message to another run, once, even if the process dies in between: a step. It does not wait for an answer.
   *
   * @param to The id of the run; or its job and its idempotency key.
   * @throws {StepError} There is no such run, it has ended, it does not take this message, or the payload does not fit.
   */
  send(name: string, to: string | KeyedRun, message: string, payload: unknown): Promise<SentMessage>;
  /**
   * Starts a run of a job and pauses until it has ended. Like every pause, this holds no worker, and a replay returns
   * the same result. If this run ends first, the child is cancelled.
   *
   * A child inherits the labels, the priority and the fairness key of this run. This engine must have the job, and some
   * live worker has to execute it.
   *
   * @returns What the child's function returned.
   * @throws {RunFailedError} The child failed.
   * @throws {RunCancelledError} The child was cancelled.
   * @throws {ValidationError} The input does not fit the job's schema, or an option is not valid.
   * @throws {RangeError} This run has 32 parents above it already.
   * @throws {TypeError} `job` is not a job, or this engine does not have it.
   */
  invoke<Input, Output>(
    name: string,
    job: Job<Input, Output>,
    input: NoInfer<Input>,
    options?: InvokeOptions,
  ): Promise<Output>;
  /**
   * Starts up to 10,000 runs of a job and pauses until all of them have ended, however they end.
   *
   * @returns How they ended, in the order of the items.
   * @throws {RangeError} There are too many items, the results take more than 64 MiB together, or this run has 32
   * parents above it already.
   * @throws {ValidationError} An input does not fit the job's schema, or an option is not valid.
   * @throws {TypeError} `job` is not a job, or this engine does not have it.
   */
  invokeAll<Input, Output>(
    name: string,
    job: Job<Input, Output>,
    items: readonly InvokeItem<NoInfer<Input>>[],
  ): Promise<ChildOutcome<Output>[]>;
  /**
   * Starts a run of a job and does not wait for it: a step that is recorded once the run is stored. There is never more
   * than one run, even if the process dies in between. The run goes on when this one ends.
   *
   * @throws {StepError} The input does not fit the job's schema, an option is not valid, or this engine does not have
   * the job.
   * @throws {TypeError} `job` is not a job.
   */
  trigger<Input, Output>(
    name: string,
    job: Job<Input, Output>,
    input: NoInfer<Input>,
    options?: StepTriggerOptions,
  ): Promise<StepTriggerResult>;
  /**
   * Reports the run's progress and publishes one event for each call. The latest report is stored with the run's next
   * write, or by a write of its own 20 to 120 ms after the call; a crash may lose one that was not yet written. Does
   * nothing while a replay repeats earlier code.
   */
  progress(current: number, total?: number, message?: string): void;
  /**
   * Whether code that was added to the job is executed in this run: `true` if the run had not been further than this
   * place when it first came here, else `false`. The answer is recorded, so it never changes. In a run that had been
   * further, the first call takes a second.
   */
  patch(name: string): Promise<boolean>;
  /** Writes log lines. They write nothing while a replay repeats earlier code. */
  readonly log: StepLog;
}

/**
 * A job, made by {@linkcode defineJob}. `Input` is the input of a trigger, `Output` the output of a completed run, and
 * `Name` the name, from which a typed client knows the job.
 */
export interface Job<
  Input = unknown,
  Output = unknown,
  Name extends string = string,
  M extends MessageSchemas = MessageSchemas,
> {
  /** The job's name. */
  readonly name: Name;
  /** Checks the input of a trigger. */
  readonly input: Schema<Input, unknown>;
  /** Checks what the function returns. */
  readonly output: Schema | null;
  /** The schemas of the payloads of its waits, by the names of these. */
  readonly waits: Schemas;
  /** The messages that its runs take, by name, with the schema of each. */
  readonly messages: M;
  /** The default retry policy of its steps. */
  readonly retry: RetryPolicy;
  /** When, in which order and under which limits its runs are executed. */
  readonly flow: JobFlow;
  /** What it says about changes of its code. */
  readonly changes: JobChanges;
  /** What cleans up after its runs; `null`: nothing. */
  readonly onEnd: JobEnd | null;
  /** Whether it cleans up after the runs of another job. */
  readonly isEnd: boolean;
  /** The definitions of earlier versions, with those that they have before them. */
  readonly previous: readonly Job[];
  /** The job's function. It receives the parsed input as stored. */
  readonly run: (step: StepContext, input: unknown) => unknown;
  /** Used only for type inference: it is never set. */
  readonly outputType?: Output;
}

/** The schema of a wait of a job, by its name with its occurrence, or by a former name; `undefined`: it has none. */
export function waitSchemaOf({ waits, changes }: Pick<Job, "waits" | "changes">, name: string): Schema | undefined {
  let base: string | undefined = String(name).replace(/#\d+$/, "");
  while (base !== undefined && waits[base] === undefined) base = changes.renamed.get(base);
  return base === undefined ? undefined : waits[base];
}

/** The input of a job, as a trigger takes it: `JobInput<typeof greet>`. */
export type JobInput<J extends Job> = J extends Job<infer Input> ? Input : never;

/** The output of a job's completed runs: `JobOutput<typeof greet>`. */
export type JobOutput<J extends Job> = J extends Job<unknown, infer Output> ? Output : never;

/** What cleans up after the runs of a job. */
export interface JobEnd {
  /** It does so after runs that end with one of these. */
  readonly statuses: readonly TerminalStatus[];
  /** The hidden job whose runs do it. */
  readonly job: Job;
}

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
  checkName(definition.name, "The name of a job");
  checkDefinition(definition);
  const { retry = {} } = definition;
  checkRetryPolicy(retry, ` of job "${definition.name}"`);
  const subject = `job "${definition.name}"`;
  return {
    name: definition.name,
    input: definition.input as Schema<SchemaInput<S>, unknown>, // the input type of S, which TypeScript cannot derive
    output: definition.output ?? null,
    waits: readSchemas("waits", subject, definition.waits),
    messages: readSchemas("messages", subject, definition.messages) as M, // the same schemas
    retry: { ...retry },
    flow: readJobFlow(definition, subject),
    changes: readJobChanges(definition, subject),
    onEnd: readEnd(definition, subject),
    isEnd: false,
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
  const given = Object.fromEntries(Object.entries(others).filter(([, value]) => value !== undefined));
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
    isEnd: true,
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
