import type { FoundBy, OpenWaitPlace, OpenWaits, SearchHit } from "../../../store/operator_reads.ts";
import { MAX_COUNTED_WAITS } from "../../../model/wait.ts";
import { SEARCHED_BY_END } from "../../operate/timeline_rows.ts";
import { type OpenWaitRow, toOpenWait } from "../../rows.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql, type SqlPart } from "../statement.ts";

// The place of a wait without a deadline.
const LAST = 9e15;

/** Open waits, the soonest deadline first. See `Store.getOpenWaits()`. */
export function readOpenWaits(
  db: SqliteDatabase,
  after: OpenWaitPlace | null,
  limit: number,
  runIds?: readonly string[],
): OpenWaits {
  const [deadline, seq] = after === null ? [-1, 0] as const : [after.deadlineAt ?? LAST, after.seq] as const;
  const rows = runIds === undefined
    ? readOpenRows(db, sql`ifnull(p.deadline_at, 9e15) = ${deadline} AND p.seq > ${seq}`, limit)
    : readOwnRows(db, runIds, [deadline, seq], limit);
  if (runIds === undefined && rows.length < limit) {
    rows.push(...readOpenRows(db, sql`ifnull(p.deadline_at, 9e15) > ${deadline}`, limit - rows.length));
  }
  const { total } = db.one<{ total: number }>`
    SELECT count(*) AS total FROM (SELECT 1 FROM holdfast_pauses INDEXED BY holdfast_pauses_open_waits
    WHERE kind = 'wait' AND status = 'pending' LIMIT ${raw(MAX_COUNTED_WAITS + 1)})`;
  return { waits: rows.map(toOpenWait), total };
}

function readOwnRows(
  db: SqliteDatabase,
  runIds: readonly string[],
  [deadline, seq]: readonly [deadline: number, seq: number],
  limit: number,
): OpenWaitRow[] {
  return db.all<OpenWaitRow>`
    SELECT p.*, r.id AS run_id, r.job, r.labels FROM json_each(${JSON.stringify(runIds)}) j
    CROSS JOIN holdfast_runs r ON r.id = j.value
    CROSS JOIN holdfast_pauses p INDEXED BY holdfast_pauses_by_kind ON p.run_seq = r.seq AND p.kind = 'wait'
    WHERE p.status = 'pending' AND (ifnull(p.deadline_at, 9e15), p.seq) > (${deadline}, ${seq})
    ORDER BY ifnull(p.deadline_at, 9e15), p.seq LIMIT ${limit}`;
}

// In one statement, `(ifnull(p.deadline_at, 9e15), p.seq) > (?, ?)` reads the index from its beginning.
function readOpenRows(db: SqliteDatabase, isAfter: SqlPart, limit: number): OpenWaitRow[] {
  return db.all<OpenWaitRow>`
    SELECT p.*, r.id AS run_id, r.job, r.labels FROM holdfast_pauses p INDEXED BY holdfast_pauses_open_waits
    CROSS JOIN holdfast_runs r ON r.seq = p.run_seq
    WHERE p.kind = 'wait' AND p.status = 'pending' AND ${isAfter}
    ORDER BY ifnull(p.deadline_at, 9e15), p.seq LIMIT ${limit}`;
}

/** Finds runs by a string. See `Store.searchRuns()`. */
export function searchRuns(db: SqliteDatabase, text: string, limit: number): SearchHit[] {
  const found = new Map<string, FoundBy>();
  const add = (by: FoundBy, rows: readonly { id: string }[]) => {
    for (const { id } of rows) if (!found.has(id) && found.size < limit) found.set(id, by);
  };
  // The character after the last one of a prefix of ASCII.
  add(
    "id",
    db.all`SELECT id FROM holdfast_runs WHERE id >= ${text} AND id < ${text} || 'g' ORDER BY id LIMIT ${limit}`,
  );
  add(
    "id",
    db.all`SELECT id FROM (SELECT id, seq FROM holdfast_runs ORDER BY seq DESC LIMIT ${raw(SEARCHED_BY_END)})
      WHERE substr(id, -length(${text})) = ${text} ORDER BY seq DESC LIMIT ${limit}`,
  );
  add(
    "waitId",
    db.all`
      SELECT r.id FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq
        WHERE p.id = ${text} AND p.kind = 'wait'`,
  );
  for (const job of jobNames(db)) {
    add("idempotencyKey", db.all`SELECT id FROM holdfast_runs WHERE job = ${job} AND idempotency_key = ${text}`);
  }
  const former = db.all<{ id: string }>`
    SELECT id FROM holdfast_runs WHERE former_key = ${text} ORDER BY seq DESC LIMIT ${limit}`;
  add("idempotencyKey", former);
  add("concurrencyKey", findByKey(db, text, limit));
  const [key, value] = splitLabel(text);
  if (value === undefined) return toFound(found);
  add(
    "label",
    db.all`SELECT r.id FROM holdfast_labels l JOIN holdfast_runs r ON r.seq = l.run_seq
      WHERE l.key = ${key!} AND l.value = ${value} ORDER BY l.run_seq DESC LIMIT ${limit}`,
  );
  return toFound(found);
}

function toFound(found: ReadonlyMap<string, FoundBy>): SearchHit[] {
  return [...found].map(([runId, by]) => ({ runId, by }));
}

function splitLabel(text: string): [key?: string, value?: string] {
  const at = text.indexOf("=");
  return at === -1 ? [] : [text.slice(0, at), text.slice(at + 1)];
}

/** The queues that have runs. */
function jobNames(db: SqliteDatabase): string[] {
  return db.all<{ job: string }>`SELECT DISTINCT job FROM holdfast_counts INDEXED BY holdfast_counts_by_job`
    .map(({ job }) => job);
}

/** The runs of a concurrency key that have not ended. */
function findByKey(db: SqliteDatabase, key: string, limit: number): { id: string }[] {
  return db.all`SELECT id FROM (
      SELECT r.seq, r.id FROM holdfast_holders h JOIN holdfast_runs r ON r.id = h.run_id
        WHERE h.concurrency_key = ${key} AND r.completed_at IS NULL
      UNION SELECT * FROM (SELECT seq, id FROM holdfast_runs INDEXED BY holdfast_runs_keyed_pending
        WHERE concurrency_key = ${key} AND status = 'pending' LIMIT ${limit})
      UNION SELECT * FROM (SELECT seq, id FROM holdfast_runs INDEXED BY holdfast_runs_keyed_waiting
        WHERE concurrency_key = ${key} AND status = 'waiting' LIMIT ${limit}))
    ORDER BY seq LIMIT ${limit}`;
}
