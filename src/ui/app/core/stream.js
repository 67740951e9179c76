// @ts-check
import { addressOf, ApiError, send } from "./api.js";

const RETRY_MS = 2_000;

/**
 * Follows a stream of events until it is stopped. Reads it with `fetch`, since `EventSource` sends no headers, and goes on
 * after the last event that it has seen. While the page is hidden there is no stream.
 *
 * @param {string} path
 * @param {Record<string, unknown>} query
 * @param {{ onEvent: (event: any, type: string) => unknown, onState: (isOpen: boolean) => void }} listeners `onEvent` returns
 * `true` for the last one.
 * @returns {() => void} Stops it.
 */
export function follow(path, query, { onEvent, onState }) {
  let lastId = "";
  let isStopped = false;
  let current = new AbortController();

  async function read() {
    while (!isStopped && !document.hidden) {
      const { signal } = current;
      try {
        /** @type {Record<string, string>} */
        const headers = lastId === "" ? {} : { "last-event-id": lastId };
        const response = await send(addressOf(path, query), { headers, signal });
        if (response.status === 204 || response.body === null) return;
        onState(true);
        for await (const { id, type, data } of messagesOf(response.body)) {
          if (id !== "") lastId = id;
          if (data !== "" && onEvent(JSON.parse(data), type) === true) return;
        }
      } catch (error) {
        if (signal.aborted) return;
        onState(false);
        if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) return;
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
  const onVisibility = () => {
    current.abort();
    current = new AbortController();
    if (!document.hidden) void read();
  };
  document.addEventListener("visibilitychange", onVisibility);
  void read();
  return () => {
    isStopped = true;
    document.removeEventListener("visibilitychange", onVisibility);
    current.abort();
  };
}

/**
 * The messages of a stream (WHATWG HTML, section 9.2).
 * @param {ReadableStream<Uint8Array>} body
 */
async function* messagesOf(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = parts.pop() ?? "";
      for (const part of parts) {
        let [id, type, data] = ["", "", ""];
        for (const line of part.split("\n")) {
          if (line.startsWith("id:")) id = line.slice(3).trim();
          else if (line.startsWith("event:")) type = line.slice(6).trim();
          else if (line.startsWith("data:")) data += line.slice(5).replace(/^ /, "");
        }
        yield { id, type, data };
      }
    }
  } finally {
    await reader.cancel().catch(() => {}); // it has failed, or was stopped
  }
}
