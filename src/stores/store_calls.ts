import type { Store } from "../store/store.ts";

/** The calls of a store as functions: what they do needs no declaration besides that of {@linkcode Store}. */
export type StoreCalls<S> = {
  readonly [Name in Exclude<keyof Store, symbol | "migrate" | "close" | "watch" | "transact">]: (
    store: S,
    ...parameters: Parameters<Store[Name]>
  ) => ReturnType<Store[Name]>;
};

/** Makes the calls methods of a class of stores. */
export function addCalls<S extends Store>(prototype: S, calls: StoreCalls<S>): void {
  for (const [name, call] of Object.entries(calls)) {
    const value = function (this: S, ...parameters: never[]) {
      return (call as (store: S, ...parameters: never[]) => Promise<unknown>)(this, ...parameters);
    };
    Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
  }
}
