import { PROTECTIVE_HEADERS } from "../response.ts";

// What waits for a reader who does not read may take so many bytes; then the stream ends, and the client comes back.
const MAX_QUEUED_BYTES = 262_144;
// A reader for whom more waits is slow: what is superseded is left out for it.
const MANY_QUEUED_BYTES = 16_384;
const KEEP_ALIVE = new TextEncoder().encode(": keep-alive\n\n");

/** A message on its way to a reader. */
export interface Message {
  /** What is sent. */
  bytes: Uint8Array;
  /** What it supersedes: an earlier message of the same subject need not be sent any more; `null`: nothing. */
  subject: string | null;
  /** Whether it is sent however much waits to be read: it takes few bytes, and is superseded by the next one. */
  isTiny?: boolean;
}

/**
 * A stream of Server-Sent Events to one reader (WHATWG HTML, section 9.2). It never blocks and never grows without
 * bound: of what a slow reader has not received yet, superseded messages go first, and then the whole stream.
 */
export class EventStream {
  readonly #body: ReadableStream<Uint8Array>;
  readonly #queue = new Set<Message>();
  readonly #bySubject = new Map<string, Message>();
  readonly #onClose: () => void;
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  #queuedBytes = 0;
  /** Whether the reader waits for something. */
  #isWanted = false;
  #isEnding = false;
  #isOverdue = false;
  #isClosed = false;
  #drained: PromiseWithResolvers<void> | null = null;

  /** @param onClose Is called once, however the stream ends. */
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

  /** Sends a message as soon as the reader takes it, together with what follows at once. */
  send(message: Message): void {
    if (this.#isClosed || this.#isEnding) return;
    if (!this.#isWanted) {
      this.#dropSuperseded(message);
      // Looked at before this message is added: one that is large alone reaches a reader who reads.
      if (this.#queuedBytes > MAX_QUEUED_BYTES && !message.isTiny) return this.close();
    } else if (this.#queue.size === 0) queueMicrotask(() => this.#flush());
    this.#enqueue(message);
  }

  /**
   * Shows that the connection lives, unless something waits to be read anyway. After the end of the stream it is a
   * clock instead: whoever has not read the rest until the second time is not waited for.
   */
  keepAlive(): void {
    if (this.#isOverdue) this.close();
    else if (this.#isEnding) this.#isOverdue = true;
    else if (this.#queue.size === 0) this.send({ bytes: KEEP_ALIVE, subject: null });
  }

  /** Whether much waits for the reader. */
  get isSlow(): boolean {
    return this.#queuedBytes >= MANY_QUEUED_BYTES;
  }

  /** Resolves when the reader is not slow, or has taken everything, or the stream has ended. */
  ready(): Promise<void> {
    if (this.#isClosed || !this.isSlow) return Promise.resolve();
    this.#drained ??= Promise.withResolvers();
    return this.#drained.promise;
  }

  /** Ends the stream when everything was read. */
  end(): void {
    this.#isEnding = true;
    if (this.#queue.size === 0) this.close();
  }

  /** Ends the stream now. A reader who waits still receives what was sent. */
  close(): void {
    if (this.#isClosed) return;
    this.#flush();
    this.#noteClosed();
    this.#controller.close();
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

  /** Gives the reader what was sent, if it waits for something. */
  #flush(): void {
    if (this.#isClosed || !this.#isWanted || this.#queue.size === 0) return;
    this.#isWanted = false;
    const bytes = join([...this.#queue], this.#queuedBytes);
    this.#clear(); // before the reader takes it, and asks for more
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

// An event and the id after it go to many streams alike.
const joinedPairs = new WeakMap<Message, { second: Message; bytes: Uint8Array }>();

function join(messages: readonly Message[], length: number): Uint8Array {
  const [first, second] = messages as [Message, Message?];
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
