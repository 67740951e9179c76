/** Splits the body of an event stream (Server-Sent Events) into its messages. */
export class MessageSplitter {
  readonly #decoder = new TextDecoder();
  #rest = "";

  /** The begun message that the stream has not ended yet; empty between two messages. */
  get rest(): string {
    return this.#rest;
  }

  /** Takes the next chunk, and returns the messages that it completes, without the empty line at their end. */
  split(chunk: Uint8Array): string[] {
    const messages = (this.#rest + this.#decoder.decode(chunk, { stream: true })).split("\n\n");
    this.#rest = messages.pop()!;
    return messages;
  }
}
