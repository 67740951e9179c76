import { AsyncLocalStorage } from "node:async_hooks";
import type { ExecutionDeps } from "../../execution/execution.ts";
import { Mistake, type TransactionRequest, type Transactions } from "../../execution/transactions.ts";
import { WorkError } from "../../model/error.ts";
import type { DataSource, TransactionOptions } from "../../model/data_source.ts";
import type { SignalReceipt } from "../../model/wait.ts";
import type { Store } from "../../store/store.ts";
import type { StoreAnswers, StoreWrites } from "../../store/transaction.ts";
import { isPromise } from "../../values/at_once.ts";
import { isInstance } from "../../values/is_instance.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { RunChanges } from "../runs/run_changes.ts";
import { toTriggerResult, type TriggerResult } from "../triggers/new_run.ts";
import type { Triggers } from "../triggers/triggers.ts";
import { Requests } from "./requests.ts";

/** What a transaction has committed. */
export interface TransactionResult<T> {
  /** What the function returned. */
  value: T;
  /** The runs that it triggered, in their order. */
  runs: TriggerResult[];
  /** The signals that it sent, in their order. */
  signals: SignalReceipt[];
}

type TransactionsDeps = Pick<ExecutionDeps, "store" | "host" | "around" | "maxValueBytes" | "warn"> & {
  /** The store as it was given to the engine. */
  given: Store;
  /** The data sources of the engine, by their names. */
  sources: ReadonlyMap<DataSource, string>;
  triggers: Triggers;
  runs: () => RunChanges;
};

const TRANSACTION_OPTIONS: Record<keyof TransactionOptions, true> = { isolation: true, timeout: true };
// A longer function on SQLite is worth a warning: nobody else can write meanwhile.
const SLOW_MS = 20;
const MAX_SLOW = 1_000;

/** Makes the transactions of an engine: those of steps, and those of `engine.transaction()`. */
export class EngineTransactions implements Transactions {
  readonly #deps: TransactionsDeps;
  /** The subjects of the transactions that were slow. */
  readonly #slow = new Set<string>();

  constructor(deps: TransactionsDeps) {
    this.#deps = deps;
  }

  /** Does `Engine.transaction()`. */
  async transact<T>(
    source: DataSource,
    work: (tx: object) => T,
    options: TransactionOptions,
  ): Promise<TransactionResult<Awaited<T>>> {
    checkOptionNames(options, TRANSACTION_OPTIONS, "engine.transaction()");
    const { triggers } = this.#deps;
    try {
      const { value, answers } = await this.perform(source, {
        subject: "engine.transaction()",
        step: null,
        options,
        work,
        create: (job, input, given) => triggers.requestNow(job, input, given),
        toRecord: () => null,
      });
      return {
        value: value as Awaited<T>, // what `work` returned
        runs: answers.runs.map(toTriggerResult),
        signals: answers.signals.map(({ run: _, ...receipt }) => receipt),
      };
    } catch (error) {
      if (!(error instanceof WorkError)) throw error;
      throw isInstance(error.cause, Mistake) ? (error.cause as Mistake).cause : error.cause;
    }
  }

  async perform(
    source: DataSource,
    request: TransactionRequest,
  ): Promise<{ value: unknown; answers: StoreAnswers }> {
    const { store, triggers, runs } = this.#deps;
    this.#check(source, request);
    // A store calls the function from wherever it commits.
    const within = AsyncLocalStorage.snapshot();
    const executions: { requests: Requests; value: unknown }[] = [];
    try {
      const answers = await store.transact!(source, request.step, (tx) => {
        executions.at(-1)?.requests.rollBack(new Error("The transaction was repeated"));
        const execution = { requests: new Requests({ ...this.#deps, create: request.create }), value: undefined };
        executions.push(execution);
        return within(() => this.#execute(request, tx, execution));
      });
      const last = executions.at(-1); // there is none if an earlier try has recorded the step
      last?.requests.commit(answers);
      answers.runs.forEach((one, index) => triggers.publish(one, last!.requests.runs[index]!));
      answers.signals.forEach((outcome) => runs().noteSignal(outcome));
      return { value: last?.value, answers };
    } catch (error) {
      executions.at(-1)?.requests.rollBack(error);
      throw error;
    }
  }

  /** Calls the function, and says what the store has to write. */
  #execute(
    { subject, work, toRecord }: TransactionRequest,
    tx: object,
    execution: { requests: Requests; value: unknown },
  ): StoreWrites {
    const { host } = this.#deps;
    const { requests } = execution;
    const since = host.monotonic();
    try {
      const value = execution.value = work(Object.assign(tx, { trigger: requests.trigger, signal: requests.signal }));
      if (isPromise(value)) {
        value.then(() => {}, () => {}); // nobody waits for it
        throw new Mistake(
          new TypeError(
            `The function of ${subject} returned a promise: on SQLite it has to be synchronous, since other writes share its commit`,
          ),
        );
      }
      return { step: toRecord(value), runs: requests.runs, signals: requests.signals };
    } finally {
      requests.end();
      this.#noteDuration(subject, host.monotonic() - since);
    }
  }

  #check(source: DataSource, { subject, options }: TransactionRequest): void {
    const { sources, given } = this.#deps;
    if (!sources.has(source)) {
      throw mistake(`The data source of ${subject} is not one of the dataSources of createEngine()`);
    }
    if (options.timeout !== undefined && source.kind === "sqlite") {
      throw mistake(`A timeout of ${subject} is not possible: a synchronous function cannot be interrupted`);
    }
    if (options.isolation !== undefined && source.kind === "sqlite") {
      throw mistake(`An isolation of ${subject} is not possible: on SQLite all transactions are serializable`);
    }
    if (source.store !== given) throw mistake(`The data source of ${subject} is not that of the store of the engine`);
  }

  #noteDuration(subject: string, ms: number): void {
    if (ms <= SLOW_MS || this.#slow.has(subject) || this.#slow.size >= MAX_SLOW) return;
    this.#slow.add(subject);
    const start = subject.charAt(0).toUpperCase() + subject.slice(1);
    this.#deps.warn(`${start} took ${Math.round(ms)} ms: nobody else can write to the file meanwhile`);
  }
}

function mistake(message: string): WorkError {
  return new WorkError(new Mistake(new TypeError(message)));
}
