import { type ErrorCode, HoldfastError, StoreError } from "../../error.ts";
import { type Host, nextTurn } from "../../host.ts";
import {
  type BulkOperation,
  isOneOf,
  isTerminal,
  type Run,
  RUN_STATUSES,
  type RunFilter,
  type RunStatus,
} from "../../run.ts";
import type { Store } from "../../store.ts";
import type { RunQuery } from "../../store/run_query.ts";
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
   * how many there are, from the cursor on.
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
  mayChange: ((run: Run) => Promise<boolean>) | null;
}

/** The dependencies of {@linkcode performBulk}. */
export interface BulkDeps {
  /** Finds and reads the runs. */
  store: Pick<Store, "findRuns" | "getRun">;
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
// How long it may hold the event loop before others get a turn.
const MAX_HELD_MS = 5;
// How many operations are performed at once, so that they share commits.
const MAX_AT_ONCE = 50;

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
  const query = selection.kind === "filter" ? await queryOf(operation, selection, deps.guard) : null;
  if (query !== null && dryRun) {
    const { total } = query.limit === 0 ? { total: 0 } : await deps.store.findRuns({ ...query, limit: 0 });
    return { matched: total, done: 0, skipped: [], next: null };
  }
  const takeTurn = turnTaker(host); // its time begins before the runs are found: that may take some of it
  const found = selection.kind === "ids" ? pageOf(selection, limit) : await find(query!, limit, deps.store); // not ids
  const isOver = () => host.monotonic() - startedAt >= MAX_CALL_MS;
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
  const isLast = met === found.runIds.length && !found.hasMore;
  const next = isLast || met === 0 ? null : cursorOf(selection.kind, found.places[met - 1]!); // one for each id
  return { matched: met, done: dryRun ? 0 : met - skipped.length, skipped, next };
}

/** Some of the selected runs. */
interface Page {
  runIds: readonly string[];
  /** For each of them where the selection continues after it. */
  places: readonly number[];
  hasMore: boolean;
}

function pageOf({ runIds, from }: CheckedSelection & { kind: "ids" }, limit: number): Page {
  const page = runIds.slice(from, from + limit);
  return { runIds: page, places: page.map((_, i) => from + i + 1), hasMore: from + limit < runIds.length };
}

/**
 * The newest runs first: runs that are made meanwhile, by the operation itself or by others, come before the first one
 * and are not met.
 */
async function find(query: RunQuery, limit: number, store: BulkDeps["store"]): Promise<Page> {
  const page = { limit: Math.min(limit, query.limit ?? limit), offset: 0, uncounted: true };
  const { ids, seqs, hasMore } = await store.findRuns({ ...query, ...page });
  return { runIds: ids, places: seqs, hasMore };
}

/** The query for the runs that match a filter, and on which the operation is possible. */
async function queryOf(
  operation: BulkOperation,
  { filter, before }: CheckedSelection & { kind: "filter" },
  guard: BulkGuard | null,
): Promise<RunQuery> {
  const query = guard === null ? filter : await guard.narrow(filter);
  return {
    ...query,
    status: RUN_STATUSES.filter((status) => isPossible(operation, status) && isOneOf(status, query.status)),
    ...(before === null ? {} : { before }),
    ...(operation === "retrigger" ? { notRetried: true } : {}),
  };
}

function isPossible(operation: BulkOperation, status: RunStatus): boolean {
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
      const run = await store.getRun(runId);
      if (run === null || (mayChange !== null && !await mayChange(run))) return skip("not_found");
      const isRetried = operation === "retrigger" && run.retriggeredAs !== null;
      if (isRetried || !isPossible(operation, run.status)) return skip("conflict");
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
