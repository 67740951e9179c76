import { nap } from "./nap.ts";

const SETTLES_MS = 500;
const AFTERMATH_MS = 300;
const LOOK_EVERY_MS = 10;

/** Lets nobody do harm now and then: what is measured meanwhile is how fast the service is. */
export class Calm {
  readonly #lulls: { from: number; until: number }[] = [];
  #harms = 0;
  #lull: Promise<void> | null = null;

  /** Does harm, or what takes time away from others; if there is a lull, then after it. */
  async disturb<T>(harm: () => T | Promise<T>): Promise<T> {
    while (this.#lull !== null) await this.#lull;
    this.#harms += 1;
    try {
      return await harm();
    } finally {
      this.#harms -= 1;
    }
  }

  /** Waits until the harm that has begun is done, and keeps more of it away for so many milliseconds. */
  async lull(ms: number, abortSignal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#lull = promise;
    while (this.#harms > 0 && !abortSignal.aborted) await nap(LOOK_EVERY_MS, abortSignal);
    await nap(SETTLES_MS, abortSignal);
    const from = Date.now();
    await nap(ms, abortSignal);
    this.#lulls.push({ from, until: Date.now() - AFTERMATH_MS });
    this.#lull = null;
    resolve();
  }

  /** Whether nobody did harm at an instant, nor right before or after it. */
  isCalm(at: number): boolean {
    return this.#lulls.some(({ from, until }) => from <= at && at < until);
  }
}
