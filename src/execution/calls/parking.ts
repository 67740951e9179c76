import type { NewPause, PauseResult } from "../../store/pause_request.ts";
import { type JsonText, parseValue } from "../../values/json.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { PauseRecord } from "../../model/wait.ts";
import type { Execution } from "../execution.ts";
import { InterruptibleSleep } from "../../model/host.ts";

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

/** The next attempt at a step, and when it may begin. */
export interface DueRetry {
  /** By the store's clock: for display, and for calls to the store. */
  at: number;
  /** The same instant on this process's monotonic clock; used for timing. */
  dueAt: number;
}

interface AskedRetry extends DueRetry {
  resolve: () => void;
}

// How often pauses are checked while other steps are executed: another process may have accepted a signal.
const LOOK_EVERY_MS = 1_000;

/**
 * The pauses of a job: waits, sleeps and retry delays. While other steps are executed, the pauses are checked at
 * intervals; when only pauses are left, the run parks.
 */
export class Parking {
  readonly #execution: Execution;
  readonly #asked = new Map<string, Asked>();
  readonly #retries = new Map<string, AskedRetry>();
  readonly #idle: InterruptibleSleep;
  /** The first deadline among the pauses of the last check, on the monotonic clock. */
  #nextDeadlineAt = Infinity;
  #isAttending = false;
  #looking: Promise<unknown> = Promise.resolve();
  /** A check that is not sent yet: all callers share it. */
  #nextLook: Promise<boolean> | null = null;

  constructor(execution: Execution) {
    this.#execution = execution;
    this.#idle = new InterruptibleSleep(execution.deps.host);
    execution.onChange(() => this.#idle.wake());
  }

  /** Stores a pause without pausing on it. */
  async prepare(pause: NewPause): Promise<PauseRecord> {
    const { pauses: [record] } = await this.#save([pause], null, false);
    return record!; // one for each pause of the request
  }

  /** Resolves when a pause is over; never, if the run parks first. Repeated calls for one pause share a promise. */
  ask(pause: NewPause): Promise<OverPause> {
    const known = this.#asked.get(pause.id);
    if (known !== undefined) return known.promise;
    const { promise, resolve } = Promise.withResolvers<OverPause>();
    this.#asked.set(pause.id, { pause, promise, resolve });
    this.#attend();
    return promise;
  }

  /**
   * Like {@linkcode Parking.ask}, for a pause that was prepared earlier. It may have ended before the results that are
   * held back were recorded, so the store is asked at once.
   */
  askKnown(pause: NewPause): Promise<OverPause> {
    const promise = this.ask(pause);
    if (this.#execution.order.isHolding) this.#look().catch(() => {}); // on an error the job is over
    return promise;
  }

  /** Whether a result of the attempt that calls is the next one of the job: there is nothing else that goes on or waits. */
  get isNext(): boolean {
    return this.#asked.size === 0 && this.#execution.isAlone;
  }

  /**
   * Resolves when the result of a recorded step may be delivered to the job: after all results that were recorded
   * earlier, including a signal or a deadline that this execution has not read yet.
   */
  async untilTurn(recordedNo: number): Promise<void> {
    if (this.isNext) return;
    const turn = this.#execution.order.wait(recordedNo);
    if (this.#asked.size > 0) await this.#look();
    await turn;
  }

  /** Resolves when the next attempt at a step is due; never, if the run parks first. */
  untilRetry(stepName: string, retry: DueRetry): Promise<void> {
    return new Promise((resolve) => {
      this.#retries.set(stepName, { ...retry, resolve });
      this.#attend();
    });
  }

  /** Loops while the job is paused: each `#look()` is one call to the store. */
  async #attend(): Promise<void> {
    this.#idle.wake();
    if (this.#isAttending) return;
    this.#isAttending = true;
    try {
      while (this.#hasAsked()) {
        // Pauses that the job asks for together are checked together.
        await this.#execution.order.settled();
        if (!this.#hasAsked() || await this.#look()) return;
        if (!this.#resumeRetries() && !this.#execution.order.isHolding) await this.#idle.sleep(this.#msToNext());
      }
    } catch {
      // Refused, or interrupted: the job is over.
    } finally {
      this.#isAttending = false;
      // The execution is over, so these pauses never resolve in it.
      if (this.#execution.state.isOver && this.#asked.size + this.#retries.size > 0) {
        this.#execution.state.noteWaiting();
      }
    }
  }

  #hasAsked(): boolean {
    return this.#asked.size + this.#retries.size > 0 && !this.#execution.state.isOver;
  }

  /**
   * Asks the store which pauses are over, and delivers them to the job in order. If only pauses are left, it asks the
   * store to park the run, and returns whether the run has parked.
   */
  #look(): Promise<boolean> {
    // One at a time, so that an older answer cannot arrive after a newer one.
    this.#nextLook ??= this.#looking.then(() => {
      this.#nextLook = null;
      return this.#lookNow();
    });
    this.#looking = this.#nextLook.catch(() => {});
    return this.#execution.order.expect(this.#nextLook);
  }

  async #lookNow(): Promise<boolean> {
    if (!this.#hasAsked()) return false;
    const execution = this.#execution;
    const asked = [...this.#asked.values()].map(({ pause }) => pause);
    const retries = [...this.#retries];
    const retryAt = retries.length === 0 ? null : Math.min(...retries.map(([, retry]) => retry.at));
    const isLast = execution.isQuiet;
    const saving = this.#save(asked, retryAt, isLast);
    execution.track(saving);
    const { parked, pauses, nextDeadlineInMs } = isLast
      ? await execution.state.release(saving, ({ parked }) => parked)
      : await saving;
    if (parked) {
      if (execution.state.isSuperseded) return true;
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
      if (pause.kind === "wait" && pause.resolution.outcome === "timeout" && pause.firstResumedAt === undefined) {
        execution.deps.recorder.noteWait(execution.claim.run.jobName, "timeout");
      }
      execution.order.wait(pause.resolution.recordedNo).then(() => {
        asked.resolve(pause);
        this.#idle.wake(); // this may have been the last obstacle to parking
      });
    }
    // The job may have asked for more pauses during this call. If one of them has ended, it may have ended before those
    // just returned, so check again.
    const answered = new Set(pauses.map(({ id }) => id));
    if (pauses.some(isOver) && [...this.#asked.keys()].some((id) => !answered.has(id))) this.#look().catch(() => {});
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

  async #save(pauses: readonly NewPause[], retryAt: number | null, park: boolean): Promise<PauseResult> {
    const execution = this.#execution;
    const request = { pauses, retryAt, park };
    const result = await execution.write((reports) =>
      execution.deps.store.pause(execution.lease, { ...request, reports })
    );
    for (const { preparedNo, resolution } of result.pauses) {
      execution.noteRecorded(Math.max(preparedNo ?? 0, resolution?.recordedNo ?? 0));
    }
    this.#publishChildren(pauses, result);
    return result;
  }

  /** Publishes what became of child runs. New ones are stored now, and are not sent again. */
  #publishChildren(pauses: readonly NewPause[], { created, cancelled }: PauseResult): void {
    const payloads = new Map<string, JsonText | null>();
    for (const { id, children } of pauses) {
      for (const { id, payload } of children?.runs ?? []) payloads.set(id, payload);
      const asked = this.#asked.get(id);
      if (asked !== undefined) asked.pause = { ...asked.pause, children: null };
    }
    const { claim: { run: { id: parentRunId } }, deps: { hub, recorder } } = this.#execution;
    for (const run of cancelled) hub.publish(run, { type: "run:cancel", by: null });
    for (const { run, startAt, retryOf } of created) {
      const input = parseValue(payloads.get(run.id) ?? null);
      recorder.noteTrigger(run.jobName, "created");
      const none = { scheduleName: null, slotAt: null, by: null };
      hub.publish(run, { type: "run:trigger", input, startAt, parentRunId, ...none });
      if (retryOf !== null) hub.publish(retryOf, { type: "run:retry", newRunId: run.id, by: null });
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
