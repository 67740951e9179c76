import { isOneOf, matches, type Run, type RunFilter } from "../../run.ts";

/** Whether a run matches a filter, but for its page. */
export function isInScope(run: Omit<Run, "input" | "payload" | "output">, filter: RunFilter): boolean {
  const { status, parentRunId, failureKind, completedAfter, completedBefore, createdAfter, createdBefore } = filter;
  return matches(run, filter) && isOneOf(run.status, status) &&
    (parentRunId === undefined || run.parentRunId === parentRunId) &&
    (failureKind === undefined || run.failureKind === failureKind) &&
    isWithin(run.completedAt, completedAfter, completedBefore) && isWithin(run.createdAt, createdAfter, createdBefore);
}

/** Instants in UTC with milliseconds compare as strings. */
function isWithin(at: string | null, after: string | undefined, before: string | undefined): boolean {
  if (after === undefined && before === undefined) return true;
  return at !== null && (after === undefined || at >= after) && (before === undefined || at < before);
}
