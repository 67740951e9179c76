import { ClientError } from "./client_error.ts";
import type { CallOptions, ClientEvent } from "./client_types.ts";
import type { Query, Service } from "./service.ts";
import { sseMessages } from "./sse_messages.ts";

/**
 * Follows an event stream, and reconnects when it breaks: after 0.5 to 30 seconds, no sooner than the service asks for,
 * and at once when the browser is online again. Events that were missed come first, or, if the service does not have
 * them any more, a new snapshot. It ends when the service says that there is nothing more (204).
 *
 * @param route The route of the stream.
 * @param query Its parameters.
 * @param readSnapshot Reads the state, which the events then change.
 * @throws {ClientError} The service refuses the request, other than for now.
 */
export async function* follow<Snapshot>(
  { send }: Service,
  route: string,
  query: Query,
  readSnapshot: () => Promise<Snapshot>,
  { abortSignal }: CallOptions = {},
): AsyncGenerator<Snapshot | ClientEvent, void> {
  let lastId: string | undefined;
  // The shortest pause before the next connection, in milliseconds. It takes up to twice as long.
  for (let delay = 250;; delay = Math.min(2 * delay, 15_000)) {
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
    let retryAfter = 0;
    try {
      const { body } = await send(route, { query: { ...query, lastEventId: lastId }, abortSignal });
      if (!body) return;
      reader = body.getReader();
      // Connected first, and read then: what happens in between is in the stream.
      if (!lastId) yield await readSnapshot();
      for await (const { id, event, data } of sseMessages(reader)) {
        delay = 125; // doubled when the stream ends
        lastId = id ?? lastId;
        if (event === "gap") yield await readSnapshot();
        else if (data) yield JSON.parse(data);
      }
    } catch (error) {
      abortSignal?.throwIfAborted();
      if (error instanceof ClientError) {
        if (/^4(?!08|29)/.test(`${error.status}`)) throw error;
        retryAfter = error.retryAfter ?? 0;
      }
    } finally {
      // It would keep the connection open. It fails if the stream has broken, which is known.
      reader?.cancel().catch(() => {});
    }
    await pause(Math.max(delay * (1 + Math.random()), retryAfter), abortSignal);
  }
}

/** Waits; no longer than until the browser is online again, or the call is stopped. */
function pause(ms: number, abortSignal?: AbortSignal): Promise<void> {
  const over = new AbortController(); // its `signal` removes the listeners
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      over.abort();
      resolve();
    };
    const timer = setTimeout(end, abortSignal?.aborted ? 0 : ms);
    globalThis.addEventListener?.("online", end, over);
    abortSignal?.addEventListener("abort", end, over);
  });
}
