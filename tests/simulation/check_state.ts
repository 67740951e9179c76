import { type Failure, failureText } from "../../src/model/failure.ts";
import { isoTime } from "../../src/values/iso_time.ts";
import { isTerminal, type Run } from "../../src/model/run.ts";
import type { Store } from "../../src/store/store.ts";
import type { Ending } from "../../src/store/claim.ts";
import type { RunState } from "../../src/store/run_query.ts";
import type { Step } from "../../src/model/step.ts";
import type { Wait } from "../../src/model/wait.ts";
import { type Facts, hasChildrenOver, type RunFacts, type WaitFacts } from "./facts.ts";
import { type ChildFacts, endingOf } from "./child_facts.ts";
import { signalRule } from "./change_facts.ts";
import { checkEndLinks } from "./end_facts.ts";
import { checkFolded } from "./folded.ts";
import { getLogs, getSteps, getWaits } from "../../src/store/reads.ts";

/** Reads runs as they stand and judges them against what was committed. */
export async function checkRuns(facts: Facts, store: Store, runs: Iterable<RunFacts>, wallNow: number): Promise<void> {
  for (const run of runs) {
    const { id } = run.request;
    if (run.isDeleted) {
      await checkGone(facts, store, run);
      continue;
    }
    const state = await store.getRunState(id);
    if (state === null) {
      facts.violate(run.state === null && run.endOf !== null ? "C1" : "I15", `${id} is gone though nobody deleted it`);
    } else checkRun(facts, run, state, await getSteps(store, id), await getWaits(store, id), wallNow);
  }
}

/** Nothing is left of a run that was deleted. */
async function checkGone(facts: Facts, store: Store, { request: { id }, waits }: RunFacts): Promise<void> {
  const ofRun = await Promise.all([getWaits(store, id), getSteps(store, id), getLogs(store, id)]);
  const ofWaits = await Promise.all([...waits.keys()].map((waitId) => store.getWait(waitId)));
  const left = [await store.getRunState(id), ...ofWaits, ...ofRun.flat()].filter((found) => found !== null);
  facts.expect(left.length === 0, "I15", () => `${id} was deleted, and this is left: ${JSON.stringify(left)}`);
}

/** The log of each run is what was appended, once and in that order. */
export async function checkLogs(facts: Facts, store: Store): Promise<void> {
  for (const { request: { id }, logIds } of facts.existing()) {
    const kept = (await getLogs(store, id)).map((entry) => entry.id);
    const isSame = JSON.stringify(kept) === JSON.stringify([...logIds]);
    facts.expect(isSame, "I21", () => `the log of ${id} is ${kept}, appended was ${[...logIds]}`);
  }
}

function checkRun(
  facts: Facts,
  run: RunFacts,
  state: RunState,
  steps: readonly Step[],
  waits: readonly Wait[],
  wallNow: number,
): void {
  const { id } = run.request;
  checkLinks(facts, run, state);
  checkEndLinks(facts, run, state.run);
  checkFolded(facts, run, run.folded, state, steps);
  // A run that has ended may be retriggered: nothing else in it changes.
  const text = JSON.stringify([
    { ...state, place: null, run: { ...state.run, retriggeredAs: null, completedAs: null } },
    steps,
    waits,
  ]);
  const before = run.state;
  if (before !== null && isTerminal(before.run.status)) {
    facts.expect(text === run.text, "I3", () => `${id} had ended, and has changed from\n${run.text}\nto\n${text}`);
    return;
  }
  const { run: now } = state;
  facts.expect(
    now.leaseGeneration >= run.generation,
    "I14",
    () => `the lease generation of ${id} went from ${run.generation} back to ${now.leaseGeneration}`,
  );
  facts.expect(
    isTerminal(now.status) === run.hasEnded && (now.status === "cancelled") === run.isCancelled,
    "I3",
    () => `${id} is ${now.status}, but was ${run.isCancelled ? "cancelled" : run.hasEnded ? "ended" : "not ended"}`,
  );
  run.generation = now.leaseGeneration;
  if (now.leaseExpiresAt !== null) run.leaseEndsAt = Date.parse(now.leaseExpiresAt);
  checkRequest(facts, run, state);
  checkActors(facts, run, now);
  if (run.ending !== null) {
    checkEnding(facts, run.ending, state);
    const { reported } = run;
    facts.expect(
      reported?.generation !== now.leaseGeneration || JSON.stringify(now.progress) === reported.progress,
      "I22",
      () => `${id} has reported ${reported!.progress} last, kept is ${JSON.stringify(now.progress)}`,
    );
  }
  for (const name of run.steps.keys()) {
    facts.expect(
      steps.some((step) => step.name === name),
      "I1",
      () => `step ${name} of ${id} was recorded and is gone`,
    );
  }
  for (const step of steps) checkStep(facts, run, step);
  for (const wait of waits) checkWait(facts, run, wait, wallNow);
  if (before === null && run.source !== null) checkCopies(facts, run, run.source, waits);
  if (now.status === "failed") checkFailure(facts, run, now.error!);
  run.state = state;
  run.text = text;
  run.heldUnder = now.status === "running" ? now.leaseGeneration : null;
  noteOver(run, now.updatedAt);
}

/** A run that waits is written to only by what ends its pauses: then all that are due by that time are over. */
function noteOver(run: RunFacts, updatedAt: string): void {
  const { parking, overPauses, waits } = run;
  for (const pause of parking?.pauses ?? []) {
    const { id, deadlineAt } = pause;
    const isDue = deadlineAt !== null && deadlineAt <= Date.parse(updatedAt);
    if (isDue || run.inbox?.over.has(id) || waits.get(id)?.ending != null || hasChildrenOver(run, pause)) {
      overPauses.add(id);
    }
  }
}

/** A run names the run of which it is a retry, its newest retry, and the run that waits for it. */
function checkLinks(facts: Facts, { request, retry, parent }: RunFacts, { run }: RunState): void {
  const expected = [request.retriggerOf?.runId ?? null, retry?.request.id ?? null, parent?.run.request.id ?? null];
  const links = [run.retriggerOf, run.retriggeredAs, run.parentRunId];
  facts.expect(
    links.join() === expected.join(),
    "I12",
    () => `${run.id} is linked with ${links.join(" and ")}, not with ${expected.join(" and ")}`,
  );
}

/**
 * A retry from the failure begins with each wait that was answered, but for that whose answer was the last record of a run
 * that has begun, and with no other that has not ended.
 */
function checkCopies(facts: Facts, run: RunFacts, source: RunFacts, waits: readonly Wait[]): void {
  const { id } = run.request;
  const { lastAnswer } = source;
  // A deadline that has passed is a record, too.
  const isCertain = lastAnswer?.isLast === true &&
    [...source.waits.values(), ...source.pauses.values()].every(({ id, deadlineAt }) =>
      deadlineAt === null || id === lastAnswer.waitId || source.pauses.get(id)?.resolution != null
    );
  for (const wait of source.waits.values()) {
    const { name, accepted, deadlineAt, createdAt } = wait;
    const copy = waits.find((wait) => wait.name === name);
    const isLast = lastAnswer?.waitId === wait.id && source.claimIds.size > 0;
    const isSame = copy === undefined
      ? accepted === null || isLast
      : copy.status === "resolved" && copy.deadlineAt === deadlineAt && copy.createdAt === createdAt &&
        !(isLast && isCertain);
    if (copy === undefined && accepted !== null) facts.notice("a retry asked again for the last answer");
    facts.expect(isSame, "I4", () => `${id}, a retry of ${source.request.id}, began with ${JSON.stringify(copy)}`);
    if (copy !== undefined && accepted !== null) facts.notice("a retry began with an answered wait");
  }
  // In the retry it is the last answer again, until something is recorded.
  const last = waits.find(({ name }) => lastAnswer !== null && name === source.waits.get(lastAnswer.waitId)?.name);
  if (last !== undefined) run.lastAnswer ??= { waitId: last.id, isLast: false };
  const known = new Set([...source.waits.values()].map(({ name }) => name));
  const others = waits.filter(({ name }) => !known.has(name));
  facts.expect(others.length === 0, "I4", () => `${id} began with waits that ${source.request.id} never had`);
}

/** A run keeps what it was triggered with. */
function checkRequest(
  facts: Facts,
  { request, startAt, startBy, finishBy }: RunFacts,
  { run }: RunState,
): void {
  facts.expect(
    run.payload === request.payload && JSON.stringify(run.labels) === JSON.stringify(request.labels),
    "I12",
    () => `${run.id} was triggered with ${JSON.stringify(request)}, and is ${JSON.stringify(run)}`,
  );
  facts.expect(
    run.scheduleName === (request.schedule?.name ?? null) && run.slotAt === (request.schedule?.slotAt ?? null),
    "F6",
    () =>
      `${run.id} is shown as the run of ${run.slotAt} of ${run.scheduleName}, not ${JSON.stringify(request.schedule)}`,
  );
  const { flow } = request;
  const kept = [run.priority, run.fairnessKey, run.startAt, run.startBy, run.finishBy];
  const expected = [flow.priority, flow.fairnessKey, isoTime(startAt), isoTime(startBy), isoTime(finishBy)];
  facts.expect(
    kept.join() === expected.join(),
    "F8",
    () => `${run.id} has the priority, fairness key, start and deadlines ${kept.join()}, not ${expected.join()}`,
  );
}

/** A run keeps who triggered it, and who cancelled it. */
export function checkActors(
  facts: Facts,
  { triggeredBy, cancelledBy }: RunFacts,
  run: Pick<Run, "id" | "triggeredBy" | "cancelledBy">,
): void {
  facts.expect(
    run.triggeredBy === triggeredBy && run.cancelledBy === cancelledBy,
    "A1",
    () =>
      `${run.id} was triggered by ${triggeredBy} and cancelled by ${cancelledBy}, and shows ${run.triggeredBy} and ${run.cancelledBy}`,
  );
}

/** A run ends as its worker said. */
function checkEnding(facts: Facts, ending: Ending, { run }: RunState): void {
  const isSame = run.status === ending.status &&
    (ending.status === "completed"
      ? run.output === ending.output && run.error === null
      : run.output === null && run.error === failureText(ending.failure) &&
        JSON.stringify(run.failure) === JSON.stringify(ending.failure) &&
        run.failedStepName === ending.failedStepName);
  facts.expect(isSame, "I3", () => `${run.id} ended with ${JSON.stringify(ending)}, and is ${JSON.stringify(run)}`);
}

function checkStep(facts: Facts, run: RunFacts, step: Step): void {
  const { id } = run.request;
  const known = run.steps.get(step.name);
  if (step.status === "cancelled") {
    facts.expect(
      run.isCancelled && !known?.isOver,
      "I1",
      () => `step ${step.name} of ${id} is cancelled: ${known?.result}`,
    );
    return;
  }
  if (known === undefined) {
    const isUndone = run.undone.has(step.name);
    return facts.violate(
      isUndone ? "C3" : "I2",
      `step ${step.name} of ${id} is recorded, but nobody who may write has recorded it`,
    );
  }
  const result = JSON.parse(known.result) as { status: string; output?: string; failure?: Failure };
  const isSame = step.attempts === known.attempts &&
    (result.status === "completed"
      ? step.status === "completed" && JSON.stringify(step.output) === result.output
      : step.status === "failed" && step.error === result.failure!.message &&
        JSON.stringify(step.failure) === JSON.stringify(result.failure));
  facts.expect(
    isSame && (step.completedAt !== null) === known.isOver,
    "I1",
    () => `step ${step.name} of ${id} is ${JSON.stringify(step)}, recorded was ${known.result}`,
  );
}

function checkWait(facts: Facts, run: RunFacts, wait: Wait, wallNow: number): void {
  const { id, deadlineAt } = wait;
  const known = run.waits.get(id) ?? newWaitFacts(run, wait);
  run.waits.set(id, known);
  facts.waits.set(id, known);
  facts.expect(
    known.deadlineAt === deadlineAt,
    "I5",
    () => `the deadline of ${id} moved from ${known.deadlineAt} to ${deadlineAt}`,
  );
  const ending = wait.status === "pending"
    ? null
    : JSON.stringify([wait.status, wait.outcome, wait.signalId, wait.payload, wait.resolvedAt]);
  facts.expect(
    known.ending === null || known.ending === ending,
    "I5",
    () => `${id} ended as ${known.ending}, then as ${ending}`,
  );
  if (wait.outcome === "signal" || known.accepted !== null) {
    facts.expect(
      wait.status === "resolved" && wait.outcome === "signal" && known.accepted?.signalId === wait.signalId &&
        known.accepted?.payload === JSON.stringify(wait.payload) && known.accepted.by === wait.signalledBy,
      signalRule(run),
      () =>
        `${id} took ${known.accepted?.signalId} (${known.accepted?.payload}) of ${known.accepted?.by} and is ${ending} by ${wait.signalledBy}`,
    );
  }
  if (known.ending === null && wait.outcome === "timeout") {
    // A copy may have timed out before the clock was set back.
    const hasPassed = deadlineAt !== null &&
      (Date.parse(deadlineAt) <= wallNow || (run.source !== null && facts.jumps > 0));
    facts.expect(
      hasPassed && wait.resolvedAt === deadlineAt,
      "I5",
      () => `${id} ran into its deadline ${deadlineAt} at ${new Date(wallNow).toISOString()}: ${ending}`,
    );
  }
  facts.expect(
    !known.isExpired || wait.outcome === "timeout" || wait.status === "cancelled" || wait.status === "closed",
    "I5",
    () => `${id} was said to have expired, and is ${wait.status}`,
  );
  known.ending = ending;
}

/** What is known of a wait that is seen for the first time: a copy has taken the signal of the wait that it copies. */
function newWaitFacts({ source }: RunFacts, wait: Wait): WaitFacts {
  const { id, name, runId, deadlineAt, createdAt } = wait;
  const same = [...source?.waits.values() ?? []].find((other) => other.name === name && other.createdAt === createdAt);
  const copied = wait.status === "resolved" ? same?.accepted ?? null : null;
  const accepted = copied === null ? null : { ...copied, receipt: JSON.stringify({ ...wait, firstResumedAt: null }) };
  return { id, name, runId, deadlineAt, createdAt, accepted, ending: null, isExpired: false };
}

/** Only what a program does makes its run fail. */
function checkFailure(facts: Facts, run: RunFacts, error: string): void {
  const isOwn = error === "the program fails" || / fails$| took longer than /.test(error) ||
    /^Abandoned /.test(error) ||
    / \((startWithin|finishWithin)\)$/.test(error) ||
    [...run.childPauses.values()].some(({ members }) => members.some((member) => isOfChild(member, error)));
  facts.expect(isOwn, "I11", () => `${run.request.id} failed: ${error}`);
}

/** Whether an error says that a child failed or was cancelled, as it did. */
function isOfChild({ run }: ChildFacts, error: string): boolean {
  const { status, error: reason } = endingOf(run);
  const { id, jobName } = run.request;
  if (!run.hasEnded || status === "completed") return false;
  return status === "failed"
    ? error.startsWith(`Run "${id}" of job "${jobName}" failed`) && error.endsWith(`: ${reason}`)
    : error === `Run "${id}" was cancelled`;
}

/** Of the runs that share a concurrency key, no more are being executed than the last of them allowed. */
export async function checkKeys(facts: Facts, store: Store, wallNow: number): Promise<void> {
  const holders = new Map<string, RunFacts[]>();
  for (const { runId, expiresAt } of await store.getLeases()) {
    const run = facts.runs.get(runId);
    const key = run?.request.concurrencyKey ?? null;
    if (run === undefined || key === null || expiresAt <= wallNow) continue;
    holders.set(key, [...holders.get(key) ?? [], run]);
  }
  for (const [key, runs] of holders) {
    const most = Math.max(...runs.map(({ request }) => request.flow.keyConcurrency));
    facts.expect(
      runs.length <= most,
      "I7",
      () => `${runs.map(({ request }) => request.id)} all hold key ${key}, which allows ${most}`,
    );
  }
}
