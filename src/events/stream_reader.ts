import { NotFoundError } from "../model/error.ts";
import { formatPlace, STREAM_START, type StreamPart, type StreamPlace } from "../model/stream.ts";
import type { Json } from "../values/json.ts";
import type { Store } from "../store/store.ts";
import type { StreamText } from "../store/stream_text.ts";
import type { JournalReader } from "./journal_reader.ts";
import { type RetryDeps, retryStoreCall } from "./retry_store_call.ts";

// About how many bytes of items a part has.
const PART_LENGTH = 65_536;

/** How a stream is read. */
export interface ReadOptions {
  /** The place of a part; `null`: from the beginning. */
  after: StreamPlace | null;
  /** Whether to wait for what comes. */
  follow: boolean;
}

/** The items of a stream from a place on, for one reader. */
export interface StreamReading {
  /** The next part; `null` at the end. While nothing comes, it waits, unless it does not follow. */
  next(): Promise<StreamPart<Json> | null>;
  /** The next part if there is one now; `undefined`: there is none yet. `null` at the end of the run. */
  nextNow(): Promise<StreamPart<Json> | null | undefined>;
  /** The place after the last part. */
  readonly place: StreamPlace;
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
  #hasEnded = false;
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

  async next(): Promise<StreamPart<Json> | null> {
    if (this.#deps.follow !== null) await (this.#following ??= this.#deps.follow(this)).catch(() => {});
    while (true) {
      // Before the read: a commit during it is not missed.
      const woken = new Promise<void>((resolve) => this.#wake = resolve);
      const part = await this.nextNow();
      if (part !== undefined) return part;
      if (this.#deps.follow === null) return null;
      if (!this.abortSignal.aborted) await woken;
    }
  }

  async nextNow(): Promise<StreamPart<Json> | null | undefined> {
    while (!this.#hasEnded && !this.abortSignal.aborted) {
      const text = await this.#read(this.place);
      if (text === undefined) break;
      if (text === null) {
        if (!this.#isKnown) throw new NotFoundError(`There is no run "${this.#runId}"`);
        break; // it was deleted
      }
      this.#isKnown = true;
      const isPlace = text.isPlace;
      const found = isPlace ? text : await this.#read(STREAM_START);
      if (found === undefined || found === null) break;
      const { part, place } = fold(found, isPlace ? this.place : null);
      this.place = place;
      if (part !== null) return part;
      if (found.chunks.length > 0) continue;
      if (!found.isEnded) return undefined;
      this.#hasEnded = true;
    }
    return null;
  }

  /** `undefined`: it was stopped meanwhile. */
  async #read(place: StreamPlace): Promise<StreamText | null | undefined> {
    try {
      const text = await this.#deps.read(place, this.version(), this.abortSignal);
      return this.abortSignal.aborted ? undefined : text;
    } catch (error) {
      if (this.abortSignal.aborted) return undefined;
      throw error;
    }
  }
}

/**
 * What a reader receives of what the store has behind its place. The items after its place are void if the first chunk
 * behind it follows one before it, or if nothing counts behind an earlier place: then the part says where to cut.
 *
 * @param place The place of the reader; `null`: it is none, and everything is sent again.
 */
export function fold(
  { chunks, end }: StreamText,
  place: StreamPlace | null,
): { part: StreamPart<Json> | null; place: StreamPlace } {
  const [first] = chunks;
  const last = chunks.at(-1);
  if (first === undefined || last === undefined) {
    if (place !== null && end.position >= place.position) return { part: null, place };
    return { part: { from: end.items, items: [], position: formatPlace(end) }, place: toPlace(end) };
  }
  const items = chunks.flatMap((chunk) => JSON.parse(chunk.items) as Json[]);
  const isCut = place === null || first.after < place.position;
  const part = items.length > 0 || isCut ? { from: first.first, items, position: formatPlace(last) } : null;
  return { part, place: toPlace(last) };
}

function toPlace({ position, at }: StreamPlace): StreamPlace {
  return { position, at };
}
