import assert from "node:assert/strict";
import { claimOne, forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aService } from "../../support/http/http.ts";
import { aPause } from "../../support/fixtures.ts";
import { aJob } from "../../support/jobs.ts";
import { aPlay, ELSEWHERE_MS, follow, followList } from "../../support/http/streams.ts";

forEachStore("GET /subscribe shows all that happens to a run that another engine executes", async (context) => {
  const { host } = context;
  await using here = aService({}, context);
  const there = await aPlay(context);
  await using reader = await follow(here, there.id);
  await pass(host, ELSEWHERE_MS, 50);

  there.step.progress(1);
  there.step.log.info("not persisted");
  await there.step.run("read", () => "rows");
  await pass(host, ELSEWHERE_MS, 50);
  await there.step.run("write", () => "done");
  await pass(host, ELSEWHERE_MS, 50);
  await there.end();
  await pass(host, ELSEWHERE_MS, 50);

  assert.deepEqual(reader.types, [
    "run:leased",
    "run:start",
    "run:progress",
    "log:write",
    "step:start",
    "step:complete",
    "step:start",
    "step:complete",
    "run:complete",
  ]);
  assert.partialDeepStrictEqual(reader.events.slice(2, 8), [
    { progress: { current: 1 } },
    { message: "not persisted", level: "info", data: null },
    { stepName: "read", stepIndex: 0, attempt: 1 },
    { stepName: "read", stepIndex: 0, output: "rows", duration: 0 },
    { stepName: "write", stepIndex: 1, attempt: 1 },
    { stepName: "write", stepIndex: 1, output: "done", duration: 0 },
  ]);
  assert.ok(reader.isEnded);
  await there.service.engine.stop();
});

forEachStore("GET /subscribe shows each pause of a run that another engine executes", async (context) => {
  const { host } = context;
  const twice = aJob(async (step) => {
    await step.wait("first");
    await step.wait("second");
  }, "twice");
  await using here = aService({}, context);
  await using there = aService({}, context, { twice });
  const { id } = await there.engine.trigger("twice", 1);
  await using reader = await follow(here, id);
  await host.settle();

  for (let n = 0; n < 2; n++) {
    await there.engine.runUntilIdle();
    await pass(host, ELSEWHERE_MS, 50);
    await there.engine.signal((await there.engine.getWaits(id))[n]!.id, { signalId: "s", payload: n });
  }
  await there.engine.runUntilIdle();
  await pass(host, ELSEWHERE_MS, 50);

  const execution = ["run:leased", "run:start"];
  assert.deepEqual(reader.types, [
    ...[...execution, "run:waiting"],
    ...[...execution, "run:waiting"],
    ...[...execution, "run:complete"],
  ]);
  const waits = reader.events.filter(({ type }) => type === "run:waiting");
  assert.partialDeepStrictEqual(waits, [{ waitName: "first" }, { waitName: "second" }]);
});

forEachStore("GET /subscribe ends when the run is cancelled elsewhere, or deleted", async (context) => {
  const { host, store } = context;
  await using here = aService({}, context);
  const [cancelled, deleted] = [await here.engine.trigger("approval", 1), await here.engine.trigger("approval", 2)];
  await here.engine.runUntilIdle();
  const readers = [await follow(here, cancelled.id), await follow(here, deleted.id)];
  await host.settle();

  for (const { id } of [cancelled, deleted]) await store.cancel(id, "elsewhere", null);
  await store.delete(deleted.id);
  await pass(host, ELSEWHERE_MS, 50);

  assert.deepEqual(readers.map(({ types, isEnded }) => [types, isEnded]), [
    [["run:waiting", "run:cancel"], true],
    // Of a run that is gone only that it was deleted.
    [["run:waiting", "run:delete"], true],
  ]);
});

forEachStore(
  "GET /runs/subscribe shows what another engine triggers, executes, cancels and pauses",
  async (context) => {
    const { host } = context;
    await using here = aService({}, context);
    await using there = aService({}, context);
    await using reader = await followList(here, "?label.org=acme");
    await host.settle();
    const labels = { labels: { org: "acme" } };

    await there.engine.trigger("echo", 0);
    const { id } = await there.engine.trigger("approval", 1, labels);
    await pass(host, ELSEWHERE_MS, 50);
    const triggered = [...reader.types];
    await there.engine.runUntilIdle();
    await pass(host, ELSEWHERE_MS, 50);
    const paused = [...reader.types];
    await there.engine.cancel(id);
    const { id: failed } = await there.engine.trigger("fail", 2, labels);
    await there.engine.runUntilIdle();
    await pass(host, 20_000, 200);

    assert.deepEqual(triggered, ["run:trigger"]);
    assert.deepEqual(paused.slice(1), ["run:leased", "run:start", "run:waiting"]);
    assert.deepEqual(reader.types.slice(4), ["run:cancel", "run:trigger", "run:leased", "run:start", "run:fail"]);
    assert.deepEqual(reader.events.map(({ runId }) => runId), [...Array(5).fill(id), ...Array(4).fill(failed)]);
    assert.ok(reader.events.every((event) => !("input" in event)));
  },
);

forEachStore(
  "GET /runs/subscribe tells nothing twice that is triggered here and executed elsewhere",
  async (context) => {
    const { host } = context;
    await using here = aService({}, context);
    await using there = aService({}, context);
    const readers = [await followList(here), await followList(there)];
    await host.settle();

    const { id } = await here.engine.trigger("approval", 1);
    await pass(host, ELSEWHERE_MS, 50);
    await there.engine.runUntilIdle();
    await pass(host, ELSEWHERE_MS, 50);
    await here.engine.cancel(id);
    await pass(host, ELSEWHERE_MS, 50);
    await here.engine.deleteRun(id);
    await pass(host, 20_000, 200);

    const types = ["run:trigger", "run:leased", "run:start", "run:waiting", "run:cancel", "run:delete"];
    assert.deepEqual(readers[0]!.types, types);
    assert.deepEqual(readers[1]!.events, readers[0]!.events);
    for (const reader of readers) await reader.leave();
  },
);

forEachStore("event streams tell nothing twice while both engines trigger and work", async (context) => {
  const { host } = context;
  const services = [aService({}, context), aService({}, context)];
  const lists = await Promise.all(services.map((service) => followList(service)));
  for (const { engine } of services) await engine.start();
  const ids: string[] = [];

  for (let n = 0; n < 30; n++) {
    const { id } = await services[n % 2]!.engine.trigger("echo", n);
    ids.push(id);
    if (n % 5 === 0) await pass(host, 30, 10);
  }
  const single = await Promise.all(services.map((service) => follow(service, ids.at(-1)!)));
  await pass(host, 20_000, 100);

  for (const { events } of lists) {
    const told = events.map(({ type, runId }) => `${runId} ${type}`);
    assert.equal(new Set(told).size, told.length);
    for (const id of ids) assert.ok(told.includes(`${id} run:complete`));
  }
  for (const reader of single) {
    assert.equal(new Set(reader.types).size, reader.types.length);
    assert.ok(reader.isEnded);
  }
  for (const { engine } of services) await engine.stop();
  await Promise.all(lists.map(({ ended }) => ended));
});

forEachStore("event streams of an engine that was never started show what others do", async (context) => {
  const { store, host } = context;
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);
  await using reader = await follow(service, id);
  await using list = await followList(service);
  await host.settle();

  const { lease } = await claimOne(store, "approval");
  await pass(host, ELSEWHERE_MS, 50);
  await store.pause(lease, { pauses: [aPause()], retryAt: null, park: true, reports: [] });
  await pass(host, ELSEWHERE_MS, 50);

  assert.deepEqual(reader.types, ["run:leased", "run:start", "run:waiting"]);
  assert.deepEqual(list.types, ["run:leased", "run:start", "run:waiting"]);
});
