import { HoldfastError, LeaseLostError, StoreError, type WorkError } from "../../../model/error.ts";
import type { Host } from "../../../model/host.ts";
import type { StepRecord } from "../../../model/step.ts";
import type {
  FindRun,
  FindWait,
  StepPlace,
  StoreAnswers,
  StoreWrites,
  TransactionSignal,
} from "../../../store/transaction.ts";
import type { SendReceipt, SendRequest } from "../../../store/send_request.ts";
import type { SignalOutcome } from "../../../model/wait.ts";
import { toSignalOutcome } from "../../signal_answer.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { findCurrentWait, findRunOfJob } from "../reads/run_history.ts";
import { Undone } from "../write_batch.ts";
import { enqueueRuns } from "../writes/enqueue.ts";
import { sendMessage } from "../writes/messages.ts";
import { deliver } from "../writes/pauses.ts";
import { recordStep } from "../writes/steps.ts";
import { underLease } from "../writes/lease_cache.ts";
import { inSavepoint, type UserStatements } from "./sqlite_transaction.ts";

/** What a transaction is executed with. */
interface TransactDeps {
  db: SqliteDatabase;
  statements: UserStatements;
  host: Pick<Host, "newId">;
}

/**
 * Executes a function in a savepoint of the open transaction, and writes what it asks for. See `Store.transact()`.
 *
 * @returns The answers, or what the function has thrown: then nothing of it is left, and the transaction goes on.
 */
export function transactNow(
  { db, statements, host }: TransactDeps,
  step: StepPlace | null,
  work: (tx: object, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>,
  now: number,
): StoreAnswers | { thrown: WorkError } {
  const recorded = step === null ? null : findRecord(db, step);
  if (recorded !== null) return { step: { recorded }, runs: [], signals: [], messages: [] };
  const done = inSavepoint(
    db,
    statements,
    (tx) => work(tx, (waitId, names = []) => findCurrentWait(db, waitId, names), (runId) => findRunOfJob(db, runId)),
  );
  if ("thrown" in done) return done;
  const writes = done.value;
  try {
    const runs = writes.runs.length === 0 ? [] : enqueueRuns(db, writes.runs, host, now);
    const signals = writes.signals.map((signal) => deliverNow(db, signal, now));
    const messages = (writes.messages ?? []).map((request) => sendNow(db, request, host, now));
    const { step: record } = writes;
    const saved = step === null || record === null
      ? null
      : recordStep(db, step.lease(), record.write, record.reports, now);
    return { step: saved, runs, signals, messages };
  } catch (error) {
    // Rows, facts and counts have changed already: none of this can be cut out of the commit of the others.
    throw error instanceof HoldfastError && !(error instanceof StoreError) ? new Undone(error) : error;
  }
}

function deliverNow(db: SqliteDatabase, { waitId, signal, trace }: TransactionSignal, now: number): SignalOutcome {
  return toSignalOutcome(deliver(db, waitId, signal, JSON.stringify(signal.payload), trace, now), waitId, signal);
}

function sendNow(db: SqliteDatabase, request: SendRequest, host: TransactDeps["host"], now: number): SendReceipt {
  const outcome = sendMessage(db, request, host, now);
  if ("refused" in outcome) throw outcome.refused;
  return outcome as SendReceipt; // no run was expected
}

interface FoundRow {
  name: string | null;
  position: number;
  attempts: number;
  output: string | null;
  recorded_no: number;
}

/** The record of a step that has completed; `null`: it has not. */
function findRecord(db: SqliteDatabase, { name, lease }: StepPlace): StepRecord | null {
  const now = lease();
  // The lease says what the run knows to be recorded: that is committed, and so not put off.
  const row = db.getBeside<FoundRow>`SELECT s.name, s.position, s.attempts, s.output, s.recorded_no
    FROM (SELECT seq FROM holdfast_runs WHERE ${underLease(now)}) r
    LEFT JOIN holdfast_steps s ON s.run_seq = r.seq AND s.name = ${name} AND s.status = 'completed'`;
  if (row === undefined) throw new LeaseLostError(now);
  if (row.name === null) return null;
  const { position: index, attempts, output, recorded_no: recordedNo } = row;
  return { name: row.name, index, attempts, result: { status: "completed", output }, recordedNo };
}
