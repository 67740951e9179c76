import { actorOf, type OriginText } from "../../../model/origin.ts";
import type { JsonText } from "../../../values/json.ts";
import type {
  Interruption,
  RunFailures,
  TimelinePause,
  TimelinePlace,
  TimelineRecords,
  TimelineRun,
  TimelineStep,
} from "../../../store/operator_reads.ts";
import {
  type AttemptRow,
  MAX_FAILURES,
  type TimelineStepRow,
  toFailures,
  toTimelineStep,
} from "../../operate/timeline_rows.ts";
import { toFailure } from "../../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong, raw } from "../statement.ts";
import type { Failure } from "../../../model/failure.ts";
import { startedAt, type StepWrite } from "../../../model/step.ts";

/** A part of the records of a run. See `Store.getTimeline()`. */
export function readTimeline(
  db: SqliteDatabase,
  runId: string,
  from: TimelinePlace,
  limit: number,
  now: number,
): TimelineRecords | null {
  interface Row extends Omit<TimelineRun, "triggeredBy" | "cancelledBy"> {
    seq: number;
    has_pauses: number;
    trace: OriginText | null;
    ended_by: string | null;
  }
  const row = db.get<Row>`
    SELECT r.seq, r.id, r.status, r.has_pauses, r.created_at AS createdAt, r.started_at AS startedAt,
      r.completed_at AS completedAt, r.start_at AS startAt, r.trace, r.ended_by
    FROM holdfast_runs r WHERE r.id = ${runId}`;
  if (row === undefined) return null;
  const { seq, has_pauses: hasPauses, trace, ended_by, ...run } = row;
  const count = (table: string, where = "") =>
    db.one<{ count: number }>`SELECT count(*) AS count FROM ${raw(table)} WHERE run_seq = ${seq} ${raw(where)}`.count;
  return {
    run: { ...run, triggeredBy: actorOf(trace), cancelledBy: actorOf(ended_by) },
    steps: readSteps(db, seq, from.steps, limit),
    pauses: hasPauses === 0 ? [] : readPauses(db, seq, from.pauses, limit),
    interruptions: readInterruptions(db, seq, from.interruptions, limit),
    totals: {
      steps: count("holdfast_steps INDEXED BY holdfast_steps_by_position"),
      pauses: hasPauses === 0 ? 0 : count("holdfast_pauses INDEXED BY holdfast_pauses_by_kind", "AND kind <> 'patch'"),
      interruptions: count("holdfast_interruptions"),
    },
    now,
  };
}

function readSteps(db: SqliteDatabase, seq: number, from: number, limit: number): TimelineStep[] {
  const rows = db.all<TimelineStepRow>`
    SELECT name, status, attempts, retry_at, started_at, completed_at, failure FROM holdfast_steps
    WHERE run_seq = ${seq} ORDER BY position, seq LIMIT ${limit} OFFSET ${from}`;
  const names = rows.filter(({ attempts, status }) => attempts > 1 || status === "retrying").map(({ name }) => name);
  const attempts = names.length === 0 ? [] : db.all<AttemptRow>`
    SELECT step_name, attempt, started_at, ended_at, retry_at, failure FROM holdfast_attempts
    WHERE run_seq = ${seq} AND ${isAmong("step_name", names)}
    ORDER BY step_name, attempt`;
  const byStep = Map.groupBy(attempts, ({ step_name }) => step_name);
  return rows.map((row) => toTimelineStep(row, byStep.get(row.name) ?? []));
}

function readPauses(db: SqliteDatabase, seq: number, from: number, limit: number): TimelinePause[] {
  const rows = db.all<Omit<TimelinePause, "signalledBy"> & { trace: OriginText | null }>`
    SELECT p.kind, p.id, p.name, p.status, p.outcome, p.created_at AS createdAt, p.suspended_at AS suspendedAt,
      p.resolved_at AS resolvedAt, p.first_resumed_at AS firstResumedAt, p.deadline_at AS deadlineAt, p.trace,
      iif(p.kind = 'children', (SELECT r.id FROM holdfast_children m JOIN holdfast_runs r ON r.seq = m.run_seq
        WHERE m.pause_seq = p.seq AND m.no = 0), NULL) AS childRunId
    FROM holdfast_pauses p WHERE p.run_seq = ${seq} AND p.kind <> 'patch' ORDER BY p.seq LIMIT ${limit} OFFSET ${from}`;
  return rows.map(({ trace, ...pause }) => ({ ...pause, signalledBy: actorOf(trace) }));
}

function readInterruptions(db: SqliteDatabase, seq: number, from: number, limit: number): Interruption[] {
  return db.all<Interruption>`
    SELECT kind, worker AS workerId, leased_at AS leasedAt, ended_at AS endedAt FROM holdfast_interruptions
    WHERE run_seq = ${seq} ORDER BY generation LIMIT ${limit} OFFSET ${from}`;
}

/** The failures of a run. See `Store.getFailures()`. */
export function readFailures(db: SqliteDatabase, runId: string): RunFailures | null {
  const run = db.get<{ seq: number; failure: JsonText | null }>`
    SELECT seq, failure FROM holdfast_runs WHERE id = ${runId}`;
  if (run === undefined) return null;
  const steps = db.all<{ name: string; position: number; attempt: number; failure: JsonText }>`
    SELECT name, position, attempts AS attempt, failure FROM holdfast_steps
    WHERE run_seq = ${run.seq} AND failure IS NOT NULL ORDER BY position, seq LIMIT ${raw(MAX_FAILURES)}`;
  const attempts = db.all<{ name: string; position: number; attempt: number; failure: JsonText }>`
    SELECT a.step_name AS name, s.position, a.attempt, a.failure FROM holdfast_attempts a
    JOIN holdfast_steps s ON s.run_seq = a.run_seq AND s.name = a.step_name
    WHERE a.run_seq = ${run.seq} AND a.failure IS NOT NULL LIMIT ${raw(MAX_FAILURES)}`;
  return { run: toFailure(run.failure), steps: toFailures([...attempts, ...steps]) };
}

/** Notes an attempt at a step that needs more than one. */
export function noteAttempt(
  db: SqliteDatabase,
  runSeq: number,
  step: StepWrite,
  { failure, retryAt }: { failure: Failure | null; retryAt: number | null },
  now: number,
): void {
  db.run`
    INSERT OR REPLACE INTO holdfast_attempts (run_seq, step_name, attempt, started_at, ended_at, retry_at, failure)
    VALUES (${runSeq}, ${step.name}, ${step.attempts}, ${startedAt(step, now)}, ${now}, ${retryAt},
      ${failure === null ? null : JSON.stringify(failure)})`;
}

/** Notes that the current execution of a run loses its lease without an end, before it does. */
export function noteInterruption(
  db: SqliteDatabase,
  runSeq: number,
  kind: "lost" | "released" | "held",
  now: number,
): void {
  db.run`INSERT INTO holdfast_interruptions (run_seq, generation, kind, worker, leased_at, ended_at)
    SELECT seq, lease_generation, ${kind}, lease_owner, leased_at, ${now} FROM holdfast_runs WHERE seq = ${runSeq}
      ON CONFLICT DO NOTHING`;
}
