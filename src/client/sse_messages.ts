/** The fields of a message of an event stream. One that has only an `id` sets the last id. */
export type SseMessage = { [field: string]: string | undefined };

/**
 * Splits an event stream into its messages (WHATWG HTML, section 9.2.6). A service sends the data of a message as one
 * line. It ends with the stream, or when nothing has arrived for 45 seconds.
 *
 * @throws The stream broke.
 */
export async function* sseMessages(
  reader: ReadableStreamDefaultReader<Uint8Array>,
): AsyncGenerator<SseMessage> {
  const decoder = new TextDecoder();
  let rest = "";
  while (true) {
    const timer = setTimeout(() => reader.cancel(), 45_000); // three keep-alives of the service
    const { done, value } = await reader.read().finally(() => clearTimeout(timer));
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split(/\r?\n\r?\n/);
    rest = blocks.pop()!;
    for (const block of blocks) {
      // A comment is a field without a name.
      yield Object.fromEntries(block.split(/\r?\n/).map((line) => line.split(/: ?([^]*)/)));
    }
  }
}
