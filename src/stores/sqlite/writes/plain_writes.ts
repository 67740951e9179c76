import type { StepWrite } from "../../../model/step.ts";
import type { JsonText } from "../../../values/json.ts";
import type { SqliteValue } from "../statement.ts";
import type { LeasedRun } from "./lease_cache.ts";

/** What a write knows of the row of its run, as the lease cache has it, and what it changes. */
interface Known {
  generation: number;
  recorded: number;
  lastReportNo: number;
  newRecorded: number;
  newLastReportNo: number;
  now: number;
}

/** Runs of which the writes know and change the same, with the numbers of their rows. */
interface SameRuns {
  seqs: number[];
  known: Known;
}

interface EndedRuns extends SameRuns {
  output: JsonText | null;
}

/**
 * The plain steps and ends of a batch, which are most of them: a step that has completed at its first attempt, and the end
 * of a run that has completed without pauses, children and a key. They are put off until the next statement of another
 * kind, or the commit.
 */
export class PlainWrites {
  /** Whether writes are put off: in a batch of many. */
  isOpen = false;
  /** The values of the rows of steps, one row after another. */
  #steps: SqliteValue[] = [];
  readonly #recorded = new Map<LeasedRun, Known>();
  readonly #ended = new Map<string, EndedRuns>();
  #lastEnded: EndedRuns | null = null;

  /** Whether there is something to write: right before the next statement, which may be the commit. */
  isPutOff = false;

  /** Adds the record of a step that has completed. The lease cache has the numbers of before. */
  addStep(
    run: LeasedRun,
    { name, index, attempts }: StepWrite,
    row: { number: number; output: JsonText | null; factInRow: number; startedAt: number },
    lastReportNo: number,
    now: number,
  ): void {
    const known = this.#recorded.get(run) ?? know(run, now);
    known.newRecorded = run.recorded + 1;
    known.newLastReportNo = lastReportNo;
    known.now = now;
    this.#recorded.set(run, known);
    this.isPutOff = true;
    const { number, output, factInRow, startedAt } = row;
    this.#steps.push(number, factInRow, run.seq, name, index, output, attempts, known.newRecorded, startedAt, now);
  }

  /** Adds the end of a run that has completed. */
  addEnd(run: LeasedRun, output: JsonText | null, lastReportNo: number, now: number): void {
    const known = { ...know(run, now), newLastReportNo: lastReportNo };
    this.isPutOff = true;
    const last = this.#lastEnded;
    if (last !== null && last.output === output && areSame(last.known, known)) return void last.seqs.push(run.seq);
    this.#lastEnded = add(this.#ended, `${keyOf(known)} ${output ?? ""}`, run.seq, () => ({ seqs: [], known, output }));
  }

  /**
   * Writes what was put off, several rows with one statement: half of what such a row costs alone is the call. Each
   * statement has the fence of a lease for all its rows, as the lease cache knows them.
   */
  write(db: { run(statement: string, ...values: readonly SqliteValue[]): number }): void {
    this.isPutOff = false;
    for (const { seqs, known } of this.#recordedGroups()) {
      const { generation, recorded, lastReportNo, newRecorded, newLastReportNo, now } = known;
      const values = [newRecorded, now, newLastReportNo, JSON.stringify(seqs), generation, recorded, lastReportNo];
      if (db.run(RECORD, ...values) !== seqs.length) throw new StaleRow();
    }
    let from = 0;
    for (const [rows, sql] of INSERTS) {
      const length = rows * STEP_COLUMNS.length;
      for (; from + length <= this.#steps.length; from += length) {
        db.run(sql, ...this.#steps.slice(from, from + length));
      }
    }
    for (const { output, seqs, known: { generation, lastReportNo, newLastReportNo, now } } of this.#ended.values()) {
      const values = [output, newLastReportNo, now, now, JSON.stringify(seqs), generation, lastReportNo];
      if (db.run(END, ...values) !== seqs.length) throw new StaleRow();
    }
    this.clear();
  }

  /** The runs that have recorded steps. */
  #recordedGroups(): Iterable<SameRuns> {
    const groups = new Map<string, SameRuns>();
    let last: SameRuns | null = null;
    for (const [{ seq }, known] of this.#recorded) {
      if (last !== null && areSame(last.known, known)) last.seqs.push(seq);
      else last = add(groups, keyOf(known), seq, () => ({ seqs: [], known }));
    }
    return groups.values();
  }

  /** Forgets all: it is written, or the batch is rolled back. */
  clear(): void {
    this.isPutOff = false;
    this.#steps = [];
    this.#recorded.clear();
    this.#ended.clear();
    this.#lastEnded = null;
  }
}

function know({ generation, recorded, lastReportNo }: LeasedRun, now: number): Known {
  return { generation, recorded, lastReportNo, newRecorded: recorded, newLastReportNo: lastReportNo, now };
}

function keyOf({ generation, recorded, lastReportNo, newRecorded, newLastReportNo, now }: Known): string {
  return `${generation} ${recorded} ${lastReportNo} ${newRecorded} ${newLastReportNo} ${now}`;
}

/** Most runs equal the one before, and comparing is cheaper than making a key. */
function areSame(one: Known, other: Known): boolean {
  return one.recorded === other.recorded && one.newRecorded === other.newRecorded &&
    one.lastReportNo === other.lastReportNo && one.newLastReportNo === other.newLastReportNo &&
    one.generation === other.generation && one.now === other.now;
}

function add<G extends SameRuns>(groups: Map<string, G>, key: string, seq: number, create: () => G): G {
  const group = groups.get(key) ?? create();
  group.seqs.push(seq);
  groups.set(key, group);
  return group;
}

/** A row is not what the lease cache knows: the batch is rolled back, and repeated with a statement for each write. */
class StaleRow extends Error {
  constructor() {
    super("A run has changed since it was claimed");
  }
}

// In the order of the values of `addStep()`.
const STEP_COLUMNS =
  "seq, fact_in_row, run_seq, name, position, output, attempts, recorded_no, started_at, completed_at".split(", ");
// How many rows a statement has: as many as it can, each of these in turn.
const INSERTS = [16, 8, 4, 2, 1].map((rows): [number, string] => [rows, insertSteps(rows)]);

// A step that is recorded already is an error: then the batch is repeated.
function insertSteps(rows: number): string {
  const row = `('completed', ${STEP_COLUMNS.map(() => "?").join(", ")})`;
  return `INSERT INTO holdfast_steps (status, ${STEP_COLUMNS.join(", ")}) VALUES ${Array(rows).fill(row).join(", ")}`;
}

// Without `NOT INDEXED` and `+` the planner may take the index of another column, and read all runs for each of the list.
const LEASED = "seq IN (SELECT value FROM json_each(?)) AND +status = 'running' AND lease_generation = ?";
const RECORD = `UPDATE holdfast_runs NOT INDEXED SET recorded = ?, abandonments = 0, updated_at = ?, last_report_no = ?
  WHERE ${LEASED} AND recorded = ? AND last_report_no = ?`;
const END = `UPDATE holdfast_runs NOT INDEXED SET status = 'completed', output = ?, last_report_no = ?,
    lease_owner = NULL, lease_expires_at = NULL, updated_at = ?, completed_at = ?
  WHERE ${LEASED} AND last_report_no = ? AND has_pauses = 0 AND parent_seq IS NULL AND retrigger_of IS NULL AND on_end IS NULL`;
