// This file is the same under Deno.test, node:test and vitest: tests/node_test.ts runs it under the other two.

import assert, { AssertionError } from "node:assert/strict";
import process from "node:process";
import { z } from "zod";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { type RegisterTest, storeContract } from "../../src/testing/contract/mod.ts";
import { crashAtEveryCheckpoint, createTestEngine } from "../../src/testing/mod.ts";

type Runner = { test?: RegisterTest; Deno?: { test: RegisterTest } };

const { test: testOfVitest, Deno: deno } = globalThis as Runner;
const test: RegisterTest = testOfVitest ?? deno?.test ?? process.getBuiltinModule("node:test").test;

const order = defineJob({
  name: "order",
  input: z.object({ amount: z.number() }),
  retry: { maxAttempts: 3, delay: 60_000 },
  async run(step, { amount }) {
    await step.run("charge", () => amount);
    const review = await step.wait<{ approved: boolean }>("review", { timeout: 7 * 86_400_000 });
    await step.run("ship", () => "shipped");
    return review.outcome;
  },
});

test("a test engine works with this test runner", async () => {
  const t = createTestEngine({ jobs: { order } });
  try {
    t.fake(order, "ship").throws(new Error("carrier away"), { times: 2 });
    const run = await t.trigger(order, { amount: 10 });
    await t.expectRun(run).waitsFor("review");
    await t.signal(run, "review", { approved: true });
    await t.advance("2d");
    await t.expectRun(run).completed("signal");
    await t.expectRun(run).executed("ship", 3);
  } finally {
    await t[Symbol.asyncDispose]();
  }
});

test("an expectation that fails is an AssertionError with both values", async () => {
  const t = createTestEngine({ jobs: { order } });
  const run = await t.trigger(order, { amount: 10 });

  const failing = t.expectRun(run).completed("signal");

  await assert.rejects(failing, (error) => {
    assert.ok(error instanceof AssertionError);
    assert.deepEqual([error.actual, error.expected], ["waiting", "completed"]);
    return true;
  });
  await t[Symbol.asyncDispose]();
});

test("crashAtEveryCheckpoint() works with this test runner", async () => {
  const report = await crashAtEveryCheckpoint(order, { amount: 10 }, {
    signals: { review: { approved: true } },
    effects: { reset: () => {}, read: () => [] },
  });

  report.assertSame();
  assert.ok(report.executions > 10);
});

storeContract("MemoryStore with this test runner", (host) => new MemoryStore({ host }), { test });
storeContract("MemoryStore with the default test runner", () => new MemoryStore(), testOfVitest && { test });
