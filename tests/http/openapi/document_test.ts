import assert from "node:assert/strict";
import { Ajv2020 } from "ajv/dist/2020.js";
import { routes } from "../../../src/http/routes.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Schema } from "../../../src/model/schema.ts";
import { aService } from "../../support/http/http.ts";
import { broken, JOBS } from "./described_jobs.ts";

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
    fits("broken", "text"),
    fits("plain", undefined),
  ], [true, true, true, true, true, true, true]);
  assert.deepEqual([
    fits("zod job", {}),
    fits("zod job", { path: "a", rows: 1.5 }),
    fits("zod job", { path: "a", tree: { name: "b", children: [{ name: 1, children: [] }] } }),
    fits("ark", { kind: "c" }),
    fits("zod job", undefined),
    fits("unknown", {}),
  ], [false, false, false, false, false, false]);
});

Deno.test("GET /openapi.json shows the fields of a job by name", async () => {
  const { components: { schemas } } = await readDocument();

  const [zod, ark] = ["zod_job", "ark"].map((name) => Object.keys(schemas).find((key) => key.endsWith(`_${name}`))!);
  assert.deepEqual(Object.keys(schemas[zod!].properties), ["path", "rows", "tree"]);
  assert.deepEqual(Object.keys(schemas[ark!].properties).toSorted(), ["kind", "size"]);
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
