import assert from "node:assert/strict";
import { ValidationError } from "../../src/model/error.ts";
import { checkLabels, checkName, isName } from "../../src/values/name.ts";

Deno.test("isName() takes well-formed texts of 1 to 255 characters", () => {
  const names = ["a", " ", "x".repeat(255), "😀", "naïve/Name:1#x", "__proto__", "\u2028", "\u00a0"];

  for (const name of names) assert.equal(isName(name), true, JSON.stringify(name));
});

Deno.test("isName() refuses everything else", () => {
  const others = [
    "",
    "x".repeat(256),
    "a\0",
    "\n",
    "\t",
    "\u007f",
    "\u0085",
    "\ud800",
    "a\udc00",
    1,
    null,
    undefined,
    {},
  ];

  for (const other of others) assert.equal(isName(other), false, JSON.stringify(other));
});

Deno.test("checkName() says what was refused", () => {
  const check = () => checkName("", "concurrencyKey");

  assert.throws(check, (error: ValidationError) => {
    assert.ok(error instanceof ValidationError);
    assert.equal(error.code, "invalid_request");
    assert.deepEqual(error.issues, []);
    assert.match(error.message, /^concurrencyKey must be/);
    return true;
  });
  assert.doesNotThrow(() => checkName("line", "concurrencyKey"));
});

Deno.test("checkLabels() copies and freezes labels", () => {
  const given: Record<string, string> = { a: "b" };

  const labels = checkLabels(given);
  given.a = "changed";

  assert.deepEqual(labels, { a: "b" });
  assert.ok(Object.isFrozen(labels));
});

Deno.test("checkLabels() takes what is within the limits", () => {
  const many = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`k${n}`, ""]));

  assert.equal(Object.keys(checkLabels(many)).length, 64);
  assert.deepEqual(checkLabels({}), {});
  assert.deepEqual(checkLabels({ "A-z_0.9/": "v".repeat(255) }), { "A-z_0.9/": "v".repeat(255) });
});

Deno.test("checkLabels() keeps a label named __proto__ as data", () => {
  const labels = checkLabels(JSON.parse('{"__proto__":"a","constructor":"b","toString":"c"}'));

  assert.deepEqual(Object.entries(labels).toSorted(), [["__proto__", "a"], ["constructor", "b"], ["toString", "c"]]);
  assert.equal(Object.getPrototypeOf(labels), Object.prototype);
});

Deno.test("checkLabels() refuses what is none", () => {
  const wrong: unknown[] = [
    null,
    undefined,
    7,
    "a",
    [],
    [["a", "b"]],
    { a: 1 },
    { a: null },
    { a: undefined },
    { a: {} },
    { "": "a" },
    { "a b": "c" },
    { "ä": "c" },
    { "a:b": "c" },
    { "a\n": "c" },
    { ["k".repeat(64)]: "a" },
    { a: "v".repeat(256) },
    { a: "\n" },
    { a: "\ud800" },
    Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, ""])),
  ];

  for (const labels of wrong) assert.throws(() => checkLabels(labels), ValidationError, JSON.stringify(labels));
});
