import type { JsonText } from "../../../values/json.ts";
import type { UnreadName } from "../../../store/blockers.ts";
import { type AwaitedRow, toAwaited } from "../../operate/awaited_rows.ts";
import {
  type BlockerFacts,
  hasQueue,
  liveWorkers,
  versionQueue,
  type WorkerFacts,
} from "../../operate/blocker_facts.ts";
import { isAloneQueue } from "../../queue_name.ts";
import { parseWorkerDetails, toNamedWorker } from "../../record_rules.ts";
import { HEAD_START } from "../../rules.ts";
import { isOrphan } from "../children/orphans.ts";
import { holdsKey, type KeyLimits } from "../flow/concurrency_keys.ts";
import { readJobPauses } from "../flow/job_gates.ts";
import { findRunRow, type RunRow, type RunWith, toRunText } from "../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { countGroup, countReady, readKey, readLimits } from "./queue_facts.ts";
import { countLeases } from "./workers.ts";

/** What else is read of a run that may be held up. */
type BlockedRow = KeyLimits & RunWith<"position queue_state timer_at due_at leased_at abandonments">;

const BLOCKED =
  `SELECT position, queue_state, timer_at, due_at, leased_at, abandonments, key_concurrency, key_rate_limit,
  key_rate_period FROM holdfast_runs WHERE seq = ?`;

/** Reads what may hold up a run. See `Store.getBlockers()`. */
export function readBlockerFacts(db: SqliteDatabase, runId: string, now: number): BlockerFacts | null {
  const found = findRunRow(db, runId);
  if (found === undefined) return null;
  const row = { ...found, ...db.one<BlockedRow>(BLOCKED, found.seq) };
  const { queue } = row;
  const isWaiting = row.status === "waiting" && row.queue_state === null;
  // An interrupted run that kept its key has its head start already.
  const isHolder = row.concurrency_key !== null && holdsKey(db, row.concurrency_key, row.id);
  const position = isHolder && isWaiting ? row.position - HEAD_START : row.position;
  const run = { ...row, position, isHolder };
  const workers = readWorkers(db);
  const paused = readJobPauses(db);
  const live = liveWorkers(workers, now);
  const able = live.filter((worker) => hasQueue(worker, queue));
  const key = readKey(db, run, now);
  const queues = new Set([queue, ...key?.firsts.map((first) => first.queue) ?? []].map(versionQueue));
  const pausedNames = new Set(paused.map(({ jobName }) => jobName));
  const limits = readLimits(db, run, { workers: live, queues, paused: pausedNames }, now);
  const isRateClosed = limits.some((limit) => limit.queue === versionQueue(queue) && limit.rate?.allowed === 0);
  const group = row.fairness_key === null ? 0 : countGroup(db, { ...run, isRateClosed });
  return {
    run: toRunText(row),
    now,
    queue,
    position,
    leasedAt: row.leased_at,
    endedParentId: row.parent_id !== null && isOrphan(db, row.seq) ? row.parent_id : null,
    isDue: isDueNow(row, now),
    delayedUntil: row.due_at,
    abandonments: row.abandonments,
    dueSince: row.status === "waiting" ? row.timer_at ?? row.updated_at : row.start_at ?? row.created_at,
    awaited: isWaiting ? readAwaited(db, row) : [],
    unread: row.completed_at === null ? [] : readUnread(db, row.seq),
    paused,
    workers,
    key,
    limits,
    readyBefore: countReady(db, run, able, pausedNames, now) + group,
  };
}

/** Whether a run is due, or becomes so with the next claim. */
function isDueNow({ status, held, timer_at, queue_state, due_at }: RunRow & BlockedRow, now: number): boolean {
  if (queue_state !== null) return true;
  if (status === "waiting") return timer_at !== null && timer_at <= now;
  return held === null && due_at !== null && due_at <= now;
}

/** What a waiting run waits for. */
function readAwaited(
  db: SqliteDatabase,
  { seq: runSeq, timer_at }: { seq: number; timer_at: number | null },
): BlockerFacts["awaited"] {
  type PauseRow = Exclude<AwaitedRow, { kind: "retry" }> & { seq: number };
  const pauses = db.all<PauseRow>`
    SELECT seq, id, kind, name, deadline_at AS at, unfinished AS open, created_at AS since, receive FROM holdfast_pauses
    WHERE run_seq = ${runSeq} AND awaited = 1 AND status = 'pending' ORDER BY seq`;
  const steps = db.all<AwaitedRow>(
    `SELECT 'retry' AS kind, name, attempts, failure, retry_at AS at FROM holdfast_steps
     INDEXED BY holdfast_steps_retrying
     WHERE run_seq = ? AND status = 'retrying' AND retry_at >= ? ORDER BY position, seq`,
    runSeq,
    timer_at, // a retry before it is not awaited: the job has gone on without it
  );
  for (const row of pauses) {
    if (row.kind === "receive") {
      row.others = db.one<{ others: number }>`
        SELECT count(*) AS others FROM holdfast_messages WHERE run_seq = ${runSeq} AND pause_seq IS NULL`.others;
    } else if (row.kind === "children") {
      row.child = db.get<NonNullable<typeof row.child>>`
        SELECT id, job, status FROM holdfast_runs INDEXED BY holdfast_runs_open_children
        WHERE parent_seq = ${runSeq} AND completed_at IS NULL AND parent_pause = ${row.seq} ORDER BY seq LIMIT 1` ??
        null;
    }
  }
  return [...pauses, ...steps].flatMap(toAwaited);
}

/** The messages that a run has not received, by their names. */
function readUnread(db: SqliteDatabase, runSeq: number): UnreadName[] {
  return db.all<UnreadName & { first: number }>`
    SELECT name, count(*) AS count, min(no) AS first FROM holdfast_messages INDEXED BY holdfast_messages_unread
    WHERE run_seq = ${runSeq} AND pause_seq IS NULL GROUP BY name ORDER BY first`.map(({ name, count }) => ({
    name,
    count,
  }));
}

/** The workers that are known, in the order of their ids. */
function readWorkers(db: SqliteDatabase): WorkerFacts[] {
  const rows = db.all<
    { id: string; jobs: JsonText; seen_at: number; lease_ms: number; limits: JsonText; details: JsonText }
  >`SELECT id, jobs, seen_at, lease_ms, limits, details FROM holdfast_workers ORDER BY id`;
  const leases = countLeases(db);
  return rows.map(({ id, jobs, seen_at, lease_ms, limits, details }) => ({
    id,
    ...toNamedWorker(parseWorkerDetails(details)),
    lastSeenAt: seen_at,
    leaseMs: lease_ms,
    queues: (JSON.parse(jobs) as string[]).filter((queue) => !isAloneQueue(queue)),
    limits: JSON.parse(limits),
    leases: leases.get(id) ?? 0,
  }));
}
