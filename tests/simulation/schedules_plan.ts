import type { ScheduleOptions } from "../../src/engine/schedules/schedule_options.ts";
import { Chance } from "../support/chance.ts";
import { JOB_NAMES, ORGS, type Plan, PROCESS_NAMES, type Request, TROUBLE_MS } from "./plan.ts";
import { makeProgram } from "./program.ts";

/** The schedules of a simulation. Each has a slot every few seconds. */
export interface SchedulePlan {
  /** What the two versions of the code declare. */
  declared: readonly [DeclaredSchedules, DeclaredSchedules];
}

type DeclaredSchedules = { readonly [name: string]: PlannedSchedule };

/** A schedule whose job is named. */
export type PlannedSchedule = ScheduleOptions & { job: typeof JOB_NAMES[number] };

const SET_NAMES = ["set-0", "set-1"] as const;

/** Adds schedules to a plan, and clients that change them. The rest of the plan stays the same. */
export function addSchedules(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "schedules");
  const names = ["declared-0", "declared-1"].slice(0, chance.int(3));
  const first = Object.fromEntries(names.map((name) => [name, makeSchedule(chance)]));
  const changed = Object.fromEntries(names.map((name) => [name, makeSchedule(chance)]));
  const declared = [first, chance.happens(0.3) ? changed : first] as const;
  return {
    ...plan,
    schedules: { declared },
    requests: [...plan.requests, ...makeRequests(chance, names)],
    faults: [...plan.faults, ...(chance.happens(0.5) ? makeJumps(chance) : [])],
  };
}

/** The clock is set back by more than a minute and right again, or far forward. */
function makeJumps(chance: Chance): Plan["faults"] {
  const at = TROUBLE_MS * chance.between(0.25, 0.75);
  const backMs = Math.round(chance.between(64_000, 67_000));
  const jump = (at: number, ms: number) => ({ at, fault: { fault: "jump", ms } as const });
  return chance.happens(0.5)
    ? [jump(at, -backMs), jump(at + chance.between(300, 900), backMs)]
    : [jump(at, Math.round(chance.between(180_000, 235_000)))];
}

function makeSchedule(chance: Chance): PlannedSchedule {
  const seconds = chance.pick([1, 2, 3, 3]);
  // What catches everything up has few slots, or a jump of the clock would make hundreds of runs.
  const catchUp = chance.weighted([[3, "last"], [3, "none"], [seconds === 3 ? 4 : 0, "all"]] as const);
  return {
    job: chance.pick(JOB_NAMES),
    input: { program: makeProgram(chance).slice(0, 2) },
    cron: chance.happens(0.7) ? `*/${seconds} * * * * *` : "0 */2 * * * *",
    catchUp,
    overlap: chance.pick(["skip", "allow"] as const),
    labels: { org: chance.pick(ORGS) },
    ...(chance.happens(0.3) ? { concurrencyKey: `key-${chance.int(2)}` } : {}),
    ...(chance.happens(0.2) ? { priority: chance.pick([-1, 2]) } : {}),
  };
}

function makeRequests(chance: Chance, declared: readonly string[]): Plan["requests"] {
  const set = (name: string): Request => ({ ask: "schedule", change: "set", name, options: makeSchedule(chance) });
  const change = (): Request => {
    const name = chance.pick([...declared, ...SET_NAMES]);
    const kind = chance.weighted([[4, "pause"], [5, "resume"], [2, "trigger"], [1, "delete"], [1, "set"]] as const);
    return kind === "set" ? set(name) : { ask: "schedule", change: kind, name };
  };
  const requests = [
    ...SET_NAMES.filter(() => chance.happens(0.5)).map(set).map((request) => ({ at: 500 * chance.next(), request })),
    ...Array.from({ length: chance.int(12) }, () => ({ at: TROUBLE_MS * chance.next(), request: change() })),
  ];
  return requests.map((planned) => ({ ...planned, process: chance.int(PROCESS_NAMES.length), manner: null }));
}
