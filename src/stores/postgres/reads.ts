import { droppedLines, fitLine, type LogText, type NewLogEntry } from "../../model/log.ts";
import type { MessageText } from "../../model/message.ts";
import { DEFAULT_RUN_LIMIT, type RunText } from "../../model/run.ts";
import type { StepText } from "../../model/step.ts";
import type { FoundRuns, Part, RunQuery, ValuePart, ValuePlace } from "../../store/run_query.ts";
import type { ChildResult, WaitText } from "../../model/wait.ts";
import { LARGE, PartBuilder } from "../part_builder.ts";
import {
  type LogRow,
  type MessageRow,
  type StepRow,
  toLogText,
  toMessageText,
  toStepText,
  toWaitText,
  type WaitRow,
} from "../rows.ts";
import { isCountedInFull, listOf, mostCounted, statusesOf, storedConditionsOf, timesOf } from "../run_conditions.ts";
import type { PostgresDatabase } from "./database/postgres_database.ts";
import { type ChildRow, type RunRow, toChildResult, toRunText } from "./rows.ts";

/** A page of a list: about as many rows as fit. */
interface Rows<Row> {
  rows: Row[];
  hasMore: boolean;
}

/** The columns of a row that were left out, since they are large. */
interface LargeColumns {
  large?: readonly string[];
}

/** Reads runs up to a number of characters. See `Store.readRuns()`. */
export async function readRuns(
  database: PostgresDatabase,
  runIds: readonly string[],
  maxLength: number,
): Promise<(RunText | null)[]> {
  const part = new PartBuilder<RunText | null>(maxLength);
  while (!part.hasMore && part.items.length < runIds.length) {
    const { rows } = await database.read<Rows<(RunRow & LargeColumns) | null>>("read_runs", {
      runIds: runIds.slice(part.items.length),
      maxLength: part.room,
    });
    part.add(rows, (row) => row === null ? null : withLarge(toRunText(row), row));
  }
  return part.items;
}

/** Reads steps of a run up to a number of characters. See `Store.readSteps()`. */
export function readSteps(database: PostgresDatabase, list: ListPart): Promise<Part<StepText> | null> {
  return readPart(database, "read_steps", list, (row: StepRow & LargeColumns) => ({
    record: withLarge(toStepText(list.runId, row), row),
    name: row.name,
  }));
}

/** Reads waits of a run up to a number of characters. See `Store.readWaits()`. */
export function readWaits(database: PostgresDatabase, list: ListPart): Promise<Part<WaitText> | null> {
  return readPart(database, "read_waits", list, (row: WaitRow & LargeColumns) => ({
    record: withLarge(toWaitText(list.runId, row), row),
    name: row.id,
  }));
}

/** Reads messages of a run up to a number of characters. See `Store.readMessages()`. */
export function readMessages(database: PostgresDatabase, list: ListPart): Promise<Part<MessageText> | null> {
  return readPart(database, "read_messages", list, (row: MessageRow & LargeColumns) => ({
    record: withLarge(toMessageText(row), row),
    name: row.id,
  }));
}

/** Reads log lines of a run up to a number of characters. See `Store.readLogs()`. */
export function readLogs(database: PostgresDatabase, list: ListPart): Promise<Part<LogText> | null> {
  return readPart(
    database,
    "read_logs",
    list,
    (row: LogRow, { dropped }: Rows<LogRow> & { dropped: number | null }) => {
      const line = toLogText(list.runId, row);
      return { record: row.no <= (dropped ?? 0) ? droppedLines(line, row.no) : line, name: row.id };
    },
  );
}

/** Which part of a list of a run's records to read. */
export interface ListPart {
  /** The run. */
  runId: string;
  /** The name or id of the record to continue after; `null`: from the first one. */
  after: string | null;
  /** The number of characters. */
  maxLength: number;
}

async function readPart<Row, T, Page extends Rows<Row>>(
  database: PostgresDatabase,
  name: string,
  { runId, after, maxLength }: ListPart,
  toRecord: (row: Row, page: Page) => { record: T; name: string },
): Promise<Part<T> | null> {
  const part = new PartBuilder<T>(maxLength);
  for (let last = after;;) {
    const page = await database.read<Page | null>(name, { runId, after: last, maxLength: part.room });
    if (page === null) return null;
    part.add(page.rows, (row) => {
      const { record, name } = toRecord(row, page);
      last = name;
      return record;
    });
    if (part.hasMore || !page.hasMore) return part.toPart();
  }
}

/** A record with placeholders for its large values. */
function withLarge<T extends object>(record: T, { large = [] }: LargeColumns): T {
  return large.length === 0 ? record : { ...record, ...Object.fromEntries(large.map((value) => [value, LARGE])) };
}

/** Reads a part of a value. See `Store.readValue()`. */
export async function readValue(
  database: PostgresDatabase,
  place: ValuePlace,
  from: number,
): Promise<ValuePart | null> {
  const part = await database.read<{ text: string; next: number | null } | null>("read_value", { ...place, from });
  return part === null ? null : { bytes: new TextEncoder().encode(part.text), next: part.next };
}

/** Stores log lines. See `Store.appendLogs()`. */
export async function appendLogs(database: PostgresDatabase, entries: readonly NewLogEntry[]): Promise<void> {
  if (entries.length > 0) await database.write("append_logs", entries.map(fitLine));
}

/** Reads how the children of a pause ended. See `Store.readChildren()`. */
export async function readChildren(
  database: PostgresDatabase,
  pauseId: string,
  from: number,
  maxLength: number,
): Promise<Part<ChildResult> | null> {
  const part = new PartBuilder<ChildResult>(maxLength);
  while (true) {
    const next = from + part.items.length;
    const page = await database.read<{ rows: (ChildRow | null)[]; total: number } | null>("read_children", {
      pauseId,
      from: next,
      maxLength: part.room,
    });
    if (page === null || (page.rows.length === 0 && next < page.total)) return null;
    for (const row of page.rows) {
      if (part.hasMore) break;
      if (row === null) return null;
      part.add([row], toChildResult);
    }
    const hasMore = from + part.items.length < page.total;
    if (part.hasMore || !hasMore) return { items: part.items, hasMore };
  }
}

/** The ids of the runs that match a filter, newest first. See `Store.findRuns()`. */
export async function findRuns(database: PostgresDatabase, query: RunQuery): Promise<FoundRuns> {
  return await database.read<FoundRuns>("find_runs", toParameters(query));
}

/** The parameters of `fn.list_runs()`. */
function toParameters(query: RunQuery): object {
  const { scope, before, labels = {} } = query;
  return {
    jobs: listOf(query.jobName),
    statuses: statusesOf(query),
    labels: Object.entries(labels).map(([key, value]) => [key, value, scope?.labels.includes(key) === true]),
    scopedByJob: scope?.jobs === true,
    ...Object.fromEntries(storedConditionsOf(query).map(({ name, value }) => [name, value])),
    times: timesOf(query),
    notRetried: query.notRetried === true,
    before,
    inFull: isCountedInFull(query),
    most: mostCounted(query),
    limit: query.limit ?? DEFAULT_RUN_LIMIT,
    offset: query.offset ?? 0,
  };
}
