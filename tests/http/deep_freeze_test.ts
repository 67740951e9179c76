import assert from "node:assert/strict";
import { deepFreeze } from "../../src/http/access/seen_by_hooks.ts";

Deno.test("deepFreeze() freezes everything in a value, and answers it", () => {
  const value = JSON.parse('{"list":[{"text":"a"},null],"__proto__":{"own":{}}}');
  const proto = Object.getOwnPropertyDescriptor(value, "__proto__")!.value;

  const frozen = deepFreeze(value);

  assert.equal(frozen, value);
  for (const part of [value, value.list, value.list[0], proto, proto.own]) assert.ok(Object.isFrozen(part));
});

Deno.test("deepFreeze() takes what is no object", () => {
  for (const value of [undefined, null, 0, "text", true]) assert.equal(deepFreeze(value), value);
});

Deno.test("deepFreeze() takes any depth, and lists of any length", () => {
  let deep: unknown = [];
  for (let depth = 0; depth < 100_000; depth++) deep = [deep];
  const long = Array.from({ length: 1_000_000 }, () => ({}));

  deepFreeze(deep);
  deepFreeze(long);

  assert.ok(Object.isFrozen(deep));
  assert.ok(Object.isFrozen(long.at(-1)));
});
