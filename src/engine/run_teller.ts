import { isLastEvent, type RunEvent, type RunHappening } from "../event.ts";
import type { Lease } from "../lease.ts";
import { isLeased, isTerminal, type Run, type RunIdentity, type RunStatus } from "../run.ts";
import type { Step, StepRecord } from "../step.ts";
import type { AwaitedPause, RunState } from "../store.ts";
import type { Hub } from "./hub.ts";

/** How a step has ended; how many attempts it took matters if it failed. */
type StepEnd = Pick<Step, "status" | "attempts">;

const COMPLETED: StepEnd = { status: "completed", attempts: 1 };
const CANCELLED: StepEnd = { status: "cancelled", attempts: 1 };

/**
 * Makes one story of a run out of two sources: events that are heard as they happen in this process, and what the store
 * shows of what other processes do. Each thing is told once.
 */
export class RunTeller {
  readonly #hub: Hub;
  readonly #tellOn: (event: RunEvent) => void;
  #status: RunStatus = "pending";
  #isTriggerTold = false;
  #isStartTold = false;
  #isSilent = false;
  /** The newest lease that was told of, or that the store has shown. */
  #generation = 0;
  /** The newest one that the store has shown to be over. */
  #overGeneration = 0;
  /** How the recorded steps ended that were told, or are old news. */
  readonly #toldSteps = new Map<string, StepEnd>();
  /** What tells how the run stands, apart from its progress. */
  #standing: RunEvent[] = [];
  #heard = 0;
  /** The sequence of the last event that was told. */
  #sequence = 0;
  #progress: RunEvent | null = null;
  #progressText = "null";
  /** What the store has shown last: an event that is still to come and tells the same is no news. */
  #seenProgress: string | null = null;

  /** @param tellOn Hears each event that is news. */
  constructor(hub: Hub, tellOn: (event: RunEvent) => void) {
    this.#hub = hub;
    this.#tellOn = tellOn;
  }

  /** How the run stands, as far as it was told. */
  get status(): RunStatus {
    return this.#status;
  }

  /** The events that tell how the run stands: for somebody who comes later. */
  get standing(): RunEvent[] {
    return isLeased(this.#status) && this.#progress !== null ? [...this.#standing, this.#progress] : this.#standing;
  }

  /** How many events of this process it has heard: what was read before the last of them is old. */
  get heard(): number {
    return this.#heard;
  }

  /**
   * Hears an event of this process.
   *
   * @param lease The lease under which it happened; `null` for what is no part of an execution.
   */
  hear(event: RunEvent, lease: Lease | null): void {
    this.#heard += 1;
    if (!this.#isNews(event, lease)) return;
    const told = this.#hub.numberedAfter(this.#sequence, event);
    this.#sequence = told.sequence;
    this.#note(told);
    this.#generation = Math.max(this.#generation, lease?.generation ?? 0);
    this.#tellOn(told);
  }

  /** Sees how the run stands in the store, for the first time: its steps, and progress of before, are old news. */
  begin(state: RunState): void {
    const { run } = state;
    if (!isLeased(run.status) && run.progress !== null) {
      this.#note(this.#hub.runEvent(run, { type: "run:progress", progress: run.progress }));
    }
    for (const { name, status, attempts } of state.steps) this.#toldSteps.set(name, { status, attempts });
    this.seeRun(state);
  }

  /** The same as `begin()` without telling it. */
  beginSilently(state: RunState): void {
    this.#isSilent = true;
    this.begin(state);
    this.#isSilent = false;
  }

  /** Sees how the run stands in the store with its steps, and tells what is news. */
  see(state: RunState): void {
    if (isLeased(state.run.status)) this.seeRun(state);
    this.seeSteps(state);
    if (!isLeased(state.run.status)) this.seeRun(state);
  }

  /** Sees the recorded steps of the run, or those of these names, and tells what is news. */
  seeSteps(state: RunState, names?: ReadonlySet<string>): void {
    for (const step of state.steps) if (names?.has(step.name) ?? true) this.#seeStep(state, step);
  }

  /** Whether it was told how a step has ended. One between two attempts has not. */
  hasTold({ name, attempts, result: { status } }: StepRecord): boolean {
    return status === "retrying" || this.#hasTold(name, { status, attempts });
  }

  #hasTold(stepName: string, { status, attempts }: StepEnd): boolean {
    const told = this.#toldSteps.get(stepName);
    if (told === undefined || status !== "failed") return told?.status === status;
    // An attempt that has failed is no news after a later one.
    return told.status !== "failed" || told.attempts >= attempts;
  }

  /** Sees in the store that the run was triggered. */
  seeTrigger(run: RunIdentity): void {
    // Of a run that was taken up already nobody has to be told any more that it is there.
    if (this.#isTriggerTold || this.#status !== "pending") return;
    this.#tell(run, { type: "run:trigger", input: null });
  }

  /** Sees that the run has ended and was deleted: what a late answer tells of it is no news. */
  seeGone(): void {
    this.#status = "cancelled"; // nobody knows how it ended
    this.#standing = [];
  }

  /** Sees how the run stands in the store, without its steps, and tells what is news. */
  seeRun({ run, execution, pauses }: RunState): void {
    if (isTerminal(this.#status)) return;
    this.#overGeneration = isLeased(run.status) ? run.leaseGeneration - 1 : run.leaseGeneration;
    const isOtherLease = run.leaseGeneration !== this.#generation;
    this.#generation = Math.max(this.#generation, run.leaseGeneration);
    if (isLeased(run.status)) this.#seeLeased(run, { execution, isOtherLease });
    this.#seeProgress(run); // after the lease under which it was made, before the pause or the end that followed
    if (run.status === "waiting") this.#seeWaiting(run, { pauses, isOtherLease });
    else if (isTerminal(run.status)) this.#tell(run, lastHappening(run));
    else if (run.status === "pending") this.#standing = [];
    this.#status = run.status;
  }

  /** What was told out of the store is not told again by an event that comes later. */
  #isNews(event: RunEvent, lease: Lease | null): boolean {
    const isPast = isTerminal(this.#status) || (lease !== null && lease.generation <= this.#overGeneration);
    if (isPast && OF_EXECUTION.has(event.type)) return false;
    switch (event.type) {
      case "run:trigger":
        return !this.#isTriggerTold && this.#status === "pending";
      case "run:leased":
        return (lease?.generation ?? Infinity) > this.#generation;
      case "run:start":
        return !this.#isStartTold;
      case "run:complete":
      case "run:fail":
      case "run:cancel":
        return !isTerminal(this.#status);
      case "run:progress":
        return JSON.stringify(event.progress) !== this.#seenProgress;
      case "step:complete":
        return !this.#hasTold(event.stepName, COMPLETED);
      case "step:fail":
        return !this.#hasTold(event.stepName, { status: "failed", attempts: event.attempt });
      default:
        return true;
    }
  }

  #note(event: RunEvent): void {
    switch (event.type) {
      case "run:trigger":
        this.#isTriggerTold = true;
        break;
      case "run:leased":
        this.#status = "leased";
        this.#seenProgress = null;
        this.#isStartTold = false;
        this.#standing = [event];
        break;
      case "run:lease-renewed":
        this.#noteExpiry(event.leaseExpiresAt);
        break;
      case "run:start":
        this.#status = "running";
        this.#isStartTold = true;
        this.#standing = [...this.#standing, event];
        this.#renumberProgress(event.sequence);
        break;
      case "run:waiting":
        this.#standing = this.#status === "waiting" ? [...this.#standing, event] : [event];
        this.#status = "waiting";
        break;
      case "run:progress":
        this.#seenProgress = null;
        this.#progress = event;
        this.#progressText = JSON.stringify(event.progress);
        break;
      case "step:complete":
        this.#toldSteps.set(event.stepName, COMPLETED);
        break;
      case "step:fail":
        this.#toldSteps.set(event.stepName, { status: "failed", attempts: event.attempt });
        break;
      case "step:cancel":
        this.#toldSteps.set(event.stepName, CANCELLED);
        break;
    }
    if (isLastEvent(event)) this.#standing = [event];
    this.#status = ENDED_BY[event.type] ?? this.#status;
  }

  #seeLeased(run: Run, { execution, isOtherLease }: { execution: number; isOtherLease: boolean }): void {
    if (isOtherLease || !isLeased(this.#status)) {
      this.#tell(run, { type: "run:leased", leaseOwner: run.leaseOwner!, leaseExpiresAt: run.leaseExpiresAt! });
    }
    if (run.status === "running" && !this.#isStartTold) this.#tell(run, { type: "run:start", execution });
    this.#noteExpiry(run.leaseExpiresAt!);
  }

  /** Whoever comes later is told what was reported before the run was taken up after that. */
  #renumberProgress(sequence: number): void {
    if (this.#progress === null) return;
    this.#progress = this.#hub.numberedAfter(sequence, this.#progress);
    this.#sequence = this.#progress.sequence;
  }

  /** Whoever comes later is told until when the lease lasts by now. */
  #noteExpiry(leaseExpiresAt: string): void {
    this.#standing = this.#standing.map((event) => event.type === "run:leased" ? { ...event, leaseExpiresAt } : event);
  }

  #seeWaiting(
    run: Run,
    { pauses, isOtherLease }: { pauses: readonly AwaitedPause[]; isOtherLease: boolean },
  ): void {
    // Between two looks it may have been taken up, and have paused again.
    if (isOtherLease || this.#status !== "waiting") {
      this.#status = "pending";
      this.#standing = [];
    }
    const told = new Set(this.#standing.map(pauseOf));
    for (const { name: waitName, ...pause } of pauses) {
      const happening = { type: "run:waiting", waitName, ...pause } as const;
      if (!told.has(pauseOf(happening))) this.#tell(run, happening);
    }
  }

  #seeProgress(run: Run): void {
    if (run.progress === null || JSON.stringify(run.progress) === this.#progressText) return;
    this.#tell(run, { type: "run:progress", progress: run.progress });
    this.#seenProgress = this.#progressText;
  }

  #seeStep({ run, pauses }: RunState, step: Step): void {
    const { name: stepName, index: stepIndex, attempts: attempt, output } = step;
    if (this.#hasTold(stepName, step)) return;
    if (step.status === "completed") {
      const duration = msBetween(step.startedAt, step.completedAt!);
      this.#tell(run, { type: "step:complete", stepName, stepIndex, output, duration });
    } else if (step.status === "cancelled") {
      this.#tell(run, { type: "step:cancel", stepName, stepIndex });
    } else {
      // The last one: a sleep of the same name stands before it.
      const retry = pauses.findLast(({ waitId, name }) => waitId === null && name === stepName);
      // Between two attempts that follow soon, it cannot be said yet when the next one will.
      if (step.completedAt === null && retry === undefined) return;
      const retryAt = step.completedAt === null ? retry!.deadlineAt : null;
      this.#tell(run, { type: "step:fail", stepName, stepIndex, attempt, error: step.error ?? "", retryAt });
    }
  }

  /** Tells what the store has shown. */
  #tell(run: RunIdentity, happening: RunHappening): void {
    const event = this.#hub.runEvent(run, happening);
    this.#sequence = event.sequence;
    this.#note(event);
    if (!this.#isSilent) this.#tellOn(event);
  }
}

const ENDED_BY: { readonly [type in RunEvent["type"]]?: RunStatus } = {
  "run:complete": "completed",
  "run:fail": "failed",
  "run:cancel": "cancelled",
};

/** What is told of an execution: no news when the store has shown what came after it. */
const OF_EXECUTION = new Set<RunEvent["type"]>([
  "run:leased",
  "run:lease-renewed",
  "run:start",
  "run:waiting",
  "run:progress",
  "step:start",
]);

/** Which pause an event tells of. Not its deadline: the store and a worker need not agree on when a retry is due. */
function pauseOf(happening: RunHappening): string | null {
  return happening.type === "run:waiting" ? JSON.stringify([happening.waitId, happening.waitName]) : null;
}

/** The last event of a run that has ended. */
function lastHappening(run: Run): RunHappening {
  if (run.status === "cancelled") return { type: "run:cancel" };
  const { error, failedStepName } = run;
  if (run.status === "failed") return { type: "run:fail", error: error ?? "", failedStepName };
  return { type: "run:complete", output: run.output, duration: msBetween(run.startedAt!, run.completedAt!) };
}

/** How long something took: never less than no time, whatever the clock did meanwhile. */
function msBetween(startedAt: string, endedAt: string): number {
  return Math.max(0, Date.parse(endedAt) - Date.parse(startedAt));
}
