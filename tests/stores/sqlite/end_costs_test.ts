import assert from "node:assert/strict";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aFailure, aRun, aStep } from "../../support/fixtures.ts";
import { claimOne } from "../../../src/testing/contract/arrange.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";

/** Executes runs of five steps; some fail, and some are cancelled. Returns how many statements that took. */
async function statementsOf(onEnd: object): Promise<{ executed: number; statements: string[] }> {
  const driver = new CountingDriver();
  await using store = await SqliteStore.from(driver, { host: new FakeHost() });
  await store.migrate();
  const before = driver.executed;
  const compiled = new Set(driver.statements);
  for (let i = 0; i < 30; i++) {
    const run = aRun(onEnd);
    await store.enqueue([run]);
    if (i % 3 === 0) {
      await store.cancel(run.id, `request-${i}`, null);
      continue;
    }
    const { lease } = await claimOne(store);
    for (let n = 0; n < 5; n++) await store.saveStep(lease, aStep({ name: `step-${n}`, index: n }), []);
    if (i % 3 === 1) await store.finish(lease, { status: "completed", output: null, durationMs: 1 }, []);
    else await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  }
  return {
    executed: driver.executed - before,
    statements: [...driver.statements].filter((statement) => !compiled.has(statement)),
  };
}

Deno.test("runs without onEnd execute no statement for end runs", async () => {
  const { executed, statements } = await statementsOf({});
  const withEnds = await statementsOf({
    onEnd: { jobName: "other", statuses: ["failed", "cancelled"], finishWithin: null },
  });

  const looking = (list: string[]) => list.filter((statement) => /WHERE.*end_of/s.test(statement));
  assert.deepEqual(looking(statements), []);
  assert.ok(executed < withEnds.executed, `${executed} statements, ${withEnds.executed} with end runs`);
  // At most one statement that fails, the read of the run, the insert of the end run and of its input, its count.
  assert.ok(withEnds.executed - executed <= 30 * 7, `${withEnds.executed - executed} more for 30 runs`);
});
