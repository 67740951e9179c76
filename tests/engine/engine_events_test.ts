import assert from "node:assert/strict";
import { NotFoundError } from "../../src/model/error.ts";
import type { EngineEvent, RunEvent } from "../../src/model/event.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FAKE_START } from "../support/fake_host.ts";
import { forEachStore, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anEngine, typesOf } from "../support/engines.ts";
import { aJob, echo } from "../support/jobs.ts";
import { getRun, getSteps } from "../../src/store/reads.ts";

async function readAll(stream: ReadableStream<RunEvent>): Promise<RunEvent[]> {
  return await Array.fromAsync(stream);
}

forEachStore("on() tells the events of a run in order, with what the contract says they carry", async (context) => {
  const { store, host } = context;
  const job = aJob(async (step) => {
    step.progress(1, 2);
    await step.run("work", () => {
      host.advance(7);
      return { n: 1 };
    });
    step.log.warn("done", { n: 2 });
    return "out";
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, { in: 1 }, { labels: { a: "b" } });
  await engine.runUntilIdle();

  const [at, later] = [FAKE_START, FAKE_START + 7].map((instant) => new Date(instant).toISOString());
  const base = { runId: id, jobName: "job", labels: { a: "b" } };
  const leased = events[1] as EngineEvent & { leaseOwner: string };
  assert.equal(typeof leased.leaseOwner, "string");
  assert.deepEqual(events.map(({ sequence: _, ...event }) => event), [
    {
      type: "run:trigger",
      input: { in: 1 },
      startAt: null,
      parentRunId: null,
      scheduleName: null,
      slotAt: null,
      by: null,
      ...base,
      timestamp: at,
    },
    {
      type: "run:leased",
      leaseOwner: leased.leaseOwner,
      leaseExpiresAt: new Date(FAKE_START + 30_000).toISOString(),
      ...base,
      timestamp: at,
    },
    { type: "run:start", execution: 1, ...base, timestamp: at },
    { type: "run:progress", progress: { current: 1, total: 2 }, ...base, timestamp: at },
    { type: "step:start", stepName: "work", stepIndex: 0, attempt: 1, ...base, timestamp: at },
    { type: "step:complete", stepName: "work", stepIndex: 0, output: { n: 1 }, duration: 7, ...base, timestamp: later },
    { type: "log:write", stepName: null, level: "warn", message: "done", data: { n: 2 }, ...base, timestamp: later },
    { type: "run:complete", output: "out", duration: 7, ...base, timestamp: later },
  ]);
  const sequences = events.map(({ sequence }) => sequence);
  assert.deepEqual(sequences, sequences.toSorted((left, right) => left - right));
  assert.equal(new Set(sequences).size, events.length);
});

forEachStore("on() publishes a write only after it can be read", async ({ store, host }) => {
  const job = aJob((step) => step.run("work", () => 1));
  await using engine = createEngine({ store, host, jobs: { job } });
  const seen: Promise<unknown>[] = [];
  engine.on("run:trigger", ({ runId }) => void seen.push(getRun(store, runId).then((run) => run !== null)));
  engine.on("step:complete", ({ runId }) => void seen.push(getSteps(store, runId).then(([step]) => step?.status)));
  engine.on("run:complete", ({ runId }) => void seen.push(getRun(store, runId).then((run) => run?.status)));

  await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.deepEqual(await Promise.all(seen), [true, "completed", "completed"]);
});

forEachStore("on() stops telling once its answer is called", async (context) => {
  await using engine = anEngine(context);
  const heard: string[] = [];
  const listener = ({ type }: EngineEvent) => void heard.push(type);
  const stopFirst = engine.on("run:trigger", listener);
  const stopSecond = engine.on("run:trigger", listener);

  await engine.trigger("echo", 1);
  stopFirst();
  stopFirst();
  await engine.trigger("echo", 2);
  stopSecond();
  await engine.trigger("echo", 3);

  assert.equal(heard.length, 3);
});

forEachStore("on() does not let a listener that throws harm anything", async (context) => {
  const { store, host } = context;
  const logged: string[] = [];
  const logger = { info() {}, warn() {}, error: (text: string) => void logged.push(text) };
  await using engine = createEngine({ store, host, jobs: { echo }, logger });
  const heard: string[] = [];
  engine.on("*", () => {
    throw new Error("broken listener");
  });
  engine.on("*", (() => Promise.reject(new Error("broken async listener"))) as () => void);
  engine.on("*", ({ type }) => void heard.push(type));

  const { id } = await engine.trigger("echo", 1);
  await engine.runUntilIdle();
  await host.settle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(heard, ["run:trigger", "run:leased", "run:start", "run:complete"]);
  assert.equal(logged.length, 8);
});

forEachStore("subscribe() follows a pending run to its end", async ({ store, host }) => {
  const job = aJob(async (step) => {
    step.progress(1);
    await step.run("work", () => 1);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const other = await engine.trigger(job, null);
  const reading = readAll(engine.subscribe(id));
  await host.settle();

  await engine.runUntilIdle();
  const events = await reading;

  assert.notEqual(other.id, id);
  assert.ok(events.every(({ runId }) => runId === id));
  assert.deepEqual(typesOf(events), [
    "run:leased",
    "run:start",
    "run:progress",
    "step:start",
    "step:complete",
    "run:complete",
  ]);
});

forEachStore("subscribe() begins with the state of a running run", async ({ store, host }) => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    step.progress(1);
    await step.run("first", () => 1);
    await step.run("second", () => {
      reached.resolve();
      return promise;
    });
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await reached.promise;

  const reading = readAll(engine.subscribe(id));
  await host.settle();
  resolve();
  await idle;
  const events = await reading;

  assert.deepEqual(typesOf(events), [
    "run:leased",
    "run:start",
    "run:progress",
    "step:start",
    "step:complete",
    "run:complete",
  ]);
  assert.partialDeepStrictEqual(events[2], { progress: { current: 1 } });
  assert.partialDeepStrictEqual(events[1], { execution: 1 });
});

forEachStore("subscribe() tells the last event alone of a run that has ended", async (context) => {
  await using engine = anEngine(context);
  const completed = await engine.trigger("echo", { n: 1 });
  const failed = await engine.trigger("fail", 1);
  await engine.runUntilIdle();
  const cancelled = await engine.trigger("echo", 1);
  await engine.cancel(cancelled.id);

  const streams = await Promise.all([completed, failed, cancelled].map(({ id }) => readAll(engine.subscribe(id))));

  assert.deepEqual(streams.map(typesOf), [["run:complete"], ["run:fail"], ["run:cancel"]]);
  assert.partialDeepStrictEqual(streams[0]![0], { output: { n: 1 }, duration: 0 });
  assert.partialDeepStrictEqual(streams[1]![0], { error: "broken", failedStepName: null });
});

forEachStore(
  "run:complete has the same duration live and later: from the first start on, with pauses",
  async (context) => {
    const { store, host } = context;
    const job = aJob(async (step) => {
      await step.run("first", () => host.advance(7));
      await step.sleep("pause", 5_000);
      await step.run("second", () => host.advance(70));
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const events = recordEvents(engine);
    const { id } = await engine.trigger(job, null);

    await engine.runUntilIdle();
    host.advance(5_100); // its worker comes late
    await engine.runUntilIdle();
    const later = await readAll(engine.subscribe(id));

    const durations = [...events, ...later].map((event) => event.type === "run:complete" ? event.duration : []).flat();
    assert.deepEqual(durations, [5_177, 5_177]);
  },
);

forEachStore("subscribe() fails for a run that is not there", async (context) => {
  await using engine = anEngine(context);

  const reading = readAll(engine.subscribe("missing"));

  await assert.rejects(reading, NotFoundError);
});

forEachStore("subscribe() closes when the run is cancelled, and when the engine stops", async (context) => {
  const engine = anEngine(context);
  const cancelled = await engine.trigger("echo", 1);
  const untouched = await engine.trigger("echo", 1);
  const readings = [cancelled, untouched].map(({ id }) => readAll(engine.subscribe(id)));
  await context.host.settle();

  await engine.cancel(cancelled.id);
  await engine.stop();

  assert.deepEqual((await Promise.all(readings)).map(typesOf), [["run:cancel"], []]);
});

forEachStore("subscribe() leaves nothing behind when its reader goes away", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);
  const reader = engine.subscribe(id).getReader();
  await context.host.settle();

  await reader.cancel();

  assert.partialDeepStrictEqual(await engine.runUntilIdle(), { executed: 1 });
});

forEachStore("subscribe() of a run that another engine executes shows all that happens to it", async (context) => {
  const { host } = context;
  await using following = anEngine(context);
  await using working = anEngine(context);
  const { id } = await working.trigger("echo", 1);
  let types: string[] | undefined;
  const reading = readAll(following.subscribe(id)).then((events) => void (types = typesOf(events)));
  await pass(host, 200, 20);

  await working.runUntilIdle();
  await pass(host, 2_000, 20);

  assert.deepEqual(types, ["run:leased", "run:start", "run:complete"]);
  await reading;
});

Deno.test("subscribe() of a run that another process executes shows its progress, its steps and its end", async () => {
  const path = await Deno.makeTempFile({ suffix: ".db" });
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const job = aJob(async (step) => {
    await step.run("first", () => gates[0]!.promise);
    step.progress(1);
    await step.run("second", () => gates[1]!.promise);
    return "out";
  });
  try {
    await using here = await SqliteStore.open(path);
    await using there = await SqliteStore.open(path);
    await using following = createEngine({ store: here, jobs: { job } });
    await using working = createEngine({ store: there, jobs: { job } });
    const { id } = await following.trigger(job, null);
    const reader = following.subscribe(id).getReader();
    const read = async () => (await reader.read()).value;

    const idle = working.runUntilIdle();
    const types = [];
    for (let event = await read(); event !== undefined; event = await read()) {
      types.push(event.type);
      // Each step goes on when its beginning has been shown.
      if (event.type === "step:start") gates[event.stepIndex]!.resolve();
    }
    await idle;

    assert.deepEqual(types, [
      "run:leased",
      "run:start",
      "step:start",
      "step:complete",
      "run:progress",
      "step:start",
      "step:complete",
      "run:complete",
    ]);
  } finally {
    for (const suffix of ["", "-wal", "-shm"]) await Deno.remove(path + suffix).catch(() => {});
  }
});

forEachStore("on() refuses events that there are not, and what is no function", async (context) => {
  await using engine = anEngine(context);
  const on = engine.on as (type: unknown, listener: unknown) => void;

  assert.throws(() => on("run:completed", () => {}), {
    name: "TypeError",
    message: /^There is no event "run:completed"; there are \*, run:trigger, .*run:complete,/,
  });
  assert.throws(() => on("constructor", () => {}), TypeError);
  assert.throws(() => on(["run:complete"], () => {}), { message: "on() needs the name of an event, not an Array" });
  assert.throws(() => on("run:complete", "log"), { message: 'on("run:complete") needs a function, not a string' });
});
