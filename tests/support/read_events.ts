import type { RunEvent } from "../../src/event.ts";

/**
 * Reads Server-Sent Events from a response, one after another, and not faster than they are taken.
 *
 * @param leave Ends the reading, as a client does that closes the connection.
 */
export async function* readEvents(response: Response, leave?: AbortSignal): AsyncGenerator<RunEvent> {
  const reader = response.body!.getReader();
  leave?.addEventListener("abort", () => reader.cancel(), { once: true });
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
      text += decoder.decode(chunk.value, { stream: true });
      const messages = text.split("\n\n");
      text = messages.pop()!;
      for (const message of messages) if (!message.startsWith(":")) yield parse(message);
    }
  } finally {
    await reader.cancel();
  }
}

function parse(message: string): RunEvent {
  if (!/^data: [^\r\n]+$/.test(message)) throw new Error(`This is no message of an event stream: ${message}`);
  return JSON.parse(message.slice("data: ".length));
}
