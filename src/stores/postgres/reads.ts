import type { FactValue } from "../../model/fact.ts";
import type { Cursor } from "../../model/journal.ts";
import type { HoldCode } from "../../model/hold.ts";
import { droppedLines, type LogText } from "../../model/log.ts";
import type { MessageText } from "../../model/message.ts";
import type { OriginText } from "../../model/origin.ts";
import { DEFAULT_RUN_LIMIT, type RunText } from "../../model/run.ts";
import type { StepText } from "../../model/step.ts";
import type { StreamInfo } from "../../model/stream.ts";
import type { ChildResult, WaitText } from "../../model/wait.ts";
import type { CopiedHistory } from "../../store/hold_record.ts";
import type { AwaitedPause, Part, RunQuery } from "../../store/run_query.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import { newEndOf } from "../end_runs.ts";
import { byNameAndVersion, namesOfPrints } from "../holds.ts";
import { PartBuilder, withPlaceholders } from "../part_builder.ts";
import { jobNameOf, versionOf } from "../queue_name.ts";
import {
  type ChildRow,
  type FactValueRow,
  type IdentityRow,
  type LogRow,
  type MessageRow,
  type ReplayedStepRow,
  type ScheduleRow,
  type StepRow,
  toChildResult,
  toFactValue,
  toInput,
  toLogText,
  toMessageText,
  toRunIdentity,
  toSchedule,
  toStepRecord,
  toStepText,
  toWait,
  toWaitText,
  type WaitRow,
} from "../rows.ts";
import { isCountedInFull, listOf, mostCounted, statusesOf, storedConditionsOf, timesOf } from "../run_conditions.ts";
import type { DatabaseCalls, PostgresDatabase } from "./database/postgres_database.ts";
import { type PauseRow, type RunRow, toPauseRecord, toRunText } from "./run_answers.ts";
import { toLeaseParameter } from "./writes/parameters.ts";

// About how many characters one statement reads of records with all their values: its answer has a time limit, and a maximum
// size.
const WHOLE_LENGTH = 16_000_000;

/** The columns of a row that were left out, since they are large. */
interface LargeColumns {
  large?: readonly string[];
}

/** The calls of a store that read runs, their records and the journal. */
export const READS = {
  readRuns: async (database, runIds, maxLength) => {
    const part = new PartBuilder<RunText | null>(maxLength);
    while (!part.hasMore && part.items.length < runIds.length) {
      const { rows } = await database.read<Rows<(RunRow & LargeColumns) | null>>("read_runs", {
        runIds: runIds.slice(part.items.length),
        ...toLength(part.room),
      });
      part.add(rows, (row) => row === null ? null : withPlaceholders(toRunText(row), row.large ?? []));
    }
    return part.items;
  },
  readSteps: (database, runId, after, maxLength) =>
    readPart<StepRow & LargeColumns, StepText>(database, "read_steps", { runId, after, maxLength }, (row) => [
      withPlaceholders(toStepText(runId, row), row.large ?? []),
      row.name,
    ]),
  readWaits: (database, runId, after, maxLength) =>
    readPart<WaitRow & LargeColumns, WaitText>(database, "read_waits", { runId, after, maxLength }, (row) => [
      withPlaceholders(toWaitText(runId, row), row.large ?? []),
      row.id,
    ]),
  readMessages: (database, runId, after, maxLength) =>
    readPart<MessageRow & LargeColumns, MessageText>(database, "read_messages", { runId, after, maxLength }, (row) => [
      withPlaceholders(toMessageText(row), row.large ?? []),
      row.id,
    ]),
  readLogs: (database, runId, after, maxLength) =>
    readPart<LogRow, LogText>(database, "read_logs", { runId, after, maxLength }, (row, { dropped }) => {
      const line = toLogText(runId, row);
      return [row.no <= (dropped ?? 0) ? droppedLines(line, row.no) : line, row.id];
    }),
  readValue: (database, place, from) =>
    database.find("read_value", { ...place, from }, ({ text, next }: { text: string; next: number | null }) => ({
      bytes: new TextEncoder().encode(text),
      next,
    })),
  readChildren: async (database, pauseId, from, maxLength) => {
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
  },
  findRuns: (database, query) => database.read("find_runs", toParameters(query)),
  findRetry: (database, runId) => database.read("find_retry", { runId }),
  getWait: (database, waitId) =>
    database.find("get_wait", { waitId }, (row: WaitRow & { run_id: string }) => toWait(row.run_id, row)),
  readStream: (database, runId, stream, after, maxLength) =>
    database.read("read_stream", { runId, stream, ...after, maxLength: Math.min(maxLength, Number.MAX_SAFE_INTEGER) }),
  getStreams: async (database, runId) => {
    const streams = await database.read<(Omit<StreamInfo, "updatedAt"> & { updatedAt: number })[]>("get_streams", {
      runId,
    });
    return streams.map(({ name, items, bytes, isOpen, updatedAt }) => ({
      name,
      items,
      bytes,
      isOpen,
      updatedAt: isoTime(updatedAt),
    }));
  },
  readJournal: (database, after, maxLength, at) =>
    database.read("read_journal", { after, at, maxLength: Math.min(maxLength, Number.MAX_SAFE_INTEGER) }),
  findCursor: (database, cursor) => database.read("find_cursor", cursor),
  findLastFact: (database, run, after, kinds) => database.read("find_last_fact", { run, after, kinds }),
  getRunState: (database, runId) =>
    database.find("get_run_state", { runId }, ({ run, trace, place, pauses }: RunStateAnswer) => ({
      run: toRunText(run),
      seq: run.seq,
      place,
      trace,
      execution: run.interruptions + 1,
      pauses: pauses.map(({ deadlineAt, ...pause }) => ({ ...pause, deadlineAt: isoTime(deadlineAt) })),
    })),
  getRunIdentities: async (database, runs) => {
    const rows = await database.read<(IdentityRow | null)[]>("get_run_identities", runs);
    return rows.map((row) => row === null ? null : toRunIdentity(row));
  },
  readFactValues: async (database, values, maxLength) => {
    const part = new PartBuilder<FactValue | null>(maxLength);
    while (!part.hasMore && part.items.length < values.length) {
      const rows = await database.read<(FactValueRow | null)[]>("read_fact_values", {
        values: values.slice(part.items.length),
        maxLength: part.room,
      });
      part.add(rows, (row) => row === null ? null : toFactValue(row));
    }
    return part.items;
  },
  getHold: (database, runId) =>
    database.find("get_hold", { runId }, ({ code, message, details, since, prints }: HoldRow) => ({
      code,
      message,
      since: isoTime(since),
      details: JSON.parse(details),
      prints: namesOfPrints(prints),
    })),
  findHeld: (database, query) => database.read("find_held", query),
  getInput: (database, runId, schemaPrint) => database.read("get_input", { runId, schemaPrint }),
  getHistory: (database, runId) =>
    database.find(
      "get_history",
      { runId },
      ({ run, input, schema_print, steps, pauses, copied, now }: HistoryAnswer) => ({
        run: toRunText(run),
        input: toInput({ payload: run.payload, input }),
        schemaPrint: schema_print,
        slot: run.slot,
        steps: steps.map((step) => toStepRecord(step, now)),
        pauses: pauses.map(toPauseRecord),
        copied,
        originId: run.origin_id ?? run.id,
        onEnd: newEndOf(run.on_end),
      }),
    ),
  getStrandedJobs: async (database) => {
    const queues = await database.read<{ job: string; runs: number; oldestAt: number }[]>("get_stranded_jobs");
    return queues.map(({ job, runs, oldestAt }) => ({
      jobName: jobNameOf(job),
      version: versionOf(job),
      runs,
      oldestAt: isoTime(oldestAt),
    })).sort(byNameAndVersion);
  },
  getLeases: (database) => database.read("get_leases", {}, "leases"),
  getLostLeases: async (database, leases) => {
    const lost = await database.read<number[]>("get_lost_leases", leases.map(toLeaseParameter), "leases");
    return lost.map((at) => leases[at]!); // the index of a given lease
  },
  getSchedules: async (database, name) => {
    const { schedules, now } = await database.read<{ schedules: ScheduleRow[]; now: number }>("get_schedules", {
      name,
    });
    return { schedules: schedules.map(toSchedule), now };
  },
  getVersion: (database) => database.read("get_version", {}, "leases"),
} satisfies DatabaseCalls;

/** A page of a list: about as many rows as fit. Of log lines, `dropped` is how many the first of them stands for. */
interface Rows<Row> {
  rows: Row[];
  hasMore: boolean;
  dropped?: number | null;
}

/** What `fn.get_run_state()` returns. */
interface RunStateAnswer {
  run: RunRow;
  trace: OriginText | null;
  place: Cursor;
  pauses: AwaitedPause<number>[];
}

/** What `fn.get_hold()` returns. */
interface HoldRow {
  code: HoldCode;
  message: string;
  details: JsonText;
  since: number;
  prints: string[];
}

/** What `fn.get_history()` returns. */
interface HistoryAnswer {
  run: RunRow;
  input: JsonText | null;
  schema_print: string | null;
  steps: ReplayedStepRow[];
  pauses: PauseRow[];
  copied: CopiedHistory | null;
  now: number;
}

/** How much a statement reads of what has to be read. Without an end it reads all values of the records, large ones, too. */
function toLength(room: number): object {
  return room === Infinity ? { maxLength: WHOLE_LENGTH, isWhole: true } : { maxLength: room };
}

/** Reads records of a run after one, up to a number of characters. `toRecord` returns a record and its name or id. */
async function readPart<Row, T>(
  database: PostgresDatabase,
  name: string,
  { runId, after, maxLength }: { runId: string; after: string | null; maxLength: number },
  toRecord: (row: Row, page: Rows<Row>) => [T, string],
): Promise<Part<T> | null> {
  const part = new PartBuilder<T>(maxLength);
  for (let last = after;;) {
    const page = await database.read<Rows<Row> | null>(name, { runId, after: last, ...toLength(part.room) });
    if (page === null) return null;
    part.add(page.rows, (row) => {
      const [record, name] = toRecord(row, page);
      last = name;
      return record;
    });
    if (part.hasMore || !page.hasMore) return part.toPart();
  }
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
