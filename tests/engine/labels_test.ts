import assert from "node:assert/strict";
import { z } from "zod";
import { collect, defineCollector } from "../../src/engine/collector.ts";
import { createEngine } from "../../src/engine/create_engine.ts";
import type { SchemaLabels } from "../../src/engine/triggers/new_run.ts";
import { TimeoutError, type ValidationError } from "../../src/model/error.ts";
import { createHandler } from "../../src/http/handler.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Schema } from "../../src/model/schema.ts";
import { forEachStore, forever, pass, type StoreTest } from "../support/stores/for_each_store.ts";
import { askFunction } from "../support/http/http.ts";
import { echo } from "../support/jobs.ts";

function anEngine<L>({ store, host }: StoreTest, labels: Schema<L, SchemaLabels>) {
  return createEngine({ store, host, jobs: { echo }, labels });
}

const COLLECTOR = { name: "collector", item: z.string(), key: () => "k", quiet: "1s", maxDelay: "1m" } as const;
const byOrg = z.object({ org: z.string().min(1), tier: z.enum(["free", "paid"]).optional() }).strict();

forEachStore("labels of every trigger are checked by their schema", async (context) => {
  await using engine = anEngine(context, byOrg);
  const labels = { org: "" };
  const isRefusal = (error: ValidationError) => {
    assert.equal(error.name, "ValidationError");
    assert.equal(error.code, "invalid_input");
    assert.deepEqual(error.issues.map(({ path }) => path), [["labels", "org"]]);
    assert.match(error.message, /^The labels do not fit their schema: labels\.org: /);
    return true;
  };

  await assert.rejects(engine.trigger("echo", 1, { labels }), isRefusal);
  await assert.rejects(engine.jobs.echo.trigger(1, { labels }), isRefusal);
  await assert.rejects(engine.jobs.echo.triggerAndWait(1, { labels }), isRefusal);
  await assert.rejects(engine.jobs.echo.batchTrigger([{ input: 1, labels }]), isRefusal);
  await assert.rejects(engine.jobs.echo.trigger(1), isRefusal);
  assert.equal((await engine.getRuns()).total, 0);
});

forEachStore("labels are stored as their schema answers them", async (context) => {
  const schema = z.object({
    org: z.number().transform(String),
    tier: z.string().default("free"),
    team: z.string().optional(),
  });
  await using engine = anEngine(context, schema);

  const single = await engine.jobs.echo.trigger(1, { labels: { org: 7, team: undefined } });
  const [batched] = await engine.jobs.echo.batchTrigger([{ input: 1, labels: { org: 8, team: "x" } }]);

  assert.deepEqual(single.labels, { org: "7", tier: "free" });
  assert.deepEqual(batched!.labels, { org: "8", tier: "free", team: "x" });
});

forEachStore("labels that their schema makes of others are checked, too", async (context) => {
  for (const made of [{ org: 7 }, { "a b": "c" }, ["a"], "acme", null]) {
    const schema = z.any().transform(() => made) as unknown as Schema<unknown, SchemaLabels>;
    await using engine = anEngine(context, schema);

    await assert.rejects(engine.trigger("echo", 1, { labels: {} }), { code: "invalid_request" }, JSON.stringify(made));
  }
});

forEachStore("labels of a retrigger are those that are stored, and are not checked again", async (context) => {
  await using engine = anEngine(context, z.object({ org: z.number().transform(String) }));
  const { id } = await engine.jobs.echo.trigger(1, { labels: { org: 7 } });
  await engine.runUntilIdle();

  const again = await engine.retrigger(id);

  assert.deepEqual(again.labels, { org: "7" });
});

forEachStore("labels over HTTP are refused with 400, and an answer that says where", async (context) => {
  await using engine = anEngine(context, byOrg);
  const handler = createHandler(engine, { host: context.host });
  const ask = (labels: Record<string, string>) =>
    askFunction(handler.fetch, "POST", "/trigger", { body: { jobName: "echo", input: {}, labels } });

  const refused = await ask({ org: "acme", team: "x" });
  const accepted = await ask({ org: "acme" });

  assert.equal(refused.status, 400);
  assert.equal(refused.body.code, "invalid_input");
  assert.deepEqual(refused.body.issues.map(({ path }: { path: unknown }) => path), [["labels"]]);
  assert.equal(accepted.status, 200);
});

// The types are what this is about: a schema may take labels that are not strings, or may be left out.
forEachStore("labels of any schema leave the engine one for createHandler() and collect()", async ({ store, host }) => {
  const labels = z.object({ org: z.number().transform(String), team: z.string().optional() });
  const collector = defineCollector({ ...COLLECTOR, into: defineJob({ name: "into", input: z.any(), run() {} }) });
  await using engine = createEngine({ store, host, jobs: { collector }, labels });

  const handler = createHandler(engine, { host });

  assert.equal((await handler.fetch(new Request("http://localhost/runs"))).status, 200);
  await assert.rejects(collect(engine, collector, "a"), { name: "ValidationError" });
});

forEachStore("labels whose schema throws are refused, and the host hears why", async (context) => {
  const broken = new Error("broken");
  await using engine = anEngine(context, {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: () => {
        throw broken;
      },
    },
  });
  const hidden: unknown[] = [];
  const handler = createHandler(engine, { host: context.host, onError: (error) => hidden.push(error) });

  const { status } = await askFunction(handler.fetch, "POST", "/trigger", { body: { jobName: "echo", input: {} } });

  assert.equal(status, 400);
  assert.deepEqual(hidden, [broken]);
});

forEachStore("labels whose schema does not settle are given up", async (context) => {
  await using engine = anEngine(context, { "~standard": { version: 1, vendor: "test", validate: () => forever() } });

  const refused = assert.rejects(engine.trigger("echo", 1), (error: Error) => {
    assert.ok(error instanceof TimeoutError);
    assert.equal(error.message, "The schema of the labels has not settled within 30000 ms");
    return true;
  });
  await context.host.settle();
  await pass(context.host, 30_000);

  await refused;
});

forEachStore("labels that are no schema are refused by createEngine()", ({ store, host }) => {
  const labels = { org: "string" } as unknown as Schema<unknown, SchemaLabels>;

  const act = () => createEngine({ store, host, jobs: { echo }, labels });

  assert.throws(act, {
    name: "TypeError",
    message: /^labels of createEngine\(\) must be a Standard Schema .*, not an obj/,
  });
  return Promise.resolve();
});
