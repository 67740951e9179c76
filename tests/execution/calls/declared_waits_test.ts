import assert from "node:assert/strict";
import { z } from "zod";
import { createEngine } from "../../../src/engine/create_engine.ts";
import { ValidationError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Schemas } from "../../../src/model/schema.ts";
import type { Wait } from "../../../src/model/wait.ts";
import { aService } from "../../support/http/http.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";

// A refinement, which a JSON Schema cannot say, and a transformation.
const approval = z.object({ by: z.string(), cents: z.coerce.number() }).refine(({ by }) => by !== "bob", "not by Bob");

const asking = defineJob({
  name: "asking",
  input: anything,
  waits: { approve: approval },
  async run(step) {
    const answers: unknown[] = [];
    for (let i = 0; i < 2; i++) answers.push(await step.wait("approve"));
    return answers;
  },
});

forEachStore(
  "signal() refuses what a declared wait does not take, and the wait stays open",
  async ({ store, host }) => {
    await using engine = createEngine({ store, host, jobs: { asking } });
    const { id } = await engine.jobs.asking.trigger(null);
    await engine.runUntilIdle();
    const [wait] = await engine.getWaits(id);
    const refused = engine.signal(wait!.id, { signalId: "s1", payload: { by: "bob", cents: "5" } });

    await assert.rejects(refused, (error: ValidationError) => {
      assert.deepEqual([error.code, error.issues[0]!.message], ["invalid_input", "not by Bob"]);
      return error instanceof ValidationError;
    });

    assert.deepEqual(await engine.getWait(wait!.id), wait);
    assert.notEqual(wait!.payloadSchema, undefined);
  },
);

forEachStore(
  "a declared wait receives what its schema makes, each time it is asked; stored is what was sent",
  async ({ store, host }) => {
    await using engine = createEngine({ store, host, jobs: { asking } });
    const { id } = await engine.jobs.asking.trigger(null);
    for (const signalId of ["s1", "s2"]) {
      await engine.runUntilIdle();
      const wait = (await engine.getWaits(id)).find(({ status }) => status === "pending");
      const wrong = engine.signal(wait!.id, { signalId, payload: 7 });
      await assert.rejects(wrong, ValidationError);
      await engine.signal(wait!.id, { signalId, payload: { by: "ada", cents: "5" } });
    }
    await engine.runUntilIdle();

    const run = (await engine.getRun(id))!;
    const payload = { by: "ada", cents: 5 };
    assert.deepEqual(run.output, ["s1", "s2"].map((signalId) => ({ outcome: "signal", payload, signalId })));
    assert.deepEqual(
      (await engine.getWaits(id)).map((wait) => wait.payload),
      [1, 2].map(() => ({ by: "ada", cents: "5" })),
    );
  },
);

forEachStore("a wait that was prepared with a schema shows it, and waitFor() checks by it", async ({ store, host }) => {
  const prepared: Wait[] = [];
  const job = defineJob({
    name: "mailing",
    input: anything,
    waits: { approve: approval },
    async run(step) {
      const own = await step.prepareWait("own", { schema: z.object({ stars: z.number() }) });
      const declared = await step.prepareWait("approve");
      prepared.push(own, declared);
      return [await step.waitFor(own), await step.waitFor(declared)];
    },
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.jobs.job.trigger(null);
  await engine.runUntilIdle();
  const waits = await engine.getWaits(id);

  assert.deepEqual(
    waits.map(({ payloadSchema }) => Object.keys((payloadSchema as { properties: object }).properties)),
    [
      ["stars"],
      ["by", "cents"],
    ],
  );
  assert.deepEqual(prepared.map(({ payloadSchema }) => payloadSchema), waits.map(({ payloadSchema }) => payloadSchema));
  await assert.rejects(
    engine.signal(waits[1]!.id, { signalId: "b", payload: { by: "bob", cents: 1 } }),
    ValidationError,
  );
  await engine.signal(waits[0]!.id, { signalId: "a", payload: { stars: 5 } });
  await engine.signal(waits[1]!.id, { signalId: "b", payload: { by: "ada", cents: 1 } });
  await engine.runUntilIdle();
  assert.deepEqual((await engine.getRun(id))!.output, [
    { outcome: "signal", payload: { stars: 5 }, signalId: "a" },
    { outcome: "signal", payload: { by: "ada", cents: 1 }, signalId: "b" },
  ]);
});

forEachStore("an engine without the job takes what the stored JSON Schema takes", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { asking } });
  const { id } = await engine.jobs.asking.trigger(null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await using other = createEngine({ store, host, jobs: {} });

  await assert.rejects(other.signal(wait!.id, { signalId: "s", payload: { by: 7 } }), ValidationError);
  const { disposition } = await other.signal(wait!.id, { signalId: "s", payload: { by: "bob", cents: 5 } });

  assert.equal(disposition, "accepted");
});

forEachStore("a declared wait that was renamed is checked by the schema of its new name", async ({ store, host }) => {
  const old = defineJob({ name: "asking", input: anything, run: (step) => step.wait("approval") });
  await using first = createEngine({ store, host, jobs: { old } });
  const { id } = await first.jobs.old.trigger(null);
  await first.runUntilIdle();
  const [wait] = await first.getWaits(id);
  const renamed = defineJob({
    name: "asking",
    input: anything,
    waits: { approve: approval },
    changes: { renamed: { approval: "approve" } },
    run: (step) => step.wait("approve"),
  });
  await using engine = createEngine({ store, host, jobs: { renamed } });

  await assert.rejects(engine.signal(wait!.id, { signalId: "s", payload: { by: "bob", cents: 1 } }), ValidationError);
});

forEachStore("POST /signal answers 400 with issues for a declared wait, before onSignal is asked", async (context) => {
  const asked: unknown[] = [];
  const auth = {
    authenticate: () => "ada",
    onRunAccess: () => {},
    onSignal: (...given: unknown[]) => void asked.push(given),
  };
  await using service = aService({ auth }, context, { asking });
  const { id } = await service.engine.trigger("asking", null);
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(id);
  const send = (payload: unknown) =>
    service.ask("POST", `/signal?runId=${id}&waitId=${wait!.id}`, { body: { signalId: "s", payload } });

  const refused = await send({ by: "bob", cents: 1 });
  const accepted = await send({ by: "ada", cents: 1 });

  assert.deepEqual([refused.status, refused.body.code, refused.body.issues[0].message], [
    400,
    "invalid_input",
    "not by Bob",
  ]);
  assert.deepEqual([accepted.status, asked.length], [200, 1]);
});

Deno.test("GET /jobs shows the JSON Schemas of the waits of a job", async () => {
  await using service = aService({}, undefined, { asking });

  const { body } = await service.ask("GET", "/jobs");

  const { waits } = body.find(({ jobName }: { jobName: string }) => jobName === "asking");
  assert.deepEqual(Object.keys(waits.approve.properties), ["by", "cents"]);
});

for (
  const [waits, message] of [
    [{ "approve#2": z.string() }, /A name in waits of job "wrong" has no occurrence/],
    [{ approve: 7 }, /waits\.approve of job "wrong" must be a Standard Schema/],
    [[], /waits of job "wrong" must be an object of schemas/],
    ["approve", /waits of job "wrong" must be an object of schemas/],
  ] as const
) {
  Deno.test(`defineJob() refuses waits that are ${JSON.stringify(waits)?.slice(0, 30)}`, () => {
    assert.throws(
      () => defineJob({ name: "wrong", input: anything, waits: waits as unknown as Schemas, run: () => 1 }),
      message,
    );
  });
}

Deno.test("a wait with the name of a member of every object has no schema", async () => {
  const job = defineJob({ name: "plain", input: anything, run: (step) => step.wait("constructor", { timeout: 0 }) });
  await using service = aService({}, undefined, { job });
  const { id } = await service.engine.trigger("plain", null);

  await service.engine.runUntilIdle();

  assert.deepEqual((await service.engine.getRun(id))!.output, { outcome: "timeout" });
});
