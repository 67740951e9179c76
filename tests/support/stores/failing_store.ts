import { StoreError } from "../../../src/model/error.ts";
import type { Store } from "../../../src/store/store.ts";

/** The store, but some of its calls fail: before they do anything, or after they have done it. */
export function failing(store: Store, fails: (method: string) => "before" | "after" | null): Store {
  return new Proxy(store, {
    get: (target, key: keyof Store & string) => {
      const method = target[key] as unknown;
      if (typeof method !== "function" || key === "watch") return method;
      return async (...args: unknown[]) => {
        const when = fails(key);
        if (when === "before") throw new StoreError("busy");
        const answer = await method.apply(target, args);
        if (when === "after") throw new StoreError("answer lost", { outcomeUnknown: true });
        return answer;
      };
    },
  });
}

/** Fails the first `times` calls of one method. */
export function first(times: number, method: string, when: "before" | "after") {
  let calls = 0;
  return (called: string) => called === method && calls++ < times ? when : null;
}
