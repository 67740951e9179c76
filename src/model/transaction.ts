import type { KeyedRun } from "./job/job_messages.ts";
import type { Job } from "./job.ts";
import type { StepTriggerOptions } from "./job/step_calls.ts";
import type { ActorOptions } from "./origin.ts";
import type { Signal } from "./wait.ts";

/** The run that a transaction triggers. */
export interface TransactionTrigger {
  /** Its id, unless its idempotency key leads to another run. */
  runId: string;
}

/** The message that a transaction sends. */
export interface TransactionMessage {
  /** Its id: the one of the options, or a new one. */
  messageId: string;
}

/** Options of {@linkcode TransactionCalls.send}: those of `Engine.send()`. */
export interface TransactionSendOptions extends ActorOptions {
  /** Identifies the message: 1 to 200 characters. The same id with the same name and payload is a duplicate. Default: a new one. */
  id?: string;
  /**
   * Only for a message to the run of a key: if there is none that takes messages, a new one is started with the message.
   * Also in a step it inherits nothing.
   */
  start?: Omit<StepTriggerOptions, "idempotencyKey" | "idempotencyUntil" | "coalesce"> & ActorOptions & {
    /** The input. */
    input: unknown;
  };
}

/** What the function of a synchronous transaction asks of the engine: it is done if, and only if, the transaction commits. */
export interface TransactionCalls {
  /**
   * Triggers a run. Inside `step.transaction()` it is started as by `step.trigger()`, with the labels of the run; inside
   * `engine.transaction()` as by `engine.trigger()`.
   *
   * @throws {ValidationError} The input does not fit the job's schema, or an option is not valid.
   * @throws {TypeError} The schema is asynchronous, or the transaction has ended.
   */
  trigger<Input>(
    job: Job<Input>,
    input: NoInfer<Input>,
    options?: StepTriggerOptions & ActorOptions,
  ): TransactionTrigger;
  /** Triggers a run of the job with this name. */
  trigger(jobName: string, input: unknown, options?: StepTriggerOptions & ActorOptions): TransactionTrigger;
  /**
   * Ends a wait by a signal. If the wait refuses it, all is rolled back and the refusal thrown. In a database of its own
   * the wait is asked later, by the relay of the outbox.
   *
   * @throws {ValidationError} The signal is not valid, or its payload does not fit the schema of the wait.
   * @throws {TypeError} The schema is asynchronous, or the transaction has ended.
   */
  signal(waitId: string, signal: Signal, options?: ActorOptions): void;
  /**
   * Sends a message to a run, as `Engine.send()` does, also to one that the transaction triggers. If it is refused (no run
   * has the key, the run has ended, it has another message with the id), all is rolled back and the refusal thrown. In a
   * database of its own the message is sent later, by the relay of the outbox; what refuses it then is noted there.
   *
   * @param to The id of the run; or its job and its idempotency key, which also leads to the newest retry of that run.
   * @throws {ValidationError} The job has no message of this name, the payload or the input of `start` does not fit its
   * schema, or an option is not valid. In a database of its own, the payload of a message to an id is checked later.
   * @throws {NotFoundError} There is no run of this id, unless that is found out later; or the engine does not have its job.
   * @throws {TypeError} The schema is asynchronous, or the transaction has ended.
   */
  send(to: string | KeyedRun, name: string, payload: unknown, options?: TransactionSendOptions): TransactionMessage;
}

/** What the function of an asynchronous transaction asks of the engine: as {@linkcode TransactionCalls}, with promises. */
export interface AsyncTransactionCalls {
  /** Triggers a run. */
  trigger<Input>(
    job: Job<Input>,
    input: NoInfer<Input>,
    options?: StepTriggerOptions & ActorOptions,
  ): Promise<TransactionTrigger>;
  /** Triggers a run of the job with this name. */
  trigger(
    jobName: string,
    input: unknown,
    options?: StepTriggerOptions & ActorOptions,
  ): Promise<TransactionTrigger>;
  /** Ends a wait by a signal. A refusal is noted in the outbox. */
  signal(waitId: string, signal: Signal, options?: ActorOptions): Promise<void>;
  /** Sends a message to a run. A refusal by the run is noted in the outbox. */
  send(
    to: string | KeyedRun,
    name: string,
    payload: unknown,
    options?: TransactionSendOptions,
  ): Promise<TransactionMessage>;
}
