import assert from "node:assert/strict";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { actionsOf, flatFieldsOf, messageOf } from "../../src/model/flat_form.ts";
import { jsonSchemaOf, type Schema } from "../../src/model/schema.ts";
import type { Json } from "../../src/values/json.ts";

function fieldsOf(schema: Schema) {
  return flatFieldsOf((jsonSchemaOf(schema) ?? undefined) as Json | undefined);
}

Deno.test("flatFieldsOf() makes a field of each string, number, integer, boolean and choice", () => {
  const fields = fieldsOf(z.object({
    approved: z.boolean(),
    reason: z.enum(["damaged", "late"]).optional(),
    note: z.string().meta({ title: "A note", description: "For the customer" }).default("none"),
    mail: z.email(),
    cents: z.int(),
    share: z.number().optional(),
    kind: z.literal("refund"),
  }));

  const short = fields?.map(({ name, type, choices, isRequired }) => [name, type, choices, isRequired]);
  assert.deepEqual(short, [
    ["approved", "boolean", null, true],
    ["reason", "string", ["damaged", "late"], false],
    ["note", "string", null, false],
    ["mail", "string", null, true],
    ["cents", "integer", null, true],
    ["share", "number", null, false],
    ["kind", "string", ["refund"], true],
  ]);
  assert.partialDeepStrictEqual(fields?.[2], { title: "A note", description: "For the customer", default: "none" });
  assert.equal(fields?.[3]?.format, "email");
});

Deno.test("flatFieldsOf() reads the schemas of ArkType", () => {
  const fields = fieldsOf(type({ approved: "boolean", "reason?": "'damaged' | 'late'", cents: "number.integer" }));

  const short = fields?.map(({ name, type, choices, isRequired }) => [name, type, choices, isRequired]);
  assert.deepEqual(short?.sort(), [
    ["approved", "boolean", null, true],
    ["cents", "integer", null, true],
    ["reason", "string", ["damaged", "late"], false],
  ]);
});

Deno.test("flatFieldsOf() makes nothing of what is not flat, or cannot be given by a form", () => {
  const many = Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`f${n}`, z.string()]));
  const others: Json[] = [
    null,
    true,
    "x",
    [],
    {},
    { type: "string" },
    { type: ["object", "null"], properties: {} },
    { type: "object", required: ["a"] },
    { type: "object", properties: { a: true } },
    { type: "object", properties: { a: { enum: [] } } },
    { type: "object", properties: { a: { enum: [null] } } },
    { type: "object", properties: { a: { $ref: "#/x" } } },
    { type: "object", properties: {}, anyOf: [] },
  ];

  assert.equal(flatFieldsOf(undefined), null);
  for (const schema of [z.string(), z.array(z.string()), z.object({ a: z.object({}) }), z.object(many)]) {
    assert.equal(fieldsOf(schema), null);
  }
  assert.equal(fieldsOf(z.object({ a: z.string().nullable() })), null);
  for (const schema of others) assert.equal(flatFieldsOf(schema), null, JSON.stringify(schema));
  assert.deepEqual(flatFieldsOf({ type: "object" }), []);
  const countries = Array.from({ length: 249 }, (_, n) => `c${n}`);
  assert.deepEqual(fieldsOf(z.object({ country: z.enum(countries) }))?.[0]?.choices, countries);
  assert.equal(fieldsOf(v.object({ a: v.string() })), null, "valibot makes no JSON Schema by itself");
});

Deno.test("a field with a name of an object's own members stays a field", () => {
  const schema = JSON.parse(
    '{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"string"}}}',
  );

  assert.deepEqual(flatFieldsOf(schema)?.map(({ name }) => name), ["__proto__", "constructor"]);
});

Deno.test("actionsOf() and messageOf() read the metadata of a wait, whatever it is", () => {
  const actions: Json = [{ label: "Yes", payload: { ok: true } }, { label: "No" }, { label: 7 }, null, { payload: 1 }, {
    label: "",
  }];

  assert.deepEqual(actionsOf({ actions }), [{ label: "Yes", payload: { ok: true } }, { label: "No", payload: null }]);
  assert.equal(actionsOf({ actions: Array.from({ length: 9 }, (_, n) => ({ label: `${n}`, payload: n })) }).length, 8);
  for (const metadata of [null, 1, "x", [], {}, { actions: {} }] as Json[]) assert.deepEqual(actionsOf(metadata), []);
  assert.equal(messageOf({ message: "Refund?" }), "Refund?");
  for (const metadata of [null, "x", {}, { message: 7 }, { message: "" }] as Json[]) {
    assert.equal(messageOf(metadata), null);
  }
});
