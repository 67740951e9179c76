import assert from "node:assert/strict";
import process from "node:process";
import { z } from "zod";
import { createEngine } from "../../../src/engine/create_engine.ts";
import { ConflictError, ValidationError } from "../../../src/model/error.ts";
import type { Schema } from "../../../src/model/schema.ts";
import type { Json } from "../../../src/values/json.ts";
import { aService } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";
import { forEachStore, type StoreTest } from "../../support/stores/for_each_store.ts";

const answer = z.object({ approved: z.boolean(), parts: z.array(z.object({ n: z.number() })).optional() });

function waitingFor(schema: Schema) {
  return aJob((step) => step.wait("review", { timeout: 60_000, schema }), "asking");
}

async function aWait({ store, host }: StoreTest, schema: Schema = answer) {
  const job = waitingFor(schema);
  const engine = createEngine({ store, host, jobs: { job }, logger: null });
  const { id: runId } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(runId);
  return { engine, runId, wait: wait! };
}

const WRONG: [payload: Json, path: string[]][] = [
  [null, []],
  [{}, []],
  [{ approved: "yes" }, ["approved"]],
  [{ approved: true, parts: [{ n: 1 }, { n: "2" }] }, ["parts", "1", "n"]],
];

for (const [payload, path] of WRONG) {
  forEachStore(`signal() refuses ${JSON.stringify(payload)}, and the wait stays open`, async (context) => {
    const { engine, runId, wait } = await aWait(context);

    const refused = engine.signal(wait.id, { signalId: "s1", payload });

    await assert.rejects(refused, (error: ValidationError) => {
      assert.ok(error instanceof ValidationError);
      assert.deepEqual([error.code, error.issues.length, error.issues[0]!.path], ["invalid_input", 1, path]);
      return true;
    });
    assert.deepEqual(await engine.getWait(wait.id), wait);
    await engine.signal(wait.id, { signalId: "s1", payload: { approved: true } });
    await engine.runUntilIdle();
    assert.equal((await engine.getRun(runId))!.status, "completed");
    await engine.stop();
  });
}

const TAKEN: [schema: Schema, payload: Json][] = [
  [z.union([z.url(), z.literal("none")]), "https://de.wikipedia.org/wiki/Käse?a=b|c"],
  [z.object({ every: z.iso.duration() }), { every: "PT1.5S" }],
  [z.object({ format: z.literal("uri") }), { format: "uri" }],
];

for (const [schema, payload] of TAKEN) {
  forEachStore(`signal() takes ${JSON.stringify(payload)}, as the schema of the job does`, async (context) => {
    const { engine, runId, wait } = await aWait(context, schema);

    await engine.signal(wait.id, { signalId: "s1", payload });
    await engine.runUntilIdle();

    assert.equal((await engine.getRun(runId))!.status, "completed");
    await engine.stop();
  });
}

forEachStore(
  "signal() refuses a payload of 50,000 unknown members in time in proportion to its size",
  async (context) => {
    const { engine, wait } = await aWait(context, z.strictObject({}));
    const payload = Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`member ${n}`, n]));
    const { user: before } = process.cpuUsage();

    const refused = engine.signal(wait.id, { signalId: "s1", payload });

    await assert.rejects(refused, ValidationError); // with each error compared to all others it took half a minute
    const { user } = process.cpuUsage();
    assert.ok(user - before < 3_000_000, `${user - before} us`);
    await engine.stop();
  },
);

forEachStore("signal() answers a duplicate and a second signal as it does without a schema", async (context) => {
  const { engine, wait } = await aWait(context);
  const signal = { signalId: "s1", payload: { approved: true } };
  const first = await engine.signal(wait.id, signal);

  const again = await engine.signal(wait.id, signal);
  const other = engine.signal(wait.id, { signalId: "s2", payload: "no" });

  assert.deepEqual(again, { ...first, disposition: "duplicate" });
  await assert.rejects(other, ConflictError);
  await engine.stop();
});

forEachStore("a wait shows its payloadSchema, and one without a schema has none", async (context) => {
  const { engine, wait } = await aWait(context);
  const plain = await aWait(context, { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } });

  const receipt = await plain.engine.signal(plain.wait.id, { signalId: "s1", payload: "anything" });

  assert.deepEqual((wait.payloadSchema as { required: Json }).required, ["approved"]);
  assert.deepEqual(await engine.getWait(wait.id), wait);
  assert.deepEqual(["payloadSchema" in plain.wait, "payloadSchema" in receipt.wait], [false, false]);
  await engine.stop();
  await plain.engine.stop();
});

forEachStore(
  "POST /signal refuses a payload before onSignal is asked, and /wait and /waits show why",
  async (context) => {
    const asked: unknown[] = [];
    const auth = {
      authenticate: () => "ada",
      onRunAccess: () => {},
      onSignal: (_user: string, _run: unknown, wait: unknown) => void asked.push(wait),
    };
    await using service = aService({ auth }, context, { asking: waitingFor(answer) });
    const { id: runId } = await service.engine.trigger("asking", {});
    await service.engine.runUntilIdle();
    const { body: [wait] } = await service.ask("GET", `/waits?runId=${runId}`);
    const query = `runId=${runId}&waitId=${wait.id}`;

    const refused = await service.ask("POST", `/signal?${query}`, {
      body: { signalId: "s1", payload: { approved: 1 } },
    });
    const shown = await service.ask("GET", `/wait?${query}`);
    const taken = await service.ask("POST", `/signal?${query}`, {
      body: { signalId: "s1", payload: { approved: true } },
    });

    assert.deepEqual([refused.status, refused.body.code, refused.body.issues[0].path], [400, "invalid_input", [
      "approved",
    ]]);
    assert.deepEqual(shown.body, wait);
    assert.deepEqual(wait.payloadSchema.required, ["approved"]);
    assert.deepEqual([taken.status, asked.length], [200, 1]);
  },
);

forEachStore("POST /signal reads its wait once", async (context) => {
  await using service = aService({}, context, { asking: waitingFor(answer) });
  const { id: runId } = await service.engine.trigger("asking", {});
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(runId);
  const { store } = context;
  const getWait = store.getWait.bind(store);
  let reads = 0;
  store.getWait = (waitId) => (reads += 1, getWait(waitId));

  const { status } = await service.ask("POST", `/signal?runId=${runId}&waitId=${wait!.id}`, {
    body: { signalId: "s1", payload: { approved: true } },
  });

  assert.deepEqual([status, reads], [200, 1]); // and it is checked once
});

forEachStore("the schema of the job still decides, also about what JSON Schema cannot say", async (context) => {
  const schema = z.object({ n: z.number() }).refine(({ n }) => n % 2 === 0, "must be even");
  const { engine, runId, wait } = await aWait(context, schema);

  await engine.signal(wait.id, { signalId: "s1", payload: { n: 1 } });
  await engine.runUntilIdle();

  assert.match((await engine.getRun(runId))!.error!, /does not fit its schema/);
  await engine.stop();
});

forEachStore("a description that cannot be read refuses nothing", async (context) => {
  const jsonSchema = { input: () => ({ type: "string", pattern: "(?<a" }) };
  const schema: Schema = {
    "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }), jsonSchema },
  };
  const { engine, wait } = await aWait(context, schema);

  const { disposition } = await engine.signal(wait.id, { signalId: "s1", payload: "a" });

  assert.equal(disposition, "accepted");
  await engine.stop();
});
