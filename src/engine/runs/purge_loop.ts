import { type Duration, readDuration } from "../../values/duration.ts";
import { nextTurn, pause } from "../../model/host.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { ENDED, type Retention, type TerminalStatus } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";

const LONGEST_INTERVAL_MS = 60_000;
const SHORTEST_INTERVAL_MS = 1_000;
// Small, so that neither the event loop nor another process waits for long.
const SLICE = 50;

/** Which runs {@linkcode Engine.purgeRuns} deletes. */
export interface PurgeOptions {
  /** Runs that ended at least this long ago; 0: all that have ended. */
  olderThan: Duration;
  /** Runs with this final status, or with any of these; an empty list: none. Default: all that have ended. */
  status?: TerminalStatus | readonly TerminalStatus[];
  /** The maximum number of deleted runs. Default: all. */
  limit?: number;
}

const PURGE_OPTIONS: Record<keyof PurgeOptions, true> = { olderThan: true, status: true, limit: true };

/**
 * Checks which runs are to be deleted.
 *
 * @throws {TypeError} An option is unknown, or `olderThan` is not a number.
 * @throws {RangeError} An option is out of range.
 */
export function checkPurge(options: PurgeOptions): { retention: Retention; limit: number } {
  checkOptionNames(options, PURGE_OPTIONS, "purgeRuns()");
  const olderThan = readDuration(options.olderThan, "olderThan of purgeRuns()");
  const { status = ENDED, limit = Infinity } = options;
  const statuses = typeof status === "string" ? [status] : status;
  for (const one of statuses) {
    if (ENDED.includes(one)) continue;
    throw new RangeError(
      `status of purgeRuns() must be one of ${ENDED.join(", ")}, not "${one}": other runs have not ended`,
    );
  }
  if (limit !== Infinity && !(Number.isInteger(limit) && limit >= 0)) {
    throw new RangeError(`limit of purgeRuns() must be an integer of 0 or more, not ${limit}`);
  }
  return { retention: Object.fromEntries(statuses.map((one) => [one, olderThan])), limit };
}

/** Limits of a purge. */
interface PurgeLimits {
  /** The maximum number of deleted runs. Default: all. */
  limit?: number;
  /** Whether another slice may follow. */
  mayGoOn?: () => boolean;
}

/**
 * Deletes runs that ended long enough ago, in small slices, and publishes `run:delete` for each.
 *
 * @returns How many runs it deleted.
 */
export async function purgeInSlices(
  store: Store,
  retention: Retention,
  deps: Pick<ExecutionDeps, "host" | "hub">,
  { limit = Infinity, mayGoOn = () => true }: PurgeLimits = {},
): Promise<number> {
  if (shortestOf(retention) === Infinity) return 0; // everything is kept: the store need not be asked
  let deleted = 0;
  while (deleted < limit && mayGoOn()) {
    const purged = await store.purge(retention, Math.min(SLICE, limit - deleted));
    for (const run of purged) deps.hub.publish(run, { type: "run:delete", by: null });
    if (purged.length === 0) break;
    deleted += purged.length;
    await nextTurn(deps.host);
  }
  return deleted;
}

/**
 * Deletes runs that ended long enough ago, in small slices, until `abortSignal` fires. Does nothing if all runs are
 * kept permanently.
 */
export async function runPurgeLoop(
  store: Store,
  retention: Retention,
  deps: Pick<ExecutionDeps, "host" | "hub">,
  abortSignal: AbortSignal,
): Promise<void> {
  const shortest = shortestOf(retention);
  if (shortest === Infinity) return;
  const intervalMs = Math.min(LONGEST_INTERVAL_MS, Math.max(SHORTEST_INTERVAL_MS, shortest / 2));
  while (!abortSignal.aborted) {
    try {
      await purgeInSlices(store, retention, deps, { mayGoOn: () => !abortSignal.aborted });
    } catch (error) {
      deps.hub.publishError(error);
    }
    await pause(deps.host, intervalMs * (0.9 + deps.host.random() / 5), abortSignal);
  }
}

/** The shortest time for which ended runs are kept, in milliseconds; `Infinity`: all are kept permanently. */
export function shortestOf(retention: Retention): number {
  return Math.min(...Object.values(retention).filter((ms) => ms !== undefined));
}
