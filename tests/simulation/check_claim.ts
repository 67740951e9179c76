import type { Claim, ClaimRequest, ClaimResult } from "../../src/store.ts";
import { checkPauses } from "./check_pauses.ts";
import { type Facts, isDue, type RunFacts } from "./facts.ts";

/** Judges what a claim brought against what was committed before, and takes note of it. */
export function checkClaim(
  facts: Facts,
  [request]: [ClaimRequest],
  outcome: { value: ClaimResult } | { error: unknown },
  wallNow: number,
): "any" {
  if ("error" in outcome) return "any";
  const { claims, failed, now } = outcome.value;
  facts.expect(claims.length <= request.limit, "I18", () => `${claims.length} runs were claimed, not ${request.limit}`);
  const most = request.limit + request.holding.length;
  facts.expect(most <= facts.concurrency, "I18", () => `${request.workerId} is to execute ${most} runs`);
  const isRepeated = facts.claimIds.has(request.claimId);
  facts.claimIds.add(request.claimId);
  if (isRepeated && claims.length > 0) facts.notice("a repeated claim found what it had claimed");
  const claimed = new Set([...claims, ...failed].map(({ run }) => run.id));
  const isNew = (claim: Claim) => facts.run(claim.run.id).claimIds.get(claim.lease.generation) !== request.claimId;
  // All that stand in line are looked at before any of them is taken out of it.
  for (const claim of claims) if (isNew(claim)) checkTurn(facts, facts.run(claim.run.id), request, claimed, now);
  if (!isRepeated) checkLeft(facts, request, outcome.value, claimed, wallNow);
  for (const claim of claims) {
    const run = facts.run(claim.run.id);
    if (isNew(claim)) noteTaken(facts, run, claim, request);
    checkGiven(facts, run, claim, wallNow);
  }
  for (const { run: { id }, error } of failed) {
    facts.notice("a run failed because it was abandoned too often");
    const run = facts.run(id);
    run.hasEnded = true;
    const failure = { kind: "abandoned", name: "Error", message: error, stack: null, cause: null } as const;
    run.ending = { status: "failed", failure, failedStepName: null };
    const { claimsSinceRecord } = run;
    facts.expect(
      claimsSinceRecord >= request.maxAbandonments,
      "I11",
      () => `${id} failed as abandoned after ${claimsSinceRecord} claims`,
    );
  }
  return "any";
}

function knows({ jobs }: ClaimRequest, jobName: string): boolean {
  return jobs.some(({ name }) => name === jobName);
}

/** Takes note of a run that a worker has taken. */
function noteTaken(facts: Facts, run: RunFacts, { lease, leaseExpiresAt }: Claim, request: ClaimRequest): void {
  const { id, jobName } = run.request;
  const { generation } = lease;
  facts.expect(
    knows(request, jobName),
    "I19",
    () => `${id} was claimed by a worker that does not know ${jobName}`,
  );
  facts.expect(
    generation > run.generation && !run.claimIds.has(generation),
    "I14",
    () => `${id} was claimed under lease ${generation} after ${run.generation}`,
  );
  facts.expect(!run.hasEnded && !run.isDeleted, "I3", () => `${id} was claimed although it has ended`);
  if (run.steps.size > 0) facts.notice("a run was taken over in the middle");
  if (run.claimedGeneration > 0 && run.parking === null) run.interruptions += 1;
  run.parking = null;
  run.claimsSinceRecord += 1;
  run.claimIds.set(generation, request.claimId);
  run.claimedGeneration = Math.max(run.claimedGeneration, generation);
  run.generation = Math.max(run.generation, generation);
  run.heldUnder = generation;
  run.leaseEndsAt = leaseExpiresAt;
}

/** A worker is given what was triggered and what was recorded. */
function checkGiven(facts: Facts, run: RunFacts, claim: Claim, wallNow: number): void {
  const { id, input } = run.request;
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
  checkPauses(facts, run, claim.pauses, wallNow);
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

/** Nobody is passed over: of the runs that could have been claimed the oldest are. */
function checkTurn(
  facts: Facts,
  run: RunFacts,
  request: ClaimRequest,
  claimed: ReadonlySet<string>,
  now: number,
): void {
  const { id, concurrencyKey: key } = run.request;
  if (run.isUnread) return;
  const isHolder = run.parking !== null && run.parking.retryAt !== null;
  if (key !== null) {
    const holder = facts.open().find((other) => other !== run && keepsKey(other, key));
    facts.expect(
      holder === undefined || holder.isUnread,
      "I7",
      () => `${id} was claimed while ${holder!.request.id} waits for a retry with key ${key}`,
    );
  }
  // After a retry delay a run still has its key.
  if (key !== null && isHolder) return;
  for (const elder of facts.runs.values()) {
    if (elder.order >= run.order) break;
    const { id: elderId, jobName, concurrencyKey } = elder.request;
    if (elder.isUnread || !isReady(facts, elder, now) || claimed.has(elderId)) continue;
    if (!knows(request, jobName)) {
      if (key !== null && key === concurrencyKey) facts.notice("a key was handed on past an unknown job");
      continue;
    }
    if (concurrencyKey !== null && concurrencyKey !== key) continue;
    // In the line of a key fairness does not count.
    if ((key === null || concurrencyKey !== key) && !haveOneTurn(elder, run)) continue;
    facts.violate("I18", `${id} was claimed before ${elderId}, which is older`);
  }
}

/** Whether two runs have their turns together: with different fairness keys, or as runs of different jobs, they do not. */
function haveOneTurn({ request: one }: RunFacts, { request: other }: RunFacts): boolean {
  const key = one.flow.fairnessKey;
  return key === other.flow.fairnessKey && (key === null || one.jobName === other.jobName);
}

/** A claim that had room for more leaves nothing that it could have taken. */
function checkLeft(
  facts: Facts,
  request: ClaimRequest,
  { claims, hasMore, now }: ClaimResult,
  claimed: ReadonlySet<string>,
  wallNow: number,
): void {
  if (hasMore || claims.length >= request.limit) return;
  const open = facts.open();
  for (const run of open) {
    const { id, jobName, concurrencyKey: key } = run.request;
    if (claimed.has(id) || run.isUnread || !isReady(facts, run, now) || !knows(request, jobName)) continue;
    const rivals = key === null ? [] : facts.existing().filter((other) => {
      return other !== run && other.request.concurrencyKey === key;
    });
    if (rivals.some((other) => keepsKey(other, key))) {
      facts.notice("a retry delay kept its key");
      continue;
    }
    if (rivals.some((other) => other.isCancelled && (other.leaseEndsAt ?? 0) > wallNow)) {
      facts.notice("a cancelled run kept its key");
      continue;
    }
    const isBlocked = (other: RunFacts) =>
      other.isUnread || claimed.has(other.request.id) || other.state?.run.status === "running" ||
      other.leaseEndsAt !== null || (other.order < run.order && isReady(facts, other, now));
    if (isHeldByDeleted(facts, key) || (!keepsKey(run, key) && rivals.some(isBlocked))) continue;
    facts.violate("I19", `a claim that had room for more left ${id}, which is ${run.state?.run.status}`);
  }
}

/** Whether a run can be claimed, but for its key. */
function isReady(facts: Facts, run: RunFacts, now: number): boolean {
  const status = run.state?.run.status;
  return !run.hasEnded && (status === "pending" || (status === "waiting" && isDue(facts, run, now)));
}

/** Whether a run waits for another attempt at a step: then it has its key all the while. */
function keepsKey({ request, hasEnded, parking }: RunFacts, key: string | null): boolean {
  return key !== null && request.concurrencyKey === key && !hasEnded && parking !== null && parking.retryAt !== null;
}

/** A run that was cancelled and deleted may still have its key for a while. */
function isHeldByDeleted(facts: Facts, key: string | null): boolean {
  return key !== null &&
    [...facts.runs.values()].some(({ isDeleted, leaseEndsAt, request }) =>
      isDeleted && leaseEndsAt !== null && request.concurrencyKey === key
    );
}
