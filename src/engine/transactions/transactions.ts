import type { ExecutionDeps } from "../../execution/execution.ts";
import {
  Mistake,
  type TransactionEnd,
  type TransactionRequest,
  type Transactions,
  unwrapped,
} from "../../execution/transactions.ts";
import type { DataSource, TransactionOptions } from "../../model/data_source.ts";
import type { SourceWrites } from "../../model/effects.ts";
import { StoreError, TimeoutError, WorkError } from "../../model/error.ts";
import type { SendResult } from "../../model/message.ts";
import type { AsyncTransactionCalls } from "../../model/transaction.ts";
import type { SignalReceipt } from "../../model/wait.ts";
import type { Store } from "../../store/store.ts";
import type { StoreAnswers } from "../../store/transaction.ts";
import { andThen, type Soon } from "../../values/at_once.ts";
import { readDuration } from "../../values/duration.ts";
import { capitalized } from "../../values/text.ts";
import { isInstance } from "../../values/unknown_values.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { checkPayload, loadValidator } from "../runs/check_payload.ts";
import type { Messages } from "../messages.ts";
import type { RunChanges } from "../runs/run_changes.ts";
import { toTriggerResult, type TriggerResult } from "../triggers/new_run.ts";
import type { Triggers } from "../triggers/triggers.ts";
import { callsInTransaction } from "./in_transaction.ts";
import type { Requests, RequestsDeps } from "./requests.ts";
import type { Relay, Relayed } from "./relay.ts";
import { type WorkExecution, WorkExecutions } from "./work_executions.ts";

/** What a transaction has committed. */
export interface TransactionResult<T> {
  /** What the function returned. */
  value: T;
  /**
   * The runs that it triggered, in their order. `null`: the data source is not joined, and the store has not answered for
   * five seconds, or has refused a run, a signal or a message. The transaction is committed. What was not refused is
   * added later.
   */
  runs: TriggerResult[] | null;
  /** The signals that it sent, in their order; `null` as for `runs`. */
  signals: SignalReceipt[] | null;
  /** The messages that it sent, in their order; `null` as for `runs`. */
  messages: SendResult[] | null;
}

type TransactionsDeps = Pick<ExecutionDeps, "store" | "host" | "around" | "maxValueBytes" | "warn"> & {
  /** The store as it was given to the engine. */
  given: Store;
  /** The data sources of the engine, by their names. */
  sources: ReadonlyMap<DataSource, string>;
  triggers: Triggers;
  jobs: JobCatalog;
  runs: () => RunChanges;
  messages: () => Messages;
  relay: () => Relay;
};

/** The running timeout of a transaction. */
interface Limit {
  ms: number;
  abortSignal: AbortSignal;
  cancel: () => void;
}

/** A transaction whose requests went through an outbox. */
type RelayedEnd = TransactionEnd & { relayed?: Relayed[] | null };

/** A transaction that the store has committed, with its messages. */
type JoinedEnd = TransactionEnd & { sent: SendResult[] };

const TRANSACTION_OPTIONS: Record<keyof TransactionOptions, true> = { isolation: true, timeout: true };
const DEFAULT_TIMEOUT_MS = 60_000;
// A longer function on SQLite is worth a warning.
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

  /** The data sources that are not joined with the store of the engine. */
  get unjoined(): DataSource[] {
    return [...this.#deps.sources.keys()].filter((source) => !this.#isJoined(source));
  }

  /** Creates the tables of the data sources. */
  async migrate(): Promise<void> {
    await Promise.all([...this.#deps.sources.keys()].map((source) => this.migrateOne(source)));
  }

  /** The same, but one that does not answer is passed over: its tables are made before it is used. */
  async migrateReachable(): Promise<void> {
    await Promise.all(
      [...this.#deps.sources.keys()].map((source) =>
        this.migrateOne(source).catch((error) => {
          if (!isInstance(error, StoreError) || error.code !== "unavailable") throw error;
        })
      ),
    );
  }

  /** Creates the tables of a data source, if that was not done before. */
  migrateOne(source: DataSource): Promise<void> {
    let migration = this.#migrations.get(source);
    if (migration === undefined) {
      migration = source.effects.migrate(this.#isJoined(source));
      this.#migrations.set(source, migration);
      migration.catch(() => this.#migrations.delete(source)); // the next call tries again
    }
    return migration;
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
      const { value, answers, sent = [], relayed = [] } = await this.perform(source, {
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
        messages: sent,
      };
    } catch (error) {
      throw unwrapped(error);
    }
  }

  async perform(source: DataSource, request: TransactionRequest): Promise<RelayedEnd & Partial<JoinedEnd>> {
    this.#check(source, request);
    const isJoined = this.#isJoined(source);
    if (!isJoined) await this.migrateOne(source).catch((error) => Promise.reject(new WorkError(error)));
    else if (source.kind === "sqlite") await loadValidator(); // its functions cannot wait for it
    const storeId = isJoined ? null : await this.storeId();
    const executions = new WorkExecutions(source, request, {
      ...this.#deps,
      checkPayload: this.#checkPayload,
      noteDuration: this.#noteDuration,
    });
    const limit = this.#startTimeout(source, request);
    try {
      return await (storeId === null
        ? this.#commitJoined(source, request, executions, limit)
        : this.#commitApart(source, request, executions, limit, storeId));
    } catch (error) {
      executions.rollBack(error);
      if (!(error instanceof WorkError) || !isInstance(error.cause, LeaseInDoubt)) throw error;
    } finally {
      limit?.cancel();
    }
    await request.step?.renewLease();
    return await this.perform(source, request);
  }

  /** Lets the store commit. */
  async #commitJoined(
    source: DataSource,
    { step, options: { isolation } }: TransactionRequest,
    executions: WorkExecutions,
    limit: Limit | null,
  ): Promise<JoinedEnd> {
    const answers = await this.#deps.store.transact!(
      source,
      step,
      (tx, findWait, findRun) =>
        andThen(executions.call(tx, findWait, findRun), ({ requests: { runs, signals, messages }, output }) => {
          const record = step?.toRecord(output) ?? null;
          step?.beforeCommit();
          return { step: record, runs, signals, messages };
        }),
      limit === null ? undefined : { isolation, timeoutMs: limit.ms, abortSignal: limit.abortSignal },
    );
    const { last } = executions;
    const sent = this.#publish(answers, last);
    return { value: last?.value, output: last?.output ?? null, answers, sent };
  }

  /** Commits in a database that the store knows nothing of, where an effect says that the step has committed. */
  async #commitApart(
    source: DataSource,
    { step, options: { isolation } }: TransactionRequest,
    executions: WorkExecutions,
    limit: Limit | null,
    storeId: string,
  ): Promise<RelayedEnd> {
    const { host } = this.#deps;
    const toWrites = ({ requests, output }: WorkExecution): Soon<SourceWrites> => {
      const rows = requests.toRows(storeId, host.now());
      if (step === null) return { effect: null, rows };
      const writes = (): SourceWrites => {
        step.beforeCommit();
        const { keys: [key], runId } = step;
        return { effect: { key: key!, storeId, runId, output, at: host.now() }, rows };
      };
      if (step.isLeaseSure()) return writes();
      // A synchronous function cannot wait for it: it is executed again.
      if (source.kind === "sqlite") throw new LeaseInDoubt();
      return step.renewLease().then(writes);
    };
    const answer = await source.effects.transact({
      keys: step?.keys ?? [],
      work: (tx) => andThen(executions.call(tx), toWrites),
      isolation,
      abortSignal: limit?.abortSignal ?? null,
    });
    if ("found" in answer) return { value: undefined, output: answer.found, answers: null };
    const { value, output, requests } = executions.last!; // it was committed
    return { value, output, answers: null, relayed: await this.#relayNow(source, requests, storeId) };
  }

  /** Moves what a transaction has left in the outbox, at once if the store answers. */
  async #relayNow(source: DataSource, requests: Requests, storeId: string): Promise<Relayed[] | null> {
    const rows = requests.toRows(storeId, this.#deps.host.now());
    const relayed = rows.length === 0 ? [] : await this.#deps.relay().relayNow(source, rows);
    requests.commit({
      runs: relayed?.flatMap((one) => "run" in one ? [one.run] : []) ?? [],
      signals: [],
      messages: [],
    });
    return relayed;
  }

  /** Does `Engine.inTransaction()`. */
  inTransaction(source: DataSource, client: unknown): AsyncTransactionCalls {
    try {
      this.#check(source, { subject: "engine.inTransaction()", options: {} });
    } catch (error) {
      throw unwrapped(error);
    }
    return callsInTransaction(source, client, { ...this.#deps, checkPayload: this.#checkPayload });
  }

  #publish(answers: StoreAnswers, last: WorkExecution | null): SendResult[] {
    const { triggers, runs, messages } = this.#deps;
    last?.requests.commit(answers);
    // There are none if an earlier try has recorded the step.
    answers.runs.forEach((one, index) => triggers.publish(one, last!.requests.runs[index]!));
    answers.signals.forEach((outcome) => runs().noteSignal(outcome));
    return answers.messages.map((sent, index) => messages().noteSent(sent, last!.requests.messages[index]!));
  }

  #isJoined(source: DataSource): boolean {
    return source.store === this.#deps.given && this.#deps.store.transact !== undefined;
  }

  /** On SQLite nothing can interrupt the function. */
  #startTimeout({ kind }: DataSource, { subject, step, options }: TransactionRequest): Limit | null {
    if (kind === "sqlite") return null;
    const ms = readDuration(options.timeout ?? DEFAULT_TIMEOUT_MS, `The timeout of ${subject}`);
    const late = new AbortController();
    const error = new TimeoutError(`${capitalized(subject)} took longer than ${ms} ms`);
    const cancel = this.#deps.host.schedule(ms, () => late.abort(error));
    const abortSignal = step === null ? late.signal : AbortSignal.any([step.abortSignal, late.signal]);
    return { ms, abortSignal, cancel };
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

  readonly #checkPayload: RequestsDeps["checkPayload"] = (found, signal) => {
    const { jobs, host } = this.#deps;
    return checkPayload(found.wait, signal, { jobs, findRun: () => found, host });
  };

  readonly #noteDuration = (subject: string, ms: number): void => {
    if (ms <= SLOW_MS || this.#slow.has(subject) || this.#slow.size >= MAX_SLOW) return;
    this.#slow.add(subject);
    this.#deps.warn(`${capitalized(subject)} took ${Math.round(ms)} ms: nobody else can write to the file meanwhile`);
  };
}

/** The lease may have passed on: before the commit it has to be renewed. */
class LeaseInDoubt extends Error {}

function toResults(relayed: Relayed[] | null): Omit<TransactionResult<never>, "value"> {
  if (relayed === null) return { runs: null, signals: null, messages: null };
  return {
    runs: relayed.flatMap((one) => "run" in one && one.run !== null ? [toTriggerResult(one.run)] : []),
    signals: relayed.flatMap((one) => "signal" in one ? [one.signal] : []),
    messages: relayed.flatMap((one) => "message" in one ? [one.message] : []),
  };
}

function mistake(message: string): WorkError {
  return new WorkError(new Mistake(new TypeError(message)));
}
