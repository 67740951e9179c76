import type { PassedOrphans } from "../children/orphans.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { rowLimit } from "../statement.ts";
import { CANDIDATE, type Candidate, IN_TIME, readyRuns } from "./candidate.ts";
import type { JobGate } from "./job_gates.ts";
import { type Head, readBegunHeads, readHeads } from "./turns.ts";

// How many runs of a group are read at once after the first one.
const PAGE_SIZE = 32;

/** The first run of a group that can be claimed, in the turn of the group. */
export interface CandidateHead extends Head {
  run: Candidate;
}

/** Which runs of a group are passed over. */
export interface HeadOptions {
  /** Whether a run of another job comes first in the queue of the key. It is asked for runs with a fairness key. */
  isBehind(run: Candidate): boolean;
  /** The runs that have missed a deadline by now are passed over, too. */
  now: number;
  /** Runs that are not claimed. With a fairness key they are not drawn, so that they give no turn to other runs. */
  orphans: PassedOrphans;
}

/** Whether a head is drawn before another one. */
export function precedes(one: Pick<Head, "turn" | "position">, other: Pick<Head, "turn" | "position">): boolean {
  return one.turn < other.turn || (one.turn === other.turn && one.position < other.position);
}

/** The groups of one queue. The first run of a group that can be claimed takes its turn. */
export class JobHeads {
  readonly gate: JobGate;
  readonly #db: SqliteDatabase;
  readonly #options: HeadOptions;
  /** The fairness keys of which a run was drawn. */
  readonly #skipped = new Set<string>();
  /**
   * Of each fairness key, the last run that was passed over: this claim cannot take it, nor those before it. A run stays
   * behind another one while a claim takes runs, since that gives keys away and releases none.
   */
  readonly #passed = new Map<string, Place>();
  #first: CandidateHead | null | undefined;
  #isBegunOnly = false;

  constructor(db: SqliteDatabase, gate: JobGate, options: HeadOptions) {
    this.#db = db;
    this.gate = gate;
    this.#options = options;
  }

  first(): CandidateHead | null {
    const { room, starts } = this.gate;
    if (room <= 0) return null;
    if (starts <= 0 && !this.#isBegunOnly) {
      this.#isBegunOnly = true;
      this.#first = undefined;
    }
    if (this.#first === undefined) {
      this.#first = this.#isBegunOnly ? this.#find(readBegunHeads(this.#db, this.gate.queue)) : this.#findReady();
    }
    return this.#first;
  }

  #findReady(): CandidateHead | null {
    const { orphans } = this.#options;
    for (let limit = rowLimit(1 + this.#skipped.size + orphans.count);; limit *= 4) {
      const heads = readHeads(this.#db, this.gate.queue, limit);
      const found = this.#find(heads);
      if (heads.length < limit || orphans.isFull) return found;
      // Further heads come after the last one.
      if (found !== null && !precedes(heads.at(-1)!, found)) return found;
    }
  }

  #find(heads: readonly Head[]): CandidateHead | null {
    let first: CandidateHead | null = null;
    for (const head of heads) {
      if (first !== null && !precedes(head, first)) break;
      if (this.#skipped.has(head.fairness_key)) continue;
      const run = this.#firstOf(head);
      if (this.#options.orphans.isFull) return null; // the claim ends
      if (run === null) continue;
      const found = { ...head, position: run.position, run_seq: run.seq, run };
      if (first === null || precedes(found, first)) first = found;
    }
    return first;
  }

  /** The first run of a group that can be claimed. Runs before it that cannot be claimed do not delay the group's turn. */
  #firstOf({ fairness_key: key }: Head): Candidate | null {
    const { isBehind, orphans } = this.#options;
    for (let size = 1;; size = PAGE_SIZE) {
      const runs = this.#readGroup(key, size);
      for (const run of runs) {
        if (!orphans.has(run.seq) && !isBehind(run)) return run;
        if (orphans.isFull) return null;
        this.#passed.set(key, run);
      }
      if (runs.length < size) return null;
    }
  }

  #readGroup(key: string, size: number): Candidate[] {
    const { position, seq } = this.#passed.get(key) ?? BEFORE_ALL;
    const sql = this.#isBegunOnly ? GROUP_BEGUN : GROUP_READY;
    return this.#db.few<Candidate>(size, `${sql} ${size}`, this.gate.queue, key, position, seq, this.#options.now);
  }

  skip(head: Head): void {
    this.#skipped.add(head.fairness_key);
    this.#first = undefined;
  }

  readmit({ queue, fairness_key: key }: Head): void {
    if (queue === this.gate.queue && this.#skipped.delete(key)) this.#first = undefined;
  }

  reread(): void {
    this.#first = undefined;
  }

  /** Notes that runs have become ready, from a position on. */
  rereadFrom(position: number): void {
    for (const [key, passed] of this.#passed) {
      if (position <= passed.position) this.#passed.set(key, { position, seq: 0 });
    }
    this.#first = undefined;
  }
}

/** A place in a queue. */
type Place = Pick<Candidate, "position" | "seq">;

const BEFORE_ALL: Place = { position: Number.MIN_SAFE_INTEGER, seq: 0 };

const OF_GROUP = `AND fairness_key = ? AND (position, seq) > (?, ?) AND ${IN_TIME} ORDER BY position, seq LIMIT`;
const GROUP_READY = `${readyRuns(CANDIDATE, false)} ${OF_GROUP}`;
const GROUP_BEGUN = `${readyRuns(CANDIDATE, true)} ${OF_GROUP}`;
