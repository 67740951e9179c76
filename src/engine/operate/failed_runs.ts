import type { RunText } from "../../run.ts";
import type { Store } from "../../store.ts";
import { checkRunFilter } from "../run_filter.ts";
import { checkFailuresQuery, type FailuresQuery, MAX_EXAMINED } from "./failure_groups.ts";
import type { RunQuery } from "../../store/run_query.ts";

// How many characters of runs are read at once.
const PART_LENGTH = 262_144;

/**
 * The filter of the failed runs that a query is about.
 *
 * @throws {ValidationError} A field is not valid.
 */
export function failedRunsFilter(query: FailuresQuery): RunQuery {
  checkFailuresQuery(query);
  const { jobName, since } = query;
  return checkRunFilter({
    status: "failed",
    limit: MAX_EXAMINED,
    ...(jobName === undefined ? {} : { jobName }),
    ...(since === undefined ? {} : { completedAfter: since }),
  });
}

/** Reads runs without their large values, in the order of the ids. */
export async function readFailedRuns(
  store: Pick<Store, "readRuns">,
  runIds: readonly string[],
): Promise<RunText[]> {
  const runs: RunText[] = [];
  for (let read = 0; read < runIds.length;) {
    const part = await store.readRuns(runIds.slice(read), PART_LENGTH);
    read += part.length;
    runs.push(...part.filter((run) => run !== null));
  }
  return runs;
}
