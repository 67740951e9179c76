import { actorOf } from "../../../model/origin.ts";
import { positionOf } from "../../../model/flow.ts";
import { ConflictError, NotFoundError } from "../../../model/error.ts";
import { coalescedFacts } from "../../../model/fact.ts";
import type { Host } from "../../../model/host.ts";
import type { StoredRun } from "../../../model/run.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Enqueued, NewRun } from "../../../store/new_run.ts";
import { countsByNewestRetry, countsForKey } from "../../idempotency.ts";
import { cleaningMessage, retriedMessage, toOnEnd } from "../../end_runs.ts";
import { END_LEAD } from "../../rules.ts";
import { aloneQueue, queueName } from "../../queue_name.ts";
import { QueueSearch } from "../changed_code/queues.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { drawNumber } from "../journal/journal.ts";
import { stateOfNewRun, updateQueue } from "../flow/concurrency_keys.ts";
import { type FlowColumns, flowOf, NO_FLOW } from "../flow/new_flow.ts";
import { touchGroup } from "../flow/turns.ts";
import { checkChildren, findOpenEnd } from "./end_runs.ts";
import { hasClosedInbox } from "./receives.ts";
import { findRetry, linkRetry } from "./retry_links.ts";
import { fromInput } from "../../rows.ts";
import { findRunRow, type RunRow, SELECT_RUN, toRunText } from "../rows.ts";

/** Adds runs, or finds the existing ones that the requests lead to. See `Store.enqueue()`. */
export function enqueueRuns(
  db: SqliteDatabase,
  runs: readonly NewRun[],
  host: Pick<Host, "newId">,
  now: number,
): Enqueued[] {
  const exists = (runId: string) => db.get`SELECT 1 FROM holdfast_runs WHERE id = ${runId}` !== undefined;
  for (const { id, retriggerOf } of runs) {
    if (db.get`SELECT 1 FROM holdfast_deleted WHERE id = ${id}` !== undefined) {
      throw new ConflictError(`Cannot add run "${id}" again: it was deleted`);
    }
    // When the call is repeated, the old run may have been deleted.
    if (retriggerOf !== null && !exists(retriggerOf.runId) && !exists(id)) {
      throw new NotFoundError(`There is no run "${retriggerOf.runId}"`);
    }
    if (retriggerOf !== null && !exists(id)) checkRetriable(db, retriggerOf);
  }
  const search = new QueueSearch(db);
  return runs.map((run) => enqueueRun(db, run, search, host, now));
}

/**
 * Refuses the retry of a run that is being cleaned up, or a child of which is, and of an end run whose run was retried.
 */
function checkRetriable(db: SqliteDatabase, { runId, from }: NonNullable<NewRun["retriggerOf"]>): void {
  const old = db.one<{ seq: number; on_end: JsonText | null; end_of: string | null; has_children: 0 | 1 }>`
    SELECT seq, on_end, end_of, has_pauses <> 0 OR ifnull(origin_id, id) <> id AS has_children FROM holdfast_runs
      WHERE id = ${runId}`;
  const open = findOpenEnd(db, runId, old);
  if (open !== undefined) throw new ConflictError(cleaningMessage(runId, open));
  if (from === "failure" && old.has_children === 1) checkChildren(db, old.seq);
  if (old.end_of === null) return;
  const ended = db.get`SELECT 1 FROM holdfast_runs WHERE id = ${old.end_of} AND retriggered_as IS NULL`;
  if (ended === undefined) throw new ConflictError(retriedMessage({ id: runId, endOf: old.end_of }));
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
  const mayEnd = run.idempotencyUntil !== undefined;
  // The insert notices only a run of its own queue.
  const known = queues.length > 1 || mayEnd ? findRun(db, run, queues, now) : null;
  if (known !== null) return known;
  const coalescable = findCoalescable(db, run, queues, now);
  if (coalescable !== null) return findRun(db, run, queues, now) ?? joinRun(db, coalescable, run);
  if (mayEnd) takeIdempotencyKey(db, run, queues);
  const added = insertRun(db, run, host, now);
  if (added !== null) return { run: added.run, disposition: "created" };
  return findRun(db, run, queues, now)!; // the one for which it was not added
}

function joinRun(db: SqliteDatabase, row: RunRow, request: NewRun): Enqueued {
  const joined = toRunText(row);
  db.facts.note(...coalescedFacts(row.seq, joined, request));
  return { run: joined, disposition: "coalesced" };
}

/** The run that was added before by the same call, or by another with the same idempotency key, if that one counts. */
function findRun(
  db: SqliteDatabase,
  { id, idempotencyKey, idempotencyUntil }: NewRun,
  queues: readonly string[],
  now: number,
): Enqueued | null {
  const known = findRunRow(db, id);
  if (known !== undefined) return { run: toRunText(known), disposition: "created" };
  if (idempotencyKey === null) return null;
  for (const queue of queues) {
    const same = db.get<RunRow>`${SELECT_RUN} WHERE r.job = ${queue} AND r.idempotency_key = ${idempotencyKey}`;
    const found = countsByNewestRetry({ idempotencyUntil }) ? newestRetry(db, same) : same;
    if (same === undefined || found === undefined) continue;
    const { status, created_at: createdAt } = found;
    const counted = {
      status,
      createdAt,
      completedAs: same.completed_as,
      hasClosedInbox: () => hasClosedInbox(db, found.seq),
    };
    if (!countsForKey(counted, { idempotencyUntil }, now)) continue;
    return { run: toRunText(found), disposition: "idempotent" };
  }
  return null;
}

/** The newest retry of a run, or of its newest retry, and so on; the run itself without one. */
function newestRetry(db: SqliteDatabase, run: RunRow | undefined): RunRow | undefined {
  let newest = run;
  for (let next = run; next !== undefined;) {
    newest = next;
    if (newest.retriggered_as === null) break;
    next = findRunRow(db, newest.retriggered_as);
  }
  return newest;
}

/** Takes an idempotency key from the runs that have it. They still show it. */
function takeIdempotencyKey(db: SqliteDatabase, { idempotencyKey }: NewRun, queues: readonly string[]): void {
  for (const queue of queues) {
    db.run`UPDATE holdfast_runs SET former_key = idempotency_key, idempotency_key = NULL
      WHERE job = ${queue} AND idempotency_key = ${idempotencyKey}`;
  }
}

function findCoalescable(db: SqliteDatabase, run: NewRun, queues: readonly string[], now: number): RunRow | null {
  const { concurrencyKey: key, coalesce } = run;
  if (key === null || coalesce === null) return null;
  const pending = oldest(queues.map((queue) => findPending(db, key, queue, now)));
  if (pending !== null || coalesce !== "active") return pending;
  // The holders of the key come first: the index by jobs has all runs that have ended, too.
  const leased = oldest(
    queues.map((queue) =>
      db.get<RunRow>`${SELECT_RUN} WHERE r.id IN (SELECT run_id FROM holdfast_holders WHERE concurrency_key = ${key})
      AND +r.job = ${queue} AND r.lease_expires_at > ${now} ORDER BY +r.seq LIMIT 1`
    ),
  );
  if (leased !== null) return leased;
  return oldest(queues.map((queue) =>
    db.get<RunRow>`
      ${SELECT_RUN} WHERE r.concurrency_key = ${key} AND r.job = ${queue} AND r.status = 'waiting'
        ORDER BY r.seq LIMIT 1`
  ));
}

function oldest(found: readonly (RunRow | null | undefined)[]): RunRow | null {
  return found.filter((row) => row !== null && row !== undefined)
    .reduce<RunRow | null>((first, row) => first === null || row.seq < first.seq ? row : first, null);
}

/**
 * The oldest pending run of a key. One whose start has passed counts, although no claim has noticed, and so does one that
 * waits to be claimed alone. Held runs do not.
 */
function findPending(db: SqliteDatabase, key: string, job: string, now: number): RunRow | undefined {
  return db.get<RunRow>`${SELECT_RUN} WHERE r.concurrency_key = ${key} AND r.job = ${job} AND r.status = 'pending' AND
    (r.queue = ${aloneQueue(job)} OR (r.queue = r.job AND (r.queue_state IS NOT NULL OR r.due_at <= ${now})))
      ORDER BY r.seq LIMIT 1`;
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
 * Adds a run, perhaps as a child, or to clean up after another, unless one with its id or its idempotency key exists: then returns `null`.
 *
 * @returns The run and its row number.
 */
export function insertRun(
  db: SqliteDatabase,
  run: NewRun,
  host: Pick<Host, "newId">,
  now: number,
  parent: ParentOfRun | null = null,
  endedRunId: string | null = null,
): { run: StoredRun; seq: number } | null {
  const seq = drawNumber(db);
  const endOf = endedRunId ?? endOfRetried(db, run);
  const queue = queueName(run.jobName, run.version);
  const key = run.concurrencyKey;
  const flow = flowOf(run, now);
  const isFirst = endOf !== null && key !== null;
  const position = positionOf(seq, flow.priority) - (isFirst ? END_LEAD : 0);
  const isDelayed = flow.due_at !== null;
  // One that goes before others is found by updateQueue().
  const state = isDelayed || isFirst
    ? null
    : key === null
    ? "R"
    : stateOfNewRun(db, key, { ...flow, queue, position }, now);
  const labels = JSON.stringify(run.labels);
  const retriggerOf = run.retriggerOf?.runId ?? null;
  const columns = [
    seq,
    run.id,
    queue,
    queue,
    position,
    labels,
    run.idempotencyKey,
    key,
    isDelayed ? null : state ?? "B",
    retriggerOf,
    now,
    now,
    run.trace,
  ];
  const onEnd = toOnEnd(run);
  const isPlain = flow === NO_FLOW && run.schedule === null && parent === null && onEnd === null && endOf === null;
  const slotAt = slotOf(run);
  const isAdded = isPlain ? db.run(INSERT_PLAIN, ...columns) : db.run(
    INSERT,
    ...columns,
    ...FLOW_COLUMNS.map((column) => flow[column]),
    run.schedule?.name ?? null,
    slotAt,
    run.schedule === null ? null : slotTextOf(db, run),
    parent?.id ?? null,
    parent?.seq ?? null,
    parent?.pauseSeq ?? null,
    parent?.depth ?? 0,
    onEnd,
    endOf,
  );
  if (isAdded === 0) return null;
  moveRun(db, queue, null, "pending");
  db.run`
    INSERT INTO holdfast_inputs (run_seq, payload, input, schema_print)
      VALUES (${seq}, ${run.payload}, ${fromInput(run.payload, run.input)}, ${run.schemaPrint})`;
  for (const [name, value] of Object.entries(run.labels)) {
    db.run`INSERT INTO holdfast_labels (key, value, run_seq) VALUES (${name}, ${value}, ${seq})`;
  }
  if (run.retriggerOf !== null) linkRetry(db, run.id, run.retriggerOf, actorOf(run.trace), host);
  if (state === "R") touchGroup(db, queue, flow.fairness_key);
  if (!isDelayed && state === null && key !== null) updateQueue(db, key, now);
  const added = toRunText({
    ...UNCLAIMED,
    ...flow,
    id: run.id,
    job: queue,
    labels,
    payload: run.payload,
    idempotency_key: run.idempotencyKey,
    former_key: null,
    concurrency_key: key,
    created_at: now,
    updated_at: now,
    retrigger_of: retriggerOf,
    schedule_name: run.schedule?.name ?? null,
    slot_at: slotAt,
    parent_id: parent?.id ?? null,
    on_end: onEnd,
    end_of: endOf,
    trace: run.trace,
  });
  return { run: added, seq };
}

const PLAIN_COLUMNS =
  `seq, id, job, queue, position, labels, idempotency_key, concurrency_key, queue_state, retrigger_of,
  created_at, updated_at, trace`.split(/,\s+/);
const FLOW_COLUMNS = Object.keys(NO_FLOW) as (keyof FlowColumns)[]; // it has these keys alone
// Most runs need no other columns: the wide statement costs a quarter more.
const INSERT_PLAIN = insertOf(PLAIN_COLUMNS);
const INSERT = insertOf([
  ...PLAIN_COLUMNS,
  ...FLOW_COLUMNS,
  ...["schedule_name", "slot_at", "slot", "parent_id", "parent_seq", "parent_pause", "depth", "on_end", "end_of"],
]);

function insertOf(columns: readonly string[]): string {
  return `INSERT INTO holdfast_runs (status, ${columns.join(", ")})
    VALUES ('pending', ${columns.map(() => "?").join(", ")}) ON CONFLICT DO NOTHING`;
}

/** A retry of an end run cleans up after the same run. */
function endOfRetried(db: SqliteDatabase, { retriggerOf }: NewRun): string | null {
  if (retriggerOf === null) return null;
  const old = db.get<{ end_of: string | null }>`SELECT end_of FROM holdfast_runs WHERE id = ${retriggerOf.runId}`;
  return old?.end_of ?? null;
}

function slotOf({ schedule }: NewRun): number | null {
  const slotAt = schedule?.slotAt ?? null;
  return slotAt === null ? null : Date.parse(slotAt);
}

/** What the engine stores of a slot. A retry has that of the old run. */
function slotTextOf(db: SqliteDatabase, { schedule, retriggerOf }: NewRun): JsonText | null {
  if (retriggerOf === null) return schedule?.slot ?? null;
  const old = db.get<{ slot: JsonText | null }>`SELECT slot FROM holdfast_runs WHERE id = ${retriggerOf.runId}`;
  return old?.slot ?? null;
}

/** The columns of a run that was not claimed yet. */
const UNCLAIMED = {
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
  finish_by: null,
  retriggered_as: null,
  ended_by: null,
  held: null,
  completed_as: null,
};
