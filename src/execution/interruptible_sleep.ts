import type { Host } from "../host.ts";

/**
 * A sleep that can be ended at any time, and that a call before its beginning prevents: a wake-up between looking
 * for work and lying down is not lost.
 */
export class InterruptibleSleep {
  readonly #host: Host;
  #isWoken = false;
  #end: (() => void) | null = null;

  /** Makes a sleep that has not begun. */
  constructor(host: Host) {
    this.#host = host;
  }

  /** Ends the sleep, or prevents the next one. */
  wake(): void {
    this.#isWoken = true;
    this.#end?.();
  }

  /** Sleeps for `ms` milliseconds at most. */
  async sleep(ms: number): Promise<void> {
    if (!this.#isWoken) {
      await new Promise<void>((resolve) => {
        const cancel = this.#host.schedule(ms, resolve);
        this.#end = () => {
          cancel();
          resolve();
        };
      });
    }
    this.#end = null;
    this.#isWoken = false;
  }
}
