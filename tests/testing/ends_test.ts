import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../src/model/job/define_job.ts";
import { createTestEngine } from "../../src/testing/mod.ts";

Deno.test("the test kit executes what cleans up after a run, also after a crash in the middle of it", async () => {
  const undone: string[] = [];
  const order = defineJob({
    name: "order",
    input: z.null(),
    onEnd: {
      statuses: ["cancelled"],
      async run(step, end) {
        await end.undo("charge", () => void undone.push("charge"));
        await step.sleep("a while", "1h");
        await end.undo("reserve", () => void undone.push("reserve"));
      },
    },
    async run(step) {
      await step.run("reserve", () => 1);
      await step.run("charge", () => 2);
      await step.wait("paid");
    },
  });
  await using t = createTestEngine({ jobs: { order } });
  const run = await t.trigger(order, null);
  await t.expectRun(run).waitsFor("paid");
  const { endRunId } = await t.engine.cancel(run.id);
  await t.advance("1s");
  await t.crash();
  await t.advance("1h");

  assert.equal((await t.engine.getRun(endRunId!))!.status, "completed");
  assert.deepEqual(undone, ["charge", "reserve"]);
});

Deno.test("a fake replaces a step that sends a message to a run of another system", async () => {
  const shop = defineJob({
    name: "shop",
    input: z.null(),
    run: (step) => step.send("tell the warehouse", { job: "warehouse", key: "order 1" }, "packed", null),
  });
  await using t = createTestEngine({ jobs: { shop } });
  const tell = t.fake(shop, "tell the warehouse").returns({ runId: "elsewhere", messageId: "m1" });

  const run = await t.trigger(shop, null);
  await t.drain();

  assert.deepEqual((await t.engine.getRun(run.id))!.output, { runId: "elsewhere", messageId: "m1" });
  assert.equal(tell.calls.length, 1);
});
