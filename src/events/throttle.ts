import type { Host } from "../model/host.ts";

/** Passes calls on: the first ones at once, then at most one in each interval. The last one is never lost. */
export class Throttle {
  readonly #host: Host;
  readonly #restMs: number;
  readonly #callback: () => void;
  readonly #burstMs: number;
  /** When as many intervals have passed as calls were passed on. */
  #restsUntil = -Infinity;
  #cancelTimer: (() => void) | null = null;

  /**
   * @param restMs The interval, in milliseconds.
   * @param burst How many calls are passed on at once after a rest of as many intervals.
   */
  constructor(host: Host, restMs: number, callback: () => void, burst = 1) {
    this.#host = host;
    this.#restMs = restMs;
    this.#callback = callback;
    this.#burstMs = (burst - 1) * restMs;
  }

  /** Calls back now, or at the end of the interval. */
  call(): void {
    if (this.#cancelTimer !== null) return;
    const restMs = this.#restsUntil - this.#burstMs - this.#host.monotonic();
    if (restMs <= 0) this.#callNow();
    else this.#cancelTimer = this.#host.schedule(restMs, () => this.#callNow());
  }

  /** Forgets a call that waits for the end of the interval. */
  cancel(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  #callNow(): void {
    this.#cancelTimer = null;
    this.#restsUntil = Math.max(this.#restsUntil, this.#host.monotonic()) + this.#restMs;
    this.#callback();
  }
}
