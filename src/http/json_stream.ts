import { type JsonPieces, PIECE_LENGTH } from "./list_json.ts";
import { RESPONSE_HEADERS } from "./response.ts";

const HEADERS = { ...RESPONSE_HEADERS, "content-type": "application/json" };
const encoder = new TextEncoder();

/**
 * Answers with JSON that is read while it is sent: a piece is read when the client has taken the one before. What fits
 * into one piece is an ordinary body.
 *
 * When a later piece cannot be read, the body breaks off: it is never valid JSON that lacks something.
 *
 * @param onBreak Is called with the error that broke the body.
 * @throws What the reading of the first piece throws.
 */
export async function streamJson(pieces: JsonPieces, onBreak: (error: unknown) => void): Promise<Response> {
  let head = "";
  while (head.length < PIECE_LENGTH) {
    const { done, value } = await pieces.next();
    if (done) return new Response(head, { headers: HEADERS });
    head += value;
  }
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      if (head !== "") {
        controller.enqueue(encoder.encode(head));
        head = "";
        return;
      }
      try {
        const { done, value } = await pieces.next();
        if (isCancelled) return;
        if (done) controller.close();
        else controller.enqueue(encoder.encode(value));
      } catch (error) {
        if (isCancelled) return;
        onBreak(error);
        throw error;
      }
    },
    cancel: () => {
      isCancelled = true;
      // A piece that is being read is finished first; the client does not wait for it.
      pieces.return().catch(() => {});
    },
  }, { highWaterMark: 0 });
  return new Response(body, { headers: HEADERS });
}
