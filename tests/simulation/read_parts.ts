import { MessageSplitter } from "../support/http/message_splitter.ts";

/**
 * Reads the messages of an event stream: those that come at once, together, and not faster than they are taken.
 *
 * @param leave Ends the reading, as a client does that closes the connection.
 */
export async function* readParts(response: Response, leave: AbortSignal): AsyncGenerator<string[]> {
  const reader = response.body!.getReader();
  const cancel = () => reader.cancel();
  leave.addEventListener("abort", cancel, { once: true });
  const splitter = new MessageSplitter();
  try {
    for (let chunk = await reader.read(); !chunk.done && !leave.aborted; chunk = await reader.read()) {
      yield splitter.split(chunk.value);
    }
  } finally {
    leave.removeEventListener("abort", cancel);
    await reader.cancel();
  }
}
