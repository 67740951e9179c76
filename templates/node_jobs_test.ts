import assert from "node:assert/strict";
import { test } from "node:test";
import { createTestEngine } from "@holdfast/jobs/testing";
import { jobs, order } from "./jobs.ts";

test("a small order is charged once and sent, although the payment service fails twice", async () => {
  const t = createTestEngine({ jobs });
  const charge = t.fake(order, "charge").throws(new Error("unavailable"), { times: 2 }).returns("payment-1");
  t.fake(order, "pack").returns(undefined);

  const run = await t.trigger(order, { item: "book", amount: 20, parcels: 2 });
  await t.advance("1m"); // the time of the test alone: it takes no minute

  await t.expectRun(run).completed({ status: "sent", parcels: 2 });
  const keys = charge.calls.map(({ idempotencyKey }) => idempotencyKey);
  assert.equal(keys.length, 3);
  assert.equal(new Set(keys).size, 1); // so that the service takes the money once
  await t[Symbol.asyncDispose]();
});

test("a large order is sent when somebody has approved it", async () => {
  const t = createTestEngine({ jobs });
  t.fake(order, "pack").returns(undefined);

  const run = await t.trigger(order, { item: "piano", amount: 5_000 });
  await t.expectRun(run).waitsFor("approval");
  await t.crash(); // the process dies, and another one goes on
  await t.signal(run, "approval", { approved: true });
  await t.advance("1m");

  await t.expectRun(run).completed({ status: "sent", parcels: 1 });
  await t[Symbol.asyncDispose]();
});

test("a large order fails when nobody approves it within three days", async () => {
  const t = createTestEngine({ jobs });

  const run = await t.trigger(order, { item: "piano", amount: 5_000 });
  await t.advance("3d");

  await t.expectRun(run).failed(/Nobody has approved/);
  await t.expectRun(run).executed("charge", 0);
  await t[Symbol.asyncDispose]();
});
