import { AsyncLocalStorage } from "node:async_hooks";
import type { ExecutionDeps } from "../../execution/execution.ts";
import {
  Mistake,
  type TransactionEnd,
  type TransactionRequest,
  type Transactions,
} from "../../execution/transactions.ts";
import { TimeoutError, WorkError } from "../../model/error.ts";
import type { DataSource, TransactionOptions } from "../../model/data_source.ts";
import type { NewOutboxRow, SourceWrites } from "../../model/effects.ts";
import type { Job, StepTriggerOptions } from "../../model/job.ts";
import type { ActorOptions } from "../../model/origin.ts";
import type { AsyncTransactionCalls, TransactionCalls } from "../../model/transaction.ts";
import type { SignalReceipt } from "../../model/wait.ts";
import type { Store } from "../../store/store.ts";
import type { StoreAnswers } from "../../store/transaction.ts";
import { andThen, isPromise, type Soon } from "../../values/at_once.ts";
import { readDuration } from "../../values/duration.ts";
import type { JsonText } from "../../values/json.ts";
import { isInstance } from "../../values/is_instance.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { RunChanges } from "../runs/run_changes.ts";
import { toTriggerResult, type TriggerResult } from "../triggers/new_run.ts";
import type { Triggers } from "../triggers/triggers.ts";
import { executorOf, inPromise } from "./open_transaction.ts";
import type { Relay, Relayed } from "./relay.ts";
import { Requests } from "./requests.ts";

/** What a transaction has committed. */
export interface TransactionResult<T> {
  /** What the function returned. */
  value: T;
  /**
   * The runs that it triggered, in their order. `null`: the data source is not joined, and the store has not answered for
   * five seconds. The transaction is committed, and the runs are added later.
   */
  runs: TriggerResult[] | null;
  /** The signals that it sent, in their order; `null` as for `runs`. */
  signals: SignalReceipt[] | null;
}

type TransactionsDeps = Pick<ExecutionDeps, "store" | "host" | "around" | "maxValueBytes" | "warn"> & {
  /** The store as it was given to the engine. */
  given: Store;
  /** The data sources of the engine, by their names. */
  sources: ReadonlyMap<DataSource, string>;
  triggers: Triggers;
  runs: () => RunChanges;
  relay: () => Relay;
};

/** A transaction whose requests went through an outbox. */
type RelayedEnd = TransactionEnd & { relayed?: Relayed[] | null };

/** One execution of the function of a transaction. */
interface WorkExecution {
  requests: Requests;
  value: unknown;
  output: JsonText | null;
}

const TRANSACTION_OPTIONS: Record<keyof TransactionOptions, true> = { isolation: true, timeout: true };
const DEFAULT_TIMEOUT_MS = 60_000;
// A longer function on SQLite is worth a warning: nobody else can write meanwhile.
const SLOW_MS = 20;
const MAX_SLOW = 1_000;

/** Makes the transactions of an engine: those of steps, and those of `engine.transaction()`. */
export class EngineTransactions implements Transactions {
  readonly #deps: TransactionsDeps;
  /** The subjects of the transactions that were slow. */
  readonly #slow = new Set<string>();
  readonly #migrations = new Map<DataSource, Promise<void>>();
  #storeId: Promise<string> | null = null;

  constructor(deps: TransactionsDeps) {
    this.#deps = deps;
  }

  /** All data sources. */
  get sources(): DataSource[] {
    return [...this.#deps.sources.keys()];
  }

  /** The data sources that are not joined with the store of the engine. */
  get unjoined(): DataSource[] {
    return [...this.#deps.sources.keys()].filter((source) => !this.#isJoined(source));
  }

  /** Creates the tables of the data sources. */
  async migrate(): Promise<void> {
    await Promise.all(this.sources.map((source) => this.#migrated(source)));
  }

  /** The id of the store, which effects are marked with. */
  storeId(): Promise<string> {
    return this.#storeId ??= this.#deps.store.getInfo().then(({ id }) => id, (error) => {
      this.#storeId = null; // the next call tries again
      throw error;
    });
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
      const { value, answers, relayed = [] } = await this.perform(source, {
        subject: "engine.transaction()",
        step: null,
        options,
        work,
        create: (job, input, given) => triggers.requestNow(job, input, given),
      });
      if (answers === null) return { value: value as Awaited<T>, ...toResults(relayed) };
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

  async perform(source: DataSource, request: TransactionRequest): Promise<RelayedEnd> {
    this.#check(source, request);
    return await (this.#isJoined(source) ? this.#performJoined(source, request) : this.#performApart(source, request));
  }

  /** Lets the store commit. */
  async #performJoined(source: DataSource, request: TransactionRequest): Promise<TransactionEnd> {
    const { step } = request;
    const { call, last, rollBack } = this.#executions(source, request);
    try {
      const answers = await this.#deps.store.transact!(
        source,
        step,
        (tx) =>
          andThen(call(tx), ({ requests: { runs, signals }, output }) => {
            const record = step?.toRecord(output) ?? null;
            step?.beforeCommit();
            return { step: record, runs, signals };
          }),
      );
      this.#publish(answers, last());
      return { value: last()?.value, output: last()?.output ?? null, answers };
    } catch (error) {
      rollBack(error);
      throw error;
    }
  }

  /** Commits in a database that the store knows nothing of, where an effect says that the step has committed. */
  async #performApart(source: DataSource, request: TransactionRequest): Promise<RelayedEnd> {
    const { step } = request;
    await this.#migrated(source);
    const storeId = await this.storeId();
    const { call, last, rollBack } = this.#executions(source, request);
    const toWrites = (execution: WorkExecution): Soon<SourceWrites> => {
      const rows = toRows(execution.requests, storeId, this.#deps.host.now());
      if (step === null) return { effect: null, rows };
      const writes = (): SourceWrites => {
        step.beforeCommit();
        const { keys: [key], runId } = step;
        const effect = { key: key!, storeId, runId, output: execution.output, at: this.#deps.host.now() };
        return { effect, rows };
      };
      if (step.isLeaseSure()) return writes();
      // A synchronous function cannot wait for it: it is executed again.
      if (source.kind === "sqlite") throw new LeaseInDoubt();
      return step.renewLease().then(writes);
    };
    const limit = this.#startTimeout(source, request);
    try {
      const answer = await source.effects.transact({
        keys: step?.keys ?? [],
        work: (tx) => andThen(call(tx), toWrites),
        isolation: request.options.isolation,
        abortSignal: limit?.abortSignal ?? null,
      });
      if ("found" in answer) return { value: undefined, output: answer.found, answers: null };
      const { value, output, requests } = last()!; // it was committed
      const relayed = await this.#relayNow(requests);
      return { value, output, answers: null, relayed };
    } catch (error) {
      rollBack(error);
      if (!(error instanceof WorkError) || !isInstance(error.cause, LeaseInDoubt)) throw error;
    } finally {
      limit?.cancel();
    }
    await step?.renewLease();
    return await this.#performApart(source, request);
  }

  /** Moves what a transaction has left in the outbox, at once if the store answers. */
  async #relayNow(requests: Requests): Promise<Relayed[] | null> {
    const ids = [...requests.runs.map(({ id }) => id), ...requests.signals.map(({ signal }) => signal.signalId)];
    const relayed = ids.length === 0 ? [] : await this.#deps.relay().relayNow(ids);
    const runs = relayed?.flatMap((one) => "run" in one && one.run !== null ? [one.run] : []) ?? [];
    if (relayed === null || relayed.length === 0) requests.commit({ step: null, runs, signals: [] });
    return relayed;
  }

  /** Does `Engine.inTransaction()`. */
  inTransaction(source: DataSource, client: unknown): AsyncTransactionCalls {
    const { host, triggers, maxValueBytes } = this.#deps;
    this.#check(source, { subject: "engine.inTransaction()", options: {} });
    const execute = executorOf(client);
    const requests = () =>
      new Requests({ ...this.#deps, maxValueBytes, create: (...given) => triggers.requestNow(...given) });
    const insert = (asked: Requests): Soon<void> => {
      const rows = toRows(asked, null, host.now());
      asked.commit({ step: null, runs: [], signals: [] });
      this.#deps.relay().wake();
      return rows.reduce<Soon<void>>((before, row) => {
        const { sql, parameters } = source.effects.insertion(row);
        return andThen(before, () => execute(sql, parameters));
      }, undefined);
    };
    return {
      trigger: (job: Job | string, input: unknown, options: StepTriggerOptions & ActorOptions = {}) =>
        inPromise(() => {
          const asked = requests();
          return andThen(
            asked.triggerSoon(job, input, options),
            (run) => andThen(insert(asked), () => run),
          );
        }),
      signal: (waitId, signal, options) =>
        inPromise(() => {
          const asked = requests();
          (asked.calls("sqlite").signal as TransactionCalls["signal"])(waitId, signal, options);
          return insert(asked);
        }),
    };
  }

  /** What executes the function, and remembers the last execution: only that one can have been committed. */
  #executions(source: DataSource, request: TransactionRequest) {
    // A database calls the function from wherever it commits.
    const within = AsyncLocalStorage.snapshot();
    let last: WorkExecution | null = null;
    const rollBack = (error: unknown) => last?.requests.rollBack(error);
    return {
      call: (tx: object): Soon<WorkExecution> => {
        rollBack(new Error("The transaction was repeated"));
        const execution = { requests: new Requests({ ...this.#deps, ...request }), value: undefined, output: null };
        last = execution;
        return within(() => this.#execute(source, request, tx, execution));
      },
      last: (): WorkExecution | null => last,
      rollBack,
    };
  }

  /** Calls the function. */
  #execute(
    { kind }: DataSource,
    { subject, work, step }: TransactionRequest,
    tx: object,
    execution: WorkExecution,
  ): Soon<WorkExecution> {
    const { host } = this.#deps;
    const { requests } = execution;
    const since = host.monotonic();
    const end = (value: unknown): WorkExecution => {
      requests.end();
      execution.value = value;
      execution.output = step?.encode(value) ?? null;
      return execution;
    };
    Object.assign(tx, requests.calls(kind));
    if (kind !== "sqlite") return (async () => end(await work(tx)))();
    try {
      const value = work(tx);
      if (!isPromise(value)) return end(value);
      value.then(() => {}, () => {}); // nobody waits for it
      throw new Mistake(
        new TypeError(
          `The function of ${subject} returned a promise: on SQLite it has to be synchronous, since other writes share its commit`,
        ),
      );
    } finally {
      requests.end();
      this.#noteDuration(subject, host.monotonic() - since);
    }
  }

  #publish(answers: StoreAnswers, last: WorkExecution | null): void {
    const { triggers, runs } = this.#deps;
    last?.requests.commit(answers);
    // There are none if an earlier try has recorded the step.
    answers.runs.forEach((one, index) => triggers.publish(one, last!.requests.runs[index]!));
    answers.signals.forEach((outcome) => runs().noteSignal(outcome));
  }

  #isJoined(source: DataSource): boolean {
    return source.store === this.#deps.given && this.#deps.store.transact !== undefined;
  }

  #migrated(source: DataSource): Promise<void> {
    let migration = this.#migrations.get(source);
    if (migration === undefined) {
      migration = source.effects.migrate();
      this.#migrations.set(source, migration);
      migration.catch(() => this.#migrations.delete(source)); // the next call tries again
    }
    return migration;
  }

  /** On SQLite nothing can interrupt the function. */
  #startTimeout({ kind }: DataSource, { subject, step, options }: TransactionRequest) {
    if (kind === "sqlite") return null;
    const ms = readDuration(options.timeout ?? DEFAULT_TIMEOUT_MS, `The timeout of ${subject}`);
    const late = new AbortController();
    const error = new TimeoutError(`${capital(subject)} took longer than ${ms} ms`);
    const cancel = this.#deps.host.schedule(ms, () => late.abort(error));
    const abortSignal = step === null ? late.signal : AbortSignal.any([step.abortSignal, late.signal]);
    return { abortSignal, cancel };
  }

  #check(source: DataSource, { subject, options }: Pick<TransactionRequest, "subject" | "options">): void {
    if (!this.#deps.sources.has(source)) {
      throw mistake(`The data source of ${subject} is not one of the dataSources of createEngine()`);
    }
    if (options.timeout !== undefined && source.kind === "sqlite") {
      throw mistake(`A timeout of ${subject} is not possible: a synchronous function cannot be interrupted`);
    }
    if (options.isolation !== undefined && source.kind === "sqlite") {
      throw mistake(`An isolation of ${subject} is not possible: on SQLite all transactions are serializable`);
    }
  }

  #noteDuration(subject: string, ms: number): void {
    if (ms <= SLOW_MS || this.#slow.has(subject) || this.#slow.size >= MAX_SLOW) return;
    this.#slow.add(subject);
    this.#deps.warn(`${capital(subject)} took ${Math.round(ms)} ms: nobody else can write to the file meanwhile`);
  }
}

/** The lease may have passed on: before the commit it has to be renewed. */
class LeaseInDoubt extends Error {}

/** The requests of a function as rows of the outbox: as they were given, with what the run inherits. */
function toRows({ runs, signals, signalsBy, options }: Requests, storeId: string | null, at: number): NewOutboxRow[] {
  return [
    ...runs.map(({ id, jobName, payload, labels, flow: { priority, fairnessKey } }, index): NewOutboxRow => {
      const inherited = { labels, priority, ...(fairnessKey === null ? {} : { fairnessKey }) };
      const given = { ...options[index], ...inherited };
      if ("coalesce" in given) throw new Mistake(new TypeError("coalesce needs a data source that is joined"));
      return { id, kind: "trigger", name: jobName, value: payload, options: JSON.stringify(given), storeId, at };
    }),
    ...signals.map(({ waitId, signal: { signalId, payload } }, index): NewOutboxRow => {
      const by = signalsBy[index] ?? null;
      const given = by === null ? null : JSON.stringify({ by });
      return {
        id: signalId,
        kind: "signal",
        name: waitId,
        value: JSON.stringify(payload),
        options: given,
        storeId,
        at,
      };
    }),
  ];
}

function toResults(relayed: Relayed[] | null): Pick<TransactionResult<never>, "runs" | "signals"> {
  if (relayed === null) return { runs: null, signals: null };
  return {
    runs: relayed.flatMap((one) => "run" in one && one.run !== null ? [toTriggerResult(one.run)] : []),
    signals: relayed.flatMap((one) => "signal" in one ? [one.signal] : []),
  };
}

function capital(subject: string): string {
  return subject.charAt(0).toUpperCase() + subject.slice(1);
}

function mistake(message: string): WorkError {
  return new WorkError(new Mistake(new TypeError(message)));
}
