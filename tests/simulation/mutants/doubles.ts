import type { Store } from "../../../src/store/store.ts";
import { Chance } from "../../support/chance.ts";
import { MessageSplitter } from "../../support/http/message_splitter.ts";
import type { Mutant } from "./mutant.ts";

/** A store with some methods made wrong. */
export function double(store: Store, methods: Partial<Store>): Store {
  return new Proxy(store, {
    get: (_, name) => {
      if (name === "then") return undefined;
      const own = methods[name as keyof Store];
      const method = (own ?? store[name as keyof Store]) as (...parameters: unknown[]) => unknown;
      return own === undefined ? method?.bind(store) : method;
    },
  });
}

/** The shared store with some methods made wrong. */
export function over(methods: (store: Store, chance: Chance) => Partial<Store>): NonNullable<Mutant["store"]> {
  return (make, host) => {
    const store = make(host);
    return double(store, methods(store, new Chance(7)));
  };
}

/** The store as one process sees it, with some methods made wrong. */
export function overClient(methods: (store: Store) => Partial<Store>): NonNullable<Mutant["client"]> {
  return (store) => double(store, methods(store));
}

/** A handler whose streams carry other messages: all of them, or those whose path ends in this. */
export function withStreams(
  change: (messages: string[], chance: Chance) => string[],
  path = "",
): NonNullable<Mutant["fetch"]> {
  const chance = new Chance(7);
  return (fetch) => async (request) => {
    const response = await fetch(request);
    const isStream = response.headers.get("content-type") === "text/event-stream";
    if (!isStream || !new URL(request.url).pathname.endsWith(path)) return response;
    const splitter = new MessageSplitter();
    const encoder = new TextEncoder();
    const changing = new TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>>({
      transform: (chunk, controller) => {
        const changed = change(splitter.split(chunk), chance).map((message) => `${message}\n\n`).join("");
        if (changed !== "") controller.enqueue(encoder.encode(changed));
      },
    });
    return new Response(response.body!.pipeThrough(changing), response);
  };
}
