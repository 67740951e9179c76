import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../src/model/job/define_job.ts";
import { createTestEngine } from "../../src/testing/mod.ts";

const checkout = defineJob({
  name: "checkout",
  input: z.object({ order: z.string() }),
  run: async (step) => {
    await step.run("charge", () => 1);
    await step.wait("review");
  },
});

Deno.test("createTestEngine() and its calls refuse what would be ignored or misunderstood", async () => {
  const create = (options: object) => () => createTestEngine({ jobs: { checkout }, ...options });
  assert.throws(
    create({ patience: "2 s." }),
    /^TypeError: patience must be milliseconds, or a duration such as .*, not "2 s\."$/,
  );
  assert.throws(create({ patience: -1 }), /^RangeError: patience must be 0 or more milliseconds, not -1$/);
  assert.throws(create({ seed: "a" }), /^TypeError: seed must be a number, not "a"$/);
  assert.throws(
    create({ unusedFakes: "ignored" }),
    /^TypeError: unusedFakes must be "throw" or "ignore", not "ignored"$/,
  );

  await using t = createTestEngine({ jobs: { checkout }, unusedFakes: "ignore" });
  const fake = t.fake(checkout, "charge");
  assert.throws(
    () => fake.returns(1, { time: 2 } as object),
    /^TypeError: returns\(\) has no option "time"; it has times$/,
  );
  assert.throws(() => fake.throws(1, { times: 0 }), /^RangeError: times must be a whole number of 1 or more, not 0$/);
  const forgotten = t.trigger(checkout, { order: "o-1" });
  const run = forgotten as unknown as { id: string };
  const notAwaited = /^TypeError: A run is what trigger\(\) has returned, or its id, not a promise: await it$/;
  assert.throws(() => t.expectRun(run), notAwaited);
  await assert.rejects(t.cancel(run), notAwaited);
  const { id } = await forgotten;
  await assert.rejects(
    t.signal(id, "review", null, { signalID: "1" } as object),
    /^TypeError: signal\(\) has no option "signalID"; it has signalId, occurrence$/,
  );
});

Deno.test("expectations and crash() refuse an option that they do not have, and time ends with the year 9999", async () => {
  await using t = createTestEngine({ jobs: { checkout } });
  const run = t.expectRun(await t.trigger(checkout, { order: "o-1" }));
  const misspelt = { untl: "2030-01-01T00:00:00Z" } as object;

  await assert.rejects(
    run.waitsFor("review", misspelt),
    /^TypeError: waitsFor\(\) has no option "untl"; it has until$/,
  );
  await assert.rejects(run.sleeps("review", misspelt), /^TypeError: sleeps\(\) has no option "untl"; it has until$/);
  await assert.rejects(run.retries("charge", misspelt), /^TypeError: retries\(\) has no option "untl"; it has at$/);
  await assert.rejects(run.failed("", misspelt), /^TypeError: failed\(\) has no option "untl"; it has step$/);
  await assert.rejects(t.crash(misspelt), /^TypeError: crash\(\) has no option "untl"; it has worker$/);
  const past = /^RangeError: The clock of a test does not go past the year 9999$/;
  await assert.rejects(t.advance(Infinity), past);
  await assert.rejects(t.advance("999999w"), past);
  await assert.rejects(t.advanceTo("+010000-01-01T00:00:00Z"), past);
});

Deno.test("failed() takes an expression with the flag g again and again, and refuses an error", async () => {
  const fails = defineJob({ name: "fails", input: z.null(), run: () => Promise.reject(new Error("carrier away")) });
  await using t = createTestEngine({ jobs: { fails } });
  const run = await t.trigger(fails, null);
  const expression = /carrier/g;

  await t.expectRun(run).failed(expression);
  await t.expectRun(run).failed(expression);

  await assert.rejects(
    t.expectRun(run).failed(new Error("carrier away") as unknown as string),
    /^TypeError: failed\(\) takes a string or a regular expression$/,
  );
});

Deno.test("calls of a test engine after its end are refused", async () => {
  const t = createTestEngine({ jobs: { checkout } });
  await t[Symbol.asyncDispose]();

  await assert.rejects(
    t.trigger(checkout, { order: "o-1" }),
    /^Error: No worker is alive: the test engine was closed$/,
  );
});
