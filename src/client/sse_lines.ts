/**
 * Splits an event stream into the names and values of its lines (WHATWG HTML, section 9.2.6). In a stream of a service
 * each line stands alone: an event is one line of data, and the id that follows it is a message without data. It ends
 * with the stream, when the stream breaks, or when nothing has arrived for 45 seconds.
 *
 * @param onLine Called before each line.
 * @throws {RangeError} A line has more than 64 Mi characters.
 */
export async function* sseLines(
  reader: ReadableStreamDefaultReader<string>,
  onLine: () => void,
): AsyncGenerator<string[]> {
  let rest = "";
  while (true) {
    const timer = setTimeout(() => reader.cancel(), 45_000); // three keep-alives of the service
    const { value } = await reader.read().catch(() => ({} as { value: undefined })).finally(() => clearTimeout(timer));
    if (!value) return;
    rest += value;
    if (rest.length > 2 ** 26) throw new RangeError("A line is too long");
    if (!value.includes("\n")) continue; // otherwise each part of a long line would search it from its start
    const lines = rest.split(/\r?\n/);
    rest = lines.pop()!;
    for (const line of lines) {
      onLine();
      yield line.split(/: ?([^]*)/);
    }
  }
}
