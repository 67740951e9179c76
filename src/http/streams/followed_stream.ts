import type { Follower } from "../../events/follower.ts";
import { isLastEvent, type RunEvent } from "../../event.ts";
import type { Host } from "../../host.ts";
import { type Cursor, formatCursor } from "../../journal.ts";
import { type ListFilter, matches, type RunIdentity } from "../../run.ts";
import { Encoded } from "./encoded_event.ts";
import { EventStream, type Message } from "./event_stream.ts";
import { ProgressThrottle } from "./progress_throttle.ts";

/** How a stream is sent. */
export interface FollowedStreamOptions {
  /** Which runs it shows; `null`: one run, whose row number is set as soon as it is known. */
  filter: ListFilter | null;
  /** Whether the client is sent ids of events, from which it can resume. */
  hasIds: boolean;
  /** Whether the stream counts its events from 1, so that their numbers show nothing of the events of others. */
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
 * One event stream and how far it has come: it follows the journal alone until it is up to date, and then as one of
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
  /** The place that was sent to the client, as an id. */
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

  /** Sends the client that events are missing, so that it reads again what it shows. */
  sendGap(): void {
    this.#events.send(GAP);
  }

  /** Sends an event of the journal while it catches up. */
  next(event: RunEvent): void {
    if (!this.#isOver) this.#throttle?.publish(event);
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
   * Sends the client its place, if an event was sent since the last one.
   *
   * @param message The place as it is sent: it is encoded once for all streams that receive it.
   */
  reach(place: Cursor, message: Message = placeMessage(place)): void {
    const isBehind = this.#place !== null && this.#place.position > place.position;
    // Its channel may be behind where the stream was when it came up to date: a client is never sent back.
    if (this.#hasNew && isBehind) this.#sendPlace(this.#place!);
    else if (this.#hasNew) this.#sendPlace(place, message);
    this.#hasNew = false;
    if (this.#isOver) this.endWhenRead();
  }

  #sendPlace(place: Cursor, message = placeMessage(place)): void {
    this.#place = place;
    if (this.#options.hasIds) this.#events.send(message);
  }

  /** Has come up to date: from now on it receives only what is committed after this place. */
  noteUpToDate(place: Cursor): void {
    this.#throttle?.flush();
    this.#throttle = null;
    this.#after = 2 * place.position;
    // A client that is cut off before the first event goes on from here.
    if (this.#hasNew || place.position !== this.#place?.position) this.#sendPlace(place);
    this.#hasNew = false;
  }

  /**
   * Shows that the connection lives, and how far the client has come even if nothing was for it.
   *
   * @param publishedPlace Up to where every stream that is up to date has received what is for it.
   */
  keepAlive(publishedPlace: Cursor | null): void {
    this.#events.keepAlive();
    const isUpToDate = this.#throttle === null && this.#place !== null;
    if (!isUpToDate || this.abortSignal.aborted) return;
    const isFurther = publishedPlace !== null && publishedPlace.position > this.#place!.position;
    this.#sendPlace(isFurther ? publishedPlace : this.#place!);
  }

  /** Whether much of what was sent waits for its reader. */
  get isSlow(): boolean {
    return this.#events.isSlow;
  }

  /** Resolves when little of what was sent waits for its reader. */
  ready(): Promise<void> {
    return this.#events.ready();
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

/** A client's place as it is sent: a message of its own, which readers skip that look for blocks of "data: ". */
export function placeMessage(place: Cursor): Message {
  return { bytes: encoder.encode(`id: ${formatCursor(place)}\n\n`), subject: ID_SUBJECT, isTiny: true };
}
