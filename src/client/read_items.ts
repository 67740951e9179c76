import type { Stream, StreamPart } from "../model/stream.ts";
import type { CallOptions } from "./client_types.ts";
import { reconnect } from "./follow.ts";
import type { Service } from "./service.ts";

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
