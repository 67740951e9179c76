import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Schema } from "../../../src/model/schema.ts";
import { anything } from "../../support/stores/for_each_store.ts";
import { assertWell, provoke } from "../../support/http/hostile.ts";
import { aRequest, aService } from "../../support/http/http.ts";

const SCHEMAS: Record<string, Schema> = {
  "z.looseObject": z.looseObject({}),
  "z.record": z.record(z.string(), z.any()),
  "z.object": z.object({ a: z.number().default(1) }),
  "z.json": z.json(),
  "no validator": anything,
};

for (const [library, input] of Object.entries(SCHEMAS)) {
  Deno.test(`POST /trigger hands a job no prototype through ${library}`, async () => {
    const tells = defineJob({
      name: "tells",
      input,
      run: (
        _step,
        given,
      ) => [Object.getPrototypeOf(given) === Object.prototype, (given as { admin?: true }).admin ?? null],
    });
    await using service = aService({}, undefined, { tells });

    const { status, body } = await provoke(service, "POST", "/trigger", {
      body: '{"jobName":"tells","input":{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}}',
    });
    await service.engine.runUntilIdle();

    assert.equal(status, 200);
    assert.deepEqual((await service.engine.getRun(body.runId))!.output, [true, null]);
    await assertWell(service);
  });
}

const ODD_SCHEMAS: Record<string, (value: unknown) => unknown> = {
  "rejects with an Error": () => Promise.reject(new Error("file:///secret")),
  "rejects with nothing": () => Promise.reject(),
  "answers nothing": () => undefined,
  "answers null": () => null,
  "answers issues that are no list": () => ({ issues: "node:secret" }),
  "answers issues that are null inside": () => ({ issues: [null] }),
  "answers issues that throw when they are read": () => ({
    issues: [{
      get message(): string {
        throw new Error("file:///secret");
      },
    }],
  }),
  "answers issues with odd paths": () => ({
    issues: [{ message: 7, path: [Symbol("a"), { key: Symbol("b") }, { key: "__proto__" }, 0] }],
  }),
  "answers what cannot be read": () => ({
    get issues(): never {
      throw new Error("file:///secret");
    },
  }),
  "answers a value that JSON would lose": () => ({ value: { n: 1n } }),
  "answers a value that throws when it is read": () => ({
    value: {
      toJSON: () => {
        throw new Error("file:///secret");
      },
    },
  }),
};

for (const [what, validate] of Object.entries(ODD_SCHEMAS)) {
  Deno.test(`POST /trigger answers 400 if a schema ${what}`, async () => {
    const input = { "~standard": { version: 1, vendor: "test", validate } } as Schema;
    const odd = defineJob({ name: "odd", input, run: () => {} });
    await using service = aService({ onError: () => {} }, undefined, { odd });

    const { status, body } = await provoke(service, "POST", "/trigger", { body: { jobName: "odd", input: {} } });

    assert.deepEqual([status, body.code], [400, "invalid_input"]);
    assert.doesNotMatch(JSON.stringify(body), /secret/);
    assert.equal((await service.engine.getRuns()).total, 0);
    await assertWell(service);
  });
}

Deno.test("POST /trigger answers a body with a hundred thousand issues with less than 10 KiB", async () => {
  const rows = z.array(z.object({ name: z.string(), price: z.number() }));
  const strict = defineJob({ name: "strict", input: z.object({ rows }), run: () => {} });
  await using service = aService({}, undefined, { strict });
  const body = { jobName: "strict", input: { rows: Array(100_000).fill({}) } };

  const response = await service.handler.fetch(aRequest("POST", "/trigger", { body }));
  const text = await response.text();

  assert.equal(response.status, 400);
  assert.ok(text.length < 10_240, `${text.length} bytes`);
  const { error, code, issues, issuesLeftOut } = JSON.parse(text);
  assert.deepEqual([code, issues.length, issuesLeftOut], ["invalid_input", 20, 199_980]);
  assert.equal(
    error,
    'The input of job "strict" does not fit its schema: 200000 issues, of which 199980 are left out',
  );
});

Deno.test("POST /trigger cuts what a schema says of a key of half a megabyte", async () => {
  const strict = defineJob({ name: "strict", input: z.record(z.string(), z.number()), run: () => {} });
  const closed = defineJob({ name: "closed", input: z.strictObject({}), run: () => {} });
  await using service = aService({}, undefined, { strict, closed });

  for (const jobName of ["strict", "closed"]) {
    const { status, body } = await service.ask("POST", "/trigger", {
      body: { jobName, input: { ["k".repeat(500_000)]: "" } },
    });
    assert.equal(status, 400);
    assert.ok(JSON.stringify(body).length < 2_000, `${JSON.stringify(body).length} bytes`);
  }
});
