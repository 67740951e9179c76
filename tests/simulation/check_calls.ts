import type { Signal, SignalOutcome } from "../../src/model/wait.ts";
import { ConflictError, LeaseLostError, WaitExpiredError } from "../../src/model/error.ts";
import { derivedRunId } from "../../src/model/end.ts";
import { failureText } from "../../src/model/failure.ts";
import type { Lease, SeenLease } from "../../src/model/lease.ts";
import type { SavedStep, StepWrite } from "../../src/model/step.ts";
import type { CancelledExecution, Ending, Renewal } from "../../src/store/claim.ts";
import type { NewHold } from "../../src/store/hold_record.ts";
import type { Enqueued, NewRun } from "../../src/store/new_run.ts";
import type { Firing, ScheduleRecord } from "../../src/store/schedule_record.ts";
import type { PauseRequest, PauseResult } from "../../src/store/pause_request.ts";
import { isTerminal, type Retention, type Run, type RunIdentity } from "../../src/model/run.ts";
import type { NewLogEntry } from "../../src/model/log.ts";
import {
  checkComplete,
  checkHold,
  checkParked,
  checkPauseNames,
  isEndHeldBack,
  notePauses,
  noteRecord,
  noteRecordBy,
  noteResumed,
  signalRule,
} from "./change_facts.ts";
import type { Code } from "./changes_plan.ts";
import type { Explained } from "./check_explained.ts";
import { checkClaim } from "./check_claim.ts";
import { checkSignalledBy, checkTriggeredBy, deed } from "./actor_facts.ts";
import { checkActors } from "./check_state.ts";
import { actorOf, type OriginText } from "../../src/model/origin.ts";
import { type AskedRun, checkOptions, checkRetryOptions } from "./check_options.ts";
import { checkPauses } from "./check_pauses.ts";
import { noteChildDeletion, noteChildEnd, noteChildren } from "./child_facts.ts";
import {
  checkCleanedUp,
  checkLeft,
  checkOnEnd,
  checkRetriedEnd,
  continuing,
  isLook,
  LOOK_AGAIN_MS,
  noteEndRun,
} from "./end_facts.ts";
import { attemptKey, type Facts, isSignalPermitted, newRunFacts, noteAbandoned, type RunFacts } from "./facts.ts";
import { jobOf } from "./renames_plan.ts";
import { checkSend, countsFor, inboxOf, newestRetryOf, openRetryOf } from "./message_facts.ts";
import { noteChunks, noteStreamed } from "./stream_facts.ts";

/** A call that a store has carried out or refused. */
export interface Call {
  method: string;
  parameters: readonly unknown[];
  outcome: { value: unknown } | { error: unknown };
  /** What the wall clock showed. */
  wallNow: number;
  /** What the clock showed that never jumps, now and when the call was sent. */
  now: number;
  sentAt: number;
  /** The code of the process that has sent it. */
  code: Code;
  /** Of a claim: what was said of each run right before, unless another call was carried out in between. */
  explained?: Explained | undefined;
}

/** Judges a committed call against what was committed before, and takes note of it. Answers which runs it touched. */
export function checkCall(facts: Facts, call: Call): string[] | "any" {
  facts.writes += 1;
  const check = CHECKS[call.method];
  return check === undefined
    ? []
    : check(facts, call.parameters as never, call.outcome as never, call.wallNow, call.now, call);
}

type Outcome<T> = { value: T } | { error: unknown };

// deno-lint-ignore no-explicit-any -- each check knows what its method takes and answers
type Anything = any;

type Check = (
  facts: Facts,
  parameters: Anything,
  outcome: Anything,
  wallNow: number,
  now: number,
  call: Call,
) => string[] | "any";

const CHECKS: Record<string, Check> = {
  enqueue: checkEnqueue,
  claim: (facts, parameters, outcome, _wallNow, _now, call) => checkClaim(facts, parameters, outcome, call),
  renew: checkRenew,
  release: checkRelease,
  revoke: checkRevoke,
  saveStep: checkSaveStep,
  appendItems: (facts, [writes]: [{ lease: Lease }[]], outcome: Outcome<boolean[]>) => {
    if ("error" in outcome) return [];
    writes.forEach(({ lease }, at) => outcome.value[at] && checkWriter(facts, lease, "items"));
    return writes.map(({ lease }) => lease.runId);
  },
  pause: checkPause,
  saveInput: (facts) => (facts.notice("an input was parsed again by another version"), []),
  finish: checkFinish,
  hold: checkHolding,
  resumeHeld: checkResumption,
  signal: checkSignal,
  send: (facts, parameters, outcome, wallNow) =>
    checkSend(facts, parameters, outcome, (start, enqueued) => checkEnqueued(facts, start, enqueued, wallNow)),
  cancel: checkCancel,
  delete: checkDelete,
  purge: checkPurge,
  appendLogs: checkAppendLogs,
  noteStopping: () => [],
  addStats: () => [],
  forgetWorker: (facts, [workerId]: [string]) => (facts.flow.forgetWorker(workerId), []),
  pauseJob: (facts, [jobName]: [string]) => (facts.flow.paused.add(jobName), []),
  resumeJob: (facts, [jobName]: [string]) => (facts.flow.paused.delete(jobName), []),
  setSchedule: checkSetSchedule,
  deleteSchedule: (facts, [name]: [string]) => (facts.schedules.delete(name), []),
  fireSchedule: checkFireSchedule,
};

function checkEnqueue(facts: Facts, [requests]: [NewRun[]], outcome: Outcome<Enqueued[]>, wallNow: number): string[] {
  if ("error" in outcome) return noticeCleaning(facts, outcome.error), [];
  requests.forEach((request, at) => checkEnqueued(facts, request, outcome.value[at]!, wallNow));
  const retriggered = requests.flatMap(({ retriggerOf }) => retriggerOf === null ? [] : [retriggerOf.runId]);
  return [...retriggered, ...outcome.value.map(({ run }) => run.id)];
}

function checkSetSchedule(
  facts: Facts,
  [schedule, version]: [Omit<ScheduleRecord, "version">, number | null],
  outcome: Outcome<ScheduleRecord | null>,
  wallNow: number,
): string[] {
  if (!("error" in outcome)) facts.schedules.set(facts, schedule, version, outcome.value, wallNow);
  return [];
}

function checkFireSchedule(
  facts: Facts,
  [firing]: [Firing],
  outcome: Outcome<{ schedule: ScheduleRecord; run: Enqueued | null } | null>,
  wallNow: number,
): string[] {
  if ("error" in outcome) return [];
  const { run: request, schedule: { name }, next } = firing;
  const { run = null, schedule = null } = outcome.value ?? {};
  const known = request === null ? undefined : facts.runs.get(request.id);
  if (known !== undefined && !known.isDeleted) {
    // A schedule that was deleted meanwhile is not found.
    const isGone = outcome.value === null && !facts.schedules.has(name);
    facts.expect(
      isGone || run?.run.id === request!.id,
      "F6",
      () => `a slot was fired again, and its run ${request!.id} not found`,
    );
    return [];
  }
  facts.schedules.fire(facts, firing, schedule, run?.run.id ?? null, wallNow);
  if (run === null || request === null) return [];
  facts.noteAsked(request.payload);
  checkEnqueued(facts, request, run, wallNow);
  facts.schedules.noteRun(facts, name, next.lastSlotAt!, facts.run(run.run.id));
  return [run.run.id];
}

function checkEnqueued(facts: Facts, request: NewRun, { run, disposition }: Enqueued, wallNow: number): void {
  const { jobName, idempotencyKey, concurrencyKey, coalesce, schedule } = request;
  const known = facts.runs.get(request.id);
  if (known !== undefined) {
    facts.expect(run.id === request.id, "I12", () => `a repeated trigger of ${request.id} was answered ${run.id}`);
    facts.expect(
      known.request.payload === request.payload,
      "I12",
      () => `two triggers with different inputs share the id ${request.id}`,
    );
    return facts.notice("a trigger was repeated");
  }
  const old = request.retriggerOf === null ? null : facts.run(request.retriggerOf.runId);
  const openRetry = old === null ? undefined : openRetryOf(facts, old);
  if (openRetry !== undefined) return checkOpenRetry(facts, openRetry, { run, disposition });
  const same = idempotencyKey === null
    ? undefined
    : facts.existing().find(({ request: other, hasLostKey }) =>
      other.jobName === jobName && other.idempotencyKey === idempotencyKey && !hasLostKey
    );
  const { idempotencyUntil: until } = request;
  const counts = same === undefined ? "no" : countsFor(facts, same, until);
  const holder = same === undefined || until === undefined ? same : newestRetryOf(facts, same);
  facts.expect(
    disposition === "created" ? counts !== "yes" : counts !== "yes" || holder!.request.id === run.id,
    until === undefined ? "I6" : "M7",
    () => `key ${idempotencyKey} of ${jobName} names ${holder!.request.id}, and now ${run.id} too`,
  );
  if (disposition === "created" && same !== undefined) {
    same.hasLostKey = true;
    facts.notice("a run lost its idempotency key");
  }
  if (disposition === "created") {
    const isOfBulk = old !== null && request.id === derivedRunId(old.request.id, `bulk retrigger of ${old.request.id}`);
    checkTriggeredBy(facts, request, run.triggeredBy, !isOfBulk);
    if (old !== null && request.id === derivedRunId(old.request.id, `bulk retrigger of ${old.request.id}`)) {
      facts.noteAsked(request.payload);
      facts.notice("one of many runs was retriggered");
      facts.expect(
        facts.bulkRetriggers.some((count) => old.order < count),
        "F11",
        () => `${old.request.id} was retriggered with many, and was made by none but that`,
      );
    }
    // Whoever triggers a schedule does not say with which input.
    if (schedule !== null && schedule.slotAt === null && old === null) facts.noteAsked(request.payload);
    const joinable = facts.open().find((other) => !other.isUnread && mayJoin(request, other, wallNow));
    facts.expect(
      joinable === undefined,
      "I12",
      () => `a trigger of ${jobName} with key ${concurrencyKey} and ${coalesce} did not join ${joinable!.request.id}`,
    );
    facts.expect(run.id === request.id, "I12", () => `a new run was to be ${request.id} and is ${run.id}`);
    const isPassed = ({ request, isDelayed, startAt }: RunFacts) =>
      isDelayed && startAt! > wallNow && request.jobName === jobName && request.concurrencyKey === concurrencyKey;
    if (coalesce !== null && facts.open().some(isPassed)) facts.notice("a trigger did not join a delayed run");
    facts.noteMade(request);
    if (old !== null) checkRetryOptions(facts, request, old);
    else if (schedule === null) checkOptions(facts, request);
    const source = request.retriggerOf?.from === "failure" ? old : null;
    for (const run of source === null ? [] : continuing(facts, source)) checkCleanedUp(facts, run, "continued");
    const made = newRunFacts(structuredClone(request), facts, source, Date.parse(run.createdAt));
    facts.runs.set(run.id, made);
    made.triggeredBy = run.triggeredBy;
    if (concurrencyKey !== null) facts.flow.windows.noteAdded(facts, concurrencyKey);
    if (old !== null) {
      old.retry = made;
      checkRetriedEnd(facts, old, made);
    }
    if (old?.endOf == null) checkOnEnd(facts, request);
    if (made.undone.size > 0) facts.notice("a retry began without what was undone");
    if (made.steps.size > 0) facts.notice("a run was retriggered from its failure");
    return;
  }
  const found = facts.run(run.id);
  facts.expect(!found.isDeleted, "I15", () => `a trigger found the deleted run ${run.id}`);
  if (disposition === "idempotent") {
    const isFound = same !== undefined && counts !== "no";
    facts.expect(isFound, "I6", () => `${run.id} was found without having the key ${idempotencyKey}`);
    return facts.notice("a trigger found the run of its idempotency key");
  }
  facts.expect(
    found.isUnread || mayJoin(request, found, wallNow),
    "I12",
    () =>
      `a trigger of ${jobName} with key ${concurrencyKey} and ${coalesce} joined ${run.id}, which is ${found.state?.run.status}`,
  );
  facts.notice("a trigger joined another run");
}

/** Who retriggers a run that has a retry which has not ended is answered that one. */
function checkOpenRetry(facts: Facts, { request: { id } }: RunFacts, { run, disposition }: Enqueued): void {
  facts.expect(
    run.id === id && disposition === "idempotent",
    "I12",
    () => `a retrigger was answered ${disposition} ${run.id} while the retry ${id} has not ended`,
  );
  facts.notice("a retrigger was answered a retry that had not ended");
}

/** Whether a trigger that coalesces is to join a run instead of making another. */
function mayJoin(
  { jobName, concurrencyKey, coalesce }: NewRun,
  { request, state, isDelayed, startAt, changed }: RunFacts,
  wallNow: number,
): boolean {
  if (coalesce === null || request.jobName !== jobName || request.concurrencyKey !== concurrencyKey) return false;
  if (changed.heldUnder !== null) return false;
  const { status, leaseExpiresAt } = state!.run;
  return (status === "pending" && !(isDelayed && startAt! > wallNow)) ||
    (coalesce === "active" &&
      (status === "waiting" || (status === "running" && Date.parse(leaseExpiresAt!) > wallNow)));
}

function checkRenew(facts: Facts, [renewals]: [Renewal[]], outcome: Outcome<(number | null)[]>): string[] {
  if ("error" in outcome) return [];
  renewals.forEach(({ lease }, at) => {
    const end = outcome.value[at] ?? null;
    if (end === null) return facts.notice("a renewal found its lease lost");
    const run = checkWriter(facts, lease, "a renewal");
    run.leaseEndsAt = end;
    const before = run.state?.run.leaseExpiresAt ?? null;
    facts.expect(
      run.isUnread || before === null || Date.parse(before) <= end ||
        run.state!.run.leaseGeneration !== lease.generation,
      "I14",
      () => `a renewal of ${lease.runId} moved the end of its lease from ${before} to ${new Date(end).toISOString()}`,
    );
  });
  return renewals.map(({ lease }) => lease.runId);
}

function checkRelease(facts: Facts, [{ runId, generation }]: [Lease]): string[] {
  const run = facts.run(runId);
  if (run.generation !== generation) return [runId];
  run.leaseEndsAt = null;
  run.isGhost = false;
  run.heldUnder = null;
  // Who gives a run back has not abandoned it.
  if (!run.hasEnded && run.parking === null) {
    run.claimsSinceRecord -= 1;
    run.soleLeases.delete(generation);
    noteAbandoned(run);
  }
  return [runId];
}

function checkRevoke(facts: Facts, [leases]: [SeenLease[]], outcome: Outcome<void>): "any" {
  if (!("error" in outcome) && leases.length > 0) {
    facts.notice("a lease was taken away that nobody renewed on a monotonic clock");
    for (const { runId, generation, expiresAt } of leases) {
      const run = facts.run(runId);
      // One that was renewed since it was seen stays.
      if (run.generation !== generation || run.leaseEndsAt !== expiresAt) continue;
      if (!run.hasEnded) noteAbandoned(run);
      run.leaseEndsAt = null;
      run.isGhost = false;
      run.heldUnder = null;
    }
  }
  return "any";
}

/** Only the newest lease can write, and only while the run has not ended. */
function checkWriter(facts: Facts, lease: Lease, what: string): RunFacts {
  const run = facts.run(lease.runId);
  facts.expect(
    lease.generation >= run.generation,
    "I2",
    () => `${what} under lease ${lease.generation} of ${lease.runId} counted, though lease ${run.generation} is newer`,
  );
  facts.expect(run.changed.heldUnder === null, "I-D3", () => `${what} counted in ${lease.runId}, which is held`);
  facts.expect(!run.isDeleted, "I15", () => `${what} counted in ${lease.runId}, which is deleted`);
  return run;
}

function noticeRefusal(facts: Facts, error: unknown): void {
  if (error instanceof LeaseLostError) facts.notice("a stale write was refused");
}

function checkSaveStep(
  facts: Facts,
  [lease, step]: [Lease, StepWrite],
  outcome: Outcome<SavedStep>,
  wallNow: number,
  now: number,
  { code }: Call,
): string[] {
  if ("error" in outcome) return noticeRefusal(facts, outcome.error), [lease.runId];
  const run = checkWriter(facts, lease, `step ${step.name}`);
  checkOutcome(facts, run, lease, step);
  noteStreamed(run, lease, step, outcome.value);
  noteChunks(run, step.chunks ?? []);
  const earlier = run.steps.get(step.name);
  const result = JSON.stringify(step.result);
  if (earlier === undefined || (!earlier.isOver && earlier.attempts < step.attempts)) {
    const isOver = step.result.status !== "retrying";
    const retryAt = step.result.status === "retrying" ? wallNow + step.result.delayMs : null;
    const index = earlier?.index ?? step.index;
    facts.expect(
      (outcome.value.retry === null) === isOver,
      "I5",
      () =>
        `${step.name} of ${lease.runId}, recorded as ${step.result.status}, is tried again at ${outcome.value.retry?.at}`,
    );
    const notBefore = step.result.status === "retrying" ? now + step.result.delayMs : null;
    const { attempts } = step;
    const { generation } = lease;
    run.steps.set(step.name, { index, attempts, isOver, result, generation, retryAt, notBefore });
    run.lastAnswer = null;
  } else {
    facts.expect(
      earlier.generation === lease.generation && (earlier.attempts > step.attempts || earlier.result === result),
      "I1",
      () => `step ${step.name} of ${lease.runId} ended twice: ${earlier.result}, then ${result}`,
    );
  }
  noteRecordBy(facts, run, code);
  run.claimsSinceRecord = 1; // this one, should it be abandoned
  run.soleLeases = new Set([...run.soleLeases].filter((generation) => generation === lease.generation));
  run.aloneUnder = null;
  return [lease.runId];
}

/** What is recorded is what the function of the step did: in time, and before it was told to end. */
function checkOutcome(facts: Facts, run: RunFacts, { generation }: Lease, { name, attempts, result }: StepWrite): void {
  const attempt = run.attempts.get(attemptKey(generation, name, attempts));
  const tell = () =>
    `attempt ${attempts} at ${name} of ${run.request.id} came to ${JSON.stringify(attempt)}, recorded is ${
      JSON.stringify(result)
    }`;
  const asked = run.calls.get(name);
  if (isLook(run, name)) return noticeLook(facts, result);
  if (asked !== undefined) return checkTriggered(facts, run, asked[0]!, result, tell);
  if (attempt === undefined) return facts.violate("I1", tell());
  const { ms, timeout, maxAttempts, outcome, wasInterrupted, lastedMs, delayMs } = attempt;
  facts.expect(result.status !== "retrying" || result.delayMs === delayMs, "I5", tell);
  if (result.status === "completed") {
    // A timer may be late by some milliseconds.
    const isInTime = timeout === null || ms <= timeout + 3;
    const isSame = outcome !== null && "value" in outcome && JSON.stringify(outcome.value) === result.output;
    return facts.expect(isInTime && isSame, "I1", tell);
  }
  const isTimeout = result.failure.kind === "timeout";
  if (isTimeout) facts.notice("a step took too long");
  const isSame = isTimeout
    ? timeout !== null && lastedMs() >= timeout
    : outcome !== null && "thrown" in outcome && outcome.thrown === result.failure.message && !wasInterrupted;
  facts.expect(isSame && (result.status === "failed") === (attempts >= maxAttempts), "I1", tell);
}

/** A clean-up has looked whether its run is still executed. */
function noticeLook(facts: Facts, result: StepWrite["result"]): void {
  if (result.status !== "completed") {
    return facts.violate("I11", `a clean-up could not look: ${JSON.stringify(result)}`);
  }
  if (result.output === "true") facts.notice("a clean-up waited for the end of what was executed");
}

function noticeCleaning(facts: Facts, error: unknown): void {
  if (
    error instanceof ConflictError &&
    / is being cleaned up: | is about to be cancelled and cleaned up: /.test(error.message)
  ) {
    facts.notice("a run was neither retried nor deleted while it was cleaned up");
  }
}

/** A step that triggers a run is recorded with one that was asked for. */
function checkTriggered(
  facts: Facts,
  { request: { labels } }: RunFacts,
  { jobName, payload, options }: AskedRun,
  result: StepWrite["result"],
  tell: () => string,
): void {
  if (result.status !== "completed") return facts.violate("I11", tell());
  const { runId } = JSON.parse(result.output ?? "null") as { runId: string };
  const made = facts.runs.get(runId)?.request;
  const isAsked = made !== undefined && jobOf(made.jobName) === jobName && made.payload === payload &&
    JSON.stringify(made.labels) === JSON.stringify({ ...labels, ...options.labels });
  facts.notice("a run triggered another one");
  facts.expect(isAsked, "I12", tell);
}

function checkPause(
  facts: Facts,
  [lease, request]: [Lease, PauseRequest],
  outcome: Outcome<PauseResult>,
  wallNow: number,
  _now: number,
  { code, sentAt }: Call,
): string[] {
  if ("error" in outcome) return noticeRefusal(facts, outcome.error), [lease.runId];
  const run = checkWriter(facts, lease, "a pause");
  const { parked, pauses, created } = outcome.value;
  const changed = request.pauses.flatMap(({ name, children }) =>
    children === null ? [] : noteChildren(facts, run, name, children, created, wallNow)
  );
  checkPauseNames(facts, run, lease, request.pauses);
  for (const { name, receive } of request.pauses) {
    if (receive !== undefined) inboxOf(facts, run).receives.set(name, receive);
  }
  checkPauses(facts, run, pauses, wallNow);
  notePauses(facts, run, lease, pauses, code);
  request.pauses.forEach(({ deadline, kind }, at) => {
    const { createdAt, deadlineAt, name } = pauses[at]!;
    if (kind === "children" || kind === "patch") return;
    const askedMs = isLook(run, name) ? LOOK_AGAIN_MS : run.asked.get(`${kind} ${name}`);
    const isAsked = deadline === null ? askedMs === null : "at" in deadline || askedMs === deadline.afterMs;
    facts.expect(
      isAsked,
      "I5",
      () => `${kind} ${name} of ${lease.runId} was to last ${askedMs} ms, not ${JSON.stringify(deadline)}`,
    );
    if (createdAt !== wallNow || deadline === null || !("afterMs" in deadline)) return;
    const expected = createdAt + Math.ceil(deadline.afterMs);
    facts.expect(
      deadlineAt === expected,
      "I5",
      () => `${name} was to last ${deadline.afterMs} ms, and lasts ${deadlineAt! - createdAt}`,
    );
  });
  if (parked) {
    checkParked(facts, run, lease, sentAt);
    run.leaseEndsAt = null;
    run.claimsSinceRecord = 0;
    run.soleLeases.clear();
    run.aloneUnder = null;
    run.heldUnder = null;
    run.isWoken = false;
    run.overPauses = new Set();
    const { lastAnswer } = run;
    // If the run asked for that wait, it was answered after the run had parked.
    if (lastAnswer !== null && !pauses.some(({ id }) => id === lastAnswer.waitId)) lastAnswer.isLast = false;
    run.parking = { pauses: pauses.map(({ id }) => run.pauses.get(id)!), retryAt: request.retryAt };
    if (pauses.length > 1) facts.notice("a run waited for several pauses");
    if (pauses.some(({ createdAt }) => createdAt < wallNow)) facts.notice("a run parked again after a replay");
  } else if (request.park) facts.notice("a pause was over when the run was to park");
  return [lease.runId, ...changed.map(({ request: { id } }) => id)];
}

function checkFinish(
  facts: Facts,
  [lease, ending]: [Lease, Ending],
  outcome: Outcome<void>,
  wallNow: number,
  now: number,
  { code }: Call,
): string[] {
  if ("error" in outcome) return noticeRefusal(facts, outcome.error), [lease.runId];
  const run = checkWriter(facts, lease, `the ending "${ending.status}"`);
  facts.expect(
    !run.isCancelled && (!run.hasEnded || run.isUnread || run.state!.run.status === ending.status),
    "I3",
    () => `${lease.runId} ended as ${ending.status} although it was ${run.state?.run.status} before`,
  );
  if (ending.status === "failed" && ending.failure.kind === "timeout") {
    checkLate(facts, run, lease, now);
  } else {
    checkReturned(facts, run, lease, ending);
    if (!run.hasEnded) checkComplete(facts, run, lease, code);
  }
  run.ending = ending;
  // Functions of a late run may still be executed: it keeps its key until its worker releases it.
  if (!("stillExecuting" in ending)) {
    if (!run.hasEnded) checkLeft(facts, run, lease.generation);
    run.leaseEndsAt = null;
  } else if (!run.hasEnded) {
    run.isGhost = (run.leaseEndsAt ?? 0) > wallNow;
    facts.notice("a late run ended while its functions may still have been executed");
  }
  run.heldUnder = null;
  return [lease.runId, ...noteEnd(facts, run)];
}

function checkHolding(
  facts: Facts,
  [lease, hold]: [Lease, NewHold],
  outcome: Outcome<void>,
  _wallNow: number,
  _now: number,
  { code }: Call,
): string[] {
  if ("error" in outcome) return noticeRefusal(facts, outcome.error), [lease.runId];
  const run = facts.run(lease.runId);
  if (run.changed.heldUnder === lease.generation) return [lease.runId];
  checkWriter(facts, lease, "a hold");
  checkHold(facts, run, lease, hold, code);
  run.leaseEndsAt = null;
  run.heldUnder = null;
  run.claimsSinceRecord -= 1; // whoever holds a run has not abandoned it
  run.soleLeases.delete(lease.generation);
  return [lease.runId];
}

function checkResumption(facts: Facts, [runId, continues]: [string, boolean], outcome: Outcome<Run | null>): string[] {
  if ("value" in outcome && outcome.value !== null) noteResumed(facts, facts.run(runId), continues);
  return [runId];
}

/** Takes note that a run has ended. Answers who else has changed. */
function noteEnd(facts: Facts, run: RunFacts): string[] {
  if (run.hasEnded) return [];
  run.hasEnded = true;
  return [noteEndRun(facts, run), noteChildEnd(facts, run)].flatMap((other) =>
    other === null ? [] : [other.request.id]
  );
}

/** A worker fails a run that is late, and never earlier. */
function checkLate(facts: Facts, run: RunFacts, { runId, generation }: Lease, now: number): void {
  facts.notice("a run was not ended in time by its worker");
  const lateAt = run.lateAt.get(generation);
  facts.expect(
    lateAt !== undefined && now >= lateAt,
    "F8",
    () => `${runId} failed as timeout at ${now} on the clock that never jumps, and was to end by ${lateAt}`,
  );
}

function checkReturned(facts: Facts, run: RunFacts, lease: Lease, ending: Ending): void {
  const returned = run.returned.get(lease.generation);
  const ended = `${ending.status} ${ending.status === "completed" ? ending.output : failureText(ending.failure)}`;
  facts.expect(returned === ended, "I1", () => `the function of ${lease.runId} ${returned}, its end is ${ended}`);
}

function checkSignal(
  facts: Facts,
  [waitId, signal, trace = null]: [string, Signal, OriginText | null | undefined],
  outcome: Outcome<SignalOutcome>,
  wallNow: number,
): string[] {
  const wait = facts.waits.get(waitId);
  if (wait === undefined) return [];
  const payload = JSON.stringify(signal.payload);
  if ("error" in outcome) {
    const { error } = outcome;
    const isOwn = wait.accepted?.signalId === signal.signalId && wait.accepted.payload === payload;
    facts.expect(
      !isOwn || facts.run(wait.runId).isDeleted,
      signalRule(facts.run(wait.runId)),
      () => `${signal.signalId} was accepted by ${waitId}, and now: ${error}`,
    );
    if (error instanceof WaitExpiredError) {
      facts.notice("a signal met its deadline");
      const isDue = wait.deadlineAt !== null && (wait.ending !== null || Date.parse(wait.deadlineAt) <= wallNow);
      facts.expect(
        isDue && wait.accepted === null,
        "I5",
        () => `${waitId} refused ${signal.signalId} before its deadline ${wait.deadlineAt}`,
      );
      wait.isExpired = true;
    }
    if (error instanceof ConflictError) {
      facts.notice(
        wait.accepted === null ? "a signal came to a wait that was cancelled or closed" : "a second signal was refused",
      );
    }
    return [wait.runId];
  }
  const { disposition, wait: shown } = outcome.value;
  const receipt = JSON.stringify(shown);
  if (disposition === "duplicate") {
    facts.notice("a signal was repeated and got its first receipt");
    if (actorOf(trace) !== shown.signalledBy) facts.notice("somebody did what another one had done before");
    facts.expect(
      wait.accepted?.receipt === receipt,
      signalRule(facts.run(wait.runId)),
      () => `the receipt of ${signal.signalId} was ${wait.accepted?.receipt}, and is now ${receipt}`,
    );
    return [wait.runId];
  }
  facts.expect(
    wait.accepted === null && wait.ending === null,
    "I5",
    () => `${waitId} took ${signal.signalId} although it was over: ${wait.ending ?? wait.accepted?.signalId}`,
  );
  facts.expect(
    wait.deadlineAt === null || wallNow < Date.parse(wait.deadlineAt),
    "I5",
    () => `${waitId} took ${signal.signalId} at ${new Date(wallNow).toISOString()}, its deadline is ${wait.deadlineAt}`,
  );
  facts.expect(
    isSignalPermitted(facts, wait, signal.signalId) || facts.links.has(signal.signalId),
    "I8",
    () => `${waitId} took ${signal.signalId}, which nobody has sent who may`,
  );
  checkSignalledBy(facts, wait, signal, shown.signalledBy);
  if (facts.run(wait.runId).changed.heldUnder !== null) facts.notice("a signal came to a held run");
  noteRecord(facts.run(wait.runId), "certainly");
  facts.run(wait.runId).lastAnswer = { waitId, isLast: true };
  wait.accepted = { signalId: signal.signalId, by: shown.signalledBy, payload, receipt };
  if (shown.suspendedAt === null) facts.notice("a signal came before the run waited");
  return [wait.runId];
}

function checkCancel(
  facts: Facts,
  [runId, requestId]: [string, string, CancelledExecution | null],
  outcome: Outcome<Run | null>,
  wallNow: number,
): string[] {
  if ("error" in outcome || outcome.value === null) return [runId];
  const run = facts.run(runId);
  const before = run.state?.run;
  if (run.isCancelled) {
    facts.notice("a cancel was repeated");
    if (actorOf(requestId) !== run.cancelledBy) facts.notice("somebody did what another one had done before");
    checkActors(facts, run, outcome.value);
  } else {
    facts.expect(
      facts.isPermitted(run, "cancel"),
      "I8",
      () => `${runId} was cancelled, and nobody has asked for that who may`,
    );
    run.cancelledBy = outcome.value.cancelledBy;
    facts.expect(
      run.permitted.has(deed("cancel", run.cancelledBy)) ||
        (run.cancelledBy === null && isOfBulk(facts, "cancel")),
      "A1",
      () => `${runId} was cancelled by ${run.cancelledBy}, who has not asked for it`,
    );
    facts.expect(!run.hasEnded, "I13", () => `${runId} was cancelled although it was ${before?.status}`);
    if (before?.status === "waiting") facts.notice("a run was cancelled while it waited");
    if (before?.status === "running") facts.notice("a run was cancelled while it was executed");
    if (before?.status === "running" && isEndHeldBack(run)) {
      facts.notice("a run was cancelled whose end waited for the replay");
    }
  }
  if (!run.isCancelled) run.isGhost = run.heldUnder !== null && (run.leaseEndsAt ?? 0) > wallNow;
  run.isCancelled = true;
  run.heldUnder = null;
  return [runId, ...noteEnd(facts, run)];
}

/** Whether somebody, who does not say who, has changed many runs so. */
function isOfBulk({ bulkFilters }: Facts, operation: "cancel" | "delete"): boolean {
  return bulkFilters.some((bulk) => bulk.operation === operation);
}

function checkDelete(
  facts: Facts,
  [runId, by = null]: [string, (string | null)?],
  outcome: Outcome<RunIdentity | null>,
): string[] {
  if ("error" in outcome) return noticeCleaning(facts, outcome.error), [runId];
  if (outcome.value === null) return [runId];
  const run = facts.run(runId);
  facts.expect(
    facts.isPermitted(run, "delete"),
    "I8",
    () => `${runId} was deleted, and nobody has asked for that who may`,
  );
  facts.expect(
    run.permitted.has(deed("delete", by)) || (by === null && isOfBulk(facts, "delete")),
    "A1",
    () => `${runId} was deleted by ${by}, who has not asked for it`,
  );
  facts.expect(run.hasEnded, "I15", () => `${runId} was deleted while it was ${run.state?.run.status}`);
  checkCleanedUp(facts, run, "deleted");
  run.isDeleted = true;
  noteChildDeletion(facts, run);
  facts.notice("a run was deleted");
  return [runId];
}

/** Only runs that ended long enough ago are deleted by themselves, and that no open retry continues. */
function checkPurge(
  facts: Facts,
  [retention]: [Retention, number],
  outcome: Outcome<RunIdentity[]>,
  wallNow: number,
): string[] {
  if ("error" in outcome) return [];
  for (const { id } of outcome.value) {
    const run = facts.run(id);
    const { status, completedAt } = run.state!.run;
    const keptMs = isTerminal(status) ? retention[status] : undefined;
    facts.expect(
      run.hasEnded && (run.isUnread || (keptMs !== undefined && Date.parse(completedAt!) <= wallNow - keptMs)),
      "I15",
      () => `${id}, which is ${status} since ${completedAt}, was purged by ${JSON.stringify(retention)}`,
    );
    const open = run.retry === null
      ? undefined
      : facts.existing().find(({ hasEnded, originId }) => !hasEnded && originId === run.originId);
    facts.expect(open === undefined, "I15", () => `${id} was purged, and its retry ${open!.request.id} is open`);
    checkCleanedUp(facts, run, "purged");
    run.isDeleted = true;
    noteChildDeletion(facts, run);
    facts.notice("a run was purged");
  }
  return outcome.value.map(({ id }) => id);
}

function checkAppendLogs(facts: Facts, [entries]: [NewLogEntry[]], outcome: Outcome<void>): string[] {
  if ("error" in outcome) return [];
  for (const { id, runId } of entries) {
    const run = facts.run(runId);
    if (!run.isDeleted) run.logIds.add(id);
  }
  return [];
}
