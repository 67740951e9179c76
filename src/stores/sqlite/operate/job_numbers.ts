import type { JobList, RatedJob } from "../../../store/operate.ts";
import { readyRunsOf } from "../flow/candidate.ts";
import { type HeldRow, type QueueRows, toJobNumbers, type UnreadRow } from "../../operate/numbers.ts";
import { MAX_COUNTED_HELD } from "../../rules.ts";
import { readJobPauses } from "../flow/job_gates.ts";
import { jobScope, rateOpensAt } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";

/** The numbers of each job. See `Store.getJobs()`. */
export function readJobNumbers(db: SqliteDatabase, rates: readonly RatedJob[], now: number): JobList {
  return {
    jobs: toJobNumbers(readQueues(db, now)),
    openings: rates.map(({ jobName, rate }) => {
      const opensAt = rateOpensAt(db, jobScope(jobName), rate, now);
      return opensAt > now ? opensAt : null;
    }),
    paused: readJobPauses(db),
    nextTimerAt: readNextTimer(db),
    now,
  };
}

function readQueues(db: SqliteDatabase, now: number): QueueRows {
  const counts = db.all<QueueRows["counts"][number]>`
    SELECT status, job AS queue, runs FROM holdfast_counts WHERE runs > 0 ORDER BY job`;
  const ghosts = db.all<{ job: string; ghosts: number }>`
    SELECT job, count(*) AS ghosts FROM holdfast_ghosts WHERE expires_at > ${now} GROUP BY job`;
  const held = db.all<HeldRow>`SELECT queue, count(*) AS runs, min(since) AS since FROM (
    SELECT queue, since FROM holdfast_holds INDEXED BY holdfast_holds_by_run WHERE since IS NOT NULL
    ORDER BY run_seq LIMIT ${raw(MAX_COUNTED_HELD)}) GROUP BY queue`;
  const unread = db.all<UnreadRow>`SELECT r.job AS queue, count(*) AS messages FROM (
      SELECT run_seq FROM holdfast_messages INDEXED BY holdfast_messages_unread WHERE pause_seq IS NULL
      ORDER BY run_seq DESC LIMIT ${raw(MAX_COUNTED_HELD)}) m CROSS JOIN holdfast_runs r ON r.seq = m.run_seq
    WHERE r.completed_at IS NULL GROUP BY r.job`;
  const open = new Set(
    counts.filter(({ status }) => status === "pending" || status === "waiting").map(
      ({ queue }) => queue,
    ),
  );
  return {
    counts,
    ghosts: Object.fromEntries(ghosts.map(({ job, ghosts }) => [job, ghosts])),
    held,
    unread,
    due: [...open].flatMap((queue) => readFirstDue(db, queue)),
  };
}

/** The first due run of a queue of those without a fairness key, and that of those whose turn is next. */
function readFirstDue(db: SqliteDatabase, queue: string): QueueRows["due"][number][] {
  type DueRow = Omit<QueueRows["due"][number], "queue">;
  const rows = [
    db.get<DueRow>`${readyRunsOf(queue, DUE)} AND fairness_key IS NULL ORDER BY position LIMIT 1`,
    db.get<DueRow>`SELECT ${raw(DUE)} FROM holdfast_runs WHERE seq =
      (SELECT run_seq FROM holdfast_heads WHERE queue = ${queue} ORDER BY turn, position LIMIT 1)`,
  ];
  return rows.flatMap((row) => row === undefined ? [] : { ...row, queue });
}

const DUE = `id AS runId, position,
  iif(lease_generation = 0 AND status = 'pending', max(created_at, coalesce(start_at, 0)), updated_at) AS dueSince`;

function readNextTimer(db: SqliteDatabase): number | null {
  return db.one<{ at: number | null }>`SELECT min(at) AS at FROM (
    SELECT min(timer_at) AS at FROM holdfast_runs WHERE timer_at IS NOT NULL
    UNION ALL SELECT min(due_at) FROM holdfast_runs WHERE due_at IS NOT NULL
    UNION ALL SELECT min(deadline_at) FROM holdfast_runs WHERE deadline_at IS NOT NULL)`.at;
}
