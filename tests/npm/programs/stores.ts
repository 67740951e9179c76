// Each store executes jobs: steps, retries, sleeps, signals, children, and what a crash has left.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { createEngine, defineJob, MemoryStore, SqliteStore, type Store } from "@holdfast/jobs";
import { z } from "zod";

const folder = await mkdtemp(join(tmpdir(), "holdfast_stores_"));
const isBun = "bun" in process.versions;

let calls = 0;
const child = defineJob({
  name: "child",
  input: z.object({ value: z.number() }),
  run: (step, { value }) => step.run("double", () => value * 2),
});
const parent = defineJob({
  name: "parent",
  input: z.object({ value: z.number() }),
  async run(step, { value }) {
    const flaky = await step.run("flaky", () => {
      calls += 1;
      if (calls % 2 === 1) throw new Error("once more");
      return value + 1;
    }, { retry: { maxAttempts: 2, delay: 1 } });
    await step.sleep("short", 10);
    const review = await step.wait("review", { timeout: 60_000, schema: z.object({ ok: z.boolean() }) });
    const doubled = await step.invoke("child", child, { value: flaky });
    return { review: review.outcome, doubled };
  },
});
const jobs = { parent, child };

async function executes(store: Store): Promise<void> {
  const engine = createEngine({ store, jobs });
  engine.on("run:waiting", async ({ waitId }) => {
    if (waitId !== null) await engine.signal(waitId, { signalId: "1", payload: { ok: true } });
  });
  await engine.start();
  const run = await engine.jobs.parent.triggerAndWait({ value: 20 }, { timeout: 30_000, labels: { org: "acme" } });
  assert.deepEqual(run.output, { review: "signal", doubled: 42 });
  assert.equal((await engine.getRuns({ jobName: "parent", labels: { org: "acme" } })).total, 1);
  assert.deepEqual((await engine.getSteps(run.id)).map(({ name, attempts }) => [name, attempts]), [["flaky", 2]]);
  await engine.stop();
}

/** What one connection has written, another one reads: the first is given up in the middle, as by a crash. */
async function resumes(open: () => Promise<{ store: Store; close: () => unknown }>): Promise<void> {
  const first = await open();
  const before = createEngine({ store: first.store, jobs });
  const { id } = await before.jobs.parent.trigger({ value: 1 });
  await before.runUntilIdle();
  await before.stop();
  await first.store.close();
  await first.close();
  const second = await open();
  await executes(second.store);
  const after = createEngine({ store: second.store, jobs });
  const waits = async () => (await after.getWaits(id)).map(({ name }) => name);
  for (let tries = 0; (await waits()).length === 0 && tries < 500; tries++) {
    await after.runUntilIdle();
    await new Promise((resolve) => setTimeout(resolve, 10)); // the sleep is over soon
  }
  assert.deepEqual(await waits(), ["review"]);
  const copy = join(folder, `${crypto.randomUUID()}.copy`);
  await (second.store as SqliteStore).backup(copy);
  await after.stop();
  await second.store.close();
  await second.close();
}

await executes(new MemoryStore());

// `node:sqlite`, which Bun has as well.
await executes(await SqliteStore.open(":memory:"));
const path = join(folder, "jobs.db");
await resumes(async () => ({ store: await SqliteStore.open(path), close: () => {} }));

if (isBun) {
  const name = "bun:sqlite"; // not known to other runtimes, nor to their types
  const { Database } = await import(name);
  const bunPath = join(folder, "bun.db");
  await resumes(async () => {
    const database = new Database(bunPath);
    return { store: await SqliteStore.from(database), close: () => database.close() };
  });
  const refused = new Database(":memory:", { safeIntegers: true });
  await assert.rejects(SqliteStore.from(refused), /every integer as a bigint/);
  refused.close();
}

await rm(folder, { recursive: true });
console.log("stores pass");
