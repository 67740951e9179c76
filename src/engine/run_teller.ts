import { isLastEvent, type RunEvent, type RunHappening } from "../event.ts";
import type { Lease } from "../lease.ts";
import { isLeased, isTerminal, type Run, type RunIdentity, type RunStatus } from "../run.ts";
import type { Step, StepRecord } from "../step.ts";
import type { AwaitedPause, RunState } from "../store.ts";
import type { Hub } from "./hub.ts";

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
  #leaseOwner = "";
  #leaseExpiresAt = "";
  /** The lease as it was last seen; `null` once an event has told of a newer one. */
  #leaseGeneration: number | null = 0;
  /** The newest lease that the store has shown to be over. */
  #overGeneration = 0;
  /** Whether this process tells of such a one. */
  #isPast = false;
  /** How the recorded steps ended that were told, or are old news. */
  readonly #toldSteps = new Map<string, string>();
  /** What the store has shown last of pauses or progress: an event that is still to come and tells the same is no news. */
  readonly #seenFirst = new Set<string>();
  /** What tells how the run stands, apart from its progress. */
  #standing: RunEvent[] = [];
  #heard = 0;
  #progress: RunEvent | null = null;
  #progressText = "null";

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
   * @param lease The lease that a `run:leased` tells of, if it is known: when the store has shown that it is over, what
   * happened under it is no news.
   */
  hear(event: RunEvent, lease: Lease | null = null): void {
    this.#heard += 1;
    if (event.type === "run:leased") this.#isPast = lease !== null && lease.generation <= this.#overGeneration;
    if (!this.#isNews(event)) return;
    this.#note(event);
    this.#tellOn(event);
  }

  /** Sees how the run stands in the store, for the first time: its steps, and progress of before, are old news. */
  begin(state: RunState): void {
    const { run } = state;
    if (!isLeased(run.status) && run.progress !== null) {
      this.#note(this.#hub.runEvent(run, { type: "run:progress", progress: run.progress }));
    }
    for (const step of state.steps) this.#toldSteps.set(step.name, endingOf(step));
    this.seeRun(state);
  }

  /** The same without telling it. */
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
  hasTold({ name, attempts, result }: StepRecord): boolean {
    if (result.status === "retrying") return true;
    return this.#toldSteps.get(name) === endingOf({ status: result.status, attempts });
  }

  /** Sees in the store that the run was triggered. */
  seeTrigger(run: RunIdentity): void {
    // Of a run that was taken up already nobody has to be told any more that it is there.
    if (this.#isTriggerTold || this.#status !== "pending") return;
    this.#tell(run, { type: "run:trigger", input: null });
  }

  /** Sees how the run stands in the store, without its steps, and tells what is news. */
  seeRun({ run, execution, pauses, failedStepName }: RunState): void {
    if (isTerminal(this.#status)) return;
    this.#overGeneration = isLeased(run.status) ? run.leaseGeneration - 1 : run.leaseGeneration;
    if (isLeased(run.status)) this.#seeLeased(run, execution);
    this.#seeProgress(run); // after the lease under which it was made, before the pause or the end that followed
    if (run.status === "waiting") this.#seeWaiting(run, pauses);
    else if (isTerminal(run.status)) this.#tell(run, lastHappening(run, failedStepName));
    else if (run.status === "pending") this.#standing = [];
    this.#status = run.status;
  }

  /** What was told out of the store is not told again by an event that comes later. */
  #isNews(event: RunEvent): boolean {
    if ((this.#isPast || isTerminal(this.#status)) && OF_EXECUTION.has(event.type)) return false;
    switch (event.type) {
      case "run:trigger":
        return !this.#isTriggerTold && this.#status === "pending";
      case "run:leased":
        return !isLeased(this.#status) || event.leaseOwner !== this.#leaseOwner ||
          event.leaseExpiresAt > this.#leaseExpiresAt;
      case "run:start":
        return !this.#isStartTold;
      case "run:complete":
      case "run:fail":
      case "run:cancel":
        return !isTerminal(this.#status);
      case "run:waiting":
      case "run:progress":
        return !this.#seenFirst.delete(keyOf(event));
      case "step:complete":
        return this.#toldSteps.get(event.stepName) !== "completed";
      case "step:fail":
        return this.#toldSteps.get(event.stepName) !== `failed ${event.attempt}`;
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
        this.#leaseOwner = event.leaseOwner;
        this.#leaseExpiresAt = event.leaseExpiresAt;
        this.#leaseGeneration = null;
        this.#seenFirst.clear();
        this.#isStartTold = false;
        this.#standing = [event];
        break;
      case "run:lease-renewed":
        this.#leaseExpiresAt = event.leaseExpiresAt;
        break;
      case "run:start":
        this.#status = "running";
        this.#isStartTold = true;
        this.#standing = [...this.#standing, event];
        break;
      case "run:waiting":
        this.#standing = this.#status === "waiting" ? [...this.#standing, event] : [event];
        this.#status = "waiting";
        this.#leaseGeneration = null;
        break;
      case "run:progress":
        this.#progress = event;
        this.#progressText = JSON.stringify(event.progress);
        break;
      case "step:complete":
        this.#toldSteps.set(event.stepName, "completed");
        break;
      case "step:fail":
        this.#toldSteps.set(event.stepName, `failed ${event.attempt}`);
        break;
      case "step:cancel":
        this.#toldSteps.set(event.stepName, "cancelled");
        break;
    }
    if (isLastEvent(event)) this.#standing = [event];
    this.#status = ENDED_BY[event.type] ?? this.#status;
  }

  #seeLeased(run: Run, execution: number): void {
    const isTakenOver = run.leaseOwner !== this.#leaseOwner || this.#isOtherLease(run);
    if (isTakenOver || !isLeased(this.#status)) {
      this.#tell(run, { type: "run:leased", leaseOwner: run.leaseOwner!, leaseExpiresAt: run.leaseExpiresAt! });
    }
    if (run.status === "running" && !this.#isStartTold) this.#tell(run, { type: "run:start", execution });
    this.#leaseGeneration = run.leaseGeneration;
    this.#leaseExpiresAt = run.leaseExpiresAt!;
  }

  #seeWaiting(run: Run, pauses: readonly AwaitedPause[]): void {
    // Between two looks it may have been taken up, and have paused again.
    const isSamePark = this.#status === "waiting" && !this.#isOtherLease(run);
    if (!isSamePark) {
      this.#status = "pending";
      this.#standing = [];
      this.#seenFirst.clear();
    }
    const told = new Set(this.#standing.map(keyOf));
    for (const { name: waitName, ...pause } of pauses) {
      const happening = { type: "run:waiting", waitName, ...pause } as const;
      if (told.has(keyOf(happening))) continue;
      this.#seenFirst.add(keyOf(happening));
      this.#tell(run, happening);
    }
    this.#leaseGeneration = run.leaseGeneration;
  }

  #isOtherLease({ leaseGeneration }: Run): boolean {
    return this.#leaseGeneration !== null && this.#leaseGeneration !== leaseGeneration;
  }

  #seeProgress(run: Run): void {
    if (run.progress === null || JSON.stringify(run.progress) === this.#progressText) return;
    const happening = { type: "run:progress", progress: run.progress } as const;
    this.#seenFirst.clear();
    this.#seenFirst.add(keyOf(happening));
    this.#tell(run, happening);
  }

  #seeStep({ run, pauses }: RunState, step: Step): void {
    const { name: stepName, index: stepIndex, attempts: attempt, output } = step;
    if (this.#toldSteps.get(stepName) === endingOf(step)) return;
    if (step.status === "completed") {
      const duration = msBetween(step.startedAt, step.completedAt!);
      this.#tell(run, { type: "step:complete", stepName, stepIndex, output, duration });
    } else if (step.status === "cancelled") {
      this.#tell(run, { type: "step:cancel", stepName, stepIndex });
    } else {
      const retry = pauses.find(({ waitId, name }) => waitId === null && name === stepName);
      // Between two attempts that follow soon, it cannot be said yet when the next one will.
      if (step.completedAt === null && retry === undefined) return;
      const retryAt = step.completedAt === null ? retry!.deadlineAt : null;
      this.#tell(run, { type: "step:fail", stepName, stepIndex, attempt, error: step.error ?? "", retryAt });
    }
  }

  /** Tells what the store has shown. */
  #tell(run: RunIdentity, happening: RunHappening): void {
    const event = this.#hub.runEvent(run, happening);
    this.#note(event);
    if (!this.#isSilent) this.#tellOn(event);
  }
}

const ENDED_BY: { readonly [type in RunEvent["type"]]?: RunStatus } = {
  "run:complete": "completed",
  "run:fail": "failed",
  "run:cancel": "cancelled",
};

/** What is told of a run while it is executed: a claim may be answered so late that its run has ended elsewhere. */
const OF_EXECUTION = new Set<RunEvent["type"]>([
  "run:leased",
  "run:start",
  "run:waiting",
  "run:progress",
  "step:start",
]);

/** What an event tells of, in a text that is the same for the store's version of it. */
function keyOf(happening: RunHappening): string {
  // Without its deadline: the store and a worker need not agree on the millisecond at which a retry is due.
  if (happening.type === "run:waiting") return JSON.stringify([happening.waitId, happening.waitName]);
  return happening.type === "run:progress" ? JSON.stringify(happening.progress) : happening.type;
}

/** How a step ended, in a text that is another after each attempt. */
function endingOf({ status, attempts }: Pick<Step, "status" | "attempts">): string {
  return status === "failed" ? `failed ${attempts}` : status;
}

/** The last event of a run that has ended. */
function lastHappening(run: Run, failedStepName: string | null): RunHappening {
  if (run.status === "cancelled") return { type: "run:cancel" };
  if (run.status === "failed") return { type: "run:fail", error: run.error ?? "", failedStepName };
  return { type: "run:complete", output: run.output, duration: msBetween(run.startedAt!, run.completedAt!) };
}

/** How long something took: never less than no time, whatever the clock did meanwhile. */
function msBetween(startedAt: string, endedAt: string): number {
  return Math.max(0, Date.parse(endedAt) - Date.parse(startedAt));
}
