import { pause } from "../host.ts";
import type { Retention, Store } from "../store.ts";
import type { ExecutionDeps } from "./execution.ts";

const LONGEST_INTERVAL_MS = 60_000;
const SHORTEST_INTERVAL_MS = 1_000;
// Small, so that neither the event loop nor another process waits for long.
const SLICE = 50;

/**
 * Deletes runs that ended long enough ago, in small slices, until `abortSignal` fires. Does nothing if all runs are
 * kept for ever.
 */
export async function keepUp(
  store: Store,
  retention: Retention,
  deps: Pick<ExecutionDeps, "host" | "hub">,
  abortSignal: AbortSignal,
): Promise<void> {
  const shortest = Math.min(...Object.values(retention).filter((ms) => ms !== undefined));
  if (shortest === Infinity) return;
  const intervalMs = Math.min(LONGEST_INTERVAL_MS, Math.max(SHORTEST_INTERVAL_MS, shortest / 2));
  while (!abortSignal.aborted) {
    try {
      let purged;
      do {
        purged = await store.purge(retention, SLICE);
        for (const run of purged) deps.hub.publish(run, { type: "run:delete" });
        await new Promise<void>((resolve) => deps.host.defer(resolve));
      } while (purged.length > 0 && !abortSignal.aborted);
    } catch (error) {
      deps.hub.publishError(error);
    }
    await pause(deps.host, intervalMs * (0.9 + deps.host.random() / 5), abortSignal);
  }
}
