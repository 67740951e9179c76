import type { Host } from "../../../host.ts";
import type { RetriggerFrom } from "../../../run.ts";
import type { Enqueued } from "../../../store.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { drawNumbers } from "../journal/journal.ts";
import { type RunRow, SELECT_RUN, toRun } from "../rows.ts";

/** The retry that the same call has added before, or else the newest retry of a run unless it has ended. */
export function findRetry(db: SqliteDatabase, runId: string, oldRunId: string): Enqueued | null {
  const own = db.get<RunRow>(`${SELECT_RUN} WHERE r.id = ?`, runId);
  if (own !== undefined) return { run: toRun(own), disposition: "created" };
  const open = db.get<RunRow>(
    `${SELECT_RUN} JOIN holdfast_runs o ON o.retriggered_as = r.id WHERE o.id = ? AND r.completed_at IS NULL`,
    oldRunId,
  );
  return open === undefined ? null : { run: toRun(open), disposition: "idempotent" };
}

/**
 * Links a new run with the run of which it is a retry. A retry from the failure begins with the history of that run.
 */
export function linkRetry(
  db: SqliteDatabase,
  runId: string,
  old: { runId: string; from: RetriggerFrom },
  host: Pick<Host, "newId">,
): void {
  const { seq } = db.one<{ seq: number }>(
    "UPDATE holdfast_runs SET retriggered_as = ? WHERE id = ? RETURNING seq",
    runId,
    old.runId,
  );
  db.facts.note([seq, "retried", runId]);
  if (old.from === "failure") copyHistory(db, runId, old.runId, host);
}

/** Copies completed steps, finished sleeps and resolved waits, with their record positions. */
function copyHistory(db: SqliteDatabase, runId: string, oldRunId: string, host: Pick<Host, "newId">): void {
  const { seq } = db.one<{ seq: number }>("SELECT seq FROM holdfast_runs WHERE id = ?", runId);
  const old = db.one<{ seq: number; recorded: number; has_pauses: number; origin_id: string }>(
    "SELECT seq, recorded, has_pauses, coalesce(origin_id, id) AS origin_id FROM holdfast_runs WHERE id = ?",
    oldRunId,
  );
  const { count } = db.one<{ count: number }>(
    "SELECT count(*) AS count FROM holdfast_steps WHERE run_seq = ? AND status = 'completed'",
    old.seq,
  );
  db.run(
    `INSERT INTO holdfast_steps
       (seq, run_seq, name, position, status, output, attempts, recorded_no, started_at, completed_at)
     SELECT ? + row_number() OVER (ORDER BY seq), ?, name, position, status, output, attempts, recorded_no, started_at,
       completed_at
     FROM holdfast_steps WHERE run_seq = ? AND status = 'completed'`,
    drawNumbers(db, count) - count,
    seq,
    old.seq,
  );
  // A wait that timed out as the last record made the old run fail: it is prepared again.
  const pauses = old.has_pauses === 0 ? [] : db.all<{ seq: number }>(
    `SELECT seq FROM holdfast_pauses WHERE run_seq = ? AND status = 'resolved'
       AND (kind = 'sleep' OR outcome = 'signal' OR recorded_no < ?) ORDER BY seq`,
    old.seq,
    old.recorded,
  );
  for (const pause of pauses) {
    db.run(
      `INSERT INTO holdfast_pauses (id, run_seq, kind, name, metadata, status, awaited, outcome, payload, signal_id,
         prepared_no, recorded_no, created_at, deadline_at, suspended_at, resolved_at, first_resumed_at)
       SELECT ?, ?, kind, name, metadata, status, 0, outcome, payload, signal_id,
         prepared_no, recorded_no, created_at, deadline_at, suspended_at, resolved_at, first_resumed_at
       FROM holdfast_pauses WHERE seq = ?`,
      host.newId(),
      seq,
      pause.seq,
    );
  }
  db.run(
    "UPDATE holdfast_runs SET recorded = ?, has_pauses = ?, origin_id = ? WHERE seq = ?",
    old.recorded,
    pauses.length > 0 ? 1 : 0,
    old.origin_id,
    seq,
  );
}
