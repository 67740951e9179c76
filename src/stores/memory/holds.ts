import type { Report } from "../../model/execution_report.ts";
import type { KnownJob } from "../../model/flow.ts";
import type { Lease } from "../../model/lease.ts";
import type { HeldQuery, NewHold } from "../../store/hold_record.ts";
import type { StrandedJob } from "../../model/hold.ts";
import { isoTime } from "../../values/iso_time.ts";
import { queueName } from "../queue_name.ts";
import { byNameAndVersion, latestSince } from "../holds.ts";
import { MAX_OFFERS } from "../rules.ts";
import { hadLease, type KeptRun, queueOf, triedPrints } from "./records.ts";
import type { MemoryRuns } from "./runs.ts";

/**
 * Offers held runs to a worker: those that its code has not tried, or may try once more, and that no other live worker can take.
 *
 * @returns Whether there were any.
 */
export function offerHeldRuns(
  runs: MemoryRuns,
  jobs: readonly KnownJob[],
  liveQueues: ReadonlySet<string>,
  now: number,
): boolean {
  const prints = new Map(jobs.map(({ name, version, print }) => [queueName(name, version), print]));
  const offers = runs.open.flatMap((run) => {
    const isTaken = run.offeredTo !== null && liveQueues.has(queueOf(run));
    const print = prints.get(queueName(run.jobName, run.version));
    if (run.hold === null || isTaken || print === undefined) return [];
    return run.hold.since <= latestSince(triedPrints(run), print, now) ? [{ run, print }] : [];
  });
  for (const { run, print } of offers.slice(0, MAX_OFFERS)) runs.offer(run, print);
  return offers.length > 0;
}

/** Finds held runs, in the order of their row numbers. */
export function findHeldRuns(runs: MemoryRuns, { jobNames, code, after, limit }: HeldQuery): KeptRun[] {
  return runs.open
    .filter(({ hold }) => hold !== null && (code === undefined || hold.code === code))
    .filter(({ jobName, seq }) => seq > after && (jobNames === undefined || jobNames.includes(jobName)))
    .slice(0, limit);
}

/** The jobs and versions of open runs that no live worker knows, by name and version. */
export function findStrandedJobs(runs: MemoryRuns, liveQueues: ReadonlySet<string>): StrandedJob[] {
  const stranded = new Map<string, StrandedJob>();
  for (const { jobName, version, createdAt } of runs.open) {
    const queue = queueName(jobName, version);
    if (liveQueues.has(queue)) continue;
    const job = stranded.get(queue) ?? { jobName, version, runs: 0, oldestAt: isoTime(createdAt) };
    stranded.set(queue, { ...job, runs: job.runs + 1 });
  }
  return [...stranded.values()].sort(byNameAndVersion);
}

/** Holds a run, and releases its lease and its concurrency key. See `Store.hold()`. */
export function holdRun(
  runs: MemoryRuns,
  lease: Lease,
  hold: NewHold,
  reports: readonly Report[],
  now: number,
): void {
  const held = runs.get(lease.runId);
  // Only this same call can have held the run: another claim would have raised the generation again.
  if (held !== undefined && held.hold !== null && hadLease(held, lease, 1)) return;
  const run = runs.getUnder(lease);
  runs.noteReports(run, reports);
  runs.hold(run, hold, now);
}
