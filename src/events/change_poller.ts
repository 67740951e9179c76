import type { Store } from "../store.ts";
import type { RetryDeps } from "./retry_store_call.ts";

// A poll costs a few microseconds. A write of another process is noticed after half of this interval on average.
const LOOK_EVERY_MS = 20;
const REST_MS = 100;
const PAUSE_AFTER_ERROR_MS = 1_000;

/** The dependencies of a {@linkcode ChangePoller}. */
export interface ChangePollerDeps extends RetryDeps {
  /** Whether there are changes to poll for. If not, it never calls back. Default: yes. */
  polls?: boolean;
}

/**
 * Polls the store for writes of other processes, which can share it. It polls only while there are listeners.
 */
export class ChangePoller {
  readonly #store: Store;
  readonly #deps: ChangePollerDeps;
  readonly #pollingInterval: number;
  readonly #listeners = new Set<() => void>();
  #version: number | null = null;
  #notifiedAt = 0;
  #cancelTimer: (() => void) | null = null;
  #isLooking = false;

  /**
   * Creates a poller; it polls from the first listener on.
   *
   * @param pollingInterval After this many milliseconds it calls back even without a change: a store may not notice
   * writes of others that use its connection.
   */
  constructor(store: Store, pollingInterval: number, deps: ChangePollerDeps) {
    this.#store = store;
    this.#pollingInterval = pollingInterval;
    this.#deps = deps;
  }

  /** Calls back after each change, until the returned function is called. */
  on(listener: () => void): () => void {
    const own = () => listener();
    this.#listeners.add(own);
    this.#schedule();
    return () => {
      this.#listeners.delete(own);
      if (this.#listeners.size > 0) return;
      this.#cancelTimer?.();
      this.#cancelTimer = null;
      this.#version = null;
    };
  }

  /** Like {@linkcode ChangePoller.on}, but calls back at most once every 100 ms: for listeners that read the store. */
  onThrottled(listener: () => void): () => void {
    const { host } = this.#deps;
    let restsUntil = -Infinity;
    let cancelTimer: (() => void) | null = null;
    const call = () => {
      cancelTimer = null;
      restsUntil = host.monotonic() + REST_MS;
      listener();
    };
    const stop = this.on(() => {
      if (cancelTimer !== null) return;
      const restMs = restsUntil - host.monotonic();
      if (restMs <= 0) call();
      else cancelTimer = host.schedule(restMs, call);
    });
    return () => {
      stop();
      cancelTimer?.();
    };
  }

  #schedule(ms = LOOK_EVERY_MS): void {
    if (this.#deps.polls === false) return;
    if (this.#cancelTimer !== null || this.#isLooking || this.#listeners.size === 0) return;
    this.#cancelTimer = this.#deps.host.schedule(ms, () => {
      this.#cancelTimer = null;
      this.#look();
    });
  }

  async #look(): Promise<void> {
    const { host, hub } = this.#deps;
    this.#isLooking = true;
    let nextMs = LOOK_EVERY_MS;
    try {
      const version = await this.#store.getVersion();
      // The first poll notifies, too: what the listeners have read may be older.
      const isDue = this.#version !== version || host.monotonic() - this.#notifiedAt >= this.#pollingInterval;
      this.#version = version;
      if (isDue) this.#notify();
    } catch (error) {
      hub.publishError(error);
      nextMs = PAUSE_AFTER_ERROR_MS;
    } finally {
      this.#isLooking = false;
      this.#schedule(nextMs);
    }
  }

  #notify(): void {
    this.#notifiedAt = this.#deps.host.monotonic();
    for (const listener of [...this.#listeners]) listener();
  }
}
