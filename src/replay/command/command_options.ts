import { errorMessage } from "../../values/unknown_values.ts";
import { parseArgs } from "node:util";

/** What the command is asked to do. */
export interface CommandOptions {
  /** The path of the module that exports the jobs. */
  jobs: string;
  /** The path of the database; `null`: none is read. */
  db: string | null;
  /** The names of the jobs to replay; empty: all of the module. */
  job: readonly string[];
  /** How many of the newest ended runs of each job are replayed, too. */
  recent: number;
  /** Files of exported histories, or folders of such files. */
  history: readonly string[];
  /** Whether the reports are printed as JSON. */
  json: boolean;
}

/** The command was called in a wrong way, or something that it was given cannot be used. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** The text for `--help`. */
export const describe = (command: string): string =>
  `Replays the histories of runs against the code of their jobs, and says which runs would be held.

${command} --jobs jobs.ts --db backup.db

  --jobs FILE      the module that exports the jobs, one by one or in an object
  --db FILE        a SQLite database: all open runs and the newest ended ones are replayed; it is only read
  --history PATH   a file of an exported history, or a folder of such files (repeatable)
  --job NAME       only this job (repeatable)
  --recent NUMBER  how many of the newest ended runs of each job are replayed (200)
  --json           print the reports as JSON
  --help           print this text

The function of a step is never called. Code outside of steps is executed: without permission for the network it cannot
do harm, and shows up.

Exit code: 0 if all runs go on or end, 1 if a run would be held, would fail, or waits for another version of its job,
2 if the command was called in a wrong way.`;

/**
 * Reads the arguments of the command.
 *
 * @returns `null`: the help is asked for.
 * @throws {UsageError} An argument is unknown, missing or not valid.
 */
export function readOptions(args: readonly string[]): CommandOptions | null {
  const { jobs, db = null, job = [], recent = "200", history = [], json = false, help = false } = parse(args);
  if (help) return null;
  if (jobs === undefined) throw new UsageError("--jobs is missing: the module that exports the jobs");
  if (db === null && history.length === 0) {
    throw new UsageError("--db or --history is missing: where the histories are");
  }
  if (!/^\d{1,9}$/.test(recent)) throw new UsageError(`--recent must be a number from 0, not "${recent}"`);
  return { jobs, db, job, recent: Number(recent), history, json };
}

function parse(args: readonly string[]) {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        jobs: { type: "string" },
        db: { type: "string" },
        job: { type: "string", multiple: true },
        recent: { type: "string" },
        history: { type: "string", multiple: true },
        json: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
    });
    return values;
  } catch (error) {
    throw new UsageError(errorMessage(error), { cause: error });
  }
}
