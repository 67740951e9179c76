import { ConflictError, NotFoundError } from "../../../model/error.ts";
import { coalescedFacts } from "../../../model/fact.ts";
import type { Host } from "../../../model/host.ts";
import type { StoredRun } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Enqueued, NewRun } from "../../../store/new_run.ts";
import { aloneQueue, isAloneQueue, queueName } from "../../queue_name.ts";
import { QueueSearch } from "../evolution/queues.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { drawNumber } from "../journal/journal.ts";
import { stateOfNewRun, updateQueue } from "../flow/concurrency_keys.ts";
import { insertFlow, NO_FLOW, PLAIN_KEY, usesFlow } from "../flow/new_flow.ts";
import { findRetry, linkRetry } from "./retry_links.ts";
import { fromInput } from "../../rows.ts";
import { type RunRow, type ScheduleColumn, SELECT_RUN, toRunText } from "../rows.ts";

/** Adds runs, or finds the existing ones that the requests lead to. See `Store.enqueue()`. */
export function enqueueRuns(
  db: SqliteDatabase,
  runs: readonly NewRun[],
  host: Pick<Host, "newId">,
  now: number,
): Enqueued[] {
  const exists = (runId: string) => db.get("SELECT 1 FROM holdfast_runs WHERE id = ?", runId) !== undefined;
  for (const { id, retriggerOf } of runs) {
    if (db.get("SELECT 1 FROM holdfast_deleted WHERE id = ?", id) !== undefined) {
      throw new ConflictError(`Cannot add run "${id}" again: it was deleted`);
    }
    // When the call is repeated, the old run may have been deleted.
    if (retriggerOf !== null && !exists(retriggerOf.runId) && !exists(id)) {
      throw new NotFoundError(`There is no run "${retriggerOf.runId}"`);
    }
  }
  const search = new QueueSearch(db);
  return runs.map((run) => enqueueRun(db, run, search, host, now));
}

function enqueueRun(
  db: SqliteDatabase,
  run: NewRun,
  search: QueueSearch,
  host: Pick<Host, "newId">,
  now: number,
): Enqueued {
  const retry = run.retriggerOf === null ? null : findRetry(db, run.id, run.retriggerOf.runId);
  if (retry !== null) return retry;
  const searches = run.idempotencyKey !== null || run.coalesce !== null;
  const queues = searches ? search.queuesFor(run) : [queueName(run.jobName, run.version)];
  // The insert notices only a run of its own queue.
  const known = queues.length > 1 ? findRun(db, run, queues) : null;
  if (known !== null) return known;
  const coalescable = findCoalescable(db, run, queues, now);
  if (coalescable !== null) return findRun(db, run, queues) ?? joinRun(db, coalescable, run);
  const added = insertRun(db, run, host, now);
  if (added !== null) return { run: added.run, disposition: "created" };
  return findRun(db, run, queues)!; // the one for which it was not added
}

function joinRun(db: SqliteDatabase, row: RunRow, request: NewRun): Enqueued {
  const joined = toRunText(row);
  db.facts.note(...coalescedFacts(row.seq, joined, request));
  return { run: joined, disposition: "coalesced" };
}

/** The run that was added before by the same call, or by another with the same idempotency key. */
function findRun(
  db: SqliteDatabase,
  { id, idempotencyKey }: NewRun,
  queues: readonly string[],
): Enqueued | null {
  const known = db.get<RunRow>(`${SELECT_RUN} WHERE r.id = ?`, id);
  if (known !== undefined) return { run: toRunText(known), disposition: "created" };
  if (idempotencyKey === null) return null;
  for (const queue of queues) {
    const same = db.get<RunRow>(`${SELECT_RUN} WHERE r.job = ? AND r.idempotency_key = ?`, queue, idempotencyKey);
    if (same !== undefined) return { run: toRunText(same), disposition: "idempotent" };
  }
  return null;
}

function findCoalescable(db: SqliteDatabase, run: NewRun, queues: readonly string[], now: number): RunRow | null {
  const { concurrencyKey: key, coalesce } = run;
  if (key === null || coalesce === null) return null;
  const all = [...queues, ...queues.map(aloneQueue)];
  const pending = oldest(all.map((queue) => findPending(db, key, queue, now)));
  if (pending !== null || coalesce !== "active") return pending;
  const leased = oldest(queues.map((queue) =>
    db.get<RunRow>(
      `${SELECT_RUN} JOIN holdfast_holders h ON h.run_id = r.id
       WHERE h.concurrency_key = ? AND r.job = ? AND r.lease_expires_at > ? ORDER BY r.seq LIMIT 1`,
      key,
      queue,
      now,
    )
  ));
  if (leased !== null) return leased;
  return oldest(queues.map((queue) =>
    db.get<RunRow>(
      `${SELECT_RUN} WHERE r.concurrency_key = ? AND r.job = ? AND r.status = 'waiting' ORDER BY r.seq LIMIT 1`,
      key,
      queue,
    )
  ));
}

function oldest(found: readonly (RunRow | null | undefined)[]): RunRow | null {
  return found.filter((row) => row !== null && row !== undefined)
    .reduce<RunRow | null>((first, row) => first === null || row.seq < first.seq ? row : first, null);
}

/**
 * The oldest pending run in the queue of a key. One whose start has passed counts, although no claim has noticed, and so
 * does one that waits to be claimed alone.
 */
function findPending(db: SqliteDatabase, key: string, job: string, now: number): RunRow | null {
  const found = [
    db.get<{ seq: number }>(
      `SELECT seq FROM holdfast_runs INDEXED BY holdfast_runs_queued_by_key
       WHERE concurrency_key = ? AND job = ? AND queue_state IS NOT NULL AND status = 'pending' ORDER BY seq LIMIT 1`,
      key,
      job,
    ),
    db.get<{ seq: number }>(
      `SELECT f.run_seq AS seq FROM holdfast_flow f INDEXED BY holdfast_flow_queued_by_age
       JOIN holdfast_runs r ON r.seq = f.run_seq
       WHERE f.concurrency_key = ? AND f.job = ? AND f.queue_state IS NOT NULL AND r.status = 'pending'
       ORDER BY f.run_seq LIMIT 1`,
      key,
      job,
    ),
    ...db.all<{ seq: number }>(
      `SELECT run_seq AS seq FROM holdfast_flow INDEXED BY holdfast_flow_delayed_by_key
       WHERE concurrency_key = ? AND job = ? AND due_at <= ?`,
      key,
      job,
      isAloneQueue(job) ? Number.MAX_SAFE_INTEGER : now,
    ),
  ].filter((row) => row !== undefined);
  if (found.length === 0) return null;
  const oldest = Math.min(...found.map(({ seq }) => seq));
  return db.one<RunRow>(`${SELECT_RUN} WHERE r.seq = ?`, oldest);
}

/** The parent of a new run, and the pause that waits for it. */
export interface ParentOfRun {
  seq: number;
  id: string;
  pauseSeq: number;
  /** How many parents the new run has above it. */
  depth: number;
}

/**
 * Adds a run, perhaps as a child, unless one with its id or its idempotency key exists: then returns `null`.
 *
 * @returns The run and its row number.
 */
export function insertRun(
  db: SqliteDatabase,
  run: NewRun,
  host: Pick<Host, "newId">,
  now: number,
  parent: ParentOfRun | null = null,
): { run: StoredRun; seq: number } | null {
  const seq = drawNumber(db);
  const queue = queueName(run.jobName, run.version);
  const hasFlow = usesFlow(run);
  const state = hasFlow
    ? null
    : run.concurrencyKey === null
    ? "R"
    : stateOfNewRun(db, { ...PLAIN_KEY, concurrency_key: run.concurrencyKey, job: queue, position: seq }, now);
  const row = {
    ...UNCLAIMED,
    seq,
    id: run.id,
    job: queue,
    labels: JSON.stringify(run.labels),
    payload: run.payload,
    idempotency_key: run.idempotencyKey,
    concurrency_key: run.concurrencyKey,
    flow: hasFlow ? 1 : null,
    trace: run.trace,
    created_at: now,
    updated_at: now,
    retrigger_of: run.retriggerOf?.runId ?? null,
    schedule_name: run.schedule?.name ?? null,
    slot_at: slotOf(run),
    parent_id: parent?.id ?? null,
  };
  const isAdded = db.run(
    `INSERT INTO holdfast_runs
       (seq, id, job, status, labels, idempotency_key, concurrency_key, queue_state, flow, retrigger_of, has_pauses,
        created_at, updated_at, trace)
     VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
    seq,
    row.id,
    row.job,
    row.labels,
    row.idempotency_key,
    row.concurrency_key,
    hasFlow ? null : state ?? "B",
    row.flow,
    row.retrigger_of,
    parent === null ? 0 : 1,
    now,
    now,
    row.trace,
  ) > 0;
  if (!isAdded) return null;
  moveRun(db, queue, null, "pending");
  db.run(
    "INSERT INTO holdfast_inputs (run_seq, payload, input, schema_print) VALUES (?, ?, ?, ?)",
    seq,
    run.payload,
    fromInput(run.payload, run.input),
    run.schemaPrint,
  );
  for (const [key, value] of Object.entries(run.labels)) {
    db.run("INSERT INTO holdfast_labels (key, value, run_seq) VALUES (?, ?, ?)", key, value, seq);
  }
  if (run.schedule !== null) insertSchedule(db, row, run.schedule.slot ?? null);
  if (run.retriggerOf !== null) linkRetry(db, run.id, run.retriggerOf, host);
  if (parent !== null) insertChild(db, seq, parent);
  if (hasFlow) return { run: toRunText({ ...row, ...insertFlow(db, seq, run, now) }), seq };
  if (run.concurrencyKey !== null && state === null) updateQueue(db, run.concurrencyKey, now);
  return { run: toRunText(row), seq };
}

function slotOf({ schedule }: NewRun): number | null {
  const slotAt = schedule?.slotAt ?? null;
  return slotAt === null ? null : Date.parse(slotAt);
}

/** Keeps which schedule has made a run. A retry has the slot of the old run. */
function insertSchedule(
  db: SqliteDatabase,
  { seq, schedule_name, slot_at, retrigger_of }: Pick<RunRow, "seq" | "retrigger_of" | ScheduleColumn>,
  slot: JsonText | null,
): void {
  db.run(
    `INSERT INTO holdfast_scheduled_runs (run_seq, schedule_name, slot_at, slot) VALUES (?, ?, ?,
       iif(? IS NULL, ?, (SELECT s.slot FROM holdfast_scheduled_runs s
         JOIN holdfast_runs o ON o.seq = s.run_seq WHERE o.id = ?)))`,
    seq,
    schedule_name,
    slot_at,
    retrigger_of,
    slot,
    retrigger_of,
  );
}

function insertChild(db: SqliteDatabase, seq: number, { seq: parentSeq, id, pauseSeq, depth }: ParentOfRun): void {
  db.run(
    `INSERT INTO holdfast_child_runs (run_seq, parent_id, parent_seq, pause_seq, depth, is_open)
     VALUES (?, ?, ?, ?, ?, 1)`,
    seq,
    id,
    parentSeq,
    pauseSeq,
    depth,
  );
}

/** The columns of a run that was not claimed yet. */
const UNCLAIMED = {
  ...NO_FLOW,
  status: "pending" as const,
  lease_owner: null,
  lease_expires_at: null,
  lease_generation: 0,
  progress: null,
  output: null,
  error: null,
  failure: null,
  failed_step: null,
  started_at: null,
  completed_at: null,
  retriggered_as: null,
};
