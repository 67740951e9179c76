import type { FlowDefinition, Rate } from "../../src/model/flow.ts";
import type { FlowOptions } from "../../src/engine/triggers/trigger_flow.ts";
import { Chance } from "../support/chance.ts";
import { type JOB_NAMES, ORGS, type Plan } from "./plan.ts";
import { START } from "./world.ts";

type JobName = typeof JOB_NAMES[number];
type PlannedRequest = Plan["requests"][number];

/** What limits, delays and orders runs in a simulation. */
export interface FlowPlan {
  /** What the two versions of the code say about each job. */
  jobs: Record<JobName, readonly [FlowDefinition, FlowDefinition]>;
  /** The label whose value is the fairness key of runs that have no other. */
  fairnessLabel: "org" | undefined;
}

/** The parts of flow control: each is left out in some seeds, so that the others show what they alone do. */
interface Parts {
  concurrency: boolean;
  rate: boolean;
  perKey: boolean;
  keyRate: boolean;
  delay: boolean;
  priority: boolean;
  fairness: boolean;
  startWithin: boolean;
  finishWithin: boolean;
  pauses: boolean;
  versions: boolean;
}

/** Adds flow control to a plan. It draws from streams of its own: the rest of the plan stays the same. */
export function addFlow(plan: Plan, seed: number, jobNames: readonly JobName[]): Plan {
  const chance = new Chance(seed, "flow");
  const parts: Parts = {
    concurrency: chance.happens(0.5),
    rate: chance.happens(0.4),
    perKey: chance.happens(0.5),
    keyRate: chance.happens(0.3),
    delay: chance.happens(0.5),
    priority: chance.happens(0.5),
    fairness: chance.happens(0.5),
    startWithin: chance.happens(0.3),
    finishWithin: chance.happens(0.4),
    pauses: chance.happens(0.4),
    versions: chance.happens(0.5),
  };
  const jobs = Object.fromEntries(jobNames.map((name) => {
    const first = makeDefinition(new Chance(seed, "flow", name, 1), parts);
    return [name, [first, parts.versions ? makeDefinition(new Chance(seed, "flow", name, 2), parts) : first]];
  })) as unknown as FlowPlan["jobs"]; // has all names
  const crowd = chance.happens(0.3) ? makeCrowd(new Chance(seed, "crowd"), jobNames) : [];
  const requests = [...plan.requests, ...crowd].map((planned, no) =>
    withFlow(planned, new Chance(seed, "flow", no), parts)
  );
  return {
    ...plan,
    flow: { jobs, fairnessLabel: parts.fairness && chance.happens(0.5) ? "org" : undefined },
    requests: [...requests, ...(parts.pauses ? makePauses(new Chance(seed, "job pauses"), jobNames) : [])],
  };
}

function makeDefinition(chance: Chance, parts: Parts): FlowDefinition {
  const limits = {
    ...(parts.concurrency && chance.happens(0.6) ? { concurrency: 1 + chance.int(3) } : {}),
    ...(parts.rate && chance.happens(0.6) ? { rate: makeRate(chance) } : {}),
  };
  const perKey = {
    ...(parts.perKey && chance.happens(0.8) ? { concurrency: 1 + chance.int(3) } : {}),
    ...(parts.keyRate && chance.happens(0.7) ? { rate: makeRate(chance) } : {}),
  };
  return {
    limits: { ...limits, ...(Object.keys(perKey).length === 0 ? {} : { perKey }) },
    ...(parts.priority && chance.happens(0.3) ? { priority: chance.int(3) } : {}),
    ...(parts.startWithin && chance.happens(0.3) ? { startWithin: chance.pick([100, 1_000, 5_000]) } : {}),
    ...(parts.finishWithin && chance.happens(0.3) ? { finishWithin: chance.pick([300, 1_000, 5_000]) } : {}),
  };
}

function makeRate(chance: Chance): Rate {
  return { limit: 1 + chance.int(3), period: chance.pick([40, 200, 700]) };
}

function withFlow(planned: PlannedRequest, chance: Chance, parts: Parts): PlannedRequest {
  const { request, at } = planned;
  if (request.ask === "batch") {
    const items = request.items.map((item) => ({ ...item, options: withOptions(item.options, at, chance, parts) }));
    return { ...planned, request: { ...request, items } };
  }
  if (request.ask !== "trigger" && request.ask !== "run") return planned;
  return { ...planned, request: { ...request, options: withOptions(request.options, at, chance, parts) } };
}

function withOptions<O extends FlowOptions & { coalesce?: unknown }>(
  options: O,
  at: number,
  chance: Chance,
  parts: Parts,
): O {
  const mayDelay = parts.delay && options.coalesce === undefined;
  return {
    ...options,
    ...(mayDelay && chance.happens(0.4) ? makeStart(at, chance) : {}),
    ...(parts.priority && chance.happens(0.4) ? { priority: chance.pick([-1_000, -1, 1, 2, 1_000]) } : {}),
    ...(parts.fairness && chance.happens(0.7) ? { fairnessKey: `tenant-${chance.int(3)}` } : {}),
    ...(parts.startWithin && chance.happens(0.4) ? { startWithin: chance.pick([1, 50, 400, 3_000]) } : {}),
    ...(parts.finishWithin && chance.happens(0.4) ? { finishWithin: chance.pick([1, 80, 400, 1_500, 4_000]) } : {}),
  };
}

function makeStart(at: number, chance: Chance): FlowOptions {
  const ms = Math.round(chance.pick([chance.next() * 100, chance.next() * 1_500, chance.next() * 6_000]));
  if (chance.happens(0.5)) return { delay: ms };
  return { startAt: new Date(START + Math.round(at) + ms - 50).toISOString() }; // some lie in the past
}

/** Many short runs that are triggered together, so that many wait at the same time. */
function makeCrowd(chance: Chance, jobNames: readonly JobName[]): PlannedRequest[] {
  const at = chance.next() * 2_500;
  const keyed = chance.pick([0, 0.5]);
  return Array.from({ length: 8 + chance.int(16) }, () => {
    const step = { do: "step", name: "n0", failures: 0, attempts: 1, delay: 0, timeout: null, heeds: true } as const;
    const request: PlannedRequest["request"] = {
      ask: "trigger",
      jobName: chance.pick(jobNames),
      program: [{ ...step, ms: chance.int(60) }],
      options: {
        labels: { org: chance.pick(ORGS) },
        ...(chance.happens(keyed) ? { concurrencyKey: `key-${chance.int(2)}` } : {}),
      },
      repeats: 0,
    };
    return { at: at + chance.next() * 60, process: chance.int(3), request, manner: null };
  });
}

/** Clients that pause jobs, most of them only for a while. */
function makePauses(chance: Chance, jobNames: readonly JobName[]): PlannedRequest[] {
  return Array.from({ length: 1 + chance.int(3) }, () => {
    const jobName = chance.pick(jobNames);
    const at = chance.next() * 3_000;
    const process = chance.int(3);
    const pause: PlannedRequest = { at, process, request: { ask: "pauseJob", jobName }, manner: null };
    const resumesAt = at + chance.between(50, 1_500);
    const resume: PlannedRequest = { ...pause, at: resumesAt, request: { ask: "resumeJob", jobName } };
    return chance.happens(0.8) ? [pause, resume] : [pause];
  }).flat();
}
