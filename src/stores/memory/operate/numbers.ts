import type { JobList, JobNumbers, RatedJob, StatisticsRow, WorkerRecord } from "../../../store/operate.ts";
import { noRuns } from "../../../statistics/no_runs.ts";
import { addHeld, addUnread } from "../../operate/numbers.ts";
import { LISTED_LEASES, MAX_COUNTED_HELD } from "../../rules.ts";
import { type ClaimState, isLive } from "../writes/claim.ts";
import { dueFrom, earliest, type KeptRun, nextDeadline } from "../records.ts";
import { DueRuns } from "../flow/due_runs.ts";
import { unreadOf, wakesAt } from "../pauses.ts";
import { jobScope } from "../flow/rates.ts";

/** The workers, by their first claims. See `Store.getWorkers()`. */
export function listWorkers({ runs, workers }: ClaimState, now: number): WorkerRecord[] {
  const leases = countLeases(runs.open);
  return [...workers]
    .filter(([, { seenAt, leaseMs }]) => seenAt + leaseMs * LISTED_LEASES >= now)
    .map(([id, { details, jobs, startedAt, seenAt, isStopping, leaseMs }]) => ({
      id,
      details: { ...details },
      jobNames: [...new Set(jobs.map(({ name }) => name))].sort(),
      startedAt,
      seenAt,
      isStopping,
      leases: leases.get(id) ?? 0,
      leaseMs,
    }))
    .sort((one, other) => one.startedAt - other.startedAt || (one.id < other.id ? -1 : 1));
}

/** How many runs are under leases of each worker. */
export function countLeases(open: readonly KeptRun[]): Map<string, number> {
  const leases = new Map<string, number>();
  for (const { lease } of open) {
    if (lease !== null) leases.set(lease.owner, (leases.get(lease.owner) ?? 0) + 1);
  }
  return leases;
}

/** How many runs are pending, running and waiting now, and how many are under leases of live workers. */
export function sampleRuns({ runs, workers }: ClaimState, now: number): StatisticsRow["sampled"] {
  const count = (status: string) => runs.open.filter((run) => run.status === status).length;
  const leases = countLeases(runs.open);
  const live = [...workers].filter(([, worker]) => isLive(worker, now));
  const busy = live.reduce((sum, [id]) => sum + (leases.get(id) ?? 0), 0);
  return { samples: 1, pending: count("pending"), running: count("running"), waiting: count("waiting"), busy };
}

/** The numbers of each job. See `Store.getJobs()`. */
export function listJobs(state: ClaimState, rates: readonly RatedJob[], now: number): JobList {
  return {
    jobs: listNumbers(state, now),
    openings: rates.map(({ jobName, rate }) => {
      const opensAt = state.rates.opensAt(jobScope(jobName), rate);
      return opensAt > now ? Math.min(opensAt, now + rate.period) : null;
    }),
    paused: structuredClone([...state.paused.values()].sort((one, other) => one.jobName < other.jobName ? -1 : 1)),
    nextTimerAt: earliest(state.runs.open.filter(({ lease }) => lease === null).map(nextTimer)),
    now,
  };
}

function listNumbers({ runs, rates }: ClaimState, now: number): JobNumbers[] {
  const jobs = new Map<string, JobNumbers>();
  for (const { jobName, status } of runs.all) {
    const job = jobs.get(jobName) ?? { jobName, byStatus: noRuns(), ghosts: 0, oldestDue: null, held: null, unread: 0 };
    jobs.set(jobName, job);
    job.byStatus[status] += 1;
  }
  for (const { jobName, expiresAt } of runs.keys.ghosts) {
    const job = jobs.get(jobName);
    if (job !== undefined && expiresAt > now) job.ghosts += 1;
  }
  const held = runs.open.flatMap((run) =>
    run.hold === null ? [] : { queue: run.jobName, since: run.hold.since, runs: 1 }
  );
  addHeld(jobs, held.slice(0, MAX_COUNTED_HELD));
  const unread = runs.all.reverse().flatMap((run) => run.messages.size === 0 ? [] : unreadOf(run).map(() => run));
  const counted = unread.slice(0, MAX_COUNTED_HELD).filter(({ completedAt }) => completedAt === null);
  addUnread(jobs, counted.map(({ jobName }) => ({ queue: jobName, messages: 1 })));
  const due = new DueRuns(runs, rates);
  for (const run of due.inOrder) {
    const job = jobs.get(run.jobName)!; // each run was counted
    if (job.oldestDue !== null || run.hold !== null || run.isClaimedAlone || due.keyOpensAt(run) > now) continue;
    job.oldestDue = { runId: run.id, dueSince: dueSince(run) };
  }
  return [...jobs.values()].sort((one, other) => one.jobName < other.jobName ? -1 : 1);
}

/** Since when a due run is due. */
function dueSince(run: KeptRun): number {
  return run.generation === 0 && run.status === "pending" ? dueFrom(run) : run.updatedAt;
}

function nextTimer(run: KeptRun): number | null {
  return earliest([wakesAt(run), run.dueAt, nextDeadline(run)]);
}
