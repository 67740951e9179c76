import { RunCancelledError, StoreError } from "../model/error.ts";
import type { JobCatalog } from "../model/job/job_catalog.ts";
import type { Claim, ClaimResult } from "../store/claim.ts";
import { AloneRuns } from "./alone_runs.ts";
import { ClaimRequests } from "./claim_requests.ts";
import type { ExecutionDeps } from "./execution.ts";
import type { Executions } from "./executions.ts";
import type { Slots } from "./slots.ts";
import type { WorkerSettings } from "./worker_settings.ts";

/** What claims for a worker need of it. */
interface ClaimingWorker {
  id: string;
  jobs: JobCatalog;
  settings: WorkerSettings;
  deps: ExecutionDeps;
  slots: Slots;
  executions: Executions;
  /** Fires when the worker is to claim nothing more. */
  stopping: AbortSignal;
  /** Whether held runs are tried as fast as slots become free. */
  isUnpaced: () => boolean;
}

/** Claims runs for a worker: as many as it has free slots, those that are claimed alone, and held ones to try. */
export class Claiming {
  readonly #worker: ClaimingWorker;
  readonly #requests: ClaimRequests;
  readonly #aloneRuns: AloneRuns;
  /** Runs that were cancelled here during a claim, which may still return them. */
  readonly #cancelled = new Set<string>();
  #claiming: Promise<unknown> = Promise.resolve();
  #hasClaimed = false;
  #hasMore = false;
  /** Claims that have failed since the last one that succeeded, on the monotonic clock; `null`: none has. */
  #failures: { error: unknown; firstAt: number; lastAt: number } | null = null;

  constructor(worker: ClaimingWorker) {
    const { id, jobs, settings, deps: { host } } = worker;
    this.#worker = worker;
    this.#requests = new ClaimRequests(id, jobs, settings, host);
    this.#aloneRuns = new AloneRuns(settings.staleThreshold, host);
  }

  /** Why claims fail, and for how long they have; `null`: the last one has succeeded. */
  get failed(): { error: unknown; forMs: number } | null {
    if (this.#failures === null) return null;
    const { error, firstAt, lastAt } = this.#failures;
    return { error, forMs: lastAt - firstAt };
  }

  /** Whether the last claim has left ready runs behind. */
  get hasMore(): boolean {
    return this.#hasMore;
  }

  /** For how long it claims nothing until it holds nothing, in milliseconds; `Infinity`: it claims. */
  get drainsForMs(): number {
    return this.#aloneRuns.drainsForMs;
  }

  /** How many more runs may be claimed: none while it executes one alone, or is to hold nothing before it claims one. */
  get freeSlots(): number {
    const isDraining = this.#worker.executions.size > 0 && this.#aloneRuns.isDraining;
    return this.#worker.executions.isAlone || isDraining ? 0 : this.#worker.slots.free;
  }

  /** Claims as many runs as there are free slots. One claim at a time: two would fill the same slots. */
  claim(most = Infinity): Promise<ClaimResult> {
    const claiming = this.#claiming.catch(() => {}).then(() => this.#claimNow(most));
    claiming.then(() => void (this.#failures = null), (error) => this.#noteFailure(error));
    this.#claiming = claiming;
    return claiming;
  }

  /** Resolves when the claim under way, if any, has ended. */
  async ended(): Promise<void> {
    await this.#claiming.catch(() => {});
  }

  /** Notes that a run was cancelled here: a claim under way may still return it. */
  noteCancel(runId: string): void {
    if (this.#requests.isUnanswered) this.#cancelled.add(runId);
  }

  /** Notes in the store that the worker claims nothing more. */
  async sayStopping(): Promise<void> {
    await this.#worker.deps.store.noteStopping(this.#worker.id).catch((error) =>
      this.#worker.deps.hub.publishError(error)
    );
  }

  /** Deletes what the store knows of the worker. */
  async forget(): Promise<void> {
    if (!this.#hasClaimed) return;
    await this.#worker.deps.store.forgetWorker(this.#worker.id).catch((error) =>
      this.#worker.deps.hub.publishError(error)
    );
  }

  #noteFailure(error: unknown): void {
    const now = this.#worker.deps.host.monotonic();
    this.#failures = { error, firstAt: this.#failures?.firstAt ?? now, lastAt: now };
  }

  async #claimNow(most: number): Promise<ClaimResult> {
    await this.#worker.executions.renewOverdue();
    const first = this.#worker.executions.size === 0 && this.#aloneRuns.isDraining ? await this.#claimAlone() : null;
    if (first !== null && (first.claims.length > 0 || first.hasMore)) return first;
    this.#worker.slots.serve();
    const early = this.#worker.slots.areTrialsOverdue ? await this.#tryHeld(1) : null;
    const left = most - (early?.claims.length ?? 0);
    const result = await this.#sendClaim(Math.min(left, Math.max(0, this.freeSlots)));
    if (!result.hasHeld) this.#worker.slots.noteTrials(0, 0);
    const mayBeAlone = first === null && result.aloneSince !== null && !result.hasMore;
    const alone = mayBeAlone ? await this.#claimAlone() : null;
    // Held runs come after all others.
    const mayTry = result.hasHeld && !result.hasMore && early === null;
    const tried = mayTry ? await this.#tryHeld(left - result.claims.length) : early;
    const all = [first, result, alone, tried].filter((one) => one !== null);
    return {
      ...result,
      claims: all.flatMap(({ claims }) => claims),
      failed: all.flatMap(({ failed }) => failed),
      cancelled: all.flatMap(({ cancelled }) => cancelled),
      nextTimerAt: all.map((one) => one.nextTimerAt).reduce(earliest),
    };
  }

  /** Claims a run that is claimed alone; `null`: it holds others. */
  async #claimAlone(): Promise<ClaimResult | null> {
    if (this.#worker.executions.size > 0 || this.#worker.stopping.aborted) return null;
    return await this.#sendClaim(1, { isAlone: true });
  }

  /** Claims held runs, to try whether the code fits them now; `null`: none may be tried. */
  async #tryHeld(most: number): Promise<ClaimResult | null> {
    const limit = Math.min(most, this.freeSlots, this.#worker.slots.countTrials(this.#worker.isUnpaced()));
    if (limit <= 0 || this.#worker.stopping.aborted) return null;
    const tried = await this.#sendClaim(limit, { triesHeld: true });
    this.#worker.slots.noteTrials(tried.claims.length, limit);
    return tried;
  }

  async #sendClaim(limit: number, { triesHeld = false, isAlone = false } = {}): Promise<ClaimResult> {
    const { store, hub } = this.#worker.deps;
    const executions = this.#worker.executions.current;
    const { request, sentAt } = this.#requests.next({ executions, limit, triesHeld, isAlone });
    this.#hasClaimed = true;
    const result = await store.claim(request);
    this.#requests.noteAnswer();
    this.#aloneRuns.noteAnswer(request, result);
    if (request.limit > 0 && !request.triesHeld && !request.isAlone) this.#hasMore = result.hasMore;
    for (const { run, error, failureKind } of result.failed) {
      hub.publish(run, { type: "run:fail", error, failedStepName: null, failureKind });
    }
    for (const run of result.cancelled) {
      this.#worker.executions.supersede(run.id, new RunCancelledError(run.id));
      hub.publish(run, { type: "run:cancel", by: null });
    }
    for (const claim of result.claims) {
      const job = this.#worker.jobs.executing(claim.run.jobName, claim.version);
      if (this.#worker.executions.isStopped || this.#cancelled.has(claim.run.id)) this.#releaseUnstarted(claim);
      else if (job === undefined) hub.publishError(unknownJobError(claim));
      else {
        this.#countTimeouts(claim, result.now);
        this.#worker.executions.begin(claim, job, { sentAt, isAlone: request.isAlone });
      }
    }
    this.#cancelled.clear();
    return result;
  }

  /**
   * Releases a claimed run without executing it: it was cancelled, or the worker stopped, before the claim was
   * answered.
   */
  #releaseUnstarted({ lease }: Claim): void {
    const { store, hub } = this.#worker.deps;
    store.release(lease, []).catch((error) => hub.publishError(error));
  }

  /** Counts the waits that timed out and because of which the run resumes now. */
  #countTimeouts({ run, pauses }: Claim, now: number): void {
    for (const { firstResumedAt } of pauses) {
      if (firstResumedAt === now) this.#worker.deps.recorder.noteWait(run.jobName, "timeout");
    }
  }
}

function earliest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? one ?? other : Math.min(one, other);
}

/** The error of a store that has claimed a run which the worker cannot execute. The lease of that run expires. */
function unknownJobError({ run: { id, jobName }, version }: Claim): StoreError {
  const message =
    `The store has claimed run "${id}" of job "${jobName}" version ${version} for a worker that does not know this job`;
  return new StoreError(message, { code: "internal" });
}
