import assert from "node:assert/strict";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aPause, aRun, aStep } from "../../support/fixtures.ts";
import { claimOne, park } from "../../../src/testing/contract/arrange.ts";
import { aMessage } from "../../../src/testing/contract/records/messages/arrange_messages.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";

/** Executes runs of five steps, a sleep and a wait. Returns the statements, and how many were executed. */
async function statementsOf(sent: number): Promise<{ executed: number; statements: string[] }> {
  const driver = new CountingDriver();
  const host = new FakeHost();
  await using store = await SqliteStore.from(driver, { host });
  await store.migrate();
  const before = driver.executed;
  const compiled = new Set(driver.statements);
  for (let i = 0; i < 20; i++) {
    const run = aRun({});
    await store.enqueue([run]);
    for (let n = 0; n < sent; n++) await store.send(aMessage(run.id, { id: `message-${n}` }));
    const { lease } = await claimOne(store);
    for (let n = 0; n < 5; n++) await store.saveStep(lease, aStep({ name: `step-${n}`, index: n }), []);
    await park(store, lease, aPause({ kind: "sleep", name: "nap", deadline: { at: host.now() + 1_000 } }));
    host.advance(1_000);
    const second = await claimOne(store);
    const { pauses: [wait] } = await park(store, second.lease, aPause({ kind: "wait", name: "answer" }));
    await store.signal(wait!.id, { signalId: "signal", payload: "1" }, null);
    const third = await claimOne(store);
    await store.finish(third.lease, { status: "completed", output: null, durationMs: 1 }, []);
  }
  return {
    executed: driver.executed - before,
    statements: [...driver.statements].filter((statement) => !compiled.has(statement)),
  };
}

Deno.test("runs without messages execute no statement for messages", async () => {
  const { executed, statements } = await statementsOf(0);
  const withMessages = await statementsOf(1);

  const forMessages = (list: string[]) => list.filter((statement) => statement.includes("holdfast_messages"));
  assert.deepEqual(forMessages(statements), []);
  assert.ok(forMessages(withMessages.statements).length > 0);
  assert.ok(executed <= 20 * 123, `${executed} statements for 20 runs`);
  // A message that nobody receives: the call that stores it, and what an end looks for.
  assert.ok(withMessages.executed - executed <= 20 * 9, `${withMessages.executed} with a message for each`);
});
