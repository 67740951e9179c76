import type { Rate } from "../../model/flow.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { JobCatalog } from "../../model/job/job_catalog.ts";
import { jsonSchemaOf, type Schemas } from "../../model/schema.ts";
import type { Json } from "../../values/json.ts";
import { noRuns } from "../../statistics/no_runs.ts";
import { RUN_STATUSES } from "../../model/run.ts";
import type { Counts, JobList, JobNumbers, JobPause, RatedJob, WorkerList } from "../../store/operate.ts";
import type { Windows } from "./statistics/recent_statistics.ts";
import { stateOf } from "./worker_info.ts";

/** The state of a job. */
export interface JobInfo {
  /** Its name. */
  jobName: string;
  /** Whether the engine that was asked has it. */
  isKnownHere: boolean;
  /** How many live workers know it. */
  liveWorkers: number;
  /** Its pause; `null` while it is not paused. */
  paused: Omit<JobPause, "jobName"> | null;
  /** How many of its runs have each status. */
  byStatus: Counts;
  /**
   * The first of its runs that are due and have passed their concurrency keys, and since when it is due: ISO 8601 in
   * UTC. A pause or a limit of the job may hold it up. `null`: there is none. Over HTTP `runId` is `null` for callers
   * who may not read the run.
   */
  oldestDue: { runId: string | null; dueSince: string } | null;
  /** How many of its runs are held, and since when the first of them is: ISO 8601 in UTC; `null`: none. */
  held: HeldInfo | null;
  /** How many messages its runs have not received yet, of the newest 10,000 of a store that nobody has. */
  unread: number;
  /**
   * The JSON Schemas of its declared `waits` in the code of the engine that was asked, by name; `null` if the library of
   * the schema makes none, and for all if the engine does not know the job.
   */
  waits: { [name: string]: Json } | null;
  /** The JSON Schemas of the `messages` that its runs take, as those of `waits`. */
  messages: { [name: string]: Json } | null;
  /** Its limits in the code of the engine that was asked; `null` if that does not know the job. */
  limits: JobLimitsInfo | null;
  /** What happened to its runs lately. */
  windows: Windows;
}

/** How many runs are held, 10,000 of a store at most, and since when the first of them is. */
export interface HeldInfo {
  /** How many. */
  runs: number;
  /** Since when: ISO 8601 in UTC. */
  since: string;
}

/** The limits of a job, and how much of them is used up. */
export interface JobLimitsInfo {
  /** How many of its runs are executed at the same time at most; `null`: no limit. */
  concurrency: number | null;
  /** How many of its runs are executed, or may be after a cancel, under all its names. */
  inUse: number;
  /** At most how many of its runs start in a period; `null`: no limit. */
  rate: Rate | null;
  /** When the rate lets the next run start: ISO 8601 in UTC; `null`: at once. */
  opensAt: string | null;
}

/** What the states of jobs are made of. */
export interface JobSources {
  /** The jobs of this engine. */
  catalog: JobCatalog;
  /** The numbers of the store. */
  list: JobList;
  /** The workers of the store. */
  workers: WorkerList;
  /** What happened to the runs of some jobs lately. */
  windowsOf: (jobNames: readonly string[]) => Windows;
}

/** The rates of an engine's jobs, to ask a store about. */
export function ratesOf(catalog: JobCatalog): RatedJob[] {
  return [...catalog.newest.values()].flatMap(({ name, flow: { rate } }) =>
    rate === null ? [] : [{ jobName: name, rate }]
  );
}

/** The jobs that an engine, a live worker, a run or a pause knows, by name. */
export function toJobInfos(sources: JobSources): JobInfo[] {
  const { catalog, list, workers } = sources;
  const names = new Set([
    ...catalog.newest.keys(),
    ...list.jobs.map(({ jobName }) => jobName),
    ...workers.workers.filter((worker) => stateOf(worker, workers.now) !== "lost").flatMap(({ jobNames }) => jobNames),
    ...list.paused.map(({ jobName }) => jobName),
  ]);
  return [...names].sort().map((jobName) => toJobInfo(jobName, sources));
}

/** The state of one job. */
export function toJobInfo(jobName: string, sources: JobSources): JobInfo {
  const { catalog, list, workers, windowsOf } = sources;
  const numbers = list.jobs.find((job) => job.jobName === jobName);
  const pause = list.paused.find((pause) => pause.jobName === jobName);
  return {
    jobName,
    isKnownHere: catalog.find(jobName) !== undefined,
    liveWorkers: workers.workers
      .filter((worker) => stateOf(worker, workers.now) !== "lost" && worker.jobNames.includes(jobName)).length,
    paused: pause === undefined ? null : { since: pause.since, by: pause.by, note: pause.note },
    byStatus: numbers?.byStatus ?? noRuns(),
    oldestDue: toOldestDue(numbers),
    held: numbers === undefined || numbers.held === null
      ? null
      : { runs: numbers.held.runs, since: isoTime(numbers.held.since) },
    unread: numbers?.unread ?? 0,
    waits: toSchemas(catalog.find(jobName)?.job.waits),
    messages: toSchemas(catalog.find(jobName)?.job.messages),
    limits: toLimits(jobName, catalog, list),
    windows: windowsOf([jobName]),
  };
}

function toOldestDue(numbers: JobNumbers | undefined): JobInfo["oldestDue"] {
  const due = numbers?.oldestDue ?? null;
  return due && { runId: due.runId, dueSince: isoTime(due.dueSince) };
}

/** The JSON Schemas of what a job declares, by name. */
function toSchemas(schemas: Schemas | undefined): { [name: string]: Json } | null {
  if (schemas === undefined) return null;
  const described = Object.entries(schemas).map(([name, schema]) => [name, jsonSchemaOf(schema) as Json]);
  return Object.fromEntries(described);
}

function toLimits(jobName: string, catalog: JobCatalog, { jobs, openings }: JobList): JobLimitsInfo | null {
  const known = catalog.find(jobName);
  if (known === undefined) return null;
  const { name, flow: { concurrency, rate } } = known.job;
  const names = [name, ...known.aliases];
  const own = jobs.filter((job) => names.includes(job.jobName));
  const inUse = own.reduce((sum, { byStatus, ghosts }) => sum + byStatus.running + ghosts, 0);
  const at = ratesOf(catalog).findIndex((rated) => rated.jobName === name);
  return { concurrency, inUse, rate, opensAt: isoTime(openings[at] ?? null) };
}

/** The states of several jobs as that of one, by the name `other`. */
export function toOther(infos: readonly JobInfo[], windowsOf: JobSources["windowsOf"]): JobInfo {
  const due = infos.flatMap((info) => startableRun(info) ?? []);
  return {
    jobName: "other",
    isKnownHere: infos.some(({ isKnownHere }) => isKnownHere),
    liveWorkers: Math.min(...infos.map(({ liveWorkers }) => liveWorkers)),
    paused: null,
    byStatus: sumCounts(infos.map(({ byStatus }) => byStatus)),
    oldestDue: due.sort((one, other) => one.dueSince < other.dueSince ? -1 : 1)[0] ?? null,
    held: sumHeld(infos),
    unread: infos.reduce((sum, { unread }) => sum + unread, 0),
    waits: null,
    messages: null,
    limits: null,
    windows: windowsOf(infos.map(({ jobName }) => jobName)),
  };
}

/** The first due run of a job that could start. `null`: none is due, or the job waits for its rate, which needs nobody. */
export function startableRun({ oldestDue, limits }: JobInfo): JobInfo["oldestDue"] {
  return limits?.opensAt ? null : oldestDue;
}

/** The held runs of jobs together. */
export function sumHeld(infos: readonly Pick<JobInfo, "held">[]): HeldInfo | null {
  const held = infos.flatMap((info) => info.held ?? []);
  if (held.length === 0) return null;
  const [first] = held.map(({ since }) => since).sort();
  return { runs: held.reduce((sum, { runs }) => sum + runs, 0), since: first! }; // there is one
}

/** The numbers of jobs together. */
export function sumCounts(all: Iterable<Counts>): Counts {
  const sum = noRuns();
  for (const counts of all) for (const status of RUN_STATUSES) sum[status] += counts[status];
  return sum;
}
