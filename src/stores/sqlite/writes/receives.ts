import type { Receive } from "../../../model/message.ts";
import type { NewPause } from "../../../store/pause_request.ts";
import type { OriginText } from "../../../model/origin.ts";
import type { TakenMessageRow } from "../../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong } from "../statement.ts";
import { closeInbox, nextRecordedNo } from "./pause_resolution.ts";

/** An open receive of a run. */
export interface OpenReceive extends Receive {
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
