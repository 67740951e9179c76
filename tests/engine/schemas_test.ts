import assert from "node:assert/strict";
import { z } from "zod";
import { SerializationError, TimeoutError, ValidationError } from "../../src/model/error.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Schema } from "../../src/model/schema.ts";
import { anything, forEachStore, forever, pass } from "../support/stores/for_each_store.ts";
import { aService } from "../support/http/http.ts";
import { aJob } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

const hanging: Schema<unknown, unknown> = {
  "~standard": { version: 1, vendor: "test", validate: () => forever() },
};

const WHEN = new Date("2040-01-02T03:04:05.006Z");

forEachStore("trigger() checks the input as the JSON that is stored", async ({ store, host }) => {
  const seen: unknown[] = [];
  const input: Schema<unknown, unknown> = {
    "~standard": { version: 1, vendor: "test", validate: (value) => (seen.push(value), { value }) },
  };
  const job = defineJob({ name: "job", input, run: (_step, input) => input });
  await using engine = createEngine({ store, host, jobs: { job } });
  const given = { when: WHEN, url: new URL("https://example.com/"), left: undefined, list: [{ left: undefined }] };

  await engine.trigger("job", given);
  await engine.jobs.job.batchTrigger([{ input: given }]);
  await engine.trigger("job", undefined);

  const stored = { when: "2040-01-02T03:04:05.006Z", url: "https://example.com/", list: [{}] };
  assert.deepEqual(seen, [stored, stored, undefined]);
});

forEachStore("trigger() refuses a Date for a schema that wants one, and says what to do", async ({ store, host }) => {
  const job = defineJob({ name: "job", input: z.object({ meeting: z.object({ at: z.date() }) }), run: () => 1 });
  await using engine = createEngine({ store, host, jobs: { job } });
  const input = { meeting: { at: WHEN } };
  const hint =
    /\(a Date is stored as a string: let the schema accept one, with z\.coerce\.date\(\) or z\.iso\.datetime\(\)\)$/;

  const calls = [
    engine.jobs.job.trigger(input),
    engine.jobs.job.triggerAndWait(input),
    engine.jobs.job.batchTrigger([{ input }]),
  ];

  for (const call of calls) {
    await assert.rejects(call, (error: ValidationError) => {
      assert.equal(error.code, "invalid_input");
      assert.deepEqual(error.issues.map(({ path }) => path), [["meeting", "at"]]);
      assert.match(error.issues[0]!.message, hint);
      assert.match(error.message, hint);
      return true;
    });
  }
  assert.equal((await engine.getRuns()).total, 0);
});

forEachStore("trigger() hints at other values that JSON stores as something else", async ({ store, host }) => {
  const job = defineJob({
    name: "job",
    input: z.object({ site: z.instanceof(URL), count: z.number() }),
    run: () => 1,
  });
  await using engine = createEngine({ store, host, jobs: { job } });

  const url = engine.trigger("job", { site: new URL("https://example.com/"), count: 1 });
  const text = engine.trigger("job", { site: "https://example.com/", count: "1" });
  const bigint = engine.trigger("job", { site: "", count: 1n });
  const map = engine.trigger("job", new Map());

  await assert.rejects(url, /\(a URL is stored as what its toJSON\(\) returns\)$/);
  await assert.rejects(text, (error: Error) => !error.message.includes("stored as"));
  await assert.rejects(bigint, { message: /cannot be stored as JSON: a bigint at \$\.count$/ });
  await assert.rejects(map, SerializationError);
});

forEachStore("trigger() of an input with a Date makes a run that can be retriggered", async ({ store, host }) => {
  const job = defineJob({
    name: "job",
    input: z.object({ at: z.coerce.date() }),
    run: (_step, { at }) => at,
  });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.jobs.job.trigger({ at: WHEN });
  await engine.runUntilIdle();
  const again = await engine.retrigger(id);
  await engine.runUntilIdle();

  const [first, second] = [await engine.getRun(id), await engine.getRun(again.id)];
  assert.deepEqual([first!.output, second!.output], [WHEN.toISOString(), WHEN.toISOString()]);
  assert.deepEqual(second!.payload, { at: WHEN.toISOString() });
});

forEachStore("trigger() gives up an input schema that does not settle", async (context) => {
  const job = defineJob({ name: "job", input: hanging, run: () => 1 });
  const hidden: unknown[] = [];
  await using service = aService({ onError: (error) => hidden.push(error) }, context, { job });
  const { engine, host } = service;

  const triggered = engine.trigger("job", {}).catch((error) => error);
  const asked = service.ask("POST", "/trigger", { body: { jobName: "job", input: {} } });
  await host.settle();
  await pass(host, 36_000); // the body of the request is read first

  const error = await triggered;
  assert.ok(error instanceof TimeoutError);
  assert.equal(error.message, 'The schema of the input of job "job" has not settled within 30000 ms');
  const { status, body } = await asked;
  assert.ok(hidden[0] instanceof TimeoutError);
  assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
  assert.equal((await engine.getRuns()).total, 0);
  assert.equal(host.timerCount, 0);
});

forEachStore("a run whose output schema does not settle fails, and frees its slot", async ({ store, host }) => {
  const job = defineJob({ name: "job", input: anything, output: hanging, run: () => 1 });
  const next = aJob(() => 2, "next");
  await using engine = createEngine({ store, host, jobs: { job, next }, worker: { concurrency: 1 } });
  const hung = await engine.jobs.job.trigger(1);
  const later = await engine.jobs.next.trigger(1);

  const idle = engine.runUntilIdle();
  await pass(host, 31_000, 500);
  await idle;

  const run = (await engine.getRun(hung.id))!;
  assert.equal(run.status, "failed");
  assert.equal(run.error, 'The schema of the output of job "job" has not settled within 30000 ms');
  assert.equal((await engine.getRun(later.id))!.status, "completed");
  assert.equal(host.timerCount, 0);
});

forEachStore("stop() does not wait for an output schema that hangs, and leaves no timer", async ({ store, host }) => {
  const job = defineJob({ name: "job", input: anything, output: hanging, run: () => 1 });
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.jobs.job.trigger(1);
  await engine.start();
  await host.settle();

  const stopping = engine.stop({ timeout: 100 });
  await pass(host, 1_000);
  await stopping;

  assert.equal((await engine.getRun(id))!.status, "pending");
  assert.equal(host.timerCount, 0);
});

forEachStore("waitFor() throws into the job when its schema does not settle", async ({ store, host }) => {
  const job = aJob((step) =>
    step.wait("review", { schema: hanging }).catch((error) => [error instanceof TimeoutError, error.message])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.jobs.job.trigger(1);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await engine.signal(wait!.id, { signalId: "s", payload: 1 });

  const idle = engine.runUntilIdle();
  await pass(host, 31_000, 500);
  await idle;

  assert.deepEqual((await engine.getRun(id))!.output, [
    true,
    'The schema of wait "review" of job "job" has not settled within 30000 ms',
  ]);
});
