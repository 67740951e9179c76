import type { Claim, ClaimRequest, ClaimResult } from "../../src/store/claim.ts";
import { checkExplained, type Explained } from "./check_explained.ts";
import { checkPauses } from "./check_pauses.ts";
import { checkOffered, noteClaimed, noteOffers } from "./change_facts.ts";
import type { Code } from "./changes_plan.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import { isOrphan, noteChildEnd } from "./child_facts.ts";
import { noteEndRun } from "./end_facts.ts";
import { type Facts, isDue, noteAbandoned, type RunFacts } from "./facts.ts";
import type { Invariant } from "./invariants.ts";
import { isHeld, keepsKey, lineOf, type Obstacle, Queue } from "./queue.ts";

/** Judges what a claim brought against what was committed before, and takes note of it. */
export function checkClaim(
  facts: Facts,
  [request]: [ClaimRequest],
  outcome: { value: ClaimResult } | { error: unknown },
  { code, explained, now: worldNow }: { code: Code; explained?: Explained | undefined; now: number },
): "any" {
  if ("error" in outcome) return "any";
  const { claims, failed, cancelled, hasMore, now } = outcome.value;
  facts.expect(claims.length <= request.limit, "I18", () => `${claims.length} runs were claimed, not ${request.limit}`);
  // A run of which something was recorded before its claim may wait without a slot, unless a step of it is executed.
  const holding = request.holding.filter(({ runId, generation }) => {
    const run = facts.run(runId);
    const isFurther = (run.changed.claimed.get(generation)?.names.size ?? 0) > 0;
    return !isFurther || [...facts.executing].some((one) => one.run === run && one.generation === generation);
  });
  // A run is executed no more once its function has returned, or its time is over, though its end may not be saved yet.
  const executed = holding.filter(({ runId, generation }) => {
    const { returned, lateAt } = facts.run(runId);
    return !returned.has(generation) && (lateAt.get(generation) ?? Infinity) > worldNow;
  });
  const most = Math.max(request.limit + executed.length, Math.ceil((request.limit + holding.length) / 2));
  facts.expect(most <= facts.concurrency, "I18", () => `${request.workerId} is to execute ${most} runs`);
  const trials = Math.max(1, Math.floor(facts.concurrency / 10));
  facts.expect(
    !request.triesHeld || request.limit <= trials,
    "I-D8",
    () => `${request.workerId} is to try ${request.limit} held runs, and may use ${trials} slots for them`,
  );
  checkNothingBeside(facts, request);
  const isRepeated = facts.claimIds.has(request.claimId);
  facts.claimIds.add(request.claimId);
  if (isRepeated && claims.length > 0) facts.notice("a repeated claim found what it had claimed");
  if (!isRepeated && explained !== undefined) checkExplained(facts, request, outcome.value, explained);
  // A clean-up may be claimed by the call that has added it.
  const isNew = ({ run, lease }: Claim) => facts.runs.get(run.id)?.claimIds.get(lease.generation) !== request.claimId;
  const taken = claims.filter(isNew);
  for (const { runId, generation } of taken.length > 0 ? request.holding : []) {
    const run = facts.run(runId);
    if (run.heldUnder === generation) run.soleLeases.delete(generation); // one that is lost was alone up to its end
  }
  const offered = isRepeated ? [] : noteOffers(facts, request, code);
  // A repeated claim does nothing, and says that there is more to do, unless the first one did nothing.
  if (!isRepeated || taken.length > 0 || failed.length > 0 || cancelled.length > 0 || !hasMore) {
    checkGates(facts, request, outcome.value, taken);
  }
  for (const claim of claims) {
    const run = facts.run(claim.run.id);
    if (taken.includes(claim)) noteTaken(facts, run, claim, request, code);
    if (taken.length === 1 && request.holding.length === 0) run.soleLeases.add(claim.lease.generation);
    checkGiven(facts, run, claim, now);
  }
  checkOffered(facts, request, outcome.value, offered);
  return "any";
}

/** Nothing is claimed beside a run that was claimed alone, until it has recorded something. */
function checkNothingBeside(facts: Facts, { workerId, isAlone, holding, limit }: ClaimRequest): void {
  const alone = holding.find(({ runId, generation }) => facts.run(runId).aloneUnder === generation);
  if (alone !== undefined) facts.notice("a worker held a run that was claimed alone");
  facts.expect(
    alone === undefined || limit === 0,
    "I24",
    () => `${workerId} is to claim ${limit} runs beside ${alone!.runId}, which was claimed alone`,
  );
  facts.expect(
    !isAlone || holding.length === 0,
    "I24",
    () => `${workerId} is to claim a run alone, and holds ${holding.length}`,
  );
}

function knows({ jobs }: ClaimRequest, { jobName, version }: NewRun): boolean {
  return jobs.some((job) => job.name === jobName && job.version === version);
}

/** Takes note of a run that a worker has taken. */
function noteTaken(facts: Facts, run: RunFacts, claim: Claim, request: ClaimRequest, code: Code): void {
  const { lease, leaseExpiresAt } = claim;
  const { id, jobName, version } = run.request;
  const { generation } = lease;
  facts.expect(
    knows(request, run.request),
    "I19",
    () => `${id} was claimed by a worker that does not know ${jobName} ${version}`,
  );
  facts.expect(
    generation > run.generation && !run.claimIds.has(generation),
    "I14",
    () => `${id} was claimed under lease ${generation} after ${run.generation}`,
  );
  facts.expect(!run.hasEnded && !run.isDeleted, "I3", () => `${id} was claimed although it has ended`);
  facts.expect(
    run.isClaimedAlone === request.isAlone,
    "I24",
    () => `${id} was claimed ${request.isAlone ? "" : "not "}alone after ${run.claimsSinceRecord} claims in a row`,
  );
  if (request.isAlone) facts.notice("a run was claimed alone");
  run.isClaimedAlone = false;
  run.aloneUnder = request.isAlone ? generation : null;
  if (run.steps.size > 0) facts.notice("a run was taken over in the middle");
  if (run.claimedGeneration > 0 && run.parking === null && !run.changed.wasHeld) run.interruptions += 1;
  noteClaimed(facts, run, claim, { code, triesHeld: request.triesHeld });
  run.parking = null;
  run.isWoken = false;
  run.claimsSinceRecord += 1;
  run.claimIds.set(generation, request.claimId);
  run.claimedGeneration = Math.max(run.claimedGeneration, generation);
  run.generation = Math.max(run.generation, generation);
  run.heldUnder = generation;
  run.leaseEndsAt = leaseExpiresAt;
}

/** A worker is given what was triggered and what was recorded. */
function checkGiven(facts: Facts, run: RunFacts, claim: Claim, now: number): void {
  const { id, input } = run.request;
  const { finishBy } = run;
  const finishInMs = finishBy === null ? null : Math.max(0, finishBy - now);
  facts.expect(
    claim.finishInMs === finishInMs,
    "F8",
    () => `the claim of ${id} says that it is to end in ${claim.finishInMs} ms, not in ${finishInMs}`,
  );
  facts.expect(claim.input === input, "I12", () => `the claim of ${id} brought ${claim.input}, not ${input}`);
  facts.expect(
    claim.execution === run.interruptions + 1,
    "I10",
    () => `the claim of ${id} brought execution ${claim.execution} after ${run.interruptions} interruptions`,
  );
  for (const [name, step] of run.steps) {
    const given = claim.steps.find((other) => other.name === name);
    facts.expect(
      given !== undefined && given.attempts === step.attempts &&
        (!step.isOver || JSON.stringify(given.result) === step.result),
      "I1",
      () => `the claim of ${id} brought step ${name} as ${JSON.stringify(given)}, recorded was ${step.result}`,
    );
  }
  if (run.claimIds.size === 1 && run.source !== null) checkCopiedSleeps(facts, run, run.source, claim);
  checkPauses(facts, run, claim.pauses, now);
  for (const pause of run.pauses.values()) {
    const isGiven = claim.pauses.some((other) => other.id === pause.id);
    facts.expect(isGiven, "I10", () => `the claim of ${id} did not bring ${pause.kind} ${pause.name}`);
  }
}

/** A retry from the failure begins with the sleeps that were over, and with no others. */
function checkCopiedSleeps(facts: Facts, { request: { id } }: RunFacts, retried: RunFacts, { pauses }: Claim): void {
  // Of a retry that no worker has claimed, only the run of which it is one has shown what it had slept.
  let source = retried;
  while (source.claimIds.size === 0 && source.source !== null) source = source.source;
  const sleeps = [...source.pauses.values()].filter(({ kind }) => kind === "sleep");
  const copies = pauses.filter(({ kind }) => kind === "sleep");
  for (const { name, resolution } of sleeps) {
    const isMissing = resolution !== null && !copies.some((copy) => copy.name === name);
    facts.expect(!isMissing, "I5", () => `${id}, a retry of ${source.request.id}, is to sleep ${name} again`);
  }
  for (const { name, deadlineAt, resolution } of copies) {
    const isOver = resolution !== null &&
      sleeps.some((sleep) => sleep.name === name && sleep.deadlineAt === deadlineAt);
    facts.expect(isOver, "I5", () => `${id} began with ${name}, which ${source.request.id} has not slept`);
  }
}

/** Judges which runs a claim has failed and taken, and which it has left. */
function checkGates(facts: Facts, request: ClaimRequest, result: ClaimResult, taken: readonly Claim[]): void {
  const { failed, cancelled, now } = result;
  for (const { id } of cancelled) checkOrphan(facts, request, facts.run(id), now);
  noteTimers(facts, request, now);
  for (const one of failed) checkFailed(facts, request, one, now);
  const queue = new Queue(facts, request, new Set(failed.map(({ run }) => run.id)), now);
  const { windows } = facts.flow;
  if (queue.isBlurred) windows.forget();
  else windows.look(queue);
  for (const { run: { id } } of taken) {
    const run = facts.run(id);
    checkStartInTime(facts, run, now);
    if (!queue.isBlurred) checkPlace(facts, run, queue);
    queue.take(run);
    if (!queue.isBlurred) windows.look(queue);
  }
  if (!queue.isBlurred && !request.triesHeld) checkLeft(facts, request, result, queue);
}

/** Takes note of what has become due or has expired, as every claim does. */
function noteTimers(facts: Facts, request: ClaimRequest, now: number): void {
  facts.flow.noteClaim(request, now);
  for (const run of facts.runs.values()) {
    if (run.isDelayed && run.startAt! <= now) run.isDelayed = false;
    if (run.parking !== null && !run.isUnread && isDue(facts, run, now)) run.isWoken = true;
    const isLost = run.heldUnder !== null && run.leaseEndsAt !== null && run.leaseEndsAt <= now &&
      !isHeld(request, run);
    if (isLost && !run.hasEnded && !run.isDeleted) noteAbandoned(run);
    if (!run.isGhost) continue;
    if (run.leaseEndsAt === null || run.leaseEndsAt <= now) run.isGhost = false;
    else if (run.request.concurrencyKey !== null) facts.notice("a cancelled run kept its key");
    else facts.notice("a cancelled run kept its place under the limit of its job");
  }
}

/** A child is cancelled when the run has ended that waited for it. */
function checkOrphan(facts: Facts, { holding, leaseMs }: ClaimRequest, run: RunFacts, now: number): void {
  const { request: { id }, heldUnder } = run;
  facts.expect(isOrphan(run), "F7", () => `${id} was cancelled, and its parent has not ended`);
  facts.notice(
    heldUnder === null
      ? "a child was cancelled because its parent had ended"
      : "a child was cancelled that was executed",
  );
  const isOwn = holding.some(({ runId, generation }) => runId === id && generation === heldUnder);
  if (isOwn && (run.leaseEndsAt ?? 0) <= now) run.leaseEndsAt = now + leaseMs;
  run.isGhost = heldUnder !== null && (run.leaseEndsAt ?? 0) > now;
  run.isCancelled = true;
  run.hasEnded = true;
  run.heldUnder = null;
  noteEndRun(facts, run);
  noteChildEnd(facts, run);
}

/** A run that no worker executes fails when it was abandoned too often, or when a deadline of its own has passed. */
function checkFailed(
  facts: Facts,
  request: ClaimRequest,
  { run: { id }, error, failureKind: kind }: ClaimResult["failed"][number],
  now: number,
): void {
  const run = facts.run(id);
  const { claimsSinceRecord, startBy, finishBy, startedAt } = run;
  run.hasEnded = true;
  if (kind === "abandoned") {
    facts.notice("a run failed because it was abandoned too often");
    facts.expect(
      run.soleLeases.size >= request.maxAbandonments,
      "I11",
      () =>
        `${id} failed as abandoned after ${claimsSinceRecord} claims, of which ${run.soleLeases.size} took no other`,
    );
  } else if (kind === "expired") {
    facts.notice("a run failed because it had not started in time");
    if (facts.flow.paused.has(run.request.jobName)) facts.notice("a run expired while its job was paused");
    facts.expect(
      startedAt === null && startBy !== null && startBy <= now,
      "F8",
      () => `${id} failed as expired at ${now}: it was to start by ${startBy}, and started at ${startedAt}`,
    );
  } else {
    facts.notice("a run that nobody executed failed because it had not ended in time");
    if (run.parking !== null && !run.isWoken) facts.notice("a run that waited had not ended in time");
    else if (run.request.concurrencyKey !== null) facts.notice("a run in the line of its key had not ended in time");
    if (keepsKey(run)) facts.notice("a run that was late gave the key back that it had kept");
    facts.expect(
      kind === "timeout" && finishBy !== null && finishBy <= now,
      "F8",
      () => `${id} failed as ${kind} at ${now}: it was to end by ${finishBy}`,
    );
  }
  const name = kind === "timeout" ? "TimeoutError" : "Error";
  const failure = { kind, name, message: error, stack: null, cause: null } as const;
  run.ending = { status: "failed", failure, failedStepName: null };
  noteEndRun(facts, run);
  noteChildEnd(facts, run);
}

/** A run starts in time, and does not go on after its end. */
function checkStartInTime(facts: Facts, run: RunFacts, now: number): void {
  const { request: { id }, startedAt, startBy, finishBy } = run;
  facts.expect(
    startedAt !== null || startBy === null || now < startBy,
    "F1",
    () => `${id} was claimed at ${now}, and was to start before ${startBy}`,
  );
  facts.expect(
    finishBy === null || now < finishBy,
    "F8",
    () => `${id} was claimed at ${now}, and was to end before ${finishBy}`,
  );
}

/** A run is claimed when all gates are open to it, and before those that are behind it. */
function checkPlace(facts: Facts, run: RunFacts, queue: Queue): void {
  const { id, flow: { fairnessKey, keyConcurrency }, concurrencyKey: key } = run.request;
  const obstacle = queue.obstacle(run, false);
  if (obstacle !== null) facts.violate(brokenBy(obstacle, run), `${id} was claimed although ${obstacle}`);
  if (key !== null && keyConcurrency > 1 && queue.countHolders(run) > 0) facts.notice("runs shared a key");
  const candidates = queue.candidates();
  for (const other of candidates) {
    const { fairnessKey: otherKey } = other.request.flow;
    // Runs of different jobs have turns of their own.
    const isRival = otherKey === fairnessKey && (fairnessKey === null || lineOf(other) === lineOf(run));
    facts.expect(
      !isRival || queue.positionOf(other) >= queue.positionOf(run),
      "F4",
      () => `${id} was claimed before ${other.request.id}, which precedes it`,
    );
  }
  const isUrgent = candidates.some((other) => other !== run && other.order < run.order);
  if (isUrgent && run.request.flow.priority > 0) facts.notice("a run preceded older ones by its priority");
  noticeMeetings(facts, run, queue);
  facts.flow.windows.serve(facts, run, candidates);
}

/** Takes note of what meets in a run that is claimed. */
function noticeMeetings(facts: Facts, run: RunFacts, queue: Queue): void {
  const { concurrencyKey: key, flow: { fairnessKey } } = run.request;
  const sharesKey = (other: RunFacts) => key !== null && other !== run && other.request.concurrencyKey === key;
  const due = queue.due.filter((other) => other !== run);
  const isPassed = (other: RunFacts) => other.order < run.order && sharesKey(other);
  if (due.some(isPassed) && !keepsKey(run)) facts.notice("an urgent run preceded older ones in the line of its key");
  if (keepsKey(run)) facts.notice("a run went on with the key that it had kept");
  if (facts.open().some((other) => other.isDelayed && isPassed(other))) {
    facts.notice("a delayed run did not hold up its key");
  }
  if (fairnessKey !== null) {
    const behindKey = due.some((other) =>
      other.request.flow.fairnessKey === fairnessKey && other.order < run.order && !queue.passesKey(other, false)
    );
    if (behindKey) facts.notice("a run behind a key did not keep its fairness key from its turn");
    if (run.interruptions > 0 || run.state?.run.status === "running") facts.notice("an interrupted run had a turn");
    const others = due.filter((other) => ![null, fairnessKey].includes(other.request.flow.fairnessKey));
    for (const other of others) {
      const obstacle = queue.obstacle(other, false);
      if (obstacle === "its job is full") facts.notice("a fairness key waited for the limit of a job");
      if (obstacle === "its job is paused") facts.notice("a fairness key waited for a paused job");
      if (obstacle === "the rate of its job is used up") facts.notice("a fairness key waited for the rate of a job");
    }
  }
  if (run.startedAt !== null && queue.isHeldBackByRate(run)) {
    facts.notice("a run that had begun went on while the rate of its job was used up");
  }
}

function brokenBy(obstacle: Obstacle, { isDelayed, parking, request }: RunFacts): Invariant {
  switch (obstacle) {
    case "it is not due":
      return isDelayed || parking === null ? "F1" : "I5";
    case "its job is unknown":
      return "I19";
    case "its job is paused":
      return "F1";
    case "its parent has ended":
      return "F7";
    case "its job is full":
      return "F2";
    case "its key is full":
      return request.flow.keyConcurrency === 1 ? "I7" : "F2";
    case "the rate of its job is used up":
    case "the rate of its key is used up":
      return "F3";
    default:
      return "F4";
  }
}

/** A claim that had room for more leaves nothing that it could have taken. */
function checkLeft(facts: Facts, request: ClaimRequest, result: ClaimResult, queue: Queue): void {
  const { claims, hasMore, nextTimerAt } = result;
  if (hasMore || claims.length >= request.limit) return;
  const [left] = queue.candidates();
  facts.expect(
    left === undefined,
    "F5",
    () => `a claim that had room for more left ${left!.request.id}, which is ${left!.state?.run.status}`,
  );
  const expected = queue.nextTimerAt();
  facts.expect(
    (nextTimerAt ?? Infinity) <= expected,
    "F5",
    () => `a claim was told to look again at ${nextTimerAt}, and something expires at ${expected}`,
  );
  for (const run of queue.due) noticeObstacle(facts, run, queue.obstacle(run, false));
}

function noticeObstacle(facts: Facts, run: RunFacts, obstacle: Obstacle | null): void {
  const { jobName, concurrencyKey: key } = run.request;
  switch (obstacle) {
    case null:
      return;
    case "its job is unknown":
    case "its job is paused": {
      const follower = [...facts.open()].some(({ request, heldUnder }) =>
        key !== null && request.concurrencyKey === key && request.jobName !== jobName && heldUnder !== null
      );
      if (!follower) return;
      return facts.notice(
        obstacle === "its job is paused"
          ? "a key was handed on past a paused job"
          : "a key was handed on past an unknown job",
      );
    }
    case "its key is full": {
      const isKept = facts.open().some((other) => other.request.concurrencyKey === key && keepsKey(other));
      if (isKept) facts.notice("a retry delay kept its key");
      return;
    }
    case "its job is full":
      return facts.notice("the limit of a job was reached");
    case "the rate of its job is used up":
      return facts.notice("the rate of a job was used up");
    case "the rate of its key is used up":
      return facts.notice("the rate of a key was used up");
  }
}
