import { ValidationError } from "./error.ts";
import { isName, NAME_RULE } from "../values/name.ts";
import type { JsonText } from "../values/json.ts";

/** Names a stream of items that a step writes, and the type of its items. {@linkcode defineStream} makes one. */
export interface Stream<T = unknown> {
  /** Its name among the streams of a run. */
  readonly name: string;
  /** Never set: only the type of the items. */
  readonly itemType?: T;
}

/**
 * Defines a stream, for the job that writes it and all that read it.
 *
 * @example
 * ```ts
 * import { defineJob, defineStream } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const words = defineStream<string>("words");
 *
 * export const greet = defineJob({
 *   name: "greet",
 *   input: z.object({ name: z.string() }),
 *   run: (step, { name }) =>
 *     step.run("say", async ({ stream }) => {
 *       for (const word of ["Hello", ", ", name]) await stream(words).write(word);
 *     }),
 * });
 * ```
 *
 * @throws {ValidationError} The name is not 1 to 255 characters of well-formed Unicode without control characters.
 */
export function defineStream<T = unknown>(name: string): Stream<T> {
  if (!isName(name)) throw new ValidationError(`The name of a stream ${NAME_RULE}`);
  return Object.freeze({ name });
}

/** The name of a stream that is given as one, or as its name. */
export function streamName(stream: Stream | string): string {
  return defineStream(typeof stream === "string" ? stream : stream?.name).name;
}

/** Writes to a stream, in the function of a step. */
export interface StreamWriter<T> {
  /**
   * Adds an item. Resolves when there is room for more, not when it is stored: the record of the step covers that. An
   * error makes the attempt fail, also if nobody awaits the promise.
   *
   * @throws {SerializationError} The item cannot be stored as JSON, or takes more than 256 KiB.
   * @throws {RangeError} The stream would have more than `maxStreamBytes`.
   * @throws {ConflictError} The attempt has ended. After an abort it is the reason of the step's `abortSignal`.
   */
  write(item: T): Promise<void>;
  /** Adds all items of a source, such as a `ReadableStream`, and waits for room. An error of the source makes the attempt fail. */
  pipe(source: AsyncIterable<T>): Promise<void>;
}

/**
 * Some items of a stream. A reader keeps a list, and has one rule: put `items` at index `from`, and drop what was
 * there and after it.
 */
export interface StreamPart<T> {
  /** The index of the first item. It is below the number of items so far if the last of those do not count any more. */
  from: number;
  /** The items; none if nothing replaces those that do not count any more. */
  items: T[];
  /** Where to continue from. */
  position: string;
}

/** How `engine.readStream()` reads. */
export interface ReadStreamOptions {
  /** The `position` of a part: only what comes after it. Default: from the beginning. */
  after?: string;
  /** Whether to wait for what comes, until the run has ended. Default: `true`. */
  follow?: boolean;
}

/** A stream of a run. */
export interface StreamInfo {
  /** Its name. */
  name: string;
  /** How many items count. */
  items: number;
  /** How many bytes of JSON they have. */
  bytes: number;
  /** Whether the last of them are of a step that has not completed. */
  isOpen: boolean;
  /** When it was last written to: ISO 8601 in UTC. */
  updatedAt: string;
}

/** A place in a stream: after a chunk. */
export interface StreamPlace {
  /** The number of the chunk; 0: before the first one. */
  position: number;
  /** When it was committed, by the store's clock: the proof that the store has this chunk under that number. */
  at: number;
}

/** The beginning of a stream. */
export const STREAM_START: StreamPlace = Object.freeze({ position: 0, at: 0 });

/** Items of a stream that are stored together. */
export interface Chunk {
  /** The name of the stream. */
  stream: string;
  /** Its number: one more than that of the last chunk that the stream ever had. Numbers are never used again. */
  position: number;
  /** The number of the chunk that it follows: less than `position - 1` if those between do not count any more. */
  after: number;
  /** How many items come before it. */
  first: number;
  /** How many items it has. */
  count: number;
  /** How many bytes of JSON the items have up to and with it. */
  size: number;
  /** An array of the items; empty in a chunk that only makes the items before it permanent, or those behind `after` void. */
  items: JsonText;
  /** Whether its step has completed: it and all items that it follows are permanent. */
  isPermanent: boolean;
}

/** The most bytes of JSON that a chunk has, unless it is one item. */
export const MAX_CHUNK_BYTES = 16_384;
/** The most bytes of JSON that an item has. */
export const MAX_ITEM_BYTES = 262_144;

const PLACE = /^(\d{16})-([0-9a-z]{1,11})$/;

/** Writes a place as a position: sorted as text, as places are. */
export function formatPlace({ position, at }: StreamPlace): string {
  return `${String(position).padStart(16, "0")}-${at.toString(36)}`;
}

/** Parses a position; `null` if it is none. */
export function parsePlace(text: string): StreamPlace | null {
  const [, position, at = ""] = PLACE.exec(text) ?? [];
  const place = { position: Number(position), at: parseInt(at, 36) };
  return Number.isSafeInteger(place.position) && Number.isSafeInteger(place.at) ? place : null;
}
