import type { KnownJob } from "../../../model/flow.ts";
import type { JsonText } from "../../../values/json.ts";
import { queueName } from "../../queue_name.ts";
import { latestSince } from "../../holds.ts";
import { HEAD_START, MAX_OFFERS } from "../../rules.ts";
import { enterQueue, OWN_POSITION } from "../flow/concurrency_keys.ts";
import { touchGroup } from "../flow/turns.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw, sql } from "../statement.ts";

/** The queues from which live workers claim, those of offers included; it is called only if a run is offered already. */
export type LiveQueues = () => ReadonlySet<string>;

/** Whether there are held runs that can be offered to a worker. */
export function hasOffer(db: SqliteDatabase, jobs: readonly KnownJob[], live: LiveQueues, now: number): boolean {
  return hasHeld(db) && jobs.some((job) => !findOffers(db, job, live, now).next().done);
}

/**
 * Offers held runs to a worker: those that its code has not tried, or may try once more, and that no
 * other live worker can take.
 *
 * @returns Whether there were any.
 */
export function offerHeldRuns(db: SqliteDatabase, jobs: readonly KnownJob[], live: LiveQueues, now: number): boolean {
  if (!hasHeld(db)) return false;
  const found = jobs.flatMap((job) => [...findOffers(db, job, live, now)]).sort((one, other) => one.seq - other.seq);
  for (const { seq, queue } of found.slice(0, MAX_OFFERS)) offer(db, seq, queue, now);
  return found.length > 0;
}

function hasHeld(db: SqliteDatabase): boolean {
  return db.get`
    SELECT 1 FROM holdfast_holds INDEXED BY holdfast_holds_by_queue WHERE since IS NOT NULL AND queue >= '' LIMIT 1` !==
    undefined;
}

/** The first held runs that can be offered to a version and print of a job, with the queue of that print. */
function* findOffers(
  db: SqliteDatabase,
  job: KnownJob,
  live: LiveQueues,
  now: number,
): Generator<{ seq: number; queue: string }> {
  for (const { offered_in, prints } of groupsFor(db, job, live)) {
    const since = latestSince(JSON.parse(prints), job.print, now);
    if (since === -Infinity) continue;
    const isLongAgo = since < Infinity ? sql`AND since <= ${since}` : raw("");
    yield* db.all<{ seq: number; queue: string }>`
      SELECT run_seq AS seq, ${queueName(job.name, job.version, job.print)} AS queue
      FROM holdfast_holds INDEXED BY holdfast_holds_by_queue WHERE since IS NOT NULL
        AND queue = ${
      queueName(job.name, job.version)
    } AND offered_in = ${offered_in} AND prints = ${prints} ${isLongAgo}
      ORDER BY run_seq LIMIT ${raw(MAX_OFFERS)}`;
  }
}

/** Held runs of a queue that the same prints have tried, and that are offered in the same queue. */
interface HeldGroup {
  /** An empty string: in none. */
  offered_in: string;
  prints: JsonText;
}

/** The groups of a job that no other live worker can take. It takes one probe for each group, however many runs it has. */
function* groupsFor(db: SqliteDatabase, { name, version }: KnownJob, live: LiveQueues): Generator<HeldGroup> {
  let group: HeldGroup | undefined = { offered_in: "", prints: "" };
  while (true) {
    group = db.get<HeldGroup>`SELECT offered_in, prints FROM holdfast_holds INDEXED BY holdfast_holds_by_queue
      WHERE since IS NOT NULL AND queue = ${queueName(name, version)}
        AND (offered_in, prints) > (${group.offered_in}, ${group.prints}) ORDER BY offered_in, prints LIMIT 1`;
    if (group === undefined) return;
    if (group.offered_in !== "" && live().has(group.offered_in)) continue;
    yield group;
  }
}

function offer(db: SqliteDatabase, seq: number, queue: string, now: number): void {
  withdrawOffer(db, seq);
  db.run`UPDATE holdfast_holds SET offered_in = ${queue} WHERE run_seq = ${seq}`;
  // After the runs that are not held: it keeps none of them from its key.
  db.run`UPDATE holdfast_runs SET queue = ${queue}, position = ${OWN_POSITION} + ${HEAD_START} WHERE seq = ${seq}`;
  enterQueue(db, seq, now);
}

/**
 * Notes that a run is held no more: it is claimed, or it ends.
 *
 * @param generation That of the lease which the claim gives.
 */
export function endHold(db: SqliteDatabase, runSeq: number, generation: number | null = null): void {
  db.run`UPDATE holdfast_holds SET since = NULL, offered_in = '', generation = coalesce(${generation}, generation)
    WHERE run_seq = ${runSeq} AND since IS NOT NULL`;
}

/** Forgets which prints have tried a held run: it has recorded something. */
export function forgetPrints(db: SqliteDatabase, runSeq: number): void {
  db.run`UPDATE holdfast_holds SET prints = '[]' WHERE run_seq = ${runSeq} AND since IS NOT NULL`;
}

/** Takes a held run out of the queue of the print to which it is offered. The caller puts it into a queue again. */
export function withdrawOffer(db: SqliteDatabase, seq: number): void {
  const left = db.get<{ queue: string; fairness_key: string | null }>`
    SELECT queue, fairness_key FROM holdfast_runs WHERE seq = ${seq} AND queue_state IS NOT NULL`;
  if (left === undefined) return;
  db.run`UPDATE holdfast_runs SET queue_state = NULL, queue = job, position = ${OWN_POSITION} WHERE seq = ${seq}`;
  touchGroup(db, left.queue, left.fairness_key);
}
