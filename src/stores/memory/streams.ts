import { isTerminal, type Retention } from "../../model/run.ts";
import type { Chunk, StreamInfo, StreamPlace } from "../../model/stream.ts";
import type { StreamText } from "../../store/run_query.ts";
import { isoTime } from "../../values/iso_time.ts";
import { findNewChunks } from "../record_rules.ts";
import { MAX_CHUNKS_READ, MAX_PURGED_STREAMS } from "../rules.ts";
import type { KeptChunk, KeptRun } from "./records.ts";

/** The chunks that are not stored; `null` if a stream does not end right before one of them. */
export function newChunks(run: KeptRun, chunks: readonly Chunk[]): Chunk[] | null {
  return findNewChunks(chunks, (stream) => run.streams.get(stream)?.at(-1)?.position ?? 0);
}

/** Stores chunks that {@linkcode newChunks} has found. */
export function addChunks(run: KeptRun, chunks: readonly Chunk[], now: number): void {
  for (const { stream, isPermanent, ...chunk } of chunks) {
    const kept = run.streams.get(stream) ?? [];
    run.streams.set(stream, kept);
    for (const other of kept) if (other.position > chunk.after) other.items = null;
    kept.push({ ...chunk, generation: isPermanent ? null : run.generation, at: now });
  }
}

/** Copies the permanent chunks of a run to a retry of it. */
export function copyStreams(old: KeptRun, run: KeptRun): void {
  for (const [name, chunks] of old.streams) {
    const { permanent } = endsOf(old, chunks);
    const copies = chunks.filter(({ position, items }) => items !== null && position <= permanent.position);
    if (copies.length > 0) run.streams.set(name, copies.map((chunk) => ({ ...chunk })));
  }
}

/** Deletes the items of runs that ended long enough ago. */
export function purgeStreams(runs: readonly KeptRun[], { streams }: Retention, now: number): void {
  if (streams === undefined) return;
  const due = runs.filter((run) =>
    run.completedAt !== null && run.completedAt <= now - streams && run.streams.size > 0
  );
  for (const run of due.slice(0, MAX_PURGED_STREAMS)) run.streams.clear();
}

const NOTHING = { position: 0, at: 0, first: 0, count: 0, size: 0 };

/** Where a stream ends: its last chunk, the last permanent one, and the last one that counts. */
function endsOf({ generation, status }: KeptRun, chunks: readonly KeptChunk[]) {
  const last = chunks.at(-1);
  const permanent = chunks.findLast((chunk) => chunk.generation === null) ?? NOTHING;
  const counts = last?.generation === generation && status !== "completed";
  return { last, permanent, end: last !== undefined && counts ? last : permanent };
}

/** Reads a stream after a place. See `Store.readStream()`. */
export function readStream(run: KeptRun, stream: string, after: StreamPlace | null, maxLength: number): StreamText {
  const all = run.streams.get(stream) ?? [];
  const { last, permanent, end } = endsOf(run, all);
  const from = after?.position ?? 0;
  const behind = maxLength === 0
    ? []
    : all.filter(({ position, items }) => position > from && position <= end.position && items !== null)
      .slice(0, MAX_CHUNKS_READ);
  const room = (behind[0]?.size ?? 0) + maxLength;
  const read = behind.filter(({ size }) => size <= room);
  return {
    chunks: read.map(({ position, at, after, first, items }) => ({ position, at, after, first, items: items! })), // not void
    hasMore: maxLength > 0 && (read.at(-1)?.position ?? from) < end.position,
    isPlace: after === null || from === 0 || all.some(({ position, at }) => position === from && at === after.at),
    end: { position: end.position, at: end.at, items: end.first + end.count, bytes: end.size },
    permanent: { position: permanent.position, items: permanent.first + permanent.count, bytes: permanent.size },
    last: last?.position ?? 0,
    isEnded: isTerminal(run.status),
  };
}

/** The streams of a run, by name. */
export function listStreams(run: KeptRun): StreamInfo[] {
  return [...run.streams].sort(([left], [right]) => left < right ? -1 : 1).map(([name, chunks]) => {
    const { last, permanent, end } = endsOf(run, chunks);
    return {
      name,
      items: end.first + end.count,
      bytes: end.size,
      isOpen: end.position > permanent.position,
      updatedAt: isoTime(last!.at), // it has a chunk
    };
  });
}
