import type { Hub } from "./hub.ts";
import type { ChangePoller } from "./change_poller.ts";

/** Looks again whenever another process may have done something: one look at a time, and one more after each change. */
export class RerunOnChange {
  readonly #pulse: ChangePoller;
  readonly #hub: Hub;
  readonly #look: () => Promise<void>;
  #stop: (() => void) | null = null;
  #isLooking = false;
  #hasChanged = false;

  /** @param look What to do. When it fails, that is told, and the next change is another chance. */
  constructor(look: () => Promise<void>, { pulse, hub }: { pulse: ChangePoller; hub: Hub }) {
    this.#pulse = pulse;
    this.#hub = hub;
    this.#look = look;
  }

  /** Begins to look, unless it does. */
  start(): void {
    this.#stop ??= this.#pulse.onThrottled(() => this.look());
  }

  /** Looks no more. */
  stop(): void {
    this.#stop?.();
    this.#stop = null;
  }

  /** Looks now, or once more if it is looking. */
  async look(): Promise<void> {
    this.#hasChanged = true;
    if (this.#isLooking) return;
    this.#isLooking = true;
    try {
      while (this.#hasChanged && this.#stop !== null) {
        this.#hasChanged = false;
        await this.#look();
      }
    } catch (error) {
      this.#hub.publishError(error);
    } finally {
      this.#isLooking = false;
    }
  }
}
