import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Json } from "../../../src/values/json.ts";
import { aService } from "../../support/http/http.ts";

const received: unknown[] = [];
const take = <S extends z.ZodType>(name: string, input: S) =>
  defineJob({ name, input, run: (_step, value) => void received.push(value) });
const jobs = {
  list: take("list", z.array(z.number())),
  text: take("text", z.string()),
  nothing: take("nothing", z.null()),
  number: take("number", z.number()),
  optional: take("optional", z.string().optional()),
  fallback: take("fallback", z.string().default("none")),
};

const TAKEN: [jobName: string, input: Json | undefined, parsed: Json | undefined][] = [
  ["list", [1, 2], [1, 2]],
  ["text", "a", "a"],
  ["nothing", null, null],
  ["number", 0, 0],
  ["optional", undefined, undefined],
  ["optional", "a", "a"],
  ["fallback", undefined, "none"],
];

for (const [jobName, input, parsed] of TAKEN) {
  Deno.test(`POST /trigger takes ${JSON.stringify(input)} for job "${jobName}"`, async () => {
    await using service = aService({}, undefined, jobs);
    received.length = 0;

    const { status, body } = await service.ask("POST", "/trigger", { body: { jobName, input } });
    await service.engine.runUntilIdle();

    assert.equal(status, 200, JSON.stringify(body));
    assert.deepEqual(received, [parsed]);
    assert.deepEqual((await service.ask("GET", `/run?runId=${body.runId}`)).body.input, input ?? null);
    const run = (await service.engine.getRun(body.runId))!;
    assert.deepEqual([run.input, run.payload], [input ?? null, input ?? null]);
  });
}

const REFUSED: [jobName: string, input: Json | undefined][] = [
  ["list", {}],
  ["list", undefined],
  ["text", null],
  ["nothing", undefined],
  ["optional", null],
];

for (const [jobName, input] of REFUSED) {
  Deno.test(`POST /trigger refuses ${JSON.stringify(input)} for job "${jobName}", as its schema does`, async () => {
    await using service = aService({}, undefined, jobs);

    const { status, body } = await service.ask("POST", "/trigger", { body: { jobName, input } });

    assert.deepEqual([status, body.code, body.issues[0].path], [400, "invalid_input", []]);
    assert.equal((await service.engine.getRuns()).total, 0);
  });
}

Deno.test("POST /trigger stores what a schema has filled in, though it returns the value that it was given", async () => {
  const validate = (value: unknown) => ({ value: Object.assign(value as object, { filled: true }) });
  const filling = defineJob({
    name: "filling",
    input: { "~standard": { version: 1 as const, vendor: "test", validate } },
    run: (_step, input) => void received.push(input),
  });
  await using service = aService({}, undefined, { filling });
  received.length = 0;

  const { body } = await service.ask("POST", "/trigger", { body: { jobName: "filling", input: { a: 1 } } });
  await service.engine.runUntilIdle();

  assert.deepEqual(received, [{ a: 1, filled: true }]);
  assert.deepEqual((await service.ask("GET", `/run?runId=${body.runId}`)).body.input, { a: 1 });
});
