import { NotFoundError } from "../model/error.ts";
import { formatPlace, STREAM_START, type StreamPart, type StreamPlace } from "../model/stream.ts";
import type { Json } from "../values/json.ts";
import type { Store } from "../store/store.ts";
import type { StreamText } from "../store/run_query.ts";
import type { JournalReader } from "./journal_reader.ts";
import { type RetryDeps, retryStoreCall } from "./retry_store_call.ts";

// About how many bytes of items a part has.
const PART_LENGTH = 65_536;

/** How a stream is read. */
interface ReadOptions {
  /** The place of a part; `null`: from the beginning. */
  after: StreamPlace | null;
  /** Whether to wait for what comes. */
  follow: boolean;
}

/** The items of a stream from a place on, for one reader. */
export interface StreamReading {
  /**
   * What the store has behind the place, once that is something new: items, that the items before the place do not count
   * any more, or the end of the run. `null`: it was stopped, the run was deleted, or there is nothing and it does not
   * follow.
   *
   * @throws {NotFoundError} There is no such run.
   */
  nextText(): Promise<StreamText | null>;
  /** The next part; `null` at the end. */
  next(): Promise<StreamPart<Json> | null>;
  /** Where it goes on. */
  place: StreamPlace;
  /** Ends it: a pending call answers `null`. */
  stop(): void;
}

/** A run that readers follow: what wakes them, and what they read together. */
interface FollowedRun {
  readings: Set<Reading>;
  /** Counts the commits that were noticed. */
  version: number;
  /** The reads that are under way, by what they read. */
  reads: Map<string, Promise<StreamText | null>>;
  stop: () => void;
}

/**
 * Reads streams of items. All readers of a run in this process share one listener to its facts, and those of one
 * stream that are at the same place share a read.
 */
export class StreamReader {
  readonly #deps: RetryDeps & { store: Store; journal: JournalReader };
  readonly #runs = new Map<string, FollowedRun>();

  constructor(deps: RetryDeps & { store: Store; journal: JournalReader }) {
    this.#deps = deps;
  }

  /** The parts of a stream. An unknown run makes it fail with a `NotFoundError`. */
  read(runId: string, stream: string, options: ReadOptions): ReadableStream<StreamPart<Json>> {
    const reading = this.begin(runId, stream, options);
    return new ReadableStream({
      pull: async (controller) => {
        try {
          const part = await reading.next();
          if (part !== null) return controller.enqueue(part);
          controller.close();
        } catch (error) {
          controller.error(error);
        }
        reading.stop();
      },
      cancel: () => reading.stop(),
    }, { highWaterMark: 0 });
  }

  /** Begins to read a stream. */
  begin(runId: string, stream: string, { after, follow }: ReadOptions): StreamReading {
    return new Reading(runId, after ?? STREAM_START, {
      read: (place, version, abortSignal) => this.#read(runId, stream, place, version, abortSignal),
      follow: follow ? (reading) => this.#follow(runId, reading) : null,
    });
  }

  /** Ends all readers that follow a run. */
  endAll(): void {
    for (const { readings } of [...this.#runs.values()]) for (const reading of [...readings]) reading.stop();
  }

  async #follow(runId: string, reading: Reading): Promise<() => void> {
    const run = this.#runs.get(runId);
    if (run !== undefined) return this.#join(runId, run, reading);
    const { store, journal } = this.#deps;
    const state = await retryStoreCall(() => store.getRunState(runId), this.#deps, reading.abortSignal);
    if (state === null) return () => {};
    const other = this.#runs.get(runId);
    if (other !== undefined) return this.#join(runId, other, reading);
    const added: FollowedRun = { readings: new Set(), version: 0, reads: new Map(), stop: () => {} };
    this.#runs.set(runId, added);
    added.stop = journal.onFacts(state.seq, state.place, () => {
      added.version += 1;
      for (const one of added.readings) one.wake();
    });
    return this.#join(runId, added, reading);
  }

  #join(runId: string, run: FollowedRun, reading: Reading): () => void {
    run.readings.add(reading);
    reading.version = () => run.version;
    return () => {
      if (!run.readings.delete(reading) || run.readings.size > 0) return;
      run.stop();
      this.#runs.delete(runId);
    };
  }

  #read(
    runId: string,
    stream: string,
    { position, at }: StreamPlace,
    version: number,
    abortSignal: AbortSignal,
  ): Promise<StreamText | null> {
    const read = () => this.#deps.store.readStream(runId, stream, { position, at }, PART_LENGTH);
    const run = this.#runs.get(runId);
    if (run === undefined) return retryStoreCall(read, this.#deps, abortSignal);
    const key = `${version} ${position} ${at} ${stream}`;
    const known = run.reads.get(key);
    if (known !== undefined) return known;
    const pending = read().finally(() => run.reads.delete(key));
    run.reads.set(key, pending);
    return pending.catch(() => retryStoreCall(read, this.#deps, abortSignal));
  }
}

interface ReadingDeps {
  read: (place: StreamPlace, version: number, abortSignal: AbortSignal) => Promise<StreamText | null>;
  follow: ((reading: Reading) => Promise<() => void>) | null;
}

/** See {@linkcode StreamReading}. */
class Reading implements StreamReading {
  readonly #runId: string;
  readonly #deps: ReadingDeps;
  readonly #stopping = new AbortController();
  /** How many commits of the run were noticed. */
  version: () => number = () => 0;
  place: StreamPlace;
  #following: Promise<() => void> | null = null;
  /** Whether the run was found. */
  #isKnown = false;
  #wake: () => void = () => {};

  constructor(runId: string, place: StreamPlace, deps: ReadingDeps) {
    this.#runId = runId;
    this.place = place;
    this.#deps = deps;
  }

  get abortSignal(): AbortSignal {
    return this.#stopping.signal;
  }

  wake(): void {
    this.#wake();
  }

  stop(): void {
    if (this.abortSignal.aborted) return;
    this.#stopping.abort();
    this.#following?.then((unfollow) => unfollow(), () => {});
    this.#wake();
  }

  async nextText(): Promise<StreamText | null> {
    if (this.abortSignal.aborted) return null; // nobody would end what it follows
    if (this.#deps.follow !== null) await (this.#following ??= this.#deps.follow(this)).catch(() => {});
    while (!this.abortSignal.aborted) {
      // Before the read: a commit during it is not missed.
      const woken = new Promise<void>((resolve) => this.#wake = resolve);
      const text = await this.#read();
      if (text === undefined) break;
      if (text === null) {
        if (!this.#isKnown) throw new NotFoundError(`There is no run "${this.#runId}"`);
        break; // it was deleted
      }
      this.#isKnown = true;
      if (text.chunks.length > 0 || isCut(text, this.place) || text.isEnded) return text;
      if (this.#deps.follow === null) break;
      await woken;
    }
    return null;
  }

  async next(): Promise<StreamPart<Json> | null> {
    for (let text; (text = await this.nextText()) !== null;) {
      if (!text.isPlace) {
        // Everything is sent again. What is behind the beginning may be nothing.
        this.place = STREAM_START;
        text = await this.#read();
        if (text === undefined || text === null) return null;
        const { part, place } = fold(text, null);
        this.place = place;
        return part;
      }
      const { part, place } = fold(text, this.place);
      this.place = place;
      if (part !== null) return part;
      if (text.chunks.length === 0) return null; // the run has ended
    }
    return null;
  }

  /** `undefined`: it was stopped meanwhile. */
  async #read(): Promise<StreamText | null | undefined> {
    try {
      const text = await this.#deps.read(this.place, this.version(), this.abortSignal);
      return this.abortSignal.aborted ? undefined : text;
    } catch (error) {
      if (this.abortSignal.aborted) return undefined;
      throw error;
    }
  }
}

/** Whether the items before a place do not count any more, or it is none. */
export function isCut({ chunks, end, isPlace }: StreamText, place: StreamPlace): boolean {
  const [first] = chunks;
  return !isPlace || (first === undefined ? end.position < place.position : first.after < place.position);
}

/** What a reader receives of what the store has behind its place. `place`: `null` if it is none, and all is sent again. */
function fold(text: StreamText, place: StreamPlace | null): { part: StreamPart<Json> | null; place: StreamPlace } {
  const { chunks, end } = text;
  const first = chunks[0];
  const last = toPlace(chunks.at(-1) ?? end);
  const cuts = place === null || isCut(text, place);
  const items = chunks.flatMap((chunk) => JSON.parse(chunk.items) as Json[]);
  if (!cuts && items.length === 0) return { part: null, place: first === undefined ? place : last };
  return { part: { from: first?.first ?? end.items, items, position: formatPlace(last) }, place: last };
}

function toPlace({ position, at }: StreamPlace): StreamPlace {
  return { position, at };
}
