import { factBy } from "../../../model/fact.ts";
import type { Retention, RunIdentity, RunStatus } from "../../../model/run.ts";
import { type IdentityRow, toRunIdentity } from "../../rows.ts";
import { DELETED_RUNS_KNOWN_MS } from "../../rules.ts";
import { keepResult } from "../children/child_results.ts";
import type { JsonText } from "../../../values/json.ts";
import { findOpenEnd, keepUndone } from "./end_runs.ts";
import { deleteHold } from "../changed_code/holds.ts";
import { purgeChunks } from "../streams.ts";
import { trimByAge } from "../journal/journal.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";

/** Deletes a run that has ended. See `Store.delete()`. */
export function deleteRun(db: SqliteDatabase, runId: string, by: string | null, now: number): RunIdentity | null {
  const known = db.get<
    { seq: number; id: string; completed_at: number | null; on_end: JsonText | null; end_of: string | null }
  >`
    SELECT seq, id, completed_at, on_end, end_of FROM holdfast_runs WHERE id = ${runId}`;
  if (known === undefined || known.completed_at === null || findOpenEnd(db, runId, known) !== undefined) return null;
  if (known.end_of !== null) keepUndone(db, { ...known, end_of: known.end_of });
  keepResult(db, runId);
  const row = db.get<
    IdentityRow & { seq: number; status: RunStatus; lease_generation: number; origin_id: string | null }
  >`DELETE FROM holdfast_runs WHERE id = ${runId} AND completed_at IS NOT NULL
    RETURNING seq, id, job, labels, status, lease_generation, origin_id`;
  if (row === undefined) return null;
  deleteHold(db, row);
  const identity = toRunIdentity(row);
  moveRun(db, row.job, row.status, null);
  db.facts.note(factBy([row.seq, "deleted", identity.id, identity.jobName, identity.labels], by));
  db.run`DELETE FROM holdfast_deleted WHERE deleted_at <= ${now - DELETED_RUNS_KNOWN_MS}`;
  db.run`INSERT OR REPLACE INTO holdfast_deleted (id, deleted_at) VALUES (${runId}, ${now})`;
  return identity;
}

// A purge ends after this many steps, so that none takes long.
const MAX_PURGED_STEPS = 1_000;

/** Deletes runs that ended long enough ago. See `Store.purge()`. */
export function purgeRuns(db: SqliteDatabase, retention: Retention, limit: number, now: number): RunIdentity[] {
  trimByAge(db, now);
  purgeChunks(db, retention, now);
  const due = Object.entries(retention).flatMap(([status, keptMs]) =>
    db.all<{ id: string; completed_at: number; seq: number; recorded: number }>`
      SELECT id, completed_at, seq, recorded FROM holdfast_runs r
        WHERE status = ${status} AND completed_at <= ${now - keptMs}
        AND (on_end IS NULL OR NOT EXISTS (
          SELECT 1 FROM holdfast_runs e WHERE e.end_of = r.id AND e.completed_at IS NULL))
        AND (retriggered_as IS NULL OR NOT EXISTS (
          SELECT 1 FROM holdfast_runs n WHERE n.origin_id = ifnull(r.origin_id, r.id) AND n.completed_at IS NULL))
      ORDER BY completed_at, seq LIMIT ${limit}`
  );
  due.sort((left, right) => left.completed_at - right.completed_at || left.seq - right.seq);
  const purged: RunIdentity[] = [];
  let steps = 0;
  for (const { id, recorded } of due.slice(0, limit)) {
    steps += recorded;
    if (purged.length > 0 && steps > MAX_PURGED_STEPS) break;
    purged.push(deleteRun(db, id, null, now)!); // it has ended: the same transaction has just found it
  }
  return purged;
}
