import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { findWrongCount } from "../../support/counts.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aHold, aKnownJob, aRun } from "../../support/fixtures.ts";

Deno.test("SqliteStore deletes and backs up what belongs to a held run", async () => {
  const host = new FakeHost();
  const folder = await Deno.makeTempDir();
  await using store = await SqliteStore.open(`${folder}/jobs.db`, { host });
  await store.migrate();
  await store.enqueue([aRun({ version: 2 }), aRun({ version: 2 })]);
  const { claims } = await store.claim(aClaimRequest({ jobs: [aKnownJob({ version: 2 })], limit: 2 }));
  for (const { lease } of claims) {
    await store.saveInput(lease, "schema", "1");
    await store.hold(lease, aHold(), []);
  }
  const [kept, gone] = claims.map(({ run }) => run.id);

  await store.cancel(gone!, "request", null);
  const identity = await store.delete(gone!);
  await store.backup(`${folder}/copy.db`);

  await using copy = await SqliteStore.open(`${folder}/copy.db`, { host });
  const { ids } = await copy.findHeld({ after: 0, limit: 10 });
  const inputs = [await copy.getInput(kept!, "schema"), await copy.getInput(gone!, "schema")];
  assert.deepEqual(identity, { ...claims[1]!.run });
  assert.deepEqual(ids, [kept]);
  assert.deepEqual(inputs, [{ input: "1" }, null]);
  await copy.close();
  await store.close();
  const database = new DatabaseSync(`${folder}/jobs.db`);
  assert.deepEqual(
    ["holds", "other_inputs"].map((table) => database.prepare(`SELECT count(*) AS n FROM holdfast_${table}`).get()!.n),
    [1, 1],
  );
  assert.equal(findWrongCount(database), null);
  database.close();
  await Deno.remove(folder, { recursive: true });
});
