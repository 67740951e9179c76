import assert from "node:assert/strict";
import { SerializationError } from "../../src/error.ts";
import { decode, encode, isSameJson, type Json } from "../../src/values/json.ts";

const OPTIONS = { subject: "The value", maxBytes: 1_000 };

class Point {
  x = 1;
  #hidden = 2;
  get sum() {
    return this.x + this.#hidden;
  }
}

const shared = { n: 1 };

const ROUND_TRIPS: [description: string, value: unknown, expected: unknown][] = [
  ["undefined", undefined, undefined],
  ["null", null, null],
  ["true", true, true],
  ["an integer", 2 ** 53, 2 ** 53],
  ["a fraction", 0.1, 0.1],
  ["minus zero", -0, 0],
  ["the largest number", Number.MAX_VALUE, Number.MAX_VALUE],
  ["an empty text", "", ""],
  ["a text with U+0000 and control characters", "a\0b\n\u2028", "a\0b\n\u2028"],
  ["a text with a lone surrogate", "x\ud800", "x\ud800"],
  ["an emoji", "😀", "😀"],
  ["a date", new Date(0), "1970-01-01T00:00:00.000Z"],
  ["an empty list", [], []],
  ["a list with undefined", [1, undefined], [1, null]],
  // deno-lint-ignore no-sparse-arrays -- it is what the test is about
  ["a list with a gap", [1, , 2], [1, null, 2]],
  ["a member that is undefined", { a: undefined, b: 1 }, { b: 1 }],
  ["an object without prototype", Object.assign(Object.create(null), { a: 1 }), { a: 1 }],
  ["an instance of a class", new Point(), { x: 1 }],
  ["a URL", new URL("https://example.com/a"), "https://example.com/a"],
  ["something with toJSON()", { toJSON: () => ({ a: [new Date(0)] }) }, { a: ["1970-01-01T00:00:00.000Z"] }],
  ["a member whose toJSON() returns undefined", { a: { toJSON: () => undefined } }, {}],
  ["one object in two places", [shared, shared], [{ n: 1 }, { n: 1 }]],
  ["a member with a symbol as its key", { [Symbol("a")]: 1, b: 2 }, { b: 2 }],
];

for (const [description, value, expected] of ROUND_TRIPS) {
  Deno.test(`encode() and decode() carry ${description}`, () => {
    const once = decode(encode(value, OPTIONS));
    const twice = decode(encode(once, OPTIONS));

    assert.deepEqual(once, expected);
    assert.deepEqual(twice, once);
  });
}

Deno.test("encode() and decode() carry a member named __proto__ as data", () => {
  const value = JSON.parse('{"__proto__":{"polluted":true}}');

  const once = decode(encode(value, OPTIONS)) as Record<string, unknown>;

  assert.deepEqual(Object.keys(once), ["__proto__"]);
  assert.equal(({} as Record<string, unknown>).polluted, undefined);
});

function aCycle(): unknown {
  const cycle: Record<string, unknown> = { name: "a" };
  cycle.inside = { list: [1, cycle] };
  return cycle;
}

const REFUSALS: [description: string, value: unknown, message: RegExp][] = [
  ["a cycle", aCycle(), /a cycle at \$\.inside\.list\[1\]$/],
  ["a bigint", { rows: [{ id: 1n }] }, /a bigint at \$\.rows\[0\]\.id$/],
  ["a function", { a: { work: () => 1 } }, /a function at \$\.a\.work$/],
  ["a class", [Point], /a function at \$\[0\]$/],
  ["a symbol", [Symbol("a")], /a symbol at \$\[0\]$/],
  ["NaN", { a: NaN }, /NaN at \$\.a$/],
  ["Infinity", [Infinity], /Infinity at \$\[0\]$/],
  ["minus Infinity", -Infinity, /-Infinity at \$$/],
  ["a Map", new Map(), /a Map at \$$/],
  ["a nested Set", { a: [{ b: new Set() }] }, /a Set at \$\.a\[0\]\.b$/],
  ["a WeakMap", { a: new WeakMap() }, /a WeakMap at \$\.a$/],
  ["a promise that was not awaited", { a: Promise.resolve(1) }, /a Promise at \$\.a$/],
  ["a regular expression", { a: /x/ }, /a RegExp at \$\.a$/],
  ["an error", { a: new RangeError("x") }, /an Error at \$\.a$/],
  ["bytes", { a: new Uint8Array(3) }, /a Uint8Array at \$\.a$/],
  ["a buffer", { a: new ArrayBuffer(3) }, /an ArrayBuffer at \$\.a$/],
  ["a subclass of Map", { a: new (class Index extends Map {})() }, /a Map at \$\.a$/],
  ["what toJSON() hides", { a: { toJSON: () => ({ b: new Map() }) } }, /a Map at \$\.a\.b$/],
  ["a toJSON() that answers undefined", { toJSON: () => undefined }, /toJSON\(\) returns undefined/],
  ["a toJSON() that throws", {
    a: {
      toJSON: () => {
        throw new Error("no");
      },
    },
  }, /\$\.a.*throws/],
  ["a getter that throws", {
    a: {
      get b(): number {
        throw new Error("no");
      },
    },
  }, /\$\.a.*throws/],
  ["a boxed bigint", { a: Object(1n) }, /cannot be stored as JSON/],
];

for (const [description, value, message] of REFUSALS) {
  Deno.test(`encode() refuses ${description}, and says where`, () => {
    const act = () => encode(value, OPTIONS);

    assert.throws(act, (error: SerializationError) => {
      assert.ok(error instanceof SerializationError);
      assert.match(error.message, /^The value /);
      assert.match(error.message, message);
      return true;
    });
  });
}

Deno.test("encode() refuses a value that is too large, in bytes and not in characters", () => {
  const encodeWithin = (value: unknown, maxBytes: number) => () => encode(value, { ...OPTIONS, maxBytes });

  assert.throws(encodeWithin("x".repeat(9), 10), { name: "SerializationError", message: /too large.*10 bytes/ });
  assert.throws(encodeWithin("é".repeat(5), 10), SerializationError);
  assert.throws(encodeWithin("€".repeat(3), 10), SerializationError);
  assert.equal(encodeWithin("x".repeat(8), 10)(), `"${"x".repeat(8)}"`);
  assert.equal(encodeWithin("é".repeat(4), 10)(), `"${"é".repeat(4)}"`);
});

Deno.test("encode() refuses, or writes, a value that is nested very deep, and does so soon", () => {
  let value: unknown = 1;
  for (let depth = 0; depth < 20_000; depth++) value = { a: value };

  try {
    encode(value, { ...OPTIONS, maxBytes: 10_000_000 });
  } catch (error) {
    assert.ok(error instanceof SerializationError);
  }
});

Deno.test("isSameJson() looks past the order of keys, and at nothing else", () => {
  const pairs: [Json, Json, boolean][] = [
    [{ a: 1, b: [{ c: 2, d: 3 }] }, { b: [{ d: 3, c: 2 }], a: 1 }, true],
    [JSON.parse("1.0"), 1, true],
    [[1, 2], [2, 1], false],
    [{ a: 1 }, { a: "1" }, false],
    [{ a: null }, {}, false],
    [null, null, true],
    [[], {}, false],
    [{ "1": 1, a: 2 }, { a: 2, "1": 1 }, true],
    [JSON.parse('{"__proto__":1}'), {}, false],
  ];

  for (const [left, right, expected] of pairs) {
    assert.equal(isSameJson(left, right), expected, `${JSON.stringify(left)} ${JSON.stringify(right)}`);
  }
});
