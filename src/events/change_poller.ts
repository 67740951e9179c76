import type { Store } from "../store/store.ts";
import type { ChangeWatch } from "./change_watch.ts";
import type { RetryDeps } from "./retry_store_call.ts";
import { Throttle } from "./throttle.ts";
import type { Hub } from "./hub.ts";

// A write of another process is noticed after half of this interval on average. Most of what a poll costs is the timer:
// some 60 us. A store that can report changes is read over a network: a poll of it costs more.
const LOOK_EVERY_MS = 10;
const LOOK_EVERY_OVER_NETWORK_MS = 20;
const REST_MS = 100;
const PAUSE_AFTER_ERROR_MS = 1_000;

/** The dependencies of a {@linkcode ChangePoller}. */
interface ChangePollerDeps extends RetryDeps {
  /** Reports changes, if the store does. */
  watch: ChangeWatch;
  /** Whether there are changes to poll for. If not, it only passes on what the store reports. Default: yes. */
  polls?: boolean;
}

/**
 * Notices writes of other processes, which can share the store. While the store does not report them, it polls. It does
 * both only while there are listeners.
 */
export class ChangePoller {
  readonly #store: Store;
  readonly #deps: ChangePollerDeps;
  readonly #pollingInterval: number;
  readonly #listeners = new Set<() => void>();
  /** Those of the listeners that are called without a change, too. */
  readonly #readers = new Set<() => void>();
  #version: number | null = null;
  #calledAt = 0;
  #cancelTimer: (() => void) | null = null;
  #isLooking = false;
  #stopWatching: () => void = () => {};

  /**
   * Creates a poller; it polls from the first listener on.
   *
   * @param pollingInterval After this many milliseconds it calls those who read the store even without a change: a store
   * may not notice writes of others that use its connection, and reports of changes can be missing.
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
    if (this.#listeners.size === 1) this.#stopWatching = this.#deps.watch.on(() => this.#noteReport());
    this.#schedule();
    return () => {
      if (!this.#listeners.delete(own) || this.#listeners.size > 0) return;
      this.#stopWatching();
      this.#cancelTimer?.();
      this.#cancelTimer = null;
      this.#version = null;
    };
  }

  /**
   * For listeners that read the store: calls back after each change, but at most once every 100 ms, and after each
   * polling interval without one.
   */
  onThrottled(listener: () => void): () => void {
    const throttle = new Throttle(this.#deps.host, REST_MS, listener);
    const read = () => throttle.call();
    const stop = this.on(read);
    this.#readers.add(read);
    return () => {
      this.#readers.delete(read);
      stop();
      throttle.cancel();
    };
  }

  #schedule(ms = this.#intervalMs): void {
    if (this.#deps.polls === false) return;
    if (this.#cancelTimer !== null || this.#isLooking || this.#listeners.size === 0) return;
    this.#cancelTimer = this.#deps.host.schedule(ms, () => {
      this.#cancelTimer = null;
      this.#look();
    });
  }

  get #intervalMs(): number {
    if (this.#deps.watch.isLive) return this.#pollingInterval;
    return this.#store.watch === undefined ? LOOK_EVERY_MS : LOOK_EVERY_OVER_NETWORK_MS;
  }

  /** The store has reported a change, or that it begins or ceases to report changes. */
  #noteReport(): void {
    this.#version = null;
    this.#call(this.#listeners);
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    this.#schedule();
  }

  async #look(): Promise<void> {
    const { host, hub, watch } = this.#deps;
    if (watch.isLive) {
      this.#call(this.#readers);
      return this.#schedule();
    }
    this.#isLooking = true;
    let nextMs: number | undefined;
    try {
      const version = await this.#store.getVersion();
      if (this.#listeners.size === 0) return; // later listeners may have read an older state before they begin
      // The first poll notifies, too: what the listeners have read may be older.
      const hasChanged = this.#version !== version;
      this.#version = version;
      if (hasChanged) this.#call(this.#listeners);
      else if (host.monotonic() - this.#calledAt >= this.#pollingInterval) this.#call(this.#readers);
    } catch (error) {
      hub.publishError(error);
      nextMs = PAUSE_AFTER_ERROR_MS;
    } finally {
      this.#isLooking = false;
      this.#schedule(nextMs);
    }
  }

  #call(listeners: Iterable<() => void>): void {
    this.#calledAt = this.#deps.host.monotonic();
    for (const listener of [...listeners]) listener();
  }
}

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
