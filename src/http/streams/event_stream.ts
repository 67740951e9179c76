import { PROTECTIVE_HEADERS } from "../response.ts";
import { isLastEvent, type RunEvent } from "../../model/event.ts";

// The maximum number of buffered bytes; beyond it the stream ends, and the client reconnects. A single larger message is
// buffered behind a few small ones, so that every client can receive it.
const MAX_QUEUED_BYTES = 262_144;
// A reader with more buffered bytes is slow: superseded messages are dropped for it.
const MANY_QUEUED_BYTES = 16_384;
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

/** A message for a reader. */
export interface Message {
  /** The encoded message. */
  bytes: Uint8Array;
  /** It supersedes earlier unsent messages of the same subject; `null`: none. */
  subject: string | null;
  /** Whether it is sent regardless of the buffer: it is small, and the next one supersedes it. */
  isTiny?: boolean;
}

/**
 * A stream of Server-Sent Events to one reader (WHATWG HTML, section 9.2). It never blocks, and its buffer is
 * bounded: for a slow reader superseded messages are dropped first, and then the stream ends.
 */
export class EventStream {
  readonly #body: ReadableStream<Uint8Array>;
  readonly #queue = new Set<Message>();
  readonly #bySubject = new Map<string, Message>();
  readonly #onClose: () => void;
  #controller!: ReadableStreamDefaultController<Uint8Array>; // set by start(), which is called at once
  #queuedBytes = 0;
  /** Whether the reader waits for data. */
  #isWanted = false;
  #isEnding = false;
  #isOverdue = false;
  #isClosed = false;
  #drained: PromiseWithResolvers<void> | null = null;

  /** @param onClose Called once, when the stream has ended for any reason. */
  constructor(onClose: () => void) {
    this.#onClose = onClose;
    this.#body = new ReadableStream({
      start: (controller) => void (this.#controller = controller),
      pull: () => this.#pull(),
      cancel: () => this.#noteClosed(),
    }, { highWaterMark: 0 });
  }

  /** The response that carries the stream. */
  toResponse(): Response {
    return streamResponse(this.#body);
  }

  /** Sends a message as soon as the reader asks for data, in one chunk with messages that follow at once. */
  send(message: Message): void {
    if (this.#isClosed || this.#isEnding) return;
    if (!this.#isWanted) {
      this.#dropSuperseded(message);
      if (!this.#hasRoom(message.bytes.length) && !message.isTiny) return this.close();
    } else if (this.#queue.size === 0) queueMicrotask(() => this.#flush());
    this.#enqueue(message);
  }

  /**
   * Sends a comment to keep the connection alive, unless data is buffered. After the end of the stream it is a
   * timeout: at the second call the rest is dropped if it is still unread.
   */
  keepAlive(): void {
    if (this.#isOverdue) this.close();
    else if (this.#isEnding) this.#isOverdue = true;
    else if (this.#queue.size === 0) this.send({ bytes: KEEP_ALIVE, subject: null });
  }

  /**
   * Resolves when the reader has received what is buffered, or the stream has ended; `null`: that is not much, and there
   * is room for so many bytes more.
   */
  ready(bytes = 0): Promise<void> | null {
    if (this.#isClosed || (this.#queuedBytes < MAX_QUEUED_BYTES / 2 && this.#hasRoom(bytes))) return null;
    this.#drained ??= Promise.withResolvers();
    return this.#drained.promise;
  }

  /** Ends the stream after everything was read. */
  end(): void {
    this.#isEnding = true;
    if (this.#queue.size === 0) this.close();
  }

  /** Ends the stream now. A waiting reader still receives what was sent. */
  close(): void {
    if (this.#isClosed) return;
    this.#flush();
    this.#noteClosed();
    this.#controller.close();
  }

  #hasRoom(bytes: number): boolean {
    return this.#queuedBytes + bytes <= MAX_QUEUED_BYTES || this.#queuedBytes < MANY_QUEUED_BYTES;
  }

  #dropSuperseded({ subject }: Message): void {
    if (this.#queuedBytes < MANY_QUEUED_BYTES) return;
    const superseded = subject === null ? undefined : this.#bySubject.get(subject);
    if (superseded === undefined || !this.#queue.delete(superseded)) return;
    this.#queuedBytes -= superseded.bytes.length;
  }

  #enqueue(message: Message): void {
    if (message.subject !== null) this.#bySubject.set(message.subject, message);
    this.#queue.add(message);
    this.#queuedBytes += message.bytes.length;
  }

  #pull(): void {
    this.#isWanted = true;
    this.#flush();
  }

  /** Passes buffered messages to the reader, if it waits for data. */
  #flush(): void {
    if (this.#isClosed || !this.#isWanted || this.#queue.size === 0) return;
    this.#isWanted = false;
    const bytes = join([...this.#queue], this.#queuedBytes);
    this.#clear(); // before the reader receives it and asks for more
    this.#controller.enqueue(bytes);
    if (this.#isEnding) this.close();
  }

  #clear(): void {
    this.#queue.clear();
    this.#bySubject.clear();
    this.#queuedBytes = 0;
    this.#drained?.resolve();
    this.#drained = null;
  }

  #noteClosed(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#clear();
    this.#onClose();
  }
}

/** The stream of an engine that has stopped: it asks the client to come back soon (`retry`), and ends. */
export function endedStream(): Response {
  return streamResponse("retry: 1000\n\n");
}

function streamResponse(body: ReadableStream<Uint8Array> | string): Response {
  return new Response(body, {
    headers: {
      "content-type": "text/event-stream",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      ...PROTECTIVE_HEADERS,
    },
  });
}

// Many streams share the chunk of an event and its id.
const joinedPairs = new WeakMap<Message, { second: Message; bytes: Uint8Array }>();

function join(messages: readonly Message[], length: number): Uint8Array {
  const [first, second] = messages as [Message, Message?]; // there is at least one
  if (second === undefined) return first.bytes;
  const known = joinedPairs.get(first);
  if (messages.length === 2 && known?.second === second) return known.bytes;
  const joined = new Uint8Array(length);
  let at = 0;
  for (const { bytes } of messages) {
    joined.set(bytes, at);
    at += bytes.length;
  }
  if (messages.length === 2) joinedPairs.set(first, { second, bytes: joined });
  return joined;
}

const encoder = new TextEncoder();
// Comes before the last event of a run: an `EventSource` would come back after three seconds, for nothing.
const STAY_AWAY = "retry: 86400000\n\n";

/** The fields of an event that are sent. */
type ShownEvent = Pick<RunEvent, "type" | "runId" | "sequence">;

const listed = new WeakMap<RunEvent, EncodedEvent>();
const ofRuns = new WeakMap<RunEvent, EncodedEvent>();

/**
 * The encoded event that all streams share.
 *
 * @param options.isListed Whether it is for streams of several runs.
 */
export function encodedOf(event: RunEvent, { isListed }: { isListed: boolean }): EncodedEvent {
  const known = isListed ? listed : ofRuns;
  const encoded = known.get(event) ?? new EncodedEvent(event, { isListed });
  known.set(event, encoded);
  return encoded;
}

/** An event that is encoded once for all streams, except for its number, and only if a stream sends it. */
export class EncodedEvent {
  /** The event; its `sequence` is its number in the journal. */
  readonly event: RunEvent;
  readonly #isListed: boolean;
  #head: Uint8Array | null = null;
  #latest: { number: number; message: Message } | null = null;

  /** @param options.isListed Whether it is for streams of several runs, which do not show the input of runs. */
  constructor(event: RunEvent, { isListed }: { isListed: boolean }) {
    this.event = event;
    this.#isListed = isListed;
  }

  /** The encoded event with a number. */
  numbered(number: number): Message {
    if (this.#latest?.number === number) return this.#latest.message;
    const head = this.#head ??= this.#encodeHead();
    const tail = encoder.encode(`${number}}\n\n`);
    const bytes = new Uint8Array(head.length + tail.length);
    bytes.set(head);
    bytes.set(tail, head.length);
    const message = { bytes, subject: this.event.type === "run:progress" ? this.event.runId : null };
    this.#latest = { number, message };
    return message;
  }

  #encodeHead(): Uint8Array {
    const { sequence: _number, ...shown } = this.#isListed ? withoutInputs(this.event) : this.event;
    const before = !this.#isListed && isLastEvent(this.event) ? STAY_AWAY : "";
    return encoder.encode(`${before}data: ${JSON.stringify(shown).slice(0, -1)},"sequence":`);
  }
}

/** An event for streams of several runs, which do not show the input of runs. */
function withoutInputs(event: RunEvent): ShownEvent {
  switch (event.type) {
    case "run:trigger": {
      const { input: _input, ...shown } = event;
      return shown;
    }
    case "run:coalesced": {
      const { skippedInput: _input, skippedLabels: _labels, ...shown } = event;
      return shown;
    }
    default:
      return event;
  }
}
