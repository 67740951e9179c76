import assert from "node:assert/strict";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { parse, type Schema } from "../src/schema.ts";

const LIBRARIES: Record<string, Schema> = {
  zod: z.object({ rows: z.array(z.object({ name: z.string() })) }),
  valibot: v.object({ rows: v.array(v.object({ name: v.string() })) }),
  arktype: type({ rows: type({ name: "string" }).array() }),
  "async zod": z.object({ rows: z.array(z.object({ name: z.string().refine(() => Promise.resolve(true)) })) }),
  "async valibot": v.objectAsync({
    rows: v.arrayAsync(v.objectAsync({ name: v.pipeAsync(v.string(), v.checkAsync(() => Promise.resolve(true))) })),
  }),
};

for (const [library, schema] of Object.entries(LIBRARIES)) {
  Deno.test(`parse() answers what a schema of ${library} accepts`, async () => {
    const parsed = await parse(schema, { rows: [{ name: "a" }] });

    assert.deepEqual(parsed, { ok: true, value: { rows: [{ name: "a" }] } });
  });

  Deno.test(`parse() answers where a schema of ${library} refuses`, async () => {
    const parsed = await parse(schema, { rows: [{ name: "a" }, { name: 7 }] });

    assert.ok(!parsed.ok);
    assert.deepEqual(parsed.issues.map(({ path }) => path), [["rows", 1, "name"]]);
    assert.ok(parsed.issues.every(({ message }) => message.length > 0));
    assert.equal("cause" in parsed, false);
  });
}

Deno.test("parse() answers what a schema makes of a value", async () => {
  const transforms: Record<string, Schema> = {
    zod: z.object({ size: z.coerce.number().default(3) }),
    "async zod": z.object({ size: z.string().transform((text) => Promise.resolve(Number(text))) }),
    valibot: v.object({ size: v.pipe(v.string(), v.transform(Number)) }),
    arktype: type({ size: "string.numeric.parse" }),
  };

  for (const [library, schema] of Object.entries(transforms)) {
    assert.deepEqual(await parse(schema, { size: "7" }), { ok: true, value: { size: 7 } }, library);
  }
});

Deno.test("parse() carries undefined in both directions", async () => {
  const parsed = await parse(z.undefined(), undefined);

  assert.deepEqual(parsed, { ok: true, value: undefined });
});

function aSchema(validate: Schema["~standard"]["validate"]): Schema {
  return { "~standard": { version: 1, vendor: "test", validate } };
}

Deno.test("parse() takes every kind of path", async () => {
  const symbol = Symbol("key");
  const path = ["a", 1, { key: "b" }, { key: 2 }, symbol, { key: symbol }];

  const parsed = await parse(aSchema(() => ({ issues: [{ message: "no", path }, { message: "none" }] })), null);

  assert.deepEqual(parsed, {
    ok: false,
    issues: [{ path: ["a", 1, "b", 2, "Symbol(key)", "Symbol(key)"], message: "no" }, { path: [], message: "none" }],
  });
});

const BROKEN: Record<string, Schema["~standard"]["validate"]> = {
  throws: () => {
    throw new Error("broken");
  },
  rejects: () => Promise.reject(new Error("broken")),
  "throws undefined": () => {
    throw undefined;
  },
  "answers nothing": () => undefined as never,
  "answers issues that are no list": () => ({ issues: 7 as never }),
};

for (const [what, validate] of Object.entries(BROKEN)) {
  Deno.test(`parse() answers a refusal with a cause for a schema that ${what}`, async () => {
    const parsed = await parse(aSchema(validate), 1);

    assert.ok(!parsed.ok);
    assert.equal(parsed.issues.length, 1);
    assert.deepEqual(parsed.issues[0]!.path, []);
    assert.notEqual(parsed.cause, undefined);
  });
}
