import type { Chunk, StreamPlace } from "../model/stream.ts";

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
