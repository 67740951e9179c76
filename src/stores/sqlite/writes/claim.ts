import type { Fact } from "../../../model/fact.ts";
import type { ClaimRequest, ClaimResult } from "../../../store/claim.ts";
import type { Candidate } from "../flow/candidate.ts";
import { Candidates, type Drawn } from "../flow/candidates.ts";
import { type ClaimFacts, earliest, hasExpired, readClaimFacts } from "../flow/claim_facts.ts";
import { endHold, hasOffer, type LiveQueues, offerHeldRuns } from "../changed_code/offers.ts";
import { limitsOf } from "../../operate/blocker_facts.ts";
import { aloneQueue, isOfPrint, jobNameOf } from "../../queue_name.ts";
import { cancelOrphans, PassedOrphans } from "../children/orphans.ts";
import {
  countKeyStart,
  OUT_OF_QUEUE,
  OWN_POSITION,
  takeKey,
  takeKeyAlone,
  updateQueue,
} from "../flow/concurrency_keys.ts";
import { failLateRuns, startDelayedRuns } from "../flow/run_deadlines.ts";
import { releaseExpiredGhosts } from "../flow/ghosts.ts";
import {
  countTaken,
  findOpening,
  hasReady,
  isBehindOtherJob,
  type JobGate,
  openGates,
  passLimits,
  type Precedence,
  queuesOf,
  readPausedJobs,
  writeStarts,
} from "../flow/job_gates.ts";
import { correctStarts, forgetStarts } from "../flow/rates.ts";
import { forgetTurns, serveGroup, serveKeyless, settleHeads, touchGroup } from "../flow/turns.ts";
import { trimByAge } from "../journal/journal.ts";
import { MAX_TIMERS } from "../../rules.ts";
import type { JsonText } from "../../../values/json.ts";
import type { ClaimedColumns } from "../../claimed_row.ts";
import { type LeasedRow, toLeasedRun } from "../rows.ts";
import { moveRun } from "../run_counts.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { raw } from "../statement.ts";
import {
  findAloneSince,
  forgetDeadWorkers,
  liveQueues,
  noteWorker,
  readClaimed,
  readLastClaim,
  readLiveWorkers,
} from "../operate/workers.ts";
import { commitDeadlines, noteResumption, wake } from "./pause_resolution.ts";
import { revokeExpiredLeases } from "./leases.ts";
import { underLease } from "./lease_cache.ts";

/** A row of a claimed run. */
export interface ClaimedRow extends ClaimedColumns, LeasedRow {
  has_pauses: number;
}

/** The columns that few runs use, with what the others have in them. */
const SELDOM: Pick<
  ClaimedRow,
  "origin_id" | "start_at" | "finish_by" | "priority" | "fairness_key" | "depth" | "slot_at" | "slot"
> = {
  origin_id: null,
  start_at: null,
  finish_by: null,
  priority: 0,
  fairness_key: null,
  depth: 0,
  slot_at: null,
  slot: null,
};
const SELDOM_NAMES = Object.keys(SELDOM) as (keyof typeof SELDOM)[]; // it has these keys alone

/** What is read of a claimed run: what few runs use as JSON, since each column takes a fifth of a microsecond. */
type ReadColumns = Omit<ClaimedRow, keyof typeof SELDOM> & { seldom: JsonText | null };

/** Reads what is needed of runs that are claimed; a WHERE or an ON follows for `r`. */
const CLAIMED =
  `SELECT r.seq, r.id, r.created_at, r.job, r.labels, r.concurrency_key, r.lease_generation, r.lease_claim,
  r.lease_expires_at, r.interruptions, r.recorded, r.last_report_no, r.has_pauses, r.started_at, r.trace, i.payload,
  i.input, i.schema_print,
  r.has_pauses = 0 AND r.parent_seq IS NULL AND r.retrigger_of IS NULL AND r.on_end IS NULL AS is_plain,
  iif(${SELDOM_NAMES.map((name) => `r.${name} IS ${SELDOM[name]}`).join(" AND ")}, NULL,
    json_object(${SELDOM_NAMES.map((name) => `'${name}', r.${name}`).join(", ")}) || '') AS seldom`;
const CLAIMED_RUN = `${CLAIMED} FROM holdfast_runs r JOIN holdfast_inputs i ON i.run_seq = r.seq`;
// In the order of the list.
const CLAIMED_RUNS = `${CLAIMED} FROM json_each(?) CROSS JOIN holdfast_runs r ON r.seq = json_each.value
  JOIN holdfast_inputs i ON i.run_seq = r.seq`;

/** Copies the row of a claimed run: the members of what a driver returns are slow to read. */
function toClaimedRow(row: ReadColumns): ClaimedRow {
  return {
    ...(row.seldom === null ? SELDOM : JSON.parse(row.seldom) as typeof SELDOM),
    seq: row.seq,
    id: row.id,
    created_at: row.created_at,
    job: row.job,
    labels: row.labels,
    concurrency_key: row.concurrency_key,
    lease_generation: row.lease_generation,
    lease_claim: row.lease_claim,
    lease_expires_at: row.lease_expires_at,
    interruptions: row.interruptions,
    recorded: row.recorded,
    last_report_no: row.last_report_no,
    has_pauses: row.has_pauses,
    started_at: row.started_at,
    trace: row.trace,
    payload: row.payload,
    input: row.input,
    schema_print: row.schema_print,
    is_plain: row.is_plain,
  };
}

/** The result of a claim, before the histories are read. */
interface ClaimedRows extends Omit<ClaimResult, "claims" | "now"> {
  /** The rows of the claimed runs, as the claim left them, in the order in which they were claimed. */
  rows: ClaimedRow[];
}

/**
 * Whether a claim would find nothing to do; checks without taking the lock.
 *
 * @returns What the claim answers, or `null` if there is something to do.
 */
export function findIdle(
  db: SqliteDatabase,
  request: ClaimRequest,
  now: number,
): Pick<ClaimResult, "nextTimerAt" | "aloneSince" | "hasHeld"> | null {
  const worker = readLastClaim(db, request.workerId);
  if (worker?.claim_id === request.claimId) return null;
  const age = worker === undefined ? Infinity : now - worker.seen_at;
  // Other workers have to see that this worker is alive.
  if (age < 0 || age > request.leaseMs / 3) return null;
  const facts = readClaimFacts(db);
  if (hasExpired(facts, now)) return null;
  const paused = pausedJobs(db, facts);
  const gates = openGates(db, request.jobs, { ...request, paused }, 1, now);
  if (request.limit > 0 && hasReady(db, gates)) return null;
  if (mayOffer(request) && hasOffer(db, request.jobs, liveQueuesOf(db, request, now), now)) return null;
  return {
    nextTimerAt: nextInstant(db, request, { facts, gates }, now),
    aloneSince: facts.hasAlone === 1 ? findAloneSince(db, request, paused, now) : null,
    hasHeld: facts.hasHeld === 1,
  };
}

/** Whether a claim offers held runs to the worker, if none is offered to it already. */
function mayOffer({ triesHeld, limit }: ClaimRequest): boolean {
  return triesHeld && limit > 0;
}

/** The queues from which live workers claim, this one and those of offers included. They are read once, when needed. */
function liveQueuesOf(db: SqliteDatabase, { jobs, workerId }: ClaimRequest, now: number): LiveQueues {
  let live: ReadonlySet<string> | null = null;
  return () => live ??= new Set([...jobs.flatMap((job) => queuesOf(job, true)), ...liveQueues(db, now, workerId)]);
}

function pausedJobs(db: SqliteDatabase, { hasPaused }: ClaimFacts): Set<string> {
  return hasPaused === 1 ? readPausedJobs(db) : new Set();
}

/** When the next timer expires, or the next rate opens that holds up a run. */
function nextInstant(
  db: SqliteDatabase,
  request: ClaimRequest,
  { facts, gates }: { facts: ClaimFacts; gates: readonly JobGate[] },
  now: number,
): number | null {
  const { timerAt } = facts;
  const hasRates = facts.openingAt !== null || gates.some(({ job }) => job.rate !== null);
  if (!hasRates) return timerAt;
  return earliest(timerAt, findOpening(db, gates, precedenceOf(db, request, facts, pausedJobs(db, facts), now), now));
}

function precedenceOf(
  db: SqliteDatabase,
  request: ClaimRequest,
  { hasOffers, hasAlone }: ClaimFacts,
  paused: ReadonlySet<string>,
  now: number,
): Precedence {
  const isOpen = (queue: string) => paused.size === 0 || !paused.has(jobNameOf(queue));
  const normal = request.jobs.flatMap((job) => queuesOf(job, hasOffers === 1)).filter(isOpen);
  const alone = hasAlone === 1 ? normal.filter((queue) => !isOfPrint(queue)).map(aloneQueue) : [];
  const [own, rest] = request.isAlone ? [alone, normal] : [normal, alone];
  const others = readLiveWorkers(db, now, request.workerId);
  const live = new Set([...own, ...rest, ...others.flatMap(({ queues }) => [...queues]).filter(isOpen)]);
  // The worker itself can claim the rest by another claim.
  const claiming = rest.length === 0 ? others : [...others, { queues: new Set(rest), limits: limitsOf(request.jobs) }];
  return { live, own: new Set(own), canPass: passLimits(db, claiming, now) };
}

/** Claims due runs. See `Store.claim()`. */
export function claimRuns(db: SqliteDatabase, request: ClaimRequest, now: number): ClaimedRows {
  const repeated = findClaimed(db, request);
  if (repeated !== null) {
    // The next call checks for more: this one is a repetition, and does nothing.
    const { timerAt: nextTimerAt } = readClaimFacts(db);
    return { rows: repeated, failed: [], cancelled: [], nextTimerAt, hasMore: true, aloneSince: null, hasHeld: true };
  }
  extendLeases(db, request, now);
  const before = readClaimFacts(db);
  const isLate = hasExpired(before, now);
  const cancelled = before.hasOrphans === 1 ? cancelOrphans(db, MAX_TIMERS, now) : [];
  const failed = isLate ? processTimers(db, request, before, now) : [];
  settleHeads(db);
  // What the timers have made due counts, too.
  let ready = claimReady(db, request, isLate ? readClaimFacts(db) : before, now);
  if (
    ready.rows.length === 0 && mayOffer(request) && offerHeldRuns(db, request.jobs, liveQueuesOf(db, request, now), now)
  ) {
    settleHeads(db);
    ready = claimReady(db, request, readClaimFacts(db), now);
  }
  const { rows, gates, hasMore } = ready;
  noteWorker(db, request, rows, now);
  // An idle worker writes an empty claim at intervals, to show that it is alive.
  if (rows.length === 0) tidyUp(db, now);
  const facts = readClaimFacts(db);
  return {
    rows,
    failed,
    cancelled,
    nextTimerAt: nextInstant(db, request, { facts, gates }, now),
    // A limit that is used up now may let others pass a run that is claimed alone.
    hasMore: hasMore || (rows.length > 0 && facts.hasAlone === 1) || hasExpired(facts, now),
    aloneSince: facts.hasAlone === 1 ? findAloneSince(db, request, pausedJobs(db, facts), now) : null,
    hasHeld: facts.hasHeld === 1,
  };
}

function tidyUp(db: SqliteDatabase, now: number): void {
  trimByAge(db, now);
  forgetStarts(db, now);
  forgetTurns(db);
  forgetDeadWorkers(db, now);
}

/** A call that is repeated after an unknown outcome returns the runs that it claimed and still holds. */
function findClaimed(db: SqliteDatabase, request: ClaimRequest): ClaimedRow[] | null {
  const claimed = readClaimed(db, request);
  if (claimed === null) return null;
  return claimed
    .map(([runId, generation]) =>
      db.get<ReadColumns>`
        ${raw(CLAIMED_RUN)} WHERE r.id = ${runId} AND r.lease_generation = ${generation} AND r.status = 'running'`
    )
    .filter((row) => row !== undefined).map(toClaimedRow);
}

/** Extends the expired leases that the claiming worker still holds. */
function extendLeases(db: SqliteDatabase, { holding, leaseMs }: ClaimRequest, now: number): void {
  if (holding.length === 0) return;
  if (db.get`SELECT 1 FROM holdfast_runs WHERE lease_expires_at <= ${now} LIMIT 1` === undefined) return;
  for (const lease of holding) {
    db.run`
      UPDATE holdfast_runs SET lease_expires_at = ${now + leaseMs}
        WHERE ${underLease(lease)} AND lease_expires_at <= ${now}`;
  }
}

/** Processes expired timers. Returns the runs that failed. */
function processTimers(
  db: SqliteDatabase,
  { maxAbandonments }: ClaimRequest,
  { newestStart }: ClaimFacts,
  now: number,
): ClaimResult["failed"] {
  if (newestStart !== null && newestStart > now) correctStarts(db, now);
  const abandoned = revokeExpiredLeases(db, { maxAbandonments, limit: MAX_TIMERS }, now);
  releaseExpiredGhosts(db, MAX_TIMERS, now);
  const late = failLateRuns(db, MAX_TIMERS, now);
  wakeSleepers(db, now);
  startDelayedRuns(db, MAX_TIMERS, now);
  openKeys(db, now);
  return [...abandoned, ...late];
}

function wakeSleepers(db: SqliteDatabase, now: number): void {
  const due = db.all<{ seq: number }>`
    SELECT seq FROM holdfast_runs WHERE timer_at <= ${now} ORDER BY timer_at, seq LIMIT ${raw(MAX_TIMERS)}`;
  for (const { seq } of due) {
    commitDeadlines(db, seq, now);
    wake(db, seq, now);
  }
}

/** Moves the queues of keys on whose rate has opened, or is closed again. */
function openKeys(db: SqliteDatabase, now: number): void {
  const open = db.all<{ concurrency_key: string }>`
    SELECT concurrency_key FROM holdfast_openings
    WHERE is_open = 0 AND opens_at <= ${now} ORDER BY opens_at LIMIT ${raw(MAX_TIMERS)}`;
  // All of them: a run that has passed the rate would be claimed too early.
  const closed = db.all<{ concurrency_key: string }>`
    SELECT concurrency_key FROM holdfast_openings WHERE is_open = 1 AND opens_at > ${now}`;
  for (const { concurrency_key: key } of [...open, ...closed]) {
    // An opening that was left over would be a timer that never stops.
    db.run`DELETE FROM holdfast_openings WHERE concurrency_key = ${key}`;
    updateQueue(db, key, now);
  }
}

interface ReadyResult {
  rows: ClaimedRow[];
  /** What the limits of the jobs still allow. */
  gates: readonly JobGate[];
  hasMore: boolean;
}

/** Takes ready runs of the known jobs in their order. */
function claimReady(db: SqliteDatabase, request: ClaimRequest, facts: ClaimFacts, now: number): ReadyResult {
  const paused = pausedJobs(db, facts);
  const gates = openGates(db, request.jobs, { ...request, paused }, request.limit + 1, now);
  const precedence = precedenceOf(db, request, facts, paused, now);
  const isBehind = (run: Candidate) => isBehindOtherJob(db, run, precedence);
  const orphans = new PassedOrphans(db, facts.hasOrphans === 1);
  const taken = new Map<number, Candidate>();
  const options = { hasHeads: facts.hasHeads === 1, pageSize: request.limit + 1, now, isBehind, orphans, taken };
  const candidates = new Candidates(db, gates, options);
  let hasMore = false;
  db.requeued.clear();
  for (let drawn = candidates.next(); drawn !== null; drawn = candidates.next()) {
    const { run, gate } = drawn;
    const key = run.concurrency_key;
    if (orphans.isFull) break;
    if (orphans.has(run.seq)) continue;
    const isFull = taken.size === request.limit;
    const isKeyTaken = key !== null && drawn.head === null && !isFull && takeKeyAlone(db, run.seq);
    if (key !== null && !isKeyTaken && drawn.head === null && isBehind(run)) continue;
    hasMore = isFull;
    if (hasMore) break;
    taken.set(run.seq, run);
    countTaken(gates, gate, run.begun === 0);
    if (drawn.head === null && drawn.turn !== null) serveKeyless(db, drawn.turn);
    if (drawn.head !== null || (key !== null && !isKeyTaken)) takeAtOnce(db, drawn, candidates, now);
  }
  writeStarts(db, gates, now);
  const rows = claimRows(db, [...taken.values()], request, now);
  return { rows, gates, hasMore: hasMore || orphans.isFull };
}

/** Takes a run out of its queue before the others are drawn: the next one depends on it. */
function takeAtOnce(db: SqliteDatabase, drawn: Drawn, candidates: Candidates, now: number): void {
  const { run, head } = drawn;
  const served = head === null ? [] : serveGroup(db, head);
  db.run`UPDATE holdfast_runs SET queue_state = NULL WHERE seq = ${run.seq}`;
  touchGroup(db, run.queue, run.fairness_key);
  if (run.concurrency_key !== null) {
    if (run.begun === 0) countKeyStart(db, run.concurrency_key, run.seq, now);
    takeKey(db, run.concurrency_key, run.seq, now);
  }
  rereadAfter(db, drawn, candidates, served);
}

function rereadAfter(db: SqliteDatabase, { run, head }: Drawn, candidates: Candidates, served: string[]): void {
  candidates.rereadHeads([...served, ...settleHeads(db)]);
  if (head !== null) candidates.readmit(head);
  if (run.concurrency_key !== null) candidates.rereadAllHeads();
  candidates.reread(db.requeued);
  db.requeued.clear();
}

function claimRows(
  db: SqliteDatabase,
  candidates: readonly Candidate[],
  request: ClaimRequest,
  now: number,
): ClaimedRow[] {
  if (candidates.length === 0) return [];
  const seqs = JSON.stringify(candidates.map(({ seq }) => seq));
  db.run`UPDATE holdfast_runs SET status = 'running', queue = job, position = ${OWN_POSITION}, ${OUT_OF_QUEUE},
      lease_owner = ${request.workerId}, lease_claim = ${request.claimId},
        lease_expires_at = ${now + request.leaseMs}, lease_generation = lease_generation + 1,
      last_report_no = 0, started_at = coalesce(started_at, ${now}),
        finish_by = coalesce(finish_by, ${now} + finish_within),
      leased_at = ${now}, updated_at = ${now}
    WHERE seq IN (SELECT value FROM json_each(${seqs}))`;
  // Read by a statement of its own: RETURNING takes a third longer.
  const rows = db.all<ReadColumns>(CLAIMED_RUNS, seqs).map(toClaimedRow);
  for (const [at, row] of rows.entries()) {
    if (row.has_pauses === 1) {
      commitDeadlines(db, row.seq, now);
      const { recorded } = db.one<{ recorded: number }>`SELECT recorded FROM holdfast_runs WHERE seq = ${row.seq}`;
      row.recorded = recorded;
    }
    const candidate = candidates[at]!; // there is a row for each
    moveRun(db, row.job, candidate.status, "running");
    if (isOfPrint(candidate.queue)) {
      endHold(db, row.seq, row.lease_generation);
      db.facts.note([row.seq, "resumed"]);
    }
    db.facts.note(claimedFact(row, request.workerId));
    db.leased.note(row.id, toLeasedRun(row));
    if (candidate.status === "waiting") noteResumption(db, row.seq, now);
  }
  return rows;
}

function claimedFact(row: ClaimedRow, owner: string): Fact {
  const { seq, lease_generation: generation, lease_expires_at: expiresAt, interruptions } = row;
  return [seq, "claimed", generation, owner, expiresAt, interruptions + 1];
}
