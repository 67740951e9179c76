import { NotFoundError } from "../error.ts";
import { isLastEvent, type RunEvent, type RunHappening } from "../event.ts";
import { isLeased, isTerminal, type Run, type RunStatus } from "../run.ts";
import type { Step } from "../step.ts";
import type { RunState, Store } from "../store.ts";
import type { Hub } from "./hub.ts";
import type { Pulse } from "./pulse.ts";

/** What {@linkcode followRun} works with. */
export interface FollowDeps {
  /** Makes sure that the store has its tables. */
  migrate(): Promise<void>;
  /** Knows how the run stands. */
  store: Store;
  /** Tells what happens in this process. */
  hub: Hub;
  /** Tells that another process may have done something. */
  pulse: Pulse;
  /** Whether this process executes the run: then the hub tells everything. */
  isExecutingHere(runId: string): boolean;
}

/** A run that is being followed. */
export interface Following {
  /** Its events: first the run as it stands, then what happens to it, until its last event. */
  stream: ReadableStream<RunEvent>;
  /** Ends the stream before that. */
  end(): void;
}

// A reader that does not read: progress is left out first, then the stream ends.
const MANY_UNREAD = 256;
const TOO_MANY_UNREAD = 10_000;

/**
 * Follows a run, whichever process executes it. What happens here is told as it happens; what another process does
 * is read from the store when it has changed.
 */
export function followRun(runId: string, deps: FollowDeps, onEnd: () => void): Following {
  const follower = new Follower(runId, deps, onEnd);
  return { stream: follower.stream, end: () => follower.end() };
}

class Follower {
  readonly stream: ReadableStream<RunEvent>;
  readonly #runId: string;
  readonly #deps: FollowDeps;
  readonly #onEnd: () => void;
  readonly #stops: (() => void)[] = [];
  /** Events that came before the run was read; `null` from then on. */
  #early: RunEvent[] | null = [];
  #controller!: ReadableStreamDefaultController<RunEvent>;
  #isEnded = false;
  #status: RunStatus = "pending";
  /** The lease as it was last read; `null` once the hub has told of a newer one. */
  #leaseGeneration: number | null = 0;
  #leaseExpiresAt = "";
  #progress = "null";
  #toldSteps = new Set<string>();
  #isStartTold = false;
  #isReading = false;
  #isChanged = false;

  constructor(runId: string, deps: FollowDeps, onEnd: () => void) {
    this.#runId = runId;
    this.#deps = deps;
    this.#onEnd = onEnd;
    this.stream = new ReadableStream({
      start: (controller) => void (this.#controller = controller),
      cancel: () => this.#finish(),
    }, { highWaterMark: 0 });
    // Subscribed before the run is read: an event between the two would otherwise be missed.
    this.#stops.push(deps.hub.onRun(runId, (event) => this.#hear(event)));
    this.#stops.push(deps.pulse.onThrottled(() => this.#look()));
    this.#begin();
  }

  end(): void {
    if (this.#isEnded) return;
    this.#finish();
    this.#controller.close();
  }

  #finish(): void {
    this.#isEnded = true;
    for (const stop of this.#stops.splice(0)) stop();
    this.#onEnd();
  }

  #fail(error: unknown): void {
    if (this.#isEnded) return;
    this.#finish();
    this.#controller.error(error);
  }

  async #begin(): Promise<void> {
    try {
      await this.#deps.migrate();
      const state = await this.#deps.store.getRunState(this.#runId);
      if (this.#isEnded) return;
      if (state === null) return this.#fail(new NotFoundError(`There is no run "${this.#runId}"`));
      for (const step of state.steps) this.#toldSteps.add(step.name);
      this.#tellState(state);
      for (const event of this.#early ?? []) this.#tell(event);
      this.#early = null;
      if (this.#isChanged) this.#look();
    } catch (error) {
      this.#fail(error);
    }
  }

  #hear(event: RunEvent): void {
    if (this.#early !== null) this.#early.push(event);
    else this.#tell(event);
  }

  /** Tells an event, unless it is already known from reading the run. */
  #tell(event: RunEvent): void {
    if (this.#isEnded) return;
    switch (event.type) {
      case "run:leased":
        if (isLeased(this.#status) && event.leaseExpiresAt <= this.#leaseExpiresAt) return;
        this.#status = "leased";
        this.#leaseGeneration = null;
        this.#leaseExpiresAt = event.leaseExpiresAt;
        this.#isStartTold = false;
        break;
      case "run:lease-renewed":
        this.#leaseExpiresAt = event.leaseExpiresAt;
        break;
      case "run:start":
        if (this.#isStartTold) return;
        this.#isStartTold = true;
        this.#status = "running";
        break;
      case "run:waiting":
        this.#status = "waiting";
        break;
      case "run:progress":
        if (this.#progress === JSON.stringify(event.progress)) return;
        this.#progress = JSON.stringify(event.progress);
        break;
      case "step:complete":
      case "step:fail":
        this.#toldSteps.add(event.stepName);
        break;
    }
    this.#send(event);
    if (isLastEvent(event)) this.end();
  }

  #send(event: RunEvent): void {
    const unread = -(this.#controller.desiredSize ?? 0);
    if (unread > TOO_MANY_UNREAD) return this.end();
    if (unread > MANY_UNREAD && event.type === "run:progress") return;
    this.#controller.enqueue(event);
  }

  /** Reads the run again, if it may have changed in another process. */
  async #look(): Promise<void> {
    this.#isChanged = true;
    if (this.#early !== null || this.#isReading || this.#isEnded) return;
    this.#isReading = true;
    try {
      while (this.#isChanged && !this.#isEnded && !this.#deps.isExecutingHere(this.#runId)) {
        this.#isChanged = false;
        await this.#tellChanges();
      }
    } catch {
      // The store cannot answer now; the next look is another chance.
    } finally {
      this.#isReading = false;
    }
  }

  async #tellChanges(): Promise<void> {
    const state = await this.#deps.store.getRunState(this.#runId);
    if (this.#isEnded || this.#deps.isExecutingHere(this.#runId)) return;
    if (state === null) return this.end();
    const { run, steps } = state;
    if (isLeased(run.status)) this.#tellState(state);
    for (const step of steps) if (!this.#toldSteps.has(step.name)) this.#tellStep(run, step);
    if (!isLeased(run.status)) this.#tellState(state);
  }

  /** Tells how a run stands, as far as it is news. */
  #tellState({ run, execution, pauses, failedStepName }: RunState): void {
    const tell = (happening: RunHappening) => this.#tell(this.#deps.hub.runEvent(run, happening));
    if (isLeased(run.status)) {
      const isTakenOver = this.#leaseGeneration !== null && this.#leaseGeneration !== run.leaseGeneration;
      if (isTakenOver || !isLeased(this.#status)) {
        this.#status = "pending";
        tell({ type: "run:leased", leaseOwner: run.leaseOwner!, leaseExpiresAt: run.leaseExpiresAt! });
        if (run.status === "running") tell({ type: "run:start", execution });
      }
      this.#leaseGeneration = run.leaseGeneration;
      this.#leaseExpiresAt = run.leaseExpiresAt!;
      if (run.progress !== null) tell({ type: "run:progress", progress: run.progress });
    } else if (run.status === "waiting" && this.#status !== "waiting") {
      for (const { name, ...pause } of pauses) tell({ type: "run:waiting", waitName: name, ...pause });
    } else if (isTerminal(run.status)) tell(lastHappening(run, failedStepName));
    this.#status = run.status;
  }

  #tellStep(run: Run, step: Step): void {
    const { name: stepName, index: stepIndex, attempts: attempt, output } = step;
    const duration = step.completedAt === null ? 0 : Date.parse(step.completedAt) - Date.parse(step.startedAt);
    const happening: RunHappening = step.status === "completed"
      ? { type: "step:complete", stepName, stepIndex, output, duration }
      : step.status === "cancelled"
      ? { type: "step:cancel", stepName, stepIndex }
      : { type: "step:fail", stepName, stepIndex, attempt, error: step.error ?? "", retryAt: null };
    this.#toldSteps.add(stepName);
    this.#tell(this.#deps.hub.runEvent(run, happening));
  }
}

/** The last event of a run that has ended. */
function lastHappening(run: Run, failedStepName: string | null): RunHappening {
  if (run.status === "cancelled") return { type: "run:cancel" };
  if (run.status === "failed") return { type: "run:fail", error: run.error ?? "", failedStepName };
  const duration = Date.parse(run.completedAt!) - Date.parse(run.startedAt ?? run.createdAt);
  return { type: "run:complete", output: run.output, duration };
}
