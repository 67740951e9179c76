import assert from "node:assert/strict";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { aClaimRequest } from "../../support/fixtures.ts";
import { aService } from "../../support/http/http.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";

const report = defineJob({
  name: "report",
  input: anything,
  limits: { perKey: { concurrency: 2 } },
  run: (step) => step.sleep("nap", 1_000),
});

const hooks = (onTrigger: () => unknown) => ({
  authenticate: () => "ada",
  onTrigger,
  onRunAccess: () => {},
  scopeRuns: (_user: string, filter: object) => filter,
});

forEachStore("what onTrigger returns is set instead of what the client has asked for", async (context) => {
  const keys = { concurrencyKey: "acme", fairnessKey: "org acme", priority: -0 };
  await using service = aService({ auth: hooks(() => Promise.resolve(keys)) }, context, { report });
  const asked = { jobName: "report", input: {}, concurrencyKey: "mine", priority: 1_000 };

  const { body } = await service.ask("POST", "/trigger", { body: asked });

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual([run.concurrencyKey, run.fairnessKey, run.priority], ["acme", "org acme", 0]);
});

forEachStore("a key that onTrigger sets has the limits of the job, and takes part in coalescing", async (context) => {
  await using service = aService({ auth: hooks(() => ({ concurrencyKey: "acme" })) }, context, { report });
  const trigger = (more = {}) =>
    service.ask("POST", "/trigger", { body: { jobName: "report", input: {}, ...more } }).then(({ body }) => body);
  const first = await trigger();
  const joined = await trigger({ concurrencyKey: "mine", coalesce: "skip" });
  for (let more = 0; more < 2; more++) await trigger();
  const { claims } = await context.store.claim(aClaimRequest({ jobNames: ["report"], limit: 10 }));

  assert.deepEqual(joined, { ...first, disposition: "coalesced" });
  assert.equal(claims.length, 2);
});

forEachStore("with tenant, a key that onTrigger sets is the tenant's own", async (context) => {
  const auth = { ...hooks(() => ({ concurrencyKey: "line" })), tenant: () => "acme" };
  await using service = aService({ auth }, context, { report });

  const { body } = await service.ask("POST", "/trigger", { body: { jobName: "report", input: {} } });

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual([run.concurrencyKey, run.fairnessKey], ["acme/line", "acme"]);
});

const WRONG: [what: string, returned: unknown][] = [
  ["an unknown field", { concurrencykey: "a" }],
  ["a key that is empty", { concurrencyKey: "" }],
  ["a key that is a number", { fairnessKey: 1 }],
  ["a priority out of range", { priority: 1_001 }],
  ["an array", ["acme"]],
];

for (const [what, returned] of WRONG) {
  Deno.test(`POST /trigger is 500, and stores nothing, if onTrigger returns ${what}`, async () => {
    const heard: unknown[] = [];
    const auth = hooks(() => returned);
    await using service = aService({ auth, onError: (error) => void heard.push(error) }, undefined, { report });

    const { status } = await service.ask("POST", "/trigger", { body: { jobName: "report", input: {} } });

    assert.deepEqual([status, (await service.engine.getRuns()).total], [500, 0]);
    assert.match(String(heard[0]), /auth\.onTrigger returns/);
  });
}
