import assert from "node:assert/strict";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { defineJob, type JobDefinition } from "../../../src/model/job/define_job.ts";
import type { Schema } from "../../../src/model/schema.ts";

/** Defines a job as JavaScript can: with a definition that the types forbid. */
function define(definition: Record<string, unknown>) {
  return defineJob({ name: "mail", input: z.null(), run: () => 1, ...definition } as JobDefinition<Schema, unknown>);
}

const REFUSALS: [description: string, definition: Record<string, unknown>, message: RegExp][] = [
  [
    "an unknown option",
    { retries: {} },
    /^defineJob\(\) of job "mail" has no option "retries"; it has name, input, outp/,
  ],
  [
    "no input schema",
    { input: undefined },
    /^The input of job "mail" must be a Standard Schema \(zod 4, .*, not undefined$/,
  ],
  [
    "an input that is a plain object",
    { input: { to: "string" } },
    /^The input of job "mail" must be .*, not an object$/,
  ],
  ["an input that is a function", { input: () => true }, /^The input of job "mail" must be .*, not a function$/],
  ["an output that is none", { output: "string" }, /^The output of job "mail" must be .*, not a string$/],
  ["an output that is null", { output: null }, /^The output of job "mail" must be .*, not null$/],
  ["no function", { run: undefined }, /^Job "mail" needs a function run, not undefined$/],
];

for (const [description, definition, message] of REFUSALS) {
  Deno.test(`defineJob() refuses ${description}, and says what is wrong`, () => {
    assert.throws(() => define(definition), { name: "TypeError", message });
  });
}

Deno.test("defineJob() says what it takes", () => {
  const message = "defineJob() takes { name, input, run }, not undefined";

  assert.throws(defineJob as () => unknown, { name: "TypeError", message });
});

Deno.test("defineJob() takes schemas that are objects or functions", () => {
  for (const input of [z.string(), v.string(), type("string")] as Schema[]) define({ input, output: input });
});
