import { droppedLines, type LogText, MAX_LOG_LINES } from "../../../model/log.ts";
import { MESSAGE_VALUES, type MessageText } from "../../../model/message.ts";
import { RUN_VALUES, type RunText } from "../../../model/run.ts";
import { STEP_VALUES, type StepText } from "../../../model/step.ts";
import type { Part, ValuePart, ValuePlace } from "../../../store/run_query.ts";
import { WAIT_VALUES, type WaitText } from "../../../model/wait.ts";
import {
  LARGE_VALUE_BYTES,
  PartBuilder,
  VALUE_PART_LENGTH,
  VALUE_PARTS,
  withPlaceholders,
} from "../../part_builder.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql, type SqlPart } from "../statement.ts";
import {
  type LogRow,
  type MessageRow,
  type StepRow,
  toLogText,
  toMessageText,
  toStepText,
  toWaitText,
  type WaitRow,
} from "../../rows.ts";
import { ALL_COLUMNS, HELD, RUN_COLUMNS, RUN_TABLES, type RunRow, toRunText } from "../rows.ts";

// How many rows are examined or read at once.
const SLICE = 256;
// About how many bytes a row takes besides its values.
const ROW_BYTES = 256;
const ALL = -1;

/** Reads runs up to a number of characters. See `Store.readRuns()`. */
export function readRuns(db: SqliteDatabase, runIds: readonly string[], maxLength: number): (RunText | null)[] {
  const part = new PartBuilder<RunText | null>(maxLength);
  while (!part.hasMore && part.items.length < runIds.length) {
    const slice = runIds.slice(part.items.length, part.items.length + SLICE);
    const ids = maxLength === Infinity ? slice : slice.slice(0, countFitting(runSizes(db, slice), part.room));
    const columns = maxLength === Infinity ? ALL_COLUMNS : [
      smallColumns(RUN_COLUMNS, "r", ["output"]),
      smallValue("i.payload", "payload"),
      HELD,
    ].join(", ");
    const rows = byId(db.all<RunRow & LargeFlags>(`SELECT ${columns} ${FROM_RUNS}`, JSON.stringify(ids)));
    part.add(ids, (id) => {
      const row = rows.get(id);
      return row === undefined ? null : withLarge(toRunText(row), row, RUN_VALUES);
    });
  }
  return part.items;
}

const FROM_RUNS = `FROM ${RUN_TABLES} WHERE r.id IN (SELECT value FROM json_each(?))`;

function runSizes(db: SqliteDatabase, runIds: readonly string[]): number[] {
  const size = bytesOf("i.payload", "r.output", "r.labels", "r.error", "r.failure");
  const rows = byId(
    db.all<{ id: string; size: number }>(`SELECT r.id, ${size} AS size ${FROM_RUNS}`, JSON.stringify(runIds)),
  );
  return runIds.map((id) => rows.get(id)?.size ?? 0);
}

function byId<Row extends { id: string }>(rows: readonly Row[]): Map<string, Row> {
  return new Map(rows.map((row) => [row.id, row]));
}

/** Reads a part of a list of a run's records, up to a number of characters; `null`: there is no such run. */
type ReadPart<T> = (db: SqliteDatabase, runId: string, after: string | null, maxLength: number) => Part<T> | null;

/** A list of records of a run. The first parameter of its statements is the row number of the run. */
interface List<Column extends string> {
  /** The table. */
  table: string;
  /** The columns with values of any size. */
  values: readonly string[];
  /** Further expressions to read of each row. */
  more: readonly string[];
  /** The rows after a position, and their order. */
  rows: string;
  /** How many bytes a row takes. */
  size: string;
  /** The position before all rows. */
  start: readonly number[];
  /** The integer columns of a row's position; the list is sorted by them. */
  position: readonly Column[];
  /** The condition that finds a row by its name or id. */
  byName: string;
}

/** See `Store.readSteps()`. */
export const readSteps: ReadPart<StepText> = partReader({
  table: "holdfast_steps",
  values: STEP_VALUES,
  more: [],
  rows: "WHERE run_seq = ? AND (position, seq) > (?, ?) ORDER BY position, seq",
  size: bytesOf("output", "failure"),
  start: [-1, -1],
  position: ["position", "seq"],
  byName: "run_seq = ? AND name = ?",
}, (runId, row: StepRow & LargeFlags) => withLarge(toStepText(runId, row), row, STEP_VALUES));

/** See `Store.readWaits()`. */
export const readWaits: ReadPart<WaitText> = partReader({
  table: "holdfast_pauses",
  values: WAIT_VALUES,
  more: [],
  rows: "WHERE run_seq = ? AND kind = 'wait' AND seq > ? ORDER BY seq",
  size: bytesOf("metadata", "payload"),
  start: [-1],
  position: ["seq"],
  byName: "run_seq = ? AND id = ?",
}, (runId, row: WaitRow & LargeFlags) => withLarge(toWaitText(runId, row), row, WAIT_VALUES));

/** See `Store.readMessages()`. */
export const readMessages: ReadPart<MessageText> = partReader({
  table: "holdfast_messages",
  values: MESSAGE_VALUES,
  more: [
    "(SELECT name FROM holdfast_pauses p WHERE p.seq = l.pause_seq) AS received_by",
    "(SELECT resolved_at FROM holdfast_pauses p WHERE p.seq = l.pause_seq) AS received_at",
    "(SELECT completed_at IS NOT NULL FROM holdfast_runs r WHERE r.seq = l.run_seq) AS has_ended",
  ],
  rows: "WHERE run_seq = ? AND no > ? ORDER BY no",
  size: bytesOf("payload"),
  start: [0],
  position: ["no"],
  byName: "run_seq = ? AND id = ?",
}, (_, row: MessageRow & LargeFlags) => withLarge(toMessageText(row), row, MESSAGE_VALUES));

/** See `Store.readLogs()`. */
export const readLogs: ReadPart<LogText> = partReader({
  table: "holdfast_logs",
  values: [],
  more: [`(SELECT max(no) FROM holdfast_logs a WHERE a.run_seq = l.run_seq) - ${MAX_LOG_LINES} AS dropped`],
  rows: "WHERE run_seq = ? AND no > ? ORDER BY no",
  size: bytesOf("message", "data"),
  start: [0],
  position: ["no"],
  byName: "run_seq = ? AND id = ?",
}, (runId, row: LogRow & { dropped: number }) => {
  const line = toLogText(runId, row);
  return row.no <= row.dropped ? droppedLines(line, row.no) : line;
});

function partReader<Row extends object, Column extends string, T>(
  list: List<Column>,
  toRecord: (runId: string, row: Row) => T,
): ReadPart<T> {
  return (db, runId, after, maxLength) => {
    const run = db.get<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE id = ${runId}`;
    if (run === undefined) return null;
    const part = new PartBuilder<T>(maxLength);
    const columns = maxLength === Infinity ? "l.*" : smallColumns(db.columnsOf(list.table), "l", list.values);
    const select = `SELECT ${[columns, ...list.more].join(", ")} FROM ${list.table} l ${list.rows} LIMIT ?`;
    let position = after === null ? list.start : positionOf(db, list, run.seq, after);
    while (!part.hasMore) {
      const count = maxLength === Infinity ? ALL : countFitting(sizes(db, list, run.seq, position), part.room);
      const rows = db.all<Row & Position<Column>>(select, run.seq, ...position, count);
      part.add(rows, (row) => toRecord(runId, row));
      const last = rows.at(-1);
      if (last === undefined || count === ALL) break;
      position = positionIn(last, list);
    }
    return part.toPart();
  };
}

/** The position to continue from. Removed rows came before all remaining ones. */
function positionOf<Column extends string>(
  db: SqliteDatabase,
  list: List<Column>,
  runSeq: number,
  name: string,
): readonly number[] {
  const select = `SELECT ${list.position.join(", ")} FROM ${list.table} WHERE ${list.byName}`;
  const row = db.get<Position<Column>>(select, runSeq, name);
  return row === undefined ? list.start : positionIn(row, list);
}

/** The columns of a row's position. */
type Position<Column extends string> = { readonly [Name in Column]: number };

function positionIn<Column extends string>(row: Position<Column>, list: List<Column>): readonly number[] {
  return list.position.map((column) => row[column]);
}

function sizes(db: SqliteDatabase, list: List<string>, runSeq: number, position: readonly number[]): number[] {
  const select = `SELECT ${list.size} AS size FROM ${list.table} l ${list.rows} LIMIT ?`;
  return db.all<{ size: number }>(select, runSeq, ...position, SLICE).map(({ size }) => size);
}

/** How many bytes some columns of a row take. octet_length() knows the size without reading the value. */
function bytesOf(...columns: string[]): string {
  return columns.map((column) => `min(coalesce(octet_length(${column}), 0), ${LARGE_VALUE_BYTES})`).join(" + ");
}

/** Columns of a table, without large values. */
function smallColumns(columns: readonly string[], alias: string, values: readonly string[]): string {
  return columns.map((column) =>
    values.includes(column) ? smallValue(`${alias}.${column}`, column) : `${alias}.${column}`
  ).join(", ");
}

function smallValue(column: string, name: string): string {
  const isLarge = `octet_length(${column}) > ${LARGE_VALUE_BYTES}`;
  return `iif(${isLarge}, NULL, ${column}) AS ${name}, ${isLarge} AS ${name}_is_large`;
}

/** The columns that {@linkcode smallValue} adds: 1 if the value is large, NULL if there is none. */
type LargeFlags = { readonly [column: `${string}_is_large`]: number | null };

/** A record with placeholders for its large values. */
function withLarge<T extends object>(record: T, row: LargeFlags, values: readonly (keyof T & string)[]): T {
  return withPlaceholders(record, values.filter((value) => row[`${value}_is_large`] === 1));
}

/** Reads a part of a value. See `Store.readValue()`. */
export function readValue(db: SqliteDatabase, place: ValuePlace, from: number): ValuePart | null {
  const [name, rows] = findValue(place);
  const column = raw(name);
  // As bytes: in a string SQLite would count all characters in front of the part.
  const row = db.get<{ bytes: Uint8Array<ArrayBuffer>; size: number } | { bytes: null; size: null }>`
    SELECT substr(CAST(${column} AS BLOB), ${from + 1},
        max(${raw(VALUE_PART_LENGTH)}, octet_length(${column}) / ${raw(VALUE_PARTS)})) AS bytes,
      octet_length(${column}) AS size FROM ${rows}`;
  if (row === undefined || row.size === null) return null;
  const { bytes, size } = row; // all drivers return a BLOB as a `Uint8Array`
  const next = from + bytes.length;
  return { bytes, next: next < size ? next : null };
}

/** The column of a value, and the row that has it. */
function findValue(place: ValuePlace): [column: string, rows: SqlPart] {
  switch (place.of) {
    case "run": {
      const rows = sql`holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq WHERE r.id = ${place.runId}`;
      return [place.value === "payload" ? "i.payload" : "r.output", rows];
    }
    case "step":
      return ["s.output", sql`holdfast_steps s ${ofRun("s", place)} AND s.name = ${place.stepName}`];
    case "message":
      return ["m.payload", sql`holdfast_messages m ${ofRun("m", place)} AND m.id = ${place.messageId}`];
    case "wait":
      return [`p.${place.value}`, sql`holdfast_pauses p WHERE p.id = ${place.waitId} AND p.kind = 'wait'`];
  }
}

function ofRun(table: string, { runId }: { runId: string }): SqlPart {
  return sql`JOIN holdfast_runs r ON r.seq = ${raw(table)}.run_seq WHERE r.id = ${runId}`;
}

/** How many of the first rows it takes to fill the room that is left in a part. */
function countFitting(sizes: readonly number[], room: number): number {
  let left = room;
  const last = sizes.findIndex((size) => (left -= size + ROW_BYTES) <= 0);
  return last === -1 ? sizes.length : last + 1;
}
