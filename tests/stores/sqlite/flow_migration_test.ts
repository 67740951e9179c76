import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { MIGRATIONS } from "../../../src/stores/sqlite/schema.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { PLAIN_FLOW } from "../../../src/model/flow.ts";
import { aClaimRequest, aRun } from "../../support/fixtures.ts";
import { findBrokenLine } from "../../support/lines.ts";

/** A database of the version before flow control: `run()` adds a run. */
function anOldDatabase() {
  const database = new DatabaseSync(":memory:");
  database.exec("PRAGMA foreign_keys = ON");
  database.exec(MIGRATIONS[0]!);
  database.exec(
    "CREATE TABLE holdfast_schema (version INTEGER NOT NULL) STRICT; INSERT INTO holdfast_schema VALUES (1)",
  );
  let seq = 0;
  const run = (id: string, columns: Record<string, string | number>) => {
    const all: Record<string, string | number> = {
      seq: ++seq,
      id,
      job: "import-csv",
      status: "pending",
      labels: "{}",
      created_at: FAKE_START,
      updated_at: FAKE_START,
      ...columns,
    };
    const names = Object.keys(all);
    database.prepare(`INSERT INTO holdfast_runs (${names}) VALUES (${names.map(() => "?")})`)
      .run(...Object.values(all));
    database.prepare("INSERT INTO holdfast_inputs (run_seq, payload) VALUES (?, '1')").run(seq);
    database.prepare(
      "INSERT INTO holdfast_counts VALUES (?, 'import-csv', 1) ON CONFLICT DO UPDATE SET runs = runs + 1",
    ).run(all.status!);
  };
  const hold = (key: string, runId: string, generation: number, expiresAt: number | null) =>
    database.prepare("INSERT INTO holdfast_keys VALUES (?, ?, ?, ?)").run(key, runId, generation, expiresAt);
  return { database, run, hold };
}

Deno.test("SqliteStore.migrate() keeps the runs and the keys of the version without flow control", async () => {
  const { database, run, hold } = anOldDatabase();
  const host = new FakeHost();
  run("plain", { queue_state: "R" });
  run("held", { status: "running", concurrency_key: "a", lease_owner: "w", lease_expires_at: FAKE_START + 5_000 });
  run("blocked", { concurrency_key: "a", queue_state: "B" });
  run("before", { concurrency_key: "b", queue_state: "B" });
  run("back", { status: "waiting", concurrency_key: "b", queue_state: "R", lease_generation: 1, started_at: 1 });
  run("cancelled", { status: "cancelled", concurrency_key: "c", lease_generation: 1, completed_at: FAKE_START });
  run("behind", { concurrency_key: "c", queue_state: "B" });
  hold("a", "held", 0, null);
  hold("b", "back", 1, null);
  hold("c", "cancelled", 1, FAKE_START + 1_000);

  await using store = await SqliteStore.from(database, { host });
  await store.migrate();
  const broken = findBrokenLine(database);
  const { claims } = await store.claim(aClaimRequest({ limit: 10, leaseMs: 1e6 }));
  host.advance(1_000);
  const later = await store.claim(aClaimRequest({ claimId: "later", limit: 10 }));

  assert.equal(broken, null);
  assert.deepEqual(claims.map(({ run }) => run.id), ["back", "plain"]);
  assert.deepEqual(later.claims.map(({ run }) => run.id), ["behind"]);
  await store.close();
  database.close();
});

Deno.test("SqliteStore.migrate() stops the claims of a process of the version without flow control", async () => {
  const { database } = anOldDatabase();
  // What each of its claims reads.
  const sql = "SELECT min(expires_at) FROM holdfast_keys WHERE expires_at IS NOT NULL";
  const read = database.prepare(sql);
  assert.notEqual(read.get(), undefined);
  await using store = await SqliteStore.from(database);

  await store.migrate();

  assert.throws(() => read.get(), /no such table/);
  assert.throws(() => database.prepare(sql), /no such table/);
  await store.enqueue([aRun({ flow: { ...PLAIN_FLOW, priority: 1 } })]);
  await store.close();
  database.close();
});
