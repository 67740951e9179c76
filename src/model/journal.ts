import type { Fact } from "./fact.ts";

/**
 * A position in the journal of a store: right after a fact. The instant proves that the journal is the same one:
 * positions are reused after a backup is restored, or after a power cut with `synchronous: "normal"`.
 */
export interface Cursor {
  /** The number of the fact; 0 means before the first one. */
  position: number;
  /** When the row of the fact was committed, by the store's clock. */
  at: number;
}

/** The facts of one commit. */
export interface JournalRow extends Cursor {
  /** The facts in order. The last one has the number `position`, the one before it one less, and so on. */
  facts: readonly Fact[];
}

/** A page of the journal. */
export interface JournalPage {
  /** The rows after the requested position, in the order of the commits. */
  rows: JournalRow[];
  /** The end of the journal: beyond the last of the rows if there are more. */
  end: Cursor;
}

const CURSOR = /^(\d{1,16})-([0-9a-z]{1,16})$/;

/** Writes a cursor as the `id:` of an event stream: its position, and its instant in base 36. */
export function formatCursor({ position, at }: Cursor): string {
  return `${position}-${at.toString(36)}`;
}

/** Parses a cursor from a client; `null` if it is malformed. */
export function parseCursor(id: string | null): Cursor | null {
  const parts = id === null || id.length > 40 ? null : CURSOR.exec(id);
  const [, position, at = ""] = parts ?? [];
  const cursor = { position: Number(position), at: parseInt(at, 36) };
  return Number.isSafeInteger(cursor.position) && Number.isSafeInteger(cursor.at) ? cursor : null;
}
