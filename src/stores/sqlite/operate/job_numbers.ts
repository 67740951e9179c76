import type { RunStatus } from "../../../model/run.ts";
import type { JobList, JobNumbers, RatedJob } from "../../../store/operate.ts";
import { noRuns } from "../../../statistics/no_runs.ts";
import { jobNameOf } from "../../queue_name.ts";
import { readyRunsOf } from "../flow/candidate.ts";
import { addHeld, addUnread, type HeldRow, type UnreadRow } from "../../operate/numbers.ts";
import { MAX_COUNTED_HELD } from "../../rules.ts";
import { readJobPauses } from "../flow/job_gates.ts";
import { jobScope, rateOpensAt } from "../flow/rates.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";

/** The numbers of each job. See `Store.getJobs()`. */
export function readJobNumbers(db: SqliteDatabase, rates: readonly RatedJob[], now: number): JobList {
  return {
    jobs: readNumbers(db, now),
    openings: rates.map(({ jobName, rate }) => {
      const opensAt = rateOpensAt(db, jobScope(jobName), rate, now);
      return opensAt > now ? opensAt : null;
    }),
    paused: readJobPauses(db),
    nextTimerAt: readNextTimer(db),
    now,
  };
}

function readNumbers(db: SqliteDatabase, now: number): JobNumbers[] {
  const counts = db.all<{ status: RunStatus; job: string; runs: number }>`
    SELECT status, job, runs FROM holdfast_counts WHERE runs > 0 ORDER BY job`;
  const jobs = new Map<string, JobNumbers>();
  const open = new Set<string>();
  for (const { status, job: queue, runs } of counts) {
    const jobName = jobNameOf(queue);
    const job = jobs.get(jobName) ?? { jobName, byStatus: noRuns(), ghosts: 0, oldestDue: null, held: null, unread: 0 };
    jobs.set(jobName, job);
    job.byStatus[status] += runs;
    if (status === "pending" || status === "waiting") open.add(queue);
  }
  const ghosts = db.all<{ job: string; ghosts: number }>`
    SELECT job, count(*) AS ghosts FROM holdfast_ghosts WHERE expires_at > ${now} GROUP BY job`;
  for (const { job, ghosts: count } of ghosts) {
    const numbers = jobs.get(job);
    if (numbers !== undefined) numbers.ghosts = count;
  }
  const held = db.all<HeldRow>`SELECT queue, count(*) AS runs, min(since) AS since FROM (
    SELECT queue, since FROM holdfast_holds INDEXED BY holdfast_holds_by_run WHERE since IS NOT NULL
    ORDER BY run_seq LIMIT ${raw(MAX_COUNTED_HELD)}) GROUP BY queue`;
  addHeld(jobs, held);
  const unread = db.all<UnreadRow>`SELECT r.job AS queue, count(*) AS messages FROM (
      SELECT run_seq FROM holdfast_messages INDEXED BY holdfast_messages_unread WHERE pause_seq IS NULL
      ORDER BY run_seq DESC LIMIT ${raw(MAX_COUNTED_HELD)}) m CROSS JOIN holdfast_runs r ON r.seq = m.run_seq
    WHERE r.completed_at IS NULL GROUP BY r.job`;
  addUnread(jobs, unread);
  const oldest = new Map<string, number>();
  for (const queue of open) {
    const due = readOldestDue(db, queue);
    const job = jobs.get(jobNameOf(queue))!; // made above
    if (due === undefined || due.position >= (oldest.get(job.jobName) ?? Infinity)) continue;
    oldest.set(job.jobName, due.position);
    job.oldestDue = { runId: due.id, dueSince: due.due_since };
  }
  return [...jobs.values()].sort((one, other) => one.jobName < other.jobName ? -1 : 1);
}

interface DueRow {
  id: string;
  position: number;
  due_since: number;
}

/** The first due run of a queue: of those without a fairness key, and of those whose turn is next. */
function readOldestDue(db: SqliteDatabase, queue: string): DueRow | undefined {
  const rows = [
    db.get<DueRow>`${readyRunsOf(queue, DUE)} AND fairness_key IS NULL ORDER BY position LIMIT 1`,
    db.get<DueRow>`SELECT ${raw(DUE)} FROM holdfast_runs WHERE seq =
      (SELECT run_seq FROM holdfast_heads WHERE queue = ${queue} ORDER BY turn, position LIMIT 1)`,
  ].filter((row) => row !== undefined);
  return rows.sort((one, other) => one.position - other.position)[0];
}

const DUE = `id, position,
  iif(lease_generation = 0 AND status = 'pending', max(created_at, coalesce(start_at, 0)), updated_at) AS due_since`;

function readNextTimer(db: SqliteDatabase): number | null {
  return db.one<{ at: number | null }>`SELECT min(at) AS at FROM (
    SELECT min(timer_at) AS at FROM holdfast_runs WHERE timer_at IS NOT NULL
    UNION ALL SELECT min(due_at) FROM holdfast_runs WHERE due_at IS NOT NULL
    UNION ALL SELECT min(deadline_at) FROM holdfast_runs WHERE deadline_at IS NOT NULL)`.at;
}
