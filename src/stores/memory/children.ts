import { isoTime } from "../../values/iso_time.ts";
import { isTerminal } from "../../model/run.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { CreatedChild, NewChildren, NewPause } from "../../store/pause_request.ts";
import type { Part } from "../../store/run_query.ts";
import type { ChildResult } from "../../model/wait.ts";
import { PartBuilder } from "../part_builder.ts";
import { commitDeadlines, resolvePause } from "./pauses.ts";
import { type KeptChild, type KeptPause, type KeptRun } from "./records.ts";
import { resultOf, toIdentity } from "./copies.ts";

/** What {@linkcode addChildren} needs to know of other runs. */
interface ChildDeps {
  /** Finds a run. */
  get(runId: string): KeptRun | undefined;
  /** The newest retry of the run that a request is to retrigger, unless it has ended. */
  findOpenRetry(request: Pick<NewRun, "retriggerOf">): KeptRun | undefined;
  /** Cancels a child of a run that has ended. */
  cancel(orphan: KeptRun): void;
  /** Adds a child. */
  add(request: NewRun, parent: KeptRun["parent"]): KeptRun;
}

/** Whether a pause lacks children that were added before those of a request: see `Store.pause()`. */
export function lacksChildren(run: KeptRun, { kind, name, children }: NewPause): boolean {
  if (kind !== "children") return false;
  const added = run.pauses.find((pause) => pause.kind === kind && pause.name === name)?.children;
  const known = children === null ? added?.total ?? Infinity : children.from;
  return (added?.members.length ?? 0) < known;
}

/** Adds the children that a pause does not have yet, and resolves it if all its children have ended. */
export function addChildren(
  parent: KeptRun,
  pause: KeptPause,
  request: NewChildren,
  deps: ChildDeps,
  now: number,
): void {
  if (pause.state.status !== "pending") return;
  pause.children ??= { total: request.total, unfinished: request.total, members: [] };
  const { members } = pause.children;
  const former = findFormer(parent, pause.name, deps);
  for (const asked of request.runs.slice(Math.max(0, members.length - request.from))) {
    const old = former.find((children) => members.length < children.length)?.[members.length];
    const same = old !== undefined && isSameWork(old.child, asked) ? old : undefined;
    // The following claims would cancel it, too late to retry it from there.
    if (same !== undefined && isOrphan(same.child)) deps.cancel(same.child);
    if (same !== undefined && resultOf(same)?.status === "completed") {
      addMember(parent, pause, same.child);
      pause.children.unfinished -= 1;
      continue;
    }
    addMember(
      parent,
      pause,
      deps.add(same === undefined ? asked : toRetry(asked, same.child, deps), { run: parent, pause }),
    );
  }
  if (pause.children.unfinished === 0) resolvePause(parent, pause, { outcome: "children" }, now);
}

/** Copies the children of a pause to the same pause of a retry. */
export function copyChildren(run: KeptRun, copy: KeptPause, { children }: KeptPause): void {
  if (children === null) return;
  copy.children = { ...children, members: [] };
  for (const { child } of children.members) addMember(run, copy, child);
}

function addMember(owner: KeptRun, pause: KeptPause, child: KeptRun): void {
  const member: KeptChild = { child, owner, isLost: false };
  pause.children?.members.push(member);
  child.memberships.push(member);
}

/**
 * The children of the pauses of this name in the run of which the parent is a retry, and in those before it. A run that
 * ended between two slices has only the first ones.
 */
function findFormer(parent: KeptRun, name: string, deps: ChildDeps): (readonly KeptChild[])[] {
  const former: (readonly KeptChild[])[] = [];
  for (let run: KeptRun | undefined = parent; run !== undefined && run.originId !== run.id;) {
    run = deps.get(run.retriggerOf!); // a run with another origin is a retry
    const { children = null } = run?.pauses.find((pause) => pause.kind === "children" && pause.name === name) ?? {};
    if (children === null) continue;
    former.push(children.members);
    if (children.members.length === children.total) break;
  }
  return former;
}

function isSameWork(old: KeptRun, { jobName, aliases, payload }: NewRun): boolean {
  return [jobName, ...aliases].includes(old.jobName) && old.payload === payload;
}

/** The same request as a retry of a child that failed or was cancelled, from its failure, if there can be one. */
function toRetry(request: NewRun, old: KeptRun, deps: ChildDeps): NewRun {
  const retry: NewRun = { ...request, retriggerOf: { runId: old.id, from: "failure" } };
  const isPossible = (old.status === "failed" || old.status === "cancelled") && deps.get(old.id) !== undefined &&
    deps.findOpenRetry(retry) === undefined;
  return isPossible ? retry : request;
}

/** Which of the requested children a pause has: those that this call, or the same call before, has created. */
export function findCreated(
  { children }: KeptPause,
  request: NewChildren,
  get: (runId: string) => KeptRun | undefined,
): CreatedChild[] {
  return request.runs.flatMap(({ id }, at) => {
    const child = children?.members[request.from + at]?.child;
    if (child?.id !== id) return [];
    const old = child.retriggerOf === null ? undefined : get(child.retriggerOf);
    const retryOf = old === undefined ? null : toIdentity(old);
    return [{ run: toIdentity(child), startAt: isoTime(child.startAt), retryOf }];
  });
}

/** Resolves the pause of a run's parent if this was its last child. Returns the parent if it did. */
export function endChild({ parent }: KeptRun, now: number): KeptRun | null {
  if (parent === null || parent.pause.state.status !== "pending") return null;
  const { run, pause } = parent;
  if (pause.children === null) return null;
  pause.children.unfinished -= 1;
  if (pause.children.unfinished > 0) return null;
  commitDeadlines(run, now);
  resolvePause(run, pause, { outcome: "children" }, now);
  return run;
}

/** Whether the run that waited for this one has ended: it is not claimed any more. */
export function isOrphan({ parent, status }: KeptRun): boolean {
  return parent !== null && !isTerminal(status) &&
    (parent.pause.state.status === "closed" || parent.pause.state.status === "cancelled");
}

/** Notes that a child was deleted: parents that have ended lose its result. */
export function loseResult(child: KeptRun): void {
  for (const member of child.memberships) if (isTerminal(member.owner.status)) member.isLost = true;
}

/** Reads how the children of a pause ended. See `Store.readChildren()`. */
export function readResults({ children }: KeptPause, from: number, maxLength: number): Part<ChildResult> | null {
  if (children === null) return null;
  const part = new PartBuilder<ChildResult>(maxLength);
  let next = from;
  while (next < children.total && !part.hasMore) {
    const result = children.members[next] === undefined ? null : resultOf(children.members[next]!);
    if (result === null) return null;
    part.add([result], (item) => item);
    next += 1;
  }
  return { items: part.items, hasMore: next < children.total };
}
