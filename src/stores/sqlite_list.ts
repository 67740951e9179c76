import { DEFAULT_RUN_LIMIT, type RunFilter, type RunPage, type TerminalStatus } from "../run.ts";
import { type Activity, type ActivityCursor, newsSpans, type RunState } from "../store.ts";
import type { SqliteDatabase, SqliteValue } from "./sqlite_database.ts";
import { SELECT_RUN, toAwaitedPause, toAwaitedRetry, toRun, toStep } from "./sqlite_rows.ts";

/** Lists runs, newest first. See `Store.getRuns()`. */
export function listRuns(db: SqliteDatabase, filter: RunFilter): RunPage {
  const { limit = DEFAULT_RUN_LIMIT, offset = 0 } = filter;
  const { where, parameters } = conditions(filter);
  const total = Number(db.get(`SELECT count(*) AS n FROM holdfast_runs r ${where}`, ...parameters)!.n);
  const rows = db.all(
    `${SELECT_RUN} ${where} ORDER BY r.seq DESC LIMIT ? OFFSET ?`,
    ...parameters,
    limit,
    offset,
  );
  return { runs: rows.map(toRun), total, hasMore: offset + rows.length < total };
}

function conditions(filter: RunFilter): { where: string; parameters: SqliteValue[] } {
  const terms: string[] = [];
  const parameters: SqliteValue[] = [];
  const isOneOf = (column: string, values: string | readonly string[] | undefined) => {
    if (values === undefined) return;
    const list = typeof values === "string" ? [values] : values;
    // One value is looked up in the order of its index; several have to be merged.
    if (list.length === 1) {
      terms.push(`${column} = ?`);
      parameters.push(list[0]!);
    } else {
      terms.push(`${column} IN (SELECT value FROM json_each(?))`);
      parameters.push(JSON.stringify(list));
    }
  };
  isOneOf("r.job", filter.jobName);
  isOneOf("r.status", filter.status);
  for (const [key, value] of Object.entries(filter.labels ?? {})) {
    terms.push("r.seq IN (SELECT run_seq FROM holdfast_labels WHERE key = ? AND value = ?)");
    parameters.push(key, value);
  }
  return { where: terms.length === 0 ? "" : `WHERE ${terms.join(" AND ")}`, parameters };
}

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
    failedStepName: row.failed_step as string | null,
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
