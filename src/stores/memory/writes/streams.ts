import type { Lease } from "../../../model/lease.ts";
import type { Chunk } from "../../../model/stream.ts";
import type { MemoryRuns } from "../runs.ts";
import { addChunks, newChunks } from "../streams.ts";

/** Stores items of streams. See `Store.appendItems()`. */
export function appendItems(
  runs: MemoryRuns,
  writes: readonly { lease: Lease; chunks: readonly Chunk[] }[],
  now: number,
): boolean[] {
  return writes.map(({ lease, chunks }) => {
    const run = runs.findUnder(lease);
    const added = run === undefined ? null : newChunks(run, chunks);
    if (run === undefined || added === null) return false;
    addChunks(run, added, now);
    if (added.length > 0) runs.journal.note([run.seq, "streamed"]);
    if (added.length > 0) runs.countChange();
    return true;
  });
}
