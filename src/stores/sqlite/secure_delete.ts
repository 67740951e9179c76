import type { Host } from "../../model/host.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import type { Fact } from "../../model/fact.ts";
import type { JsonText } from "../../values/json.ts";
import { raw } from "./statement.ts";

// Deleted data is overwritten within a second.
const WIPE_AFTER_MS = 800;
const RETRY_MS = 100;
// How long the journal is scanned without a break, and the length of a break.
const MAX_WORK_MS = 5;
const BREAK_MS = 1;

/**
 * Overwrites deleted data. SQLite fills its bytes in the pages of the file with zeros. Soon after each deletion the
 * facts of the deleted runs are erased from the journal, and the write-ahead log, which keeps the old pages, is written
 * to the file and emptied.
 *
 * Copies can remain in unused bytes of pages: when SQLite moves cells between pages, it does not always clear the bytes
 * that they leave. `VACUUM` would remove them, but it blocks other processes for long and needs `--allow-all` in Deno.
 */
export class SecureDelete {
  readonly #database: SqliteDatabase;
  readonly #host: Host;
  readonly #eraser: JournalEraser;
  #cancelTimer: (() => void) | null = null;

  constructor(database: SqliteDatabase, host: Host) {
    this.#database = database;
    this.#host = host;
    this.#eraser = new JournalEraser(database);
  }

  /** Starts. The log may still contain data that a dead process has deleted. */
  start(): void {
    this.#database.get`PRAGMA secure_delete = ON`;
    this.noteDeletion();
  }

  /** Schedules a wipe: something was deleted, or may have been. */
  noteDeletion(): void {
    if (this.#cancelTimer === null) this.#wipeAfter(WIPE_AFTER_MS);
  }

  /** Wipes a last time, unless another process prevents it. */
  close(): void {
    this.#cancelTimer?.();
    this.#wipe(() => true);
  }

  #wipeAfter(ms: number): void {
    this.#cancelTimer = this.#host.schedule(ms, () => {
      this.#cancelTimer = null;
      const startedAt = this.#host.monotonic();
      const againInMs = this.#wipe(() => this.#host.monotonic() - startedAt < MAX_WORK_MS);
      if (againInMs !== null && this.#database.isOpen) this.#wipeAfter(againInMs);
    });
  }

  /**
   * Wipes for a while.
   *
   * @returns After how many milliseconds to continue, or to try again if another process reads an older state or
   * writes; `null` if everything is wiped.
   */
  #wipe(hasTime: () => boolean): number | null {
    try {
      if (!this.#eraser.erase(hasTime)) return BREAK_MS;
      const checkpoint = this.#database.get<{ busy: number }>`PRAGMA wal_checkpoint(TRUNCATE)`;
      return (checkpoint?.busy ?? 0) === 0 ? null : RETRY_MS;
    } catch {
      return RETRY_MS; // the disk is full, or the owner of the connection has a transaction open on it
    }
  }
}

// How many rows are read at once.
const SLICE = 200;

/**
 * Erases the facts of deleted runs from the journal. Each is replaced by an empty one, so that all others keep their
 * numbers.
 */
class JournalEraser {
  readonly #db: SqliteDatabase;
  /** The position up to which the journal was searched for deleted runs. */
  #searched = 0;
  /** The deleted runs whose facts it erases. */
  #runs: ReadonlySet<number> = new Set();
  /** The position up to which their facts are erased. */
  #erased = 0;

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  /**
   * Erases the facts of all runs that were deleted.
   *
   * @param hasTime Whether to continue with the next slice.
   * @returns Whether all is erased; if not, the next call continues.
   */
  erase(hasTime: () => boolean): boolean {
    if (!this.#hasJournal()) return true;
    do {
      if (this.#runs.size === 0) this.#search();
      if (this.#runs.size === 0) return true;
      this.#eraseSlice();
    } while (hasTime());
    return false;
  }

  #hasJournal(): boolean {
    return this.#db.get`SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_journal'` !== undefined;
  }

  /**
   * Finds deleted runs. One sequence numbers the rows of runs and of the journal: all facts of a run come after the
   * number of its row, and the fact `deleted` comes last.
   */
  #search(): void {
    const last = this.#db.one<{ position: number | null }>`SELECT max(position) AS position FROM holdfast_journal`;
    const end = last.position ?? 0;
    const rows = this.#db.all<{ facts: JsonText }>`
      SELECT facts FROM holdfast_journal WHERE position > ${this.#searched} AND position <= ${end}
        AND instr(facts, ',"deleted",') > 0`;
    this.#runs = new Set(rows.flatMap(parse).filter(([, kind]) => kind === "deleted").map(([run]) => run));
    this.#erased = [...this.#runs].reduce((first, run) => Math.min(first, run), end);
    this.#searched = end;
  }

  #eraseSlice(): void {
    const rows = this.#db.all<FactsRow>`
      SELECT position, facts FROM holdfast_journal WHERE position > ${this.#erased} AND position <= ${this.#searched}
      ORDER BY position LIMIT ${raw(SLICE)}`;
    const affected = rows.filter((row) => this.#mentions(row.facts));
    if (affected.length > 0) this.#rewrite(affected);
    if (rows.length < SLICE) this.#runs = new Set();
    else this.#erased = rows.at(-1)!.position; // a full slice has a last row
  }

  /** Whether facts may be about one of the runs: much faster than parsing them all. */
  #mentions(facts: string): boolean {
    for (const [, run] of facts.matchAll(/\[(\d+),"/g)) if (this.#runs.has(Number(run))) return true;
    return false;
  }

  #rewrite(rows: readonly FactsRow[]): void {
    this.#db.exec("BEGIN IMMEDIATE");
    try {
      for (const row of rows) {
        const facts = JSON.stringify(parse(row).map((fact) => this.#runs.has(fact[0]) ? [fact[0], "erased"] : fact));
        // `size` counts the bytes of all facts up to the row. In the very first row it equals the row's own bytes, and
        // must stay equal: so `isTrimmed()` sees that no row was removed.
        this.#db.run`
          UPDATE holdfast_journal SET facts = ${facts}, size = iif(size = octet_length(facts), octet_length(${facts}),
            size)
          WHERE position = ${row.position}`;
      }
      this.#db.exec("COMMIT");
    } catch (error) {
      this.#db.rollBack();
      throw error;
    }
  }
}

/** The facts of a row of the journal. */
interface FactsRow {
  position: number;
  facts: JsonText;
}

function parse({ facts }: Pick<FactsRow, "facts">): Fact[] {
  return JSON.parse(facts);
}
