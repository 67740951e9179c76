import { Chance } from "../support/chance.ts";
import { JOB_NAMES, type Plan, PROCESS_NAMES, type Request, TROUBLE_MS } from "./plan.ts";
import { type Action, type CallAction, type ChildItem, makeProgram, type Program } from "./program.ts";

// How many runs may be above one that starts others.
const MAX_LEVEL = 2;
const CHILD_ACTIONS = 2;

/** Lets some programs start other runs. It draws from streams of its own: the rest of the plan stays the same. */
export function addChildren(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "children");
  const share = chance.pick([0.3, 0.6]);
  const hasFamily = chance.happens(0.1);
  const requests = plan.requests.map((planned, no): Plan["requests"][number] => {
    const { request } = planned;
    const own = new Chance(seed, "children", no);
    if (request.ask === "batch") {
      const items = request.items.map((item) => ({ ...item, program: withCalls(item.program, own, share) }));
      return { ...planned, request: { ...request, items } };
    }
    if (request.ask !== "trigger" && request.ask !== "run") return planned;
    return { ...planned, request: { ...request, program: withCalls(request.program, own, share) } };
  });
  const all = [...(hasFamily ? withFamily(requests, chance) : requests), ...makeRelated(new Chance(seed, "related"))];
  return { ...plan, requests: all };
}

/** Clients that cancel, delete and retrigger runs which have started others, or which others have started. */
function makeRelated(chance: Chance): Plan["requests"] {
  return Array.from({ length: 2 + chance.int(8) }, () => {
    const which = chance.next();
    const of = chance.pick(["parents", "children"] as const);
    const ask = chance.weighted([[2, "retrigger"], [1, "cancel"], [1, "delete"]] as const);
    const request: Request = ask === "retrigger"
      ? { ask, which, of, from: chance.happens(0.8) ? "failure" : "start" }
      : { ask, which, of };
    return { at: TROUBLE_MS * chance.next(), process: chance.int(PROCESS_NAMES.length), request, manner: null };
  });
}

function withCalls(program: Program, chance: Chance, share: number, level = 0): Program {
  if (!chance.happens(share)) return program;
  let calls = 0;
  const count = chance.happens(0.3) ? 2 : 1;
  return Array.from({ length: count }).reduce<Program>((changed) => {
    return insert(changed, makeCall(chance, `c${calls++}`, share, level), chance);
  }, program);
}

/** The same program with another action in it, at the top or within another. */
export function insert(program: Program, action: Action, chance: Chance): Program {
  const at = chance.int(program.length + 1);
  const outer = program[at];
  const inside = (part: Program) => insert(part, action, chance);
  if (outer !== undefined && chance.happens(0.7)) {
    const changed = changeInside(outer, inside, chance);
    if (changed !== null) return program.with(at, changed);
  }
  return program.toSpliced(at, 0, action);
}

function changeInside(outer: Action, change: (part: Program) => Program, chance: Chance): Action | null {
  switch (outer.do) {
    case "all":
    case "race": {
      const branch = chance.int(outer.branches.length);
      return { ...outer, branches: outer.branches.with(branch, change(outer.branches[branch]!)) };
    }
    case "catch":
    case "repeat":
      return { ...outer, body: change(outer.body) };
    case "prepare":
      return { ...outer, meanwhile: change(outer.meanwhile) };
    default:
      return null;
  }
}

function makeCall(chance: Chance, name: string, share: number, level: number): Action {
  const item = (): ChildItem => {
    const program = makeProgram(chance).slice(0, CHILD_ACTIONS);
    return {
      program: level < MAX_LEVEL ? withCalls(program, chance, share / 2, level + 1) : program,
      options: makeOptions(chance),
    };
  };
  const kind = chance.weighted([[3, "invoke"], [2, "invokeAll"], [1.5, "trigger"]] as const);
  const items = kind === "invokeAll" ? Array.from({ length: chance.int(5) }, item) : [item()];
  const call: CallAction = { do: kind, name, jobName: chance.pick(JOB_NAMES), items };
  return chance.happens(0.5) ? { do: "catch", body: [call] } : call;
}

function makeOptions(chance: Chance): ChildItem["options"] {
  return {
    ...(chance.happens(0.4) ? { concurrencyKey: `key-${chance.int(2)}` } : {}),
    ...(chance.happens(0.2) ? { labels: { child: "yes" } } : {}),
    ...(chance.happens(0.2) ? { priority: chance.pick([-1, 0, 3]) } : {}),
    ...(chance.happens(0.15) ? { delay: chance.int(800) } : {}),
    ...(chance.happens(0.1) ? { startWithin: chance.pick([50, 1_000]) } : {}),
    ...(chance.happens(0.1) ? { finishWithin: chance.pick([80, 1_500]) } : {}),
  };
}

/** Lets one program start so many children that they are added in several slices. */
function withFamily(requests: Plan["requests"], chance: Chance): Plan["requests"] {
  const at = requests.findIndex(({ request }) => request.ask === "trigger");
  const planned = requests[at];
  if (planned?.request.ask !== "trigger") return requests;
  const items = Array.from({ length: 101 + chance.int(20) }, (): ChildItem => ({
    program: chance.happens(0.05) ? [{ do: "throw" }] : [],
    options: {},
  }));
  const call: CallAction = { do: "invokeAll", name: "family", jobName: chance.pick(JOB_NAMES), items };
  const { program } = planned.request;
  return requests.with(at, { ...planned, request: { ...planned.request, program: [call, ...program] } });
}
