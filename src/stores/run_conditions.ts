import { isTerminal, RUN_STATUSES } from "../run.ts";
import type { RunQuery } from "../store/run_query.ts";

/** The values of a condition of a filter, each once; `null`: it does not restrict. */
export function listOf(values: string | readonly string[] | undefined): readonly string[] | null {
  if (values === undefined) return null;
  return typeof values === "string" ? [values] : [...new Set(values)];
}

/** The statuses of a filter. A filter on the end of runs restricts them, too, so that fewer runs are examined. */
export function statusesOf(
  { status, failureKind, completedAfter, completedBefore }: RunQuery,
): readonly string[] | null {
  const statuses = listOf(status);
  const possible = failureKind !== undefined
    ? ["failed"]
    : completedAfter !== undefined || completedBefore !== undefined
    ? RUN_STATUSES.filter(isTerminal)
    : null;
  return possible === null ? statuses : possible.filter((value) => statuses?.includes(value) ?? true);
}
