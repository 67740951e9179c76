import { failureText } from "../../src/model/failure.ts";
import type { CreatedChild, NewChildren } from "../../src/store/pause_request.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import { isoTime } from "../../src/values/iso_time.ts";
import { isTerminal, type TerminalStatus } from "../../src/model/run.ts";
import type { ChildResult } from "../../src/model/wait.ts";
import { noteRecord } from "./change_facts.ts";
import { isMadeSo } from "./check_options.ts";
import { checkCleanedUp, checkOnEnd } from "./end_facts.ts";
import { type Facts, newRunFacts, type RunFacts } from "./facts.ts";
import { openRetryOf } from "./message_facts.ts";
import { jobOf } from "./renames_plan.ts";

/** The children of one call of a run, as the committed history has them. */
export interface ChildPauseFacts {
  name: string;
  total: number;
  members: ChildFacts[];
  /** Whether all have been added and have ended. */
  isOver: boolean;
}

/** A child of a call. */
export interface ChildFacts {
  run: RunFacts;
  /** Whether it was deleted after its parent had ended: its result is gone. */
  isLost: boolean;
}

/** How a run has ended. */
export function endingOf(
  { ending, isCancelled }: RunFacts,
): Pick<ChildResult, "status" | "output"> & { error: string } {
  if (isCancelled || ending === null) return { status: "cancelled", output: null, error: "" };
  return ending.status === "completed"
    ? { status: "completed", output: ending.output, error: "" }
    : { status: "failed", output: null, error: failureText(ending.failure) };
}

/** Whether a run waits for nothing any more: the run that has started it has ended, and it has not. */
export function isOrphan({ parent, hasEnded, isDeleted }: RunFacts): boolean {
  return parent !== null && parent.run.hasEnded && !hasEnded && !isDeleted;
}

/** A run has ended: if it was the last child of a call, the call is over. Answers the parent, if there is one. */
export function noteChildEnd(facts: Facts, { parent }: RunFacts): RunFacts | null {
  if (parent === null) return null;
  // A parent that has ended waits for nothing: its retry may only find the child while that exists.
  if (!parent.run.hasEnded) resolve(parent.pause);
  if (parent.pause.isOver) noteRecord(parent.run, "perhaps");
  const { status } = parent.run.state?.run ?? {};
  if (parent.pause.isOver && status === "running") facts.notice("a child ended while its parent was executed");
  return parent.run;
}

function resolve(pause: ChildPauseFacts): void {
  pause.isOver ||= pause.members.length === pause.total && pause.members.every(({ run }) => run.hasEnded);
}

/** A run was deleted: parents that have ended lose its result. */
export function noteChildDeletion(facts: Facts, deleted: RunFacts): void {
  for (const { childPauses, hasEnded } of facts.runs.values()) {
    for (const { members } of childPauses.values()) {
      for (const member of members) if (member.run === deleted) member.isLost ||= hasEnded;
    }
  }
  if (deleted.parent !== null && !deleted.parent.run.hasEnded) {
    facts.notice("a child was deleted before its parent had ended");
  }
}

/** A retry from the failure begins with the calls all of whose children completed. */
export function copyChildPauses({ childPauses }: RunFacts): Map<string, ChildPauseFacts> {
  const isWhole = ({ isOver, members }: ChildPauseFacts) => isOver && members.every(isReusable);
  return new Map(
    [...childPauses].filter(([, pause]) => isWhole(pause)).map(([name, pause]) => [
      name,
      { ...pause, members: pause.members.map(({ run }) => ({ run, isLost: false })) },
    ]),
  );
}

function isReusable({ run, isLost }: ChildFacts): boolean {
  return run.hasEnded && !isLost && endingOf(run).status === "completed";
}

/**
 * A parent adds children to one of its calls, as it has asked for.
 *
 * @param answered The children that were created, as the answer says.
 * @returns The runs that have changed.
 */
export function noteChildren(
  facts: Facts,
  parent: RunFacts,
  name: string,
  { total, from, runs }: NewChildren,
  answered: readonly CreatedChild[],
  wallNow: number,
): RunFacts[] {
  const { id: parentId } = parent.request;
  const pause = parent.childPauses.get(name) ?? { name, total, members: [], isOver: false };
  parent.childPauses.set(name, pause);
  const changed: RunFacts[] = [];
  const { members } = pause;
  if (members.length > 0 && !pause.isOver) facts.notice("a call went on with its next children");
  if (members.length > from) facts.notice("children were asked for that were there already");
  const former = findFormer(facts, parent, name);
  for (const asked of pause.isOver ? [] : runs.slice(Math.max(0, members.length - from))) {
    checkAsked(facts, parent, name, members.length, asked);
    const found = former?.[members.length];
    const old = found !== undefined && isSameWork(found.run, asked) ? found : undefined;
    if (old !== undefined && isReusable(old)) {
      members.push({ run: old.run, isLost: false });
      facts.notice("a retry took a child over that had completed");
      if (old.run.request.jobName !== asked.jobName) facts.notice("a retry took a child of a former name over");
      continue;
    }
    const child = addChild(facts, asked, old?.run, wallNow);
    child.parent = { run: parent, pause };
    members.push({ run: child, isLost: false });
    changed.push(child, ...(child.source === null ? [] : [child.source]));
    if (asked.concurrencyKey !== null && asked.concurrencyKey === parent.request.concurrencyKey) {
      facts.notice("a child had the key of its parent");
    }
    if (parent.parent !== null) facts.notice("a child had children");
  }
  resolve(pause);
  const expected = runs.flatMap(({ id }, at) => {
    const run = members[from + at]?.run;
    if (run?.request.id !== id) return [];
    return [[id, isoTime(run.startAt), run.source?.isDeleted === true ? null : run.source?.request.id ?? null]];
  });
  const given = answered.filter(({ run }) => runs.some(({ id }) => id === run.id))
    .map(({ run, startAt, retryOf }) => [run.id, startAt, retryOf?.id ?? null]);
  facts.expect(
    JSON.stringify(given) === JSON.stringify(expected),
    "F7",
    () => `${parentId} was to get for ${name} the children ${JSON.stringify(expected)}, not ${JSON.stringify(given)}`,
  );
  return changed;
}

/** A parent asks for the children that its program has asked for. */
function checkAsked(facts: Facts, parent: RunFacts, name: string, at: number, asked: NewRun): void {
  const items = parent.calls.get(name);
  const item = items?.[at];
  const { request: { id, labels, flow: { priority, fairnessKey } } } = parent;
  const isSame = item !== undefined && item.jobName === jobOf(asked.jobName) && item.payload === asked.payload &&
    JSON.stringify(asked.labels) === JSON.stringify({ ...labels, ...item.options.labels }) &&
    (fairnessKey === null || asked.flow.fairnessKey === fairnessKey) && isMadeSo(facts, asked, item);
  facts.expect(
    isSame,
    "F7",
    () =>
      `${id} of priority ${priority} asks for ${JSON.stringify(asked)} as child ${at} of ${name}, not for ${
        JSON.stringify(item)
      }`,
  );
}

/** A child is new, or a retry of the child that failed before. */
function addChild(facts: Facts, asked: NewRun, old: RunFacts | undefined, wallNow: number): RunFacts {
  const hasFailed = old !== undefined && old.hasEnded && endingOf(old).status !== "completed";
  const isRetry = hasFailed && !old.isDeleted && openRetryOf(facts, old) === undefined;
  if (isRetry) facts.notice("a retry retried a child that had not completed");
  const retriggerOf = isRetry ? { runId: old.request.id, from: "failure" } as const : null;
  const request = structuredClone({ ...asked, retriggerOf });
  const child = newRunFacts(request, facts, isRetry ? old : null, wallNow);
  facts.runs.set(request.id, child);
  if (request.concurrencyKey !== null) facts.flow.windows.noteAdded(facts, request.concurrencyKey);
  checkOnEnd(facts, request);
  if (isRetry) {
    old.retry = child;
    checkCleanedUp(facts, old, "retried");
  }
  return child;
}

/** The children of this call in the run of which the parent is a retry, or in one before it. */
function findFormer(facts: Facts, parent: RunFacts, name: string): readonly ChildFacts[] | undefined {
  for (let run: RunFacts | null = parent; run !== null && run.source !== null;) {
    const source: RunFacts = run.source;
    run = source.isDeleted ? null : facts.run(source.request.id);
    const pause = run?.childPauses.get(name);
    if (pause !== undefined) return pause.members;
  }
  return undefined;
}

function isSameWork({ request }: RunFacts, { jobName, payload }: NewRun): boolean {
  return jobOf(request.jobName) === jobOf(jobName) && request.payload === payload;
}

/** What is told of how a child ended is what happened to it. */
export function checkResult(facts: Facts, member: ChildFacts | undefined, result: ChildResult | null): void {
  const run = member?.run;
  const expected = run === undefined || !run.hasEnded || member?.isLost ? null : endingOf(run);
  const told = result === null ? null : {
    status: result.status satisfies TerminalStatus,
    output: result.output,
    error: result.failure === null ? "" : failureText(result.failure),
  };
  const isSame = JSON.stringify(told) === JSON.stringify(expected) &&
    (told === null || result!.run.id === run!.request.id);
  facts.expect(
    isSame && (told === null || isTerminal(told.status)),
    "F7",
    () => `child ${run?.request.id} ended as ${JSON.stringify(expected)}, and is told as ${JSON.stringify(result)}`,
  );
}
