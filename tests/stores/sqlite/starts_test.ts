import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import type { Rate } from "../../../src/model/flow.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { aClaimRequest, aKnownJob, aRun } from "../../../src/testing/contract/fixtures.ts";
import { FakeHost } from "../../support/fake_host.ts";

Deno.test("SqliteStore keeps the old starts of a job no longer than its rate is long, once it has a shorter one", async () => {
  const host = new FakeHost({ seed: 1 });
  const database = new DatabaseSync(":memory:");
  await using store = await SqliteStore.from(database, { host });
  await store.migrate();
  const start = async (rate: Rate, count: number) => {
    await store.enqueue(Array.from({ length: count }, () => aRun({ jobName: "rated" })));
    const jobs = [aKnownJob({ name: "rated", rate })];
    const { claims } = await store.claim(aClaimRequest({ limit: count, jobs, leaseMs: 60_000 }));
    assert.equal(claims.length, count);
  };
  await start({ limit: 10, period: 86_400_000 }, 10);
  host.advance(1_000);

  for (const _ of [1, 2, 3, 4, 5]) {
    await start({ limit: 2, period: 1_000 }, 2);
    host.advance(1_000);
  }

  const { kept } = database.prepare("SELECT count(*) AS kept FROM holdfast_starts").get() as { kept: number };
  assert.ok(kept <= 4, `${kept} of 20 starts are kept`);
});
