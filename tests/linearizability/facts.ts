import { LedgerReader } from "../torture/ledger.ts";

/** Whom a fact is about. */
interface Leased {
  /** The name of what is examined, which the input of the run says. */
  of: string;
  run: string;
  generation: number;
}

/**
 * Something that a process of the service has seen of a run, all instants by the clock of the machine, in milliseconds.
 * What lies between `from` and `to` was done at a moment between the call of the store and its answer.
 */
export type Fact =
  /** The run was claimed; `until`: when its lease ends unless it is renewed. `isFirst`: it is its start. */
  | Leased & {
    is: "claimed";
    from: number;
    to: number;
    until: number;
    room: number;
    isFirst: boolean;
    slot: number | null;
  }
  | Leased & { is: "renewed"; from: number; to: number; until: number }
  /** The run is to be parked; `keeps`: for the retry of a step, so that it keeps its key. */
  | Leased & { is: "parking"; id: string; from: number; keeps: boolean }
  | Leased & { is: "parked"; id: string; to: number; isParked: boolean }
  /** A function of a step begins, and is about to end. */
  | Leased & { is: "entered"; id: string; when: number }
  | Leased & { is: "left"; id: string; when: number };

/** What the processes have seen, by what it is about. */
export class Facts implements Disposable {
  readonly #reader: LedgerReader<Fact>;
  readonly #facts = new Map<string, Fact[]>();

  /** Reads the file that the processes write to. */
  constructor(path: string) {
    this.#reader = new LedgerReader(path);
  }

  /** All that was seen of one thing so far. What was taken is not answered again. */
  take(of: string): Fact[] {
    for (const fact of this.#reader.readNew()) {
      const facts = this.#facts.get(fact.of);
      if (facts === undefined) this.#facts.set(fact.of, [fact]);
      else facts.push(fact);
    }
    const facts = this.#facts.get(of) ?? [];
    this.#facts.delete(of);
    return facts;
  }

  [Symbol.dispose](): void {
    this.#reader[Symbol.dispose]();
  }
}
