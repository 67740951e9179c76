import { StoreError } from "../error.ts";
import type { Cursor, JournalRow } from "../journal.ts";
import type { Store } from "../store.ts";
import { FactEvents } from "./fact_events.ts";
import type { EventConsumer } from "./event_consumer.ts";
import { type RetryDeps, retryStoreCall } from "./retry_store_call.ts";

/** The dependencies of {@linkcode JournalReader}. */
export interface JournalReaderDeps extends RetryDeps {
  /** Ensures that the store's tables exist. */
  migrate(): Promise<void>;
  /** The store with the journal. */
  store: Store;
}

/** A consumer that is up to date, and its position: earlier rows are not sent to it. */
interface Attached {
  consumer: EventConsumer;
  after: number;
}

// A poll costs a few microseconds. A write of another process is noticed after half of this interval on average.
const LOOK_EVERY_MS = 20;
// How many characters of facts are read at once.
const PAGE_LENGTH = 262_144;

/**
 * Reads the journal of the store, once for all consumers. While there are consumers, it reads whenever this engine
 * publishes an event, and every 20 ms for commits of other processes. So all processes send the same events in the same
 * order.
 */
export class JournalReader {
  readonly #deps: JournalReaderDeps;
  readonly #events: FactEvents;
  readonly #ofRuns = new Map<number, Set<Attached>>();
  readonly #ofLists = new Set<Attached>();
  readonly #catchingUp = new Set<EventConsumer>();
  /** The current reading; `null` without consumers. */
  #reading: Reading | null = null;

  constructor(deps: JournalReaderDeps) {
    this.#deps = deps;
    this.#events = new FactEvents(deps);
  }

  /**
   * The position that it has read up to: a consumer that is attached now receives everything after it. `null` without
   * consumers.
   */
  get readPlace(): Cursor | null {
    return this.#reading?.place ?? null;
  }

  /** The position up to which its consumers have received everything; `null` without consumers. */
  get publishedPlace(): Cursor | null {
    return this.#reading?.publishedPlace ?? null;
  }

  /**
   * Publishes everything after a position to a consumer until it is up to date, and then calls `attach`: for later
   * commits the consumer needs {@linkcode JournalReader.attach}. If rows of the journal are missing, or a call fails,
   * the consumer ends with an error.
   *
   * @param begin Publishes the state with which the consumer begins, and returns its position in the journal. It is
   * called again if the store does not answer, so it must read first and then publish.
   * @param attach Called with the consumer's position when there is nothing after it.
   */
  async catchUp(
    consumer: EventConsumer,
    begin: () => Promise<Cursor>,
    attach: (place: Cursor) => void,
  ): Promise<void> {
    const { abortSignal } = consumer;
    this.#catchingUp.add(consumer);
    try {
      await this.#deps.migrate();
      let place = await retryStoreCall(begin, this.#deps, abortSignal);
      while (!abortSignal.aborted) {
        if (this.#reading !== null && place.position >= this.#reading.place.position) return attach(place);
        const page = await this.#read(place, abortSignal);
        if (abortSignal.aborted) return;
        if (page === null) return consumer.end(missingError());
        if (page.rows.length === 0 && this.#reading === null) return attach(place);
        const receiver = { consumer, after: place.position };
        await this.#events.publish(page.rows, receiversOf([receiver]), () => consumer.ready(), abortSignal);
        place = toPlace(page.rows.at(-1) ?? place);
        // Lets the event loop turn, since a long journal may have nothing for this consumer. If there were no rows,
        // another consumer was attached during the read: the next round compares with the position of that reading.
        if (page.rows.length === 0 || place.position < page.end.position) await this.#breathe();
      }
    } catch (error) {
      if (!abortSignal.aborted) consumer.end(error);
    } finally {
      this.#catchingUp.delete(consumer);
    }
  }

  /** Publishes everything after a position to a consumer, until the returned function is called. */
  attach(consumer: EventConsumer, place: Cursor): () => void {
    const attached = { consumer, after: place.position };
    const siblings = this.#siblingsOf(consumer);
    siblings.add(attached);
    if (this.#reading === null) this.#begin(place);
    return () => {
      if (!siblings.delete(attached)) return;
      if (consumer.runSeq !== null && siblings.size === 0) this.#ofRuns.delete(consumer.runSeq);
      if (this.#ofRuns.size + this.#ofLists.size === 0) this.#stop();
    };
  }

  /** Publishes everything committed so far to the attached consumers. */
  async publishAll(): Promise<void> {
    await this.#reading?.look();
  }

  /** Ends all consumers. */
  endAll(error?: unknown): void {
    const attached = [...this.#attached()].map(({ consumer }) => consumer);
    for (const consumer of [...attached, ...this.#catchingUp]) consumer.end(error);
  }

  #siblingsOf({ runSeq }: EventConsumer): Set<Attached> {
    if (runSeq === null) return this.#ofLists;
    const siblings = this.#ofRuns.get(runSeq) ?? new Set();
    this.#ofRuns.set(runSeq, siblings);
    return siblings;
  }

  *#attached(): Iterable<Attached> {
    yield* this.#ofLists;
    for (const siblings of this.#ofRuns.values()) yield* siblings;
  }

  #begin(place: Cursor): void {
    const reading: Reading = new Reading(place, this.#deps, {
      look: (abortSignal) => this.#readOn(reading, abortSignal),
      onError: (error) => this.endAll(error),
    });
    this.#reading = reading;
    reading.start();
  }

  #stop(): void {
    this.#reading?.stop();
    this.#reading = null;
  }

  /** Reads and publishes new commits. */
  async #readOn(reading: Reading, abortSignal: AbortSignal): Promise<void> {
    while (!abortSignal.aborted) {
      const page = await this.#read(reading.place, abortSignal);
      if (abortSignal.aborted) return;
      if (page === null) return this.endAll(missingError());
      const last = page.rows.at(-1);
      if (last === undefined) return;
      // A consumer that is catching up reads these rows, too, before it is attached.
      reading.place = toPlace(last);
      const receivers = { ofRun: (seq: number) => this.#ofRuns.get(seq) ?? [], ofLists: this.#ofLists };
      await this.#events.publish(page.rows, receivers, () => this.#breathe(), abortSignal);
      if (abortSignal.aborted) return;
      reading.publishedPlace = toPlace(last);
      if (last.position >= page.end.position) return;
      await this.#breathe();
    }
  }

  #read({ position, at }: Cursor, abortSignal: AbortSignal) {
    return retryStoreCall(() => this.#deps.store.readJournal(position, PAGE_LENGTH, at), this.#deps, abortSignal);
  }

  #breathe(): Promise<void> {
    return new Promise((resolve) => this.#deps.host.defer(resolve));
  }
}

/** Reads whenever there may be something new, one read at a time, while there are consumers. */
class Reading {
  /** The position up to which rows were read. */
  place: Cursor;
  /** The position up to which the consumers have received them. */
  publishedPlace: Cursor;
  readonly #deps: JournalReaderDeps;
  readonly #look: (abortSignal: AbortSignal) => Promise<void>;
  readonly #onError: (error: unknown) => void;
  readonly #stopping = new AbortController();
  /** Whether a read has been asked for that has not begun. */
  #isDue = false;
  #reads: Promise<void> = Promise.resolve();
  #cancelTimer: () => void = () => {};
  #stopListening: () => void = () => {};

  constructor(
    place: Cursor,
    deps: JournalReaderDeps,
    { look, onError }: { look: (abortSignal: AbortSignal) => Promise<void>; onError: (error: unknown) => void },
  ) {
    this.place = place;
    this.publishedPlace = place;
    this.#deps = deps;
    this.#look = look;
    this.#onError = onError;
  }

  start(): void {
    this.#stopListening = this.#deps.hub.onActivity(() => this.#lookSoon());
    this.#lookSoon();
  }

  stop(): void {
    this.#stopping.abort();
    this.#stopListening();
    this.#cancelTimer();
  }

  /** Reads once for events that are published together. */
  #lookSoon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    this.#deps.host.defer(() => this.look());
  }

  /** Reads as soon as the reads that have begun are over. */
  look(): Promise<void> {
    return this.#reads = this.#reads.then(() => this.#lookNow());
  }

  async #lookNow(): Promise<void> {
    const { signal } = this.#stopping;
    if (signal.aborted) return;
    this.#isDue = false;
    this.#cancelTimer();
    try {
      await this.#look(signal);
    } catch (error) {
      if (!signal.aborted) this.#onError(error);
    }
    if (!signal.aborted) this.#cancelTimer = this.#deps.host.schedule(LOOK_EVERY_MS, () => this.look());
  }
}

function receiversOf(attached: Attached[]) {
  return {
    ofRun: (seq: number) => attached.filter(({ consumer }) => consumer.runSeq === seq),
    ofLists: attached.filter(({ consumer }) => consumer.runSeq === null),
  };
}

function toPlace({ position, at }: JournalRow | Cursor): Cursor {
  return { position, at };
}

function missingError(): StoreError {
  return new StoreError(
    "The journal no longer has all events since that position: subscribe again",
  );
}
