import type { Chunk } from "../model/stream.ts";
import type { JsonText } from "../values/json.ts";
import type { WorkerDetails } from "../store/operate.ts";

/**
 * The chunks of a write that are not stored yet; `null` if a stream does not end right before one of them.
 *
 * @param lastOf The number of the last chunk that a stream ever had.
 */
export function findNewChunks(chunks: readonly Chunk[], lastOf: (stream: string) => number): Chunk[] | null {
  const lasts = new Map<string, number>();
  const added: Chunk[] = [];
  for (const chunk of chunks) {
    const last = lasts.get(chunk.stream) ?? lastOf(chunk.stream);
    if (chunk.position > last + 1) return null;
    lasts.set(chunk.stream, Math.max(last, chunk.position));
    if (chunk.position > last) added.push(chunk);
  }
  return added;
}

/** When a run first resumed after a wait that timed out; empty for other pauses. See `PauseRecord.firstResumedAt`. */
export function firstResumed(
  kind: string,
  outcome: string | null,
  at: number | null,
): { firstResumedAt?: number } {
  return kind === "wait" && outcome === "timeout" && at !== null ? { firstResumedAt: at } : {};
}

const UNKNOWN: WorkerDetails = {
  name: null,
  hostname: null,
  pid: null,
  runtime: "unknown",
  version: "unknown",
  deployment: null,
  concurrency: 0,
};

/** What a worker has said of itself; a worker of an earlier version says nothing. */
export function parseWorkerDetails(details: JsonText): WorkerDetails {
  return { ...UNKNOWN, ...JSON.parse(details) }; // written by a store, from details
}

/** What a worker has said of itself, as far as reasons name it; 0 slots are not known. */
export function toNamedWorker(
  { name, hostname, deployment, concurrency }: WorkerDetails,
): { name: string | null; hostname: string | null; deployment: string | null; concurrency: number | null } {
  return { name, hostname, deployment, concurrency: concurrency === 0 ? null : concurrency };
}
