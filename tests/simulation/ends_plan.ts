import type { EndContext } from "../../src/model/end.ts";
import type { TerminalStatus } from "../../src/model/run.ts";
import { Chance } from "../support/chance.ts";
import { JOB_NAMES, type Plan, PROCESS_NAMES, TROUBLE_MS } from "./plan.ts";
import type { Program, StepAction } from "./program.ts";

/** How the runs of a job are cleaned up after. */
export interface PlannedEnd {
  statuses: readonly TerminalStatus[];
  finishWithin: number | null;
}

/** A step that a clean-up undoes. */
export interface Undo {
  stepName: string;
  always: boolean;
  /** What the function does. */
  action: Omit<StepAction, "name">;
}

/** What a clean-up does. */
export interface CleanUp {
  undos: Undo[];
  /** How long it sleeps before; `null`: it does not. */
  sleepMs: number | null;
  /** Whether it throws in the end. */
  throws: boolean;
}

/** Lets runs of some jobs be cleaned up after. It draws from a stream of its own. */
export function addEnds(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "ends");
  const all = ["completed", "failed", "cancelled"] as const;
  const ends: NonNullable<Plan["ends"]> = {};
  for (const jobName of JOB_NAMES) {
    const statuses = all.filter(() => chance.happens(0.7));
    const finishWithin = chance.happens(0.15) ? 100 + chance.int(1_500) : null;
    if (chance.happens(0.8)) ends[jobName] = { statuses, finishWithin };
  }
  const retries = Array.from({ length: 8 + chance.int(12) }, (): Plan["requests"][number] => ({
    at: TROUBLE_MS * (0.2 + 0.8 * chance.next()),
    process: chance.int(PROCESS_NAMES.length),
    request: { ask: "retrigger", which: chance.next(), from: "failure" },
    manner: null,
  }));
  return { ...plan, ends, requests: [...plan.requests, ...retries] };
}

/** Makes up what the clean-up of a run does: the same in each execution. */
export function makeCleanUp(seed: number, endRunId: string, { runId, input, completed }: EndContext): CleanUp {
  const steps = stepNamesOf((input as { program: Program }).program);
  const isOfProgram = (name: string) => steps.has(name.replace(/#\d+$/, ""));
  const make = (stepName: string, share: number, always: boolean): Undo[] => {
    const chance = new Chance(seed, "undo", runId, stepName);
    if (!chance.happens(share)) return [];
    const failures = chance.happens(0.15) ? 1 + chance.int(2) : 0;
    const attempts = 1 + chance.int(3);
    const ms = chance.happens(0.5) ? 0 : chance.int(80);
    const delay = chance.pick([0, 10, 1_050]);
    const action = { do: "step", ms, failures, attempts, delay, timeout: null, heeds: chance.happens(0.5) } as const;
    return [{ stepName, always: always || chance.happens(0.3), action }];
  };
  // A retry of a clean-up does the same, but may not throw.
  const chance = new Chance(seed, "clean-up", runId);
  return {
    undos: [
      ...completed.filter(isOfProgram).reverse().flatMap((name) => make(name, 0.7, false)),
      ...[...steps].filter((name) => !completed.includes(name)).flatMap((name) => make(name, 0.3, chance.happens(0.7))),
    ],
    sleepMs: chance.happens(0.2) ? chance.int(300) : null,
    throws: new Chance(seed, "throws", endRunId).happens(0.15),
  };
}

function stepNamesOf(program: Program): Set<string> {
  return new Set(program.flatMap((action): string[] => {
    switch (action.do) {
      case "step":
        return [action.name];
      case "all":
      case "race":
        return action.branches.flatMap((branch) => [...stepNamesOf(branch)]);
      case "repeat":
      case "catch":
        return [...stepNamesOf(action.body)];
      case "prepare":
        return [...stepNamesOf(action.meanwhile)];
      default:
        return [];
    }
  }));
}
