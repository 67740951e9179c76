import type { Job } from "../model/job.ts";
import type { KeyedRun, MessageSchemas, NoMessages } from "../model/job/job_messages.ts";
import type { SchemaInput } from "../model/schema.ts";
import type { AskOptions, SendOptions } from "./messages.ts";
import type { Json } from "../values/json.ts";
import type { SendResult } from "../model/message.ts";
import type { Labels, Run, RunFilter, RunPage, UncountedPage } from "../model/run.ts";
import type { TriggerOptions, TriggerResult } from "./triggers/new_run.ts";
import type { WaitOptions } from "./runs/wait_for_run.ts";

/** The jobs of an engine, by the names of their handles. */
export type Jobs = { readonly [key: string]: Job };

/** A completed run whose output has the type of its job. */
export type CompletedRun<Output> = Omit<Run, "output"> & {
  /** What the job's function returned. */
  output: Output;
};

/** One of several runs to trigger. */
export type BatchItem<Input, L = Labels> = TriggerOptions<L> & {
  /** The input. */
  input: Input;
};

/** The operations on the runs of one job. */
export interface JobHandle<Input, Output, L = Labels, M extends MessageSchemas = NoMessages> {
  /** Asks for a run. See {@linkcode Engine.trigger}. */
  trigger(input: Input, options?: TriggerOptions<L>): Promise<TriggerResult>;
  /**
   * Asks for a run and waits until it has completed. See {@linkcode Engine.waitForRun}.
   *
   * @returns The completed run, and whether it is new (`disposition`).
   */
  triggerAndWait(
    input: Input,
    options?: TriggerOptions<L> & WaitOptions,
  ): Promise<CompletedRun<Output> & Pick<TriggerResult, "disposition">>;
  /** Asks for several runs: all of them or none. */
  batchTrigger(items: readonly BatchItem<Input, L>[]): Promise<TriggerResult[]>;
  /** Sends a message to a run of this job: the one of an id, or of an idempotency key. See {@linkcode Engine.send}. */
  send<Name extends keyof M & string>(
    to: string | Pick<KeyedRun, "key">,
    name: Name,
    payload: SchemaInput<M[Name]>,
    options?: SendOptions<L, Input>,
  ): Promise<SendResult>;
  /**
   * Sends a message to a run of this job, and waits for the answer: what the job hands to `step.respond()`. See
   * {@linkcode Engine.ask}.
   */
  ask<Answer = Json, Name extends keyof M & string = keyof M & string>(
    to: string | Pick<KeyedRun, "key">,
    name: Name,
    payload: SchemaInput<M[Name]>,
    options?: AskOptions<L, Input>,
  ): Promise<Answer>;
  /** A run of this job, or `null`. */
  getRun(runId: string): Promise<Run | null>;
  /** Runs of this job, newest first. They are not counted. */
  getRuns(filter: Omit<RunFilter, "jobName"> & { total: false }): Promise<UncountedPage>;
  /** Runs of this job, newest first, and how many there are. */
  getRuns(filter?: Omit<RunFilter, "jobName">): Promise<RunPage>;
}

/** The handles of an engine's jobs, by their names in `jobs`. */
export type JobHandles<J extends Jobs, L = Labels> = {
  readonly [K in keyof J]: J[K] extends Job<infer Input, infer Output, string, infer M> ? JobHandle<Input, Output, L, M>
    : never;
};
