import assert from "node:assert/strict";
import { z } from "zod";
import { collect, defineCollector } from "../../src/engine/collector.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { randomNumbers } from "../../src/testing/fake_globals.ts";
import { forEachStore } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";

const change = z.object({ doc: z.number(), n: z.number(), text: z.string().default("") });

/** A job that keeps the batches that it is triggered with. */
function anIndex() {
  const batches: number[][] = [];
  const index = defineJob({
    name: "index",
    input: z.array(change),
    run: (_, items) => void batches.push(items.map(({ n }) => n)),
  });
  return { index, batches };
}

const OPTIONS = {
  name: "changes",
  item: change,
  key: ({ doc }: { doc: number }) => `doc ${doc}`,
  quiet: "2s",
  maxDelay: "10s",
} as const;

forEachStore("a collector hands over all items of a key when none has come for a while", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const changes = defineCollector({ ...OPTIONS, into: index });
  await using engine = createEngine({ store, host, jobs: { changes, index } });
  const add = async (doc: number, n: number) => {
    await collect(engine, changes, { doc, n });
    await engine.runUntilIdle();
  };

  await add(1, 1);
  await add(2, 100);
  host.advance(1_500);
  await add(1, 2); // the quiet begins again
  host.advance(500);
  await engine.runUntilIdle();
  assert.deepEqual(batches, [[100]]);
  host.advance(1_500);
  await engine.runUntilIdle();
  assert.deepEqual(batches, [[100], [1, 2]]);

  await add(1, 3);
  host.advance(2_000);
  await engine.runUntilIdle();
  assert.deepEqual(batches, [[100], [1, 2], [3]]);
  const runs = (await engine.jobs.changes.getRuns()).runs;
  assert.deepEqual(runs.map(({ status }) => status), ["completed", "completed", "completed"]);
});

forEachStore("a collector hands over after maxDelay, and when it is full", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const changes = defineCollector({ ...OPTIONS, into: index, maxItems: 8 });
  await using engine = createEngine({ store, host, jobs: { changes, index } });

  for (let n = 0; n < 6; n++) {
    await collect(engine, changes, { doc: 1, n });
    await engine.runUntilIdle();
    host.advance(1_900); // never quiet
  }
  await engine.runUntilIdle();
  assert.deepEqual(batches, [[0, 1, 2, 3, 4, 5]]);
  await collect(engine, changes, { doc: 1, n: 6 });
  await engine.runUntilIdle();
  host.advance(10_000);
  await engine.runUntilIdle();
  for (let n = 10; n < 28; n++) await collect(engine, changes, { doc: 1, n });
  await engine.runUntilIdle();
  host.advance(2_000);
  await engine.runUntilIdle();

  const full = [10, 18].map((first) => Array.from({ length: 8 }, (_, at) => first + at));
  assert.deepEqual(batches.slice(1), [[6], ...full, [26, 27]]);
});

forEachStore("an item does not wake the run that waits for quiet", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const changes = defineCollector({ ...OPTIONS, into: index });
  await using engine = createEngine({ store, host, jobs: { changes, index } });
  const executed: number[] = [];

  for (let n = 0; n < 20; n++) {
    await collect(engine, changes, { doc: 1, n });
    executed.push((await engine.runUntilIdle()).executed);
    host.advance(90);
  }
  host.advance(2_000);
  await engine.runUntilIdle(); // it looks how new the newest is: quiet since
  host.advance(2_000);
  await engine.runUntilIdle();

  assert.deepEqual(executed, [1, ...Array(19).fill(0)]);
  assert.equal(batches.flat().length, 20);
  assert.equal(batches.length, 1);
});

forEachStore("an item with an id is collected once", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const changes = defineCollector({ ...OPTIONS, into: index });
  await using engine = createEngine({ store, host, jobs: { changes, index } });

  const first = await collect(engine, changes, { doc: 1, n: 1 }, { id: "c-1" });
  const again = await collect(engine, changes, { doc: 1, n: 1 }, { id: "c-1" });
  await engine.runUntilIdle();
  host.advance(2_000);
  await engine.runUntilIdle();
  const late = await collect(engine, changes, { doc: 1, n: 1 }, { id: "c-1" });

  assert.deepEqual([first.started, again.disposition, late.disposition], [true, "duplicate", "duplicate"]);
  assert.deepEqual(batches, [[1]]);
});

forEachStore("a collector with `pick` hands over the newest item alone", async ({ store, host }) => {
  const saved: number[] = [];
  const save = defineJob({ name: "save", input: change, run: (_, { n }) => void saved.push(n) });
  const changes = defineCollector({ ...OPTIONS, into: save, pick: "newest" });
  await using engine = createEngine({ store, host, jobs: { changes, save } });

  for (let n = 0; n < 5; n++) await collect(engine, changes, { doc: 1, n });
  await engine.runUntilIdle();
  host.advance(2_000);
  await engine.runUntilIdle();

  assert.deepEqual(saved, [4]);
});

forEachStore("items that are too large together become several batches, in order", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const changes = defineCollector({ ...OPTIONS, into: index });
  await using engine = createEngine({ store, host, jobs: { changes, index }, maxValueBytes: 1_000 });

  for (let n = 0; n < 5; n++) await collect(engine, changes, { doc: 1, n, text: "x".repeat(400) });
  await engine.runUntilIdle();
  host.advance(2_000);
  await engine.runUntilIdle();

  assert.deepEqual(batches, [[0, 1], [2], [3, 4]]);
});

forEachStore("a key that is never quiet goes on in another run", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const changes = defineCollector({ ...OPTIONS, into: index, maxItems: 400 });
  await using engine = createEngine({ store, host, jobs: { changes, index } });

  for (let n = 0; n < 1_300; n++) await collect(engine, changes, { doc: 1, n });
  await engine.runUntilIdle();
  const next = await collect(engine, changes, { doc: 1, n: 1_300 });
  await engine.runUntilIdle();
  host.advance(2_000);
  await engine.runUntilIdle();

  assert.equal(next.started, true);
  assert.deepEqual(batches.map(({ length }) => length), [400, 400, 400, 100, 1]);
  assert.deepEqual(batches.flat(), Array.from({ length: 1_301 }, (_, n) => n));
});

Deno.test("each item is handed over once and in order, at whatever moment it comes", async () => {
  for (let seed = 0; seed < 10; seed++) {
    const numbers = randomNumbers(seed);
    const host = new FakeHost();
    const { index, batches } = anIndex();
    const changes = defineCollector({ ...OPTIONS, into: index, maxItems: 7 });
    await using engine = createEngine({ store: new MemoryStore({ host }), host, jobs: { changes, index } });

    for (let n = 0; n < 60; n++) {
      await collect(engine, changes, { doc: 1, n });
      if (numbers() < 0.7) await engine.runUntilIdle();
      host.advance(Math.floor(1_900 + numbers() * 200) * (numbers() < 0.5 ? 1 : 0));
    }
    for (let turn = 0; turn < 30; turn++) {
      await engine.runUntilIdle();
      host.advance(2_000);
    }

    assert.deepEqual(batches.flat(), Array.from({ length: 60 }, (_, n) => n), `seed ${seed}`);
  }
});

forEachStore("a run keeps the settings with which it was started", async ({ store, host }) => {
  const { index, batches } = anIndex();
  const before = defineCollector({ ...OPTIONS, into: index, maxItems: 2 });
  const after = defineCollector({ ...OPTIONS, into: index, maxItems: 5, quiet: "1s" });
  {
    await using engine = createEngine({ store, host, jobs: { before, index } });
    for (let n = 0; n < 3; n++) await collect(engine, before, { doc: 1, n });
    await engine.runUntilIdle();
  }
  await using engine = createEngine({ store, host, jobs: { after, index } });
  host.advance(2_000);
  await engine.runUntilIdle();

  assert.deepEqual(batches, [[0, 1], [2]]);
});

Deno.test("defineCollector() and collect() refuse what is wrong", async () => {
  const { index } = anIndex();
  const define = (options: object) => () => defineCollector({ ...OPTIONS, into: index, ...options });
  for (const wrong of [{ key: "doc" }, { into: "index" }, { pick: "oldest" }, { item: 7 }, { maxitems: 2 }]) {
    assert.throws(define(wrong), TypeError);
  }
  for (const wrong of [{ quiet: -1 }, { maxDelay: Infinity }, { maxItems: 0 }, { maxItems: 1_001 }]) {
    assert.throws(define(wrong), RangeError);
  }
  assert.throws(define({ name: "" }), { name: "ValidationError" });
  const changes = defineCollector({ ...OPTIONS, into: index });
  const keyless = defineCollector({ ...OPTIONS, name: "keyless", key: () => "", into: index });
  const host = new FakeHost();
  await using engine = createEngine({ store: new MemoryStore({ host }), host, jobs: { changes, keyless, index } });
  await assert.rejects(collect(engine, changes, { doc: "1" } as never), { code: "invalid_input" });
  await assert.rejects(collect(engine, keyless, { doc: 1, n: 1 }), { name: "ValidationError" });
  await assert.rejects(collect(engine, changes, { doc: 1, n: 1 }, { di: "1" } as object), TypeError);
  const other = defineCollector({ ...OPTIONS, name: "other", into: index });
  await assert.rejects(collect(engine, other, { doc: 1, n: 1 }), { code: "not_found" });
  assert.equal((await engine.getRuns()).runs.length, 0);
});

Deno.test("the types say what a collector takes, and what its job must take", () => {
  const { index } = anIndex();
  const one = defineJob({ name: "one", input: change, run: () => 1 });
  const changes = defineCollector({ ...OPTIONS, into: index });
  const wrong = () => {
    // @ts-expect-error: the job takes one item
    defineCollector({ ...OPTIONS, into: one });
    // @ts-expect-error: the job takes an array
    defineCollector({ ...OPTIONS, into: index, pick: "newest" });
    // @ts-expect-error: no item
    collect({} as never, changes, { doc: "1" });
  };
  assert.equal(typeof wrong, "function");
});
