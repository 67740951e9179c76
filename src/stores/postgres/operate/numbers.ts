import type { RunStatus } from "../../../run.ts";
import type { JobList, JobNumbers } from "../../../store/job_numbers.ts";
import type { WorkerList, WorkerRecord } from "../../../store/worker_record.ts";
import { noRuns } from "../../../no_runs.ts";
import { type JobPauseRow, toJobPause } from "../../rows.ts";
import { jobNameOf } from "../../queue_name.ts";
import { parseWorkerDetails } from "../../worker_details.ts";

/** What `fn.get_workers()` returns. */
export interface WorkersAnswer {
  workers: (Omit<WorkerRecord, "details" | "jobNames"> & { queues: string[]; details: string })[];
  now: number;
}

/** What `fn.get_workers()` returns, as the store does. */
export function toWorkerList({ workers, now }: WorkersAnswer): WorkerList {
  return {
    workers: workers.map(({ queues, details, ...worker }) => ({
      ...worker,
      details: parseWorkerDetails(details),
      jobNames: [...new Set(queues.map(jobNameOf))].sort(),
    })),
    now,
  };
}

/** What `fn.get_jobs()` returns. */
export interface JobsAnswer extends Pick<JobList, "nextTimerAt" | "now"> {
  counts: { queue: string; status: RunStatus; runs: number }[];
  ghosts: { [jobName: string]: number };
  due: { queue: string; runId: string; position: number; dueSince: number }[];
  openings: number[];
  paused: JobPauseRow[];
}

/** What `fn.get_jobs()` returns, as the store does: the queues of a job are added up. */
export function toJobList({ counts, ghosts, due, openings, paused, nextTimerAt, now }: JobsAnswer): JobList {
  const jobs = new Map<string, JobNumbers>();
  for (const { queue, status, runs } of counts) {
    const jobName = jobNameOf(queue);
    const job = jobs.get(jobName) ?? { jobName, byStatus: noRuns(), ghosts: 0, oldestDue: null };
    jobs.set(jobName, job);
    job.byStatus[status] += runs;
    job.ghosts = Object.hasOwn(ghosts, jobName) ? ghosts[jobName]! : 0;
  }
  for (const { queue, runId, dueSince } of due.sort((one, other) => one.position - other.position)) {
    const job = jobs.get(jobNameOf(queue))!; // it has runs
    job.oldestDue ??= { runId, dueSince };
  }
  return {
    jobs: [...jobs.values()].sort((one, other) => one.jobName < other.jobName ? -1 : 1),
    openings: openings.map((opensAt) => opensAt > now ? opensAt : null),
    paused: paused.map(toJobPause),
    nextTimerAt,
    now,
  };
}
