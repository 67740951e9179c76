import type { ExecutionDeps } from "../../execution/execution.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { Effects, StoredEffect } from "../../model/effects.ts";
import { pause } from "../../model/host.ts";
import type { Store } from "../../store/store.ts";

const LONGEST_INTERVAL_MS = 60_000;
const SHORTEST_INTERVAL_MS = 1_000;
const PAGE = 1_000;
const RUNS_LENGTH = 262_144;
// A run that the store does not know was deleted, or is one of a backup that was restored since.
const UNKNOWN_KEPT_MS = 30 * 86_400_000;

/** What a sweep needs. */
export interface SweepDeps extends Pick<ExecutionDeps, "store" | "host" | "hub"> {
  /** The data sources that have effects. */
  sources: readonly DataSource[];
  /** The id of the store. */
  storeId: () => Promise<string>;
  /** The shortest time for which ended runs are kept: a run must not be deleted before its effects are. */
  shortestRetentionMs: number;
}

/** Deletes effects that nobody can need any more, once a minute, until `abortSignal` fires. */
export async function runSweeps(deps: SweepDeps, abortSignal: AbortSignal): Promise<void> {
  if (deps.sources.length === 0) return;
  const keptMs = deps.sources.map(({ effects }) => keptFor(effects, deps));
  const intervalMs = Math.max(SHORTEST_INTERVAL_MS, Math.min(LONGEST_INTERVAL_MS, ...keptMs.map((ms) => ms / 2)));
  while (!abortSignal.aborted) {
    await pause(deps.host, intervalMs * (0.9 + deps.host.random() / 5), abortSignal);
    await sweepAll(deps, abortSignal);
  }
}

/** Sweeps each data source, unless the signal has fired. What fails is tried again by the next sweep. */
export async function sweepAll(deps: SweepDeps, abortSignal: AbortSignal): Promise<void> {
  for (const { effects } of deps.sources) {
    if (abortSignal.aborted) return;
    await sweep(effects, deps).catch((error) => deps.hub.publishError(error));
  }
}

/**
 * Deletes the effects of completed runs that are old enough, and very old ones of runs that the store does not know. The
 * effect of a run that is open, failed or was cancelled may be needed by its retry, however old it is.
 *
 * @returns How many it has deleted.
 */
export async function sweep(effects: Effects, deps: Omit<SweepDeps, "hub" | "sources">): Promise<number> {
  const { store, host } = deps;
  const storeId = await deps.storeId();
  const now = host.now();
  const keptMs = keptFor(effects, deps);
  if (keptMs === Infinity) return 0;
  let deleted = 0;
  for (let after = "";;) {
    const page = await effects.findOlder(storeId, now - keptMs, after, PAGE);
    const statuses = await readStatuses(store, page);
    const old = page.filter(({ runId, at }) => {
      const status = statuses.get(runId);
      return status === null ? at < now - UNKNOWN_KEPT_MS : status === "completed";
    });
    if (old.length > 0) await effects.forget(old.map(({ key }) => key));
    deleted += old.length;
    if (page.length < PAGE) return deleted;
    after = page.at(-1)!.key;
  }
}

function keptFor({ keepMs }: Effects, { shortestRetentionMs }: Pick<SweepDeps, "shortestRetentionMs">): number {
  return Math.min(keepMs, shortestRetentionMs / 2);
}

/** The statuses of runs; `null` for one that the store does not know. */
async function readStatuses(store: Store, effects: readonly StoredEffect[]): Promise<Map<string, string | null>> {
  const ids = [...new Set(effects.map(({ runId }) => runId))];
  const statuses = new Map<string, string | null>();
  while (statuses.size < ids.length) {
    const part = await store.readRuns(ids.slice(statuses.size), RUNS_LENGTH);
    for (const run of part) statuses.set(ids[statuses.size]!, run?.status ?? null);
  }
  return statuses;
}
