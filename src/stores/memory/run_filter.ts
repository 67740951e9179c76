import { isOneOf, matches, type RunFilter } from "../../run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import type { KeptRun } from "./records.ts";

/** Whether a run is one of those to find, on whatever page. */
export function matchesQuery(run: KeptRun, query: RunQuery): boolean {
  return (query.before === undefined || run.seq < query.before) &&
    (query.notRetried !== true || run.retriggeredAs === null) && matchesFilter(run, query);
}

/** Whether a run matches a filter. */
function matchesFilter(run: KeptRun, filter: RunFilter): boolean {
  return matches(run, filter) && isOneOf(run.status, filter.status) &&
    (filter.parentRunId === undefined || run.parent?.run.id === filter.parentRunId) &&
    (filter.failureKind === undefined || run.failure?.kind === filter.failureKind) &&
    isWithin(run.completedAt, filter.completedAfter, filter.completedBefore) &&
    isWithin(run.createdAt, filter.createdAfter, filter.createdBefore);
}

/** Whether an instant lies in a range from `after` until `before`; an end that is left out does not restrict. */
function isWithin(at: number | null, after: string | undefined, before: string | undefined): boolean {
  if (after === undefined && before === undefined) return true;
  return at !== null && (after === undefined || at >= Date.parse(after)) &&
    (before === undefined || at < Date.parse(before));
}
