import { queueName } from "../../queue_name.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

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
    const added: string[] = [];
    for (const key of this.#db.counts.keys()) {
      const queue = key.slice(key.indexOf(" ") + 1);
      if (queue.startsWith(`${jobName}\t`)) added.push(queue);
    }
    return added;
  }
}
