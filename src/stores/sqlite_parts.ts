import { droppedLines, type LogText, MAX_LOG_LINES } from "../log.ts";
import type { RunText } from "../run.ts";
import type { StepText } from "../step.ts";
import type { Part } from "../store.ts";
import type { WaitText } from "../wait.ts";
import { PartBuilder } from "./part.ts";
import type { SqliteDatabase, SqliteRow, SqliteValue } from "./sqlite_database.ts";
import { SELECT_RUN, toLogText, toRunText, toStepText, toWaitText } from "./sqlite_rows.ts";

// How many rows are looked at or read at once.
const SLICE = 256;
// What a row takes besides its values, about, in bytes.
const ROW_BYTES = 256;
const ALL = -1;

/** Reads runs until they have so many characters. See `Store.readRuns()`. */
export function readRuns(db: SqliteDatabase, runIds: readonly string[], maxLength: number): (RunText | null)[] {
  const part = new PartBuilder<RunText | null>(maxLength);
  while (!part.hasMore && part.items.length < runIds.length) {
    const slice = runIds.slice(part.items.length, part.items.length + SLICE);
    const ids = maxLength === Infinity ? slice : slice.slice(0, countFitting(runSizes(db, slice), part.room));
    const rows = byId(db.all(`${SELECT_RUN} WHERE ${IS_ONE_OF}`, JSON.stringify(ids)));
    part.add(ids.map((id) => {
      const row = rows.get(id);
      return row === undefined ? null : toRunText(row);
    }));
  }
  return part.items;
}

const IS_ONE_OF = "r.id IN (SELECT value FROM json_each(?))";

function runSizes(db: SqliteDatabase, runIds: readonly string[]): number[] {
  const rows = byId(db.all(
    `SELECT r.id, ${bytesOf("i.payload", "r.output", "r.labels", "r.error")} AS size
     FROM holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq WHERE ${IS_ONE_OF}`,
    JSON.stringify(runIds),
  ));
  return runIds.map((id) => Number(rows.get(id)?.size ?? 0));
}

function byId(rows: readonly SqliteRow[]): Map<string, SqliteRow> {
  return new Map(rows.map((row) => [row.id as string, row]));
}

/** Reads steps of a run until they have so many characters. See `Store.readSteps()`. */
export function readSteps(
  db: SqliteDatabase,
  runId: string,
  after: string | null,
  maxLength: number,
): Part<StepText> | null {
  return readPart(db, STEPS, { runId, after, maxLength }, toStepText);
}

/** Reads waits of a run until they have so many characters. See `Store.readWaits()`. */
export function readWaits(
  db: SqliteDatabase,
  runId: string,
  after: string | null,
  maxLength: number,
): Part<WaitText> | null {
  return readPart(db, WAITS, { runId, after, maxLength }, toWaitText);
}

/** Reads log lines of a run until they have so many characters. See `Store.readLogs()`. */
export function readLogs(
  db: SqliteDatabase,
  runId: string,
  after: string | null,
  maxLength: number,
): Part<LogText> | null {
  return readPart(db, LOGS, { runId, after, maxLength }, (runId, row) => {
    const line = toLogText(runId, row);
    const [no, dropped] = [Number(row.no), Number(row.dropped)];
    return no <= dropped ? droppedLines(line, no) : line;
  });
}

/** A list of what belongs to a run. Its statements have the number of the run for their first parameter. */
interface List {
  /** What of a row is read. */
  columns: string;
  /** What its rows come from and which of them they are: those of a run, behind a place. */
  from: string;
  /** How many bytes the values of a row take. */
  size: string;
  /** Before all rows. */
  start: readonly SqliteValue[];
  /** The columns that say at which place a row is; their order is that of the list. */
  place: readonly string[];
  /** Names a row. */
  name: string;
}

const STEPS: List = {
  columns: "*",
  from: "FROM holdfast_steps WHERE run_seq = ? AND (position, seq) > (?, ?) ORDER BY position, seq",
  size: bytesOf("output", "error_message"),
  start: [-1, -1],
  place: ["position", "seq"],
  name: "holdfast_steps WHERE run_seq = ? AND name = ?",
};
const WAITS: List = {
  columns: "*",
  from: "FROM holdfast_pauses WHERE run_seq = ? AND kind = 'wait' AND seq > ? ORDER BY seq",
  size: bytesOf("metadata", "payload"),
  start: [-1],
  place: ["seq"],
  name: "holdfast_pauses WHERE run_seq = ? AND id = ?",
};
const LOGS: List = {
  columns: `*, (SELECT max(no) FROM holdfast_logs a WHERE a.run_seq = l.run_seq) - ${MAX_LOG_LINES} AS dropped`,
  from: "FROM holdfast_logs l WHERE run_seq = ? AND no > ? ORDER BY no",
  size: bytesOf("message", "data"),
  start: [0],
  place: ["no"],
  name: "holdfast_logs WHERE run_seq = ? AND id = ?",
};

function readPart<T>(
  db: SqliteDatabase,
  list: List,
  { runId, after, maxLength }: { runId: string; after: string | null; maxLength: number },
  toRecord: (runId: string, row: SqliteRow) => T,
): Part<T> | null {
  const run = db.get("SELECT seq FROM holdfast_runs WHERE id = ?", runId);
  if (run === undefined) return null;
  const part = new PartBuilder<T>(maxLength);
  let place = after === null ? list.start : placeOf(db, list, run.seq!, after);
  while (!part.hasMore) {
    const count = maxLength === Infinity ? ALL : countFitting(sizes(db, list, run.seq!, place), part.room);
    const rows = db.all(`SELECT ${list.columns} ${list.from} LIMIT ?`, run.seq!, ...place, count);
    part.add(rows.map((row) => toRecord(runId, row)));
    if (rows.length === 0 || count === ALL) break;
    place = list.place.map((column) => rows.at(-1)![column]!);
  }
  return part.toPart();
}

/** Where to go on. What has been removed was in front of all that is left. */
function placeOf(db: SqliteDatabase, list: List, runSeq: SqliteValue, name: string): readonly SqliteValue[] {
  const row = db.get(`SELECT ${list.place.join(", ")} FROM ${list.name}`, runSeq, name);
  return row === undefined ? list.start : list.place.map((column) => row[column]!);
}

function sizes(db: SqliteDatabase, { size, from }: List, runSeq: SqliteValue, place: readonly SqliteValue[]): number[] {
  const rows = db.all(`SELECT ${size} AS size ${from} LIMIT ?`, runSeq, ...place, SLICE);
  return rows.map((row) => Number(row.size));
}

/** How many bytes some columns take, without reading them. */
function bytesOf(...columns: string[]): string {
  return columns.map((column) => `coalesce(octet_length(${column}), 0)`).join(" + ");
}

/** How many of some rows it takes to fill a room. */
function countFitting(sizes: readonly number[], room: number): number {
  let left = room;
  const last = sizes.findIndex((size) => (left -= size + ROW_BYTES) <= 0);
  return last === -1 ? sizes.length : last + 1;
}
