import { mayAwaitChildren } from "../../events/child_progress.ts";
import type { EventConsumer } from "../../events/fact_events.ts";
import { isLastEvent, type RunEvent } from "../../model/event.ts";
import type { Host } from "../../model/host.ts";
import { type Cursor, formatCursor } from "../../model/journal.ts";
import { type ListFilter, matches, type RunIdentity } from "../../model/run.ts";
import { DigestTimer } from "./runs_digest.ts";
import { type EncodedEvent, encodedOf, EventStream, type Message } from "./event_stream.ts";
import { ProgressThrottle } from "./progress_throttle.ts";

/** Options of a stream. */
interface ClientStreamOptions {
  /** Which runs it shows; `null`: one run, whose row number is set as soon as it is known. */
  filter: ListFilter | null;
  /** Whether the client is sent ids of events, from which it can resume. */
  hasIds: boolean;
  /** Whether the stream counts its events from 1, so that the numbers reveal nothing about events of other runs. */
  isCounted: boolean;
  /** The minimum interval between two progress events of a run, in milliseconds; 0: no throttling. */
  throttleMs: number;
  /** How often it sends a summary instead of its events, in milliseconds; `null`: it sends its events. */
  digestMs: number | null;
  /** Timers. */
  host: Host;
}

const encoder = new TextEncoder();
const ID_SUBJECT = "id";
const GAP: Message = { bytes: encoder.encode('event: gap\ndata: {"type":"gap"}\n\n'), subject: null };

/**
 * One event stream and its position: it follows the journal separately until it is up to date, and then as part of a
 * {@linkcode FanOut}.
 */
export class ClientStream implements EventConsumer {
  /** The row number of the run; `null` for several runs, and until it is known. */
  runSeq: number | null = null;
  /** Whether the run may wait for children. */
  awaitsChildren = false;
  /** Which runs it shows; `null` for one run. */
  readonly filter: ListFilter | null;
  readonly #options: ClientStreamOptions;
  readonly #events: EventStream;
  readonly #ending = new AbortController();
  readonly #closeListeners: (() => void)[] = [];
  /** Throttles progress until the stream is up to date; `null` from then on: the fan-out does it. */
  #throttle: ProgressThrottle | null;
  /** Sends summaries; `null`: events are sent. */
  readonly #digest: DigestTimer | null;
  /** The position that the next summary reaches; `null`: that of the last id. */
  #reached: Cursor | null = null;
  /** The number of the journal's last event when the stream became up to date. */
  #after = 0;
  /** The number of the last event that was sent. */
  #number = 0;
  /** The cursor that was last sent to the client, as an id. */
  #place: Cursor | null = null;
  #hasNew = false;
  #isOver = false;
  #isClosed = false;

  constructor(options: ClientStreamOptions) {
    this.#options = options;
    this.filter = options.filter;
    this.#throttle = new ProgressThrottle(options.throttleMs, options.host, (event) => this.#send(event));
    this.#events = new EventStream(() => this.#noteClosed());
    const { digestMs, host } = options;
    this.#digest = digestMs === null ? null : new DigestTimer(digestMs, host, (digest) => this.#sendDigest(digest));
  }

  /** The response that carries the stream. */
  toResponse(): Response {
    return this.#events.toResponse();
  }

  /** Fires when nothing more is sent; the reader may still be reading. */
  get abortSignal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Calls back when the stream is closed. */
  onClose(listener: () => void): void {
    if (this.#isClosed) listener();
    else this.#closeListeners.push(listener);
  }

  /** Whether it shows a run, if it is a stream of several runs. */
  follows(run: RunIdentity): boolean {
    return this.filter !== null && matches(run, this.filter);
  }

  /** Sends a message that events are missing, so that the client reloads its data. */
  sendGap(): void {
    this.#events.send(GAP);
  }

  /** Sends an event of the journal while the stream catches up. */
  next(event: RunEvent): void {
    this.awaitsChildren = mayAwaitChildren(event) ?? this.awaitsChildren;
    if (!this.#isOver) this.#throttle?.publish(event);
  }

  #send(event: RunEvent): void {
    this.#isOver = this.filter === null && isLastEvent(event);
    this.send(encodedOf(event, { isListed: this.filter !== null }));
  }

  /** Sends an event, or adds it to the next summary, unless that was done already. */
  send(encoded: EncodedEvent): void {
    const { event } = encoded;
    if (event.sequence <= this.#after) return;
    this.#hasNew = true;
    if (this.#digest !== null) return this.#digest.add(event);
    // Delayed progress has a lower number than events that were sent before it.
    const lowest = this.#number + 1;
    this.#number = this.#options.isCounted ? lowest : Math.max(event.sequence, lowest);
    this.#events.send(encoded.numbered(this.#number));
  }

  /** Sends a summary, and then the position that it reaches. */
  #sendDigest(digest: Message): void {
    this.#events.send(digest);
    const reached = this.#reached;
    this.#reached = null;
    if (reached !== null) this.reach(reached);
  }

  /**
   * Sends the client its cursor, if an event was sent since the last one.
   *
   * @param message The encoded cursor, shared by all streams that receive it.
   */
  reach(place: Cursor, message: Message = placeMessage(place)): void {
    if (this.#digest?.isPending) {
      this.#reached = place;
      return;
    }
    const sent = this.#place;
    // Its fan-out may be behind the stream's position: a client's cursor never goes back.
    const isBehind = sent !== null && sent.position > place.position;
    if (this.#hasNew && isBehind) this.#sendPlace(sent);
    else if (this.#hasNew) this.#sendPlace(place, message);
    this.#hasNew = false;
    if (this.#isOver) this.endWhenRead();
  }

  #sendPlace(place: Cursor, message = placeMessage(place)): void {
    this.#place = place;
    if (this.#options.hasIds) this.#events.send(message);
  }

  /** Marks the stream as up to date: from now on it receives only commits after this position. */
  noteUpToDate(place: Cursor): void {
    this.#throttle?.flush();
    this.#throttle = null;
    this.#digest?.flush();
    this.#after = 2 * place.position;
    // A client that disconnects before the first event resumes from here.
    if (this.#hasNew || place.position !== this.#place?.position) this.#sendPlace(place);
    this.#hasNew = false;
  }

  /**
   * Keeps the connection alive, and sends the client its cursor even without events.
   *
   * @param publishedPlace The position up to which all up-to-date streams have received their events.
   */
  keepAlive(publishedPlace: Cursor | null): void {
    this.#events.keepAlive();
    const sent = this.#place;
    if (this.#throttle !== null || sent === null || this.abortSignal.aborted) return; // it is not up to date, or over
    // A client resumes after its last id, so an id must not come before the summary of the events before it.
    const mayGoOn = publishedPlace !== null && !this.#digest?.isPending;
    const isFurther = mayGoOn && publishedPlace.position > sent.position;
    this.#sendPlace(isFurther ? publishedPlace : sent);
  }

  /** Resolves when its reader has received what is buffered; `null`: there is room for so many bytes more. */
  ready(bytes = 0): Promise<void> | null {
    return this.#events.ready(bytes);
  }

  /** Ends the stream after everything was read. */
  endWhenRead(): void {
    this.#noteEnded();
    this.#events.end();
  }

  /** Ends the stream because there can be no more events. */
  end(): void {
    this.close();
  }

  /** Ends the stream now. */
  close(): void {
    this.#events.close();
  }

  #noteEnded(): void {
    this.#ending.abort();
    this.#throttle?.stop();
    this.#digest?.stop();
  }

  #noteClosed(): void {
    this.#noteEnded();
    this.#isClosed = true;
    for (const listener of this.#closeListeners) listener();
  }
}

/** Encodes a client's cursor as a separate message, which readers that look for "data: " blocks skip. */
export function placeMessage(place: Cursor): Message {
  return { bytes: encoder.encode(`id: ${formatCursor(place)}\n\n`), subject: ID_SUBJECT, isTiny: true };
}
