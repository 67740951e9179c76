import { type Host, nextTurn } from "../../model/host.ts";
import type { RunText } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import type { RunQuery } from "../../store/run_query.ts";

/** How many runs are examined. */
export const MAX_EXAMINED = 200;
// How many characters of runs are read at once.
const PART_LENGTH = 262_144;
// How long runs are looked for that may be shown.
const MAX_MS = 100;

/** How to read runs. */
export interface NewestRunsOptions {
  /** Where they are. */
  store: Pick<Store, "findRuns" | "readRuns">;
  /** Time. */
  host: Host;
  /** Whether a run may be shown; `null`: each may. Others do not count, and older ones are read in their place. */
  mayShow: ((runId: string) => Promise<boolean>) | null;
}

/** Reads the newest runs of a filter that may be shown, without their large values: up to 200, and for some 100 ms. */
export async function readNewestRuns(
  filter: RunQuery,
  { store, host, mayShow }: NewestRunsOptions,
): Promise<RunText[]> {
  const shown: RunText[] = [];
  const startedAt = host.monotonic();
  for (let query: RunQuery = { ...filter, countUpTo: 0 };;) {
    const { ids, seqs, hasMore } = await store.findRuns(query);
    for (const run of await readRunTexts(store, ids)) {
      if (mayShow === null || await mayShow(run.id)) shown.push(run);
      if (shown.length === MAX_EXAMINED) return shown;
    }
    if (!hasMore || mayShow === null || host.monotonic() - startedAt > MAX_MS) return shown;
    query = { ...query, before: seqs.at(-1)! }; // more follow after one
    await nextTurn(host);
  }
}

/** Reads runs without their large values, in the order of the ids. */
export async function readRunTexts(store: Pick<Store, "readRuns">, runIds: readonly string[]): Promise<RunText[]> {
  const runs: RunText[] = [];
  for (let read = 0; read < runIds.length;) {
    const part = await store.readRuns(runIds.slice(read), PART_LENGTH);
    read += part.length;
    runs.push(...part.filter((run) => run !== null));
  }
  return runs;
}
