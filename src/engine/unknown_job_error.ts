import { NotFoundError } from "../error.ts";

const MAX_NAMES = 20;

/**
 * An engine does not know a job. The message lists those that it knows, so it is for the host alone: a client must not
 * learn from it which jobs exist.
 */
export class UnknownJobError extends NotFoundError {
  /** The name that was asked for. */
  readonly jobName: string;

  /** Makes the refusal of a job. */
  constructor(jobName: string, known: Iterable<string>) {
    const names = Array.from(known, (name) => `"${name}"`);
    const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : "";
    const list = names.length === 0 ? "it has no jobs" : `its jobs are ${names.slice(0, MAX_NAMES).join(", ")}${more}`;
    super(`There is no job "${jobName}" in this engine: ${list}`);
    this.name = "NotFoundError";
    this.jobName = jobName;
  }
}
