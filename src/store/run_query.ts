import type { RunFilter, RunPage, StoredRun } from "../model/run.ts";
import type { Cursor } from "../model/journal.ts";
import type { OriginText } from "../model/origin.ts";
import type { Chunk, StreamPlace } from "../model/stream.ts";

/** Which runs to find. */
export interface RunQuery extends RunFilter {
  /**
   * The part of the filter that restricts access: the names of labels, and whether the jobs do. A store looks runs up
   * by this part and checks the rest on each of them, so that the time a list takes reveals nothing about other
   * runs.
   */
  scope?: { labels: readonly string[]; jobs: boolean };
  /**
   * Only runs with a smaller row number. The run of this number need not exist any more. Pages that continue after the
   * last row number of the previous one neither repeat nor miss a run, whatever is added or removed meanwhile.
   */
  before?: number;
  /** Only runs whose `retriggeredAs` is `null`, and whose idempotency key no other run has taken. */
  notRetried?: boolean;
  /**
   * Where the count ends, if the page does not end later: default 10,000. 0: `total` is not wanted. A count also ends
   * after 50 ms, once 5,000 runs were examined. A filter by jobs and statuses alone is counted in full, unless it is 0.
   */
  countUpTo?: number;
}

/** The runs that match a filter. `total` counts them up to {@linkcode FoundRuns.countedTo}. */
export interface FoundRuns extends Omit<RunPage, "runs" | "totalIsAtLeast"> {
  /** The ids of the runs of this page. */
  ids: string[];
  /** Their row numbers, by which {@linkcode RunQuery.before} continues. They grow with each trigger; none is reused. */
  seqs: number[];
  /** The row number where the count has ended, with more runs before it; `null`: all were counted. */
  countedTo: number | null;
}

/** Which stored value to read. */
export type ValuePlace =
  | { of: "run"; runId: string; value: "payload" | "output" }
  | { of: "step"; runId: string; stepName: string; value: "output" }
  | { of: "wait"; waitId: string; value: "metadata" | "payload" }
  | { of: "message"; runId: string; messageId: string; value: "payload" };

/** A part of a value. */
export interface ValuePart {
  /** Its JSON in UTF-8, from the requested position on; the caller owns the bytes. */
  bytes: Uint8Array<ArrayBuffer>;
  /** Where the next part begins, in the store's own units (bytes, characters); `null`: this was the last part. */
  next: number | null;
}

/** A part of a list. */
export interface Part<T> {
  /** The records, in their order. */
  items: T[];
  /** Whether more may follow. */
  hasMore: boolean;
}

/** A run and its position in the journal, read at one moment. */
export interface RunState {
  /** The run. */
  run: StoredRun;
  /** Its row number, by which facts name it. */
  seq: number;
  /** The end of the journal at that moment: later commits are not in this state. */
  place: Cursor;
  /** The trace of its trigger; `null`: it has none. */
  trace: OriginText | null;
  /** How often it was claimed: 1 before and during its first execution, one more after each interruption. */
  execution: number;
  /** What it has parked on, ended or not, in the order of preparation. */
  pauses: AwaitedPause[];
}

/**
 * Something that a run waits for: a wait, a sleep, or another attempt at a step. `Instant` is the type of its
 * instants.
 */
export interface AwaitedPause<Instant = string> {
  /** The id of the wait; `null` for a sleep or a step. */
  waitId: string | null;
  /** The name of the wait, the sleep or the step. */
  name: string;
  /** When it ends without a signal: ISO 8601 in UTC. */
  deadlineAt: Instant | null;
  /** How many children it waits for, and how many of them have not ended; left out if it waits for none. */
  children?: { total: number; unfinished: number };
}

/** What a stream has after a place, read at one moment. */
export interface StreamText {
  /** Chunks that count, in their order. */
  chunks: StoredChunk[];
  /** Whether more chunks count behind these. */
  hasMore: boolean;
  /** Whether the stream has, or had, a chunk at the place; also if that is the beginning. */
  isPlace: boolean;
  /** Where what counts ends, and how many items and bytes that is. */
  end: StreamEnd & StreamPlace;
  /** Where what is permanent ends, and how many items and bytes that is. */
  permanent: StreamEnd;
  /** The number of the last chunk that the stream ever had. */
  last: number;
  /** Whether the run has ended. */
  isEnded: boolean;
}

/** A chunk as it is read. */
export interface StoredChunk extends Pick<Chunk, "position" | "after" | "first" | "items"> {
  /** When it was committed. */
  at: number;
}

/** How much of a stream there is up to a chunk. */
export interface StreamEnd {
  /** The number of the chunk; 0: there is none. */
  position: number;
  /** How many items there are. */
  items: number;
  /** How many bytes of JSON they have. */
  bytes: number;
}
