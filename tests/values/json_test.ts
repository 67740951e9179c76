import assert from "node:assert/strict";
import process from "node:process";
import { SerializationError } from "../../src/model/error.ts";
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
  ["a member that is undefined", { a: undefined, b: 1 }, { b: 1 }],
  ["an object without prototype", Object.assign(Object.create(null), { a: 1 }), { a: 1 }],
  ["a subclass of Array", new (class Rows extends Array {})(2).fill(1), [1, 1]],
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

function aTable(): unknown {
  const table = { rows: [] as unknown[] };
  for (let id = 0; id < 20; id++) table.rows.push({ id, table });
  return table;
}

const REFUSALS: [description: string, value: unknown, message: RegExp][] = [
  ["a cycle", aCycle(), /a cycle at \$\.inside\.list\[1\]$/],
  ["a cycle in many rows", aTable(), /a cycle at \$\.rows\[0\]\.table$/],
  ["a list with undefined", { a: [1, undefined] }, /undefined at \$\.a\[1\]$/],
  // deno-lint-ignore no-sparse-arrays -- it is what the test is about
  ["a list with a gap", [1, , 2], /undefined at \$\[1\]$/],
  ["an item whose toJSON() returns undefined", [{ toJSON: () => undefined }], /undefined at \$\[0\]$/],
  ["an instance of a class", { at: new Point() }, /an instance of Point at \$\.at$/],
  ["an object with inherited members", Object.create({ a: 1 }), /an instance of Object at \$$/],
  ["a boxed string", [Object("x")], /a String at \$\[0\]$/],
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

/** As many arrays, each inside the one before it. */
function nested(levels: number): unknown {
  return JSON.parse("[".repeat(levels) + "]".repeat(levels));
}

Deno.test("encode() writes 1,000 levels of arrays, and refuses more of them", () => {
  const act = () => encode({ a: nested(1_000) }, { ...OPTIONS, maxBytes: 10_000 });

  assert.equal(encode(nested(1_000), { ...OPTIONS, maxBytes: 2_000 }), "[".repeat(1_000) + "]".repeat(1_000));
  assert.throws(act, { message: "The value cannot be stored as JSON: it is nested more than 1000 levels deep" });
});

Deno.test("encode() refuses 1 MiB of brackets in less than 100 ms of CPU time", () => {
  const value = nested(524_288);
  const before = process.cpuUsage();

  assert.throws(() => encode(value, { ...OPTIONS, maxBytes: 1_048_576 }), SerializationError);

  const { user, system } = process.cpuUsage(before);
  assert.ok(user + system < 100_000, `${user + system} us`);
});

const sparse: number[] = [];
sparse[50_000_000] = 1;

const LARGE_VALUES: [description: string, value: unknown][] = [
  ["an array with a length of 50,000,001 and one item", sparse],
  ["a string of 400 million characters", ["x".repeat(400_000_000)]],
  ["one array in 2^60 places", Array.from({ length: 60 }).reduce((value) => [value, value], ["x"])],
  ["the same members, left out a million times", Array(1_000).fill(Object.fromEntries(Array(1_000).entries()))],
];

for (const [description, value] of LARGE_VALUES) {
  Deno.test(`encode() refuses ${description} as too large`, () => {
    assert.throws(() => encode(value, { ...OPTIONS, maxBytes: 10_000 }), { message: /^The value is too large/ });
  });
}

Deno.test("encode() reads no more of a large value than fits", () => {
  let read = 0;
  const row = {
    get id() {
      read += 1;
      return 1;
    },
  };

  assert.throws(() => encode(Array(400).fill(row), OPTIONS), { message: /too large/ });

  assert.ok(read < 200, String(read));
});

Deno.test("encode() calls a toJSON() once, and leaves the value as it was", () => {
  let called = 0;
  const price = { toJSON: () => ({ cents: ++called }) };
  const value = { rows: [{ price, at: new Date(0) }, 2], more: 1 };

  const text = encode(value, OPTIONS);

  assert.equal(text, '{"rows":[{"price":{"cents":1},"at":"1970-01-01T00:00:00.000Z"},2],"more":1}');
  assert.equal(value.rows[0], Object(value.rows[0]));
  assert.equal((value.rows[0] as { price: unknown }).price, price);
});

Deno.test("encode() refuses a value that changes into one that cannot be written", () => {
  let read = 0;
  const refused = (next: unknown) => () =>
    encode({
      get a() {
        return read++ % 2 === 0 ? 1 : next;
      },
    }, OPTIONS);

  assert.throws(refused(1n), { name: "SerializationError", message: /throws when read/ });
  assert.throws(refused("x".repeat(1_000)), { name: "SerializationError", message: /too large/ });
});

Deno.test("encode() writes errors as texts where that is asked for, and refuses one without a text", () => {
  const told = { ...OPTIONS, errorsAsText: true };
  const silent = Object.assign(new Error(), { toString: () => ({}) });

  assert.equal(encode({ a: [new RangeError("too far")] }, told), '{"a":["RangeError: too far"]}');
  assert.throws(() => encode(new Error("boom"), OPTIONS), { name: "SerializationError", message: /an Error at \$/ });
  assert.throws(() => encode(silent, told), { name: "SerializationError", message: /throws when read/ });
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
