import type { ChangeDefinition } from "../../src/model/job/job_changes.ts";
import { Chance } from "../support/chance.ts";
import type { Program } from "./program.ts";
import { JOB_NAMES, type Plan, PROCESS_NAMES, type Request, TROUBLE_MS } from "./plan.ts";

/**
 * The codes that processes run: the first, the one that most deploys bring, and the last, which every process runs when
 * nothing goes wrong any more. The last fits whatever the others have recorded: it declares what the second has changed.
 */
export type Code = 1 | 2 | 3;

/** When all waits get a signal if the code does not change: so long after nothing else goes wrong, in milliseconds. */
export const SIGNALS_MS = 500;

/** The name of a wait that gets no signal before. */
export const LATE_WAIT = "late";

/** The last code. */
export const LAST_CODE = 3;

/** What the second code does with the action of a name. */
export type Fate =
  | "rename"
  | "remove"
  | "add before"
  | "add after"
  | "patch before"
  | "change kind"
  | "move to the front"
  | "throw before";

/** What becomes of a name, and whether the second code declares it. */
export interface NameChange {
  fate: Fate;
  isDeclared: boolean;
}

/**
 * How the versions of a job follow each other: all codes have the same, the later ones go on with earlier runs, the
 * second leaves them to the first, or each keeps the definition of the first for them.
 */
export type VersionStyle = "same" | "continues" | "strict" | "previous";

/** How the code changes while runs are in flight. */
export interface ChangePlan {
  /** What becomes of the actions of programs, by their names. */
  names: ReadonlyMap<string, NameChange>;
  versions: Readonly<Record<typeof JOB_NAMES[number], VersionStyle>>;
  /** When all processes get the last code after nothing else goes wrong, in milliseconds. */
  lastDeployMs: number;
  /** When all waits get a signal, in the same way. */
  signalsMs: number;
  /** When held runs are resumed after nothing else goes wrong, in milliseconds. */
  resumptions: { afterMs: number; request: Request & { ask: "resume" } }[];
}

const FATES: readonly Fate[] = [
  "rename",
  "remove",
  "add before",
  "add after",
  "patch before",
  "change kind",
  "move to the front",
  "throw before",
];
// Programs have fewer names.
const MAX_NAMES = 60;

/** Lets the code change. It draws from streams of its own: the rest of the plan stays the same. */
export function addChanges(plan: Plan, seed: number): Plan {
  return new Chance(seed, "staged").happens(0.15) ? stageChanges(plan, seed) : changeAtRandom(plan, seed);
}

/**
 * All processes get code that fits no run, while many runs sleep. Runs are held while they have a wait, which gets its
 * signal later, and cancelled while their end waits.
 */
function stageChanges(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "stage");
  const step = { do: "step", ms: 0, failures: 0, attempts: 1, delay: 0, timeout: null, heeds: false } as const;
  const rest: Program = [{ ...step, name: "n0" }, { do: "sleep", name: "n1", ms: 900 }, { ...step, name: "n2" }];
  const renamed: Program = [{ do: "all", branches: [[{ do: "wait", name: LATE_WAIT, timeout: null }], rest] }];
  const removed: Program = [{ ...step, name: "n3" }, { do: "sleep", name: "n4", ms: 900 }];
  const requests = plan.requests.map((planned) => {
    const { request } = planned;
    if (request.ask !== "trigger" || chance.happens(0.2)) return planned;
    return { ...planned, request: { ...request, program: chance.pick([renamed, removed]) } };
  });
  const cancels = Array.from({ length: 10 }, () => ({
    at: chance.between(2_000, TROUBLE_MS),
    process: chance.int(PROCESS_NAMES.length),
    request: { ask: "cancel", which: chance.next() } as const,
    manner: null,
  }));
  return {
    ...plan,
    changes: {
      names: new Map([["n0", { fate: "rename", isDeclared: false }], ["n3", { fate: "remove", isDeclared: false }]]),
      versions: { imports: "same", reports: "same", mails: "same" },
      lastDeployMs: 7_000,
      signalsMs: 4_000,
      resumptions: [],
    },
    requests: [...requests, ...cancels],
    faults: [
      ...plan.faults.filter(({ fault }) => fault.fault !== "stop"),
      ...PROCESS_NAMES.map((_, process) => deploy(1_000 + 100 * process, process, 2, chance)),
    ],
  };
}

function changeAtRandom(plan: Plan, seed: number): Plan {
  const chance = new Chance(seed, "changes");
  const share = chance.pick([0.2, 0.5, 0.9]);
  const declared = chance.pick([0, 0.5, 1]);
  // Some fates alone show what they do.
  const fates = FATES.filter(() => chance.happens(0.5));
  const names = new Map<string, NameChange>();
  for (let name = 0; name < MAX_NAMES && fates.length > 0; name++) {
    const change = { fate: chance.pick(fates), isDeclared: chance.happens(declared) };
    if (chance.happens(share)) names.set(`n${name}`, change);
  }
  const style = chance.pick([null, null, "same", "same", "same"] as const);
  const styles = ["same", "continues", "strict", "strict", "previous"] as const;
  const versions = Object.fromEntries(
    JOB_NAMES.map((name) => [name, style ?? chance.pick(styles)]),
  ) as ChangePlan["versions"]; // has all names
  const lastDeployMs = chance.pick([2_500, 2_500, 7_000]);
  // Late enough to meet held runs, or as without changes.
  const signalsMs = chance.pick([SIGNALS_MS, lastDeployMs - 600]);
  return {
    ...plan,
    changes: {
      names,
      versions,
      lastDeployMs,
      signalsMs,
      resumptions: makeResumptions(chance),
    },
    requests: plan.requests.map((planned, no) => withWait(planned, new Chance(seed, "changes", no))),
    faults: [...plan.faults, ...makeDeploys(chance)],
  };
}

/** Some programs wait beside all that they do, so that a held run has a wait that a signal can end. */
function withWait(planned: Plan["requests"][number], chance: Chance): Plan["requests"][number] {
  const { request } = planned;
  if (request.ask !== "trigger" || chance.happens(0.7)) return planned;
  const wait: Program = [{ do: "wait", name: LATE_WAIT, timeout: null }];
  return { ...planned, request: { ...request, program: [{ do: "all", branches: [request.program, wait] }] } };
}

function makeDeploys(chance: Chance): Plan["faults"] {
  const some = Array.from(
    { length: 4 + chance.int(6) },
    () => deploy(TROUBLE_MS * chance.next(), chance.int(PROCESS_NAMES.length), chance.pick([1, 2, 2] as const), chance),
  );
  // A whole deploy, one process after the other: after it nobody has the first code.
  const at = TROUBLE_MS * chance.between(0.5, 0.8);
  const all = PROCESS_NAMES.map((_, process) => deploy(at + 250 * process, process, 2, chance));
  return chance.happens(0.4) ? [...some.filter((other) => other.at < at), ...all] : some;
}

/** A process is stopped, and comes back with a code. */
function deploy(at: number, process: number, version: 1 | 2, chance: Chance): Plan["faults"][number] {
  const timeout = chance.pick([0, 50, 400]);
  return { at, fault: { fault: "stop", process, timeout, downMs: chance.between(1, 300), without: null, version } };
}

/** Clients that resume held runs. */
function makeResumptions(chance: Chance): ChangePlan["resumptions"] {
  return Array.from({ length: chance.happens(0.6) ? 1 + chance.int(6) : 0 }, () => ({
    afterMs: chance.between(0, 2_400),
    request: { ask: "resume", which: chance.next(), continues: chance.happens(0.4) },
  }));
}

/** What the definition of a job says about versions and changes in a code, but for `previous`. */
export function definitionOf(
  { names, versions }: ChangePlan,
  jobName: string,
  code: Code,
): Omit<ChangeDefinition, "previous"> {
  const style = styleOf(versions, jobName);
  const earlier = { continues: [1, 2], strict: [1, 2], previous: [2], same: [] }[style];
  return {
    version: style === "same" ? 1 : code,
    ...(code === 3 || (code === 2 && style === "continues") ? { continues: earlier.filter((one) => one < code) } : {}),
    ...(code === 1 ? {} : { changes: changesOf(names, code) }),
  };
}

function changesOf(names: ChangePlan["names"], code: Code): NonNullable<ChangeDefinition["changes"]> {
  const renamed: Record<string, string> = {};
  const removed: string[] = [];
  const added: string[] = [];
  for (const [name, { fate, isDeclared }] of names) {
    if (!isDeclared && code !== LAST_CODE) continue;
    if (fate === "rename") renamed[name] = renamedTo(name);
    if (fate === "remove") removed.push(name);
    const isPatch = fate === "patch before" && code === LAST_CODE; // an old worker may have gone past the patch
    if (fate === "add before" || fate === "add after" || isPatch) added.push(addedAt(name));
    if (fate === "move to the front") added.push(name);
    if (fate === "change kind" && code === LAST_CODE) {
      removed.push(name);
      added.push(changedKind(name));
    }
  }
  return { renamed, removed, added };
}

/** The name that an action gets when it is renamed. */
export function renamedTo(name: string): string {
  return `renamed ${name}`;
}

/** The name of a step that is added beside an action. */
export function addedAt(name: string): string {
  return `added at ${name}`;
}

/** The name that an action of another kind has in the last code. */
export function changedKind(name: string): string {
  return `changed ${name}`;
}

/** The name that an action had before it was renamed. */
export function identityOf(name: string): string {
  return name.replace(/^renamed /, "");
}

/** The code whose program and definition execute the runs of a version in a process. */
export function executingCode({ versions }: ChangePlan, jobName: string, version: number, code: Code): Code {
  return styleOf(versions, jobName) === "previous" && version === 1 ? 1 : code;
}

/** A job that only children have is always the same. */
function styleOf(versions: ChangePlan["versions"], jobName: string): VersionStyle {
  return versions[jobName as keyof ChangePlan["versions"]] ?? "same";
}
