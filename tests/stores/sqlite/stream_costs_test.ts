import assert from "node:assert/strict";
import type { StepTools } from "../../../src/model/job/step_calls.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aJob } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";

const RUNS = 20;
const STEPS = 5;
// What they took before there were streams.
const PLAIN_STATEMENTS = 46;

/** Executes runs of five steps. Returns the statements, and how many of them and of transactions were executed. */
async function statementsOf(act: (tools: StepTools) => Promise<unknown>) {
  const driver = new CountingDriver();
  const host = new FakeHost();
  await using store = await SqliteStore.from(driver, { host });
  const job = aJob(async (step) => {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, act);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.migrate();
  const before = { executed: driver.executed, writes: driver.writes };
  const compiled = new Set(driver.statements);
  for (let n = 0; n < RUNS; n++) {
    await engine.trigger("job", null);
    await engine.runUntilIdle();
  }
  const statements = [...driver.statements].filter((statement) => !compiled.has(statement));
  return {
    executed: driver.executed - before.executed,
    writes: driver.writes - before.writes,
    ofChunks: statements.filter((statement) => statement.includes("holdfast_chunks")),
  };
}

Deno.test("runs that stream nothing execute no statement for streams, and as many commits as those that do", async () => {
  const plain = await statementsOf(() => Promise.resolve(1));
  const streaming = await statementsOf(({ stream }) => stream("tokens").write("a"));

  assert.deepEqual(plain.ofChunks, []);
  assert.ok(streaming.ofChunks.length > 0);
  assert.ok(plain.executed <= RUNS * PLAIN_STATEMENTS, `${plain.executed} statements for ${RUNS} runs`);
  // What a step writes before its record is stored by the commit of the record.
  assert.equal(streaming.writes, plain.writes);
});

Deno.test("a part of a stream of large chunks reads no items of the chunks behind it", async () => {
  const driver = new CountingDriver();
  const host = new FakeHost();
  await using store = await SqliteStore.from(driver, { host });
  const job = aJob((step) =>
    step.run("export", ({ stream }) => {
      for (let n = 0; n < 50; n++) stream("rows").write("x".repeat(16_000));
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  await engine.runUntilIdle();

  const before = driver.rows;
  const text = await store.readStream(id, "rows", null, 65_536);

  assert.equal(text!.chunks.length, 5);
  assert.ok(driver.rows - before < 10, `${driver.rows - before} rows`);
});
