import type { Host } from "../host.ts";

/** Passes calls on: the first at once, then at most one in each interval. The last one is never lost. */
export class Throttle {
  readonly #host: Host;
  readonly #restMs: number;
  readonly #callback: () => void;
  #restsUntil = -Infinity;
  #cancelTimer: (() => void) | null = null;

  /** @param restMs The interval, in milliseconds. */
  constructor(host: Host, restMs: number, callback: () => void) {
    this.#host = host;
    this.#restMs = restMs;
    this.#callback = callback;
  }

  /** Calls back now, or at the end of the interval. */
  call(): void {
    if (this.#cancelTimer !== null) return;
    const restMs = this.#restsUntil - this.#host.monotonic();
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
    this.#restsUntil = this.#host.monotonic() + this.#restMs;
    this.#callback();
  }
}
