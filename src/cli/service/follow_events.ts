import type { RunEvent } from "../../model/event.ts";
import { StoreError } from "../../model/error.ts";
import { sseLines } from "../../client/follow.ts";
import { type Query, readText, refusalOf, toSearch } from "./api.ts";
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
    let body: ReadableStream<Uint8Array<ArrayBuffer>> | null;
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
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const cancel = () => void reader.cancel().catch(() => {});
    abortSignal.addEventListener("abort", cancel);
    try {
      for await (const [name, value = ""] of sseLines(reader, () => {})) {
        if (name === "id") lastId = value;
        if (name !== "data") continue;
        const event = parseEvent(value);
        yield { event: event.type === "gap" ? null : event };
      }
    } finally {
      abortSignal.removeEventListener("abort", cancel);
      cancel();
    }
  } while (await pauseUnlessAborted(RECONNECT_MS, abortSignal));
}

/** The body of a stream; `null`: it has no further events. */
async function openStream(
  service: Service,
  path: string,
  init: RequestInit,
): Promise<ReadableStream<Uint8Array<ArrayBuffer>> | null> {
  const response = await service.ask(path, init);
  if (response.status === 204) return null;
  if (!response.ok || response.body === null) throw refusalOf(response, await readText(response));
  return response.body;
}

/** An event, or the notice of a gap. */
function parseEvent(data: string): RunEvent | { type: "gap" } {
  try {
    return JSON.parse(data);
  } catch (error) {
    throw new StoreError("The service has sent an event that is no JSON", { cause: error });
  }
}

/** Waits; answers `false` as soon as the signal has fired. */
export async function pauseUnlessAborted(ms: number, signal: AbortSignal): Promise<boolean> {
  return await setTimeout(ms, true, { signal }).catch(() => false);
}
