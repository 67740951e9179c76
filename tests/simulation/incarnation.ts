import type { EngineEvent, RunEvent } from "../../src/model/event.ts";
import type { Fact } from "../../src/model/fact.ts";
import type { Lease } from "../../src/model/lease.ts";
import type { SavedStep, StepWrite } from "../../src/model/step.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending } from "../../src/store/claim.ts";
import type { NewHold } from "../../src/store/hold_record.ts";
import type { Enqueued, NewRun } from "../../src/store/new_run.ts";
import type { Firing } from "../../src/store/schedule_record.ts";
import type { PauseRequest, PauseResult } from "../../src/store/pause_request.ts";
import type { SendOutcome, SendRequest } from "../../src/store/send_request.ts";
import type { RunState } from "../../src/store/run_query.ts";
import type { Cursor, JournalPage } from "../../src/model/journal.ts";
import type { Run, RunIdentity } from "../../src/model/run.ts";
import { endRunId } from "../../src/model/end.ts";
import { LeaseLostError, StoreError } from "../../src/model/error.ts";
import { failureText } from "../../src/model/failure.ts";
import { isoTime } from "../../src/values/iso_time.ts";
import type { Code } from "./changes_plan.ts";
import { Body } from "./body.ts";
import type { Call } from "./check_calls.ts";
import { checkLeft, isLook } from "./end_facts.ts";
import { attemptKey, type Facts, type RunFacts } from "./facts.ts";
import type { SimProcess } from "./sim_process.ts";

// Told by whoever did it, after some more reading.
const TOLD_LATER = new Set(["run:cancel", "step:cancel"]);

// How long after it was made a report is kept, in milliseconds, apart from the way to the store: it waits for 20 ms, and
// then, if others were sent a moment ago, for 100 ms.
const REPORT_KEPT_MS = 125;
// How many claims may find nothing although nothing has changed, beside those of a worker that polls.
const IDLE_CLAIMS = 8;
// A worker looks when it has slept, and as often because it asks whether the store has changed.
const LOOKS = 2;
// How late a timer of a worker may be, in milliseconds.
const TIMER_MS = 5;
// After so long without trouble no answer is late any more.
const LATE_ANSWERS_MS = 2_000;

/**
 * One incarnation of a process, from its start to its end: records its commits and the answers it received, and checks
 * its events and executions against them.
 */
export class Incarnation {
  readonly process: SimProcess;
  readonly label: string;
  /** Which code it executes. */
  readonly version: Code;
  /** The states of runs and the places in the journal that the store has answered it, in that order. */
  readonly states: RunState[] = [];
  readonly places: Cursor[] = [];
  /** The parts of the journal that it has read and that did not reach its end: from where, up to where, and when. */
  readonly partialPages: { after: number; upTo: number; at: number }[] = [];
  readonly #facts: Facts;
  /** The newest lease of each run that an answer has brought. */
  readonly #held = new Map<string, number>();
  /** Leases of which an answer has said that they are lost. */
  readonly #lost = new Set<string>();
  /** Events that a commit has made true. */
  readonly #true = new Set<string>();
  /** Events that have to be told by now. */
  #due: string[] = [];
  #isStopping = false;
  /** Until when it lets jobs go on while it stops, on the clock that never jumps. */
  #stopsAt = Infinity;
  readonly #told = new Set<string>();
  /** The number of the execution under each lease. */
  readonly #executions = new Map<string, number>();
  /** Under which lease the steps were recorded that are told. */
  readonly #savedUnder = new Map<string, number>();
  /** The leases of the runs that were failed here as late: steps that were recorded before may be told afterwards. */
  readonly #late = new Set<string>();
  /** How much of an execution was told, by lease. */
  readonly #phases = new Map<string, "leased" | "started" | "over">();
  /** Runs of which an answer has said that they were cancelled from here. */
  readonly #cancelled = new Set<string>();
  /** Attempts that were told and not begun. */
  readonly #starts = new Set<string>();
  readonly #startsTold = new Set<string>();
  /** Whether its worker polls for work. */
  polls = false;
  /** Since when its claims find nothing and nothing changes, and how many they were. */
  #idleSince: number | null = null;
  #idleClaims = 0;
  #isAnswered = false;
  #lastSequence = 0;
  #values = 0;

  /** Begins with the start of a process. */
  constructor(process: SimProcess, facts: Facts, version: Code) {
    this.process = process;
    this.version = version;
    this.label = process.label;
    this.#facts = facts;
  }

  /** A call of this incarnation was committed. */
  noteCommit(call: Call): void {
    if ("value" in call.outcome && call.outcome.value !== null) {
      if (call.method === "getRunState") this.states.push(call.outcome.value as RunState);
      if (call.method === "readJournal") {
        const { rows, end } = call.outcome.value as JournalPage;
        const { position: upTo } = rows.at(-1) ?? end;
        const after = call.parameters[0] as number;
        if (upTo < end.position) this.partialPages.push({ after, upTo, at: call.now });
      }
      if (call.method === "findCursor") this.places.push(call.outcome.value as Cursor);
    }
    for (const token of tokensOf(call)) {
      this.#true.add(token);
      const [type, runId] = token.split(" ") as [string, string];
      if (/^run:(complete|fail|cancel)$/.test(type)) this.#true.add(`run:trigger ${endRunId(runId)}`);
      if (call.method === "saveStep") this.#savedUnder.set(token, (call.parameters[0] as Lease).generation);
    }
  }

  /** The answer to a call reaches this incarnation. */
  noteAnswer(call: Call): void {
    const { method, parameters, outcome } = call;
    this.#isAnswered = true;
    if ("error" in outcome) {
      if (outcome.error instanceof LeaseLostError) this.#lost.add(leaseKey(parameters[0] as Lease));
      return;
    }
    if (method === "claim") {
      for (const { lease, execution, finishInMs } of (outcome.value as ClaimResult).claims) {
        this.#held.set(lease.runId, lease.generation);
        if (finishInMs !== null) {
          this.#facts.run(lease.runId).lateAt.set(lease.generation, this.process.world.now + finishInMs);
        }
        this.#executions.set(leaseKey(lease), execution);
      }
    }
    if (method === "claim") { for (const { id } of (outcome.value as ClaimResult).cancelled) this.#cancelled.add(id); }
    if (method === "cancel" && outcome.value !== null) this.#cancelled.add(parameters[0] as string);
    if (method === "getLostLeases") { for (const lease of outcome.value as Lease[]) this.#lost.add(leaseKey(lease)); }
    if (method === "renew") {
      const renewals = parameters[0] as { lease: Lease }[];
      (outcome.value as (number | null)[]).forEach((end, at) => {
        if (end === null) this.#lost.add(leaseKey(renewals[at]!.lease));
      });
    }
    if ((method === "pause" || method === "hold") && this.#isSuperseded(parameters[0] as Lease)) return;
    const due = tokensOf(call).filter((token) => !TOLD_LATER.has(token.split(" ")[0]!));
    this.#due.push(...due.filter((token) => method !== "claim" || !this.#mayGiveBack(token.split(" ")[1]!)));
  }

  /** A claim has found nothing: while nothing changes, the next one comes when the worker polls again. */
  noteIdleClaim(changedAt: number): void {
    const { now } = this.process.world;
    if (this.#idleSince === null || changedAt >= this.#idleSince) {
      this.#idleSince = now;
      this.#idleClaims = 0;
    }
    this.#idleClaims += 1;
    if (!this.polls || !this.isWorking) return;
    const { idleMs } = this.#facts;
    const passedMs = now - this.#idleSince;
    if (this.#idleClaims === IDLE_CLAIMS && this.#facts.open().length > 0) {
      this.#facts.notice("a worker was idle while runs could not start");
    }
    this.#facts.expect(
      this.#idleClaims - IDLE_CLAIMS <= LOOKS * passedMs / (0.8 * idleMs),
      "F12",
      () => `${this.label} has claimed ${this.#idleClaims} times in ${passedMs} ms, and found nothing each time`,
    );
  }

  /** A worker records nothing in a run that is late. */
  checkInTime({ runId, generation }: Lease): void {
    const { pausedUntil, world } = this.process;
    const lateAt = this.#facts.run(runId).lateAt.get(generation) ?? Infinity;
    this.#facts.expect(
      // What a stop interrupts may still be recorded for a moment.
      pausedUntil > lateAt || world.now >= this.#stopsAt || world.now <= lateAt + this.#facts.latency + TIMER_MS,
      "F8",
      () => `${this.label} has recorded a step of ${runId} ${world.now - lateAt} ms after its end`,
    );
  }

  /** Whether it lives and nobody has told it to stop. */
  get isWorking(): boolean {
    return !this.#isStopping && this.process.label === this.label;
  }

  /** The engine is told to stop. */
  noteStopping(timeout: number): void {
    this.#isStopping = true;
    this.#stopsAt = Math.min(this.#stopsAt, this.process.world.now + timeout);
  }

  /** A lease is not released while code of the job still runs here, unless the engine has stopped. */
  checkRelease({ runId, generation }: Lease): void {
    if (this.process.world.now >= this.#stopsAt) return;
    if (this.#facts.run(runId).hasEnded) checkLeft(this.#facts, this.#facts.run(runId), generation);
    for (const { run, generation: other, label, isOutside } of this.#facts.outside) {
      if (label !== this.label || run.request.id !== runId || other !== generation) continue;
      this.#facts.expect(
        !isOutside(),
        "I23",
        () => `${this.label} releases lease ${generation} on ${runId} while its job runs outside of steps`,
      );
    }
  }

  /** Notes what an execution has reported: when nothing goes wrong, the journal tells it soon. */
  #noteReport(run: RunFacts, generation: number, event: RunEvent): void {
    const { process, label } = this;
    const { world } = process;
    const at = world.now;
    if (event.type === "run:progress" && (run.reported?.generation ?? 0) <= generation) {
      run.reported = { progress: JSON.stringify(event.progress), generation };
    }
    const { calmSince } = this.#facts;
    if (calmSince === null || at - calmSince < LATE_ANSWERS_MS) return;
    world.after(REPORT_KEPT_MS + this.#facts.latency, null, () => {
      const isOver = run.state?.run.status !== "running" || run.state.run.leaseGeneration !== generation ||
        process.label !== label || process.pausedUntil > at;
      this.#facts.expect(
        isOver || run.entries.some(({ fact }) => tellsOf(fact, event)),
        "I22",
        () =>
          `${label} has reported ${JSON.stringify(event)} ${world.now - at} ms ago, and the journal does not tell it`,
      );
    });
  }

  /** Whether a run that a claim has brought may be given back without a word: cancelled or stopped meanwhile. */
  #mayGiveBack(runId: string): boolean {
    return this.#isStopping || this.#cancelled.has(runId);
  }

  /** Whether the run of a lease was cancelled or taken up again before an answer came that tells of that lease. */
  #isSuperseded({ runId, generation }: Lease): boolean {
    const { isCancelled, isDeleted } = this.#facts.run(runId);
    return isCancelled || isDeleted || this.#held.get(runId) !== generation;
  }

  /** Everything that an answer makes known has been told when all that follows from it is done. */
  checkTold(): void {
    for (const token of this.#due) {
      this.#facts.expect(this.#told.has(token), "I17", () => `${this.label} has not told ${token}`);
    }
    this.#due = [];
    for (const start of this.#starts) {
      this.#facts.violate("I17", `${this.label} tells of ${start}, which has not begun`);
    }
    if (this.#isAnswered) this.#checkInterruptions();
    this.#isAnswered = false;
  }

  /** The engine of this incarnation says something. */
  hear(event: EngineEvent): void {
    const { type, sequence } = event;
    this.#facts.expect(
      sequence > this.#lastSequence,
      "I17",
      () => `${this.label} gives ${type} the sequence ${sequence} after ${this.#lastSequence}`,
    );
    this.#lastSequence = sequence;
    if (type === "worker:error") return this.#checkComplaint(event.error);
    if (type === "worker:stranded") this.#facts.notice("a process told of stranded runs");
    if (!("runId" in event)) return;
    const { runId } = event;
    const run = this.#facts.runs.get(runId)?.request;
    this.#facts.expect(
      run !== undefined && run.jobName === event.jobName && JSON.stringify(run.labels) === JSON.stringify(event.labels),
      "I17",
      () => `${this.label} tells ${type} of a ${event.jobName} run ${runId} with ${JSON.stringify(event.labels)}`,
    );
    const generation = this.#held.get(runId) ?? 0;
    if (isOfExecution(event)) {
      const isLost = this.#lost.has(`${runId} ${generation}`);
      this.#facts.expect(!isLost, "I17", () => `${this.label} tells ${type} of ${runId} after its lease was lost`);
      this.#noteReport(this.#facts.run(runId), generation, event);
    }
    if (type === "step:start") {
      const run = this.#facts.run(runId);
      const isCall = run.calls.has(event.stepName) || isLook(run, event.stepName);
      this.#noteStart(`${runId} ${attemptKey(generation, event.stepName, event.attempt)}`, isCall);
    }
    const token = this.#tokenOf(event, generation);
    // A step that was recorded under a former lease may be told late: when its answer comes.
    this.#checkPhase(event, this.#savedUnder.get(token ?? "") ?? generation);
    if (token === null) return;
    this.#facts.expect(this.#true.has(token), "I17", () => `${this.label} tells ${token}, which was not committed`);
    const isNew = !this.#told.has(token);
    // A step that triggers a run publishes it again if it is executed again because it was not recorded.
    const isOfStep = type === "run:trigger" && this.#facts.triggeredBySteps.has(runId);
    const isOfHold = type === "run:resume" || type === "run:hold";
    const mayRepeat = type === "run:coalesced" || isOfStep || isOfHold || token.endsWith(RETRY);
    this.#facts.expect(isNew || mayRepeat, "I17", () => `${this.label} tells ${token} twice`);
    this.#told.add(token);
  }

  /** A worker complains of the store and of the machine, and of nothing else. */
  #checkComplaint(error: unknown): void {
    const message = error instanceof Error ? error.message : "";
    // Its end run was cancelled, and it was deleted, before the worker came to know.
    const [, deletedId] = /^There is no run "(.*)" any more, after which to clean up$/.exec(message) ?? [];
    const isFitting = error instanceof StoreError || message.startsWith("The event loop was blocked") ||
      (deletedId !== undefined && this.#facts.run(deletedId).isDeleted);
    this.#facts.expect(isFitting, "I11", () => `${this.label} complains: ${(error as Error)?.stack ?? error}`);
  }

  /** What is told of an execution comes in the order of a run's life. */
  #checkPhase(event: RunEvent, generation: number): void {
    const { type, runId } = event;
    const key = `${runId} ${generation}`;
    const phase = this.#phases.get(key);
    // These are told by whoever finds it, held or not.
    const isFound = type === "run:fail" && (event.failureKind === "abandoned" || event.failureKind === "expired");
    if (isFound || (type === "run:fail" && event.failureKind === "timeout" && phase !== "started")) return;
    const [expected, next] = PHASES[type] ?? [];
    if (expected === undefined) return;
    if (type === "run:fail" && event.failureKind === "timeout") this.#late.add(key);
    if (this.#late.has(key) && (type === "step:complete" || type === "step:fail")) return;
    // A run that a stopping worker gives back unstarted may have parked here just before.
    if (phase === undefined && type === "run:waiting" && this.#mayGiveBack(runId)) return;
    this.#facts.expect(
      phase === expected || (expected === "new" && phase === undefined) || (phase === "over" && type === "run:waiting"),
      "I17",
      () => `${this.label} tells ${type} of ${runId} when lease ${generation} is ${phase}`,
    );
    if (next !== undefined) this.#phases.set(key, next);
  }

  #noteStart(start: string, isCall: boolean): void {
    this.#facts.expect(!this.#startsTold.has(start), "I17", () => `${this.label} tells the start of ${start} twice`);
    this.#startsTold.add(start);
    if (!isCall) this.#starts.add(start);
  }

  /** The text of an event, or `null` for one that tells of no commit. */
  #tokenOf(event: RunEvent, generation: number): string | null {
    if (event.type !== "run:waiting") return tokenOf(event, generation);
    // The store may answer a pause late. By then the worker may have claimed the run again, under a newer lease.
    const leases = Array.from({ length: generation }, (_, at) => generation - at);
    const token = leases.map((lease) => tokenOf(event, lease)!).find((token) => this.#true.has(token));
    // Which step waits for another attempt is not said to the store.
    return token ?? `run:waiting ${event.runId} ${generation}${RETRY}`;
  }

  /** A function of a job is entered. */
  enter(runId: string, execution: number, code: Code): Body {
    const run = this.#facts.run(runId);
    const generation = this.#held.get(runId) ?? 0;
    const expected = this.#executions.get(`${runId} ${generation}`);
    this.#facts.expect(
      execution === expected,
      "I10",
      () => `${this.label} enters execution ${execution} of ${runId}, claimed was ${expected}`,
    );
    return new Body(this.#facts, this, run, generation, code);
  }

  /** A value that no step had before. */
  newValue(): string {
    return `${this.label}/${this.#values++}`;
  }

  /** Judges whether this incarnation may begin an attempt: it has told of it, and knows of nothing against it. */
  checkStart(run: RunFacts, generation: number, name: string, attempt: number): void {
    const { id } = run.request;
    const start = `${id} ${attemptKey(generation, name, attempt)}`;
    this.#facts.expect(this.#starts.delete(start), "I17", () => `${this.label} has not told the start of ${start}`);
    this.#facts.expect(
      !this.#lost.has(`${id} ${generation}`),
      "I1",
      () => `${this.label} begins ${name} of ${id} although it knows that lease ${generation} is lost`,
    );
    this.#facts.expect(
      !this.#cancelled.has(id),
      "I13",
      () => `${this.label} begins ${name} of ${id}, which it has cancelled itself`,
    );
  }

  /** After a stop no function of a step goes on that was not told to end. */
  checkStopped(): void {
    for (const { run, name, label, abortSignal } of this.#facts.executing) {
      if (label !== this.label) continue;
      this.#facts.expect(
        abortSignal.aborted,
        "I23",
        () => `${label} has stopped, and ${name} of ${run.request.id} was not told`,
      );
    }
  }

  /** Whatever is executed here and cannot count any more, as an answer has said, has been told. */
  #checkInterruptions(): void {
    for (const { run: { request: { id } }, name, generation, label, abortSignal } of this.#facts.executing) {
      if (label !== this.label || abortSignal.aborted) continue;
      const why = this.#cancelled.has(id)
        ? "was cancelled here"
        : this.#lost.has(`${id} ${generation}`)
        ? `has lost lease ${generation}`
        : this.#held.get(id) !== generation
        ? `was taken up again under lease ${this.#held.get(id)}`
        : null;
      this.#facts.expect(why === null, "I13", () => `${id} ${why}, and in ${label} its ${name} was not told`);
    }
  }
}

function leaseKey({ runId, generation }: Lease): string {
  return `${runId} ${generation}`;
}

/** Whether a fact is that of a report; the beginning of an attempt may be told with its end. */
function tellsOf(fact: Fact, event: RunEvent): boolean {
  switch (fact[1]) {
    case "progressed":
      return event.type === "run:progress" && JSON.stringify(fact[3]) === JSON.stringify(event.progress);
    case "logged":
      return event.type === "log:write" && isoTime(fact[2]) === event.timestamp && fact[5] === event.message;
    case "step_started":
      return event.type === "step:start" && fact[3] === event.stepName && fact[5] === event.attempt;
    case "step_completed":
    case "step_failed":
      return event.type === "step:start" && fact[2] === event.stepName && fact[4] === event.attempt;
    default:
      return false;
  }
}

/** Whether an event tells of what an execution does, and not of what was committed. */
function isOfExecution({ type }: RunEvent): boolean {
  return type === "step:start" || type === "run:progress" || type === "log:write";
}

/** What has to be told of a lease before an event, and what the event makes of it. */
const PHASES: { [type in RunEvent["type"]]?: ["new" | "leased" | "started", ("leased" | "started" | "over")?] } = {
  "run:leased": ["new", "leased"],
  "run:start": ["leased", "started"],
  "step:start": ["started"],
  "step:complete": ["started"],
  "step:fail": ["started"],
  "run:progress": ["started"],
  "log:write": ["started"],
  "run:waiting": ["started", "over"],
  "run:hold": ["started", "over"],
  "run:complete": ["started", "over"],
  "run:fail": ["started", "over"],
};

const RETRY = " for a retry";

/** The events that a committed call makes true, each as a text. */
function tokensOf({ method, parameters, outcome }: Call): string[] {
  if ("error" in outcome) return [];
  switch (method) {
    case "enqueue":
      return (outcome.value as Enqueued[]).flatMap((one, at) => enqueuedTokens((parameters[0] as NewRun[])[at]!, one));
    case "fireSchedule": {
      const fired = outcome.value as { run: Enqueued | null } | null;
      const { run } = parameters[0] as Firing;
      return fired?.run == null || run === null ? [] : enqueuedTokens(run, fired.run);
    }
    case "send": {
      const { start } = parameters[0] as SendRequest;
      const sent = outcome.value as SendOutcome;
      return start === null || "changed" in sent || sent.started === null ? [] : enqueuedTokens(start, sent.started);
    }
    case "claim": {
      const { claims, failed, cancelled } = outcome.value as ClaimResult;
      const { workerId } = parameters[0] as ClaimRequest;
      return [
        ...claims.flatMap(({ lease, execution, isResumed }) => [
          ...(isResumed ? [`run:resume ${lease.runId}`] : []),
          `run:leased ${leaseKey(lease)} ${workerId}`,
          `run:start ${leaseKey(lease)} ${execution}`,
        ]),
        ...failed.map(({ run, error }) => `run:fail ${run.id} ${error} null`),
        ...cancelled.map(({ id }) => `run:cancel ${id}`),
      ];
    }
    case "saveStep": {
      const [{ runId }, { name, attempts, result }] = parameters as [Lease, StepWrite];
      const saved = outcome.value as SavedStep;
      return result.status === "completed"
        ? [`step:complete ${runId} ${name} ${result.output}`]
        : [`step:fail ${runId} ${name} ${attempts} ${result.failure.message} ${isoTime(saved.retry?.at ?? null)}`];
    }
    case "pause": {
      const [lease, { retryAt }] = parameters as [Lease, PauseRequest];
      const { parked, pauses, created } = outcome.value as PauseResult;
      const triggered = created.map(({ run }) => `run:trigger ${run.id}`);
      if (!parked) return triggered;
      const about = `run:waiting ${leaseKey(lease)}`;
      return [
        ...triggered,
        ...pauses.map(({ id, kind, name, deadlineAt }) =>
          `${about} ${kind === "wait" ? id : null} ${name} ${isoTime(deadlineAt)}`
        ),
        ...(retryAt === null ? [] : [`${about}${RETRY}`]),
      ];
    }
    case "finish": {
      const [{ runId }, ending] = parameters as [Lease, Ending];
      return ending.status === "completed"
        ? [`run:complete ${runId} ${ending.output}`]
        : [`run:fail ${runId} ${failureText(ending.failure)} ${ending.failedStepName}`];
    }
    case "hold": {
      const [{ runId }, { code, message }] = parameters as [Lease, NewHold];
      return [`run:hold ${runId} ${code} ${message}`];
    }
    case "resumeHeld":
      return outcome.value === null ? [] : [`run:resume ${parameters[0]}`];
    case "cancel": {
      const run = outcome.value as Run | null;
      const executing = (parameters[2] as CancelledExecution | null)?.steps ?? [];
      if (run === null) return [];
      return [`run:cancel ${run.id}`, ...executing.map(({ name }) => `step:cancel ${run.id} ${name}`)];
    }
    case "delete": {
      const run = outcome.value as RunIdentity | null;
      return run === null ? [] : [`run:delete ${run.id}`];
    }
    case "purge":
      return (outcome.value as RunIdentity[]).map(({ id }) => `run:delete ${id}`);
    default:
      return [];
  }
}

function enqueuedTokens({ joinOnly }: NewRun, { run: { id }, disposition }: Enqueued): string[] {
  if (disposition === "created") return [`run:trigger ${id}`];
  // Over HTTP a hook is asked first whether the trigger may join the run.
  return disposition === "coalesced" && (joinOnly ?? id) === id ? [`run:coalesced ${id}`] : [];
}

function tokenOf(event: RunEvent, generation: number): string | null {
  const { runId, type } = event;
  switch (type) {
    case "run:leased":
      return `${type} ${runId} ${generation} ${event.leaseOwner}`;
    case "run:start":
      return `${type} ${runId} ${generation} ${event.execution}`;
    case "run:waiting":
      return `${type} ${runId} ${generation} ${event.waitId} ${event.waitName} ${event.deadlineAt}`;
    case "step:complete":
      return `${type} ${runId} ${event.stepName} ${JSON.stringify(event.output)}`;
    case "step:fail":
      return `${type} ${runId} ${event.stepName} ${event.attempt} ${event.error} ${event.retryAt}`;
    case "step:cancel":
      return `${type} ${runId} ${event.stepName}`;
    case "run:complete":
      return `${type} ${runId} ${JSON.stringify(event.output)}`;
    case "run:fail":
      return `${type} ${runId} ${event.error} ${event.failedStepName}`;
    case "run:hold":
      return `${type} ${runId} ${event.code} ${event.message}`;
    case "run:trigger":
    case "run:resume":
    case "run:coalesced":
    case "run:cancel":
    case "run:delete":
      return `${type} ${runId}`;
    default:
      return null;
  }
}
