import type { Host } from "../model/host.ts";
import type { Store, StoreWatch } from "../store/store.ts";
import type { ActivityListeners, Hub } from "./hub.ts";
import { Throttle } from "./throttle.ts";

// Other processes can commit at any rate: of many changes, those within this time are one call. A few are passed on at
// once, so that a change does not wait because this process has committed something just before.
const REST_MS = 20;
const BURST = 4;

const ofStores = new WeakMap<Store, ActivityListeners>();

/** The listeners of the engines that share a `Store` object, whose version does not tell one what another has committed. */
export function activityListenersOf(store: Store): ActivityListeners {
  const listeners = ofStores.get(store) ?? new Map();
  ofStores.set(store, listeners);
  return listeners;
}

/** One watch of the store, for all parts of an engine that look for changes. It exists while there are listeners. */
export class ChangeWatch {
  readonly #store: Store;
  readonly #hub: Hub;
  readonly #listeners = new Set<() => void>();
  readonly #throttle: Throttle;
  #watch: StoreWatch | null = null;

  /** Creates a watch; `hub` publishes the errors of the store's reports. */
  constructor(store: Store, { host, hub }: { host: Host; hub: Hub }) {
    this.#store = store;
    this.#hub = hub;
    this.#throttle = new Throttle(host, REST_MS, () => this.#notify(), BURST);
  }

  /**
   * Whether the store reports changes at present. Then nobody has to poll often; but a report can be missing, so a part that
   * reads the store still looks now and then.
   */
  get isLive(): boolean {
    return this.#watch?.isLive ?? false;
  }

  /**
   * Calls back after the store has reported changes, or another engine with the same `Store` object has made some, every
   * 20 ms if there are many, and whenever {@linkcode ChangeWatch.isLive} changes, until the returned function is called.
   */
  on(listener: () => void): () => void {
    const own = () => listener();
    this.#listeners.add(own);
    if (this.#listeners.size === 1) {
      const onChange = () => this.#throttle.call();
      const onError = (error: unknown) => this.#hub.publishError(error);
      this.#watch = this.#store.watch?.({ onChange, onError }) ??
        { isLive: false, stop: this.#hub.onActivity(onChange, this.#hub) };
    }
    return () => {
      if (!this.#listeners.delete(own) || this.#listeners.size > 0) return;
      this.#watch?.stop();
      this.#watch = null;
      this.#throttle.cancel();
    };
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
