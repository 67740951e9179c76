import type { Host } from "../model/host.ts";

/**
 * A sleep that can be ended at any time. A wake-up before the sleep begins prevents it, so that none is lost between
 * a check for work and the sleep.
 */
export class InterruptibleSleep {
  readonly #host: Host;
  #isWoken = false;
  #end: (() => void) | null = null;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Ends the sleep, or prevents the next one. */
  wake(): void {
    this.#isWoken = true;
    this.#end?.();
  }

  /** Sleeps for at most `ms` milliseconds. */
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
