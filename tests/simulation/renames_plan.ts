import type { Code } from "./changes_plan.ts";
import { Chance } from "../support/chance.ts";
import { JOB_NAMES, ORGS, type Plan, PROCESS_NAMES, TROUBLE_MS } from "./plan.ts";
import type { CallAction, Program } from "./program.ts";

/** The job of the runs that programs start, where a job is renamed: the second code has the other name for it. */
export const CHILD_JOB = "parts";
const OTHER_NAME = "pieces";
// When all processes have had the second code, as a part of the trouble.
const RENAMED_BY = 0.5;

/**
 * Gives all runs that programs start a job of their own, which is renamed, and adds parents that fail before and are
 * retriggered afterwards. It draws from a stream of its own.
 */
export function addRenames(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "renames");
  const requests = plan.requests.map((planned): Plan["requests"][number] => {
    const { request } = planned;
    if (request.ask === "batch") {
      const items = request.items.map((item) => ({ ...item, program: withChildJob(item.program) }));
      return { ...planned, request: { ...request, items } };
    }
    if (request.ask !== "trigger" && request.ask !== "run") return planned;
    return { ...planned, request: { ...request, program: withChildJob(request.program) } };
  });
  const deploys = PROCESS_NAMES.map((_, process): Plan["faults"][number] => {
    const at = RENAMED_BY * TROUBLE_MS - 250 * (process + 1);
    return { at, fault: { fault: "stop", process, timeout: 50, downMs: 50, without: null, version: 2 } };
  });
  return {
    ...plan,
    hasRenames: true,
    requests: [...requests, ...makeFailing(chance), ...makeRetriggers(chance)],
    faults: [...plan.faults, ...deploys],
  };
}

/** Parents of which one child completes and another fails. */
function makeFailing(chance: Chance): Plan["requests"] {
  const items = [[], [{ do: "throw" }]].map((program) => ({ program: program as Program, options: {} }));
  const program: Program = [{ do: "invokeAll", name: "c", jobName: CHILD_JOB, items }, { do: "throw" }];
  return Array.from({ length: 3 }, () => ({
    at: chance.next() * TROUBLE_MS / 4,
    process: chance.int(PROCESS_NAMES.length),
    request: {
      ask: "trigger",
      jobName: chance.pick(JOB_NAMES),
      program,
      options: { labels: { org: chance.pick(ORGS) } },
      repeats: 0,
    },
    manner: null,
  }));
}

function makeRetriggers(chance: Chance): Plan["requests"] {
  return Array.from({ length: 8 }, () => ({
    at: chance.between(RENAMED_BY * TROUBLE_MS, TROUBLE_MS),
    process: chance.int(PROCESS_NAMES.length),
    request: { ask: "retrigger", which: chance.next(), of: "parents", from: "failure" },
    manner: null,
  }));
}

function withChildJob(program: Program): Program {
  const change = (_: string, value: Partial<CallAction> | null) =>
    value?.jobName === undefined ? value : { ...value, jobName: CHILD_JOB };
  return JSON.parse(JSON.stringify(program, change)); // a program is JSON, and so is the input that it becomes
}

/** The name of a job in a code, and its aliases. Both codes know both names: runs of either are executed by each. */
export function namesOf(job: string, code: Code): { name: string; aliases?: string[] } {
  if (job !== CHILD_JOB) return { name: job };
  return code === 1 ? { name: CHILD_JOB, aliases: [OTHER_NAME] } : { name: OTHER_NAME, aliases: [CHILD_JOB] };
}

/** The job that has a name, whichever code has given it: runs with its names are runs of one job. */
export function jobOf(name: string): string {
  return name === OTHER_NAME ? CHILD_JOB : name;
}
