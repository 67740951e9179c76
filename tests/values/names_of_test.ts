import assert from "node:assert/strict";
import { namesOf } from "../../src/values/option_names.ts";

interface Options {
  first?: string;
  second?: number;
  third?: boolean;
}

Deno.test("namesOf() is an object of the names, in their order, of one list or several", () => {
  assert.deepEqual(Object.entries(namesOf<keyof Options>()("second first", "third")), [
    ["second", true],
    ["first", true],
    ["third", true],
  ]);
});

Deno.test("namesOf() takes no list that lacks a name, or has one more", () => {
  // @ts-expect-error: `third` is missing
  namesOf<keyof Options>()("first second");
  // @ts-expect-error: there is no `fourth`
  namesOf<keyof Options>()("first second third fourth");
});
