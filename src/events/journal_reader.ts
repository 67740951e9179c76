import { StoreError } from "../error.ts";
import type { Cursor, JournalRow } from "../journal.ts";
import type { Store } from "../store.ts";
import { FactEvents } from "./fact_events.ts";
import type { Follower } from "./follower.ts";
import { type RetryDeps, retryStoreCall } from "./retry_store_call.ts";

/** What {@linkcode JournalReader} works with. */
export interface JournalReaderDeps extends RetryDeps {
  /** Makes sure that the store has its tables. */
  migrate(): Promise<void>;
  /** Keeps the journal. */
  store: Store;
}

/** A follower that is up to date, and up to where: the rows until there are not for it. */
interface Attached {
  follower: Follower;
  after: number;
}

// A look costs a few microseconds, and what another process has written is noticed after half of this on average.
const LOOK_EVERY_MS = 20;
// How many characters of facts are read at once.
const PAGE_LENGTH = 262_144;

/**
 * Reads the journal of the store while somebody follows, once for all followers: after each call of this engine that was
 * answered, and every 20 ms for what other processes commit. So all processes publish the same events in the same order.
 */
export class JournalReader {
  readonly #deps: JournalReaderDeps;
  readonly #events: FactEvents;
  readonly #ofRuns = new Map<number, Set<Attached>>();
  readonly #ofLists = new Set<Attached>();
  readonly #catchingUp = new Set<Follower>();
  /** The reading that is under way; `null` while nobody follows. */
  #reading: Reading | null = null;

  /** Reads nothing yet. */
  constructor(deps: JournalReaderDeps) {
    this.#deps = deps;
    this.#events = new FactEvents(deps);
  }

  /** Up to where it has read: who is attached now receives everything after it. `null` while nobody follows. */
  get readPlace(): Cursor | null {
    return this.#reading?.place ?? null;
  }

  /** Up to where its followers have received everything; `null` while nobody follows. */
  get publishedPlace(): Cursor | null {
    return this.#reading?.publishedPlace ?? null;
  }

  /**
   * Publishes to a follower what comes after a place, and then lets it be attached: what is committed from then on is for
   * {@linkcode JournalReader.attach}. A journal in which some of it is missing ends the follower, and so does an error.
   *
   * @param begin Publishes the state with which the follower begins, and answers its place in the journal. Is called again
   * if the store did not answer it: so it publishes after it has asked.
   * @param attach Is called with where the follower has come; in the same moment everything after that is new.
   */
  async catchUp(
    follower: Follower,
    begin: () => Promise<Cursor>,
    attach: (place: Cursor) => void,
  ): Promise<void> {
    const { abortSignal } = follower;
    this.#catchingUp.add(follower);
    try {
      await this.#deps.migrate();
      let place = await retryStoreCall(begin, this.#deps, abortSignal);
      while (!abortSignal.aborted) {
        if (this.#reading !== null && place.position >= this.#reading.place.position) return attach(place);
        const page = await this.#read(place, abortSignal);
        if (abortSignal.aborted) return;
        if (page === null) return follower.end(missingError());
        if (page.rows.length === 0 && this.#reading === null) return attach(place);
        const receiver = { follower, after: place.position };
        await this.#events.publish(page.rows, receiversOf([receiver]), () => follower.ready(), abortSignal);
        place = toPlace(page.rows.at(-1) ?? place);
        // Nothing of a long journal may be for the follower. If no rows came, another one was attached meanwhile.
        if (page.rows.length === 0 || place.position < page.end.position) await this.#breathe();
      }
    } catch (error) {
      if (!abortSignal.aborted) follower.end(error as Error);
    } finally {
      this.#catchingUp.delete(follower);
    }
  }

  /** Publishes to a follower what comes after a place, until the returned function is called. */
  attach(follower: Follower, place: Cursor): () => void {
    const attached = { follower, after: place.position };
    const siblings = this.#siblingsOf(follower);
    siblings.add(attached);
    if (this.#reading === null) this.#begin(place);
    return () => {
      if (!siblings.delete(attached)) return;
      if (follower.runSeq !== null && siblings.size === 0) this.#ofRuns.delete(follower.runSeq);
      if (this.#ofRuns.size + this.#ofLists.size === 0) this.#stop();
    };
  }

  /** Publishes what is committed by now to those who are attached. */
  async publishAll(): Promise<void> {
    await this.#reading?.lookOnce();
  }

  /** Ends all followers. */
  endAll(error?: Error): void {
    const attached = [...this.#attached()].map(({ follower }) => follower);
    for (const follower of [...attached, ...this.#catchingUp]) follower.end(error);
  }

  #siblingsOf({ runSeq }: Follower): Set<Attached> {
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

  /** Reads and publishes what was committed since. */
  async #readOn(reading: Reading, abortSignal: AbortSignal): Promise<void> {
    while (!abortSignal.aborted) {
      const page = await this.#read(reading.place, abortSignal);
      if (abortSignal.aborted) return;
      if (page === null) return this.endAll(missingError());
      const last = page.rows.at(-1);
      if (last === undefined) return;
      // A follower that catches up meanwhile reads these rows, too, before it is attached.
      reading.place = toPlace(last);
      const receivers = { ofRun: (seq: number) => this.#ofRuns.get(seq) ?? [], ofLists: this.#ofLists };
      await this.#events.publish(page.rows, receivers, () => this.#breathe(), abortSignal);
      if (abortSignal.aborted) return;
      reading.publishedPlace = toPlace(last);
      if (last.position >= page.end.position) return;
      await this.#breathe();
    }
  }

  #read({ position }: Cursor, abortSignal: AbortSignal) {
    return retryStoreCall(() => this.#deps.store.readJournal(position, PAGE_LENGTH), this.#deps, abortSignal);
  }

  #breathe(): Promise<void> {
    return new Promise((resolve) => this.#deps.host.defer(resolve));
  }
}

/** Reads whenever there may be something new, one look at a time, from the first follower to the last. */
class Reading {
  /** Up to where rows were taken: those who are attached receive them. */
  place: Cursor;
  /** Up to where they have received them. */
  publishedPlace: Cursor;
  readonly #deps: JournalReaderDeps;
  readonly #look: (abortSignal: AbortSignal) => Promise<void>;
  readonly #onError: (error: Error) => void;
  readonly #stopping = new AbortController();
  #isDeferred = false;
  #looking: Promise<void> | null = null;
  #mustLookAgain = false;
  #cancelTimer: (() => void) | null = null;
  #stopListening: () => void = () => {};

  constructor(
    place: Cursor,
    deps: JournalReaderDeps,
    { look, onError }: { look: (abortSignal: AbortSignal) => Promise<void>; onError: (error: Error) => void },
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
    this.#cancelTimer?.();
  }

  /** Events that are published together are read together. */
  #lookSoon(): void {
    if (this.#isDeferred) return;
    this.#isDeferred = true;
    this.#deps.host.defer(() => {
      this.#isDeferred = false;
      this.#lookNow();
    });
  }

  #lookNow(): void {
    this.#mustLookAgain = this.#looking !== null;
    if (this.#looking !== null || this.#stopping.signal.aborted) return;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#looking = this.#lookAndSchedule().finally(() => this.#looking = null);
  }

  async #lookAndSchedule(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await this.#look(signal);
    } catch (error) {
      if (!signal.aborted) this.#onError(error as Error);
    }
    if (signal.aborted) return;
    if (this.#mustLookAgain) this.#lookSoon();
    else this.#cancelTimer ??= this.#deps.host.schedule(LOOK_EVERY_MS, () => this.#lookNow());
  }

  /** Resolves after a look that has begun now. */
  async lookOnce(): Promise<void> {
    await this.#looking;
    this.#lookNow();
    await this.#looking;
  }
}

function receiversOf(attached: Attached[]) {
  return {
    ofRun: (seq: number) => attached.filter(({ follower }) => follower.runSeq === seq),
    ofLists: attached.filter(({ follower }) => follower.runSeq === null),
  };
}

function toPlace({ position, at }: JournalRow | Cursor): Cursor {
  return { position, at };
}

function missingError(): StoreError {
  return new StoreError("The journal no longer has all events since then: follow again from the state of the run");
}
