import { WorkError } from "../../model/error.ts";
import type { StepTools } from "../../model/job/step_calls.ts";
import type { DataSource, StepTransactionOptions } from "../../model/data_source.ts";
import type { Report } from "../../model/execution_report.ts";
import { type ExecutingStep, idempotencyKeyOf } from "../../model/step.ts";
import type { Json, JsonText } from "../../values/json.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Execution } from "../execution.ts";
import { Mistake, type TransactedStep } from "../transactions.ts";
import { oldNamesOf } from "../replay/recorded_history.ts";
import { startedRun, STEP_TRIGGER_OPTIONS } from "./child_calls.ts";
import { Committed, type StepCalls } from "./step_calls.ts";

const OPTIONS: Record<keyof StepTransactionOptions, true> = { retry: true, isolation: true, timeout: true };

const TRIGGER_OPTIONS = { ...STEP_TRIGGER_OPTIONS, by: true };

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
    return await this.#steps.step(givenName, {
      work: work as () => unknown, // it is called with its own parameters, below
      transact: (tools, current) => this.#transact(source, work, rest, tools, current),
    }, retry === undefined ? {} : { retry }); // its timeout ends the transaction
  }

  async #transact(
    source: DataSource,
    work: Work,
    options: Omit<StepTransactionOptions, "retry">,
    tools: StepTools,
    current: () => ExecutingStep,
  ): Promise<Committed> {
    const execution = this.#execution;
    const { deps: { transactions, surroundings }, claim, definition: { job: { changes } } } = execution;
    const { name } = current();
    // Other results are held back only from when the record is sent.
    let sent: PromiseWithResolvers<void> | null = null;
    const step = (take: () => readonly Report[]): TransactedStep => ({
      name,
      lease: () => execution.lease,
      runId: claim.run.id,
      keys: [name, ...oldNamesOf(name, changes)].map((name) =>
        idempotencyKeyOf(name, claim.originId, claim.copied?.undone)
      ),
      abortSignal: execution.abortSignal,
      encode: (value) => {
        execution.checkDeadline();
        if (execution.state.isLate) throw execution.abortSignal.reason;
        return this.#encode(value, name);
      },
      toRecord: (output) => {
        if (sent === null) execution.order.expect((sent = Promise.withResolvers()).promise);
        return { write: { ...current(), result: { status: "completed", output } }, reports: take() };
      },
      isLeaseSure: () => execution.isLeaseSure,
      renewLease: () => execution.renewLease(),
      beforeCommit: () => surroundings.beforeCommit?.(claim, name),
    });
    try {
      const { answers, output } = await execution.writeLate((take) =>
        transactions.perform(source, {
          subject: `transaction "${name}" of job "${claim.run.jobName}"`,
          step: step(take),
          options,
          work: (tx) => work(tx as never, tools),
          create: (job, input, given) => {
            checkOptionNames(given, TRIGGER_OPTIONS, "tx.trigger()");
            return startedRun(execution, `tx.trigger() in "${name}"`, job, input, given);
          },
        })
      );
      if (answers === null) return new Committed(output, undefined);
      if (!("recorded" in answers.step!)) return new Committed(output, answers.step!);
      const { recorded: { result, recordedNo } } = answers.step;
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
