import { WorkError } from "../../model/error.ts";
import type { Job, StepTools } from "../../model/job.ts";
import { checkRetryPolicy } from "../../model/retry.ts";
import type { DataSource, StepTransactionOptions } from "../../model/data_source.ts";
import type { Report } from "../../model/execution_report.ts";
import type { Json, JsonText } from "../../values/json.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Execution } from "../execution.ts";
import { Mistake } from "../transactions.ts";
import { STEP_TRIGGER_OPTIONS } from "./child_calls.ts";
import { startedRun } from "./started_run.ts";
import { Committed, type StepCalls, type TransactedAttempt } from "./step_calls.ts";

const OPTIONS: Record<keyof StepTransactionOptions, true> = { retry: true, isolation: true, timeout: true };

type Work = (tx: never, tools: StepTools) => unknown;

/** Implements `step.transaction()`: a step whose record and whose rows are one commit. */
export class TransactionCalls {
  readonly #execution: Execution;
  readonly #steps: StepCalls;

  constructor(execution: Execution, steps: StepCalls) {
    this.#execution = execution;
    this.#steps = steps;
  }

  /** See `StepContext.transaction()`. */
  async transaction(
    givenName: string,
    source: DataSource,
    work: Work,
    options: StepTransactionOptions,
  ): Promise<Json | undefined> {
    checkOptionNames(options, OPTIONS, "step.transaction()");
    const { retry, ...rest } = options;
    if (retry !== undefined) checkRetryPolicy(retry, ` of step "${givenName}"`);
    return await this.#steps.step(givenName, {
      work: work as () => unknown, // it is called with its own parameters, below
      timeout: undefined, // that of the transaction ends it
      transact: (attempt) => this.#transact(source, work, rest, attempt),
    }, retry);
  }

  async #transact(
    source: DataSource,
    work: Work,
    options: Omit<StepTransactionOptions, "retry">,
    { tools, current }: TransactedAttempt,
  ): Promise<Committed> {
    const execution = this.#execution;
    const { deps: { transactions }, claim: { run } } = execution;
    const { name } = current();
    let output: JsonText | null = null;
    // Other results are held back only from when the record is sent.
    let sent: PromiseWithResolvers<void> | null = null;
    const toRecord = (value: unknown, take: () => readonly Report[]) => {
      execution.checkDeadline();
      if (execution.state.isLate) throw execution.abortSignal.reason;
      output = this.#encode(value, name);
      if (sent === null) execution.order.expect((sent = Promise.withResolvers()).promise);
      return { write: { ...current(), result: { status: "completed" as const, output } }, reports: take() };
    };
    try {
      const { answers: { step } } = await execution.writeLate((take) =>
        transactions.perform(source, {
          subject: `transaction "${name}" of job "${run.jobName}"`,
          step: { name, lease: () => execution.lease },
          options,
          work: (tx) => work(tx as never, tools),
          create: (job, input, given) => {
            checkOptionNames(given, STEP_TRIGGER_OPTIONS, "tx.trigger()");
            return startedRun(execution, `tx.trigger() in "${name}"`, job as Job, input, given);
          },
          toRecord: (value) => toRecord(value, take),
        })
      );
      if (!("recorded" in step!)) return new Committed(output, step!);
      const { recorded: { result, recordedNo } } = step;
      return new Committed(result.status === "completed" ? result.output : null, { recordedNo, retry: null });
    } catch (error) {
      throw error instanceof WorkError ? error.cause : error;
    } finally {
      (sent as PromiseWithResolvers<void> | null)?.resolve();
    }
  }

  #encode(value: unknown, name: string): JsonText | null {
    try {
      return this.#execution.encode(value, `The result of step "${name}"`);
    } catch (error) {
      throw new Mistake(error);
    }
  }
}
