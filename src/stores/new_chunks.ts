import type { Chunk } from "../model/stream.ts";

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
