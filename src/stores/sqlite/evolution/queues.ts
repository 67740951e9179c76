import { queueName } from "../../queue_name.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** The queues of the runs of a job, of all its versions: at least that of its first version. */
export function queuesOf(db: SqliteDatabase, jobName: string): string[] {
  const versions = db.all<{ job: string }>(
    "SELECT DISTINCT job FROM holdfast_counts WHERE job > ? AND job < ? AND runs > 0 ORDER BY job",
    ...versionRange(jobName),
  ).map(({ job }) => job);
  return [jobName, ...versions];
}

/** The names between which the queues of the versions of a job are, but for the first version. */
export function versionRange(jobName: string): [after: string, before: string] {
  return [`${jobName}\t`, `${jobName}\n`];
}

/** The queues in which a request looks for an existing run: its own, those of other versions, and those of aliases. */
export function queuesToSearch(db: SqliteDatabase, { jobName, version, aliases }: NewRun): string[] {
  const own = queueName(jobName, version);
  const queues = [jobName, ...aliases].flatMap((name) => [...queuesOf(db, name), ...addedQueues(db, name)]);
  return [...new Set([...queues, own])];
}

/** Queues to which the open transaction has added runs: the counts are written right before the commit. */
function addedQueues(db: SqliteDatabase, jobName: string): string[] {
  const [after, before] = versionRange(jobName);
  return [...db.counts.keys()].map((key) => key.slice(key.indexOf(" ") + 1))
    .filter((queue) => queue > after && queue < before);
}
