import type { RunStatus } from "../../model/run.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import { isAmong, raw } from "./statement.ts";
import { queueName } from "../queue_name.ts";
import type { NewRun } from "../../store/new_run.ts";

// A table keeps the number of runs of each job in each status, so that no list has to count them. The changes of a
// transaction are summed up and written once, right before the commit.

/** Counts a run's change from one status to another; `null`: it is new, or deleted. */
export function moveRun(db: SqliteDatabase, job: string, from: RunStatus | null, to: RunStatus | null): void {
  if (from !== null) add(db, job, from, -1);
  if (to !== null) add(db, job, to, 1);
}

function add({ counts }: SqliteDatabase, job: string, status: RunStatus, count: number): void {
  const ofStatus = counts.get(status) ?? new Map<string, number>();
  counts.set(status, ofStatus.set(job, (ofStatus.get(job) ?? 0) + count));
}

/** Writes what was noted in the open transaction. */
export function writeCounts(db: SqliteDatabase): void {
  for (const [status, ofStatus] of db.counts) {
    for (const [job, change] of ofStatus) {
      if (change === 0) continue;
      db.run`
        INSERT INTO holdfast_counts (status, job, runs) VALUES (${status}, ${job}, ${change})
          ON CONFLICT DO UPDATE SET runs = runs + excluded.runs`;
    }
  }
  db.counts.clear();
}

/** How many runs there are of these jobs in these statuses; `null`: of all. */
export function countRuns(
  db: SqliteDatabase,
  { jobs, statuses }: { jobs: readonly string[] | null; statuses: readonly string[] | null },
): number {
  const isOfJob = jobs === null ? raw("TRUE") : isAmong("job", jobs);
  const isInStatus = statuses === null ? raw("TRUE") : isAmong("status", statuses);
  return db.one<{ runs: number }>`
    SELECT coalesce(sum(runs), 0) AS runs FROM holdfast_counts WHERE ${isOfJob} AND ${isInStatus}`.runs;
}

/** The queues of the runs of a job, of all its versions: at least that of its first version. */
export function queuesOf(db: SqliteDatabase, jobName: string): string[] {
  const queues = [jobName];
  let [after, before] = versionRange(jobName);
  while (true) {
    const next = db.get<{ job: string }>`
      SELECT job FROM holdfast_counts WHERE job > ${after} AND job < ${before} AND runs > 0 ORDER BY job LIMIT 1`;
    if (next === undefined) return queues;
    queues.push(next.job);
    after = next.job;
  }
}

/** The names between which the queues of the versions of a job are, but for the first version. */
export function versionRange(jobName: string): [after: string, before: string] {
  return [`${jobName}\t`, `${jobName}\n`];
}

/** Finds the queues in which the requests of a call look for existing runs. */
export class QueueSearch {
  readonly #db: SqliteDatabase;
  /** The queues of each job that were in use before the call. */
  readonly #queues = new Map<string, string[]>();

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  /** The queues of all versions of the job of a request, and of its aliases. */
  queuesFor({ jobName, version, aliases }: Pick<NewRun, "jobName" | "version" | "aliases">): string[] {
    const names = [jobName, ...aliases];
    const queues = new Set(names.flatMap((name) => [...this.#queuesOf(name), ...this.#addedTo(name)]));
    return [...queues.add(queueName(jobName, version))];
  }

  #queuesOf(jobName: string): string[] {
    const known = this.#queues.get(jobName);
    if (known !== undefined) return known;
    const queues = queuesOf(this.#db, jobName);
    this.#queues.set(jobName, queues);
    return queues;
  }

  /** Queues to which the open transaction has added runs: the counts are written right before the commit. */
  #addedTo(jobName: string): string[] {
    const queues = [...this.#db.counts.values()].flatMap((ofStatus) => [...ofStatus.keys()]);
    return queues.filter((queue) => queue.startsWith(`${jobName}\t`));
  }
}
