import type { RunEvent } from "../../model/event.ts";
import { StoreError } from "../../model/error.ts";
import { type Query, refusalOf, toSearch } from "./api.ts";
import type { Service } from "./service.ts";
import { setTimeout } from "node:timers/promises";

const RECONNECT_MS = 1_000;

/** Something that a stream has sent: an event, or the notice that events before the next one are missing. */
export type Followed = { event: RunEvent } | { event: null };

/** How to follow a stream. */
interface FollowOptions {
  /** Ends it. */
  abortSignal: AbortSignal;
  /** Receives what is no event: that the service is away, or back. */
  note: (text: string) => void;
}

/**
 * Follows a stream of events until the signal fires. When the connection ends, it connects again and continues after the
 * last event. A service that was reached once may be away for any time: it restarts, for example.
 *
 * @throws {StoreError} The service cannot be reached at first.
 * @throws {HoldfastError} It refuses the request.
 */
export async function* followEvents(
  service: Service,
  path: string,
  query: Query,
  { abortSignal, note }: FollowOptions,
): AsyncGenerator<Followed> {
  let lastId: string | null = null;
  let state: "new" | "reached" | "away" = "new";
  do {
    const headers: Record<string, string> = lastId === null ? {} : { "last-event-id": lastId };
    let body: ReadableStream<Uint8Array> | null;
    try {
      body = await openStream(service, `${path}${toSearch(query)}`, { headers, signal: abortSignal });
    } catch (error) {
      if (abortSignal.aborted) return;
      if (state === "new" || !(error instanceof StoreError)) throw error;
      if (state === "reached") note(`${error.message}; trying again`);
      state = "away";
      continue;
    }
    if (body === null) return;
    if (state === "away") note("The service is back");
    state = "reached";
    for await (const { id, type, data } of readMessages(body, abortSignal)) {
      lastId = id ?? lastId;
      if (data !== "") yield { event: type === "gap" ? null : parseEvent(data) };
    }
  } while (await pauseUnlessAborted(RECONNECT_MS, abortSignal));
}

/** The body of a stream; `null`: it has no further events. */
async function openStream(
  service: Service,
  path: string,
  init: RequestInit,
): Promise<ReadableStream<Uint8Array> | null> {
  const response = await service.ask(path, init);
  if (response.status === 204) return null;
  if (!response.ok || response.body === null) throw refusalOf(response, await response.text());
  return response.body;
}

function parseEvent(data: string): RunEvent {
  try {
    return JSON.parse(data);
  } catch (error) {
    throw new StoreError("The service has sent an event that is no JSON", { cause: error });
  }
}

interface Message {
  id: string | null;
  type: string;
  data: string;
}

/** The messages of a stream (WHATWG HTML, section 9.2.6), with the line ends that the service writes. */
async function* readMessages(body: ReadableStream<Uint8Array>, abortSignal: AbortSignal): AsyncGenerator<Message> {
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  abortSignal.addEventListener("abort", cancel);
  const decoder = new TextDecoder();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined })); // it connects again
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = parts.pop()!; // split() returns one part at least
      yield* parts.map(toMessage);
    }
  } finally {
    abortSignal.removeEventListener("abort", cancel);
    cancel();
  }
}

function toMessage(text: string): Message {
  const message: Message = { id: null, type: "message", data: "" };
  for (const line of text.split("\n")) {
    const [, name, value = ""] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name === "id") message.id = value;
    if (name === "event") message.type = value;
    if (name === "data") message.data += value;
  }
  return message;
}

/** Waits; answers `false` as soon as the signal has fired. */
export async function pauseUnlessAborted(ms: number, signal: AbortSignal): Promise<boolean> {
  return await setTimeout(ms, true, { signal }).catch(() => false);
}
