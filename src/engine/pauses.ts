import type { JsonText } from "../json.ts";
import { isoTime } from "../time.ts";
import type { NewPause, PauseRecord } from "../wait.ts";
import type { Execution } from "./execution.ts";
import { Nap } from "./nap.ts";
import { persist } from "./persist.ts";

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

interface AskedRetry {
  retryAt: number;
  resolve: () => void;
}

// How often a pause is looked at while steps beside it are executed: another process may have taken a signal.
const LOOK_EVERY_MS = 1_000;

/**
 * What a job pauses on: waits, sleeps and delays before another attempt. While steps are executed beside them, they
 * are looked at now and then; when nothing else is left, the run parks.
 */
export class Pauses {
  readonly #execution: Execution;
  readonly #asked = new Map<string, Asked>();
  readonly #retries = new Map<string, AskedRetry>();
  readonly #nap: Nap;
  #isAttending = false;

  /** Pauses on nothing yet. */
  constructor(execution: Execution) {
    this.#execution = execution;
    this.#nap = new Nap(execution.deps.host);
    execution.onChange(() => this.#nap.wake());
  }

  /** Whether the job waits for a pause. */
  get isAsking(): boolean {
    return this.#asked.size > 0;
  }

  /** Keeps a pause without pausing on it. */
  async prepare(pause: NewPause): Promise<PauseRecord> {
    const { pauses: [record] } = await this.#execution.track(this.#save([pause], null, false));
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

  /** Resolves when it is time for another attempt at a step; never, if the run parks before. */
  askRetry(stepName: string, retryAt: number): Promise<void> {
    return new Promise((resolve) => {
      this.#retries.set(stepName, { retryAt, resolve });
      this.#attend();
    });
  }

  async #attend(): Promise<void> {
    this.#nap.wake();
    if (this.#isAttending) return;
    this.#isAttending = true;
    const { host } = this.#execution.deps;
    try {
      while (this.#asked.size + this.#retries.size > 0 && !this.#execution.isOver) {
        // Everything that the job asks for together is looked at together.
        await new Promise<void>((resolve) => host.defer(resolve));
        if (this.#execution.isOver || await this.look()) return;
        if (!this.#resumeRetries() && !this.#execution.turns.isHolding) await this.#nap.sleep(this.#msToNext());
      }
    } catch (error) {
      this.#execution.noteRefusal(error);
    } finally {
      this.#isAttending = false;
    }
  }

  /**
   * Asks the store which pauses are over, and lets the job go on with them in their turn. Asks it to park the run if
   * nothing else is left, and answers whether it did.
   */
  async look(): Promise<boolean> {
    const execution = this.#execution;
    const asked = [...this.#asked.values()].map(({ pause }) => pause);
    const retries = [...this.#retries];
    const retryAt = retries.length === 0 ? null : Math.min(...retries.map(([, retry]) => retry.retryAt));
    const isLast = execution.isQuiet;
    const saving = this.#save(asked, retryAt, isLast);
    const { parked, pauses } = await execution.turns.expect(
      isLast ? execution.park(saving) : execution.track(saving),
    );
    if (parked) {
      for (const { id, kind, name, deadlineAt } of pauses) {
        this.#announce(kind === "wait" ? id : null, name, deadlineAt);
      }
      for (const [name, retry] of retries) this.#announce(null, name, retry.retryAt);
      return true;
    }
    for (const pause of pauses) {
      const asked = this.#asked.get(pause.id);
      if (asked === undefined) continue;
      if (isOver(pause)) {
        this.#asked.delete(pause.id);
        execution.turns.wait(pause.resolution.recordedNo).then(() => asked.resolve(pause));
      } else if (pause.deadlineAt !== null) asked.pause = { ...asked.pause, deadline: { at: pause.deadlineAt } };
    }
    return false;
  }

  #resumeRetries(): boolean {
    const { host } = this.#execution.deps;
    const due = [...this.#retries].filter(([, { retryAt }]) => retryAt <= host.now());
    for (const [stepName, { resolve }] of due) {
      this.#retries.delete(stepName);
      resolve();
    }
    return due.length > 0;
  }

  #save(
    pauses: readonly NewPause[],
    retryAt: number | null,
    park: boolean,
  ): Promise<{ parked: boolean; pauses: PauseRecord[] }> {
    const { claim, deps, abortSignal } = this.#execution;
    const progress: JsonText | null = this.#execution.progress;
    return persist(() => deps.store.pause(claim.lease, { pauses, retryAt, park, progress }), deps, abortSignal);
  }

  #announce(waitId: string | null, waitName: string, deadlineAt: number | null): void {
    this.#execution.publish({ type: "run:waiting", waitId, waitName, deadlineAt: isoTime(deadlineAt) });
  }

  #msToNext(): number {
    const deadlines = [...this.#asked.values()].map(({ pause: { deadline } }) =>
      deadline !== null && "at" in deadline ? deadline.at : null
    );
    const instants = [...deadlines, ...[...this.#retries.values()].map(({ retryAt }) => retryAt)];
    const next = Math.min(...instants.filter((at) => at !== null));
    return Math.min(LOOK_EVERY_MS, Math.max(1, next - this.#execution.deps.host.now()));
  }
}
