import type { StepWrite } from "../../../model/step.ts";
import type { JsonText } from "../../../values/json.ts";
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

/** Runs of which the writes know and change the same. */
export interface SameRuns {
  /** The numbers of their rows. */
  seqs: number[];
  /** What is known and changed. */
  known: Known;
}

/**
 * The plain steps and ends of a batch, which are most of them: a step that has completed at its first attempt, and the end
 * of a run that has completed without pauses, children and a key. They are put off until the next statement of another
 * kind, or the commit: see `writePlain()`.
 */
export class PlainWrites {
  /** Whether writes are put off: in a batch of many. */
  isOpen = false;
  /** The values of the rows of steps, one row after another. */
  steps: (string | number | null)[] = [];
  readonly #recorded = new Map<LeasedRun, Known>();
  readonly #ended = new Map<string, SameRuns & { output: JsonText | null }>();

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
    const { number, output, factInRow, startedAt } = row;
    this.steps.push(number, factInRow, run.seq, name, index, output, attempts, known.newRecorded, startedAt, now);
  }

  /** Adds the end of a run that has completed. */
  addEnd(run: LeasedRun, output: JsonText | null, lastReportNo: number, now: number): void {
    const known = { ...know(run, now), newLastReportNo: lastReportNo };
    add(this.#ended, `${keyOf(known)} ${output}`, run.seq, () => ({ seqs: [], known, output }));
  }

  /** The runs that have recorded steps. */
  recorded(): Iterable<SameRuns> {
    const groups = new Map<string, SameRuns>();
    for (const [{ seq }, known] of this.#recorded) add(groups, keyOf(known), seq, () => ({ seqs: [], known }));
    return groups.values();
  }

  /** The runs that have ended, after they have recorded steps. */
  ended(): Iterable<SameRuns & { output: JsonText | null }> {
    return this.#ended.values();
  }

  /** Forgets all: it is written, or the batch is rolled back. */
  clear(): void {
    this.steps = [];
    this.#recorded.clear();
    this.#ended.clear();
  }
}

function know({ generation, recorded, lastReportNo }: LeasedRun, now: number): Known {
  return { generation, recorded, lastReportNo, newRecorded: recorded, newLastReportNo: lastReportNo, now };
}

function keyOf({ generation, recorded, lastReportNo, newRecorded, newLastReportNo, now }: Known): string {
  return `${generation} ${recorded} ${lastReportNo} ${newRecorded} ${newLastReportNo} ${now}`;
}

function add<G extends SameRuns>(groups: Map<string, G>, key: string, seq: number, create: () => G): void {
  const group = groups.get(key) ?? create();
  group.seqs.push(seq);
  groups.set(key, group);
}
