import { retryStoreCall } from "../../events/retry_store_call.ts";
import { STREAM_START, type StreamPlace } from "../../model/stream.ts";
import type { Json } from "../../values/json.ts";
import type { StreamDeps } from "./run_streams.ts";

// About how many bytes of items are read at once.
const PART_LENGTH = 65_536;

/** The items of a stream that are permanent now, for a step. */
export async function* readPermanent(deps: StreamDeps, stream: string): AsyncGenerator<Json, void> {
  const { runId, store, abortSignal } = deps;
  let place: StreamPlace = STREAM_START;
  let end: number | null = null;
  while (true) {
    const read = () => store.readStream(runId, stream, place, PART_LENGTH);
    const text = await retryStoreCall(read, deps, abortSignal);
    if (text === null) return;
    const { chunks, hasMore, permanent } = text;
    end ??= permanent.position;
    for (const chunk of chunks) {
      if (chunk.position > end) return;
      yield* JSON.parse(chunk.items) as Json[];
      place = chunk;
    }
    if (!hasMore) return;
  }
}
