import type { SqliteDatabase } from "./sqlite_database.ts";

// How many bytes of facts are kept, and for how long.
const MAX_BYTES = 33_554_432;
const MAX_AGE_MS = 3_600_000;
// The writer looks for what is too much each time when it has written so many bytes more.
const TRIM_EACH_BYTES = 16_384;
// How many rows are removed at once at most: many more than are added meanwhile.
const MAX_TRIMMED = 2_000;

/** Writes what was noted in the open transaction, as one row of the journal. */
export function writeJournal(db: SqliteDatabase, clock: () => number): void {
  const { facts } = db;
  if (facts.length === 0) return;
  const last = db.get("SELECT max(position) AS position, size FROM holdfast_journal")!;
  const text = JSON.stringify(facts.all);
  const size = Number(last.size ?? 0);
  db.run(
    `INSERT INTO holdfast_journal (position, at, size, facts)
     SELECT ?, ?, ? + octet_length(facts), facts FROM (SELECT ? AS facts)`,
    Number(last.position ?? 0) + facts.length,
    clock(),
    size,
    text,
  );
  facts.clear();
  const after = size + text.length;
  if (Math.floor(after / TRIM_EACH_BYTES) > Math.floor(size / TRIM_EACH_BYTES)) trimBySize(db, after - MAX_BYTES);
}

// Only the oldest rows are removed, so that no reader meets a gap that it does not notice; and never the newest one, or
// its number would come back.

/** Removes rows that are followed by all the facts that are kept. */
function trimBySize(db: SqliteDatabase, maxSize: number): void {
  const oldest = db.get("SELECT min(position), size FROM holdfast_journal")!;
  if (Number(oldest.size) > maxSize) return;
  db.run(
    `DELETE FROM holdfast_journal WHERE size <= ? AND position IN
       (SELECT position FROM holdfast_journal ORDER BY position LIMIT ${MAX_TRIMMED})`,
    maxSize,
  );
}

/** Removes rows that are too old: what they tell of deleted runs is not to stay for long in a quiet system. */
export function trimByAge(db: SqliteDatabase, now: number): void {
  const oldest = db.get("SELECT min(position), at FROM holdfast_journal")!;
  if (oldest.at === null || Number(oldest.at) > now - MAX_AGE_MS) return;
  db.run(
    `WITH oldest AS (SELECT position, at FROM holdfast_journal ORDER BY position LIMIT ${MAX_TRIMMED + 1})
     DELETE FROM holdfast_journal WHERE position <
       coalesce((SELECT min(position) FROM oldest WHERE at > ?), (SELECT max(position) FROM oldest))`,
    now - MAX_AGE_MS,
  );
}
