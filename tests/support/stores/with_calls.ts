import type { Store } from "../../../src/store/store.ts";

/** A store some of whose calls are others. */
export function withCalls(store: Store, calls: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const member = calls[name as keyof Store] ?? target[name as keyof Store];
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}
