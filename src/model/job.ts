import { withoutOccurrence } from "../values/name.ts";
import type { Duration } from "../values/duration.ts";
import type { Json, Jsonify } from "../values/json.ts";
import type { DataSource, StepTransactionOptions } from "./data_source.ts";
import type { JobFlow } from "./flow.ts";
import type { JobChanges } from "./job/job_changes.ts";
import type { JobMessage, KeyedRun, MessageSchemas, ReceiveOptions, ReceiveResult } from "./job/job_messages.ts";
import type {
  ChildOutcome,
  InvokeItem,
  InvokeOptions,
  PayloadOptions,
  PreparedWait,
  ScheduleSlot,
  StepLog,
  StepOptions,
  StepTools,
  StepTriggerOptions,
  StepTriggerResult,
  WaitForSignalOptions,
} from "./job/step_calls.ts";
import type { ReceivedMessage, SentMessage } from "./message.ts";
import type { RetryPolicy } from "./retry.ts";
import type { TerminalStatus } from "./run.ts";
import type { Schema, SchemaOutput, Schemas } from "./schema.ts";
import type { Wait, WaitResult } from "./wait.ts";

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
  /** What the job after whose runs it cleans up says about changes of its code; `null`: it is no such job. */
  readonly endOf: JobChanges | null;
  /** The definitions of earlier versions, with those that they have before them. */
  readonly previous: readonly Job[];
  /** The job's function. It receives the parsed input as stored. */
  readonly run: (step: StepContext, input: unknown) => unknown;
  /** Used only for type inference: it is never set. */
  readonly outputType?: Output;
}

/** The schema of a wait of a job, by its name with its occurrence, or by a former name; `undefined`: it has none. */
export function waitSchemaOf({ waits, changes }: Pick<Job, "waits" | "changes">, name: string): Schema | undefined {
  let base: string | undefined = withoutOccurrence(String(name));
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
