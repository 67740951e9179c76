import { type ErrorCode, HoldfastError, StoreError } from "../../model/error.ts";
import { type Host, nextTurn } from "../../model/host.ts";
import {
  type BulkOperation,
  isOneOf,
  isTerminal,
  RUN_STATUSES,
  type RunFilter,
  type RunStatus,
  type RunText,
} from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { RunQuery } from "../../store/run_query.ts";
import { blanked } from "../operate/run_groups.ts";
import { type CheckedBulk, type CheckedSelection, cursorOf } from "./bulk_selection.ts";

/** A run that a bulk operation has not changed. */
export interface SkippedRun {
  /** The id of the run. */
  runId: string;
  /**
   * Why: `conflict` (its status does not allow the operation, or it was retriggered before), `not_found` (there is no
   * such run, or this engine does not have its job), or the code with which the operation on this run alone is refused.
   */
  code: ErrorCode;
}

/** The result of a call of a bulk operation. */
export interface BulkResult {
  /**
   * How many of the selected runs the call has met: those that it has changed or skipped. After a dry run by a filter:
   * how many it has found, from the cursor on and before `next`.
   */
  matched: number;
  /** How many runs it has changed: 0 after a dry run. */
  done: number;
  /** The runs that it has met and not changed; after a dry run by ids, those that it would not change. */
  skipped: SkippedRun[];
  /** The cursor of the next call; `null`: all selected runs were met. */
  next: string | null;
}

/** Restricts a bulk operation to what a caller may do. */
export interface BulkGuard {
  /** Finds only runs that the caller may list. */
  narrow(filter: RunFilter): Promise<RunQuery>;
  /** Whether the caller may perform the operation on a run. `null`: on any. */
  mayChange: ((run: RunText) => Promise<boolean>) | null;
}

/** The dependencies of {@linkcode performBulk}. */
interface BulkDeps {
  /** Finds and reads the runs. */
  store: Pick<Store, "findRuns" | "readRuns">;
  /** Time, and the turns of the event loop. */
  host: Host;
  /** Restricts the operation; `null`: nothing does. */
  guard: BulkGuard | null;
  /**
   * Reads and checks what the operation on a run needs.
   *
   * @returns The operation, to be performed together with others.
   */
  prepare(runId: string): Promise<() => Promise<unknown>>;
}

// How long a call begins further operations.
const MAX_CALL_MS = 100;
// How long it searches for runs with an error, if it is to change them, too.
const MAX_SEARCH_MS = MAX_CALL_MS / 2;
// How long it may hold the event loop before others get a turn.
const MAX_HELD_MS = 5;
// How many operations are performed at once, so that they share commits.
const MAX_AT_ONCE = 50;
// How many failed runs are read at once to compare their errors, and how many characters at most.
const READ_AT_ONCE = 100;
const MAX_READ_LENGTH = 262_144;

/**
 * Performs an operation on one run after another, each like the operation on this run alone, until the selection, the
 * limit or the time is used up. A run that refuses the operation is skipped.
 *
 * @throws {StoreError} The store could not answer. What was done stays done; the call can be repeated.
 */
export async function performBulk(operation: BulkOperation, bulk: CheckedBulk, deps: BulkDeps): Promise<BulkResult> {
  const { host } = deps;
  const startedAt = host.monotonic();
  const { selection, limit, dryRun } = bulk;
  const hasLasted = (ms: number) => host.monotonic() - startedAt >= ms;
  const isOver = () => hasLasted(MAX_CALL_MS);
  const takeTurn = turnTaker(host); // its time begins before the runs are found: that may take some of it
  let found: Page;
  if (selection.kind === "ids") found = pageOf(selection, limit);
  else {
    const query = await queryOf(operation, selection, deps.guard);
    const { error } = selection;
    if (error !== null) {
      const search = dryRun
        ? { error, limit: Infinity, isOver, takeTurn }
        : { error, limit: Math.min(limit, query.limit ?? limit), isOver: () => hasLasted(MAX_SEARCH_MS), takeTurn };
      found = await findFailed(query, search, deps.store);
    } else if (dryRun) return await count(query, { isOver, takeTurn }, deps.store);
    else found = await find(query, limit, deps.store);
    if (dryRun) return { matched: found.runIds.length, done: 0, skipped: [], next: nextOf(selection, found) };
  }
  const skipped: SkippedRun[] = [];
  let met = 0;
  // The first run is not subject to the time, so that each call makes progress.
  while (met < found.runIds.length && (met === 0 || !isOver())) {
    const started: { runId: string; ending: Promise<Ending> }[] = [];
    do {
      const runId = found.runIds[met++]!; // the condition says so
      started.push({ runId, ...await start(operation, runId, dryRun, deps) });
      await takeTurn();
    } while (met < found.runIds.length && started.length < MAX_AT_ONCE && !isOver());
    const endings = await Promise.all(started.map(async ({ runId, ending }) => ({ runId, ...await ending })));
    for (const { runId, code, failure } of endings) {
      if (failure !== null) throw failure.error;
      if (code !== null) skipped.push({ runId, code });
    }
    await nextTurn(host);
  }
  const next = met === found.runIds.length
    ? nextOf(selection, found)
    : cursorOf(selection.kind, found.places[met - 1]!); // one for each id, and it has met one
  return { matched: met, done: dryRun ? 0 : met - skipped.length, skipped, next };
}

/** The cursor after all runs of a page; `null`: there are no more. */
function nextOf({ kind }: CheckedSelection, { end, hasMore }: Page): string | null {
  return hasMore && end !== null ? cursorOf(kind, end) : null;
}

/** Some of the selected runs. */
interface Page {
  runIds: readonly string[];
  /** For each of them where the selection continues after it. */
  places: readonly number[];
  /** Where the selection continues after the page; `null`: nowhere. */
  end: number | null;
  hasMore: boolean;
}

function pageOf({ runIds, from }: CheckedSelection & { kind: "ids" }, limit: number): Page {
  const page = runIds.slice(from, from + limit);
  const end = from + page.length;
  return { runIds: page, places: page.map((_, i) => from + i + 1), end, hasMore: end < runIds.length };
}

/** Counts the runs of a query until the call has lasted. */
async function count(
  query: RunQuery,
  { isOver, takeTurn }: Pick<ErrorSearch, "isOver" | "takeTurn">,
  store: BulkDeps["store"],
): Promise<BulkResult> {
  const result: BulkResult = { matched: 0, done: 0, skipped: [], next: null };
  if (query.limit === 0) return result;
  for (let from = query;;) {
    const { total, countedTo } = await store.findRuns({ ...from, limit: 0 });
    result.matched += total;
    if (countedTo === null) return result;
    if (isOver()) return { ...result, next: cursorOf("filter", countedTo) };
    from = { ...query, before: countedTo };
    await takeTurn();
  }
}

/**
 * The newest runs first: runs that are made meanwhile, by the operation itself or by others, come before the first one
 * and are not met.
 */
async function find(query: RunQuery, limit: number, store: BulkDeps["store"]): Promise<Page> {
  const page = { limit: Math.min(limit, query.limit ?? limit), offset: 0, countUpTo: 0 };
  const { ids, seqs, hasMore } = await store.findRuns({ ...query, ...page });
  return { runIds: ids, places: seqs, end: seqs.at(-1) ?? null, hasMore };
}

/** A search for failed runs. */
interface ErrorSearch {
  error: string;
  /** The maximum number of runs. */
  limit: number;
  /** Whether its time is over. */
  isOver: () => boolean;
  /** Gives others a turn of the event loop, if it was held for long. */
  takeTurn: () => Promise<void>;
}

/** The runs of a query that have failed with an error, or are held with a message: as many as are found before the search is over. */
async function findFailed(
  query: RunQuery,
  { error, limit, isOver, takeTurn }: ErrorSearch,
  store: BulkDeps["store"],
): Promise<Page> {
  const wanted = blanked(error);
  const found: { runIds: string[]; places: number[]; end: number | null } = { runIds: [], places: [], end: null };
  const failed = query.held === true
    ? query
    : { ...query, status: isOneOf("failed", query.status) ? "failed" as const : [] };
  while (true) {
    const before = found.end ?? query.before;
    const page = await find({ ...failed, ...(before === undefined ? {} : { before }) }, READ_AT_ONCE, store);
    if (page.runIds.length === 0) return { ...found, hasMore: false };
    const runs = await store.readRuns(page.runIds, MAX_READ_LENGTH);
    for (const [i, run] of runs.entries()) {
      found.end = page.places[i]!; // one for each id
      if (run === null || blanked(run.held?.message ?? run.error ?? "") !== wanted) continue;
      found.runIds.push(page.runIds[i]!);
      found.places.push(found.end);
      if (found.runIds.length === limit) return { ...found, hasMore: true };
    }
    const hasMore = page.hasMore || runs.length < page.runIds.length;
    if (!hasMore || isOver()) return { ...found, hasMore };
    await takeTurn();
  }
}

/** The query for the runs that match a filter, and on which the operation is possible. */
async function queryOf(
  operation: BulkOperation,
  { filter, before }: CheckedSelection & { kind: "filter" },
  guard: BulkGuard | null,
): Promise<RunQuery> {
  const query = guard === null ? filter : await guard.narrow(filter);
  const isExcluded = operation === "resume" && query.held === false;
  return {
    ...query,
    status: isExcluded
      ? []
      : RUN_STATUSES.filter((status) => isPossible(operation, status) && isOneOf(status, query.status)),
    ...(before === null ? {} : { before }),
    ...(operation === "retrigger" ? { notRetried: true } : {}),
    ...(operation === "resume" ? { held: true } : {}),
  };
}

function isPossible(operation: BulkOperation, status: RunStatus): boolean {
  if (operation === "resume") return status === "pending";
  return isTerminal(status) === (operation !== "cancel");
}

/** How the operation on one run ended: `code` says why the run was skipped. */
interface Ending {
  code: ErrorCode | null;
  failure: { error: unknown } | null;
}

/** Starts the operation on one run. The ending never rejects; it is in an object, so that it is not awaited here. */
async function start(
  operation: BulkOperation,
  runId: string,
  dryRun: boolean,
  { store, guard, prepare }: BulkDeps,
): Promise<{ ending: Promise<Ending> }> {
  const skip = (code: ErrorCode | null) => ({ ending: Promise.resolve<Ending>({ code, failure: null }) });
  const mayChange = guard?.mayChange ?? null;
  try {
    if (dryRun || mayChange !== null) {
      const [run] = await store.readRuns([runId], Infinity);
      if (run === undefined || run === null || (mayChange !== null && !await mayChange(run))) return skip("not_found");
      const isRetried = operation === "retrigger" && run.retriggeredAs !== null;
      const isNotHeld = operation === "resume" && run.held === null;
      if (isRetried || isNotHeld || !isPossible(operation, run.status)) return skip("conflict");
      if (dryRun) return skip(null);
    }
    const perform = await prepare(runId);
    return { ending: perform().then(() => ({ code: null, failure: null }), endingOf) };
  } catch (error) {
    return { ending: Promise.resolve(endingOf(error)) };
  }
}

/** A refusal skips the run; any other error ends the call. */
function endingOf(error: unknown): Ending {
  return error instanceof HoldfastError && !(error instanceof StoreError)
    ? { code: error.code, failure: null }
    : { code: null, failure: { error } };
}

/** Returns a function that gives others a turn of the event loop, if it was held for long. */
function turnTaker(host: Host): () => Promise<void> {
  let since = host.monotonic();
  return async () => {
    if (host.monotonic() - since < MAX_HELD_MS) return;
    await nextTurn(host);
    since = host.monotonic();
  };
}
