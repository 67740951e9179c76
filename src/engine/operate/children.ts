import { type Host, nextTurn } from "../../model/host.ts";
import { ValidationError } from "../../model/error.ts";
import type { ChildCounts, Children, ChildrenQuery, ChildRun } from "../../model/children.ts";
import { toClientRun } from "../../model/client_run.ts";
import {
  conditionsOf,
  isOneOf,
  isTerminal,
  type Run,
  RUN_STATUSES,
  type RunStatus,
  type RunText,
} from "../../model/run.ts";
import type { Counts } from "../../store/operate.ts";
import type { RunQuery } from "../../store/run_query.ts";
import type { Store } from "../../store/store.ts";
import { checkInteger } from "../../values/integer.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { checkRunFilter } from "../runs/run_filter.ts";

/** Which children a caller may see. */
interface ChildAccess {
  /** Finds only runs that the caller may list. */
  scope: RunQuery;
  /** Whether the caller may know how many there are. */
  mayCount: boolean;
  /** Whether the caller may see a child; `null`: it may see each. */
  mayShow: ((runId: string) => Promise<boolean>) | null;
}

const QUERY: Record<keyof ChildrenQuery, true> = { status: true, held: true, limit: true, cursor: true };
const DEFAULT_LIMIT = 50;
const MAX_LIMIT = 1_000;
const CURSOR = /^(\d)(?:\.(\d{1,16}))?$/;
// How many characters of runs are read at once.
const PART_LENGTH = 32_768;

/** The groups of a list in their order: what somebody has to act on comes first. */
const GROUPS: readonly { statuses: readonly RunStatus[]; held?: boolean }[] = [
  { statuses: ["failed"] },
  { statuses: ["pending"], held: true },
  { statuses: ["leased", "running"] },
  { statuses: ["waiting"] },
  { statuses: ["pending"], held: false },
  { statuses: ["cancelled"] },
  { statuses: ["completed"] },
];

/**
 * Lists the children of a run. Each group is a list of its own, so that none of them reads all children.
 *
 * @throws {ValidationError} A field of the query is not valid.
 * @throws {TypeError} The query has an unknown field.
 */
export async function listChildren(
  run: Pick<Run, "id" | "status">,
  query: ChildrenQuery,
  { store, host }: { store: Pick<Store, "findRuns" | "readRuns">; host: Host },
  access: ChildAccess = { scope: { parentRunId: run.id }, mayCount: true, mayShow: null },
): Promise<Children> {
  const { place, ...checked } = checkQuery(query);
  const counts = access.mayCount ? await countChildren(run, access.scope, store) : UNCOUNTED;
  const { ids, next } = await findPage(checked, place, access.scope, store);
  const children: ChildRun[] = [];
  for (let read = 0; read < ids.length;) {
    const part = await store.readRuns(ids.slice(read), PART_LENGTH);
    read += part.length;
    await nextTurn(host); // inputs can be large
    for (const child of part) {
      if (child !== null && (access.mayShow === null || await access.mayShow(child.id))) children.push(toChild(child));
    }
  }
  return { runId: run.id, ...counts, children, next };
}

/** Where a page begins: in a group, before a row number. */
interface Place {
  group: number;
  before: number | null;
}

function checkQuery(query: ChildrenQuery): Pick<ChildrenQuery, "status" | "held"> & { limit: number; place: Place } {
  checkOptionNames(query, QUERY, "getChildren()");
  const { limit = DEFAULT_LIMIT, cursor, ...filter } = query;
  checkRunFilter(filter);
  checkInteger(limit, "limit", 1, MAX_LIMIT);
  if (cursor === undefined) return { ...filter, limit, place: { group: 0, before: null } };
  const [, group, before] = (typeof cursor === "string" ? CURSOR.exec(cursor) : null) ?? [];
  if (group === undefined) throw new ValidationError("cursor must be the next of an earlier page");
  return { ...filter, limit, place: { group: Number(group), before: before === undefined ? null : Number(before) } };
}

const UNCOUNTED: ChildCounts = { total: null, byStatus: null, held: null, executedAgain: null };

async function countChildren(
  { status }: Pick<Run, "status">,
  scope: RunQuery,
  store: Pick<Store, "findRuns">,
): Promise<ChildCounts> {
  const count = async (statuses: readonly RunStatus[], held?: boolean) => {
    const group = inScope({ statuses, ...(held === undefined ? {} : { held }) }, {}, scope);
    let sum = 0;
    for (let query = group; query !== null;) {
      const { total, countedTo } = await store.findRuns({ ...query, limit: 0, offset: 0 });
      sum += total;
      query = countedTo === null ? null : { ...query, before: countedTo };
    }
    return sum;
  };
  const entries: [RunStatus, number][] = [];
  for (const one of RUN_STATUSES) entries.push([one, await count([one])]);
  const byStatus = Object.fromEntries(entries) as Counts; // an entry for each status
  const total = entries.reduce((sum, [, children]) => sum + children, 0);
  return {
    total,
    byStatus,
    held: byStatus.pending === 0 ? 0 : await count(["pending"], true),
    // A scope by status leaves out some of them, so what is counted says nothing of the others.
    executedAgain: isTerminal(status) && status !== "completed" && !isByState(scope)
      ? total - byStatus.completed
      : null,
  };
}

/** Whether a scope finds a run in some of its states alone. */
function isByState({ status, ...scope }: RunQuery): boolean {
  return status !== undefined ||
    conditionsOf(scope).some(({ field }) => field !== "parentRunId" && field !== "createdAt");
}

/** The children in a group that a query and a scope both match; `null`: there are none. */
function inScope(
  { statuses, held }: (typeof GROUPS)[number],
  query: Pick<ChildrenQuery, "status" | "held">,
  scope: RunQuery,
): RunQuery | null {
  const status = statuses.filter((one) => isOneOf(one, query.status) && isOneOf(one, scope.status));
  const isHeld = [held, query.held, scope.held].filter((one) => one !== undefined);
  if (status.length === 0 || new Set(isHeld).size > 1) return null;
  return { ...scope, status, ...(isHeld[0] === undefined ? {} : { held: isHeld[0] }) };
}

async function findPage(
  { limit, ...query }: Pick<ChildrenQuery, "status" | "held"> & { limit: number },
  place: Place,
  scope: RunQuery,
  store: Pick<Store, "findRuns">,
): Promise<{ ids: string[]; next: string | null }> {
  const ids: string[] = [];
  const size = Math.min(limit, scope.limit ?? limit);
  if (size === 0) return { ids, next: null };
  for (const [at, group] of GROUPS.entries()) {
    const asked = at < place.group ? null : inScope(group, query, scope);
    if (asked === null) continue;
    const before = at === place.group && place.before !== null ? { before: place.before } : {};
    const page = { ...before, limit: size - ids.length, offset: 0, countUpTo: 0 };
    const found = await store.findRuns({ ...asked, ...page });
    ids.push(...found.ids);
    if (found.hasMore) return { ids, next: found.seqs.length === 0 ? `${at}` : `${at}.${found.seqs.at(-1)}` };
  }
  return { ids, next: null };
}

function toChild(run: RunText): ChildRun {
  const { input: _, output: __, ...child } = toClientRun({ ...run, payload: null, output: null });
  return child;
}
