/** Splits the body of an event stream (Server-Sent Events) into its messages. */
export class MessageSplitter {
  readonly #decoder = new TextDecoder();
  #rest = "";

  /** Takes the next chunk, and returns the messages that it completes, without the empty line at their end. */
  split(chunk: Uint8Array): string[] {
    const messages = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n\n");
    this.#rest = messages.pop()!;
    return messages;
  }

  /** Ends the stream, and returns the message that it did not end; empty if it ended between two messages. */
  end(): string {
    return this.#rest + this.#decoder.decode();
  }
}
