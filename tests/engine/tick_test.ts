import assert from "node:assert/strict";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob, echo } from "../support/jobs.ts";
import { aRequest, aService } from "../support/http/http.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { FAKE_START } from "../support/fake_host.ts";
import { aClaimRequest } from "../support/fixtures.ts";
import { anything, forEachStore } from "../support/stores/for_each_store.ts";
import { compareTicks } from "./tick_histories.ts";

const at = (ms: number) => new Date(FAKE_START + ms).toISOString();

const sleeper = aJob((step, input) => step.sleep("rest", (input as { ms: number }).ms), "sleeper");
const waiter = aJob((step) => step.wait("answer", { timeout: 5_000 }), "waiter");
const retrier = aJob((step) => step.run("call", () => fail(), { retry: { maxAttempts: 3, delay: 1_500 } }), "retrier");
const rated = defineJob({
  name: "rated",
  input: anything,
  limits: { rate: { limit: 1, period: 2_000 } },
  run: () => "done",
});
const jobs = { echo, sleeper, waiter, retrier, rated };

function fail(): never {
  throw new Error("broken");
}

forEachStore("runUntilIdle() says when something is due again", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  const next = async () => (await engine.runUntilIdle()).nextDueAt;

  assert.deepEqual(await engine.runUntilIdle(), { executed: 0, nextDueAt: null });
  await engine.trigger(echo, 1);
  assert.deepEqual(await engine.runUntilIdle(), { executed: 1, nextDueAt: null });
  await engine.trigger(echo, 1, { delay: 9_000 });
  assert.equal(await next(), at(9_000));
  await engine.trigger(waiter, 1);
  assert.equal(await next(), at(5_000));
  const { id } = await engine.trigger(sleeper, { ms: 4_000 });
  assert.equal(await next(), at(4_000));
  await engine.trigger(rated, 1);
  await engine.trigger(rated, 2);
  assert.equal(await next(), at(2_000));
  await engine.trigger(retrier, 1);
  assert.equal(await next(), at(1_500));
  await engine.schedules.set("often", { job: echo, input: 1, cron: "*/1 * * * * *", overlap: "allow" });
  assert.equal(await next(), at(1_000));
  world.host.advance(1_000);
  assert.equal(await next(), at(1_500));
  await engine.schedules.delete("often");
  world.host.advance(10_000);
  assert.equal(await next(), at(12_500));
  world.host.advance(2_000);
  assert.deepEqual([await next(), (await engine.getRun(id))!.status], [null, "completed"]);
});

forEachStore("runUntilIdle() that ends early says that something may be due now", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  await engine.jobs.echo.batchTrigger([{ input: 1 }, { input: 2 }, { input: 3 }]);

  const some = await engine.runUntilIdle({ maxRuns: 2 });
  const rest = await engine.runUntilIdle();

  assert.deepEqual([some, rest], [{ executed: 2, nextDueAt: at(0) }, { executed: 1, nextDueAt: null }]);
});

forEachStore("the lease of a process that was killed is due when it ends", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  await engine.trigger(echo, 1);
  await world.store.claim(aClaimRequest({ jobNames: ["echo"], leaseMs: 6_000 }));

  const before = await engine.runUntilIdle();
  world.host.advance(6_000);
  const after = await engine.runUntilIdle();

  assert.deepEqual([before, after], [{ executed: 0, nextDueAt: at(6_000) }, { executed: 1, nextDueAt: null }]);
});

forEachStore("a tick goes on after claims that only failed what came too late", async (world) => {
  await using engine = createEngine({ ...world, jobs });
  const late = Array.from({ length: 200 }, (_, input) => ({ input, startWithin: 1_000 }));
  await engine.jobs.echo.batchTrigger(late);
  world.host.advance(2_000);

  const { nextDueAt } = await engine.runUntilIdle();

  assert.deepEqual([nextDueAt, (await engine.getRuns({ status: "failed", limit: 0 })).total], [null, 200]);
});

forEachStore("two ticks at once share the work, and do nothing twice", async ({ store, host }) => {
  const calls = new Map<number, number>();
  const count = aJob(
    (step, input) => step.run("count", () => void calls.set(input as number, (calls.get(input as number) ?? 0) + 1)),
    "count",
  );
  await using one = createEngine({ store, host, jobs: { count } });
  await using other = createEngine({ store, host, jobs: { count } });
  await one.jobs.count.batchTrigger(Array.from({ length: 40 }, (_, input) => ({ input })));

  const results = await Promise.all([one.runUntilIdle(), other.runUntilIdle()]);

  assert.equal(results.reduce((sum, { executed }) => sum + executed, 0), 40);
  assert.deepEqual([calls.size, Math.max(...calls.values())], [40, 1]);
});

Deno.test("waking only when something is due ends in the same states as a worker that polls", async () => {
  await compareTicks(20); // tests/long/tick_test.ts compares more of them
});

forEachStore("POST /tick executes what is due, and answers when to call again", async (world) => {
  const calls: unknown[] = [];
  const auth = {
    authenticate: () => ({ role: "cron" }),
    onOperate: (_: unknown, access: { operation: string }) => void calls.push(access.operation),
    onTrigger: () => {},
    onRunAccess: () => {},
    scopeRuns: (_: unknown, filter: object) => filter,
  };
  const { onOperate: _, ...without } = auth;
  await using open = aService({}, world, { sleeper });
  await using guarded = aService({ auth }, world, { sleeper });
  await using closed = aService({ auth: without }, world, { sleeper });
  await open.engine.trigger("sleeper", { ms: 3_000 });

  const ticked = await open.ask("POST", "/tick");
  const again = await guarded.ask("POST", "/tick?timeout=1000");
  const refused = await closed.ask("POST", "/tick");
  const got = await open.handler.fetch(aRequest("GET", "/tick"));
  await got.body?.cancel();

  assert.deepEqual([ticked.status, ticked.body], [200, { executed: 1, nextDueAt: at(3_000) }]);
  assert.deepEqual([again.body, calls], [{ executed: 0, nextDueAt: at(3_000) }, ["tick"]]);
  assert.deepEqual([refused.status, refused.body.error], [
    403,
    "Ticks are not served: the handler has no onOperate hook",
  ]);
  assert.equal(got.status, 405);
  for (const timeout of ["999", "900001", "1e5", "-1", "x", "", "1h", "500ms", "2 parsecs"]) {
    assert.equal((await open.ask("POST", `/tick?timeout=${timeout}`)).status, 400, timeout);
  }
  for (const timeout of ["2s", "2 minutes"]) {
    assert.equal((await open.ask("POST", `/tick?timeout=${timeout}`)).status, 200, timeout);
  }
});
