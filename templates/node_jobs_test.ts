import assert from "node:assert/strict";
import { test } from "node:test";
import { createEngine, MemoryStore } from "@holdfast/jobs";
import { jobs } from "./jobs.ts";

test("a small order is sent", async () => {
  const engine = createEngine({ store: new MemoryStore(), jobs });

  const { id } = await engine.jobs.order.trigger({ item: "book", amount: 20, parcels: 2 });
  await engine.runUntilIdle();

  const run = await engine.jobs.order.getRun(id);
  assert.deepEqual(run?.output, { status: "sent", parcels: 2 });
  assert.deepEqual((await engine.getSteps(id)).map(({ name }) => name), ["charge", "pack", "pack#2"]);
  await engine.stop();
});

test("a large order waits for an approval", async () => {
  const engine = createEngine({ store: new MemoryStore(), jobs });

  const { id } = await engine.jobs.order.trigger({ item: "piano", amount: 5_000 });
  await engine.runUntilIdle();
  const [approval] = await engine.getWaits(id);
  assert.equal(approval?.name, "approval");
  await engine.signal(approval.id, { signalId: "1", payload: { approved: false } });
  await engine.runUntilIdle();

  const run = await engine.jobs.order.getRun(id);
  assert.deepEqual(run?.output, { status: "rejected" });
  assert.deepEqual(await engine.getSteps(id), []); // no money was taken
  await engine.stop();
});
