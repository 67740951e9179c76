import { isOneOf, matches } from "../../run.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { type Columns, storedConditionsOf } from "../run_conditions.ts";
import type { KeptRun } from "./records.ts";

const VALUES: Columns<(run: KeptRun) => string | number | null | undefined> = {
  parentRunId: (run) => run.parent?.run.id,
  failureKind: (run) => run.failure?.kind,
  completedAt: (run) => run.completedAt,
  createdAt: (run) => run.createdAt,
};

/** Returns a function that says whether a run is one of those to find, on whatever page. */
export function queryMatcher(query: RunQuery): (run: KeptRun) => boolean {
  const { before, notRetried, status } = query;
  const conditions = storedConditionsOf(query);
  return (run) =>
    (before === undefined || run.seq < before) && (notRetried !== true || run.retriggeredAs === null) &&
    isOneOf(run.status, status) && matches(run, query) &&
    conditions.every(({ field, isMetBy }) => isMetBy(VALUES[field](run)));
}
