import type { Host } from "../../../host.ts";
import type { SecondsHistogram } from "../../../statistics/seconds.ts";

const LOOK_EVERY_MS = 1_000;
const REMEMBERED_MS = 60_000;

/** Measures how late a timer fires that is due each second: for that long the event loop was blocked. */
export class EventLoopDelay {
  readonly #host: Host;
  readonly #histogram: SecondsHistogram;
  #cancelTimer: (() => void) | null = null;
  /** The longest delays of the last minute, the longest first, each with when it was measured. */
  #longest: { at: number; ms: number }[] = [];

  constructor(host: Host, histogram: SecondsHistogram) {
    this.#host = host;
    this.#histogram = histogram;
  }

  /** The longest delay within the last minute, in milliseconds. */
  get longestMs(): number {
    this.#forgetOld();
    return this.#longest[0]?.ms ?? 0;
  }

  /** Begins to measure. */
  start(): void {
    if (this.#cancelTimer === null) this.#schedule();
  }

  /** Ends measuring. */
  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  #schedule(): void {
    const dueAt = this.#host.monotonic() + LOOK_EVERY_MS;
    this.#cancelTimer = this.#host.schedule(LOOK_EVERY_MS, () => {
      const at = this.#host.monotonic();
      const ms = Math.max(0, at - dueAt);
      this.#histogram.add(ms);
      this.#longest = [...this.#longest.filter((delay) => delay.ms > ms), { at, ms }];
      this.#forgetOld();
      this.#schedule();
    });
  }

  #forgetOld(): void {
    const oldest = this.#host.monotonic() - REMEMBERED_MS;
    this.#longest = this.#longest.filter(({ at }) => at > oldest);
  }
}
