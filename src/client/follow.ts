import { ClientError } from "./client_error.ts";
import type { CallOptions, ClientEvent } from "./client_types.ts";
import type { Query, Service } from "./service.ts";
import { sseMessages } from "./sse_messages.ts";

// Three keep-alives of the service.
const IDLE_MS = 45_000;
const FIRST_DELAY_MS = 500;
const LONGEST_DELAY_MS = 30_000;

/** What is followed. */
export interface FollowOptions<Snapshot> extends CallOptions {
  /** The route of the stream. */
  route: string;
  /** Its parameters. */
  query: Query;
  /** Reads the state, which the events then change. */
  readSnapshot: () => Promise<Snapshot>;
}

/**
 * Follows an event stream, and reconnects when it breaks: after 0.5 to 30 seconds, no sooner than the service asks for,
 * and at once when the browser is online again. Events that were missed come first, or, if the service does not have
 * them any more, a new snapshot. It ends when the service says that there is nothing more (204).
 *
 * @throws {ClientError} The service refuses the request, other than for now.
 */
export async function* follow<Snapshot>(
  { send }: Service,
  { route, query, readSnapshot, abortSignal }: FollowOptions<Snapshot>,
): AsyncGenerator<Snapshot | ClientEvent, void> {
  let lastId: string | undefined;
  for (let delay = FIRST_DELAY_MS;; delay = Math.min(2 * delay, LONGEST_DELAY_MS)) {
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
    let retryAfter = 0;
    try {
      const { body } = await send(route, { query: { ...query, lastEventId: lastId }, abortSignal });
      if (!body) return;
      reader = body.getReader();
      // Connected first, and read then: what happens in between is in the stream.
      if (!lastId) yield await readSnapshot();
      for await (const { id, event, data } of sseMessages(reader, IDLE_MS)) {
        delay = FIRST_DELAY_MS / 2;
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
    await pause(Math.max(delay * (1 + Math.random()) / 2, retryAfter), abortSignal);
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
