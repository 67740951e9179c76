import type { Follower } from "../engine/follower.ts";
import { isLastEvent, type RunEvent } from "../event.ts";
import type { Host } from "../host.ts";
import { type Cursor, formatCursor } from "../journal.ts";
import { type ListFilter, matches, type RunIdentity } from "../run.ts";
import { Encoded } from "./encoded_event.ts";
import { EventStream, type Message } from "./event_stream.ts";
import { ProgressThrottle } from "./progress_throttle.ts";

/** How a stream is sent. */
export interface FollowedStreamOptions {
  /** Which runs it shows; `null`: one run, whose row number is set as soon as it is known. */
  filter: ListFilter | null;
  /** Whether the client is sent ids of events, from which it can resume. */
  hasIds: boolean;
  /** Whether events are numbered by themselves, so that the numbers tell nothing of others' events. */
  isCounted: boolean;
  /** How long progress is held back, in milliseconds; 0: not at all. */
  throttleMs: number;
  /** Time. */
  host: Host;
}

const encoder = new TextEncoder();
const ID_SUBJECT = "id";
const GAP: Message = { bytes: encoder.encode('event: gap\ndata: {"type":"gap"}\n\n'), subject: null };

/**
 * One event stream and how far it has come: it follows the journal by itself until it is up to date, and then as one of
 * the streams of a {@linkcode Channel}.
 */
export class FollowedStream implements Follower {
  /** The row number of the run; `null` for lists, and until it is known. */
  runSeq: number | null = null;
  /** Which runs it shows; `null` for one run. */
  readonly filter: ListFilter | null;
  readonly #options: FollowedStreamOptions;
  readonly #events: EventStream;
  readonly #ending = new AbortController();
  readonly #closeListeners: (() => void)[] = [];
  /** Holds progress back until the stream has come up to date; `null` from then on: the channel does it. */
  #throttle: ProgressThrottle | null;
  /** The number of the last event in the journal that the stream had when it came up to date. */
  #after = 0;
  /** The number of the last event that was sent. */
  #number = 0;
  /** What the client has been told as its place. */
  #place: Cursor | null = null;
  #hasNew = false;
  #isOver = false;
  #isClosed = false;

  /** Shows nothing yet. */
  constructor(options: FollowedStreamOptions) {
    this.#options = options;
    this.filter = options.filter;
    this.#throttle = new ProgressThrottle(options.throttleMs, options.host, (event) => this.#send(event));
    this.#events = new EventStream(() => this.#noteClosed());
  }

  /** The response that carries the stream. */
  toResponse(): Response {
    return this.#events.toResponse();
  }

  /** Fires when nothing more is sent; its reader may still read. */
  get abortSignal(): AbortSignal {
    return this.#ending.signal;
  }

  /** Calls back when it is closed. */
  onClose(listener: () => void): void {
    if (this.#isClosed) listener();
    else this.#closeListeners.push(listener);
  }

  /** Whether it shows a run, if it shows a list. */
  follows(run: RunIdentity): boolean {
    return this.filter !== null && matches(run, this.filter);
  }

  /** Tells the client that events are missing, so that it reads again what it shows. */
  sendGap(): void {
    this.#events.send(GAP);
  }

  /** Sends an event of the journal while it catches up. */
  next(event: RunEvent): void {
    if (!this.#isOver) this.#throttle?.tell(event);
  }

  #send(event: RunEvent): void {
    this.#isOver = this.filter === null && isLastEvent(event);
    this.send(new Encoded(event, { isListed: this.filter !== null }));
  }

  /** Sends an event, unless the stream has it. */
  send(event: Encoded): void {
    if (event.sequence <= this.#after) return;
    // Progress that was held back has a lower number than what was sent before it.
    const lowest = this.#number + 1;
    this.#number = this.#options.isCounted ? lowest : Math.max(event.sequence, lowest);
    this.#hasNew = true;
    this.#events.send(event.numbered(this.#number));
  }

  /**
   * Tells the client how far it has come, if something was sent since.
   *
   * @param message Says so: it is encoded once for all streams that receive it.
   */
  reach(place: Cursor, message: Message = placeMessage(place)): void {
    if (this.#hasNew) this.#sendPlace(place, message);
    if (this.#isOver) this.endWhenRead();
  }

  #sendPlace(place: Cursor, message: Message): void {
    this.#hasNew = false;
    this.#place = place;
    if (this.#options.hasIds) this.#events.send(message);
  }

  /** Has come up to date: from now on it receives only what is committed after this place. */
  noteUpToDate(place: Cursor): void {
    this.#throttle?.flush();
    this.#throttle = null;
    this.#after = 2 * place.position;
    this.#place = place;
  }

  /**
   * Shows that the connection lives, and how far the client has come even if nothing was for it.
   *
   * @param toldPlace Up to where every stream that is up to date has received what is for it.
   */
  keepAlive(toldPlace: Cursor | null): void {
    this.#events.keepAlive();
    const isUpToDate = this.#throttle === null && this.#place !== null;
    if (!isUpToDate || this.abortSignal.aborted) return;
    const isFurther = toldPlace !== null && toldPlace.position > this.#place!.position;
    const place = isFurther ? toldPlace : this.#place!;
    this.#sendPlace(place, placeMessage(place));
  }

  /** Resolves when its reader has taken what was sent. */
  ready(): Promise<void> {
    return this.#events.drained();
  }

  /** Ends the stream when everything was read. */
  endWhenRead(): void {
    this.#noteEnded();
    this.#events.end();
  }

  /** Ends it because no more events can come. */
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
  }

  #noteClosed(): void {
    this.#noteEnded();
    this.#isClosed = true;
    for (const listener of this.#closeListeners) listener();
  }
}

/** Tells clients how far they have come: a message of its own, which who reads only blocks of "data: " passes over. */
export function placeMessage(place: Cursor): Message {
  return { bytes: encoder.encode(`id: ${formatCursor(place)}\n\n`), subject: ID_SUBJECT, isTiny: true };
}
