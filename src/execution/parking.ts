import type { PauseResult } from "../store.ts";
import { isoTime } from "../time.ts";
import type { NewPause, PauseRecord } from "../wait.ts";
import type { Execution } from "./execution.ts";
import { InterruptibleSleep } from "./interruptible_sleep.ts";
import { retryStoreCall } from "../events/retry_store_call.ts";

/** A pause that is over. */
export type OverPause = PauseRecord & { resolution: NonNullable<PauseRecord["resolution"]> };

/** Whether a pause is over. */
export function isOver(record: PauseRecord): record is OverPause {
  return record.resolution !== null;
}

interface Asked {
  pause: NewPause;
  promise: Promise<OverPause>;
  resolve: (over: OverPause) => void;
}

/** Another attempt at a step, and when it may begin. */
export interface DueRetry {
  /** An instant of the store's clock: to show, and to hand back to the store. */
  at: number;
  /** The same instant on the monotonic clock of this process, which is what counts here. */
  dueAt: number;
}

interface AskedRetry extends DueRetry {
  resolve: () => void;
}

// How often a pause is looked at while steps beside it are executed: another process may have taken a signal.
const LOOK_EVERY_MS = 1_000;

/**
 * What a job pauses on: waits, sleeps and delays before another attempt. While steps are executed beside them, they
 * are looked at now and then; when nothing else is left, the run parks.
 */
export class Parking {
  readonly #execution: Execution;
  readonly #asked = new Map<string, Asked>();
  readonly #retries = new Map<string, AskedRetry>();
  readonly #nap: InterruptibleSleep;
  /** When the first deadline of what was asked for in the last look passes, on the monotonic clock. */
  #nextDeadlineAt = Infinity;
  #isAttending = false;
  #looking: Promise<unknown> = Promise.resolve();
  /** A look that is still to be sent: whoever wants one until then shares it. */
  #nextLook: Promise<boolean> | null = null;

  /** Parking on nothing yet. */
  constructor(execution: Execution) {
    this.#execution = execution;
    this.#nap = new InterruptibleSleep(execution.deps.host);
    execution.onChange(() => this.#nap.wake());
  }

  /** Whether the job waits for a pause. */
  get isAsking(): boolean {
    return this.#asked.size > 0;
  }

  /** Keeps a pause without pausing on it. */
  async prepare(pause: NewPause): Promise<PauseRecord> {
    const { pauses: [record] } = await this.#save([pause], null, false);
    return record!;
  }

  /** Resolves when a pause is over; never, if the run parks before. Asking twice for one pause is asking once. */
  ask(pause: NewPause): Promise<OverPause> {
    const known = this.#asked.get(pause.id);
    if (known !== undefined) return known.promise;
    const { promise, resolve } = Promise.withResolvers<OverPause>();
    this.#asked.set(pause.id, { pause, promise, resolve });
    this.#attend();
    return promise;
  }

  /** The same for a pause that was prepared before: it may be over, and that recorded before what waits for its turn. */
  askKnown(pause: NewPause): Promise<OverPause> {
    const promise = this.ask(pause);
    if (this.#execution.turns.isHolding) this.look().catch(() => {}); // then the job is over
    return promise;
  }

  /** Resolves when it is time for another attempt at a step; never, if the run parks before. */
  askRetry(stepName: string, retry: DueRetry): Promise<void> {
    return new Promise((resolve) => {
      this.#retries.set(stepName, { ...retry, resolve });
      this.#attend();
    });
  }

  async #attend(): Promise<void> {
    this.#nap.wake();
    if (this.#isAttending) return;
    this.#isAttending = true;
    try {
      while (this.#hasAsked()) {
        // Everything that the job asks for together is looked at together.
        await this.#execution.turns.settled();
        if (!this.#hasAsked() || await this.look()) return;
        if (!this.#resumeRetries() && !this.#execution.turns.isHolding) await this.#nap.sleep(this.#msToNext());
      }
    } catch {
      // Refused, or interrupted: the job is over.
    } finally {
      this.#isAttending = false;
      // The job waits for them permanently now.
      if (this.#execution.isOver && this.#asked.size + this.#retries.size > 0) this.#execution.noteCheckpoint();
    }
  }

  #hasAsked(): boolean {
    return this.#asked.size + this.#retries.size > 0 && !this.#execution.isOver;
  }

  /**
   * Asks the store which pauses are over, and lets the job go on with them in their turn. Asks it to park the run if
   * nothing else is left, and answers whether it did.
   */
  look(): Promise<boolean> {
    // One at a time, so that none is overtaken by one that knows less.
    this.#nextLook ??= this.#looking.then(() => {
      this.#nextLook = null;
      return this.#lookNow();
    });
    this.#looking = this.#nextLook.catch(() => {});
    return this.#execution.turns.expect(this.#nextLook);
  }

  async #lookNow(): Promise<boolean> {
    if (!this.#hasAsked()) return false;
    const execution = this.#execution;
    const asked = [...this.#asked.values()].map(({ pause }) => pause);
    const retries = [...this.#retries];
    const retryAt = retries.length === 0 ? null : Math.min(...retries.map(([, retry]) => retry.at));
    const isLast = execution.isQuiet;
    const saving = this.#save(asked, retryAt, isLast);
    const { parked, pauses, nextDeadlineInMs } =
      await (isLast ? execution.park(execution.leave(saving, ({ parked }) => parked)) : execution.track(saving));
    if (parked) {
      if (execution.isSuperseded) return true;
      for (const { id, kind, name, deadlineAt } of pauses) {
        this.#announce(kind === "wait" ? id : null, name, deadlineAt);
      }
      for (const [name, retry] of retries) this.#announce(null, name, retry.at);
      return true;
    }
    this.#nextDeadlineAt = execution.deps.host.monotonic() + (nextDeadlineInMs ?? Infinity);
    for (const pause of pauses) {
      const asked = this.#asked.get(pause.id);
      if (asked === undefined || !isOver(pause)) continue;
      this.#asked.delete(pause.id);
      execution.turns.wait(pause.resolution.recordedNo).then(() => {
        asked.resolve(pause);
        this.#nap.wake(); // it may have been the last thing that kept the run from parking
      });
    }
    // What the job has asked for meanwhile may be over, too, and that recorded before.
    const answered = new Set(pauses.map(({ id }) => id));
    if (pauses.some(isOver) && [...this.#asked.keys()].some((id) => !answered.has(id))) this.look().catch(() => {});
    return false;
  }

  #resumeRetries(): boolean {
    const now = this.#execution.deps.host.monotonic();
    const due = [...this.#retries].filter(([, { dueAt }]) => dueAt <= now);
    for (const [stepName, { resolve }] of due) {
      this.#retries.delete(stepName);
      resolve();
    }
    return due.length > 0;
  }

  async #save(
    pauses: readonly NewPause[],
    retryAt: number | null,
    park: boolean,
  ): Promise<PauseResult> {
    const { claim, deps, abortSignal } = this.#execution;
    const save = () =>
      this.#execution.writeWithReports((reports) => deps.store.pause(claim.lease, { pauses, retryAt, park, reports }));
    try {
      return await retryStoreCall(save, deps, abortSignal);
    } catch (error) {
      this.#execution.noteRefusal(error);
      throw error;
    }
  }

  #announce(waitId: string | null, waitName: string, deadlineAt: number | null): void {
    this.#execution.publish({ type: "run:waiting", waitId, waitName, deadlineAt: isoTime(deadlineAt) });
  }

  #msToNext(): number {
    const next = Math.min(this.#nextDeadlineAt, ...[...this.#retries.values()].map(({ dueAt }) => dueAt));
    return Math.min(LOOK_EVERY_MS, Math.max(1, next - this.#execution.deps.host.monotonic()));
  }
}
