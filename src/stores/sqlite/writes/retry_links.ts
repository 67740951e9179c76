import { factBy } from "../../../model/fact.ts";
import type { Host } from "../../../model/host.ts";
import type { RetriggerFrom } from "../../../model/run.ts";
import type { Enqueued } from "../../../store/new_run.ts";
import type { PauseKind } from "../../../model/wait.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong, sql, type SqlPart } from "../statement.ts";
import { drawNumbers } from "../journal/journal.ts";
import { readUndone } from "./end_runs.ts";
import type { JsonText } from "../../../values/json.ts";
import { copyChunks } from "../streams.ts";
import { findRunRow, type RunRow, type RunWith, SELECT_RUN, toRunText } from "../rows.ts";
import type { RecordName } from "../../../model/hold.ts";
import type { CopiedHistory } from "../../../store/hold_record.ts";

/** The id of the newest retry of a run `r`; if that was deleted, of the newest run that has the steps of `r`. */
export const RETRY: SqlPart = sql`ifnull((SELECT n.id FROM holdfast_runs n WHERE n.id = r.retriggered_as),
  (SELECT n.id FROM holdfast_runs n WHERE r.retriggered_as IS NOT NULL AND n.origin_id = ifnull(r.origin_id, r.id)
    AND n.seq > r.seq ORDER BY n.seq DESC LIMIT 1))`;

/**
 * Finds an existing retry: the one that this call has already added (the call is repeated), or one of the old run that has
 * not ended. `null`: a retry may be added.
 */
export function findExistingRetry(db: SqliteDatabase, runId: string, oldRunId: string): Enqueued | null {
  const own = findRunRow(db, runId);
  if (own !== undefined) return { run: toRunText(own), disposition: "created" };
  const open = findOpenRetry(db, oldRunId);
  return open === undefined ? null : { run: toRunText(open), disposition: "idempotent" };
}

/** A retry of a run that has not ended: its newest one, or one with the same steps. */
export function findOpenRetry(db: SqliteDatabase, runId: string): RunRow | undefined {
  const newest = newestRetry(db, findRunRow(db, runId));
  if (newest?.completed_at === null && newest.id !== runId) return newest;
  return db.get<RunRow>`
    ${SELECT_RUN} WHERE r.origin_id = (SELECT coalesce(o.origin_id, o.id) FROM holdfast_runs o WHERE o.id = ${runId})
      AND r.origin_id IS NOT NULL AND r.completed_at IS NULL AND r.id <> ${runId}`;
}

/** The newest retry of a run, or of its newest retry, and so on; the run itself without one. */
export function newestRetry(db: SqliteDatabase, run: RunRow | undefined): RunRow | undefined {
  let newest = run;
  for (let next = run; next !== undefined;) {
    newest = next;
    if (newest.retriggered_as === null) break;
    next = db.get<RunRow>`
      ${SELECT_RUN} WHERE r.id = (SELECT ${RETRY} FROM holdfast_runs r WHERE r.seq = ${newest.seq})`;
  }
  return newest;
}

/**
 * Links a new run with the run of which it is a retry. A retry from the failure begins with the history of that run.
 */
export function linkRetry(
  db: SqliteDatabase,
  runId: string,
  old: { runId: string; from: RetriggerFrom },
  by: string | null,
  host: Pick<Host, "newId">,
): void {
  const { seq, has_pauses } = db.one<{ seq: number; has_pauses: number }>`
    UPDATE holdfast_runs SET retriggered_as = ${runId} WHERE id = ${old.runId} RETURNING seq, has_pauses`;
  db.facts.note(factBy([seq, "retried", runId], by));
  if (old.from === "failure") copyHistory(db, runId, old.runId, host);
  if (has_pauses !== 0) copyMessages(db, runId, seq);
}

/**
 * Notes that a retry has completed: in the run that it retries, in that of which this is a retry, and so on. A run keeps
 * the first one, and so have those before it.
 */
export function completeRetried(db: SqliteDatabase, runId: string, oldRunId: string): void {
  db.run`WITH RECURSIVE retried (seq, retrigger_of) AS (
      SELECT seq, retrigger_of FROM holdfast_runs WHERE id = ${oldRunId} AND completed_as IS NULL
      UNION SELECT r.seq, r.retrigger_of FROM retried CROSS JOIN holdfast_runs r ON r.id = retried.retrigger_of
        WHERE r.completed_as IS NULL)
    UPDATE holdfast_runs SET completed_as = ${runId} WHERE seq IN (SELECT seq FROM retried)`;
}

/** Whether all children of a pause `p` have completed, and no result is lost. */
const HAVE_COMPLETED = sql`NOT EXISTS (
  SELECT 1 FROM holdfast_children m LEFT JOIN holdfast_runs c ON c.seq = m.run_seq
  WHERE m.pause_seq = p.seq AND coalesce(c.status, m.result ->> '$.status', '') <> 'completed')`;

const COPIED_OF_PAUSE =
  sql`kind, name, metadata, status, outcome, payload, signal_id, prepared_no, recorded_no, created_at,
  deadline_at, suspended_at, resolved_at, first_resumed_at, total, added, unfinished, payload_schema, trace, receive`;

/** Copies completed steps, finished sleeps and resolved waits, with their record positions. */
function copyHistory(db: SqliteDatabase, runId: string, oldRunId: string, host: Pick<Host, "newId">): void {
  const { seq } = db.one<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE id = ${runId}`;
  const old = db.one<RunWith<"seq recorded parked_no has_pauses started_at"> & { origin_id: string }>`
    SELECT seq, recorded, parked_no, has_pauses, started_at, coalesce(origin_id, id) AS origin_id FROM holdfast_runs
      WHERE id = ${oldRunId}`;
  const { count } = db.one<{ count: number }>`
    SELECT count(*) AS count FROM holdfast_steps WHERE run_seq = ${old.seq} AND status = 'completed'`;
  const undone = readUndone(db, old);
  const columns = sql`name, position, status, output, attempts, recorded_no, started_at, completed_at`;
  db.run`
    INSERT INTO holdfast_steps (seq, run_seq, ${columns})
    SELECT ${drawNumbers(db, count) - count} + row_number() OVER (ORDER BY seq), ${seq}, ${columns}
    FROM holdfast_steps WHERE run_seq = ${old.seq} AND status = 'completed'
      AND NOT ${isAmong("name", [...undone.keys()])}`;
  copyChunks(db, seq, old.seq);
  // If the last record is the end of a wait, and the run has begun and not parked since, that wait is not copied: the new run
  // creates it again.
  const isCopied = sql`iif(kind = 'patch', 1, status = 'resolved' AND iif(kind = 'children', ${HAVE_COMPLETED},
    kind IN ('sleep', 'receive') OR recorded_no < ${old.recorded} OR recorded_no <= ${old.parked_no} OR ${old.started_at} IS NULL))`;
  const pauses = old.has_pauses === 0 ? [] : db.all<{ kind: PauseKind; name: string; seq: number; is_copied: number }>`
    SELECT seq, kind, name, ${isCopied} AS is_copied FROM holdfast_pauses p WHERE run_seq = ${old.seq} ORDER BY seq`;
  const copied = pauses.filter(({ is_copied }) => is_copied === 1);
  for (const pause of copied) {
    const copy = db.one<{ seq: number }>`
      INSERT INTO holdfast_pauses (id, run_seq, awaited, ${COPIED_OF_PAUSE})
      SELECT ${host.newId()}, ${seq}, 0, ${COPIED_OF_PAUSE} FROM holdfast_pauses WHERE seq = ${pause.seq} RETURNING seq`;
    db.run`INSERT INTO holdfast_children (pause_seq, no, run_seq, result, payload)
      SELECT ${copy.seq}, no, run_seq, result, payload FROM holdfast_children WHERE pause_seq = ${pause.seq}`;
  }
  db.run`
    UPDATE holdfast_runs SET recorded = ${old.recorded}, has_pauses = max(has_pauses, ${copied.length > 0 ? 1 : 0}),
      origin_id = ${old.origin_id} WHERE seq = ${seq}`;
  const leftOut = pauses.filter(({ is_copied }) => is_copied === 0)
    .flatMap(({ kind, name }) => kind === "patch" ? [] : [{ kind, name }]);
  writeCopied(db, { seq, old }, leftOut, undone);
}

/**
 * Copies the messages of the old run to a retry, in their order. Those that a copied receive took are taken, all others
 * unread.
 */
function copyMessages(db: SqliteDatabase, runId: string, oldSeq: number): void {
  const { seq } = db.one<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE id = ${runId}`;
  const copied = db.run`
    INSERT INTO holdfast_messages (run_seq, no, id, name, payload, input, trace, accepted_at, pause_seq)
    SELECT ${seq}, m.no, m.id, m.name, m.payload, m.input, m.trace, m.accepted_at, c.seq FROM holdfast_messages m
    LEFT JOIN holdfast_pauses o ON o.seq = m.pause_seq
    LEFT JOIN holdfast_pauses c ON c.run_seq = ${seq} AND c.kind = 'receive' AND c.name = o.name
    WHERE m.run_seq = ${oldSeq} ORDER BY m.no`;
  if (copied > 0) db.run`UPDATE holdfast_runs SET has_pauses = has_pauses | 1 WHERE seq = ${seq}`;
}

/** What a run has as copies; `null`: it is no retry from the failure. */
export function readCopied(db: SqliteDatabase, runSeq: number): CopiedHistory | null {
  const row = db.get<{ copied_up_to: number; unfinished: JsonText; undone: JsonText | null }>`
    SELECT copied_up_to, unfinished, undone FROM holdfast_copies WHERE run_seq = ${runSeq}`;
  return row === undefined ? null : {
    upTo: row.copied_up_to,
    unfinished: JSON.parse(row.unfinished),
    ...(row.undone === null ? {} : { undone: JSON.parse(row.undone) }),
  };
}

/** A run and a retry of it from the failure. */
interface Retry {
  seq: number;
  old: { seq: number; recorded: number };
}

/**
 * Writes what a retry has as copies. `pauses` are those of the old run that are not copied, `undone` its steps that end
 * runs have undone.
 */
function writeCopied(
  db: SqliteDatabase,
  { seq, old }: Retry,
  pauses: readonly RecordName[],
  undone: ReadonlyMap<string, string>,
): void {
  const steps = db.all<{ name: string }>`SELECT name FROM holdfast_steps
    WHERE run_seq = ${old.seq} AND (status <> 'completed' OR ${isAmong("name", [...undone.keys()])})
    ORDER BY position, seq`;
  const former = readCopied(db, old.seq);
  const allUndone = { ...former?.undone, ...Object.fromEntries(undone) };
  const unfinished: RecordName[] = [
    ...former?.unfinished ?? [],
    ...steps.map(({ name }) => ({ kind: "step" as const, name })),
    ...pauses,
  ];
  const distinct = new Map(unfinished.map((record) => [`${record.kind} ${record.name}`, record]));
  const undoneText = Object.keys(allUndone).length === 0 ? null : JSON.stringify(allUndone);
  db.run`INSERT INTO holdfast_copies (run_seq, copied_up_to, unfinished, undone)
    VALUES (${seq}, ${old.recorded}, ${JSON.stringify([...distinct.values()])}, ${undoneText})`;
}
