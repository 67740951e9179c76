import { NotFoundError } from "../../model/error.ts";

const MAX_NAMES = 20;

/**
 * The engine has no job of this name. The message lists its jobs, so it is only for the host: a client must not learn
 * which jobs exist.
 */
export class UnknownJobError extends NotFoundError {
  /** The requested name. */
  readonly jobName: string;

  /** Creates the error for a requested name. */
  constructor(jobName: string, known: Iterable<string>) {
    const names = Array.from(known, (name) => `"${name}"`);
    const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : "";
    const list = names.length === 0 ? "it has no jobs" : `its jobs are ${names.slice(0, MAX_NAMES).join(", ")}${more}`;
    super(`There is no job "${jobName}" in this engine: ${list}`);
    this.name = "NotFoundError";
    this.jobName = jobName;
  }
}
