import type { RunEvent } from "../../../src/model/event.ts";
import { checkEvent } from "./documented_answers.ts";
import { MessageSplitter } from "./message_splitter.ts";
import { readMessage } from "./stream_message.ts";

/** Reads a stream of Server-Sent Events as fast as they come. Each has to fit the OpenAPI document. */
export class EventReader implements AsyncDisposable {
  /** What was told so far. */
  readonly events: RunEvent[] = [];
  /** The comments that came so far. */
  readonly comments: string[] = [];
  /** The ids that came so far, each with the number of events before it. */
  readonly ids: { id: string; after: number }[] = [];
  /** How often it was told that events are missing. */
  gaps = 0;
  /** After how many milliseconds the client was asked to come back. */
  readonly retries: number[] = [];
  /** Resolves when the stream has ended. */
  readonly ended: Promise<void>;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  #isEnded = false;

  /** Begins to read the body of a response. */
  constructor(response: Response) {
    this.#reader = response.body!.getReader();
    this.ended = this.#read();
  }

  /** Whether the stream has ended. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** The types of what was told so far. */
  get types(): string[] {
    return this.events.map(({ type }) => type);
  }

  /** The last id that came. */
  get lastId(): string {
    return this.ids.at(-1)!.id;
  }

  /** Goes away, as a client does that closes the connection. */
  async leave(): Promise<void> {
    await this.#reader.cancel();
  }

  /** The same as {@linkcode EventReader.leave}; harmless at the end of the stream. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.leave();
  }

  async #read(): Promise<void> {
    const splitter = new MessageSplitter();
    for (let chunk = await this.#reader.read(); !chunk.done; chunk = await this.#reader.read()) {
      for (const message of splitter.split(chunk.value)) this.#take(message);
    }
    const rest = splitter.end();
    if (rest !== "") throw new Error(`The stream ended within a message: ${rest}`);
    this.#isEnded = true;
  }

  #take(text: string): void {
    const message = readMessage(text);
    if (message === null) throw new Error(`This is no message of an event stream: ${text}`);
    if (message.kind === "event") {
      checkEvent(message.event);
      this.events.push(message.event);
    } else if (message.kind === "id") this.ids.push({ id: message.id, after: this.events.length });
    else if (message.kind === "gap") this.gaps += 1;
    else if (message.kind === "retry") this.retries.push(message.ms);
    else this.comments.push(message.text);
  }
}
