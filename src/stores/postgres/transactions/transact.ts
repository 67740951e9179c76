import { ConflictError, LeaseLostError, StoreError, WorkError } from "../../../model/error.ts";
import type { StepRecord } from "../../../model/step.ts";
import type {
  FindRun,
  FindWait,
  StepPlace,
  StoreAnswers,
  StoreWrites,
  TransactionLimits,
} from "../../../store/transaction.ts";
import type { SendReceipt } from "../../../store/send_request.ts";
import { isOfOneCall, NotSentError, sqlState, storeError } from "../database/client.ts";
import { readAnswer } from "../database/portable_text.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";
import { toWaitOfJob } from "../../rows.ts";
import { type SignalAnswer, toSignalOutcome } from "../../signal_answer.ts";
import {
  type EnqueuedRow,
  type RunRow,
  type SendAnswer,
  toEnqueued,
  toRunText,
  toSendOutcome,
  toSendParameter,
} from "../run_answers.ts";
import { toLeaseParameter, toNewRunParameter, toReportParameters, toStepParameter } from "../writes/parameters.ts";
import { isRefusal, type Refusal, toRefusalError } from "../writes/write_group.ts";
import type { OpenTransaction, SqlDriver } from "./drivers.ts";
import { callWork, levelOf, own, OwnError, repeatTransaction, rollBack } from "./executions.ts";

/** What a transaction of the store's own database is executed with. */
export interface TransactDeps {
  database: PostgresDatabase;
  driver: SqlDriver;
  /** Makes what the function is given. */
  toTx: (client: unknown) => object;
}

/** What `fn.find_step()` returns. */
type FoundStep = Refusal | { name: string; index: number; attempts: number; output: string | null; recordedNo: number };

type Answer = EnqueuedRow[] | SignalAnswer | SendAnswer | Refusal | { recordedNo: number };

// What `fn.join()` throws: a write was refused, with the answers as the detail; the step is recorded already.
const REFUSED = "HF001";
const RECORDED = "HF002";
// The transaction has failed before, and the function has caught the error.
const FAILED_BEFORE = "25P02";
const UNIQUE_VIOLATION = "23505";
// The server ends a transaction whose process is frozen: some time after the transaction would have ended itself.
const IDLE_MARGIN_MS = 5_000;

/**
 * Executes a function in a transaction of the store's own database, and sends what it asks for with the commit, in one
 * message: so no lock of the store is held while the server waits for this process. See `Store.transact()`.
 */
export async function transact(
  deps: TransactDeps,
  step: StepPlace | null,
  work: (tx: object, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>,
  limits: TransactionLimits,
): Promise<StoreAnswers> {
  // The next first statement finds the record, or the next try what others have added.
  const mayRepeat = (error: unknown) =>
    error instanceof OwnError && [RECORDED, UNIQUE_VIOLATION].includes(sqlState(error.cause)!);
  try {
    return await repeatTransaction(() => transactOnce(deps, step, work, limits), limits.abortSignal, mayRepeat);
  } catch (error) {
    if (!(error instanceof OwnError)) throw error;
    const { cause } = error;
    // A constraint or a trigger of the user can refuse the commit.
    if (isOfOneCall(cause) || sqlState(cause) === FAILED_BEFORE) throw new WorkError(cause);
    throw storeError(cause, { writes: true });
  }
}

async function transactOnce(
  { database, driver, toTx }: TransactDeps,
  step: StepPlace | null,
  work: (tx: object, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>,
  { isolation, timeoutMs, abortSignal }: TransactionLimits,
): Promise<StoreAnswers> {
  const lease = step?.lease();
  const find = lease === undefined
    ? "null"
    : database.toCall("find_step", { ...toLeaseParameter(lease), name: step!.name });
  const first = `select extract(epoch from pg_catalog.now())::text as began, ${find} as r, pg_catalog.set_config(
    'idle_in_transaction_session_timeout', '${Math.ceil(timeoutMs) + IDLE_MARGIN_MS}', true)::text as idle`;
  const open = await driver.begin({ isolation: levelOf(isolation), first }).catch((error) => {
    // Nothing has happened yet.
    return own(sqlState(error) === null && !(error instanceof StoreError) ? new NotSentError(error) : error);
  });
  try {
    const [row] = open.first as [{ began: string; r: string | null }];
    const found = row.r === null ? null : readAnswer(row.r) as FoundStep | null;
    if (isRefusal(found)) throw new LeaseLostError(lease!);
    if (found !== null) {
      await open.rollback();
      return { step: { recorded: toStepRecord(found) }, runs: [], signals: [], messages: [] };
    }
    const findWait = async (waitId: string, names: readonly string[] = []) => {
      const [row] = await open.query(`select ${database.toCall("get_current_wait", { waitId, names })} as r`, []);
      return row!.r === null ? null : toWaitOfJob(readAnswer(row!.r as string) as Parameters<typeof toWaitOfJob>[0]);
    };
    const findRun = async (runId: string) => {
      const call = database.toCall("read_runs", { runIds: [runId], maxLength: 1 }); // its values are not needed
      const [row] = await open.query(`select ${call} as r`, []);
      const { rows: [run] } = readAnswer(row!.r as string) as { rows: [RunRow | null] };
      return run === null ? null : toRunText(run);
    };
    const writes = await callWork((tx) => work(tx, findWait, findRun), toTx(open.client), abortSignal);
    const asked = writes.runs.length + writes.signals.length + (writes.messages?.length ?? 0);
    if (asked > 0 && !isReadCommitted(isolation)) {
      throw new WorkError(new TypeError("A transaction that triggers, signals or sends has to be READ COMMITTED"));
    }
    return await commit(database, open, { step, writes, began: row.began });
  } catch (error) {
    return await rollBack(open, error, abortSignal);
  }
}

function isReadCommitted(isolation: string | undefined): boolean {
  return isolation === undefined || levelOf(isolation) === "READ COMMITTED";
}

function toStepRecord({ output, ...step }: Exclude<FoundStep, Refusal>): StepRecord {
  return { ...step, result: { status: "completed", output } };
}

/** Sends what the store has to write, with the commit. */
async function commit(
  database: PostgresDatabase,
  open: OpenTransaction,
  { step, writes, began }: { step: StepPlace | null; writes: StoreWrites; began: string },
): Promise<StoreAnswers> {
  const lease = step?.lease() ?? null;
  const { runs, signals, messages = [], step: record } = writes;
  const others: object[] = [];
  if (runs.length > 0) others.push({ kind: "enqueue", runs: runs.map(toNewRunParameter) });
  for (const { waitId, signal: { signalId, payload }, trace } of signals) {
    others.push({ kind: "signal", waitId, signalId, payload: JSON.stringify(payload), trace });
  }
  for (const request of messages) others.push({ kind: "send", ...toSendParameter(request) });
  if (lease !== null && record !== null) {
    const reports = toReportParameters(record.reports);
    others.push({
      kind: "save_step",
      ...toLeaseParameter(lease),
      ...toStepParameter(record.write, record.reports),
      reports,
    });
  }
  const toAnswers = (text: string | undefined): StoreAnswers => {
    const answers = (text === undefined ? [] : readAnswer(text)) as Answer[]; // one for each write
    const saved = record === null ? null : answers.at(-1) as { recordedNo: number } | Refusal;
    if (isRefusal(saved)) throw new LeaseLostError(lease!);
    const added = runs.length === 0 ? [] : answers.shift() as EnqueuedRow[] | Refusal;
    if (isRefusal(added)) throw toRefusalError(added);
    const outcomes = signals.map(({ waitId, signal }) =>
      toSignalOutcome(answers.shift() as SignalAnswer, waitId, signal)
    );
    const receipts = messages.map((request) => {
      const answer = answers.shift() as SendAnswer | Refusal;
      if (isRefusal(answer)) throw toRefusalError(answer);
      return toSendOutcome(answer, request) as SendReceipt; // no run was expected
    });
    return {
      step: saved === null ? null : { recordedNo: saved.recordedNo, retry: null },
      runs: added.map(toEnqueued),
      signals: outcomes,
      messages: receipts,
    };
  };
  const runIds = lease === null ? [] : [lease.runId];
  const last = others.length === 0
    ? undefined
    : `select ${database.toCall("join", { began, runIds, steps: [], endings: [], triggers: [], others })} as r`;
  const rows = await open.commit(last).catch((error) => {
    if (sqlState(error) !== REFUSED) return own(error);
    toAnswers((error as { detail: string }).detail);
    throw new ConflictError("A signal or a message was sent before, with another payload"); // the same in another order
  });
  return toAnswers(rows[0]?.r as string | undefined);
}
