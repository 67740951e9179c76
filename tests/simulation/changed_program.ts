import { addedAt, changedKind, type ChangePlan, type Code, type Fate, LAST_CODE, renamedTo } from "./changes_plan.ts";
import type { Action, Program } from "./program.ts";

const NEW_STEP = { do: "step", ms: 10, failures: 0, attempts: 1, delay: 0, timeout: null, heeds: false } as const;
const CHANGED_WAIT_MS = 50;

/** A program as a code has it. A program always becomes the same. */
export function changeProgram(program: Program, { names }: ChangePlan, code: Code): Program {
  if (code === 1) return program;
  const change = (before: Program, at: Place): Program => {
    const after: Program = [];
    for (const action of before) {
      const inner = changeInside(action, at);
      const fate = "name" in action ? fateOf(names, action.name, at) : undefined;
      if (fate === undefined || !("name" in inner)) after.push(inner);
      else if (fate === "move to the front" && isSafe(inner) && inner.do === "step") after.unshift(inner);
      else after.push(...changeAction(inner, fate, at));
    }
    return after;
  };
  const changeAction = (action: Action & { name: string }, fate: string, at: Place): Program => {
    const { name } = action;
    const added: Action = { ...NEW_STEP, name: addedAt(name) };
    switch (fate) {
      case "rename":
        return [isCall(action) ? action : { ...action, name: renamedTo(name) }];
      case "remove":
        return isSafe(action) ? [] : [action];
      case "add before":
        return [added, action];
      case "add after":
        return [action, added];
      case "patch before":
        return [{ do: "patch", name: `patch at ${name}`, body: [added] }, action];
      case "throw before":
        return at === "top" && code !== LAST_CODE ? [{ do: "throw" }, action] : [action];
      case "change kind":
        return isSafe(action) ? [changeKind(action, code)] : [action];
      default:
        return [action];
    }
  };
  const changeInside = (action: Action, at: Place): Action => {
    const within = at === "race" ? "race" : "inside";
    switch (action.do) {
      case "race":
        return { ...action, branches: action.branches.map((branch) => change(branch, "race")) };
      case "all":
        return { ...action, branches: action.branches.map((branch) => change(branch, within)) };
      case "catch":
      case "repeat":
        return { ...action, body: change(action.body, within) };
      case "prepare":
        return { ...action, meanwhile: change(action.meanwhile, within) };
      default:
        return action;
    }
  };
  return change(program, "top");
}

/** Where an action is: at the top of its program, in a race, however deep, or inside of something else. */
type Place = "top" | "inside" | "race";

/** In a race nothing but names changes: else another branch might win. */
function fateOf(names: ChangePlan["names"], name: string, at: Place): Fate | undefined {
  const fate = names.get(name)?.fate;
  return at === "race" && fate !== "rename" ? undefined : fate;
}

/** The last code gives an action of another kind another name: it could not say else that the old one is gone. */
function changeKind(action: Action & { name: string }, code: Code): Action {
  const name = code === LAST_CODE ? changedKind(action.name) : action.name;
  return action.do === "step" ? { do: "sleep", name, ms: CHANGED_WAIT_MS } : { ...NEW_STEP, name };
}

/** Whether an action never throws, so that nothing else changes when it is removed or moved. */
function isSafe(action: Action): boolean {
  if (action.do === "step") return action.failures === 0 && action.timeout === null;
  return action.do === "sleep" || action.do === "wait";
}

function isCall({ do: kind }: Action): boolean {
  return kind === "invoke" || kind === "invokeAll" || kind === "trigger";
}

/**
 * Whether a code goes on with what another has recorded: both have the same program, or what the later one has changed
 * is declared.
 */
export function fits(program: Program, changes: ChangePlan, recordedBy: Code, code: Code): boolean {
  if (code === LAST_CODE || code === recordedBy) return true;
  const [before, after] = [recordedBy, code].map((one) => JSON.stringify(changeProgram(program, changes, one)));
  if (before === after) return true;
  return recordedBy === 1 && code === 2 && findNames(program).every((name) => {
    const change = changes.names.get(name);
    if (change === undefined || change.fate === "patch before") return true;
    return change.isDeclared && change.fate !== "change kind" && change.fate !== "throw before";
  });
}

function findNames(program: Program): string[] {
  return program.flatMap((action): string[] => {
    const own = "name" in action ? [action.name] : [];
    switch (action.do) {
      case "all":
      case "race":
        return action.branches.flatMap(findNames);
      case "catch":
      case "repeat":
        return findNames(action.body);
      case "prepare":
        return [...own, ...findNames(action.meanwhile)];
      default:
        return own;
    }
  });
}
