import { isInstance } from "../../../values/unknown_values.ts";
import { StoreError } from "../../../model/error.ts";
import type { ExecutionDeps } from "../../../execution/execution.ts";

// How long what was counted stays in memory. A crash loses as much.
const REPORT_EVERY_MS = 10_000;
// How soon after a report the next call of `runUntilIdle()` reports: many short calls share a commit.
const REPORT_IDLE_AFTER_MS = 1_000;

type StatisticsReporterDeps = Pick<ExecutionDeps, "recorder" | "store" | "host"> & {
  /** Takes work that a stop waits for. */
  inBackground: (work: Promise<unknown>) => void;
};

/**
 * Writes what was counted to the store, every ten seconds while there is something. An engine that was not started has
 * no timers: it writes with the first thing that it counts after ten seconds.
 */
export class StatisticsReporter {
  readonly #deps: StatisticsReporterDeps;
  #isStarted = false;
  #cancelTimer: (() => void) | null = null;
  #reportedAt: number;
  #hasReported = false;
  #reporting: Promise<void> | null = null;
  #error: unknown = null;

  constructor(deps: StatisticsReporterDeps) {
    this.#deps = deps;
    this.#reportedAt = deps.host.monotonic();
  }

  /** Why the last report failed; `null`: it did not. */
  get error(): unknown {
    return this.#error;
  }

  /** Writes every ten seconds from now on. */
  start(): void {
    this.#isStarted = true;
    if (this.#deps.recorder.hasUnreported) this.noteRecord();
  }

  /** Notes that something was counted. */
  noteRecord(): void {
    if (this.#cancelTimer !== null || this.#reporting !== null) return;
    const { host, inBackground } = this.#deps;
    const leftMs = this.#reportedAt + REPORT_EVERY_MS - host.monotonic();
    if (this.#isStarted) {
      this.#cancelTimer = host.schedule(Math.max(0, leftMs), () => {
        this.#cancelTimer = null;
        inBackground(this.report());
      });
    } else if (leftMs <= 0) {
      this.#reportedAt = host.monotonic();
      inBackground(Promise.resolve().then(() => this.report())); // not at once: the caller is still counting
    }
  }

  /** Writes what is left, and nothing more until it is started again. */
  async stop(): Promise<void> {
    this.#isStarted = false;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    await this.report();
  }

  /** Writes what was counted, unless that was done within the last second. */
  async reportIdle(): Promise<void> {
    const isRecent = this.#hasReported && this.#deps.host.monotonic() - this.#reportedAt < REPORT_IDLE_AFTER_MS;
    if (!isRecent) await this.report();
  }

  /** Writes what was counted. Never throws: what certainly was not written is written later. */
  async report(): Promise<void> {
    while (this.#reporting !== null) await this.#reporting;
    this.#reporting = this.#report().finally(() => this.#reporting = null);
    await this.#reporting;
    if (this.#isStarted && this.#deps.recorder.hasUnreported) this.noteRecord();
  }

  async #report(): Promise<void> {
    const { recorder, store, host } = this.#deps;
    this.#reportedAt = host.monotonic();
    const taken = recorder.take();
    if (taken.length === 0) return;
    this.#hasReported = true;
    try {
      await store.addStats(taken);
      this.#error = null;
    } catch (error) {
      this.#error = error;
      // Added twice, they would be wrong for longer than if they are lost.
      if (!isInstance(error, StoreError) || !error.outcomeUnknown) recorder.putBack(taken);
    }
  }
}
