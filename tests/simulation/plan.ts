import { type BulkOperation, COALESCE_MODES, type Retention, type RetriggerFrom } from "../../src/model/run.ts";
import type { TriggerOptions } from "../../src/engine/triggers/new_run.ts";
import type { WorkerSettings } from "../../src/execution/worker_settings.ts";
import { Chance } from "../support/chance.ts";
import { addChanges, type ChangePlan } from "./changes_plan.ts";
import { addBulk } from "./bulk_plan.ts";
import { addChildren } from "./children_plan.ts";
import { addEnds, type PlannedEnd } from "./ends_plan.ts";
import { addFlow, type FlowPlan } from "./flow_plan.ts";
import { makeProgram, type Program } from "./program.ts";
import type { Reliability } from "./remote_store.ts";
import type { HttpManner } from "./http_clients.ts";
import { addLinks } from "./links_plan.ts";
import { addMessages } from "./messages_plan.ts";
import { addRenames } from "./renames_plan.ts";
import { addSchedules, type PlannedSchedule, type SchedulePlan } from "./schedules_plan.ts";

/** The names of the jobs: each performs the program that it is given. */
export const JOB_NAMES = ["imports", "reports", "mails"] as const;

/** The names of the processes. */
export const PROCESS_NAMES = ["a", "b", "c"] as const;

/** The tenants: each run belongs to one. */
export const ORGS = ["org-0", "org-1"] as const;

/** Until when things go wrong and clients ask for something new, in milliseconds. */
export const TROUBLE_MS = 4_000;

/** Among which runs a request picks one: those that have started others, or those that were started by others. */
export type Relation = "parents" | "children";

/** What a client asks for. */
export type Request =
  | { ask: "trigger" | "run"; jobName: string; program: Program; options: TriggerOptions; repeats: number }
  | { ask: "batch"; jobName: string; items: { program: Program; options: TriggerOptions }[] }
  | { ask: "signal"; which: number; signalId: string; payload: number; atDeadline: boolean; repeats: number }
  | {
    ask: "link";
    which: number;
    /** The answer. */
    payload: number;
    /** How often something that scans mails opens it, and how long it takes until somebody answers. */
    scans: number;
    readMs: number;
    /** Whether a link is opened that was sent before, if there is one. */
    isOld: boolean;
    /** After how long it expires; `null`: with the wait. */
    expiresInMs: number | null;
    repeats: number;
  }
  | {
    ask: "send";
    which: number;
    /** To the run of a key; `null`: to one by its id. */
    to: { jobName: string; key: string; start: { program: Program; options: TriggerOptions } | null } | null;
    name: string;
    payload: number;
    messageId: string | null;
    atDeadline: boolean;
    repeats: number;
  }
  | { ask: "cancel" | "delete"; which: number; of?: Relation }
  | { ask: "retrigger"; which: number; from: "start" | "failure"; of?: Relation }
  | { ask: "resume"; which: number; continues: boolean }
  | { ask: "watch" | "wait" | "list" | "show"; which: number }
  | { ask: "feed"; ms: number }
  | { ask: "pauseJob" | "resumeJob"; jobName: string }
  | {
    ask: "bulk";
    operation: BulkOperation;
    /** All that match, or the newest ones by their ids. */
    selection: { jobName?: string; labels?: { org: string } } | { byIds: number };
    limit: number;
    from: RetriggerFrom;
  }
  | { ask: "schedule"; change: "pause" | "resume" | "trigger" | "delete"; name: string }
  | { ask: "schedule"; change: "set"; name: string; options: PlannedSchedule };

/** A fault of a process, the clock or the shared store. */
export type PlannedFault =
  | { fault: "kill"; process: number; downMs: number }
  | { fault: "pause"; process: number; ms: number }
  | { fault: "stop"; process: number; timeout: number; downMs: number; without: string | null; version: 1 | 2 }
  | { fault: "jump"; ms: number }
  | { fault: "overtake"; patienceMs: number }
  | { fault: "outage" | "full disk"; ms: number };

/** All that is planned from a seed: what clients ask for, and what goes wrong apart from single calls. */
export interface Plan {
  worker: Omit<WorkerSettings, "name" | "deployment">;
  retention: Retention;
  /** How many characters of facts the journal keeps, if the store can be told. */
  journalLength: number;
  /** How many characters of facts processes read at once. */
  pageLength: number;
  /** How long an event stream may be open, in milliseconds. */
  maxStreamMs: number;
  /** Whether event streams number their events by themselves, so that a tenant learns nothing of others. */
  countsEvents: boolean;
  /** Whether the last process has no worker of its own, and only works off what is due now and then. */
  hasServerless: boolean;
  reliability: Reliability;
  /** What limits, delays and orders runs; `null`: nothing does. */
  flow: FlowPlan | null;
  /** The schedules; `null`: there are none. */
  schedules: SchedulePlan | null;
  /** How the code changes; `null`: it does not. */
  changes: ChangePlan | null;
  /** How the runs of jobs are cleaned up after; `null`: they are not. */
  ends: { [jobName: string]: PlannedEnd } | null;
  /** Whether jobs take messages. */
  hasMessages: boolean;
  /** Whether the second code has another name for the job of the runs that programs start. */
  hasRenames: boolean;
  /** What clients ask for, when, which process first, and how they do if it is over HTTP. */
  requests: { at: number; process: number; request: Request; manner: HttpManner | null }[];
  faults: { at: number; fault: PlannedFault }[];
}

/** What a plan has beside what all have. */
export type Part = keyof typeof PARTS;

/** How often a seed has a part, if nobody says which it is to have. */
export const PARTS = {
  flow: 0.5,
  children: 0.4,
  renames: 0.3,
  schedules: 0.25,
  bulk: 0.2,
  changes: 0.4,
  poison: 0.2,
  links: 0.3,
  messages: 0.35,
  ends: 0.35,
} as const;

/**
 * Makes the plan of a seed. Each seed leaves some kinds of trouble out: so that the others show what they alone do.
 *
 * @param parts What it has beside; `some`: what the seed says.
 */
export function makePlan(seed: number, parts: readonly Part[] | "some"): Plan {
  const has = (part: Part) => {
    if (parts !== "some") return parts.includes(part);
    return new Chance(seed, `has ${part}`).happens(PARTS[part]);
  };
  let plan = makePlainPlan(seed);
  if (has("children")) plan = addChildren(plan, seed);
  if (has("children") && has("renames")) plan = addRenames(plan, seed);
  if (has("flow")) plan = addFlow(plan, seed, JOB_NAMES);
  if (has("schedules")) plan = addSchedules(plan, seed);
  if (has("bulk")) plan = addBulk(plan, seed);
  if (has("changes")) plan = addChanges(plan, seed);
  if (has("links")) plan = addLinks(plan, seed);
  // Code that changes has receives and clean-ups in tests of their own.
  if (has("messages") && !has("changes")) plan = addMessages(plan, seed);
  if (has("ends") && !has("changes")) plan = addEnds(plan, seed);
  if (has("poison")) plan = addPoison(plan, seed);
  return plan;
}

/** Lets some of the runs kill their processes. The rest of the plan stays the same. */
function addPoison(plan: Plan, seed: number): Plan {
  const requests = plan.requests.map((planned, no) => {
    const { request } = planned;
    const chance = new Chance(seed, "poison", no);
    if (request.ask !== "trigger" || !chance.happens(0.2)) return planned;
    const crash = { do: "crash", times: 1 + chance.int(8) } as const;
    return { ...planned, request: { ...request, program: [crash, ...request.program] } };
  });
  return { ...plan, requests };
}

function makePlainPlan(seed: number): Plan {
  const chance = new Chance(seed, "plan");
  const staleThreshold = chance.pick([300, 400, 600]);
  const streams = new Chance(seed, "streams");
  return {
    worker: {
      staleThreshold,
      heartbeatInterval: Math.floor(staleThreshold / chance.pick([3, 4])),
      pollingInterval: chance.pick([50, 100, 300]),
      concurrency: 1 + chance.int(5),
      maxAbandonments: chance.happens(0.3) ? 1 + chance.int(3) : 1_000,
    },
    journalLength: streams.pick([Infinity, Infinity, 1_000, 4_000]),
    pageLength: streams.pick([Infinity, 500]),
    maxStreamMs: streams.pick([Infinity, Infinity, 700, 100]),
    countsEvents: streams.happens(0.5),
    retention: chance.happens(0.2) ? { completed: 500, failed: 1_500 } : {},
    hasServerless: chance.happens(0.3),
    reliability: {
      latency: chance.pick([2, 10, 30]),
      errorBefore: chance.pick([0, 0.02, 0.1]),
      answerLost: chance.pick([0, 0.02, 0.1]),
      diesAfter: chance.pick([0, 0, 0.005, 0.02]),
      slowAnswer: chance.pick([0, 0.02]),
    },
    flow: null,
    schedules: null,
    changes: null,
    ends: null,
    hasMessages: false,
    hasRenames: false,
    requests: makeRequests(new Chance(seed, "requests")),
    faults: makeFaults(new Chance(seed, "blows"), staleThreshold),
  };
}

function makeRequests(chance: Chance): Plan["requests"] {
  const keys = chance.pick([1, 2, 4]);
  const keyed = chance.pick([0.3, 0.8]);
  const item = () => {
    const concurrencyKey = chance.happens(keyed) ? `key-${chance.int(keys)}` : undefined;
    return {
      program: makeProgram(chance),
      options: {
        ...(concurrencyKey === undefined ? {} : { concurrencyKey }),
        ...(concurrencyKey !== undefined && chance.happens(0.2) ? { coalesce: chance.pick(COALESCE_MODES) } : {}),
        ...(chance.happens(0.3) ? { idempotencyKey: `same-${chance.int(4)}` } : {}),
        labels: { org: chance.pick(ORGS) },
      },
    };
  };
  const trigger = (): Request => {
    const jobName = chance.pick(JOB_NAMES);
    if (chance.happens(0.1)) return { ask: "batch", jobName, items: [item(), item(), item()] };
    const ask = chance.happens(0.1) ? "run" : "trigger";
    return { ask, jobName, ...item(), repeats: chance.happens(0.1) ? 1 : 0 };
  };
  const requests: Plan["requests"] = [];
  // Clients come in bursts.
  const bursts = Array.from({ length: 4 }, () => chance.next() * TROUBLE_MS * 0.9);
  const when = () => chance.happens(0.5) ? chance.next() * TROUBLE_MS : chance.pick(bursts) + chance.next() * 30;
  const overWeb = chance.pick([0, 0.5, 1]);
  const manner = (): HttpManner | null => {
    if (!chance.happens(overWeb)) return null;
    return {
      isStranger: chance.happens(0.1),
      readMs: chance.pick([0, 0, 20, 200]),
      resumesBy: chance.pick(["header", "header", "query", null]),
      foreignId: chance.happens(0.1) ? { position: 1 + chance.int(40), at: 1 + chance.int(1e9) } : null,
    };
  };
  const add = (count: number, make: () => Request) => {
    for (let i = 0; i < count; i++) {
      const request = make();
      const [at, process] = [when(), chance.int(PROCESS_NAMES.length)];
      requests.push({ at, process, request, manner: manner() });
      // Whoever follows does not do it alone.
      const others = request.ask === "watch" || request.ask === "feed" ? chance.int(4) : 0;
      for (let other = 0; other < others; other++) {
        requests.push({ at: at + chance.next() * 40, process, request, manner: manner() });
      }
    }
  };
  add(8 + chance.int(10), trigger);
  add(25 + chance.int(25), () => makeOther(chance));
  return requests;
}

function makeOther(chance: Chance): Request {
  const which = chance.next();
  const kind = chance.weighted(
    [
      [6, "signal"],
      [1.5, "cancel"],
      [1.5, "delete"],
      [1, "retrigger"],
      [1, "watch"],
      [0.5, "wait"],
      [0.3, "list"],
      [0.5, "show"],
      [0.5, "feed"],
    ] as const,
  );
  // Some go on when nothing goes wrong any more.
  if (kind === "feed") {
    return { ask: kind, ms: chance.happens(0.5) ? chance.between(4_000, 9_000) : chance.between(100, 3_000) };
  }
  if (kind === "signal") {
    return {
      ask: kind,
      which,
      signalId: `signal-${chance.int(3)}`,
      payload: chance.int(2),
      atDeadline: chance.happens(0.3),
      repeats: chance.happens(0.3) ? 1 : 0,
    };
  }
  if (kind === "retrigger") return { ask: kind, which, from: chance.pick(["start", "failure"] as const) };
  return { ask: kind, which };
}

function makeFaults(chance: Chance, leaseMs: number): Plan["faults"] {
  const faults: Plan["faults"] = [];
  const process = () => chance.int(PROCESS_NAMES.length);
  const add = (most: number, make: () => PlannedFault) => {
    const count = chance.happens(0.5) ? 0 : chance.int(most + 1);
    for (let i = 0; i < count; i++) faults.push({ at: chance.next() * TROUBLE_MS, fault: make() });
  };
  add(6, () => ({ fault: "kill", process: process(), downMs: chance.between(20, 1_000) }));
  add(6, () => ({ fault: "pause", process: process(), ms: chance.between(0.2, 3) * leaseMs }));
  add(6, () => ({
    fault: "stop",
    process: process(),
    timeout: chance.pick([0, 50, 400]),
    downMs: chance.between(1, 500),
    without: chance.happens(0.7) ? chance.pick(JOB_NAMES) : null,
    version: chance.pick([1, 2]),
  }));
  add(5, () => ({
    fault: "jump",
    ms: Math.round(chance.happens(0.1) ? chance.between(-3_600_000, 3_600_000) : chance.between(-3_000, 3_000)),
  }));
  add(3, () => ({ fault: "overtake", patienceMs: 500 }));
  add(2, () => ({ fault: "outage", ms: chance.between(50, 1_000) }));
  add(2, () => ({ fault: "full disk", ms: chance.between(50, 1_500) }));
  return faults;
}
