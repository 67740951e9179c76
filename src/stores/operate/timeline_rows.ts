import { failureText } from "../../model/failure.ts";
import type { JsonText } from "../../values/json.ts";
import type { RunFailures, TimelineStep } from "../../store/operator_reads.ts";
import { toFailure } from "../rows.ts";

/** How many failures of steps are read at most. */
export const MAX_FAILURES = 1_000;

/** Among how many of the newest runs an id is looked for by its end. */
export const SEARCHED_BY_END = 5_000;

/** A row of `steps` for a timeline. */
export interface TimelineStepRow {
  name: string;
  status: TimelineStep["status"];
  attempts: number;
  retry_at: number | null;
  started_at: number;
  completed_at: number | null;
  failure: JsonText | null;
}

/** A row of `attempts`. */
export interface AttemptRow {
  step_name: string;
  attempt: number;
  started_at: number;
  ended_at: number;
  retry_at: number | null;
  failure: JsonText | null;
}

/** Rows of `steps` and `attempts` as a step of a timeline. */
export function toTimelineStep(row: TimelineStepRow, attempts: readonly AttemptRow[]): TimelineStep {
  return {
    name: row.name,
    status: row.status,
    attempts: row.attempts,
    startedAt: row.started_at,
    completedAt: row.completed_at,
    error: errorOf(row.failure),
    retryAt: row.status === "retrying" ? row.retry_at : null,
    lastStartedAt: attempts.find(({ attempt }) => attempt === row.attempts)?.started_at ?? null,
    failedAttempts: attempts.flatMap(({ attempt, started_at, ended_at, retry_at, failure }) =>
      retry_at === null
        ? []
        : [{ attempt, startedAt: started_at, endedAt: ended_at, retryAt: retry_at, error: errorOf(failure) ?? "" }]
    ),
  };
}

function errorOf(failure: JsonText | null): string | null {
  const read = toFailure(failure);
  return read === null ? null : failureText(read);
}

/** Failures of steps and of attempts at them, by step and attempt, each once. */
export function toFailures(
  rows: readonly { name: string; position: number; attempt: number; failure: JsonText }[],
): RunFailures["steps"] {
  const each = new Map(rows.map((row) => [JSON.stringify([row.name, row.attempt]), row]));
  return [...each.values()]
    .sort((one, other) => one.position - other.position || one.attempt - other.attempt)
    .slice(0, MAX_FAILURES)
    .map(({ name, attempt, failure }) => ({ name, attempt, failure: toFailure(failure)! })); // rows with a failure
}
