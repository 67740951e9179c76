import { ConflictError, NotFoundError } from "../../../model/error.ts";
import { coalescedFacts } from "../../../model/fact.ts";
import type { Host } from "../../../model/host.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Enqueued, NewRun } from "../../../store/new_run.ts";
import { countsByNewestRetry, countsForKey } from "../../idempotency.ts";
import { cleaningMessage, retriedMessage } from "../../end_runs.ts";
import { aloneQueue, queueName } from "../../queue_name.ts";
import { QueueSearch } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { checkOpenEnds, findOpenEnd } from "./end_runs.ts";
import { hasClosedInbox } from "./pause_resolution.ts";
import { findExistingRetry, newestRetry } from "./retry_links.ts";
import { findRunRow, type RunRow, SELECT_RUN, toRunText } from "../rows.ts";
import { insertRun } from "./insert_run.ts";

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
  const old = db.one<{ seq: number; on_end: JsonText | null; end_of: string | null }>`
    SELECT seq, on_end, end_of FROM holdfast_runs WHERE id = ${runId}`;
  const open = findOpenEnd(db, runId, old);
  if (open !== undefined) throw new ConflictError(cleaningMessage(runId, open));
  if (from === "failure") checkOpenEnds(db, old.seq);
  if (old.end_of === null) return;
  const ended = db.get`
    SELECT 1 FROM holdfast_runs r WHERE id = ${old.end_of} AND retriggered_as IS NULL
      AND NOT EXISTS (SELECT 1 FROM holdfast_runs n WHERE n.origin_id = r.origin_id AND n.seq > r.seq)`;
  if (ended === undefined) throw new ConflictError(retriedMessage({ id: runId, endOf: old.end_of }));
}

function enqueueRun(
  db: SqliteDatabase,
  run: NewRun,
  search: QueueSearch,
  host: Pick<Host, "newId">,
  now: number,
): Enqueued {
  const retry = run.retriggerOf === null ? null : findExistingRetry(db, run.id, run.retriggerOf.runId);
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
      hasCompleted: same.status === "completed" || same.completed_as !== null,
      hasClosedInbox: () => hasClosedInbox(db, found.seq),
    };
    if (!countsForKey(counted, { idempotencyUntil }, now)) continue;
    return { run: toRunText(found), disposition: "idempotent" };
  }
  return null;
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
