import assert from "node:assert/strict";
import { type } from "arktype";
import { z } from "zod";
import process from "node:process";
import { ValidationError } from "../../../src/model/error.ts";
import type { RunEvent } from "../../../src/model/event.ts";
import { isNear } from "../../support/percentiles.ts";
import { PACKAGE_VERSION } from "../../../src/model/version.ts";
import { Chance } from "../../support/chance.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, someDetails } from "../../support/fixtures.ts";
import { anything, forEachStore } from "../../support/stores/for_each_store.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { pause } from "../../../src/model/host.ts";
import { aJob, echo } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { getRun } from "../../../src/store/reads.ts";

Deno.test("PACKAGE_VERSION is that of deno.json", async () => {
  const { version } = JSON.parse(await Deno.readTextFile(new URL("../../../deno.json", import.meta.url)));

  assert.equal(PACKAGE_VERSION, version);
});

forEachStore(
  "getWorkers() shows what a worker says of itself, and its state by the rule of claims",
  async ({ store, host }) => {
    const worker = {
      name: "web-1",
      deployment: "2026.11.20",
      concurrency: 7,
      staleThreshold: 9_000,
      heartbeatInterval: 1_000,
    };
    await using engine = createEngine({ store, host, jobs: { echo }, worker });
    await store.claim(aClaimRequest({ workerId: "lost", leaseMs: 100, worker: someDetails() }));
    await store.claim(aClaimRequest({ workerId: "stopping", leaseMs: 60_000, worker: someDetails() }));
    await store.noteStopping("stopping");
    host.advance(500);
    await engine.start();
    await host.settle();

    const workers = await engine.getWorkers();

    assert.deepEqual(workers.map(({ id, state }) => [id === "lost" || id === "stopping" ? id : "own", state]).sort(), [
      ["lost", "lost"],
      ["own", "live"],
      ["stopping", "stopping"],
    ]);
    const { id: _, hostname, ...own } = workers.find(({ state }) => state === "live")!;
    assert.equal(hostname, Deno.hostname());
    assert.deepEqual(own, {
      name: "web-1",
      pid: process.pid,
      runtime: `deno ${Deno.version.deno}`,
      version: PACKAGE_VERSION,
      deployment: "2026.11.20",
      startedAt: new Date(FAKE_START + 500).toISOString(),
      lastSeenAt: new Date(FAKE_START + 500).toISOString(),
      state: "live",
      jobs: ["echo"],
      concurrency: 7,
      leases: 0,
      leaseMs: 9_000,
    });
  },
);

forEachStore(
  "getWorkers() shows a worker as stopping while its runs end, and no more when it has stopped",
  async (world) => {
    const { store, host } = world;
    const gate = Promise.withResolvers<void>();
    const slow = aJob((step) => step.run("wait", () => gate.promise), "slow");
    const engine = createEngine({ store, host, jobs: { slow } });
    await engine.start();
    await engine.trigger(slow, null);
    await host.settle();
    const stopping = engine.stop();
    await host.settle();

    const during = await engine.getWorkers();
    gate.resolve();
    await stopping;
    host.advance(1_000);
    const after = await engine.getWorkers();

    assert.deepEqual([during.map(({ state, leases }) => [state, leases]), after], [[["stopping", 1]], []]);
  },
);

forEachStore(
  "getJobs() lists the jobs of this engine, of live workers, of runs and of pauses",
  async ({ store, host }) => {
    const limited = defineJob({
      name: "limited",
      input: anything,
      run: () => null,
      limits: { concurrency: 3, rate: { limit: 1, period: 60_000 } },
    });
    const other = createEngine({ store, host, jobs: { other: aJob(() => null, "other") } });
    await using engine = createEngine({ store, host, jobs: { limited } });
    await other.trigger("other", null);
    await store.claim(aClaimRequest({ jobNames: ["elsewhere"] }));
    await engine.trigger(limited, null);
    await engine.runUntilIdle();
    await engine.trigger(limited, null);
    await store.pauseJob("paused", { by: "ann", note: null });
    host.advance(500);

    const jobs = await engine.getJobs();

    const seen = jobs.map(({ jobName, isKnownHere, liveWorkers, paused, oldestDue }) => [
      jobName,
      isKnownHere,
      liveWorkers,
      paused?.by ?? null,
      oldestDue?.dueSince ?? null,
    ]);
    const start = new Date(FAKE_START).toISOString();
    assert.deepEqual(seen, [
      ["elsewhere", false, 1, null, null],
      ["limited", true, 1, null, start],
      ["other", false, 0, null, start],
      ["paused", false, 0, "ann", null],
    ]);
    assert.deepEqual(jobs[1]!.limits, {
      concurrency: 3,
      inUse: 0,
      rate: { limit: 1, period: 60_000 },
      opensAt: new Date(FAKE_START + 60_000).toISOString(),
    });
    await other.stop();
  },
);

forEachStore("getJobs() shows the JSON Schemas of waits and messages", async ({ store, host }) => {
  const order = defineJob({
    name: "order",
    input: anything,
    waits: { approve: z.object({ approved: z.boolean() }) },
    messages: { paid: z.object({ amount: z.coerce.number() }), note: type("string") },
    run: () => null,
  });
  await using engine = createEngine({ store, host, jobs: { order, plain: aJob(() => null, "plain") } });
  await using other = createEngine({ store, host, jobs: {} });
  await engine.trigger(order, null);

  const [mine, plain] = await engine.getJobs();
  const [theirs] = await other.getJobs();

  const typeOf = (schema: unknown) => (schema as { type?: unknown } | null)?.type;
  assert.deepEqual(Object.entries(mine!.messages!).map(([name, schema]) => [name, typeOf(schema)]), [
    ["paid", "object"],
    ["note", "string"],
  ]);
  assert.equal(typeOf(mine!.waits!.approve), "object");
  assert.deepEqual(plain!.messages, {});
  assert.equal(theirs!.messages, null);
});

forEachStore(
  "getStats() counts runs as a recount does, and shows slots and the next timer",
  async ({ store, host }) => {
    const sleeper = aJob((step) => step.sleep("nap", 90_000), "sleeper");
    await using engine = createEngine({ store, host, jobs: { echo, sleeper }, worker: { concurrency: 4 } });
    for (let n = 0; n < 3; n++) await engine.trigger(echo, { n });
    await engine.trigger(sleeper, null);
    await engine.start();
    await host.settle();
    const { id } = await engine.trigger(echo, null, { delay: 500_000 });
    await engine.trigger(echo, null, { delay: 600_000 });
    await engine.cancel(id);
    host.advance(2_000);
    await host.settle();

    const { total, byStatus, slots, nextTimerAt, jobs } = await engine.getStats();

    const { runs } = await engine.getRuns({ limit: 100 });
    for (const [status, count] of Object.entries(byStatus)) {
      assert.equal(count, runs.filter((run) => run.status === status).length, status);
    }
    assert.deepEqual([total, slots], [runs.length, { total: 4, busy: 0 }]);
    assert.equal(nextTimerAt, new Date(FAKE_START + 90_000).toISOString());
    assert.deepEqual(jobs.map(({ jobName, byStatus: { completed } }) => [jobName, completed]), [["echo", 3], [
      "sleeper",
      0,
    ]]);
  },
);

forEachStore(
  "getStats() has the rates of two processes, 19 % off at most, over random histories",
  async ({ store, host }) => {
    for (const seed of [1, 2]) {
      const chance = new Chance(seed, "rates");
      host.advance(7_200_000 - host.now() % 60_000);
      const work = defineJob({
        name: "work",
        input: anything,
        run: async (step, input) => {
          const { steps, fails } = input as { steps: number[]; fails: boolean };
          for (const ms of steps) {
            await step.run("part", () => pause(host, ms), { retry: { maxAttempts: 2, delay: 5 } });
          }
          await step.sleep("pause", 200);
          if (fails) await step.run("break", () => Promise.reject(new Error("broken")));
          return null;
        },
      });
      const engines = [1, 2].map(() => createEngine({ store, host, jobs: { work }, worker: { pollingInterval: 100 } }));
      const events: { event: RunEvent; at: number }[] = [];
      for (const engine of engines) {
        engine.on("*", (event) => "runId" in event && void events.push({ event, at: host.now() }));
        await engine.start();
      }
      const runs: string[] = [];
      for (let n = 0; n < 40; n++) {
        const steps = Array.from({ length: chance.int(3) }, () => 1 + chance.int(3_000));
        const { id } = await chance.pick(engines).trigger(work, { steps, fails: chance.happens(0.3) });
        runs.push(id);
        if (chance.happens(0.1)) await chance.pick(engines).cancel(id).catch(() => {});
        host.advance(chance.int(400));
        await host.settle();
      }
      for (let second = 0; second < 60; second++) {
        host.advance(500);
        await host.settle();
      }
      for (const engine of engines) await engine.stop();
      const observer = createEngine({ store, host, jobs: {} });

      const { windows: { "1h": rates }, jobs } = await observer.getStats();

      const ofType = (type: RunEvent["type"]) => events.filter(({ event }) => event.type === type);
      const ended = (type: RunEvent["type"]) => ofType(type).length;
      assert.deepEqual(
        [rates.triggered, rates.completed, rates.failed, rates.cancelled, rates.stepFailures],
        [40, ended("run:complete"), ended("run:fail"), ended("run:cancel"), ended("step:fail")],
        `seed ${seed}`,
      );
      assert.equal(rates.steps, ended("step:complete") + ended("step:fail"));
      const all = await Promise.all(runs.map(async (id) => (await getRun(store, id))!));
      const started = all.filter(({ startedAt }) => startedAt !== null);
      assert.equal(rates.started, started.length);
      const time = (at: string | null) => Date.parse(at!);
      isNear(rates.startDelay!, started.map((run) => time(run.startedAt) - time(run.createdAt)));
      const worked = started.filter(({ status }) => status === "completed" || status === "failed");
      isNear(rates.duration!, worked.map((run) => time(run.completedAt) - time(run.startedAt)));
      const attempts = ofType("step:start").flatMap(({ event, at }) => {
        const end = events.find((other) =>
          other.at >= at && (other.event.type === "step:complete" || other.event.type === "step:fail") &&
          other.event.runId === event.runId && "stepName" in event && other.event.stepName === event.stepName &&
          events.indexOf(other) > events.findIndex((one) => one.event === event)
        );
        return end === undefined ? [] : [end.at - at];
      });
      isNear(rates.stepDuration!, attempts);
      assert.deepEqual(jobs.find(({ jobName }) => jobName === "work")!.windows["1h"], rates);
    }
  },
);

forEachStore(
  "statistics are written every ten seconds, by an idle process never, and the rest at a stop",
  async (world) => {
    const { host } = world;
    let writes = 0;
    const store = withCalls(world.store, {
      addStats: (statistics) => (writes += 1, world.store.addStats(statistics)),
    });
    const engine = createEngine({ store, host, jobs: { echo } });
    await engine.start();
    await host.settle();
    for (let second = 0; second < 30; second++) {
      host.advance(1_000);
      await host.settle();
    }
    const idle = writes;
    await engine.trigger(echo, null);
    await host.settle();
    host.advance(10_000);
    await host.settle();
    const busy = writes;
    await engine.trigger(echo, null);
    await engine.stop();

    assert.deepEqual([idle, busy, writes], [0, 1, 2]);
  },
);

Deno.test("statistics of an engine that was not started are written with what it counts after ten seconds", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const engine = createEngine({ store, host, jobs: { echo } });
  await engine.trigger(echo, null);
  const before = (await store.readStats({ span: 60_000, from: 0, limit: 10 })).rows.length;
  host.advance(10_000);
  await engine.trigger(echo, null);
  await host.settle();

  const { rows } = await store.readStats({ span: 60_000, from: 0, jobName: "", limit: 10 });

  assert.deepEqual([before, rows.map(({ triggered }) => triggered), host.timerCount], [0, [2], 0]);
});

Deno.test("statistics that certainly were not written are written later; others are not written twice", async () => {
  const { StoreError } = await import("../../../src/model/error.ts");
  for (const outcomeUnknown of [false, true]) {
    const host = new FakeHost();
    const memory = new MemoryStore({ host });
    let fails = true;
    const store = withCalls(memory, {
      addStats: (statistics) => {
        if (!fails) return memory.addStats(statistics);
        return Promise.reject(new StoreError("busy", { outcomeUnknown }));
      },
    });
    const engine = createEngine({ store, host, jobs: { echo } });
    await engine.trigger(echo, null);
    await engine.runUntilIdle();
    fails = false;
    host.advance(1_000);
    await engine.runUntilIdle();

    const { rows } = await memory.readStats({ span: 60_000, from: 0, jobName: "", limit: 10 });

    assert.deepEqual(rows.map(({ completed }) => completed), outcomeUnknown ? [] : [1]);
  }
});

forEachStore("getSeries() has 60 minutes, 96 quarters or 56 slots of three hours", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.trigger(echo, null);
  await engine.runUntilIdle();
  host.advance(120_000);
  await engine.trigger(echo, null);
  await engine.trigger(echo, null, { delay: 60_000 });
  host.advance(1_000);
  await engine.runUntilIdle();
  host.advance(1_000);

  const hour = await engine.getSeries({ window: "1h" });
  const ofJob = await engine.getSeries({ window: "1h", jobName: "echo" });
  const day = await engine.getSeries({ window: "24h" });
  const week = await engine.getSeries({ window: "7d", jobName: "nobody" });

  assert.deepEqual([hour.stepMs, day.stepMs, week.stepMs], [60_000, 900_000, 10_800_000]);
  assert.deepEqual([hour, day, week].map(({ triggered }) => triggered.length), [60, 96, 56]);
  assert.equal(hour.from, new Date(FAKE_START + 120_000 - 59 * 60_000).toISOString());
  assert.deepEqual(hour.triggered.slice(-3), [1, 0, 2]);
  assert.deepEqual(ofJob.completed.slice(-3), [1, 0, 1]);
  assert.deepEqual([hour.pending.slice(-3), ofJob.pending.slice(-1)], [[0, null, 1], [null]]);
  assert.equal(day.completed.at(-1), 2);
  assert.equal(hour.startDelay.p50.at(-3), 1.189);
  assert.ok(week.triggered.every((count) => count === 0));
});

Deno.test("getSeries() refuses what is no window, no name or no field", async () => {
  const engine = createEngine({ store: new MemoryStore(), jobs: {} });

  await assert.rejects(engine.getSeries({ window: "1y" as "1h" }), ValidationError);
  await assert.rejects(engine.getSeries({ window: "toString" as "1h" }), ValidationError);
  await assert.rejects(engine.getSeries({ window: "1h", jobName: "" }), ValidationError);
  await assert.rejects(engine.getSeries({ window: "1h", job: "echo" } as { window: "1h" }), TypeError);
});

Deno.test("getStats(), getJobs() and getWorkers() share one result for a second", async () => {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  let reads = 0;
  const store = withCalls(memory, { getJobs: (rates) => (reads += 1, memory.getJobs(rates)) });
  const engine = createEngine({ store, host, jobs: { echo } });
  await Promise.all([engine.getStats(), engine.getJobs(), engine.getWorkers(), engine.getStats()]);
  host.advance(999);
  await engine.getStats();
  const shared = reads;
  host.advance(1);
  await engine.getStats();

  assert.deepEqual([shared, reads], [1, 2]);
});

Deno.test("getStats() adds up the jobs above 100 that were triggered least", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const jobs = Object.fromEntries(
    Array.from({ length: 105 }, (_, n) => [`job${n}`, aJob(() => null, `job-${String(n).padStart(3, "0")}`)]),
  );
  const engine = createEngine({ store, host, jobs });
  for (const job of Object.values(jobs).slice(3)) await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(1_000);

  const { jobs: shown, total } = await engine.getStats();
  const all = await engine.getJobs();

  assert.deepEqual([shown.length, all.length, total], [101, 105, 102]);
  const other = shown.at(-1)!;
  assert.deepEqual([other.jobName, other.byStatus.completed, other.windows["1h"].completed], ["other", 2, 2]);
  assert.equal(shown.some(({ jobName }) => jobName === "job-001"), false);
});

Deno.test("worker.name and worker.deployment must be names", () => {
  for (const worker of [{ name: "" }, { deployment: "a\n" }, { name: "x".repeat(256) }]) {
    assert.throws(() => createEngine({ store: new MemoryStore(), jobs: {}, worker }), ValidationError);
  }
});
