import { jobNameOf, queueName } from "../../queue_name.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** The queues of the runs of a job, of all its versions: at least that of its first version. */
export function queuesOf(db: SqliteDatabase, jobName: string): string[] {
  const queues = [jobName];
  let [after, before] = versionRange(jobName);
  while (true) {
    const next = db.get<{ job: string }>(
      "SELECT job FROM holdfast_counts WHERE job > ? AND job < ? AND runs > 0 ORDER BY job LIMIT 1",
      after,
      before,
    );
    if (next === undefined) return queues;
    queues.push(next.job);
    after = next.job;
  }
}

/** The names between which the queues of the versions of a job are, but for the first version. */
export function versionRange(jobName: string): [after: string, before: string] {
  return [`${jobName}\t`, `${jobName}\n`];
}

/** The queues in which a request looks for an existing run: of all versions of its job and of its aliases. */
export function queuesToSearch(db: SqliteDatabase, { jobName, version, aliases }: NewRun): string[] {
  const own = queueName(jobName, version);
  const names = [jobName, ...aliases];
  const queues = new Set(names.flatMap((name) => queuesOf(db, name)));
  // The counts of the open transaction are written right before the commit.
  for (const key of db.counts.keys()) {
    const queue = key.slice(key.indexOf(" ") + 1);
    if (queue.includes("\t") && names.includes(jobNameOf(queue))) queues.add(queue);
  }
  return [...queues.add(own)];
}
