import { listChildren } from "../../engine/operate/children.ts";
import { type Explanation, namedRuns, readCauses, toExplanation } from "../../engine/operate/explanation.ts";
import type { Visibility } from "../../engine/operate/reason.ts";
import {
  type FailureGroups,
  type FailuresQuery,
  type HeldGroups,
  type HeldRunsQuery,
  listFailures,
  listHeld,
  readNewestRuns,
  readRunTexts,
} from "../../engine/operate/run_groups.ts";
import { checkSearch, findRuns, MAX_FOUND } from "../../engine/operate/found_runs.ts";
import {
  listOpenWaits,
  listOwnWaits,
  type OpenWaitsPage,
  type OpenWaitsQuery,
  type WaitAccess,
} from "../../engine/operate/open_waits.ts";
import { readTimeline, type Timeline, type TimelineOptions } from "../../engine/operate/timeline.ts";
import type { Children, ChildrenQuery } from "../../model/children.ts";
import { type ClientRun, toClientRun } from "../../model/client_run.ts";
import {
  conditionsOf,
  DEFAULT_RUN_LIMIT,
  isOneOf,
  matches,
  meets,
  OPEN,
  type Run,
  type RunFilter,
  type RunText,
} from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { FoundBy, RunFailures, SearchHit } from "../../store/operator_reads.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { isLabelKey, isLabelValue } from "../../values/name.ts";
import { noSuchRun } from "../response.ts";
import type { Access, Admitted } from "./access.ts";

// How many runs of all callers a search looks at, if `scopeRuns` says which are the caller's own.
const MAX_SEARCHED = 1_000;
// Without it, `onRunAccess` is asked for each run that is found, up to this many.
const MAX_ASKED = 200;

/** What a guard gives of a run. */
type OfRun = Admitted & { run: Readonly<Run> };

/** Why a run is not executed. Other runs and workers are named and counted only for those who may see them. */
export async function explain({ run, access, internals }: OfRun): Promise<Explanation> {
  const found = await readCauses(internals.store, run.id);
  if (found === null) throw noSuchRun();
  const { blockers } = found;
  const readable = new Set<string>();
  for (const id of namedRuns(found)) if (await access.may(id, "read")) readable.add(id);
  const concurrencyKey = await access.givenKey(found.run.concurrencyKey);
  const mayCount = !blockers.some((blocker) => "ahead" in blocker) || await access.mayCount();
  const visibility: Visibility = {
    workers: await access.maySee("debug"),
    counts: mayCount ? "all" : concurrencyKey === found.run.concurrencyKey ? "none" : "key",
    mayRead: (id) => readable.has(id),
  };
  return toExplanation({ ...found, run: { ...found.run, concurrencyKey } }, visibility);
}

/** What has happened in a run. */
export async function showTimeline({ run, access, internals }: OfRun, options: TimelineOptions): Promise<Timeline> {
  const timeline = await readTimeline(internals.store, run.id, options);
  if (timeline === null) throw noSuchRun();
  const showsWorkers = await access.maySee("debug");
  const rows = [];
  for (const { workerId, childRunId, ...row } of timeline.rows) {
    rows.push({
      ...row,
      ...(workerId !== undefined && showsWorkers ? { workerId } : {}),
      ...(childRunId !== undefined && await access.may(childRunId, "read") ? { childRunId } : {}),
    });
  }
  return { ...timeline, rows };
}

/** The children of a run, those that the caller may list and read. */
export async function showChildren(
  { run, access, internals: { store } }: OfRun,
  query: ChildrenQuery,
): Promise<Children> {
  const filter: RunQuery = { parentRunId: run.id, limit: query.limit ?? DEFAULT_RUN_LIMIT };
  // The caller may read the parent, so the time may depend on how many children that has: they are looked up by it.
  const { scope: _, ...scope } = await access.scopeOf(filter) ?? filter;
  const mayCount = await access.mayCountListed();
  const mayShow = access.isUnrestricted ? null : (runId: string) => access.may(runId, "read");
  const children = await listChildren(run, query, { store, host: access.host }, { scope, mayCount, mayShow });
  if (await store.getRunState(run.id) === null) throw noSuchRun(); // it was deleted meanwhile
  return children;
}

/** The failures of a run, with stacks and causes. */
export async function showFailures({ run, internals }: OfRun): Promise<ShownFailures> {
  const failures = await internals.store.getFailures(run.id);
  if (failures === null) throw noSuchRun();
  const { version, leaseGeneration, leaseOwner, idempotencyKey, concurrencyKey, fairnessKey } = run;
  return {
    ...failures,
    details: { version, leaseGeneration, leaseOwner, idempotencyKey, concurrencyKey, fairnessKey },
  };
}

/** The failures of a run, and what else only those see who may debug. */
export interface ShownFailures extends RunFailures {
  /** Its keys and its newest lease. */
  details: Pick<
    Run,
    "version" | "leaseGeneration" | "leaseOwner" | "idempotencyKey" | "concurrencyKey" | "fairnessKey"
  >;
}

/** Waits that nobody has signalled yet. */
export async function showOpenWaits(
  { access, internals: { store } }: Admitted,
  query: OpenWaitsQuery,
): Promise<OpenWaitsPage> {
  const { host } = access;
  const { limit: _, cursor: __, ...filter } = query;
  if (access.isUnrestricted) return await listOpenWaits(query, { store, host, access: null });
  const scope = await access.scopeOf(filter);
  const mayShow: WaitAccess["mayShow"] = ({ run }) => access.may(run.id, "waits");
  // Otherwise it would look through the waits of all others.
  const own = scope === null ? null : await findOpenRuns(store, scope);
  if (own !== null) return await listOwnWaits(query, own, { store, host, mayShow });
  // Most runs of others are left out by their labels and jobs, without being read.
  const isInScope: WaitAccess["isInScope"] = async (run) =>
    scope === null || (matches(run, scope) && (await idsInScope(store, [run.id], scope)).has(run.id));
  return await listOpenWaits(query, { store, host, access: { isInScope, mayShow } });
}

/** What runs failed of lately. */
export async function showFailureGroups(admitted: Admitted, query: FailuresQuery): Promise<FailureGroups> {
  return await listFailures(query, (filter) => readShown(admitted, filter));
}

/** Why runs are held. */
export async function showHeldGroups(admitted: Admitted, query: HeldRunsQuery): Promise<HeldGroups> {
  return await listHeld(query, (filter) => readShown(admitted, filter));
}

/** The newest runs that match a filter, and that the caller may list and read. */
async function readShown({ access, internals: { store } }: Admitted, filter: RunQuery): Promise<RunText[]> {
  return await readNewestRuns(await access.scopeOf(filter) ?? filter, {
    store,
    host: access.host,
    mayShow: access.isUnrestricted ? null : (runId) => access.may(runId, "read"),
  });
}

/** Finds runs by an id, a key or a label. */
export async function searchRuns(
  { access, internals: { store } }: Admitted,
  query: string,
): Promise<{ run: ClientRun; by: FoundBy }[]> {
  const text = checkSearch(query);
  const scope = access.isUnrestricted ? null : await access.scopeOf({});
  const limit = access.isUnrestricted ? MAX_FOUND : scope === null ? MAX_ASKED : MAX_SEARCHED;
  const hits = await store.searchRuns(text, limit);
  const ownKey = await access.ownKey(text);
  if (ownKey !== null) hits.push(...await store.searchRuns(ownKey, limit));
  if (scope !== null) hits.push(...await findOwnRuns(text, store, access));
  const ids = scope === null ? null : await idsInScope(store, hits.map(({ runId }) => runId), scope);
  const found = await findRuns(
    store,
    ids === null ? hits : hits.filter(({ runId }) => ids.has(runId)),
    access.isUnrestricted ? null : (runId) => access.may(runId, "read"),
  );
  return found.map(({ run, by }) => ({ run: toClientRun(run), by }));
}

// Among how many of the caller's newest runs an id is looked for.
const NEWEST = 5_000;

/**
 * Finds a caller's own runs by the start or the end of an id, among the newest 5,000, and by a label. A search among the
 * runs of all callers ends at a limit, and might end before it finds the caller's.
 */
async function findOwnRuns(text: string, store: Pick<Store, "findRuns">, access: Access): Promise<SearchHit[]> {
  const newest = await store.findRuns({ ...await access.scopeOf({}), limit: NEWEST, countUpTo: 0 });
  const hits: SearchHit[] = newest.ids.filter((id) => id.startsWith(text) || id.endsWith(text))
    .map((runId) => ({ runId, by: "id" }));
  const at = text.indexOf("=");
  const [key, value] = [text.slice(0, at), text.slice(at + 1)];
  if (at === -1 || !isLabelKey(key) || !isLabelValue(value)) return hits;
  const scope = await access.scopeOf({ labels: { [key]: value } });
  const labelled = await store.findRuns({ ...scope, limit: MAX_FOUND, countUpTo: 0 });
  return [...hits, ...labelled.ids.map((runId): SearchHit => ({ runId, by: "label" }))];
}

// Of so many runs the waits are read, sorted and paged at once.
const MAX_OPEN = 1_000;

/** The runs in a scope that have not ended; `null`: there are more than 1,000. */
async function findOpenRuns(store: Pick<Store, "findRuns">, scope: RunQuery): Promise<string[] | null> {
  const query = { ...scope, status: scope.status ?? OPEN, limit: MAX_OPEN, offset: 0, countUpTo: 0 };
  const { ids, hasMore } = await store.findRuns(query);
  return hasMore ? null : ids;
}

/** Which of these runs are in a scope. */
async function idsInScope(
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
