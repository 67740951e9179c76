import { LeaseLostError } from "../model/error.ts";
import type { Lease } from "../model/lease.ts";

/**
 * The phases of an execution:
 *
 * ```text
 *              release()                 the store has released the lease
 *   holding ─────────────▶ releasing ───────────────────────────────────────▶ released
 *      ▲                       │
 *      └───────────────────────┘ it has not: the run was not parked
 *
 *   all of them ── interrupt() ──▶ interrupted
 * ```
 *
 * - `holding`: the job's code continues under the lease, and its results are recorded.
 * - `releasing`: a call that parks or ends the run is pending. Only its answer says whether the lease was lost: a
 *   released lease looks like a lost one.
 * - `released`: the run has parked or ended.
 * - `interrupted`: the lease is lost, the run was cancelled, or the worker stops. Nothing more is recorded, except
 *   the result of a step that returns while the lease is still held.
 *
 * A run that misses its deadline stays `holding` until its failure releases the lease. Its job is over at once.
 */
type Phase =
  | { name: "holding" }
  | { name: "releasing"; answered: Promise<unknown>; mayBeLost: boolean }
  | { name: "released" }
  | { name: "interrupted"; isSuperseded: boolean };

/** What the job's own code does. `waiting`: it waits permanently, for a promise that never settles. */
type Body = "running" | "waiting" | "returned";

/** The state of one execution: its phase, what the job's code does, whether the worker stops and the run is late. */
export class ExecutionState {
  readonly #lease: Lease;
  readonly #onChange: () => void;
  #phase: Phase = { name: "holding" };
  #body: Body = "running";
  #isStopping = false;
  #isLate = false;
  readonly #abortion = new AbortController();
  readonly #interruption = new AbortController();
  readonly #interrupted = Promise.withResolvers<void>();
  readonly #released = Promise.withResolvers<void>();
  readonly #bodyStopped = Promise.withResolvers<void>();
  /** Fires when the execution is interrupted or the run is late, with the reason: for the job's code. */
  readonly abortSignal: AbortSignal = this.#abortion.signal;
  /** Fires when the execution is interrupted: not even the end of the run can be recorded. */
  readonly interruption: AbortSignal = this.#interruption.signal;
  /** Resolves when the execution is interrupted. */
  readonly interrupted: Promise<void> = this.#interrupted.promise;
  /** Resolves when the lease was released: the run has parked or ended. */
  readonly released: Promise<void> = this.#released.promise;
  /** Resolves when the job's function has returned, or waits permanently; after an interruption possibly never. */
  readonly bodyStopped: Promise<void> = this.#bodyStopped.promise;

  /** @param onChange Called when the execution is interrupted or is to stop, or the job's function has returned. */
  constructor(lease: Lease, onChange: () => void) {
    this.#lease = lease;
    this.#onChange = onChange;
  }

  /** Whether the execution was interrupted: nothing more is recorded. */
  get isInterrupted(): boolean {
    return this.#phase.name === "interrupted";
  }

  /** Whether the run missed its deadline: nothing but its failure is recorded. */
  get isLate(): boolean {
    return this.#isLate;
  }

  /** Whether a later event of the run is published already, so that this execution must publish nothing more. */
  get isSuperseded(): boolean {
    return this.#phase.name === "interrupted" && this.#phase.isSuperseded;
  }

  /** Whether the job's function has returned. */
  get hasReturned(): boolean {
    return this.#body === "returned";
  }

  /** Whether the job waits permanently. */
  get isBodyWaiting(): boolean {
    return this.#body === "waiting";
  }

  /** Whether the run has parked, or is held, while the job's function has not returned. */
  get hasParked(): boolean {
    return this.#phase.name === "released" && !this.hasReturned && !this.#isLate;
  }

  /** Whether nothing of the job goes on here: it has returned, has parked, is late, or was interrupted. */
  get isOver(): boolean {
    return this.hasReturned || this.#isLate || this.isInterrupted || this.#phase.name === "released";
  }

  /**
   * Whether the job's code may receive a result. While the worker stops, it may not after one of the job's branches has
   * reached a checkpoint.
   */
  get mayContinue(): boolean {
    return !this.isOver && !(this.#isStopping && this.#body === "waiting");
  }

  /** Whether the job may begin something new: a step, or a pause. */
  get mayBegin(): boolean {
    return this.#phase.name === "holding" && !this.hasReturned && !this.#isLate && !this.#isStopping;
  }

  /** The answer of the pending call that releases the lease; `null` if there is none. Never rejects. */
  get releaseAnswered(): Promise<unknown> | null {
    return this.#phase.name === "releasing" ? this.#phase.answered : null;
  }

  /** Whether the worker stops: the execution ends at the job's next checkpoint. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Records that the worker stops. */
  noteStop(): void {
    this.#isStopping = true;
    this.#onChange();
  }

  /** Records that the job's function has returned or thrown: the branches that it left behind begin nothing more. */
  noteReturn(): void {
    this.#body = "returned";
    this.#bodyStopped.resolve();
    this.#onChange();
  }

  /** Records that the job waits permanently: it executes no more code of its own. */
  noteWaiting(): void {
    if (this.#body === "running") this.#body = "waiting";
    this.#bodyStopped.resolve();
  }

  /** Ends the job's code because the run is late. Returns whether it does: not if the lease was released or lost. */
  expire(reason: Error): boolean {
    if (this.#phase.name !== "holding") return false;
    this.#isLate = true;
    this.#abortion.abort(reason);
    this.#onChange();
    return true;
  }

  /** Ends the execution now. */
  interrupt(reason: Error): void {
    this.#interrupt(reason, this.isSuperseded);
  }

  /** Ends the execution as the death of its process does: nothing fires, and nothing settles or begins any more. */
  discard(): void {
    this.#phase = { name: "interrupted", isSuperseded: true };
  }

  /** Ends the execution because a newer event of the run was published: it was cancelled, or claimed again. */
  supersede(reason: Error): void {
    this.#interrupt(reason, true);
  }

  /** Ends the execution because the lease is lost, or may be lost. */
  noteLostLease(): void {
    if (this.#phase.name === "releasing") this.#phase.mayBeLost = true;
    else this.interrupt(new LeaseLostError(this.#lease));
  }

  /**
   * Registers a call that may release the lease.
   *
   * @param isReleased Whether the answer says that it did.
   */
  async release<T>(answer: Promise<T>, isReleased: (answer: T) => boolean): Promise<T> {
    const releasing: Phase = { name: "releasing", answered: answer.catch(() => {}), mayBeLost: false };
    if (!this.isInterrupted) this.#phase = releasing;
    let hasReleased = false;
    try {
      const value = await answer;
      hasReleased = isReleased(value);
      return value;
    } finally {
      if (this.#phase === releasing) this.#endRelease(hasReleased, releasing.mayBeLost);
    }
  }

  #endRelease(hasReleased: boolean, mayBeLost: boolean): void {
    this.#phase = { name: hasReleased ? "released" : "holding" };
    if (hasReleased) this.#released.resolve();
    else if (mayBeLost) this.noteLostLease();
  }

  #interrupt(reason: Error, isSuperseded: boolean): void {
    this.#phase = { name: "interrupted", isSuperseded };
    this.#abortion.abort(reason);
    this.#interruption.abort(reason);
    this.#interrupted.resolve();
    this.#onChange();
  }
}
