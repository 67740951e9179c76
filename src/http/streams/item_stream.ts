import { isCut, type StreamReader, type StreamReading } from "../../events/stream_reader.ts";
import { HoldfastError, ValidationError } from "../../model/error.ts";
import type { Host } from "../../model/host.ts";
import { formatPlace, parsePlace, STREAM_START, streamName, type StreamPlace } from "../../model/stream.ts";
import type { Store } from "../../store/store.ts";
import type { StreamText } from "../../store/run_query.ts";
import { jsonResponse, noSuchRun, PROTECTIVE_HEADERS } from "../response.ts";
import { endedStream, EventStream } from "./event_stream.ts";
import type { SentStream } from "./streams.ts";
import { TEXT } from "../openapi/json_schema.ts";
import { all, choice, optional, type Query, required, RUN_ID } from "../requests/parameters.ts";

// About how many bytes of items one answer has.
const PART_LENGTH = 65_536;
// How long a request waits for items.
const LONG_POLL_MS = 25_000;
// Readers that wait get the same cursor for so long, so that a cache can answer them together (Durable Streams, 8.1).
const CURSOR_MS = 20_000;
const MAX_JITTER = 10;

/** What it needs to follow a stream. */
interface ItemsSource {
  /** Keeps the items. */
  store: Store;
  /** Reads them. */
  items: StreamReader;
  /** Time. */
  host: Host;
}

/** Registers what is sent to a client; the returned function is called at its end. */
type Register = (stream: SentStream) => () => void;

/** Where a client that has items which do not count any more goes on. */
interface Reset {
  /** How many of its items still count. */
  from: number;
  /** The place after them. */
  place: StreamPlace;
}

/** Answers with the items behind an offset, as many as fit into an answer. */
export async function itemsNow(store: Store, query: ItemsQuery): Promise<Response> {
  const { offset, isHead } = query;
  const isEnd = offset === "now" || isHead;
  const text = await store.readStream(query.runId, query.name, isEnd ? null : offset, isEnd ? 0 : PART_LENGTH);
  if (text === null) throw noSuchRun();
  const place = isEnd ? text.end : offset;
  if (isCut(text, place)) return resetResponse(await findReset(store, query, text));
  return itemsResponse(text, place, query);
}

/** Answers a request that waits for items, or follows them. */
export async function followItems(source: ItemsSource, query: ItemsQuery, register: Register): Promise<Response> {
  const { store, items } = source;
  const { runId, name, offset } = query;
  const start = offset === "now" ? STREAM_START : offset;
  const text = await store.readStream(runId, name, start, offset === "now" ? 0 : PART_LENGTH);
  if (text === null) throw noSuchRun();
  const place = offset === "now" ? text.end : offset;
  const isLost = isCut(text, place);
  if (isLost && !query.tellsResets) return resetResponse(await findReset(store, query, text));
  const reading = items.begin(runId, name, { after: place, follow: true });
  if (query.live === "long-poll") return await longPoll(reading, source, query, register);
  const from = isLost ? null : text.chunks[0]?.first ?? text.end.items;
  return new ItemEvents(reading, source, query, register).begin(from);
}

/**
 * Answers a request that would follow a stream, but has to end at once.
 *
 * @throws {HoldfastError} It is a long poll, whose client would ask again at once (`unavailable`).
 */
export function endedItems({ live }: ItemsQuery): Response {
  if (live === "long-poll") throw new HoldfastError("unavailable", "Nothing can be waited for now");
  return endedStream();
}

async function longPoll(
  reading: StreamReading,
  { store, host }: ItemsSource,
  query: ItemsQuery,
  register: Register,
): Promise<Response> {
  const stop = () => reading.stop();
  const unregister = register({ close: stop, keepAlive: () => {} });
  const cancel = host.schedule(LONG_POLL_MS, stop);
  query.left?.addEventListener("abort", stop);
  if (query.left?.aborted) stop();
  const place = reading.place;
  try {
    const text = await reading.nextText();
    if (text !== null && isCut(text, place)) return resetResponse(await findReset(store, query, text));
    const cursor = { "stream-cursor": cursorOf(query, host) };
    if (text !== null && text.chunks.length > 0) return itemsResponse(text, place, query, cursor);
    const isClosed = text?.isEnded === true;
    return new Response(null, {
      status: 204,
      headers: {
        ...NOT_STORED,
        "stream-next-offset": formatPlace(place),
        "stream-up-to-date": "true",
        ...(isClosed ? { "stream-closed": "true" } : cursor),
      },
    });
  } finally {
    query.left?.removeEventListener("abort", stop);
    cancel();
    stop();
    unregister();
  }
}

const encoder = new TextEncoder();

/** The items of a stream as server-sent events, to one client. */
class ItemEvents {
  readonly #reading: StreamReading;
  readonly #source: ItemsSource;
  readonly #query: ItemsQuery;
  readonly #events: EventStream;

  constructor(reading: StreamReading, source: ItemsSource, query: ItemsQuery, register: Register) {
    this.#reading = reading;
    this.#source = source;
    this.#query = query;
    let unregister = () => {};
    this.#events = new EventStream(() => {
      reading.stop();
      unregister();
    });
    unregister = register(this.#events);
  }

  /** @param from How many items come before its place; `null`: they do not count any more. */
  begin(from: number | null): Response {
    if (this.#query.tellsResets && from !== null) this.#sendReset({ from, place: this.#reading.place });
    this.#sendAll().catch(() => this.#events.close()); // the client connects again
    return this.#events.toResponse();
  }

  async #sendAll(): Promise<void> {
    const reading = this.#reading;
    let isFirst = true;
    while (true) {
      // At once, so that a client knows that nothing is missing.
      if (isFirst && await this.#isUpToDate()) this.#sendControl(reading.place, true, false);
      isFirst = false;
      const text = await reading.nextText();
      if (text === null) return this.#events.end();
      if (isCut(text, reading.place)) {
        if (!this.#query.tellsResets) return this.#events.end(); // a new request learns where to go on
        const reset = await findReset(this.#source.store, this.#query, text);
        reading.place = reset.place;
        this.#sendReset(reset);
        continue;
      }
      const last = text.chunks.at(-1);
      const isClosed = !text.hasMore && text.isEnded;
      if (last !== undefined) {
        reading.place = { position: last.position, at: last.at };
        const items = jsonOf(text);
        await this.#events.ready(Infinity); // items can be larger than what is buffered behind others
        if (items !== "[]") this.#send("data", this.#query.isText ? textOf(text) : items);
      }
      this.#sendControl(reading.place, !text.hasMore, isClosed);
      if (isClosed) return this.#events.end();
    }
  }

  async #isUpToDate(): Promise<boolean> {
    const { runId, name } = this.#query;
    const { place } = this.#reading;
    const text = await this.#source.store.readStream(runId, name, place, 1);
    return text !== null && text.chunks.length === 0 && !isCut(text, place) && !text.isEnded;
  }

  #sendReset({ from, place }: Reset): void {
    this.#send("reset", JSON.stringify({ from, streamNextOffset: formatPlace(place) }), place);
  }

  #sendControl(place: StreamPlace, upToDate: boolean, isClosed: boolean): void {
    const streamNextOffset = formatPlace(place);
    const more = isClosed
      ? { streamClosed: true }
      : { streamCursor: cursorOf(this.#query, this.#source.host), ...(upToDate ? { upToDate } : {}) };
    this.#send("control", JSON.stringify({ streamNextOffset, ...more }), place);
  }

  /** @param place If set, the client goes on from there when it connects again. */
  #send(event: string, data: string, place?: StreamPlace): void {
    // A reader drops one space after the colon (WHATWG HTML, section 9.2.6).
    const lines = data.split(/\r\n|\r|\n/).map((line) => `data:${line.startsWith(" ") ? " " : ""}${line}\n`).join("");
    const id = place === undefined ? "" : `id: ${formatPlace(place)}\n`;
    this.#events.send({
      bytes: encoder.encode(`event: ${event}\n${lines}${id}\n`),
      subject: null,
      isTiny: place !== undefined,
    });
  }
}

/** Where a client goes on whose place does not count: after the last chunk that does, of those that it has. */
async function findReset(store: Store, { runId, name }: ItemsQuery, text: StreamText): Promise<Reset> {
  const { chunks: [first], end, isPlace } = text;
  if (!isPlace) return { from: 0, place: STREAM_START };
  if (first === undefined) return { from: end.items, place: end };
  if (first.after === 0) return { from: 0, place: STREAM_START };
  const before = await store.readStream(runId, name, { position: first.after - 1, at: 0 }, 1);
  const kept = before?.chunks[0];
  if (kept?.position === first.after) return { from: first.first, place: kept };
  return { from: 0, place: STREAM_START }; // the stream has changed meanwhile
}

function resetResponse({ from, place }: Reset): Response {
  const offset = place.position === 0 ? "-1" : formatPlace(place);
  const error = `The items after the first ${from} do not count any more: continue from the offset`;
  return jsonResponse({ error, code: "stream_reset", from, offset }, 410, { "stream-next-offset": offset });
}

const NOT_STORED = { "cache-control": "no-store", ...PROTECTIVE_HEADERS };

function itemsResponse(
  text: StreamText,
  place: StreamPlace,
  { runId, isText, isHead, offset, etag: known }: ItemsQuery,
  more: Record<string, string> = {},
): Response {
  const next = formatPlace(text.chunks.at(-1) ?? place);
  const isClosed = !text.hasMore && text.isEnded;
  const etag = `"${runId}:${formatPlace(place)}:${next}${isClosed ? ":c" : ""}"`;
  const headers: Record<string, string> = {
    ...PROTECTIVE_HEADERS,
    "content-type": isText ? "text/plain; charset=utf-8" : "application/json",
    "cache-control": isHead || offset === "now" ? "no-store" : "private, no-cache",
    "stream-next-offset": next,
    ...(text.hasMore ? {} : { "stream-up-to-date": "true" }),
    ...more,
  };
  if (isClosed) headers["stream-closed"] = "true";
  if (isClosed) delete headers["stream-cursor"];
  if (isHead) return new Response(null, { headers });
  headers.etag = etag;
  if (known !== null && known.split(",").some((one) => one.trim().replace(/^W\//, "") === etag)) {
    delete headers["content-type"];
    return new Response(null, { status: 304, headers });
  }
  return new Response(isText ? textOf(text) : jsonOf(text), { headers });
}

/** The items as one array of JSON. */
function jsonOf({ chunks }: StreamText): string {
  return `[${chunks.map(({ items }) => items.slice(1, -1)).filter((items) => items !== "").join(",")}]`;
}

/** The items that are strings, joined. */
function textOf({ chunks }: StreamText): string {
  const items = chunks.flatMap(({ items }) => JSON.parse(items) as unknown[]);
  return items.filter((item) => typeof item === "string").join("");
}

/** The number of the current interval, and always more than what the client brings. */
function cursorOf({ cursor }: ItemsQuery, host: Host): string {
  const interval = Math.floor(host.now() / CURSOR_MS);
  if (cursor === null || cursor < interval) return String(interval);
  return String(cursor + 1 + Math.floor(host.random() * MAX_JITTER));
}

/** What is read of a stream. */
export interface ItemsQuery {
  /** The run. */
  runId: string;
  /** The name of the stream. */
  name: string;
  /** Where to go on; `now`: at the end. */
  offset: StreamPlace | "now";
  /** How to wait for what comes; `undefined`: not at all. */
  live: "long-poll" | "sse" | undefined;
  /** The cursor of an earlier answer, for caches. */
  cursor: number | null;
  /** Whether an event says what does not count any more, instead of the end of the stream. */
  tellsResets: boolean;
  /** Whether strings are sent as text. */
  isText: boolean;
  /** Whether only the end is asked for. */
  isHead: boolean;
  /** The `ETag` that the client has. */
  etag: string | null;
  /** With `live=long-poll`: fires when the client has left. */
  left: AbortSignal | null;
}

const NAME: Query<{ name: string }> = {
  ...required("name"),
  read: (query, request) => ({ name: streamName(required("name").read(query, request).name) }),
};
const LIVE = choice("live", ["long-poll", "sse"], { description: "How to wait for what comes; needs offset" });
const OFFSET = optional("offset", { ...TEXT, default: "-1" }, {
  description: "-1 (the beginning), now, or a Stream-Next-Offset",
});
const CURSOR = optional("cursor", TEXT, { description: "The Stream-Cursor of an earlier answer" });
const RESETS = choice("resets", ["event"], {
  description: "With live=sse: an event says what does not count any more",
});
const AS = choice("as", ["text"], { description: "The items that are strings, joined" });
const GIVEN = all(RUN_ID, NAME, OFFSET, LIVE, CURSOR, RESETS, AS);

/** The parameters of a request for items. */
export const ITEMS: Query<ItemsQuery> = {
  parameters: GIVEN.parameters,
  read: (query, request) => {
    const { runId, name, offset, live, cursor, resets, as } = GIVEN.read(query, request);
    const lastEventId = live === "sse" ? request.headers.get("last-event-id") : null;
    return {
      runId,
      name,
      offset: readOffset(lastEventId ?? offset, live),
      live,
      // A cursor that is none is like none: it is only for caches.
      cursor: cursor === undefined || !/^\d{1,15}$/.test(cursor) ? null : Number(cursor),
      tellsResets: resets === "event",
      isText: as === "text",
      isHead: request.method === "HEAD",
      etag: request.headers.get("if-none-match"),
      left: live === "long-poll" ? request.signal : null,
    };
  },
};

function readOffset(text: string | undefined, live: ItemsQuery["live"]): StreamPlace | "now" {
  if (text === undefined && live !== undefined) throw new ValidationError("The parameter offset is missing");
  if (text === undefined || text === "-1") return STREAM_START;
  if (text === "now") return text;
  const place = parsePlace(text);
  if (place !== null) return place;
  throw new ValidationError("The parameter offset must be -1, now, or the Stream-Next-Offset of an answer");
}
