import type { Receive } from "../../../model/message.ts";
import type { RunStatus } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import { forgetPrints } from "../changed_code/offers.ts";
import { HEAD_START } from "../../rules.ts";
import { enterQueue, holdsKey } from "../flow/concurrency_keys.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import type { NewPause } from "../../../store/pause_request.ts";
import type { OriginText } from "../../../model/origin.ts";
import type { TakenMessageRow } from "../../rows.ts";
import { isAmong } from "../statement.ts";

/**
 * Commits the timeouts of a run's pauses whose deadline has passed; every reader of the pauses calls it first.
 *
 * @returns Whether the run waited for one of them when it last parked.
 */
export function commitDeadlines(db: SqliteDatabase, runSeq: number, now: number): boolean {
  const passed = db.all<{ seq: number; awaited: number; deadline_at: number; receive: JsonText | null }>`
    SELECT seq, awaited, deadline_at, receive FROM holdfast_pauses
    WHERE run_seq = ${runSeq} AND status = 'pending' AND deadline_at <= ${now} ORDER BY deadline_at, seq`;
  let isAwaitedOver = passed.some(({ awaited }) => awaited === 1);
  const closed = new Set<number>();
  for (const { seq, deadline_at, receive } of passed) {
    if (closed.has(seq)) continue; // an earlier one has closed the inbox
    timeOut(db, { runSeq, seq }, deadline_at);
    if (receive === null || (JSON.parse(receive) as Receive).close === null) continue;
    for (const other of closeInbox(db, { runSeq, seq }, deadline_at)) {
      closed.add(other.seq);
      isAwaitedOver ||= other.awaited === 1;
    }
  }
  return isAwaitedOver;
}

/** A pause of a run. */
interface PauseOfRun {
  runSeq: number;
  seq: number;
}

function timeOut(db: SqliteDatabase, { runSeq, seq }: PauseOfRun, at: number): void {
  db.run`
    UPDATE holdfast_pauses SET status = 'resolved', outcome = 'timeout', resolved_at = ${at},
      recorded_no = ${nextRecordedNo(db, runSeq)} WHERE seq = ${seq}`;
}

/** Closes the inbox of a run by a receive that has ended, and ends its other open receives. */
function closeInbox(db: SqliteDatabase, { runSeq, seq }: PauseOfRun, at: number): EndedReceive[] {
  db.run`UPDATE holdfast_pauses SET receive = '"closed"' WHERE seq = ${seq}`;
  return endReceives(db, runSeq, at);
}

/** A receive that has ended by a timeout, since the inbox of its run is closed. */
interface EndedReceive {
  seq: number;
  awaited: number;
}

/** Ends the open receives of a run that accepts no more messages, by a timeout: nothing comes any more. */
export function endReceives(db: SqliteDatabase, runSeq: number, at: number): EndedReceive[] {
  const open = db.all<EndedReceive>`
    SELECT seq, awaited FROM holdfast_pauses WHERE run_seq = ${runSeq} AND kind = 'receive' AND status = 'pending'
      ORDER BY seq`;
  for (const { seq } of open) timeOut(db, { runSeq, seq }, at);
  return open;
}

/** Increments the record counter of a run: a replay delivers results in this order. */
export function nextRecordedNo(db: SqliteDatabase, runSeq: number): number {
  const { recorded, status } = db.one<{ recorded: number; status: RunStatus }>`
    UPDATE holdfast_runs SET recorded = recorded + 1 WHERE seq = ${runSeq} RETURNING recorded, status`;
  if (status === "pending") forgetPrints(db, runSeq);
  return recorded;
}

/** Makes a waiting run due, if it is not so already. */
export function wake(db: SqliteDatabase, runSeq: number, now: number): void {
  const run = db.get<{ id: string; concurrency_key: string | null }>`
    UPDATE holdfast_runs SET timer_at = NULL, updated_at = ${now}
    WHERE seq = ${runSeq} AND status = 'waiting' AND queue_state IS NULL RETURNING id, concurrency_key`;
  if (run === undefined) return;
  if (run.concurrency_key !== null && holdsKey(db, run.concurrency_key, run.id)) {
    // The first of its key: it comes back after a retry delay.
    db.run`UPDATE holdfast_runs SET position = position - ${HEAD_START} WHERE seq = ${runSeq}`;
  }
  enterQueue(db, runSeq, now);
}

/** Resolves a pause whose children have all ended, and makes its run due if it waits for that. */
export function resolveChildren(db: SqliteDatabase, runSeq: number, pauseSeq: number, now: number): void {
  const isAwaitedOver = commitDeadlines(db, runSeq, now);
  const { awaited } = db.one<{ awaited: number }>`
    UPDATE holdfast_pauses SET status = 'resolved', outcome = 'children', resolved_at = ${now},
      recorded_no = ${nextRecordedNo(db, runSeq)}
    WHERE seq = ${pauseSeq} RETURNING awaited`;
  // The last change of a run that is due already says since when it is.
  db.run`UPDATE holdfast_runs SET updated_at = ${now} WHERE seq = ${runSeq} AND queue_state IS NULL`;
  if (isAwaitedOver || awaited === 1) wake(db, runSeq, now);
}

/** Records when a run first resumed after the pauses that it waited on were over. */
export function noteResumption(db: SqliteDatabase, runSeq: number, now: number): void {
  db.run`UPDATE holdfast_pauses SET first_resumed_at = ${now}
    WHERE run_seq = ${runSeq} AND awaited = 1 AND status = 'resolved' AND first_resumed_at IS NULL`;
}

/** An open receive of a run. */
interface OpenReceive extends Receive {
  runSeq: number;
  seq: number;
}

/**
 * Gives the receives of a request the unread messages that they take, and ends those that found some.
 *
 * @returns Whether the request has receives.
 */
export function takeAsked(db: SqliteDatabase, runSeq: number, pauses: readonly NewPause[], now: number): boolean {
  const asked = pauses.flatMap(({ name, receive }) => receive === undefined ? [] : [{ name, receive }]);
  for (const { name, receive } of asked) {
    // One that the run has already gets what the code asks for now.
    const open = db.get<{ seq: number }>`
      UPDATE holdfast_pauses SET receive = ${JSON.stringify(receive)}
        WHERE run_seq = ${runSeq} AND kind = 'receive' AND name = ${name} AND status = 'pending'
      RETURNING seq`;
    if (open !== undefined) takeMessages(db, { ...receive, runSeq, seq: open.seq }, now);
  }
  return asked.length > 0;
}

/**
 * Gives an open receive the unread messages that it takes, oldest first, and ends it if there are any.
 *
 * @returns Whether the run waited for it, or for another one that has ended with it, when it last parked.
 */
export function takeMessages(
  db: SqliteDatabase,
  { runSeq, seq, names, max, close }: OpenReceive,
  now: number,
): boolean {
  const taken = db.all<{ seq: number; trace: OriginText | null }>`
    SELECT seq, trace FROM holdfast_messages
    WHERE run_seq = ${runSeq} AND pause_seq IS NULL AND ${isAmong("name", names)} ORDER BY no LIMIT ${max}`;
  if (taken.length === 0) return false;
  const seqs = taken.map((message) => message.seq);
  db.run`UPDATE holdfast_messages SET pause_seq = ${seq} WHERE ${isAmong("seq", seqs)}`;
  const { trace } = taken[0]!; // there is one
  const { awaited } = db.one<{ awaited: number }>`
    UPDATE holdfast_pauses SET status = 'resolved', outcome = 'messages', trace = ${trace}, resolved_at = ${now},
      recorded_no = ${nextRecordedNo(db, runSeq)}
    WHERE seq = ${seq} RETURNING awaited`;
  const ended = close === "always" && !hasUnread(db, runSeq) ? closeInbox(db, { runSeq, seq }, now) : [];
  return [{ awaited }, ...ended].some((receive) => receive.awaited === 1);
}

/** Whether a run has closed its inbox: it accepts no more messages. */
export function hasClosedInbox(db: SqliteDatabase, runSeq: number): boolean {
  return db.get`SELECT 1 FROM holdfast_pauses WHERE run_seq = ${runSeq} AND receive = '"closed"'` !== undefined;
}

function hasUnread(db: SqliteDatabase, runSeq: number): boolean {
  return db.get`SELECT 1 FROM holdfast_messages WHERE run_seq = ${runSeq} AND pause_seq IS NULL` !== undefined;
}

/** The messages that receives took, by receive, each in their order. */
export function readTaken(db: SqliteDatabase, receives: readonly { seq: number }[]): Map<number, TakenMessageRow[]> {
  const rows = db.all<TakenMessageRow & { pause_seq: number }>`
    SELECT pause_seq, id, name, payload, input, accepted_at FROM holdfast_messages
    WHERE ${isAmong("pause_seq", receives.map(({ seq }) => seq))} ORDER BY no`;
  return Map.groupBy(rows, (row) => row.pause_seq);
}
