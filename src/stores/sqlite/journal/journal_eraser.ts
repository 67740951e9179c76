import type { Fact } from "../../../model/fact.ts";
import type { JsonText } from "../../../values/json.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";

// How many rows are read at once.
const SLICE = 200;

/**
 * Erases the facts of deleted runs from the journal. Each is replaced by an empty one, so that all others keep their
 * numbers.
 */
export class JournalEraser {
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
