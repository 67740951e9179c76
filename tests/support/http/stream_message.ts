import type { RunEvent } from "../../../src/model/event.ts";

/** A message of an event stream (Server-Sent Events) of Holdfast. */
export type StreamMessage =
  | { kind: "event"; event: RunEvent }
  | { kind: "id"; id: string }
  | { kind: "gap" }
  | { kind: "retry"; ms: number }
  | { kind: "comment"; text: string };

/**
 * Reads one message of those that a `MessageSplitter` returns.
 *
 * @returns `null`: a stream must not have such a message.
 */
export function readMessage(message: string): StreamMessage | null {
  if (message === 'event: gap\ndata: {"type":"gap"}') return { kind: "gap" };
  const [, field, value] = /^(data|id|retry|): ([^\r\n]+)$/.exec(message) ?? [];
  if (field === "data") return { kind: "event", event: JSON.parse(value!) };
  if (field === "id") return { kind: "id", id: value! };
  if (field === "retry" && /^\d+$/.test(value!)) return { kind: "retry", ms: Number(value) };
  if (field === "") return { kind: "comment", text: value! };
  return null;
}
