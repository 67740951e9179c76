import assert from "node:assert/strict";
import { claimOne, park, startRun } from "../../../src/testing/contract/arrange.ts";
import { findCurrentWait } from "../../../src/stores/sqlite/reads/run_history.ts";
import { SqliteDatabase } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aPause } from "../../support/fixtures.ts";
import { CountingDriver } from "../../support/stores/counting_driver.ts";

const SLEEPS = 30;

Deno.test("a run that parks for its thirtieth sleep changes as many rows as for its second", async () => {
  const driver = new CountingDriver();
  const host = new FakeHost();
  await using store = await SqliteStore.from(driver, { host });
  await store.migrate();
  const changes = () => Number(driver.database.prepare("SELECT total_changes() AS changes").get()!.changes);
  let { lease } = await startRun(store);
  const perSleep: number[] = [];
  for (let n = 0; n < SLEEPS; n++) {
    const before = changes();
    await park(store, lease, aPause({ kind: "sleep", name: `sleep ${n}`, deadline: { afterMs: 10 } }));
    perSleep.push(changes() - before);
    host.advance(10);
    ({ lease } = await claimOne(store));
  }

  assert.equal(perSleep.at(-1), perSleep[1]);
});

Deno.test("the wait that a signal in a transaction is for is found without a scan of the pauses", async () => {
  const driver = new CountingDriver();
  await using store = await SqliteStore.from(driver, { host: new FakeHost() });
  await store.migrate();

  const found = findCurrentWait(new SqliteDatabase(driver), "none", ["approve"]);

  const plans = driver.plans(/WITH RECURSIVE retries/);
  assert.equal(found, null);
  assert.equal(plans.length, 1);
  assert.deepEqual(plans.flatMap(({ details }) => details.filter((detail) => /^SCAN [pr]\b/.test(detail))), []);
});
