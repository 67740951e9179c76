import { DEFAULT_RUN_LIMIT } from "../../../run.ts";
import type { FoundRuns, RunQuery } from "../../../store/run_query.ts";
import { listOf, statusesOf, storedConditionsOf } from "../../run_conditions.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";

/** The ids of the runs that match a filter, newest first. See `Store.findRuns()`. */
export async function findRuns(database: PostgresDatabase, query: RunQuery): Promise<FoundRuns> {
  const found = await database.read<Omit<FoundRuns, "hasMore">>("find_runs", toParameters(query));
  return { ...found, hasMore: (query.offset ?? 0) + found.seqs.length < found.total };
}

/** The parameters of `fn.list_runs()`. */
function toParameters(query: RunQuery): object {
  const { scope, before, labels = {} } = query;
  return {
    jobs: listOf(query.jobName),
    statuses: statusesOf(query),
    labels: Object.entries(labels).map(([key, value]) => [key, value, scope?.labels.includes(key) === true]),
    scopedByJob: scope?.jobs === true,
    ...Object.fromEntries(storedConditionsOf(query).map(({ name, value }) => [name, value])),
    notRetried: query.notRetried === true,
    before,
    uncounted: query.uncounted === true,
    limit: query.limit ?? DEFAULT_RUN_LIMIT,
    offset: query.offset ?? 0,
  };
}
