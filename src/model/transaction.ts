import type { Job, StepTriggerOptions } from "./job.ts";
import type { ActorOptions } from "./origin.ts";
import type { Signal } from "./wait.ts";

/** The run that a transaction triggers. */
export interface TransactionTrigger {
  /** Its id, unless its idempotency key leads to another run. */
  runId: string;
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
}
