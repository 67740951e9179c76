import assert from "node:assert/strict";
import { NotFoundError, StoreError } from "../../../src/model/error.ts";
import { RunReader } from "../../../src/engine/runs/run_reader.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aRun } from "../../support/fixtures.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aJob } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";

forEachStore("runs that many wait for are read together: a change costs a few calls of the store", async (context) => {
  const { store, host } = context;
  const job = aJob((step, n: number) => step.run("double", () => 2 * n), "double");
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 50 } });
  await engine.start();
  const calls = countReads(store);

  const runs = await Promise.all(Array.from({ length: 200 }, (_, n) => engine.jobs.job.triggerAndWait(n)));

  assert.deepEqual(runs.map(({ output }) => output), Array.from({ length: 200 }, (_, n) => 2 * n));
  assert.ok(calls.length < 100, `${calls.length} calls`);
});

Deno.test("RunReader reads a run after it was asked for, also while it reads the same one for somebody else", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  await store.enqueue([aRun({ id: "a" })]);
  const { promise: mayRead, resolve: letRead } = Promise.withResolvers<void>();
  const readRuns = store.readRuns.bind(store);
  store.readRuns = async (...given) => {
    const runs = await readRuns(...given);
    await mayRead;
    return runs;
  };
  const reader = new RunReader(store);

  const before = reader.read("a");
  await store.cancel("a", "request", null);
  const after = reader.read("a");
  letRead();

  assert.equal((await before).status, "pending");
  assert.equal((await after).status, "cancelled");
});

Deno.test("RunReader refuses an unknown run, and not those that are read with it", async () => {
  const store = new MemoryStore();
  await store.enqueue([aRun({ id: "a" })]);
  const reader = new RunReader(store);

  const [first, unknown, known] = await Promise.allSettled(["a", "b", "a"].map((id) => reader.read(id)));

  assert.equal(first?.status === "fulfilled" && first.value.id, "a");
  assert.ok(unknown?.status === "rejected" && unknown.reason instanceof NotFoundError);
  assert.equal(known?.status === "fulfilled" && known.value.id, "a");
});

Deno.test("RunReader passes an error of the store to those who asked for its runs, and reads again for others", async () => {
  const store = new MemoryStore();
  await store.enqueue([aRun({ id: "a" })]);
  const readRuns = store.readRuns.bind(store);
  let failures = 1;
  store.readRuns = (...given) => failures-- > 0 ? Promise.reject(new Error("gone")) : readRuns(...given);
  const reader = new RunReader(store);

  await assert.rejects(reader.read("a"), /gone/);
  assert.equal((await reader.read("a")).id, "a");
});

/** Counts the calls of a store that read runs. */
function countReads(store: { readRuns(runIds: readonly string[], maxLength: number): Promise<unknown> }): unknown[] {
  const calls: unknown[] = [];
  const readRuns = store.readRuns.bind(store);
  store.readRuns = (runIds, maxLength) => {
    calls.push(runIds);
    return readRuns(runIds, maxLength);
  };
  return calls;
}

forEachStore("runs with large inputs and outputs are waited for, too", async ({ store, host }) => {
  const job = aJob((_step, text: string) => text + text, "repeat");
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.start();
  const text = "x".repeat(200_000);

  const { payload, output } = await engine.jobs.job.triggerAndWait(text);

  assert.equal(payload, text);
  assert.equal(output, text + text);
});

Deno.test("whoever waits for a run does not notice that the store was out of reach for some seconds", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const job = aJob(() => "done", "end");
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.jobs.job.trigger({});
  const readRuns = store.readRuns.bind(store);
  store.readRuns = () => Promise.reject(new StoreError("The database cannot answer: it restarts"));

  const waiting = engine.waitForRun(id);
  await host.advance(10_000);
  store.readRuns = readRuns;
  await engine.runUntilIdle();
  await host.advance(1_000);

  assert.equal((await waiting).output, "done");
});

Deno.test("whoever waits for a run is told that the store is out of reach after a minute, or when the time is over", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const engine = createEngine({ store, host, jobs: { job: aJob(() => "done", "end") } });
  const { id } = await engine.jobs.job.trigger({});
  store.readRuns = () => Promise.reject(new StoreError("The database cannot answer: it is gone"));
  const said: string[] = [];
  const note = (who: string) => (error: Error) => said.push(`${who}: ${error.message}`);

  engine.waitForRun(id).catch(note("a"));
  engine.waitForRun(id, { timeout: 2_000 }).catch(note("b"));
  await host.advance(2_001);
  await host.settle();
  const early = [...said];
  await host.advance(60_000);
  await host.settle();

  assert.deepEqual(early, ["b: The database cannot answer: it is gone"]);
  assert.deepEqual(said.slice(1), ["a: The database cannot answer: it is gone"]);
});

Deno.test("whoever waits for a run is told at once that the store is closed", async () => {
  const store = await SqliteStore.open(":memory:");
  const engine = createEngine({ store, jobs: { job: aJob(() => "done", "end") } });
  const { id } = await engine.jobs.job.trigger({});
  await store.close();

  const waiting = engine.waitForRun(id);

  await assert.rejects(waiting, { name: "StoreError", message: "The store is closed" });
});
