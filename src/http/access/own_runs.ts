import { MAX_FOUND } from "../../engine/operate/found_runs.ts";
import { readRunTexts } from "../../engine/operate/failed_runs.ts";
import { isLabelKey, isLabelValue } from "../../values/name.ts";
import { conditionsOf, isOneOf, isTerminal, matches, meets, RUN_STATUSES, type RunFilter } from "../../run.ts";
import type { Store } from "../../store.ts";
import type { SearchHit } from "../../store/operator_reads.ts";
import type { RunQuery } from "../../store/run_query.ts";

// Among how many of the caller's newest runs an id is looked for.
const NEWEST = 5_000;

/** Where a caller's own runs are. */
export interface OwnRunsDeps {
  /** The store. */
  store: Pick<Store, "findRuns">;
  /** The filter that matches both a filter and what the caller may list. */
  scopeOf: (filter: RunFilter) => Promise<RunQuery | null>;
}

/**
 * Finds a caller's own runs by the start or the end of an id, among the newest 5,000, and by a label. A search among the
 * runs of all callers ends at a limit, and might end before it finds the caller's.
 */
export async function findOwnRuns(text: string, { store, scopeOf }: OwnRunsDeps): Promise<SearchHit[]> {
  const newest = await store.findRuns({ ...await scopeOf({}), limit: NEWEST, uncounted: true });
  const hits: SearchHit[] = newest.ids.filter((id) => id.startsWith(text) || id.endsWith(text))
    .map((runId) => ({ runId, by: "id" }));
  const at = text.indexOf("=");
  const [key, value] = [text.slice(0, at), text.slice(at + 1)];
  if (at === -1 || !isLabelKey(key) || !isLabelValue(value)) return hits;
  const scope = await scopeOf({ labels: { [key]: value } });
  const labelled = await store.findRuns({ ...scope, limit: MAX_FOUND, uncounted: true });
  return [...hits, ...labelled.ids.map((runId): SearchHit => ({ runId, by: "label" }))];
}

const OPEN = RUN_STATUSES.filter((status) => !isTerminal(status));

// Of so many runs the waits are read, sorted and paged at once.
const MAX_OPEN = 1_000;

/** The runs in a scope that have not ended; `null`: there are more than 1,000. */
export async function findOpenRuns(store: Pick<Store, "findRuns">, scope: RunQuery): Promise<string[] | null> {
  const query = { ...scope, status: scope.status ?? OPEN, limit: MAX_OPEN, offset: 0, uncounted: true };
  const { ids, hasMore } = await store.findRuns(query);
  return hasMore ? null : ids;
}

/** Which of these runs are in a scope. */
export async function idsInScope(
  store: Pick<Store, "readRuns">,
  runIds: readonly string[],
  scope: RunFilter,
): Promise<Set<string>> {
  const runs = await readRunTexts(store, [...new Set(runIds)]);
  const isInScope = (run: (typeof runs)[number]) =>
    matches(run, scope) && isOneOf(run.status, scope.status) &&
    conditionsOf(scope).every(({ field, by, value }) => meets(run[field], by, value));
  return new Set(runs.filter(isInScope).map(({ id }) => id));
}
