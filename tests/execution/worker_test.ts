import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import type { Host } from "../../src/model/host.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Store } from "../../src/store/store.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { unlimited } from "../support/fixtures.ts";
import { withCalls } from "../support/stores/with_calls.ts";
import { claimOne, forEachStore, LEASE_MS, nextEvent, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { stopHard } from "../support/engines.ts";
import { aGatedJob, aJob, anOutsideJob } from "../support/jobs.ts";
import { getRun, hasWorker } from "../../src/store/reads.ts";

forEachStore("a worker executes as many runs at the same time as it may", async ({ store, host }) => {
  const gates: (() => void)[] = [];
  let active = 0;
  let most = 0;
  const job = aJob((step) =>
    step.run("slow", async () => {
      most = Math.max(most, ++active);
      await new Promise<void>((resolve) => gates.push(resolve));
      active -= 1;
    })
  );
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 2 } });
  await engine.start();
  const runs = await engine.jobs.job.batchTrigger(Array.from({ length: 5 }, (_, input) => ({ input })));

  for (let ended = 0; ended < 5; ended++) {
    await host.settle();
    assert.equal(active, Math.min(2, 5 - ended));
    gates.shift()!();
  }
  await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));

  assert.equal(most, 2);
});

forEachStore("a worker fills all its slots from one look", async ({ store, host }) => {
  const job = aJob((_step, input) => input);
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 7 } });
  const runs = await engine.jobs.job.batchTrigger(Array.from({ length: 50 }, (_, input) => ({ input })));

  await engine.start();
  const ended = await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));

  assert.deepEqual(ended.map(({ output }) => output), runs.map((_, n) => n));
});

forEachStore("a worker takes runs in the order of their triggers, the interrupted as well", async ({ store, host }) => {
  const order: unknown[] = [];
  const jobs = {
    one: aJob((_step, input) => order.push(input), "one"),
    two: aJob((_step, input) => order.push(input), "two"),
  };
  await using engine = createEngine({ store, host, jobs, worker: { concurrency: 1 } });
  for (const [input, job] of ["one", "two", "two", "one", "two"].entries()) await engine.trigger(job, input);
  await claimOne(store, "one");
  host.advance(LEASE_MS);

  await engine.runUntilIdle();

  assert.deepEqual(order, [0, 1, 2, 3, 4]);
});

forEachStore("a worker leaves runs of unknown jobs pending, and their keys to others", async ({ store, host }) => {
  const known = aJob(() => "done", "known");
  await using other = createEngine({ store, host, jobs: { unknown: aJob(() => 1, "unknown") } });
  await using engine = createEngine({ store, host, jobs: { known } });
  const unknown = await other.trigger("unknown", 1, { concurrencyKey: "line" });
  const behind = await engine.trigger("known", 1, { concurrencyKey: "line" });
  await engine.start();

  const run = await engine.waitForRun(behind.id);
  await pass(host, 60_000, 5_000);

  assert.equal(run.output, "done");
  assert.equal((await engine.getRun(unknown.id))!.status, "pending");
});

forEachStore("a worker executes runs of one key one after another, whatever their job", async ({ store, host }) => {
  const log: string[] = [];
  const body = async (step: StepContext, input: unknown) => {
    log.push(`begin ${input}`);
    await step.run("work", () => host.settle());
    log.push(`end ${input}`);
  };
  const jobs = { one: aJob(body, "one"), two: aJob(body, "two") };
  await using engine = createEngine({ store, host, jobs });
  for (const [input, job] of (["one", "two", "one", "two"] as const).entries()) {
    await engine.trigger(job, input, { concurrencyKey: "line" });
  }
  await engine.trigger("one", "free");

  await engine.runUntilIdle();

  const keyed = log.filter((line) => !line.endsWith("free"));
  assert.deepEqual(keyed, [0, 1, 2, 3].flatMap((input) => [`begin ${input}`, `end ${input}`]));
  assert.ok(log.indexOf("begin free") < log.indexOf("begin 1"));
});

forEachStore("a worker does not execute a key again before a cancelled body has ended", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob();
  const next = aJob(() => "next", "next");
  await using engine = createEngine({ store, host, jobs: { job, next } });
  await engine.start();
  const cancelled = await engine.trigger("job", 1, { concurrencyKey: "line" });
  await reached;
  const behind = await engine.trigger("next", 2, { concurrencyKey: "line" });

  await engine.cancel(cancelled.id);
  await pass(host, 5_000, 500);
  const whileItRuns = (await engine.getRun(behind.id))!.status;
  letGo("late");
  const run = await engine.waitForRun(behind.id);

  assert.equal(whileItRuns, "pending");
  assert.equal(run.output, "next");
});

forEachStore("a worker executes a key again when a cancelled body hangs and its lease is over", async (context) => {
  const { store, host } = context;
  const { job, reached } = aGatedJob();
  const next = aJob(() => "next", "next");
  const engine = createEngine({ store, host, jobs: { job, next } });
  await engine.start();
  const cancelled = await engine.trigger("job", 1, { concurrencyKey: "line" });
  await reached;
  const behind = await engine.trigger("next", 2, { concurrencyKey: "line" });

  await engine.cancel(cancelled.id);
  await pass(host, LEASE_MS + 2_000, 500);

  assert.equal((await engine.getRun(behind.id))!.status, "completed");
  await stopHard(engine, host);
});

forEachStore("a worker begins a run that is triggered beside it without a moment's delay", async ({ store, host }) => {
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  await host.settle();

  const { id } = await engine.trigger(job, 1);
  const run = await engine.waitForRun(id);

  assert.equal(run.completedAt, run.createdAt);
});

forEachStore("a worker finds runs that another engine has triggered", async ({ store, host }) => {
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job }, worker: { pollingInterval: 1_000 } });
  await using other = createEngine({ store, host, jobs: { job } });
  await engine.start();
  await host.settle();

  const { id } = await other.trigger(job, 1);
  await pass(host, 1_200, 100);

  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("a worker takes over a run whose lease has expired, and not before", async ({ store, host }) => {
  const job = aJob((step) => step.execution);
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await claimOne(store, "job");
  await engine.start();

  await pass(host, LEASE_MS - 1, 1_000);
  const before = (await engine.getRun(id))!;
  await pass(host, 2, 1);
  const after = (await engine.getRun(id))!;

  assert.deepEqual([before.status, before.leaseOwner], ["running", "dead-worker"]);
  assert.deepEqual([after.status, after.output, after.leaseOwner], ["completed", 2, null]);
});

forEachStore("a blocked event loop is published as worker:error", async ({ store, host }) => {
  let blockedMs = 0;
  const blockable: Host = {
    now: () => host.now(),
    monotonic: () => host.monotonic() + blockedMs,
    schedule: (ms, callback) => host.schedule(ms, callback),
    defer: (callback) => host.defer(callback),
    random: () => host.random(),
    newId: () => host.newId(),
  };
  const { job, reached, letGo } = aGatedJob();
  await using engine = createEngine({ store, host: blockable, jobs: { job } });
  const told = nextEvent(engine, "worker:error");
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await reached;

  blockedMs = 10_000;
  await pass(host, 5_000, 1_000);

  assert.match(String((await told).error), /blocked for 10000 ms/);
  letGo(1);
  await engine.waitForRun(id);
});

forEachStore("a cancel keeps progress that no step has kept yet", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob();
  const reporting = aJob(async (step, input) => {
    step.progress(3);
    await job.run(step, input);
  });
  await using engine = createEngine({ store, host, jobs: { reporting } });
  const { id } = await engine.trigger(reporting, 1);
  await engine.start();
  await reached;

  const run = await engine.cancel(id);
  letGo("late");

  assert.deepEqual([run.status, run.progress], ["cancelled", { current: 3 }]);
});

forEachStore("a worker that polls seldom counts as alive", async ({ store, host }) => {
  const job = aJob(() => 1);
  const worker = { pollingInterval: 60_000, heartbeatInterval: 100, staleThreshold: 300 };
  await using engine = createEngine({ store, host, jobs: { job }, worker });
  await engine.start();
  await host.settle();

  const isAlive = [];
  for (let n = 0; n < 10; n++) {
    await pass(host, 290, 10);
    isAlive.push(await hasWorker(store, "job"));
  }

  assert.deepEqual(new Set(isAlive), new Set([true]));
});

forEachStore("a cancelled run keeps its key while code outside of steps goes on", async ({ store, host }) => {
  const { job, reached, letGo, bodies } = anOutsideJob((step) => step.run("after", () => 1));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1, { concurrencyKey: "one" });
  await engine.start();
  await reached;
  const next = await engine.trigger(job, 2, { concurrencyKey: "one" });

  await engine.cancel(id);
  await pass(host, 2_000, 200);
  const during = (await getRun(store, next.id))!.status;
  letGo();
  await pass(host, 2_000, 200);

  assert.equal(during, "pending");
  assert.equal((await getRun(store, next.id))!.status, "completed");
  assert.deepEqual(bodies, [1, 1]);
});

forEachStore("a clock that is set back does not strand the run of a dead worker", async ({ store, host }) => {
  const job = aJob((step) => step.execution);
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await claimOne(store, "job");
  host.jump(-3_600_000);
  await engine.start();

  await pass(host, LEASE_MS - 1_000, 1_000);
  const before = (await engine.getRun(id))!.status;
  await pass(host, LEASE_MS, 1_000);

  assert.equal(before, "running");
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.output], ["completed", 2]);
});

forEachStore("a clock that is set back does not strand the key of a dead worker's cancelled run", async (context) => {
  const { store, host } = context;
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job } });
  const cancelled = await engine.trigger(job, 1, { concurrencyKey: "line" });
  const behind = await engine.trigger(job, 2, { concurrencyKey: "line" });
  await claimOne(store, "job");
  await engine.cancel(cancelled.id);
  host.jump(-3_600_000);
  await engine.start();

  await pass(host, 2 * LEASE_MS, 1_000);

  assert.equal((await engine.getRun(behind.id))!.status, "completed");
});

forEachStore("a clock that is set back takes no lease from a worker that lives", async ({ store, host }) => {
  const { job, reached, letGo, calls } = aGatedJob();
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  const abortSignal = await reached;
  await other.start();

  host.jump(-3_600_000);
  await pass(host, 3 * LEASE_MS, 1_000);
  letGo("done");
  await host.settle();

  assert.deepEqual([abortSignal.aborted, calls()], [false, 1]);
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.output, run.leaseGeneration], ["done", 1]);
});

forEachStore("a pending run is claimed whatever the clock says", async ({ store, host }) => {
  const job = aJob(() => "done");
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  host.jump(-365 * 86_400_000);

  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(run.status, "completed");
  assert.equal(run.completedAt, run.createdAt); // no run ends before it was triggered
});

forEachStore("a clock that is set forward ends leases early, and the old holder writes nothing", async (context) => {
  const { store, host } = context;
  const gate = Promise.withResolvers<string>();
  const job = aJob((step) => step.run("work", () => step.execution === 1 ? gate.promise : "second"));
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, 1);
  await engine.start();
  await nextEvent(engine, "step:start");

  host.jump(3_600_000);
  await other.runUntilIdle();
  gate.resolve("first, late");
  await host.settle();

  assert.equal((await engine.getRun(id))!.output, "second");
});

Deno.test("a job that has blocked the event loop beyond its lease goes on, and does not park before", async () => {
  await using store = await SqliteStore.open(":memory:");
  const job = defineJob({
    name: "job",
    input: z.null(),
    run: (step) =>
      Promise.all([
        step.wait("never"),
        (async () => {
          await step.run("before", () => {});
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 400); // blocks: it is not in a step
          await step.run("after", () => {});
        })(),
      ]),
  });
  await using engine = createEngine({ store, jobs: { job }, worker: { heartbeatInterval: 100, staleThreshold: 300 } });
  await engine.start();
  const waiting = nextEvent(engine, "run:waiting");

  const { id } = await engine.trigger(job, null);
  await waiting;

  assert.deepEqual((await engine.getSteps(id)).map(({ name }) => name), ["before", "after"]);
  assert.equal((await engine.getRun(id))!.leaseGeneration, 1);
});

Deno.test("a worker that is given a run of a job that it does not know says so, and goes on", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const known = aJob((_step, input) => input, "known");
  const confused = withCalls(store, {
    claim: (request) => store.claim({ ...request, jobs: unlimited(["known", "foreign"]) }),
  });
  await using other = createEngine({ store, host, jobs: { foreign: aJob(() => 1, "foreign") } });
  await using engine = createEngine({ store: confused, host, jobs: { known } });
  const events = recordEvents(engine);
  const foreign = await other.trigger("foreign", 1);
  const { id } = await engine.trigger("known", 2);

  await engine.runUntilIdle();

  const errors = events.flatMap((event) => event.type === "worker:error" ? [(event.error as Error).message] : []);
  assert.equal(errors.length, 1);
  assert.match(errors[0]!, new RegExp(`run "${foreign.id}" of job "foreign"`));
  assert.equal((await engine.getRun(id))!.status, "completed");
});

Deno.test("a worker without a free slot claims at most ten times a second, however much the store changes", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  let claims = 0;
  const counted = withCalls(store, {
    claim: (request) => {
      claims += 1;
      return store.claim(request);
    },
  });
  const gate = Promise.withResolvers<void>();
  const job = aJob((_step, input) => input === "first" ? gate.promise : input);
  await using engine = createEngine({ store: counted, host, jobs: { job }, worker: { concurrency: 1 } });
  await engine.start();
  const first = await engine.trigger("job", "first");
  await host.settle();
  const before = claims;

  for (let n = 0; n < 50; n++) {
    await engine.trigger("job", n);
    await pass(host, 10, 10);
  }

  assert.ok(claims - before <= 6, `${claims - before} claims in half a second`);
  const claimsWhileFull = claims;
  gate.resolve();
  await engine.waitForRun(first.id);
  await host.settle();
  assert.ok(claims > claimsWhileFull, "a free slot is filled at once");
});

/** A store that answers no `finish()` before `answer()` is called, and the runs whose jobs were called. */
async function unansweredEnds({ store, host }: { store: Store; host: FakeHost }, inputs: number) {
  const answered = Promise.withResolvers<void>();
  const slow = withCalls(store, {
    finish: async (...parameters) => {
      await answered.promise;
      await store.finish(...parameters);
    },
  });
  const executed: unknown[] = [];
  const job = aJob((_step, input) => executed.push(input));
  const engine = createEngine({ store: slow, host, jobs: { job }, worker: { concurrency: 2 } });
  const runs = await engine.jobs.job.batchTrigger(Array.from({ length: inputs }, (_, input) => ({ input })));
  return { engine, executed, runs, answer: () => answered.resolve() };
}

forEachStore("a worker claims the next runs while the ends of the ones before are being saved", async (setting) => {
  const { engine, executed, runs, answer } = await unansweredEnds(setting, 3);
  await using _ = engine;

  await engine.start();
  await setting.host.settle();

  assert.deepEqual(executed, [0, 1, 2]);
  answer();
  await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));
});

forEachStore("a worker holds at most twice as many runs as it executes, if none can be ended", async (setting) => {
  const { engine, executed, runs, answer } = await unansweredEnds(setting, 9);
  await using _ = engine;

  await engine.start();
  await setting.host.settle();

  assert.deepEqual(executed, [0, 1, 2, 3]);
  answer();
  await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));
  assert.equal(executed.length, 9);
});

Deno.test("a worker on a SqliteStore ends a run and claims the next one in one commit", async () => {
  const database = new DatabaseSync(":memory:");
  let commits = 0;
  const counting: SqliteDriver = {
    exec: (sql) => {
      if (sql === "BEGIN IMMEDIATE") commits += 1;
      database.exec(sql);
    },
    prepare: (sql) => database.prepare(sql),
  };
  const host = new FakeHost();
  await using store = await SqliteStore.from(counting, { host });
  const job = aJob((step) => step.run("only", () => null));
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 1 } });
  const runs = await engine.jobs.job.batchTrigger(Array.from({ length: 10 }, () => ({ input: null })));
  commits = 0;

  await engine.start();
  await Promise.all(runs.map(({ id }) => engine.waitForRun(id)));

  assert.equal(commits, 21); // the first claim, ten steps, ten ends
  await engine.stop();
  await store.close();
  database.close();
});
