import assert from "node:assert/strict";
import { ChangePoller } from "../../src/events/change_poller.ts";
import { ChangeWatch } from "../../src/events/change_watch.ts";
import { Hub } from "../../src/events/hub.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aRun } from "../support/fixtures.ts";
import { pass } from "../support/stores/for_each_store.ts";
import { aJob, echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { WatchedStore } from "../support/stores/watched_store.ts";

function aWatch() {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  const hub = new Hub(host);
  const watch = new ChangeWatch(store, { host, hub });
  return { host, store, hub, watch, poller: new ChangePoller(store, 1_000, { host, hub, watch }) };
}

Deno.test("ChangeWatch.on() shares one watch, which ends with the last listener", () => {
  const { store, watch } = aWatch();

  const stops = [watch.on(() => {}), watch.on(() => {})];
  const meanwhile = store.watches;
  stops[0]!();
  stops[0]!();
  const withOne = store.watches;
  stops[1]!();

  assert.deepEqual([meanwhile, withOne, store.watches], [1, 1, 0]);
});

Deno.test("ChangeWatch.on() calls back at once for a few changes, then every 20 ms", async () => {
  const { host, store, watch } = aWatch();
  let calls = 0;
  const stop = watch.on(() => calls++);

  for (let n = 0; n < 10; n++) store.report();
  const atOnce = calls;
  for (let n = 0; n < 100; n++) {
    store.report();
    await pass(host, 2, 1);
  }
  await pass(host, 100, 10);
  stop();
  store.report();

  assert.equal(atOnce, 4);
  assert.ok(calls >= 13 && calls <= 15, `${calls} calls in 200 ms`);
});

Deno.test("ChangeWatch publishes the errors of the store's reports", () => {
  const { store, hub, watch } = aWatch();
  const errors: unknown[] = [];
  hub.on("worker:error", ({ error }) => void errors.push(error));
  const stop = watch.on(() => {});

  store.fail("no reports");
  stop();

  assert.deepEqual(errors, ["no reports"]);
});

Deno.test("ChangeWatch.isLive is false for a store that reports nothing", () => {
  const host = new FakeHost();
  const watch = new ChangeWatch(new MemoryStore({ host }), { host, hub: new Hub(host) });

  const stop = watch.on(() => {});

  assert.equal(watch.isLive, false);
  stop();
});

Deno.test("ChangePoller asks for no version while the store reports changes, and goes on as soon as it does not", async () => {
  const { host, store, poller } = aWatch();
  let calls = 0;
  const stop = poller.on(() => calls++);
  await pass(host, 200, 10);
  const polled = store.versionReads;

  store.setLive(true);
  await pass(host, 20, 10); // a look may have begun
  [store.versionReads, calls] = [0, 0];
  await pass(host, 10_000, 100);
  const [whileLive, callsWithoutChange] = [store.versionReads, calls];
  store.report();
  const callsAfterReport = calls;
  store.setLive(false);
  await pass(host, 200, 10);
  stop();

  assert.ok(polled >= 5, `${polled} reads of the version`);
  assert.deepEqual([whileLive, callsWithoutChange, callsAfterReport], [0, 0, 1]);
  assert.ok(store.versionReads >= 5, `${store.versionReads} reads of the version`);
});

Deno.test("ChangePoller.onThrottled() calls back once a polling interval without a report: one can be missing", async () => {
  const { host, store, poller } = aWatch();
  let calls = 0;
  store.setLive(true);
  const stop = poller.onThrottled(() => calls++);
  await pass(host, 1_500, 10);
  calls = 0;

  await pass(host, 10_000, 10);
  stop();

  assert.ok(calls >= 9 && calls <= 11, `${calls} calls in 10 s`);
});

Deno.test("an idle engine reads a store that reports changes less than twice a second", async () => {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  let claims = 0;
  const { claim } = store;
  store.claim = (request) => {
    claims += 1;
    return claim.call(store, request);
  };
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.start();
  store.setLive(true);
  await pass(host, 2_000, 10);
  [store.versionReads, store.scheduleReads, claims] = [0, 0, 0];

  await pass(host, 60_000, 10);

  assert.equal(store.versionReads, 0);
  assert.ok(store.scheduleReads >= 5 && store.scheduleReads <= 8, `${store.scheduleReads} reads of the schedules`);
  assert.ok(claims >= 54 && claims <= 67, `${claims} claims`);
});

Deno.test("an engine executes a run at once when the store reports it", async () => {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  const executed: number[] = [];
  const job = aJob(() => void executed.push(host.monotonic()));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  store.setLive(true);
  await pass(host, 3_050, 10);

  await store.enqueue([aRun({ jobName: job.name })]);
  const reportedAt = host.monotonic();
  store.report();
  await pass(host, 50, 1);

  assert.equal(executed.length, 1);
  assert.ok(executed[0]! - reportedAt <= 2);
});

Deno.test("an engine executes a run within its polling interval when the report is missing", async () => {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  let executed = 0;
  const job = aJob(() => void executed++);
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  store.setLive(true);
  await pass(host, 3_000, 10);

  await store.enqueue([aRun({ jobName: job.name })]);
  await pass(host, 1_150, 10);

  assert.equal(executed, 1);
});

Deno.test("a stream reads the journal when the store reports a change, and once a second", async () => {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.migrate();
  const run = aRun({ jobName: "echo" });
  await store.enqueue([run]);
  const reader = engine.subscribe(run.id).getReader();
  const types: string[] = [];
  const reading = (async () => {
    for (let next = await reader.read(); !next.done; next = await reader.read()) types.push(next.value.type);
  })();
  store.setLive(true);
  await pass(host, 2_000, 10);
  store.journalReads = 0;

  await pass(host, 10_000, 10);
  const reads = store.journalReads;
  await store.cancel(run.id, "request", null);
  store.report();
  await pass(host, 2, 1);

  assert.ok(reads >= 9 && reads <= 11, `${reads} reads of the journal`);
  assert.deepEqual(types, ["run:cancel"]);
  await engine.stop();
  await reading;
});

Deno.test("a schedule that another process has set fires in time when the store reports it", async () => {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  let executed = 0;
  const job = aJob(() => void executed++);
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  await engine.start();
  store.setLive(true);
  await pass(host, 10_000, 100);
  const wait = 60_000 - host.now() % 60_000;
  await pass(host, wait + 57_500, 100); // 2.5 s before the minute

  await other.schedules.set("soon", { job, input: null, cron: "* * * * *" });
  store.report();
  await pass(host, 2_600, 10);

  assert.equal(executed, 1);
});
