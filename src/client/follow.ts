import { ClientError, type Query, type Service } from "./service.ts";
import type { CallOptions } from "./client_types.ts";
import type { Stream, StreamPart } from "../model/stream.ts";

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
      if (!(error instanceof ClientError) || /^[24](?!08|29)/.test(error.status as never)) throw error;
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

/**
 * Splits an event stream into the names and values of its lines (WHATWG HTML, section 9.2.6). In a stream of a service
 * each line stands alone: an event is one line of data, and the id that follows it is a message without data. It ends
 * with the stream, when the stream breaks, or when nothing has arrived for 45 seconds.
 *
 * @param onLine Called before each line.
 * @throws {RangeError} A line has more than 64 Mi characters.
 */
export async function* sseLines(
  reader: ReadableStreamDefaultReader<string>,
  onLine: () => void,
): AsyncGenerator<string[]> {
  let rest = "";
  while (true) {
    const timer = setTimeout(() => reader.cancel(), 45_000); // three keep-alives of the service
    const { value } = await reader.read().catch(() => ({} as { value: undefined })).finally(() => clearTimeout(timer));
    if (!value) return;
    rest += value;
    if (rest.length > 2 ** 26) throw new RangeError("A line is too long");
    if (!value.includes("\n")) continue; // otherwise each part of a long line would search it from its start
    const lines = rest.split(/\r?\n/);
    rest = lines.pop()!;
    for (const line of lines) {
      onLine();
      yield line.split(/: ?([^]*)/);
    }
  }
}

/** See `Client.readStream()`. */
export function readItems<T>(
  send: Service,
  runId: string,
  stream: Stream | string,
  { after, ...options }: CallOptions & { after?: string } = {},
): AsyncGenerator<StreamPart<T>, void> {
  let offset = after ?? "-1";
  // How many items come before the next ones.
  let from = after ? -1 : 0;
  const name = (stream as Stream).name ?? stream;
  const query = () => ({ runId, name, offset, live: "sse", resets: "event" });
  return reconnect(send, "GET /stream", query, async function* (lines): AsyncGenerator<StreamPart<T>, true | void> {
    let event;
    let items: T[] = [];
    for await (const [field, value] of lines) {
      if (field === "event") event = value;
      if (field !== "data") continue;
      const data = JSON.parse(value!);
      if (event === "data") items = data;
      else {
        offset = data.streamNextOffset;
        // A first connection without a position learns that it has nothing.
        if (event === "reset" ? data.from !== from : items.length) {
          from = data.from ?? from;
          yield { from, items, position: offset };
        }
        from += items.length;
        items = [];
        if (data.streamClosed) return true;
      }
    }
  }, options);
}

/** Names a stream, as `defineStream()` of the package does. The service checks the name. */
export function defineStream<T = unknown>(name: string): Stream<T> {
  return Object.freeze({ name });
}
