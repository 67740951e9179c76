import { ClientError } from "./client_error.ts";
import type { CallOptions } from "./client_types.ts";
import type { Query, Service } from "./service.ts";
import { sseLines } from "./sse_lines.ts";

/**
 * Follows an event stream, and reconnects when it breaks. Events that were missed come first, or, if the service does not
 * have them any more, a new snapshot. It ends when the service says that there is nothing more (204).
 *
 * @param route The route of the stream.
 * @param query Its parameters.
 * @param readSnapshot Reads the state, which the events then change.
 */
export function follow<Snapshot>(
  send: Service,
  route: string,
  query: Query | undefined,
  readSnapshot: () => Promise<Snapshot>,
  options?: CallOptions,
  // deno-lint-ignore no-explicit-any -- the service sends events, and the client states of which job
): AsyncGenerator<Snapshot | any, void> {
  let lastId: string | undefined;
  // The next connection repeats the events since the last id, and perhaps the latest progress.
  let shown: string[] = [];
  let progress: string;
  return reconnect(send, route, () => ({ ...query, lastEventId: lastId }), async function* (lines) {
    // Connected first, and read then: what happens in between is in the stream.
    if (!lastId) yield readSnapshot();
    let repeated = [progress!, ...shown];
    for await (const [field, value] of lines) {
      if (field === "id") {
        lastId = value;
        shown = [];
        repeated = [];
      } else if (field === "data") {
        const event = JSON.parse(value!);
        // The time and the number are last. They differ when the service repeats the latest progress.
        const key = value!.slice(0, value!.lastIndexOf('"timestamp"'));
        const at = repeated.indexOf(key);
        delete repeated[at];
        if (event.type === "gap") yield readSnapshot();
        else if (at < 0) {
          if (event.progress) progress = key;
          else if (lastId) shown.push(key);
          yield event;
        }
      }
    }
  }, options);
}

type Lines = AsyncIterable<string[]>;

/**
 * Reads a stream of server-sent events, and reconnects when it breaks. It ends when the service says that there is nothing
 * more (204), or `read` returns `true`.
 *
 * @param query Makes the parameters of the next connection.
 * @param read Reads the lines of a connection.
 * @throws {ClientError} The service refuses the request, other than for now.
 * @throws What `headers()` throws, and an error if the stream is not one of events.
 */
export function reconnect<T>(
  send: Service,
  route: string,
  query: () => Query,
  read: (lines: Lines) => AsyncGenerator<T, unknown>,
  options?: CallOptions,
): AsyncGenerator<T, void> {
  return repeat(async function* (onLine) {
    let reader: ReadableStreamDefaultReader<string> | undefined;
    try {
      const { body }: Response = await send(route, query(), options, undefined, true);
      if (!body) return true;
      return yield* read(sseLines(reader = body.pipeThrough(new TextDecoderStream()).getReader(), onLine));
    } finally {
      // It would keep the connection open. It fails if the stream has broken, which is known.
      reader?.cancel().catch(() => {});
    }
  }, options);
}

/**
 * Makes a call until it is answered. It must be one that changes nothing.
 *
 * @throws {ClientError} The service refuses it, other than for now.
 */
export async function untilAnswered<T>(
  call: (runId: string, options?: CallOptions) => Promise<T>,
  runId: string,
  options?: CallOptions,
): Promise<T> {
  const answers = repeat(async function* () {
    yield call(runId, options);
  }, options);
  return (await answers.next()).value as T;
}

/**
 * Attempts something until an attempt returns `true`: again after 0.5 to 30 seconds, no sooner than the service asks for,
 * and at once when the browser is online again.
 *
 * @param attempt Calls what it is given when something arrives, which makes the next pause a short one.
 * @throws What an attempt throws, other than a `ClientError` that another attempt may mend.
 */
async function* repeat<T>(
  attempt: (onArrival: () => void) => AsyncGenerator<T, unknown>,
  { abortSignal }: CallOptions = {},
): AsyncGenerator<T, void> {
  // The shortest pause before the next attempt, in milliseconds. It takes up to twice as long.
  for (let delay = 500;; delay = Math.min(2 * delay, 15_000)) {
    let retryAfter: number | null = 0;
    try {
      if (yield* attempt(() => delay = 500)) return;
    } catch (error) {
      if (!(error instanceof ClientError) || /^4(?!08|29)/.test(error.status as never)) throw error;
      retryAfter = error.retryAfter;
    }
    abortSignal?.throwIfAborted();
    // A pause that ends when the browser is online again, or the call is stopped.
    const over = new AbortController(); // its `signal` removes the listeners
    let timer;
    await new Promise((resolve) => {
      // A timer of more than 2 ** 31 ms would fire at once.
      timer = setTimeout(resolve, Math.min(Math.max(delay * (1 + Math.random()), retryAfter!), 2e9));
      globalThis.addEventListener?.("online", resolve, over);
      abortSignal?.addEventListener("abort", resolve, over);
    });
    clearTimeout(timer);
    over.abort();
  }
}
