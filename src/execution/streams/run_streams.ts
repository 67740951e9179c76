import { type RetryDeps, retryStoreCall } from "../../events/retry_store_call.ts";
import { ConflictError } from "../../model/error.ts";
import { type Chunk, MAX_CHUNK_BYTES, STREAM_START, type StreamPlace } from "../../model/stream.ts";
import type { StepWrite } from "../../model/step.ts";
import type { Store } from "../../store/store.ts";
import type { StreamEnd } from "../../store/run_query.ts";
import type { Json, JsonText } from "../../values/json.ts";
import { byteLength } from "../../values/text.ts";

// A writer waits while its stream has so many bytes of items that are not stored.
const MAX_UNSTORED_BYTES = 262_144;
// The record of an attempt brings at most about so many bytes of each stream.
const MAX_RECORDED_BYTES = 1_048_576;
const MAX_STREAMS = 16;

/** What the streams of an execution need of it. */
interface StreamDeps extends RetryDeps {
  /** The run. */
  runId: string;
  /** Keeps the items. */
  store: Store;
  /** The maximum size of a stream, in bytes of JSON. */
  maxStreamBytes: number;
  /** Fires when nothing more is recorded. */
  abortSignal: AbortSignal;
  /** Counts items that were stored. */
  onStored: (items: number, bytes: number) => void;
}

/** An attempt that writes to streams. */
export interface StreamOwner {
  /** The name of its step. */
  readonly stepName: string;
  /** Makes it fail. */
  fail(error: unknown): void;
}

/** The streams of an execution: what its steps write, and where each stream ends. */
export class RunStreams {
  /** What they need of the execution. */
  readonly deps: StreamDeps;
  readonly #onItems: () => void;
  readonly #streams = new Map<string, OpenStream>();

  /** @param onItems Called when there is something to store. */
  constructor(deps: StreamDeps, onItems: () => void) {
    this.deps = deps;
    this.#onItems = onItems;
  }

  /** Opens a stream for an attempt, which is its only writer until its end is recorded. */
  open(name: string, writer: StreamOwner): OpenStream {
    const known = this.#streams.get(name);
    if (known === undefined && this.#streams.size === MAX_STREAMS) this.#forgetOne(name);
    const stream = known ?? new OpenStream(name, this.deps, this.#onItems);
    this.#streams.set(name, stream);
    const other = stream.writer;
    if (other !== null && other !== writer) {
      throw new ConflictError(
        `Stream "${name}" is being written by step "${other.stepName}": ` +
          "give steps that run side by side streams of their own",
      );
    }
    stream.writer = writer;
    return stream;
  }

  /** Forgets a stream that nobody writes to: all of it is stored, and where it ends is read again if it is opened. */
  #forgetOne(name: string): void {
    const idle = [...this.#streams.values()].find((stream) => stream.writer === null);
    if (idle === undefined) {
      throw new RangeError(`A run writes to at most ${MAX_STREAMS} streams at a time: it cannot open "${name}"`);
    }
    this.#streams.delete(idle.name);
  }

  /** Whether there is something to store. */
  get hasItems(): boolean {
    return [...this.#streams.values()].some((stream) => stream.hasItems);
  }

  /** The next chunks to store, up to about so many bytes: those that were sent before without an answer come first. */
  take(maxBytes: number): { chunks: Chunk[]; bytes: number } {
    const chunks: Chunk[] = [];
    let bytes = 0;
    for (const stream of this.#streams.values()) {
      if (bytes >= maxBytes) break;
      const taken = stream.take(maxBytes - bytes);
      chunks.push(...taken.chunks);
      bytes += taken.bytes;
    }
    return { chunks, bytes };
  }

  /** Notes that chunks are stored. */
  noteStored(chunks: readonly Chunk[]): void {
    const lasts = new Map(chunks.map(({ stream, position }) => [stream, position]));
    for (const [name, position] of lasts) this.#streams.get(name)?.noteStored(position);
  }

  /** Forgets what is not stored: the lease is lost. */
  discard(): void {
    for (const stream of this.#streams.values()) stream.discard();
  }
}

/** A chunk that no answer of the store has acknowledged. */
interface Unstored {
  chunk: Chunk;
  bytes: number;
}

const NOTHING: StreamEnd = { position: 0, items: 0, bytes: 0 };

/** A stream as an execution knows it. Nobody else writes to it meanwhile. */
export class OpenStream {
  /** Its name. */
  readonly name: string;
  /** The attempt that writes to it, until its end is recorded. */
  writer: StreamOwner | null = null;
  readonly #deps: StreamDeps;
  readonly #onItems: () => void;
  /** Reads where it ends; `null`: nothing has been written. */
  #loading: Promise<void> | null = null;
  #isLoaded = false;
  /** Whether the record of its writer is on its way: it brings what is not stored. */
  #isEnding = false;
  /** The number of the last chunk that it ever had, with those that are not stored. */
  #last = 0;
  /** Where what is permanent ends: each attempt goes on from there. */
  #permanent: StreamEnd = NOTHING;
  /** Where the chunks of the writer end; `null`: it has none. */
  #end: StreamEnd | null = null;
  /** Items that are in no chunk yet. */
  #items: { text: JsonText; bytes: number }[] = [];
  #itemBytes = 0;
  #unstored: Unstored[] = [];
  /** Called when there is room again. */
  #waiting: (() => void)[] = [];

  constructor(name: string, deps: StreamDeps, onItems: () => void) {
    this.name = name;
    this.#deps = deps;
    this.#onItems = onItems;
  }

  /** Whether there is something to store that does not wait for the record of its attempt. */
  get hasItems(): boolean {
    return this.#isLoaded && !this.#isEnding && this.#items.length + this.#unstored.length > 0;
  }

  /** How many bytes are not stored. */
  get #unstoredBytes(): number {
    return this.#unstored.reduce((sum, { bytes }) => sum + bytes, this.#itemBytes);
  }

  /** How many bytes of items it would have. */
  get #bytes(): number {
    return (this.#end ?? this.#permanent).bytes + this.#itemBytes;
  }

  /** Adds an item. */
  add(text: JsonText): void {
    const bytes = byteLength(text);
    this.#items.push({ text, bytes });
    this.#itemBytes += bytes;
    this.#checkSize();
    if (this.#isLoaded) this.#onItems();
    else this.#loading ??= this.#load();
  }

  #checkSize(): void {
    const { maxStreamBytes } = this.#deps;
    if (!this.#isLoaded || this.#bytes <= maxStreamBytes) return;
    this.writer?.fail(new RangeError(`Stream "${this.name}" would have more than ${maxStreamBytes} bytes`));
  }

  async #load(): Promise<void> {
    const { runId, store, abortSignal } = this.#deps;
    try {
      const text = await retryStoreCall(() => store.readStream(runId, this.name, null, 0), this.#deps, abortSignal);
      if (text === null) return; // the run was deleted: its lease is lost
      this.#last = text.last;
      this.#permanent = text.permanent;
      this.#isLoaded = true;
      this.#checkSize();
      this.#onItems();
    } catch (error) {
      this.#loading = null;
      this.writer?.fail(error);
    }
  }

  /** Resolves when there is room for more, or the writer has ended. */
  room(): Promise<void> | null {
    return this.#hasRoom(MAX_UNSTORED_BYTES);
  }

  #hasRoom(maxBytes: number): Promise<void> | null {
    if (this.#unstoredBytes < maxBytes) return null;
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Lets those go on that wait for room. */
  wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  /** Resolves when its end is known, and not too much is left for the record of its attempt. */
  async settle(): Promise<void> {
    await this.#loading;
    while (this.#isLoaded && !this.#deps.abortSignal.aborted) {
      const room = this.#hasRoom(MAX_RECORDED_BYTES);
      if (room === null) return;
      await room;
    }
  }

  /** The next chunks to store, of up to about so many bytes. */
  take(maxBytes: number): { chunks: Chunk[]; bytes: number } {
    if (!this.hasItems) return { chunks: [], bytes: 0 };
    let bytes = this.#unstored.reduce((sum, unstored) => sum + unstored.bytes, 0);
    while (this.#items.length > 0 && bytes < maxBytes) bytes += this.#cutChunk(false);
    return { chunks: this.#unstored.map(({ chunk }) => chunk), bytes };
  }

  /**
   * The chunks for the record of an attempt. Those of one that completed are permanent. Those of one that is followed by
   * another become void, and so do those that an attempt before it has left open.
   */
  takeLast({ status }: StepWrite["result"]): Chunk[] {
    if (!this.#isLoaded) return [];
    this.#isEnding = true;
    if (status === "retrying") this.#items = [];
    while (this.#items.length > 0) this.#cutChunk(status === "completed");
    const hasOpen = this.#last > this.#permanent.position;
    if (status === "completed" && this.#end !== null) {
      if (this.#unstored.at(-1)?.chunk.isPermanent !== true) this.#addChunk([], 0, true);
    } else if (status !== "failed" && hasOpen) {
      this.#end = null;
      this.#addChunk([], 0, true);
    }
    return this.#unstored.map(({ chunk }) => chunk);
  }

  /** Notes that the end of its writer's attempt is recorded, with these chunks. */
  noteRecorded(chunks: readonly Chunk[]): void {
    this.#count(Infinity);
    const mark = chunks.findLast(({ stream, isPermanent }) => stream === this.name && isPermanent);
    if (mark !== undefined) this.#permanent = endOf(mark);
    this.#end = null;
    this.#isEnding = false;
    this.writer = null;
    this.discard();
  }

  /** Notes that all chunks up to a number are stored. */
  noteStored(position: number): void {
    this.#count(position);
    this.#unstored = this.#unstored.filter(({ chunk }) => chunk.position > position);
    this.wake();
  }

  #count(position: number): void {
    for (const { chunk, bytes } of this.#unstored) {
      if (chunk.position <= position && chunk.count > 0) this.#deps.onStored(chunk.count, bytes);
    }
  }

  /** Forgets what is not stored. */
  discard(): void {
    this.#items = [];
    this.#itemBytes = 0;
    this.#unstored = [];
    this.wake();
  }

  /** Makes a chunk of the first items, and returns how many bytes they have. */
  #cutChunk(isPermanent: boolean): number {
    let bytes = 0;
    let count = 0;
    for (const item of this.#items) {
      if (count > 0 && bytes + item.bytes > MAX_CHUNK_BYTES) break;
      bytes += item.bytes;
      count += 1;
    }
    const items = this.#items.splice(0, count).map(({ text }) => text);
    this.#itemBytes -= bytes;
    this.#addChunk(items, bytes, isPermanent && this.#items.length === 0);
    return bytes;
  }

  #addChunk(items: readonly JsonText[], bytes: number, isPermanent: boolean): void {
    const before = this.#end ?? this.#permanent;
    this.#last += 1;
    const chunk: Chunk = {
      stream: this.name,
      position: this.#last,
      after: before.position,
      first: before.items,
      count: items.length,
      size: before.bytes + bytes,
      items: `[${items.join(",")}]`,
      isPermanent,
    };
    this.#end = endOf(chunk);
    this.#unstored.push({ chunk, bytes });
  }
}

function endOf({ position, first, count, size }: Chunk): StreamEnd {
  return { position, items: first + count, bytes: size };
}

// About how many bytes of items are read at once.
const PART_LENGTH = 65_536;

/** The items of a stream that are permanent now, for a step. */
export async function* readPermanent(deps: StreamDeps, stream: string): AsyncGenerator<Json, void> {
  const { runId, store, abortSignal } = deps;
  let place: StreamPlace = STREAM_START;
  let end: number | null = null;
  while (true) {
    const read = () => store.readStream(runId, stream, place, PART_LENGTH);
    const text = await retryStoreCall(read, deps, abortSignal);
    if (text === null) return;
    const { chunks, hasMore, permanent } = text;
    end ??= permanent.position;
    for (const chunk of chunks) {
      if (chunk.position > end) return;
      yield* JSON.parse(chunk.items) as Json[];
      place = chunk;
    }
    if (!hasMore) return;
  }
}
