import { type EndContext, endJobName, endRunId, undoName } from "../../src/model/end.ts";
import { actorOf } from "../../src/model/origin.ts";
import type { StoredRun } from "../../src/model/run.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import { endingOf } from "./child_facts.ts";
import { type Facts, newRunFacts, type RunFacts } from "./facts.ts";
import { jobOf } from "./renames_plan.ts";

/** How long a clean-up sleeps until it looks again whether its run is still executed, in milliseconds. */
export const LOOK_AGAIN_MS = 250;

/** Whether a step or a sleep of a clean-up is the engine's own: it looks whether its run is still executed. */
export function isLook({ endOf }: RunFacts, name: string): boolean {
  return endOf !== null && /^(look whether the run is still executed|until the run is not executed)(#\d+)?$/.test(name);
}

/** A run that is to be added has the clean-up of its job. */
export function checkOnEnd(facts: Facts, { id, jobName, onEnd }: NewRun): void {
  const planned = facts.ends?.[jobOf(jobName)];
  const expected = planned === undefined || planned.statuses.length === 0
    ? undefined
    : { jobName: endJobName(jobName), ...planned };
  facts.expect(
    JSON.stringify(sorted(onEnd)) === JSON.stringify(sorted(expected)),
    "C1",
    () => `${id} was added with the clean-up ${JSON.stringify(onEnd)}, not ${JSON.stringify(expected)}`,
  );
}

function sorted(onEnd: NewRun["onEnd"]): unknown {
  return onEnd && [onEnd.jobName, [...onEnd.statuses].sort(), onEnd.finishWithin];
}

/** A run has ended: the commit adds the run that cleans up after it. Answers that one; `null`: there is none. */
export function noteEndRun(facts: Facts, run: RunFacts): RunFacts | null {
  const { onEnd, idempotencyUntil: _until, joinOnly: _joinOnly, ...request } = run.request;
  const { status } = endingOf(run);
  if (onEnd === undefined || !onEnd.statuses.includes(status)) return null;
  const payload = JSON.stringify({ runId: request.id });
  const { finishWithin } = onEnd;
  const added: NewRun = structuredClone({
    ...request,
    id: endRunId(request.id),
    jobName: onEnd.jobName,
    aliases: [],
    payload,
    input: payload,
    idempotencyKey: null,
    coalesce: null,
    retriggerOf: null,
    flow: { ...request.flow, start: null, startWithin: null, finishWithin },
    schedule: null,
  });
  facts.expect(!facts.runs.has(added.id), "C1", () => `${request.id} has ended, and ${added.id} was there before`);
  const end = newRunFacts(added, facts, null, 0);
  end.endOf = run;
  end.triggeredBy = actorOf(request.trace);
  run.ends.push(end);
  facts.runs.set(added.id, end);
  if (added.concurrencyKey !== null) facts.flow.windows.noteAdded(facts, added.concurrencyKey);
  facts.notice(`a run that was ${status} is cleaned up after`);
  return end;
}

/** A run names the run after which it cleans up, and the run that cleans up after it. */
export function checkEndLinks(facts: Facts, { endOf, ends }: RunFacts, run: StoredRun): void {
  const expected = [endOf?.request.id ?? null, ends[0]?.request.id ?? null];
  facts.expect(
    run.endOf === expected[0] && run.endRunId === expected[1],
    "C1",
    () =>
      `${run.id} (${run.status}) is linked with ${run.endOf} and ${run.endRunId}, not with ${expected.join(" and ")}`,
  );
}

/** The open run that cleans up after a run. */
function openEndOf({ ends }: RunFacts): RunFacts | undefined {
  return ends.find(({ hasEnded, isDeleted }) => !hasEnded && !isDeleted);
}

/** A run is retried or deleted: nothing cleans up after it any more. */
export function checkCleanedUp(facts: Facts, run: RunFacts, what: string): void {
  const open = openEndOf(run);
  facts.expect(
    open === undefined,
    "C3",
    () => `${run.request.id} was ${what} while ${open!.request.id} cleans up after it`,
  );
}

/** A run is retried: if it is a clean-up, what it cleans up after is still as it was. */
export function checkRetriedEnd(facts: Facts, old: RunFacts, retry: RunFacts): void {
  checkCleanedUp(facts, old, "retried");
  const { endOf } = old;
  if (endOf === null) return;
  facts.expect(
    endOf.retry === null && !endOf.isDeleted,
    "C3",
    () => `clean-up ${old.request.id} was retried, and ${endOf.request.id} was retried or deleted before`,
  );
  retry.endOf = endOf;
  endOf.ends.push(retry);
  facts.notice("a clean-up was retried");
}

/** The steps that were undone after a run, or after a later one that has its steps, with the runs that did last. */
export function undoneSince(facts: Facts, source: RunFacts): Map<string, string> {
  return new Map(continuing(facts, source).flatMap((run) => undoneStepsOf(run)));
}

/** A run, and the later ones that have its steps. */
export function continuing(facts: Facts, run: RunFacts): RunFacts[] {
  return facts.existing().filter(({ originId, order }) => originId === run.originId && order >= run.order);
}

/** The steps of a run that were undone after it, with the runs that did. */
function undoneStepsOf(run: RunFacts): (readonly [string, string])[] {
  // A step that was killed has no record, and may be undone all the same.
  const undoing = run.ends.flatMap(({ steps }) => [...steps.keys()]).filter((name) => name.startsWith("undo "));
  const begun = undoing.map((name) => name.slice("undo ".length).replace(/ \((\d+)\)$/, "#$1"));
  return [...new Set([...run.steps.keys(), ...begun])].flatMap((name) => {
    const undoer = findUndoer(run, name);
    return undoer === undefined ? [] : [[name, undoer.request.id] as const];
  });
}

/** The clean-up that has undone a step of a run first. */
function findUndoer({ ends }: RunFacts, name: string): RunFacts | undefined {
  return ends.find(({ steps }) => {
    const step = steps.get(undoName(name));
    return step?.isOver === true && step.result.includes('"completed"');
  });
}

/** The key that a function of a step is given. */
export function stepKeyOf({ undone, originId }: RunFacts, name: string): string {
  return `${undone.get(name) ?? originId}/${name}`;
}

/** A clean-up begins: it is told how its run has ended, and no function of that is executed any more. */
export function checkCleanUp(facts: Facts, run: RunFacts, end: EndContext, wallNow: number): void {
  const { endOf } = run;
  if (endOf === null) return facts.violate("C2", `${run.request.id} cleans up after nothing`);
  const { id } = endOf.request;
  const { status, output, error } = endingOf(endOf);
  const completed = [...endOf.steps].filter(([, { isOver, result }]) => isOver && result.includes('"completed"'));
  const isTold = end.runId === id && end.status === status &&
    JSON.stringify(end.output ?? null) === (output ?? "null") &&
    (end.error ?? "") === error && JSON.stringify(end.input) === endOf.request.input &&
    [...end.completed].sort().join() === completed.map(([name]) => name).sort().join();
  facts.expect(
    isTold,
    "C2",
    () =>
      `${run.request.id} is told of ${id}, which ended as ${JSON.stringify(endingOf(endOf))}: ${JSON.stringify(end)}`,
  );
  const executed = executedOf(facts, endOf, endOf.claimedGeneration);
  const isLeased = endOf.leaseEndsAt !== null && endOf.leaseEndsAt > wallNow;
  facts.expect(
    executed === undefined || !isLeased || facts.jumps > 0,
    "C2",
    () => `${run.request.id} cleans up after ${id} while ${executed} of it is executed under its lease`,
  );
}

/** A lease is left by a run that has ended: no function is executed under it any more. */
export function checkLeft(facts: Facts, run: RunFacts, generation: number): void {
  if (run.request.onEnd === undefined) return;
  const executed = executedOf(facts, run, generation);
  facts.expect(
    executed === undefined,
    "C2",
    () => `lease ${generation} of ${run.request.id} is given up while ${executed} is executed: its clean-up may begin`,
  );
}

function executedOf({ executing, outside }: Facts, run: RunFacts, generation: number): string | undefined {
  for (const one of executing) {
    if (one.run === run && one.generation === generation && one.isAlive() && !one.hasTimedOut()) return one.name;
  }
  for (const one of outside) {
    if (one.run === run && one.generation === generation && one.isOutside()) return "its function";
  }
  return undefined;
}
