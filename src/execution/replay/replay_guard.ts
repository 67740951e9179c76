import { withoutOccurrence } from "../../values/name.ts";
import type { HoldCode, OnDivergence, RecordName } from "../../model/hold.ts";
import type { RecordedHistory } from "./recorded_history.ts";
import type { Execution } from "../execution.ts";
import type { JobChanges } from "../../model/job/job_changes.ts";

/** The records of a run, and the guard that compares them with what its job asks for. */
export interface Replay {
  /** The records. */
  history: RecordedHistory;
  /** The guard. */
  guard: ReplayGuard;
}

/** How the code of a job differs from what the run has recorded. */
export interface Divergence {
  /** Whether the job asked for something new, or its function has ended. */
  code: Exclude<HoldCode, "input_refused">;
  /** What the job asked for first that is new; `null` if its function has ended. */
  isNew: RecordName | null;
  /** What the function threw, if it did. */
  thrown: { error: unknown } | null;
  /** What the job has not asked for. */
  unasked: RecordName[];
}

/** Something that waits until it is known whether the replay is complete. */
type HeldBack =
  & { release: (isFurther: boolean) => void }
  & ({ kind: "new"; isNew: RecordName } | { kind: "patch" } | { kind: "end"; thrown: { error: unknown } | null });

// How long the job must have asked for nothing before the replay counts as complete: a branch of it may await something
// outside of its steps.
const QUIET_MS = 1_000;
// A timer that comes later than this shows that the event loop was blocked.
const BLOCKED_MS = 100;

/**
 * Compares what the job asks for with what the run has recorded.
 *
 * While records are left that the job has not asked for, nothing new begins and no ending is saved. Either the job asks
 * for the rest, or the replay becomes quiet: no work is under way, no result is to be delivered, and for a second the
 * job has asked for nothing. Then the run has diverged.
 */
export class ReplayGuard {
  /** Resolves when the run has diverged, and is to be held or to fail. */
  readonly diverged: Promise<Divergence>;
  /** What has begun although records were left (`onDivergence: "continue"`). */
  readonly begunAnyway: RecordName[] = [];
  readonly #execution: Execution;
  readonly #history: RecordedHistory;
  readonly #changes: JobChanges;
  readonly #mode: OnDivergence;
  readonly #resolve: (divergence: Divergence) => void;
  #heldBack: HeldBack[] = [];
  #lastAskAt = 0;
  #cancelTimer: (() => void) | null = null;

  constructor(execution: Execution, history: RecordedHistory, changes: JobChanges, mode: OnDivergence) {
    this.#execution = execution;
    this.#history = history;
    this.#changes = changes;
    this.#mode = mode;
    ({ promise: this.diverged, resolve: this.#resolve } = Promise.withResolvers());
    if (this.isClear) return; // there is nothing to compare
    history.onAsk = () => this.#noteAsk();
    execution.onChange(() => {
      if (execution.state.isOver) this.#releaseAll(); // nothing begins any more
      else if (execution.state.isStopping) this.#stop();
    });
  }

  /** Whether the job has asked for all that the run has recorded. */
  get isClear(): boolean {
    return this.#history.unaskedCount === 0;
  }

  /** Whether something new has to wait. */
  mustWait(isNew: RecordName): boolean {
    if (this.#history.mustWait(isNew) && !this.#changes.added.has(withoutOccurrence(isNew.name))) {
      if (this.#mode !== "continue") return true;
      this.begunAnyway.push(isNew);
    }
    this.#execution.slot.noteFit();
    return false;
  }

  /** Resolves when something new may begin; never, if the run has diverged. */
  async untilMayBegin(isNew: RecordName): Promise<void> {
    await this.#holdBack({ kind: "new", isNew });
  }

  /** Whether the run was further than this place before: resolves when that is known. */
  async isFurther(): Promise<boolean> {
    return !this.isClear && await this.#holdBack({ kind: "patch" });
  }

  /** Resolves when the end of the job's function may be saved; never, if the run has diverged. */
  async untilMayEnd(thrown: { error: unknown } | null): Promise<void> {
    if (this.isClear || this.#mode === "continue") return;
    await this.#holdBack({ kind: "end", thrown });
  }

  /** Releases what waits, because the engine stops. An ending is not saved. */
  #stop(): void {
    const ends = this.#heldBack.filter(({ kind }) => kind === "end");
    this.#heldBack = this.#heldBack.filter(({ kind }) => kind !== "end");
    this.#releaseAll(); // begins nothing, since the engine stops
    for (const _ of ends) {
      this.#execution.endWork();
      this.#execution.state.noteWaiting();
    }
  }

  #holdBack(
    what: { kind: "new"; isNew: RecordName } | { kind: "patch" } | { kind: "end"; thrown: { error: unknown } | null },
  ) {
    const { state } = this.#execution;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    // Nothing begins any more. Results may not reach the job either, so what it does not ask for says nothing.
    if (state.isOver || state.isStopping) {
      if (what.kind === "end" && !state.isOver) state.noteWaiting(); // an ending is not saved
      else resolve(false);
      return promise;
    }
    this.#execution.beginWork(); // the run does not park meanwhile
    this.#lastAskAt = this.#now();
    this.#heldBack.push({ ...what, release: resolve });
    this.#startTimer();
    // Most replays are complete by then, and go on.
    this.#execution.deps.host.defer(() => this.#giveUpSlot());
    return promise;
  }

  #giveUpSlot(): void {
    const { length } = this.#heldBack;
    if (length > 0 && this.#execution.isQuietBut(length)) this.#execution.slot.giveUp();
  }

  #noteAsk(): void {
    if (this.isClear) this.#execution.slot.noteFit();
    if (this.#heldBack.length === 0) return;
    this.#lastAskAt = this.#now();
    if (this.isClear) return this.#releaseAll();
    // What earlier runs had begun waits for no copies.
    const free = this.#heldBack.filter((one) => one.kind === "new" && !this.#history.mustWait(one.isNew));
    if (free.length === 0) return;
    this.#heldBack = this.#heldBack.filter((one) => !free.includes(one));
    for (const { release } of free) this.#release(release, false);
  }

  #releaseAll(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    for (const { release } of this.#heldBack.splice(0)) this.#release(release, false);
  }

  #release(release: HeldBack["release"], isFurther: boolean): void {
    release(isFurther);
    this.#execution.endWork();
  }

  #startTimer(): void {
    if (this.#cancelTimer !== null) return;
    const leftMs = Math.max(1, this.#lastAskAt + QUIET_MS - this.#now());
    const dueAt = this.#now() + leftMs;
    this.#cancelTimer = this.#execution.deps.host.schedule(leftMs, () => {
      this.#cancelTimer = null;
      // The event loop was blocked: what the job awaits has had no time to arrive.
      if (this.#now() - dueAt > BLOCKED_MS) this.#lastAskAt = this.#now();
      this.#look();
    });
  }

  #look(): void {
    if (this.#heldBack.length === 0) return;
    if (!this.#execution.isQuietBut(this.#heldBack.length)) this.#lastAskAt = this.#now();
    this.#giveUpSlot();
    if (this.#now() - this.#lastAskAt < QUIET_MS) return this.#startTimer();
    const patches = this.#heldBack.filter(({ kind }) => kind === "patch");
    if (patches.length > 0) {
      this.#heldBack = this.#heldBack.filter(({ kind }) => kind !== "patch");
      for (const { release } of patches) this.#release(release, true);
      this.#lastAskAt = this.#now();
      if (this.#heldBack.length > 0) this.#startTimer();
      return;
    }
    this.#diverge();
  }

  #diverge(): void {
    // What waits goes on only to end, when the execution is over. Until then it keeps the run from parking.
    const [first] = this.#heldBack;
    const unasked = this.#history.unasked();
    if (first?.kind === "new") this.#resolve({ code: "diverged", isNew: first.isNew, thrown: null, unasked });
    if (first?.kind === "end") this.#resolve({ code: "ended_early", isNew: null, thrown: first.thrown, unasked });
  }

  #now(): number {
    return this.#execution.deps.host.monotonic();
  }
}
