import { newsSpans } from "../activity.ts";
import type { TerminalStatus } from "../run.ts";
import type { Activity, ActivityCursor, RunState } from "../store.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";
import { SELECT_RUN, toAwaitedPause, toAwaitedRetry, toRun, toStep } from "./sqlite_rows.ts";

/** Reads a run with all that its events tell. See `Store.getRunState()`. */
export function readRunState(db: SqliteDatabase, runId: string): RunState | null {
  const row = db.get(`${SELECT_RUN} WHERE r.id = ?`, runId);
  if (row === undefined) return null;
  const steps = db.all("SELECT * FROM holdfast_steps WHERE run_seq = ? ORDER BY position, seq", row.seq!);
  const pauses = row.status !== "waiting" ? [] : db.all(
    "SELECT * FROM holdfast_pauses WHERE run_seq = ? AND awaited = 1 AND status = 'pending' ORDER BY seq",
    row.seq!,
  );
  const retries = row.status !== "waiting" ? [] : steps.filter(({ status }) => status === "retrying");
  return {
    run: toRun(row),
    payload: row.payload as string | null,
    execution: Number(row.interruptions) + 1,
    steps: steps.map((step) => toStep(runId, step)),
    pauses: [...pauses.map(toAwaitedPause), ...retries.map(toAwaitedRetry)],
  };
}

// What is recorded is counted, and each renewal moves the end of the lease; the rest shows in one of the others.
const MARK = "r.status || ' ' || r.lease_generation || ' ' || coalesce(r.lease_expires_at, '') || ' ' || " +
  "r.recorded || ' ' || r.updated_at || ' ' || coalesce(r.progress, '')";

/** How runs stand. See `Store.getMarks()`. */
export function readMarks(db: SqliteDatabase, runIds: readonly string[]): (string | null)[] {
  return runIds.map((runId) => {
    const row = db.get(`SELECT ${MARK} AS mark FROM holdfast_runs r WHERE r.id = ?`, runId);
    return row === undefined ? null : row.mark as string;
  });
}

// How many runs that were triggered one call answers at most.
const MAX_TRIGGERED = 1_000;

/** The runs of which a list has news. See `Store.getActivity()`. */
export function readActivity(db: SqliteDatabase, since: ActivityCursor | null, now: number): Activity {
  const lastSeq = Number(db.get("SELECT coalesce(max(seq), 0) AS seq FROM holdfast_runs")!.seq);
  const select = `SELECT r.seq, r.id, ${MARK} AS mark FROM holdfast_runs r`;
  const seenSeq = since?.lastSeq ?? lastSeq;
  const triggered = db.all(`${select} WHERE r.seq > ? ORDER BY r.seq LIMIT ?`, seenSeq, MAX_TRIGGERED);
  const executed = db.all(`${select} WHERE r.lease_expires_at IS NOT NULL`);
  const left = newsSpans(since, now).flatMap(({ from, to }) => [
    ...TERMINAL.flatMap((status) =>
      db.all(`${select} WHERE r.status = ? AND r.completed_at BETWEEN ? AND ?`, status, from, to)
    ),
    ...db.all(`${select} ${ASLEEP} AND r.updated_at BETWEEN ? AND ?`, from, to),
  ]);
  const rows = new Map([...executed, ...left, ...triggered].map((row) => [row.id as string, row]));
  const runs = [...rows.values()].sort((one, other) => Number(one.seq) - Number(other.seq)).map((row) => ({
    id: row.id as string,
    mark: row.mark as string,
    isNew: Number(row.seq) > seenSeq,
  }));
  const hasMore = triggered.length === MAX_TRIGGERED;
  return { runs, next: { lastSeq: hasMore ? Number(triggered.at(-1)!.seq) : lastSeq, at: now }, hasMore };
}

const TERMINAL: readonly TerminalStatus[] = ["completed", "failed", "cancelled"];
// A run that is not due again was last written to when it fell asleep.
const ASLEEP = "INDEXED BY holdfast_runs_asleep WHERE r.status = 'waiting' AND r.place IS NULL";
