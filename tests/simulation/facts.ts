import { newStreamFacts, type StreamFacts } from "./stream_facts.ts";
import type { FlowDefinition } from "../../src/model/flow.ts";
import { isTerminal } from "../../src/model/run.ts";
import type { Ending } from "../../src/store/claim.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import type { RunState } from "../../src/store/run_query.ts";
import { deadlineAt, type PauseKind } from "../../src/model/wait.ts";
import type { AskedRun } from "./check_options.ts";
import type { LinkFacts } from "./actor_facts.ts";
import { type ChildPauseFacts, copyChildPauses } from "./child_facts.ts";
import { derivedRunId } from "../../src/model/end.ts";
import { type Folded, newFolded } from "./folded.ts";
import type { Entry } from "./history.ts";
import type { Invariant } from "./invariants.ts";
import { type ChangeFacts, newChangeFacts } from "./change_facts.ts";
import type { ChangePlan } from "./changes_plan.ts";
import { FlowFacts } from "./flow_facts.ts";
import type { InboxFacts } from "./message_facts.ts";
import { undoneSince } from "./end_facts.ts";
import type { Plan } from "./plan.ts";
import { ScheduleFacts } from "./schedule_facts.ts";
import type { Situation } from "./situations.ts";

/** A promise that was broken. */
export class Violation extends Error {
  /** Which invariant. */
  readonly invariant: Invariant;

  /** Makes the report of a broken promise. */
  constructor(invariant: Invariant, message: string) {
    super(`${invariant}: ${message}`);
    this.name = "Violation";
    this.invariant = invariant;
  }
}

/** A step that was recorded, as the first answer to its write said. */
export interface StepFacts {
  index: number;
  attempts: number;
  /** Whether its last attempt has ended. */
  isOver: boolean;
  /** The recorded result. */
  result: string;
  /** Under which lease. */
  generation: number;
  /** When the next attempt may begin at the earliest, by the store's clock and on the one that never jumps. */
  retryAt: number | null;
  notBefore: number | null;
}

/** A wait, as it was first seen. */
export interface WaitFacts {
  id: string;
  name: string;
  runId: string;
  deadlineAt: string | null;
  createdAt: string;
  /** The signal that was accepted, with the receipt that was given for it. */
  accepted: { signalId: string; by: string | null; payload: string; receipt: string } | null;
  /** How it ended, once it has. */
  ending: string | null;
  /** Whether a signal was told that its deadline had passed. */
  isExpired: boolean;
}

/** A wait or a sleep, as it was first answered. */
export interface PauseFacts {
  id: string;
  kind: PauseKind;
  name: string;
  deadlineAt: number | null;
  /** What ended it, once that was answered. */
  resolution: string | null;
}

/** What a function of a step is to do, and what it did, in one attempt. */
export interface AttemptFacts {
  ms: number;
  timeout: number | null;
  maxAttempts: number;
  /** How long to wait before the next one. */
  delayMs: number;
  /** How long it has lasted by now, on the clock that never jumps: longer than `ms` if its process was paused. */
  lastedMs(): number;
  outcome: { value: string } | { thrown: string } | null;
  /** Whether the execution was interrupted before it threw. */
  wasInterrupted: boolean;
}

/** What a run waits for. */
export interface Parking {
  pauses: PauseFacts[];
  retryAt: number | null;
}

/** Everything that the committed history says of a run. */
export interface RunFacts {
  request: NewRun;
  /** What is known of it because its code changes. */
  changed: ChangeFacts;
  /** The run of whose failure it goes on. */
  source: RunFacts | null;
  /** The run that waits for it, and the call; `null`: it is no child. */
  parent: { run: RunFacts; pause: ChildPauseFacts } | null;
  /** Its children, by the name of the call. */
  childPauses: Map<string, ChildPauseFacts>;
  /** What its program asked to be started, by the name of the call. */
  calls: Map<string, AskedRun[]>;
  /** The first run of its chain of retries from the failure. */
  originId: string;
  /** The run after which it cleans up. */
  endOf: RunFacts | null;
  /** The runs that clean up after it: the one that its end has added, and the retries of that. */
  ends: RunFacts[];
  /** The steps that were undone before it was triggered, with the runs that did. */
  undone: ReadonlyMap<string, string>;
  /** Its newest retry. */
  retry: RunFacts | null;
  /** Its place in the order of the triggers. */
  order: number;
  /** Not claimed before this instant, and whether it still waits for that. */
  startAt: number | null;
  isDelayed: boolean;
  /** When it fails unless it has started; `null`: never. */
  startBy: number | null;
  /** When it was first claimed. */
  startedAt: number | null;
  /** When it fails unless it has ended; `null`: never, or it has not started. */
  readonly finishBy: number | null;
  /** When its worker is to fail it, by lease, on the clock that never jumps. */
  lateAt: Map<number, number>;
  /** Whether it was cancelled under a lease that was not released since, and had not expired at any claim. */
  isGhost: boolean;
  /** The newest lease generation that was seen. */
  generation: number;
  /** The newest generation that was claimed. */
  claimedGeneration: number;
  /** By which claim each generation was given out. */
  claimIds: Map<number, string>;
  steps: Map<string, StepFacts>;
  waits: Map<string, WaitFacts>;
  /** Its waits and sleeps by id, as workers were answered. */
  pauses: Map<string, PauseFacts>;
  /** The attempts at its steps, by lease, step and number. */
  attempts: Map<string, AttemptFacts>;
  /** What its function returned or threw, by the generation of the lease. */
  returned: Map<number, string>;
  /** The wait whose signal was accepted last, unless something was recorded since; `isLast`: nothing certainly was. */
  lastAnswer: { waitId: string; isLast: boolean } | null;
  /** How it was ended by a worker. */
  ending: Ending | null;
  /** For how long its program has asked a sleep or a wait to last, by kind and name. */
  asked: Map<string, number | null>;
  /** Until when its sleeps last at least, by name, on the clock that never jumps. */
  sleepsUntil: Map<string, number>;
  /** What it waits for, while it does. */
  parking: Parking | null;
  /** Whether it was due at a claim since it has parked. */
  isWoken: boolean;
  /** The ids of those of the pauses that it has parked on that are over. */
  overPauses: Set<string>;
  /** The lease under which it is executed, as far as calls have said. */
  heldUnder: number | null;
  /** The number of the last report that was kept, by lease. */
  reportNos: Map<number, number>;
  /** Its row number: what facts name it by. */
  seq: number;
  /** Its facts in the journal, and what they show. */
  entries: Entry[];
  folded: Folded;
  /** How often an execution was cut short. */
  interruptions: number;
  /** How often it was claimed since something was last recorded in it. */
  claimsSinceRecord: number;
  /** The leases since then under which its worker held no other run. */
  soleLeases: Set<number>;
  /** Whether it is claimed alone. */
  isClaimedAlone: boolean;
  /** The lease of a claim alone, until something is recorded under it. */
  aloneUnder: number | null;
  /** How often it has killed its process. */
  crashes: number;
  /** When the newest lease ends unless it is renewed, as far as it was not given back. */
  leaseEndsAt: number | null;
  isCancelled: boolean;
  /** Who has triggered it, and who has cancelled it. */
  triggeredBy: string | null;
  cancelledBy: string | null;
  isDeleted: boolean;
  /** What was asked for by somebody who may: "cancel", "delete", "signal" and which. */
  permitted: Set<string>;
  /** Whether it has ended. */
  hasEnded: boolean;
  /** How it was read last, and with its waits and steps as text. */
  state: RunState | null;
  text: string;
  /** Whether something was committed in it since. */
  isUnread: boolean;
  /** The lines that were appended to its log, by id, in order. */
  logIds: Set<string>;
  /** The latest progress that was reported, as JSON, and under which lease. */
  reported: { progress: string; generation: number } | null;
  /** What is known of its messages; `null`: nothing yet. See `inboxOf()`. */
  inbox: InboxFacts | null;
  /** Whether another run has taken its idempotency key. */
  hasLostKey: boolean;
  /** What is known of its stream. */
  streamed: StreamFacts;
  /** What was delivered to its function, in order, by the version of its code: the same in each execution of that. */
  saw: Map<number, string[]>;
}

/** A function of a step that is running. */
export interface Executing {
  run: RunFacts;
  name: string;
  generation: number;
  /** The incarnation of the process in which it runs. */
  label: string;
  abortSignal: AbortSignal;
  /** Whether its attempt has failed because it took too long: what ignores its `abortSignal` is not waited for. */
  hasTimedOut(): boolean;
  isAlive(): boolean;
}

/** An execution of a job's function. */
export interface Outside {
  run: RunFacts;
  generation: number;
  /** The incarnation of the process in which it runs. */
  label: string;
  /** Whether the function does something outside of steps, and waits for nothing of its `step`. */
  isOutside(): boolean;
}

/** What is known of everything, and what has been noticed. */
export class Facts {
  /** How many runs a worker may execute at a time. */
  readonly concurrency: number;
  /** How long the way to a store takes at most, in milliseconds. */
  readonly latency: number;
  /** How the code changes; `null`: it does not. */
  readonly changes: ChangePlan | null;
  /** How the runs of jobs are cleaned up after; `null`: they are not. */
  readonly ends: Plan["ends"];
  /** What the versions of the code say about each job. */
  readonly definitions: { [jobName: string]: readonly FlowDefinition[] } | null;
  /** What was asked for, by payload. */
  readonly askedRuns = new Map<string, AskedRun[]>();
  /** How long a worker that has nothing to do waits at least until it looks again, in milliseconds. */
  readonly idleMs: number;
  readonly runs = new Map<string, RunFacts>();
  readonly waits = new Map<string, WaitFacts>();
  readonly situations = new Map<Situation, number>();
  /** What is known of schedules. */
  readonly schedules = new ScheduleFacts();
  /** What is known of limits, pauses of jobs and turns. */
  readonly flow = new FlowFacts();
  /** How often a run with a payload was asked for. */
  readonly #asked = new Map<string | null, number>();
  /** The ids of the runs that steps trigger. */
  readonly triggeredBySteps = new Set<string>();
  /** Who has asked for which trigger. */
  readonly deeds = new Set<string>();
  /** The links that were sent, by the `signalId` of their answers. */
  readonly links = new Map<string, LinkFacts>();
  /** How often one was made. */
  readonly #made = new Map<string | null, number>();
  /** Which runs clients may change because they change many: also those that were made a moment before. */
  readonly bulkFilters: { operation: string; matches: (run: RunFacts) => boolean }[] = [];
  /** How many runs there were, at most, when clients began to retrigger many. */
  readonly bulkRetriggers: number[] = [];
  /** How many calls that may write were carried out. */
  writes = 0;
  /** The claims that were carried out. */
  readonly claimIds = new Set<string>();
  /** How often the wall clock was set forward. */
  forwardJumps = 0;
  /** How often it was set at all. */
  jumps = 0;
  /** The functions of steps that are running, in processes that live. */
  readonly executing = new Set<Executing>();
  /** The executions that do something outside of steps, or did. */
  readonly outside = new Set<Outside>();
  /** Since when nothing goes wrong any more, on the clock that never jumps. */
  calmSince: number | null = null;
  violation: Violation | null = null;

  /** Knows of nothing yet. */
  constructor(
    { worker, reliability, flow, changes, ends }: Pick<Plan, "worker" | "reliability" | "flow" | "changes" | "ends">,
  ) {
    this.ends = ends;
    this.changes = changes;
    this.definitions = flow?.jobs ?? null;
    this.concurrency = worker.concurrency;
    this.latency = reliability.latency;
    this.idleMs = Math.min(0.9 * worker.pollingInterval, worker.staleThreshold / 3);
  }

  /** Reports that a promise is broken; the first report counts. */
  violate(invariant: Invariant, message: string): void {
    this.violation ??= new Violation(invariant, message);
  }

  /** Reports a broken promise unless `holds`. */
  expect(holds: boolean, invariant: Invariant, message: () => string): void {
    if (!holds) this.violate(invariant, message());
  }

  /** A client is about to ask for a run with a payload. */
  noteAsked(payload: string | null): void {
    this.#asked.set(payload, (this.#asked.get(payload) ?? 0) + 1);
  }

  /** The same, with the options. */
  noteAskedRun(asked: AskedRun): void {
    this.noteAsked(asked.payload);
    this.askedRuns.set(asked.payload, [...this.askedRuns.get(asked.payload) ?? [], asked]);
  }

  /** A step is about to trigger a run: one, however often it is executed. */
  noteTrigger(originId: string, stepKey: string, asked: AskedRun): void {
    const runId = derivedRunId(originId, stepKey);
    if (this.triggeredBySteps.has(runId)) return;
    this.triggeredBySteps.add(runId);
    this.noteAskedRun(asked);
  }

  /** One was made: not more often than it was asked for. */
  noteMade({ id, payload }: NewRun): void {
    const made = (this.#made.get(payload) ?? 0) + 1;
    this.#made.set(payload, made);
    const asked = this.#asked.get(payload) ?? 0;
    this.expect(made <= asked, "I12", () => `${id} is the ${made}th run of its kind, asked for were ${asked}`);
  }

  /** Counts a situation. */
  notice(situation: Situation): void {
    this.situations.set(situation, (this.situations.get(situation) ?? 0) + 1);
  }

  /** A run that has to be known. */
  run(runId: string): RunFacts {
    const run = this.runs.get(runId);
    if (run === undefined) throw new Violation("I12", `run ${runId} comes out of nowhere`);
    return run;
  }

  /** The runs that exist. */
  existing(): RunFacts[] {
    return [...this.runs.values()].filter(({ isDeleted }) => !isDeleted);
  }

  /** Whether somebody who may has asked for a change of a run. */
  isPermitted(run: RunFacts, operation: "cancel" | "delete"): boolean {
    return run.permitted.has(operation) ||
      this.bulkFilters.some((bulk) => bulk.operation === operation && bulk.matches(run));
  }

  /** The runs that exist and have not ended. */
  open(): RunFacts[] {
    return this.existing().filter((run) => !run.hasEnded);
  }

  /** The runs that were not read yet as they ended. */
  changeable(): RunFacts[] {
    return this.existing().filter(({ state }) => state === null || !isTerminal(state.run.status));
  }
}

/**
 * What is known of a run that was just triggered.
 *
 * @param source The run of whose failure it goes on.
 */
export function newRunFacts(request: NewRun, facts: Facts, source: RunFacts | null, createdAt: number): RunFacts {
  const { start, startWithin, finishWithin } = request.flow;
  const startAt = deadlineAt(start, createdAt);
  const undone = source === null ? new Map<string, string>() : undoneSince(facts, source);
  const copied = [...source?.steps ?? []].filter(([name, { isOver, result }]) =>
    isOver && result.includes('"completed"') && !undone.has(name)
  );
  return {
    request,
    changed: newChangeFacts(source?.changed ?? null),
    source,
    parent: null,
    childPauses: source === null ? new Map() : copyChildPauses(source),
    calls: new Map(),
    originId: source?.originId ?? request.id,
    endOf: null,
    ends: [],
    undone: new Map([...source?.undone ?? [], ...undone]),
    retry: null,
    order: facts.runs.size,
    startAt,
    isDelayed: startAt !== null && startAt > createdAt,
    startBy: startWithin === null ? null : Math.max(startAt ?? createdAt, createdAt) + startWithin,
    startedAt: null,
    get finishBy() {
      return finishWithin === null || this.startedAt === null ? null : this.startedAt + finishWithin;
    },
    lateAt: new Map(),
    isGhost: false,
    generation: 0,
    claimedGeneration: 0,
    claimIds: new Map(),
    steps: new Map(copied),
    waits: new Map(),
    pauses: new Map(),
    attempts: new Map(),
    returned: new Map(),
    asked: new Map(),
    sleepsUntil: new Map(),
    lastAnswer: null,
    ending: null,
    parking: null,
    isWoken: false,
    overPauses: new Set(),
    heldUnder: null,
    reportNos: new Map(),
    seq: 0,
    entries: [],
    folded: newFolded(copied),
    interruptions: 0,
    claimsSinceRecord: 0,
    soleLeases: new Set(),
    isClaimedAlone: false,
    aloneUnder: null,
    crashes: 0,
    leaseEndsAt: null,
    isCancelled: false,
    triggeredBy: null,
    cancelledBy: null,
    permitted: new Set(),
    isDeleted: false,
    hasEnded: false,
    state: null,
    text: "",
    isUnread: true,
    logIds: new Set(),
    reported: null,
    inbox: null,
    hasLostKey: false,
    streamed: newStreamFacts(source, undone),
    saw: new Map(),
  };
}

/** Notes that nobody executes a run any more that has not paused: it is claimed alone if that was so twice in a row. */
export function noteAbandoned(run: RunFacts): void {
  run.isClaimedAlone = run.claimsSinceRecord >= 2;
}

/** The name of an attempt at a step. */
export function attemptKey(generation: number, stepName: string, attempt: number): string {
  return `${generation} ${stepName} ${attempt}`;
}

/** The waits that a signal to this one may be for: itself, and those of its name in retries from the failure. */
export function addresseesOf(facts: Facts, { id, name, runId }: WaitFacts): WaitFacts[] {
  const isOfRetry = (wait: WaitFacts) => {
    for (let run = facts.run(wait.runId).source; run !== null; run = run.source) {
      if (run.request.id === runId) return true;
    }
    return false;
  };
  return [...facts.waits.values()].filter((wait) => wait.id === id || wait.name === name && isOfRetry(wait));
}

/** Whether somebody who may has sent a signal to a wait, or to one of its name in a run that was retried. */
export function isSignalPermitted(facts: Facts, { runId }: WaitFacts, signalId: string): boolean {
  for (let run: RunFacts | null = facts.run(runId); run !== null; run = run.source) {
    if (run.permitted.has(`signal ${signalId}`)) return true;
  }
  return false;
}

/** Whether one of the things that a run waits for has come: a signal, or by this clock, or an earlier one, its time. */
export function isDue(facts: Facts, run: RunFacts, now: number): boolean {
  const { parking } = run;
  if (parking === null) return false;
  return (parking.retryAt !== null && parking.retryAt <= now) || !isAsleep(run) ||
    parking.pauses.some((pause) =>
      (pause.deadlineAt !== null && pause.deadlineAt <= now) || run.inbox?.over.has(pause.id) ||
      facts.waits.get(pause.id)?.accepted != null ||
      hasChildrenOver(run, pause)
    );
}

/** Whether a run waits for children, and all of them have ended. */
export function hasChildrenOver({ childPauses }: RunFacts, { kind, name }: PauseFacts): boolean {
  return kind === "children" && childPauses.get(name)?.isOver === true;
}

/** Whether a run that waits still waits for all that it has parked on: what is over once stays so, whatever the clock does. */
export function isAsleep({ parking, overPauses }: RunFacts): boolean {
  return parking!.pauses.every(({ id }) => !overPauses.has(id));
}
