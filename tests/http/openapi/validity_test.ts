import assert from "node:assert/strict";
import { Validator } from "@seriousme/openapi-schema-validator";
import { createHandler } from "../../../src/http/handler.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { aRequest, aService } from "../../support/http/http.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { JOBS } from "./described_jobs.ts";

Deno.test("GET /openapi.json is a valid document of OpenAPI 3.1", async () => {
  await using service = aService({ basePath: "/api/jobs" }, undefined, JOBS);

  const { body: document } = await service.ask("GET", "/api/jobs/openapi.json");

  const { valid, errors } = await new Validator().validate(document);

  assert.equal(valid, true, JSON.stringify(errors));
  assert.match(document.openapi, /^3\.1\./);
  assert.deepEqual(document.servers, [{ url: "/api/jobs" }]);
});

Deno.test("GET /openapi.json without jobs is valid, too, and takes any trigger", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: {} });

  const response = await createHandler(engine).openapi(aRequest("GET", "/openapi.json"));

  const document = await response.json();
  assert.equal((await new Validator().validate(document)).valid, true);
  assert.equal(document.components.schemas.TriggerRequest.oneOf, undefined);
});
