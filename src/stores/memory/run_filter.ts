import { isOneOf, matches } from "../../run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import type { KeptRun } from "./records.ts";

/** Returns a function that says whether a run is one of those to find, on whatever page. */
export function queryMatcher(query: RunQuery): (run: KeptRun) => boolean {
  const { before, notRetried, status, parentRunId, failureKind } = query;
  const isCompletedThen = rangeMatcher(query.completedAfter, query.completedBefore);
  const isCreatedThen = rangeMatcher(query.createdAfter, query.createdBefore);
  return (run) =>
    (before === undefined || run.seq < before) && (notRetried !== true || run.retriggeredAs === null) &&
    isOneOf(run.status, status) && matches(run, query) &&
    (parentRunId === undefined || run.parent?.run.id === parentRunId) &&
    (failureKind === undefined || run.failure?.kind === failureKind) &&
    isCompletedThen(run.completedAt) && isCreatedThen(run.createdAt);
}

/** Whether an instant lies in a range from `after` until `before`; an end that is left out does not restrict. */
function rangeMatcher(after: string | undefined, before: string | undefined): (at: number | null) => boolean {
  if (after === undefined && before === undefined) return () => true;
  const from = after === undefined ? -Infinity : Date.parse(after);
  const until = before === undefined ? Infinity : Date.parse(before);
  return (at) => at !== null && at >= from && at < until;
}
