import type { DatabaseSync, SQLInputValue } from "node:sqlite";
import { hashText } from "../support/chance.ts";
import { outcomeOf, valueOf } from "./fact.ts";
import type { TortureInput, TortureOutput } from "./recorded_body.ts";

/** A step as it stands in the database. */
export interface StepRow {
  name: string;
  status: string;
  attempts: number;
  /** As in the ledger; `null` if it was cancelled. */
  value: string | null;
  recordedNo: number;
  /** Whether it was copied from the run of which this one is a retry. */
  isCopied: boolean;
}

/** A pause as it stands in the database. */
export interface PauseRow {
  id: string;
  kind: string;
  name: string;
  status: string;
  isAwaited: boolean;
  /** As in the ledger, if it is over. */
  value: string | null;
  hasSignal: boolean;
  deadlineAt: number | null;
  resolvedAt: number | null;
}

/** A run with all that belongs to it, as it stands in the database. */
export interface RunRows {
  seq: number;
  id: string;
  job: string;
  status: string;
  key: string | null;
  generation: number;
  place: string | null;
  /** When it enters its line, if that is later. */
  dueAt: number | null;
  timerAt: number | null;
  leaseOwner: string | null;
  leaseExpiresAt: number | null;
  completedAt: number | null;
  recorded: number;
  output: TortureOutput | null;
  error: string | null;
  failedStep: string | null;
  input: TortureInput;
  steps: StepRow[];
  pauses: PauseRow[];
  /** Of every column of every row, so that no change escapes. */
  hash: number;
}

type Row = Record<string, SQLInputValue>;

/** Whether nothing may change in a run of this status. */
export function isOver(status: string): boolean {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Reads runs, which `where` selects of `holdfast_runs`, by age. */
export function readRuns(database: DatabaseSync, where: string, ...values: SQLInputValue[]): RunRows[] {
  const all = (sql: string) => database.prepare(sql).all(...values) as Row[];
  const runs = all(
    `SELECT r.*, i.payload FROM holdfast_runs r LEFT JOIN holdfast_inputs i ON i.run_seq = r.seq
     WHERE r.seq IN (SELECT seq FROM holdfast_runs WHERE ${where}) ORDER BY r.seq`,
  );
  const ofRuns = `WHERE run_seq IN (SELECT seq FROM holdfast_runs WHERE ${where}) ORDER BY seq`;
  const steps = Map.groupBy(all(`SELECT * FROM holdfast_steps ${ofRuns}`), ({ run_seq: seq }) => seq);
  const pauses = Map.groupBy(all(`SELECT * FROM holdfast_pauses ${ofRuns}`), ({ run_seq: seq }) => seq);
  return runs.map((run) => toRunRows(run, steps.get(run.seq!) ?? [], pauses.get(run.seq!) ?? []));
}

/** The hashes of runs, which `where` selects of `holdfast_runs`, by id. */
export function readHashes(database: DatabaseSync, where: string, ...values: SQLInputValue[]): Map<string, number> {
  return new Map(readRuns(database, where, ...values).map(({ id, hash }) => [id, hash]));
}

function toRunRows(run: Row, steps: Row[], pauses: Row[]): RunRows {
  return {
    seq: Number(run.seq),
    id: String(run.id),
    job: String(run.job),
    status: String(run.status),
    key: run.concurrency_key as string | null,
    generation: Number(run.lease_generation),
    place: run.queue_state as string | null,
    dueAt: run.due_at as number | null,
    timerAt: run.timer_at as number | null,
    leaseOwner: run.lease_owner as string | null,
    leaseExpiresAt: run.lease_expires_at as number | null,
    completedAt: run.completed_at as number | null,
    recorded: Number(run.recorded),
    output: run.output === null ? null : JSON.parse(run.output as string),
    error: run.error as string | null,
    failedStep: run.failed_step as string | null,
    input: JSON.parse(run.payload as string),
    steps: steps.map((step) => toStepRow(step, run)),
    pauses: pauses.map(toPauseRow),
    // A run that has ended may be retriggered: nothing else in it changes.
    hash: hashText(JSON.stringify([{ ...run, retriggered_as: null, completed_as: null }, steps, pauses])),
  };
}

function toStepRow(row: Row, run: Row): StepRow {
  const value = row.status === "completed"
    ? valueOf({ output: row.output === null ? null : JSON.parse(row.output as string) })
    : row.status === "cancelled"
    ? null
    : valueOf({ error: String(JSON.parse(row.failure as string).message) });
  return {
    name: String(row.name),
    status: String(row.status),
    attempts: Number(row.attempts),
    value,
    recordedNo: Number(row.recorded_no),
    isCopied: run.retrigger_of !== null && row.fact_in_row === 0 && row.status === "completed" &&
      Number(row.completed_at) <= Number(run.created_at),
  };
}

function toPauseRow(row: Row): PauseRow {
  const outcome = row.outcome as string | null;
  const payload = row.payload === null ? null : JSON.parse(row.payload as string);
  return {
    id: String(row.id),
    kind: String(row.kind),
    name: String(row.name),
    status: String(row.status),
    isAwaited: row.awaited === 1,
    value: outcome === null ? null : outcomeOf({ outcome, payload, signalId: row.signal_id as string | null }),
    hasSignal: outcome === "signal",
    deadlineAt: row.deadline_at as number | null,
    resolvedAt: row.resolved_at as number | null,
  };
}
