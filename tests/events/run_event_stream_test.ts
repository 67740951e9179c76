import assert from "node:assert/strict";
import { createEngine } from "../support/quiet_engine.ts";
import { persistLogs } from "../../src/engine/plugin.ts";
import { StoreError } from "../../src/model/error.ts";
import type { RunEvent } from "../../src/model/event.ts";
import type { Store } from "../../src/store/store.ts";
import { forEachStore, pass, type StoreTest } from "../support/stores/for_each_store.ts";
import { withCalls } from "../support/stores/with_calls.ts";
import { aJob, aScript, echo } from "../support/jobs.ts";

const approval = aJob((step) => step.wait("review"), "approval");

function anEngine({ store, host }: StoreTest, jobs = {}) {
  return createEngine({ store, host, jobs: { approval, echo, ...jobs } });
}

function typesOf(events: readonly RunEvent[]): string[] {
  return events.map(({ type }) => type);
}

forEachStore("subscribe() shows the same events in every process, those of reports too", async (context) => {
  const { job, begun, end } = aScript();
  await using working = anEngine(context, { job });
  await using following = anEngine(context);
  const { id } = await working.trigger("script", 1);
  const readings = [working, following].map((engine) => Array.fromAsync(engine.subscribe(id)));
  await context.host.settle();

  const idle = working.runUntilIdle();
  const step = await begun;
  step.progress(1, 2);
  const slow = Promise.withResolvers<string>();
  const steps = [step.run("quick", () => 1), step.run("slow", () => slow.promise)];
  step.log.info("between", { n: 1 });
  await pass(context.host, 200, 20);
  slow.resolve("done");
  await Promise.all(steps);
  end("out");
  await idle;
  await pass(context.host, 40, 20);

  const [here, there] = await Promise.all(readings);
  assert.deepEqual(here, there);
  assert.deepEqual(typesOf(here!), [
    "run:leased",
    "run:start",
    "run:progress",
    "log:write",
    "step:start",
    "step:start",
    "step:complete",
    "step:complete",
    "run:complete",
  ]);
});

forEachStore("a report reaches other processes within 250 ms, though its step goes on", async (context) => {
  const { job, begun, end } = aScript();
  await using working = anEngine(context, { job });
  await using following = anEngine(context);
  const { id } = await working.trigger("script", 1);
  const shown: string[] = [];
  const reading = (async () => {
    for await (const event of following.subscribe(id)) shown.push(event.type);
  })();
  const idle = working.runUntilIdle();
  const step = await begun;
  await pass(context.host, 400, 20);
  const before = shown.length;

  const never = Promise.withResolvers<void>();
  const running = step.run("slow", () => never.promise);
  step.progress(1);
  step.log.warn("careful");
  await pass(context.host, 250, 10);
  const during = shown.slice(before);
  never.resolve();
  await running;
  end(1);
  await idle;
  await pass(context.host, 40, 20);
  await reading;

  assert.deepEqual(during, ["run:progress", "log:write", "step:start"]);
});

forEachStore("a log line that is kept has the same time as in the streams", async (context) => {
  const { job, begun, end } = aScript();
  await using engine = anEngine(context, { job });
  engine.use(persistLogs());
  const { id } = await engine.trigger("script", 1);
  const reading = Array.fromAsync(engine.subscribe(id));
  const idle = engine.runUntilIdle();
  const step = await begun;
  step.log.info("line");
  await pass(context.host, 50, 5);
  end(1);
  await idle;

  const [line] = await engine.getLogs(id);
  const shown = (await reading).find(({ type }) => type === "log:write");
  assert.equal(shown!.timestamp, line!.timestamp);
});

forEachStore("subscribe() shows nothing twice and loses nothing when clocks jump", async (context) => {
  await using here = anEngine(context);
  await using there = anEngine(context);
  const { id } = await here.trigger("approval", 1);
  const readings = [here, there].map((engine) => Array.fromAsync(engine.subscribe(id)));
  await context.host.settle();

  for (const jump of [-3_600_000, 60_000, -60_000]) {
    await there.runUntilIdle();
    context.host.jump(jump);
    await pass(context.host, 100, 20);
  }
  await here.cancel(id);
  context.host.jump(-3_600_000);
  await pass(context.host, 100, 20);

  const [first, second] = await Promise.all(readings);
  assert.deepEqual(typesOf(first!), ["run:leased", "run:start", "run:waiting", "run:cancel"]);
  assert.deepEqual(second, first);
});

forEachStore(
  "subscribe() begins with what a run waits for, also when that is over and no worker claimed it",
  async (context) => {
    await using engine = anEngine(context);
    const { id } = await engine.trigger("approval", 1);
    await engine.runUntilIdle();
    const [wait] = await engine.getWaits(id);
    await engine.signal(wait!.id, { signalId: "s", payload: "yes" });

    const reading = Array.fromAsync(engine.subscribe(id));
    await context.host.settle();
    await engine.runUntilIdle();

    assert.deepEqual(typesOf(await reading), ["run:waiting", "run:leased", "run:start", "run:complete"]);
  },
);

forEachStore("subscribe() keeps the newest progress for a reader who is slow", async (context) => {
  const { job, begun, end } = aScript();
  await using engine = anEngine(context, { job });
  const { id } = await engine.trigger("script", 1);
  const reader = engine.subscribe(id).getReader();
  const idle = engine.runUntilIdle();
  const step = await begun;

  for (let n = 1; n <= 50; n++) {
    for (let m = 1; m <= 60; m++) step.progress(60 * n + m);
    await pass(context.host, 100, 20);
  }
  end(1);
  await idle;
  await context.host.settle();
  const events: RunEvent[] = [];
  for (let read = await reader.read(); !read.done; read = await reader.read()) events.push(read.value);

  assert.partialDeepStrictEqual(events.at(-2), { type: "run:progress", progress: { current: 3_060 } });
  assert.ok(events.length < 10, `${events.length} events were kept`);
});

forEachStore("subscribe() fails for a reader who leaves too much unread", async (context) => {
  const { job, begun, end } = aScript();
  await using engine = anEngine(context, { job });
  const { id } = await engine.trigger("script", 1);
  const reader = engine.subscribe(id).getReader();
  const idle = engine.runUntilIdle();
  const step = await begun;

  for (let n = 0; n < 110; n++) {
    for (let m = 0; m < 100; m++) step.log.info("line");
    await pass(context.host, 100, 50);
  }
  end(1);
  await idle;

  await assert.rejects(async () => {
    for (let read = await reader.read(); !read.done; read = await reader.read());
  }, StoreError);
});

forEachStore(
  "subscribe() fails for a reader who leaves more than 4 MiB unread, however few events",
  async (context) => {
    const lengths = { within: [900_000, 900_000, 900_000, 900_000], beyond: Array(5).fill(900_000) };
    const outcomes: Record<string, string> = {};
    for (const [name, outputs] of Object.entries(lengths)) {
      const steps = aJob(async (step) => {
        for (const [n, length] of outputs.entries()) await step.run(`step ${n}`, () => "x".repeat(length));
      }, name);
      await using engine = anEngine(context, { [name]: steps });
      const { id } = await engine.trigger(name, 1);
      const stream = engine.subscribe(id);
      await engine.runUntilIdle();
      await context.host.settle(100);
      outcomes[name] = await Array.fromAsync(stream).then((events) => events.at(-1)!.type, (error) => error.name);
    }

    assert.deepEqual(outcomes, { within: "run:complete", beyond: "StoreError" });
  },
);

forEachStore("subscribe() goes on where it was when the store can answer again", async ({ store, host }) => {
  let isDown = false;
  const fail = () => Promise.reject(new StoreError("The disk is full"));
  const flaky: Store = withCalls(store, {
    readJournal: (after, length) => isDown ? fail() : store.readJournal(after, length),
    getRunIdentities: (runs) => isDown ? fail() : store.getRunIdentities(runs),
    readFactValues: (values, length) => isDown ? fail() : store.readFactValues(values, length),
  });
  await using following = createEngine({ store: flaky, host, jobs: {} });
  await using working = anEngine({ store, host });
  const { id } = await working.trigger("approval", 1);
  const reading = Array.fromAsync(following.subscribe(id));
  await host.settle();

  isDown = true;
  await working.runUntilIdle();
  await pass(host, 5_000, 100);
  await working.cancel(id);
  await pass(host, 5_000, 100);
  isDown = false;
  await pass(host, 5_000, 100);

  assert.deepEqual(typesOf(await reading), ["run:leased", "run:start", "run:waiting", "run:cancel"]);
});

forEachStore("subscribe() of a run that was deleted meanwhile ends with run:delete", async (context) => {
  await using here = anEngine(context);
  const { id } = await here.trigger("approval", 1);
  const reading = Array.fromAsync(here.subscribe(id));
  await context.host.settle();

  await context.store.cancel(id, "elsewhere", null);
  await context.store.delete(id);
  await pass(context.host, 100, 20);

  assert.deepEqual(typesOf(await reading), ["run:delete"]);
});

forEachStore("subscribe() joins streams that are up to date without a gap or a repetition", async (context) => {
  await using engine = anEngine(context);
  await using other = anEngine(context);
  const { id } = await engine.trigger("approval", 1);
  const readings: Promise<RunEvent[]>[] = [];

  // Streams begin while other runs fill the journal.
  for (let n = 0; n < 40; n++) {
    for (let m = 0; m < 5; m++) await other.trigger("echo", n);
    readings.push(Array.fromAsync(engine.subscribe(id)));
    if (n % 4 === 0) await other.runUntilIdle();
    if (n % 7 === 0) await context.host.settle(1);
  }
  await engine.cancel(id);

  for (const events of await Promise.all(readings)) {
    assert.equal(events.at(-1)!.type, "run:cancel");
    const numbers = events.map(({ sequence }) => sequence);
    assert.deepEqual(numbers, [...new Set(numbers)].toSorted((left, right) => left - right));
  }
});
