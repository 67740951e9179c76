import type { JsonText } from "../../../values/json.ts";
import type { Part } from "../../../store/run_query.ts";
import type { ChildResult, PauseRecord } from "../../../model/wait.ts";
import { PartBuilder } from "../../part_builder.ts";
import {
  type ChildRow,
  type IdentityRow,
  readPauseColumns,
  type ReplayedPauseRow,
  toChildResult,
  toRunIdentity,
} from "../../rows.ts";
import { identityReader, type RunWith } from "../rows.ts";
import { readTaken } from "../writes/pause_resolution.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql } from "../statement.ts";

// How many children are examined at once.
const SLICE = 512;

/** A child of a pause; the columns of its run are NULL if it was deleted. */
type MemberRow = IdentityRow & RunWith<"status output failure failed_step completed_at"> & {
  /** Its result, if it was deleted. */
  result: JsonText | null;
};

const MEMBERS = sql`holdfast_children m LEFT JOIN holdfast_runs r ON r.seq = m.run_seq`;

/** Reads how the children of a pause ended. See `Store.readChildren()`. */
export function readChildren(
  db: SqliteDatabase,
  pauseId: string,
  from: number,
  maxLength: number,
): Part<ChildResult> | null {
  const pause = db.get<{ seq: number; total: number | null }>`
    SELECT seq, total FROM holdfast_pauses WHERE id = ${pauseId}`;
  if (pause === undefined || pause.total === null) return null;
  const part = new PartBuilder<ChildResult>(maxLength);
  const toIdentity = identityReader();
  let next = from;
  while (next < pause.total && !part.hasMore) {
    const members = readMembers(db, pause.seq, next, countFitting(db, pause.seq, next, part.room));
    if (members.length === 0) return null;
    for (const member of members) {
      if (part.hasMore) break;
      const result = toResult(member, toIdentity);
      if (result === null) return null;
      part.add([result], (item) => item);
      next += 1;
    }
  }
  return { items: part.items, hasMore: next < pause.total };
}

// About how long a result is without its values.
const FIXED_LENGTH = 120;
/** How many children have about this many characters: at least one. */
function countFitting(db: SqliteDatabase, pauseSeq: number, from: number, room: number): number {
  const sizes = sql`
    SELECT ${
    raw(FIXED_LENGTH)
  } + coalesce(length(r.labels), 0) + coalesce(length(m.result), length(r.output), 0) AS size
    FROM ${MEMBERS} WHERE m.pause_seq = ${pauseSeq} AND m.no >= ${from} ORDER BY m.no LIMIT ${raw(SLICE)}`;
  const { total } = db.one<{ total: number }>`SELECT coalesce(sum(size), 0) AS total FROM (${sizes})`;
  if (total <= room) return SLICE;
  let left = room;
  const end = db.all<{ size: number }>`${sizes}`.findIndex(({ size }) => (left -= size) <= 0);
  return end === -1 ? SLICE : end + 1;
}

function readMembers(db: SqliteDatabase, pauseSeq: number, from: number, limit: number): MemberRow[] {
  return db.all<MemberRow>`
    SELECT m.result, r.id, r.job, r.labels, r.status, r.output, r.failure, r.failed_step, r.completed_at
    FROM ${MEMBERS} WHERE m.pause_seq = ${pauseSeq} AND m.no >= ${from} ORDER BY m.no LIMIT ${limit}`;
}

/** How a child ended; `null` if it has not, or its result is lost. */
function toResult(row: MemberRow, toIdentity = toRunIdentity): ChildResult | null {
  if (row.result !== null) return JSON.parse(row.result);
  if (row.completed_at === null) return null;
  return toChildResult(row as MemberRow & ChildRow, toIdentity); // it has ended
}

/** Pauses as a replay needs them, each with the result of its only child, or with the messages that it took. */
export function readPauseRecords(db: SqliteDatabase, rows: readonly ReplayedPauseRow[]): PauseRecord[] {
  const receives = rows.filter(({ outcome }) => outcome === "messages");
  if (receives.length === 0) return rows.map((row) => readPauseRecord(db, row));
  const taken = readTaken(db, receives);
  return rows.map((row) =>
    row.outcome === "messages" ? readPauseColumns(row, null, taken.get(row.seq) ?? []) : readPauseRecord(db, row)
  );
}

function readPauseRecord(db: SqliteDatabase, row: ReplayedPauseRow): PauseRecord {
  if (row.total !== 1 || row.outcome !== "children") return readPauseColumns(row, null);
  const [member] = readMembers(db, row.seq, 0, 1);
  return readPauseColumns(row, member === undefined ? null : toResult(member));
}

/** Keeps the result and the input of a child that is about to be deleted, for the parents that have not ended. */
export function keepResult(db: SqliteDatabase, runId: string): void {
  const child = db.get<MemberRow & { seq: number; payload: JsonText | null }>`
    SELECT NULL AS result, r.*, i.payload FROM holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq
    WHERE r.id = ${runId} AND r.parent_seq IS NOT NULL AND r.completed_at IS NOT NULL
      AND EXISTS (SELECT 1 FROM holdfast_children WHERE run_seq = r.seq)`;
  if (child === undefined) return;
  db.run`
    UPDATE holdfast_children SET result = ${JSON.stringify(toResult(child))}, payload = ${child.payload}
      WHERE run_seq = ${child.seq} AND pause_seq IN (
    SELECT p.seq FROM holdfast_children m JOIN holdfast_pauses p ON p.seq = m.pause_seq
    JOIN holdfast_runs o ON o.seq = p.run_seq WHERE m.run_seq = ${child.seq} AND o.completed_at IS NULL)`;
}
