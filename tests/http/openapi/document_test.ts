import assert from "node:assert/strict";
import { Validator } from "@seriousme/openapi-schema-validator";
import { Ajv2020 } from "ajv/dist/2020.js";
import { type } from "arktype";
import { z } from "zod";
import { defineJob } from "../../../src/job.ts";
import { routes } from "../../../src/http/routes.ts";
import type { Schema } from "../../../src/schema.ts";
import { aRequest, aService } from "../../support/http.ts";
import { aJob } from "../../support/jobs.ts";

const tree = z.object({
  name: z.string(),
  get children() {
    return z.array(tree);
  },
});
const zodJob = defineJob({
  name: "zod job",
  input: z.object({ path: z.string(), rows: z.number().int().default(5), tree: tree.optional() }),
  run: () => {},
});
const arkJob = defineJob({ name: "ark", input: type({ "size?": "number", kind: "'a' | 'b'" }), run: () => {} });
const broken: Schema = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => ({ value }),
    jsonSchema: {
      input: () => {
        throw new Error("no schema");
      },
    },
  },
};
const brokenJob = defineJob({ name: "broken", input: broken, run: () => {} });
const JOBS = { zodJob, arkJob, brokenJob, plain: aJob(() => {}, "plain") };

/** The document that a handler with all these jobs serves. */
async function readDocument() {
  await using service = aService({ basePath: "/api/jobs" }, undefined, JOBS);
  return (await service.ask("GET", "/api/jobs/openapi.json")).body;
}

/** A validator of the bodies of triggers, by the document. */
async function triggerValidator() {
  const { components } = await readDocument();
  const ajv = new Ajv2020({ strict: false, logger: false });
  ajv.addSchema({ $id: "document", components });
  return ajv.compile({ $ref: "document#/components/schemas/TriggerRequest" });
}

Deno.test("GET /openapi.json is a valid document of OpenAPI 3.1", async () => {
  const document = await readDocument();

  const { valid, errors } = await new Validator().validate(document);

  assert.equal(valid, true, JSON.stringify(errors));
  assert.match(document.openapi, /^3\.1\./);
  assert.deepEqual(document.servers, [{ url: "/api/jobs" }]);
});

Deno.test("GET /openapi.json describes every route, under the name of its function", async () => {
  const { paths } = await readDocument();

  const described = Object.entries(paths as Record<string, Record<string, { operationId: string }>>)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => [operationId, method, path])
    );
  const expected = Object.entries(routes).map(([name, { method, path }]) => [name, method.toLowerCase(), path]);
  assert.deepEqual(described.toSorted(), expected.toSorted());
});

Deno.test("GET /openapi.json shows what the jobs take, as their schemas describe it", async () => {
  const validate = await triggerValidator();
  const fits = (jobName: string, input: unknown) => validate({ jobName, input });

  assert.deepEqual([
    fits("zod job", { path: "a" }),
    fits("zod job", { path: "a", tree: { name: "b", children: [{ name: "c", children: [] }] } }),
    fits("ark", { kind: "a", size: 1 }),
    fits("broken", { anything: true }),
    fits("plain", {}),
  ], [true, true, true, true, true]);
  assert.deepEqual([
    fits("zod job", {}),
    fits("zod job", { path: "a", rows: 1.5 }),
    fits("zod job", { path: "a", tree: { name: "b", children: [{ name: 1, children: [] }] } }),
    fits("ark", { kind: "c" }),
    fits("broken", "text"),
    fits("unknown", {}),
  ], [false, false, false, false, false, false]);
});

Deno.test("GET /openapi.json shows the fields of a job by name", async () => {
  const { components: { schemas } } = await readDocument();

  const [zod, ark] = ["zod_job", "ark"].map((name) => Object.keys(schemas).find((key) => key.endsWith(`_${name}`))!);
  assert.deepEqual(Object.keys(schemas[zod!].properties), ["path", "rows", "tree"]);
  assert.deepEqual(Object.keys(schemas[ark!].properties).toSorted(), ["kind", "size"]);
});

Deno.test("GET /openapi.json without jobs is valid, too, and takes any trigger", async () => {
  const { createEngine } = await import("../../support/quiet_engine.ts");
  const { createHandler } = await import("../../../src/http/handler.ts");
  const { MemoryStore } = await import("../../../src/stores/memory/memory_store.ts");
  await using engine = createEngine({ store: new MemoryStore(), jobs: {} });

  const response = await createHandler(engine).openapi(aRequest("GET", "/openapi.json"));

  const document = await response.json();
  assert.equal((await new Validator().validate(document)).valid, true);
  assert.equal(document.components.schemas.TriggerRequest.oneOf, undefined);
});

Deno.test("GET /openapi.json is built once, at the first request", async () => {
  let calls = 0;
  const counted: Schema = {
    "~standard": {
      ...broken["~standard"],
      jsonSchema: { input: () => ({ type: "object", title: `${++calls}` }) },
    },
  };
  await using service = aService({}, undefined, {
    counted: defineJob({ name: "counted", input: counted, run: () => {} }),
  });
  const before = calls;

  const [first, second] = [await service.ask("GET", "/openapi.json"), await service.ask("GET", "/openapi.json")];

  assert.equal(calls, before + 1);
  assert.deepEqual(first.body, second.body);
});

Deno.test("GET /openapi.json is 403 with auth, unless onOperate admits docs", async () => {
  const asked: string[] = [];
  await using closed = aService({ auth: { authenticate: () => ({}), onRunAccess: () => {}, scopeRuns: (_, f) => f } });
  await using open = aService({
    auth: {
      authenticate: () => ({}),
      onRunAccess: () => {},
      scopeRuns: (_, filter) => filter,
      onOperate: (_context, { operation }) => void asked.push(operation),
    },
  });

  const [refused, admitted] = [await closed.ask("GET", "/openapi.json"), await open.ask("GET", "/openapi.json")];

  assert.deepEqual([refused.status, refused.body.code, admitted.status], [403, "forbidden", 200]);
  assert.deepEqual(asked, ["docs"]);
});
