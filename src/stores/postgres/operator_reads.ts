import { actorOf, type OriginText } from "../../model/origin.ts";
import type { JobList, StoreInfo, WorkerRecord } from "../../store/operate.ts";
import type { SearchHit, TimelinePause, TimelineRecords, TimelineRun } from "../../store/operator_reads.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JsonText } from "../../values/json.ts";
import { type AwaitedRow, toAwaited } from "../operate/awaited_rows.ts";
import type { BlockerFacts, WorkerFacts } from "../operate/blocker_facts.ts";
import { findBlockers } from "../operate/find_blockers.ts";
import { type AttemptRow, type TimelineStepRow, toFailures, toTimelineStep } from "../operate/timeline_rows.ts";
import { type QueueRows, toJobNumbers } from "../operate/numbers.ts";
import { isAloneQueue, jobNameOf } from "../queue_name.ts";
import { type JobPauseRow, type OpenWaitRow, toFailure, toJobPause, toOpenWait } from "../rows.ts";
import { parseWorkerDetails, toNamedWorker } from "../record_rules.ts";
import type { DatabaseCalls, PostgresDatabase } from "./database/postgres_database.ts";
import { type RunRow, toRunText } from "./run_answers.ts";
import { VERSION } from "./sql/names.ts";

/** The calls of a store that show operators what there is. */
export const OPERATOR_READS = {
  getTimeline: (database, runId, from, limit) =>
    database.find("get_timeline", { runId, from, limit }, (answer: TimelineAnswer) => {
      const { run: { trace, endedBy, ...run }, steps, pauses, attempts, ...records } = answer;
      const byStep = Map.groupBy(attempts, ({ step_name }) => step_name);
      return {
        ...records,
        run: { ...run, triggeredBy: actorOf(trace), cancelledBy: actorOf(endedBy) },
        pauses: pauses.map(({ trace, ...pause }) => ({ ...pause, signalledBy: actorOf(trace) })),
        steps: steps.map((row) => toTimelineStep(row, byStep.get(row.name) ?? [])),
      };
    }),
  getFailures: (database, runId) =>
    database.find("get_failures", { runId }, ({ run, steps }: FailuresAnswer) => ({
      run: toFailure(run),
      steps: toFailures(steps),
    })),
  getOpenWaits: async (database, after, limit, runIds) => {
    const { waits, total } = await database.read<OpenWaitsAnswer>("get_open_waits", { after, limit, runIds });
    return { waits: waits.map(toOpenWait), total };
  },
  searchRuns: async (database, text, limit) => {
    // Each run once, by what has found it first.
    const found = new Map<string, SearchHit>();
    for (const row of await database.read<SearchHit[]>("search_runs", { text, limit })) {
      if (!found.has(row.runId) && found.size < limit) found.set(row.runId, row);
    }
    return [...found.values()];
  },
  getWorkers: async (database) => {
    const { workers, now } = await database.read<WorkersAnswer>("get_workers");
    return {
      workers: workers.map(({ queues, details, ...worker }) => ({
        ...worker,
        details: parseWorkerDetails(details),
        jobNames: [...new Set(queues.map(jobNameOf))].sort(),
      })),
      now,
    };
  },
  getJobs: async (database, rates) => toJobList(await database.read<JobsAnswer>("get_jobs", { rates })),
  getBlockers: (database, runId) =>
    database.find("get_blockers", { runId }, (answer: BlockersAnswer) => findBlockers(toBlockerFacts(answer))),
  readStats: (database, query) => database.read("read_stats", query),
  getInfo: async (database) => {
    const info = await database.read<Pick<StoreInfo, "id" | "runs" | "bytes">>("get_info");
    return { ...info, kind: "postgres", schemaVersion: VERSION, walBytes: null, freeBytes: null };
  },
} satisfies DatabaseCalls;

/** What `fn.get_timeline()` returns. */
interface TimelineAnswer extends Omit<TimelineRecords, "run" | "steps" | "pauses"> {
  run: Omit<TimelineRun, "triggeredBy" | "cancelledBy"> & { trace: OriginText | null; endedBy: string | null };
  pauses: (Omit<TimelinePause, "signalledBy"> & { trace: OriginText | null })[];
  steps: TimelineStepRow[];
  attempts: AttemptRow[];
}

/** What `fn.get_failures()` returns. */
interface FailuresAnswer {
  run: JsonText | null;
  steps: { name: string; position: number; attempt: number; failure: JsonText }[];
}

/** What `fn.get_open_waits()` returns. */
interface OpenWaitsAnswer {
  waits: OpenWaitRow[];
  total: number;
}

/** What `fn.get_workers()` returns. */
interface WorkersAnswer {
  workers: (Omit<WorkerRecord, "details" | "jobNames"> & { queues: string[]; details: string })[];
  now: number;
}

/** What `fn.get_jobs()` returns. */
interface JobsAnswer extends QueueRows, Pick<JobList, "nextTimerAt" | "now"> {
  openings: number[];
  paused: JobPauseRow[];
}

/** What `fn.get_jobs()` returns, as the store does. */
function toJobList({ openings, paused, nextTimerAt, now, ...rows }: JobsAnswer): JobList {
  return {
    jobs: toJobNumbers(rows),
    openings: openings.map((opensAt) => opensAt > now ? opensAt : null),
    paused: paused.map(toJobPause),
    nextTimerAt,
    now,
  };
}

/** What `fn.get_blockers()` returns. */
interface BlockersAnswer extends Omit<BlockerFacts, "run" | "awaited" | "paused" | "workers"> {
  run: RunRow;
  awaited: AwaitedRow[];
  paused: JobPauseRow[];
  workers:
    (Pick<WorkerFacts, "id" | "lastSeenAt" | "leaseMs" | "queues" | "limits" | "leases"> & { details: JsonText })[];
}

/** What `fn.get_blockers()` returns, as facts. */
function toBlockerFacts({ run, awaited, paused, workers, ...facts }: BlockersAnswer): BlockerFacts {
  return {
    ...facts,
    run: toRunText(run),
    awaited: awaited.flatMap(toAwaited),
    paused: paused.map(toJobPause),
    workers: workers.map(({ details, queues, ...worker }) => ({
      ...worker,
      queues: queues.filter((queue) => !isAloneQueue(queue)),
      ...toNamedWorker(parseWorkerDetails(details)),
    })),
  };
}

/** Something outside of the store that makes it slow. */
export interface PostgresWarning {
  /**
   * `held_snapshot`: a transaction is open for so long that dead rows cannot be removed. So tables grow, and claims of runs
   * with keys become slower.
   */
  code: "held_snapshot";
  /** What is wrong, and what to do. */
  message: string;
  /** The process of the server, for `pg_terminate_backend()`. */
  pid: number;
  /** Its role. */
  user: string | null;
  /** When the transaction began: ISO 8601 in UTC. */
  since: string;
}

interface HeldSnapshotRow {
  pid: number;
  user: string | null;
  application: string | null;
  state: string | null;
  since: number;
}

/** Finds what makes a store slow. See `PostgresStore.getWarnings()`. */
export async function readWarnings(database: PostgresDatabase, olderThanMs: number): Promise<PostgresWarning[]> {
  const rows = await database.read<HeldSnapshotRow[]>("held_snapshots", { olderThanMs });
  return rows.map(({ pid, user, application, state, since: at }) => {
    const since = isoTime(at);
    const who = `Process ${pid} of role "${user}"${application ? ` ("${application}")` : ""}`;
    const message =
      `${who} has had a transaction open since ${since} (${state}): dead rows cannot be removed, tables ` +
      `grow, and claims of runs with keys become slower, until it ends. To end it: SELECT pg_terminate_backend(${pid})`;
    return { code: "held_snapshot", message, pid, user, since };
  });
}
