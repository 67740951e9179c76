import { nextTurn } from "../model/host.ts";
import type { Cursor, JournalRow } from "../model/journal.ts";
import type { Store } from "../store/store.ts";
import { CatchUp, missingError, toPlace } from "./catch_up.ts";
import { type EventConsumer, FactEvents, type Receiver } from "./fact_events.ts";
import type { ChangeWatch } from "./change_watch.ts";
import { type RetryDeps, retryStoreCall } from "./retry_store_call.ts";

/** The dependencies of {@linkcode JournalReader}. */
interface JournalReaderDeps extends RetryDeps {
  /** The store with the journal. */
  store: Store;
  /** Reports changes, if the store does. */
  watch: ChangeWatch;
}

// A poll costs a few microseconds. A write of another process is noticed after half of this interval on average.
const LOOK_EVERY_MS = 20;
// While the store reports changes: a report can be missing.
const LOOK_EVERY_WHEN_LIVE_MS = 1_000;
// How many characters of facts are read at once.
const PAGE_LENGTH = 262_144;

/**
 * Reads the journal of the store, once for all consumers. While there are consumers, it reads whenever this engine
 * publishes an event. For commits of other processes it reads whenever the store reports a change, or else every 20 ms.
 * So all processes send the same events in the same order.
 */
export class JournalReader {
  readonly #deps: JournalReaderDeps;
  readonly #events: FactEvents;
  readonly #catchUp: CatchUp;
  readonly #ofRuns = new Map<number, Set<Receiver>>();
  readonly #ofLists = new Set<Receiver>();
  readonly #catchingUp = new Set<EventConsumer>();
  /** The listeners for facts of a run, by its row number. */
  readonly #touched = new Map<number, () => void>();
  /** The current reading; `null` without consumers. */
  #reading: Reading | null = null;

  constructor(deps: JournalReaderDeps) {
    this.#deps = deps;
    const events = this.#events = new FactEvents(deps);
    const read = (place: Cursor, abortSignal: AbortSignal) => this.#read(place, abortSignal);
    this.#catchUp = new CatchUp({ read, events, livePlace: () => this.readPlace, host: deps.host });
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
    abortSignal.addEventListener("abort", () => this.#catchingUp.delete(consumer), { once: true });
    try {
      const place = await retryStoreCall(begin, this.#deps, abortSignal);
      this.#catchUp.add(consumer, place, (reached) => {
        this.#catchingUp.delete(consumer);
        attach(reached);
      });
    } catch (error) {
      if (!abortSignal.aborted) consumer.end(error);
    }
  }

  /** Publishes everything after a position to a consumer, until the returned function is called. */
  attach(consumer: EventConsumer, place: Cursor): () => void {
    const attached = { consumer, after: place.position, isPaused: false };
    const siblings = this.#siblingsOf(consumer);
    siblings.add(attached);
    if (this.#reading === null) this.#begin(place);
    return () => {
      if (!siblings.delete(attached)) return;
      if (consumer.runSeq !== null && siblings.size === 0) this.#ofRuns.delete(consumer.runSeq);
      this.#stopIfUnused();
    };
  }

  /**
   * Calls back after commits with facts of a run that come after a position, until the returned function is called: one
   * listener for each run.
   */
  onFacts(runSeq: number, place: Cursor, listener: () => void): () => void {
    this.#touched.set(runSeq, listener);
    if (this.#reading === null) this.#begin(place);
    return () => {
      this.#touched.delete(runSeq);
      this.#stopIfUnused();
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

  #stopIfUnused(): void {
    if (this.#ofRuns.size + this.#ofLists.size + this.#touched.size === 0) this.#stop();
  }

  #siblingsOf({ runSeq }: EventConsumer): Set<Receiver> {
    if (runSeq === null) return this.#ofLists;
    const siblings = this.#ofRuns.get(runSeq) ?? new Set();
    this.#ofRuns.set(runSeq, siblings);
    return siblings;
  }

  *#attached(): Iterable<Receiver> {
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
      if (page === null) {
        await this.#skipGap(reading, abortSignal);
        continue;
      }
      const last = page.rows.at(-1);
      if (last === undefined) return;
      // A consumer that is catching up reads these rows, too, before it is attached.
      reading.place = toPlace(last);
      this.#notifyTouched(page.rows);
      const receivers = { ofRun: (seq: number) => this.#ofRuns.get(seq) ?? [], ofLists: this.#ofLists };
      await this.#events.publish(page.rows, receivers, () => nextTurn(this.#deps.host), abortSignal);
      if (abortSignal.aborted) return;
      reading.publishedPlace = toPlace(last);
      if (last.position >= page.end.position) return;
      await nextTurn(this.#deps.host);
    }
  }

  /** Rows are missing: consumers of events end, and listeners for facts read all there is. */
  async #skipGap(reading: Reading, abortSignal: AbortSignal): Promise<void> {
    this.endAll(missingError());
    if (abortSignal.aborted) return;
    const end = await retryStoreCall(() => this.#deps.store.findCursor(null), this.#deps, abortSignal);
    reading.place = end ?? reading.place;
    for (const listener of [...this.#touched.values()]) listener();
  }

  #notifyTouched(rows: readonly JournalRow[]): void {
    if (this.#touched.size === 0) return;
    const seqs = new Set(rows.flatMap(({ facts }) => facts.map(([seq]) => seq)));
    for (const [seq, listener] of [...this.#touched]) if (seqs.has(seq)) listener();
  }

  #read({ position, at }: Cursor, abortSignal: AbortSignal) {
    return retryStoreCall(() => this.#deps.store.readJournal(position, PAGE_LENGTH, at), this.#deps, abortSignal);
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
  #stopListening: (() => void)[] = [];

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
    const { hub, watch } = this.#deps;
    this.#stopListening = [hub.onActivity(() => this.#lookSoon()), watch.on(() => this.#lookSoon())];
    this.#lookSoon();
  }

  stop(): void {
    this.#stopping.abort();
    for (const stop of this.#stopListening) stop();
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
    if (signal.aborted) return;
    const { host, watch } = this.#deps;
    const ms = watch.isLive ? LOOK_EVERY_WHEN_LIVE_MS : LOOK_EVERY_MS;
    this.#cancelTimer = host.schedule(ms, () => this.look());
  }
}
