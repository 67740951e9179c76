import type { Hub } from "./hub.ts";
import type { ChangePoller } from "./change_poller.ts";

/** Runs a function again after each change in the store, one call at a time. */
export class RerunOnChange {
  readonly #poller: ChangePoller;
  readonly #hub: Hub;
  readonly #look: () => Promise<void>;
  #stop: (() => void) | null = null;
  #isLooking = false;
  #hasChanged = false;

  /** @param look The function. If it fails, the error is published, and the next change runs it again. */
  constructor(look: () => Promise<void>, { poller, hub }: { poller: ChangePoller; hub: Hub }) {
    this.#poller = poller;
    this.#hub = hub;
    this.#look = look;
  }

  /** Starts, unless it is started. */
  start(): void {
    this.#stop ??= this.#poller.onThrottled(() => this.look());
  }

  /** Stops: the function is not called again. */
  stop(): void {
    this.#stop?.();
    this.#stop = null;
  }

  /** Calls the function now, or once more if a call is in progress. */
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
