import type { SqliteDatabase } from "../sqlite_database.ts";
import { rowLimit } from "../statement.ts";
import { CANDIDATE, type Candidate, IN_TIME, readyRuns } from "./candidate.ts";
import { type CandidateHead, type HeadOptions, JobHeads, precedes } from "./job_heads.ts";
import { type JobGate, queuesWithReady } from "./job_gates.ts";
import { type Head, readKeylessTurn } from "./turns.ts";

/** A candidate in its turn. */
export interface Drawn {
  run: Candidate;
  gate: JobGate;
  /** Its head, if it has a fairness key. */
  head: Head | null;
  /** The turn in which it is served; `null`: no run with a fairness key can be claimed. */
  turn: number | null;
}

/** How candidates are looked for. */
interface CandidateOptions extends HeadOptions {
  /** Whether a run with a fairness key can be claimed. */
  hasHeads: boolean;
  /** How many runs are read at once. */
  pageSize: number;
  /** The runs that the claim has taken: some of them are still in the index. */
  taken: ReadonlyMap<number, Candidate>;
}

/** Draws candidates one after another: those without a fairness key by position, and all of them by turn. */
export class Candidates {
  readonly #db: SqliteDatabase;
  readonly #keyless: KeylessRuns[];
  readonly #heads: JobHeads[];
  #hasHeads: boolean;

  constructor(db: SqliteDatabase, gates: readonly JobGate[], options: CandidateOptions) {
    this.#db = db;
    const open = gates.filter(({ room }) => room > 0);
    const ready = open.length < 2 ? null : queuesWithReady(db, open);
    this.#keyless = open.map((gate) => new KeylessRuns(db, gate, options, ready?.has(gate.queue) === false));
    this.#heads = open.map((gate) => new JobHeads(db, gate, options));
    this.#hasHeads = options.hasHeads;
  }

  /** The next candidate, or `null`. It is not drawn again. */
  next(): Drawn | null {
    let keyless: KeylessRuns | null = null;
    let first: Candidate | null = null;
    for (const other of this.#keyless) {
      const run = other.first();
      if (run !== null && (first === null || run.position < first.position)) [keyless, first] = [other, run];
    }
    let heads: JobHeads | null = null;
    let head: CandidateHead | null = null;
    for (const other of this.#hasHeads ? this.#heads : []) {
      const next = other.first();
      if (next !== null && (head === null || precedes(next, head))) [heads, head] = [other, next];
    }
    if (heads !== null && head !== null) {
      const place = first === null ? null : { turn: readKeylessTurn(this.#db), position: first.position };
      if (place === null || precedes(head, place)) {
        heads.skip(head);
        return { run: head.run, gate: heads.gate, head, turn: head.turn };
      }
      return drawFrom(keyless!, place.turn); // it has the first run
    }
    return keyless === null ? null : drawFrom(keyless, null);
  }

  /** Notes that runs of these queues have become ready, from these positions on, or are blocked by their key now. */
  reread(queues: ReadonlyMap<string, number>): void {
    for (const runs of [...this.#keyless, ...this.#heads]) {
      const position = queues.get(runs.gate.queue);
      if (position !== undefined) runs.rereadFrom(position);
    }
  }

  /** Notes that a run with a concurrency key was claimed: heads of other jobs may be behind the run that is now the first. */
  rereadAllHeads(): void {
    for (const heads of this.#heads) heads.reread();
  }

  /** Notes that the heads of these queues have changed. */
  rereadHeads(queues: readonly string[]): void {
    if (queues.length > 0) this.#hasHeads = true;
    for (const heads of this.#heads) if (queues.includes(heads.gate.queue)) heads.reread();
  }

  /** Notes that a run of a group was claimed: its next one may be claimed, too. */
  readmit(head: Head): void {
    for (const heads of this.#heads) heads.readmit(head);
  }
}

function drawFrom(runs: KeylessRuns, turn: number | null): Drawn {
  return { run: runs.shift(), gate: runs.gate, head: null, turn };
}

/** The ready runs of one queue without a fairness key. Reads ahead by pages. */
class KeylessRuns {
  readonly gate: JobGate;
  readonly #db: SqliteDatabase;
  readonly #pageSize: number;
  readonly #now: number;
  readonly #taken: CandidateOptions["taken"];
  #nextSize: number;
  #page: Candidate[] = [];
  #isLast: boolean;
  #isBegunOnly = false;
  #after: Pick<Candidate, "position" | "seq"> = { position: Number.MIN_SAFE_INTEGER, seq: 0 };

  /** @param isEmpty Whether no run is ready. */
  constructor(db: SqliteDatabase, gate: JobGate, { pageSize, now, taken }: CandidateOptions, isEmpty: boolean) {
    this.#db = db;
    this.gate = gate;
    this.#now = now;
    this.#taken = taken;
    this.#pageSize = rowLimit(pageSize);
    this.#nextSize = this.#pageSize;
    this.#isLast = isEmpty;
  }

  first(): Candidate | null {
    const { room, starts } = this.gate;
    if (room <= 0) return null;
    if (starts <= 0 && !this.#isBegunOnly) {
      this.#isBegunOnly = true;
      this.rereadFrom(Infinity);
    }
    while (this.#page.length === 0 && !this.#isLast) {
      const size = this.#nextSize;
      const page = this.#read(size);
      this.#isLast = page.length < size;
      this.#nextSize = Math.min(4 * size, this.#pageSize);
      this.#page = page.filter(({ seq }) => !this.#taken.has(seq));
      if (this.#page.length === 0) this.#after = page.at(-1) ?? this.#after;
    }
    return this.#page[0] ?? null;
  }

  shift(): Candidate {
    const run = this.#page.shift()!; // called after `first()` has found one
    this.#after = run;
    return run;
  }

  /** Notes that runs may have become ready, from a position on, or others no longer be. */
  rereadFrom(position: number): void {
    // A run whose turn came late can be followed by one that precedes those drawn meanwhile.
    if (position < this.#after.position) this.#after = { position, seq: 0 };
    this.#page = [];
    this.#isLast = false;
    this.#nextSize = 1; // the next run may change the queue again
  }

  #read(size: number): Candidate[] {
    const { position, seq } = this.#after;
    const sql = this.#isBegunOnly ? BEGUN : READY;
    return this.#db.few<Candidate>(size, `${sql} ${size}`, this.gate.queue, position, seq, this.#now);
  }
}

const AFTER = `AND fairness_key IS NULL AND (position, seq) > (?, ?) AND ${IN_TIME} ORDER BY position, seq LIMIT`;
const READY = `${readyRuns(CANDIDATE, false)} ${AFTER}`;
const BEGUN = `${readyRuns(CANDIDATE, true)} ${AFTER}`;
