import type { Fact, FactValue } from "../../model/fact.ts";
import { valueRefOf } from "../../model/fact.ts";
import type { JournalRow } from "../../model/journal.ts";
import type { Store } from "../../store/store.ts";

/** A fact in a form that can be compared: its run by its id, since row numbers and positions are a store's own. */
export type NamedFact = [runId: string | undefined, ...what: unknown[]];

/** A fact with its instant and the value that it leaves out. */
export interface ReadFact {
  at: number;
  fact: NamedFact;
  value: FactValue | null;
}

/** Reads the journal of a store, each time from where it has ended before. */
export class FactReader {
  readonly #store: Store;
  readonly #runIds = new Map<number, string>();
  #position = 0;

  /** Begins with what the store does first. */
  constructor(store: Store) {
    this.#store = store;
  }

  /** Begins at the end of the journal, and knows the runs that there are. */
  static async atEnd(store: Store): Promise<FactReader> {
    const reader = new FactReader(store);
    reader.#position = (await store.findCursor(null))!.position; // the end of the journal is always known
    const { ids, seqs } = await store.findRuns({ limit: 1_000 });
    for (const [at, id] of ids.entries()) reader.#runIds.set(seqs[at]!, id);
    return reader;
  }

  /** Where it has ended. */
  get position(): number {
    return this.#position;
  }

  /** Leaves out what was committed until now. */
  async skip(): Promise<void> {
    await this.readRows();
  }

  /** The facts that were committed since. */
  async read(): Promise<NamedFact[]> {
    return (await this.readRows()).flatMap(({ facts }) => facts.map((fact) => this.#toNamed(fact)));
  }

  /** The same, with their instants and the values that they leave out. */
  async readAll(): Promise<ReadFact[]> {
    const all = [];
    for (const { at, facts } of await this.readRows()) {
      for (const fact of facts) all.push({ at, fact: this.#toNamed(fact), value: await this.#readValue(fact) });
    }
    return all;
  }

  /** The rows that were committed since. */
  async readRows(): Promise<JournalRow[]> {
    const rows: JournalRow[] = [];
    while (true) {
      const page = await this.#store.readJournal(this.#position, 100_000);
      if (page === null) throw new Error(`The journal is not kept after ${this.#position} any more`);
      rows.push(...page.rows);
      this.#position = page.rows.at(-1)?.position ?? this.#position;
      if (this.#position === page.end.position) break;
    }
    await this.#learn(rows.flatMap(({ facts }) => facts.map(([run]) => run)));
    return rows;
  }

  async #learn(runs: number[]): Promise<void> {
    const unknown = [...new Set(runs)].filter((run) => !this.#runIds.has(run));
    for (const [at, identity] of (await this.#store.getRunIdentities(unknown)).entries()) {
      if (identity !== null) this.#runIds.set(unknown[at]!, identity.id);
    }
  }

  #toNamed([run, ...what]: Fact): NamedFact {
    return [this.#runIds.get(run), ...what];
  }

  async #readValue(fact: Fact): Promise<FactValue | null> {
    const ref = valueRefOf(fact);
    return ref === null ? null : (await this.#store.readFactValues([ref], 1))[0]!;
  }
}
