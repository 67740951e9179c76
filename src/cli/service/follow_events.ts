import type { RunEvent } from "../../event.ts";
import { StoreError } from "../../error.ts";
import { pauseUnlessAborted } from "../pause.ts";
import { type Query, refusalOf, toSearch } from "./api.ts";
import type { Service } from "./service.ts";

const RECONNECT_MS = 1_000;

/** Something that a stream has sent: an event, or the notice that events before the next one are missing. */
export type Followed = { event: RunEvent } | { event: null };

/**
 * Follows a stream of events until the signal fires; when the connection ends it goes on after the last event.
 *
 * @throws {StoreError} The service cannot be reached.
 */
export async function* followEvents(
  service: Service,
  path: string,
  query: Query,
  abortSignal: AbortSignal,
): AsyncGenerator<Followed> {
  let lastId: string | null = null;
  do {
    const headers: HeadersInit = lastId === null ? {} : { "last-event-id": lastId };
    const response: Response | null = await service.ask(`${path}${toSearch(query)}`, { headers, signal: abortSignal })
      .catch((error: unknown) => {
        if (abortSignal.aborted) return null;
        throw error;
      });
    if (response === null) return;
    if (response.status === 204) return;
    if (!response.ok || response.body === null) throw refusalOf(response, await response.text());
    for await (const { id, type, data } of readMessages(response.body, abortSignal)) {
      lastId = id ?? lastId;
      if (data !== "") yield { event: type === "gap" ? null : parseEvent(data) };
    }
  } while (await pauseUnlessAborted(RECONNECT_MS, abortSignal));
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
