import type { JsonPieces } from "./json_lists.ts";
import { JSON_HEADERS } from "../response.ts";

const HEADERS = { ...JSON_HEADERS, "content-type": "application/json" };
const encoder = new TextEncoder();

// The size of a chunk in bytes. V8 does not count the memory of buffers when it schedules collections of young
// objects, so larger chunks let more garbage accumulate.
const CHUNK_BYTES = 4_096;

// A response with at most this many characters is an ordinary body.
const SMALL_LENGTH = 131_072;

/**
 * Creates a response with JSON that is read while it is sent: a piece is read when the client has received the one
 * before. A small response is an ordinary body.
 *
 * If a later piece cannot be read, the body is aborted: it is never valid JSON with missing data.
 *
 * @param onBreak Called with the error that aborted the body.
 * @throws What the reading of the first pieces throws.
 */
export async function streamJson(pieces: JsonPieces, onBreak: (error: unknown) => void): Promise<Response> {
  const head: Piece[] = [];
  for (let length = 0; length < SMALL_LENGTH;) {
    const { done, value: piece } = await pieces.next();
    if (done && head.every((one) => typeof one === "string")) return new Response(head.join(""), { headers: HEADERS });
    if (done) break;
    head.push(piece);
    length += piece.length;
  }
  const chunks = toChunks(head, pieces);
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      try {
        const { done, value: chunk } = await chunks.next();
        if (isCancelled) return;
        if (done) controller.close();
        else controller.enqueue(chunk);
      } catch (error) {
        if (isCancelled) return;
        onBreak(error);
        throw error;
      }
    },
    cancel: () => {
      isCancelled = true;
      // A pending read finishes first; the client does not wait for it.
      chunks.return().catch(() => {});
    },
  }, { highWaterMark: 0 });
  return new Response(body, { headers: HEADERS });
}

type Piece = string | Uint8Array<ArrayBuffer>;

async function* toChunks(head: readonly Piece[], pieces: JsonPieces): AsyncGenerator<Uint8Array, void> {
  for (const piece of head) yield* cut(piece);
  for await (const piece of pieces) yield* cut(piece);
}

function* cut(piece: Piece): Generator<Uint8Array, void> {
  if (typeof piece === "string") return yield encoder.encode(piece);
  for (let at = 0; at < piece.length; at += CHUNK_BYTES) yield piece.slice(at, at + CHUNK_BYTES);
  // Releases the memory now, not at the next collection.
  if (piece.buffer.byteLength === piece.length) piece.buffer.transfer(0);
}
