import { rowLimit } from "../row_limit.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { type Candidate, FLOW_CANDIDATE, IN_TIME } from "./candidate.ts";
import { type CandidateHead, type HeadOptions, JobHeads, precedes } from "./job_heads.ts";
import { type JobGate, readyOf } from "./job_gates.ts";
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
export interface CandidateOptions extends HeadOptions {
  /** Whether runs with flow are due. */
  hasFlow: boolean;
  /** How many runs are read at once. */
  pageSize: number;
}

/** Draws candidates one after another: those without a fairness key by position, and all of them by turn. */
export class Candidates {
  readonly #db: SqliteDatabase;
  readonly #lanes: Lane[];
  readonly #heads: JobHeads[];

  constructor(db: SqliteDatabase, gates: readonly JobGate[], options: CandidateOptions) {
    this.#db = db;
    const open = gates.filter(({ room }) => room > 0);
    const { hasFlow } = options;
    // Without runs with flow, no claim makes another run ready.
    const ready = hasFlow || open.length < 2 ? open : readyOf(db, open);
    this.#lanes = ready.map((gate) => new Lane(db, gate, "plain", options));
    if (hasFlow) this.#lanes.push(...open.map((gate) => new Lane(db, gate, "flow", options)));
    this.#heads = hasFlow ? open.map((gate) => new JobHeads(db, gate, options)) : [];
  }

  /** The next candidate, or `null`. It is not drawn again. */
  next(): Drawn | null {
    let lane: Lane | null = null;
    let first: Candidate | null = null;
    for (const other of this.#lanes) {
      const run = other.first();
      if (run !== null && (first === null || run.position < first.position)) [lane, first] = [other, run];
    }
    let heads: JobHeads | null = null;
    let head: CandidateHead | null = null;
    for (const other of this.#heads) {
      const next = other.first();
      if (next !== null && (head === null || precedes(next, head))) [heads, head] = [other, next];
    }
    if (heads !== null && head !== null) {
      const keyless = first === null ? null : { turn: readKeylessTurn(this.#db), position: first.position };
      if (keyless === null || precedes(head, keyless)) {
        heads.skip(head);
        return { run: head.run, gate: heads.gate, head, turn: head.turn };
      }
      return this.#drawFrom(lane!, keyless.turn); // it has the first keyless run
    }
    return lane === null ? null : this.#drawFrom(lane, null);
  }

  #drawFrom(lane: Lane, turn: number | null): Drawn {
    return { run: lane.shift(), gate: lane.gate, head: null, turn };
  }

  /** Notes that the queues of keys have made runs of these jobs ready, from these positions on, or blocked them. */
  rereadQueues(jobs: ReadonlyMap<string, number>): void {
    for (const lane of this.#lanes) {
      const position = jobs.get(lane.gate.queue);
      if (position !== undefined) lane.reread(position);
    }
    for (const heads of this.#heads) {
      const position = jobs.get(heads.gate.queue);
      if (position !== undefined) heads.rereadFrom(position);
    }
  }

  /** Notes that a run with a concurrency key was claimed: heads of other jobs may be behind the run that is now the first. */
  rereadAllHeads(): void {
    for (const heads of this.#heads) heads.reread();
  }

  /** Notes that the heads of these jobs have changed. */
  rereadHeads(jobs: readonly string[]): void {
    for (const heads of this.#heads) if (jobs.includes(heads.gate.queue)) heads.reread();
  }

  /** Notes that a run of a group was claimed: its next one may be claimed, too. */
  readmit(head: Head): void {
    for (const heads of this.#heads) heads.readmit(head);
  }
}

/** The ready runs of one queue without a fairness key, in one of the two tables. Reads ahead by pages. */
class Lane {
  readonly gate: JobGate;
  readonly #db: SqliteDatabase;
  readonly #table: "plain" | "flow";
  readonly #pageSize: number;
  readonly #now: number;
  #nextSize: number;
  #page: Candidate[] = [];
  #isLast = false;
  #isBegunOnly = false;
  #after = { position: Number.MIN_SAFE_INTEGER, seq: 0 };

  constructor(db: SqliteDatabase, gate: JobGate, table: "plain" | "flow", { pageSize, now }: CandidateOptions) {
    this.#db = db;
    this.gate = gate;
    this.#table = table;
    this.#now = now;
    this.#pageSize = rowLimit(pageSize);
    this.#nextSize = this.#pageSize;
  }

  first(): Candidate | null {
    const { room, starts } = this.gate;
    if (room <= 0) return null;
    if (starts <= 0 && !this.#isBegunOnly) {
      this.#isBegunOnly = true;
      this.reread(Infinity);
    }
    if (this.#page.length === 0 && !this.#isLast) {
      const size = this.#nextSize;
      this.#page = this.#read(size);
      this.#isLast = this.#page.length < size;
      this.#nextSize = Math.min(4 * size, this.#pageSize);
    }
    return this.#page[0] ?? null;
  }

  shift(): Candidate {
    const run = this.#page.shift()!; // called after `first()` has found one
    this.#after = run;
    return run;
  }

  /** Notes that runs may have become ready, from a position on, or others no longer be. */
  reread(position: number): void {
    // A run whose turn came late can be followed by one that precedes those drawn meanwhile. One that shares its key with
    // the claimed run has flow. Claimed runs with flow have left the index; those without may still be in it.
    if (this.#table === "flow" && position < this.#after.position) this.#after = { position, seq: 0 };
    this.#page = [];
    this.#isLast = false;
    this.#nextSize = 1; // the next run may change the queues again
  }

  #read(size: number): Candidate[] {
    const { position, seq } = this.#after;
    const { queue } = this.gate;
    const sql = this.#table === "plain"
      ? (this.#isBegunOnly ? PLAIN_BEGUN : PLAIN_READY)
      : (this.#isBegunOnly ? FLOW_BEGUN : FLOW_READY);
    const after = this.#table === "plain" ? [seq] : [position, seq, this.#now];
    return this.#db.few<Candidate>(size, `${sql} ${size}`, queue, ...after);
  }
}

const PLAIN_CANDIDATE = `seq, id, job, status, seq AS position, concurrency_key, NULL AS fairness_key,
  lease_generation, started_at IS NOT NULL AS begun, flow`;
// The planner would take the index of all runs of the job, most of which have ended.
const PLAIN_READY = `SELECT ${PLAIN_CANDIDATE} FROM holdfast_runs INDEXED BY holdfast_runs_ready
  WHERE queue_state = 'R' AND job = ? AND seq > ? ORDER BY seq LIMIT`;
const PLAIN_BEGUN = `SELECT ${PLAIN_CANDIDATE} FROM holdfast_runs INDEXED BY holdfast_runs_ready_begun
  WHERE queue_state = 'R' AND started_at IS NOT NULL AND job = ? AND seq > ? ORDER BY seq LIMIT`;
const FLOW_READY = `SELECT ${
  FLOW_CANDIDATE.replace("holdfast_flow f", "holdfast_flow f INDEXED BY holdfast_flow_ready")
}
  WHERE f.queue_state = 'R' AND f.job = ? AND f.fairness_key IS NULL AND (f.position, f.run_seq) > (?, ?)
  AND ${IN_TIME} ORDER BY f.position, f.run_seq LIMIT`;
const FLOW_BEGUN = `SELECT ${
  FLOW_CANDIDATE.replace("holdfast_flow f", "holdfast_flow f INDEXED BY holdfast_flow_ready_begun")
}
  WHERE f.queue_state = 'R' AND f.begun = 1 AND f.job = ? AND f.fairness_key IS NULL AND (f.position, f.run_seq) > (?, ?)
  AND ${IN_TIME} ORDER BY f.position, f.run_seq LIMIT`;
