import { ConflictError, SerializationError } from "../../model/error.ts";
import type { StepWrite } from "../../model/step.ts";
import { type Chunk, MAX_ITEM_BYTES, type Stream, streamName, type StreamWriter } from "../../model/stream.ts";
import { encode, type Jsonify } from "../../values/json.ts";
import { isInstance } from "../../values/unknown_values.ts";
import type { Execution } from "../execution.ts";
import { type OpenStream, readPermanent, type StreamOwner } from "./run_streams.ts";

/** A stream that an attempt writes, and how many items it has written. */
interface Opened {
  stream: OpenStream;
  written: number;
}

/** What one attempt at a step writes to streams. After its end it writes nothing more. */
export class AttemptStreams implements StreamOwner {
  /** The name of the step. */
  readonly stepName: string;
  readonly #execution: Pick<Execution, "streams">;
  /** Fires when it is over, whatever its function does. */
  abortSignal: AbortSignal;
  readonly #opened: Opened[] = [];
  /** The chunks of its record. */
  #chunks: Chunk[] = [];
  /** Whether its function has settled. */
  #isClosed = false;
  #failure: { error: unknown } | null = null;

  constructor(stepName: string, execution: Pick<Execution, "streams">, abortSignal: AbortSignal) {
    this.stepName = stepName;
    this.#execution = execution;
    this.abortSignal = abortSignal;
  }

  /** Called when it is aborted: lets those go on that wait for room. */
  handleEvent(): void {
    for (const { stream } of this.#opened) stream.wake();
  }

  /** See `StepTools.stream()`. */
  open<T>(given: Stream<T> | string): StreamWriter<T> {
    const name = streamName(given);
    const opened = this.#isOver ? null : this.#register(name);
    const write = async (item: T) => {
      this.#check();
      if (opened === null) return;
      this.#add(opened, item);
      for (let room; (room = opened.stream.room()) !== null;) {
        await room;
        if (this.#isClosed) return; // the record of the attempt brings the item
        this.#check();
      }
    };
    const pipe = async (source: AsyncIterable<T>) => {
      this.#check();
      // A stream that falls silent is cancelled with the attempt: its iterator would wait for the next item.
      const { abortSignal: signal } = this;
      const items = isInstance(source, ReadableStream) ? source.pipeThrough(new TransformStream(), { signal }) : source;
      for await (const item of items) await write(item as T);
    };
    return { write: (item) => this.#guard(write(item)), pipe: (source) => this.#guard(pipe(source)) };
  }

  #register(name: string): Opened {
    const stream = this.#execution.streams.open(name, this);
    const known = this.#opened.find((opened) => opened.stream === stream);
    if (known !== undefined) return known;
    if (this.#opened.length === 0) this.abortSignal.addEventListener("abort", this, { once: true });
    const opened = { stream, written: 0 };
    this.#opened.push(opened);
    return opened;
  }

  /** See `StepTools.readStream()`. */
  read<T>(given: Stream<T> | string): AsyncIterable<Jsonify<T>> {
    const name = streamName(given);
    if (this.#opened.some(({ stream }) => stream.name === name)) {
      throw new ConflictError(
        `Stream "${name}" is being written by step "${this.stepName}", which cannot read it meanwhile`,
      );
    }
    return readPermanent(this.#execution.streams.deps, name) as AsyncIterable<Jsonify<T>>; // the items have the type of the stream
  }

  /** Makes the attempt fail, whether or not its function notices. */
  fail(error: unknown): void {
    this.#failure ??= { error };
    this.handleEvent();
  }

  /** Ends the attempt, when its function has settled: nothing more is written. Returns whether it has opened streams. */
  close(): boolean {
    this.#isClosed = true;
    if (this.#opened.length === 0) return false;
    this.abortSignal.removeEventListener("abort", this);
    this.handleEvent();
    return true;
  }

  /**
   * Resolves when its chunks can be recorded.
   *
   * @returns What a write failed of; `null`: none has.
   */
  async end(): Promise<{ error: unknown } | null> {
    for (const { stream } of this.#opened) if (this.#failure === null) await stream.settle();
    return this.#failure;
  }

  /** The chunks for the record of the attempt. */
  chunksFor(result: StepWrite["result"]): Chunk[] {
    this.#chunks = this.#opened.flatMap(({ stream }) => stream.takeLast(result));
    return this.#chunks;
  }

  /** Notes that the end of the attempt is recorded: others may write to its streams. */
  noteRecorded(): void {
    for (const { stream } of this.#opened) stream.noteRecorded(this.#chunks);
  }

  #add(opened: Opened, value: unknown): void {
    const subject = `Item ${opened.written} of stream "${opened.stream.name}"`;
    const text = encode(value, { subject, maxBytes: MAX_ITEM_BYTES });
    if (text === null) throw new SerializationError(`${subject} is undefined: write null`);
    opened.written += 1;
    opened.stream.add(text);
    if (this.#failure !== null) throw this.#failure.error;
  }

  get #isOver(): boolean {
    return this.#isClosed || this.abortSignal.aborted;
  }

  #check(): void {
    if (this.abortSignal.aborted) throw this.abortSignal.reason;
    if (this.#failure !== null) throw this.#failure.error;
    if (this.#isClosed) throw new ConflictError(`The attempt at step "${this.stepName}" has ended`);
  }

  /** What a write fails of fails the attempt, also if nobody awaits it. */
  #guard(work: Promise<void>): Promise<void> {
    work.catch((error) => {
      if (!this.#isClosed) this.fail(error);
    });
    return work;
  }
}
