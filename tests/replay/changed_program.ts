import { Chance, hashText } from "../support/chance.ts";
import type { Action, Program } from "../simulation/program.ts";

const NEW_STEP = { do: "step", ms: 10, failures: 0, attempts: 1, delay: 0, timeout: null, heeds: false } as const;

/**
 * A program as the next version of the code has it: with new steps, some that have moved, and some that are gone. A
 * program always becomes the same.
 */
export function changeProgram(program: Program): Program {
  const chance = new Chance(hashText(JSON.stringify(program)), "changes");
  let names = 0;
  const change = (before: Program): Program => {
    const after = before.filter((action) => !isPlain(action) || !chance.happens(0.1)).map(changeInside);
    const at = chance.int(after.length);
    if (at > 0 && isPlain(after[at]!) && chance.happens(0.5)) after.unshift(...after.splice(at, 1));
    if (chance.happens(0.4)) after.splice(chance.int(after.length + 1), 0, { ...NEW_STEP, name: `new${names++}` });
    return after;
  };
  const changeInside = (action: Action): Action => {
    switch (action.do) {
      case "all":
      case "race":
        return { ...action, branches: action.branches.map(change) };
      case "catch":
        return { ...action, body: change(action.body) };
      case "prepare":
        return { ...action, meanwhile: change(action.meanwhile) };
      default:
        return action; // what is repeated has the same names each time, which count
    }
  };
  return change(program);
}

/** Whether nothing depends on where an action is. */
function isPlain({ do: kind }: Action): boolean {
  return kind === "step" || kind === "sleep" || kind === "wait";
}
