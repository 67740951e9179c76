import assert from "node:assert/strict";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { TimeoutError } from "../../src/model/error.ts";
import { parse, type Schema, type SchemaIssue } from "../../src/model/schema.ts";
import { FakeHost } from "../support/fake_host.ts";
import { forever } from "../support/stores/for_each_store.ts";

function limits(host = new FakeHost()) {
  return { host, subject: "The schema" };
}

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
    const parsed = await parse(schema, { rows: [{ name: "a" }] }, limits());

    assert.deepEqual(parsed, { ok: true, value: { rows: [{ name: "a" }] } });
  });

  Deno.test(`parse() answers where a schema of ${library} refuses`, async () => {
    const parsed = await parse(schema, { rows: [{ name: "a" }, { name: 7 }] }, limits());

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
    assert.deepEqual(await parse(schema, { size: "7" }, limits()), { ok: true, value: { size: 7 } }, library);
  }
});

Deno.test("parse() carries undefined in both directions", async () => {
  const parsed = await parse(z.undefined(), undefined, limits());

  assert.deepEqual(parsed, { ok: true, value: undefined });
});

function aSchema(validate: Schema["~standard"]["validate"]): Schema {
  return { "~standard": { version: 1, vendor: "test", validate } };
}

Deno.test("parse() takes every kind of path", async () => {
  const symbol = Symbol("key");
  const path = ["a", 1, { key: "b" }, { key: 2 }, symbol, { key: symbol }];

  const parsed = await parse(
    aSchema(() => ({ issues: [{ message: "no", path }, { message: "none" }] })),
    null,
    limits(),
  );

  assert.deepEqual(parsed, {
    ok: false,
    issues: [{ path: ["a", 1, "b", 2, "Symbol(key)", "Symbol(key)"], message: "no" }, { path: [], message: "none" }],
    issuesLeftOut: 0,
  });
});

Deno.test("parse() keeps equal issues once", async () => {
  const issues = [{ message: "no", path: ["a"] }, { message: "no", path: ["b"] }, { message: "no", path: ["a"] }];

  const parsed = await parse(aSchema(() => ({ issues: [...issues, ...issues] })), null, limits());

  assert.ok(!parsed.ok);
  assert.deepEqual([parsed.issues, parsed.issuesLeftOut], [issues.slice(0, 2), 0]);
});

Deno.test("parse() keeps the first 20 issues, and counts those that it leaves out", async () => {
  const issues = Array.from({ length: 60_000 }, (_, at) => ({ message: `no ${at}`, path: [at] }));

  const parsed = await parse(aSchema(() => ({ issues })), null, limits());

  assert.ok(!parsed.ok);
  assert.deepEqual(parsed.issues, issues.slice(0, 20).map(({ message, path }) => ({ path, message })));
  assert.equal(parsed.issuesLeftOut, 59_980);
});

const LONG = "\u{1}".repeat(1_000_000); // six bytes each as JSON
const LARGE_ISSUES: Record<string, SchemaIssue> = {
  "a long message": { message: LONG },
  "a long key": { message: "no", path: [LONG] },
  "a long path": { message: "no", path: Array(100_000).fill("") },
  "a long path of numbers": { message: "no", path: Array(100_000).fill(1e21) },
  "a long path and a long message": { message: LONG, path: Array(100).fill({ key: LONG.slice(0, 100) }) },
};

for (const [what, issue] of Object.entries(LARGE_ISSUES)) {
  Deno.test(`parse() keeps at most 8 KiB of issues with ${what}, and at least one`, async () => {
    const issues = Array.from({ length: 20 }, (_, at) => ({ ...issue, path: [at, ...issue.path ?? []] }));

    const parsed = await parse(aSchema(() => ({ issues })), null, limits());

    assert.ok(!parsed.ok);
    assert.ok(parsed.issues.length >= 1);
    assert.equal(parsed.issues.length + parsed.issuesLeftOut, 20);
    assert.ok(new TextEncoder().encode(JSON.stringify(parsed.issues)).length <= 8_192);
  });
}

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
    const parsed = await parse(aSchema(validate), 1, limits());

    assert.ok(!parsed.ok);
    assert.equal(parsed.issues.length, 1);
    assert.deepEqual(parsed.issues[0]!.path, []);
    assert.notEqual(parsed.cause, undefined);
  });
}

Deno.test("parse() gives up a schema that does not settle within 30 s, and names it", async () => {
  const host = new FakeHost();

  const parsing = parse(aSchema(() => forever()), 1, limits(host));
  host.advance(29_999);
  await host.settle();
  assert.equal(host.timerCount, 1);
  host.advance(1);

  await assert.rejects(parsing, (error: Error) => {
    assert.ok(error instanceof TimeoutError);
    assert.equal(error.message, "The schema has not settled within 30000 ms");
    return true;
  });
});

Deno.test("parse() sets no timer for a schema that answers at once, and leaves none behind", async () => {
  const host = new FakeHost();

  const parsing = parse(aSchema(() => ({ value: 1 })), 1, limits(host));
  const during = host.timerCount;
  await parsing;
  await parse(aSchema(() => Promise.resolve({ value: 1 })), 1, limits(host));
  await parse(aSchema(() => Promise.reject(new Error("broken"))), 1, limits(host));

  assert.deepEqual([during, host.timerCount], [0, 0]);
});

Deno.test("parse() ends with the reason of its abort signal, also of one that has fired", async () => {
  const host = new FakeHost();
  const reason = new Error("The run was cancelled");
  const during = new AbortController();

  const parsing = parse(aSchema(() => forever()), 1, { ...limits(host), abortSignal: during.signal });
  during.abort(reason);
  const late = parse(aSchema(() => forever()), 1, { ...limits(host), abortSignal: during.signal });

  await assert.rejects(parsing, (error) => error === reason);
  await assert.rejects(late, (error) => error === reason);
  assert.equal(host.timerCount, 0);
});
