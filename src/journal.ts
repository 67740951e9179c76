import type { Fact } from "./fact.ts";

/**
 * A place in the journal of a store: right after a fact. The instant proves that it is this journal: positions come
 * back after a backup was restored, or after a power cut with `synchronous: "normal"`.
 */
export interface Cursor {
  /** The number of the fact; 0: before the first one. */
  position: number;
  /** When the row of the fact was committed: an instant of the store's clock. */
  at: number;
}

/** What one commit made true. */
export interface JournalRow extends Cursor {
  /** The facts in their order. The last one has the number `position`, the one before it one less, and so on. */
  facts: readonly Fact[];
}

/** A part of the journal. */
export interface JournalPage {
  /** The rows after the position that was asked for, in the order of the commits. */
  rows: JournalRow[];
  /** Where the journal ends: further than the last of the rows if there are more. */
  end: Cursor;
}

const CURSOR = /^(\d{1,16})-([0-9a-z]{1,16})$/;

/** Writes a cursor as the `id:` of an event stream: its position, and its instant in base 36. */
export function formatCursor({ position, at }: Cursor): string {
  return `${position}-${at.toString(36)}`;
}

/** Reads a cursor that a client has sent; `null` if it is none. */
export function parseCursor(id: string | null): Cursor | null {
  const parts = id === null || id.length > 40 ? null : CURSOR.exec(id);
  if (parts === null) return null;
  const cursor = { position: Number(parts[1]), at: parseInt(parts[2]!, 36) };
  return Number.isSafeInteger(cursor.position) && Number.isSafeInteger(cursor.at) ? cursor : null;
}
