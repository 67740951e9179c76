import assert from "node:assert/strict";
import { ValidationError } from "../../../src/model/error.ts";
import type { IdempotencyUntil } from "../../../src/model/run.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { anEngine } from "../../support/engines.ts";
import { echo } from "../../support/jobs.ts";
import { aService } from "../../support/http/http.ts";

const KEY = { idempotencyKey: "order-7" };

forEachStore("a trigger adds another run when the one with its key has failed, if it says so", async (context) => {
  await using engine = anEngine(context);
  const first = await engine.jobs.fail.trigger(null, KEY);
  await engine.runUntilIdle();

  const forever = await engine.jobs.fail.trigger(null, { ...KEY, idempotencyUntil: "forever" });
  const again = await engine.jobs.fail.trigger(null, { ...KEY, idempotencyUntil: "failed" });

  assert.deepEqual([forever.id, forever.disposition], [first.id, "idempotent"]);
  assert.equal(again.disposition, "created");
  assert.equal((await engine.getRun(first.id))!.idempotencyKey, KEY.idempotencyKey);
});

for (const [until, what] of [["soon", "a word"], [0, "no time"], [1.5, "half a millisecond"], ["0s", "0 s"]] as const) {
  Deno.test(`a trigger refuses an idempotencyUntil that is ${what}`, async () => {
    await using service = aService();
    const options = { ...KEY, idempotencyUntil: until as IdempotencyUntil };

    await assert.rejects(service.engine.trigger("echo", { n: 1 }, options), ValidationError);
  });
}

Deno.test("a trigger refuses an idempotencyUntil without an idempotencyKey", async () => {
  await using service = aService();

  await assert.rejects(
    service.engine.trigger("echo", { n: 1 }, { idempotencyUntil: "ended" }),
    /idempotencyUntil needs an idempotencyKey/,
  );
});

forEachStore("bulk retrigger passes over a run from which its key was taken", async (context) => {
  await using engine = anEngine(context);
  await engine.jobs.fail.trigger(null, KEY);
  await engine.runUntilIdle();
  const again = await engine.jobs.fail.trigger(null, { ...KEY, idempotencyUntil: "failed" });
  await engine.runUntilIdle();

  const { done } = await engine.retriggerRuns({ filter: { status: "failed" } });

  assert.equal(done, 1);
  assert.notEqual((await engine.getRun(again.id))!.retriggeredAs, null);
});

forEachStore("POST /trigger takes idempotencyUntil, and onTrigger sees it", async (context) => {
  const seen: unknown[] = [];
  await using service = aService({
    auth: {
      authenticate: () => "caller",
      onTrigger: (_, { idempotencyUntil }) => void seen.push(idempotencyUntil),
    },
  }, context);
  const body = { jobName: echo.name, input: { n: 1 }, ...KEY };
  const first = await service.ask("POST", "/trigger", { body });
  await service.engine.runUntilIdle();

  const again = await service.ask("POST", "/trigger", { body: { ...body, idempotencyUntil: "failed" } });
  const ended = await service.ask("POST", "/trigger", { body: { ...body, idempotencyUntil: "ended" } });
  const young = await service.ask("POST", "/trigger", { body: { ...body, idempotencyUntil: "5m" } });

  assert.deepEqual([again.body.runId, again.body.disposition], [first.body.runId, "idempotent"]);
  assert.equal(ended.body.disposition, "created");
  assert.deepEqual([young.body.runId, young.body.disposition], [ended.body.runId, "idempotent"]);
  assert.deepEqual(seen, [undefined, "failed", "ended", 300_000]);
});
