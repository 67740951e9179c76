import { test } from "node:test";
import { LEFT_OUT } from "./left_out.ts";

type Body = () => void | Promise<void>;
interface Options {
  ignore?: boolean;
}
type Definition = Options & { name: string; fn: Body };

// Nothing else of Deno is here: a test that needs more fails on Node, unless it is left out.
Object.assign(globalThis, { Deno: { test: register } });

/** Does what `Deno.test()` does, in the forms that the tests use. */
function register(...given: [Definition] | [string, Body] | [string, Options, Body]): void {
  const { name, ignore = false, fn } = toDefinition(given);
  const reason = Object.entries(LEFT_OUT).find(([beginning]) => name.startsWith(beginning))?.[1];
  test(name, { skip: reason ?? ignore }, () => fn());
}

function toDefinition(given: Parameters<typeof register>): Definition {
  if (given.length === 1) return given[0];
  return given.length === 2 ? { name: given[0], fn: given[1] } : { ...given[1], name: given[0], fn: given[2] };
}
