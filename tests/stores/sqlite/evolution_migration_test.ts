import assert from "node:assert/strict";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";
import { MIGRATIONS } from "../../../src/stores/sqlite/schema.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { findWrongCount } from "../../support/counts.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aHold, aKnownJob, aRun } from "../../support/fixtures.ts";
import { findBrokenLine } from "../../support/lines.ts";
import { getRun, hasWorker } from "../../../src/store/reads.ts";

/** A database of the version before this one: `insert()` adds a row. */
function anOldDatabase() {
  const database = new DatabaseSync(":memory:");
  database.exec("PRAGMA foreign_keys = ON");
  for (const migration of MIGRATIONS.slice(0, 2)) database.exec(migration);
  database.exec(
    "CREATE TABLE holdfast_schema (version INTEGER NOT NULL) STRICT; INSERT INTO holdfast_schema VALUES (2)",
  );
  const insert = (table: string, row: Record<string, SQLInputValue>) =>
    database.prepare(`INSERT INTO ${table} (${Object.keys(row)}) VALUES (${Object.keys(row).map(() => "?")})`)
      .run(...Object.values(row));
  const run = (seq: number, id: string, columns: Record<string, SQLInputValue> = {}) => {
    const times = { created_at: FAKE_START, updated_at: FAKE_START };
    const row = { seq, id, job: "import-csv", status: "pending", labels: "{}", ...times, ...columns };
    insert("holdfast_runs", row);
    insert("holdfast_inputs", { run_seq: seq, payload: "1" });
    database.prepare("INSERT INTO holdfast_counts VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET runs = runs + 1")
      .run(row.status!, row.job!);
  };
  return { database, insert, run };
}

Deno.test("SqliteStore.migrate() keeps the runs of the version before, as runs of version 1", async () => {
  const { database, insert, run } = anOldDatabase();
  const host = new FakeHost();
  run(1, "plain", { queue_state: "R", idempotency_key: "same" });
  run(2, "fair", { flow: 1 });
  insert("holdfast_flow", {
    run_seq: 2,
    job: "import-csv",
    fairness_key: "tenant",
    priority: 1,
    position: 2 - 100_000,
    queue_state: "R",
    begun: 0,
    key_concurrency: 1,
  });
  insert("holdfast_heads", {
    job: "import-csv",
    fairness_key: "tenant",
    turn: 0,
    position: 2 - 100_000,
    run_seq: 2,
  });
  run(3, "parked", { status: "waiting", started_at: 1, has_pauses: 1, recorded: 1, timer_at: FAKE_START + 1_000 });
  insert("holdfast_pauses", {
    id: "sleep",
    run_seq: 3,
    kind: "sleep",
    name: "rest",
    status: "pending",
    awaited: 1,
    created_at: 1,
    deadline_at: FAKE_START + 1_000,
  });
  insert("holdfast_workers", {
    id: "old",
    jobs: '["import-csv"]',
    seen_at: FAKE_START,
    lease_ms: 1_000,
    claim_id: "old",
    claimed: "[]",
  });

  await using store = await SqliteStore.from(database, { host });
  await store.migrate();
  const isKnown = await hasWorker(store, "import-csv");
  const { claims } = await store.claim(aClaimRequest({ limit: 10, leaseMs: 1e6 }));
  const [again] = await store.enqueue([aRun({ version: 2, idempotencyKey: "same" })]);
  host.advance(1_000);
  const later = await store.claim(aClaimRequest({ claimId: "later", leaseMs: 1e6 }));
  await store.hold(later.claims[0]!.lease, aHold(), []);

  assert.equal(isKnown, true);
  assert.deepEqual(claims.map(({ run }) => run.id), ["fair", "plain"]);
  assert.deepEqual(claims.map(({ version, schemaPrint, copied }) => [version, schemaPrint, copied]), [
    [1, null, null],
    [1, null, null],
  ]);
  assert.deepEqual([again!.run.id, again!.disposition], ["plain", "idempotent"]);
  assert.deepEqual(later.claims.map(({ run }) => run.id), ["parked"]);
  assert.equal((await getRun(store, "parked"))!.held!.code, "diverged");
  assert.equal(findBrokenLine(database) ?? findWrongCount(database), null);
  await store.close();
  database.close();
});

Deno.test("SqliteStore.migrate() tells what open retries from the failure have as copies", async () => {
  const { database, insert, run } = anOldDatabase();
  run(1, "first", { status: "failed", completed_at: FAKE_START - 500, recorded: 3 });
  run(2, "retry", { origin_id: "first", retrigger_of: "first", recorded: 4, queue_state: "R" });
  const step = (seq: number, name: string, recordedNo: number, completedAt: number) =>
    insert("holdfast_steps", {
      seq,
      run_seq: 2,
      name,
      position: recordedNo,
      status: "completed",
      attempts: 1,
      recorded_no: recordedNo,
      started_at: completedAt,
      completed_at: completedAt,
    });
  step(3, "read", 1, FAKE_START - 900);
  step(4, "check", 3, FAKE_START - 700);
  step(5, "write", 4, FAKE_START + 100);

  await using store = await SqliteStore.from(database, { host: new FakeHost() });
  await store.migrate();
  const { claims: [claim] } = await store.claim(aClaimRequest());

  assert.deepEqual(claim!.copied, { upTo: 3, unfinished: [] });
  assert.deepEqual((await store.getHistory("retry"))!.copied, { upTo: 3, unfinished: [] });
  await store.close();
  database.close();
});

Deno.test("SqliteStore offers no run that a process of the version before has cancelled while it was held", async () => {
  const database = new DatabaseSync(":memory:");
  await using store = await SqliteStore.from(database, { host: new FakeHost() });
  await store.migrate();
  await store.enqueue([aRun()]);
  const { claims: [claim] } = await store.claim(aClaimRequest());
  await store.hold(claim!.lease, aHold(), []);
  database.prepare("UPDATE holdfast_runs SET status = 'cancelled', completed_at = ?").run(FAKE_START);
  database.prepare("UPDATE holdfast_counts SET runs = 0").run();

  const found = [await store.getHold(claim!.run.id), await store.findHeld({ after: 0, limit: 10 })];
  const jobs = [aKnownJob({ print: "new" })];
  const offered = await store.claim(aClaimRequest({ claimId: "offered", jobs, triesHeld: true }));

  assert.deepEqual(found, [null, { ids: [], seqs: [] }]);
  assert.deepEqual(offered.claims, []);
  assert.equal(findBrokenLine(database), null);
  await store.close();
  database.close();
});

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

Deno.test("SqliteStore.migrate() keeps the leases of the version before, which name no claim: they expire", async () => {
  const { database, run } = anOldDatabase();
  const host = new FakeHost();
  const lease = { lease_owner: "worker-a", lease_generation: 1, lease_expires_at: FAKE_START + 1_000 };
  run(1, "leased", { status: "running", started_at: FAKE_START, ...lease });
  await using store = await SqliteStore.from(database, { host });
  await store.migrate();

  const leases = await store.getLeases();
  host.advance(1_000);
  const { claims } = await store.claim(aClaimRequest({ workerId: "worker-b", claimId: "claim-b" }));

  assert.deepEqual(leases.map(({ generation, claimId }) => [generation, claimId]), [[1, ""]]);
  assert.deepEqual(claims.map(({ lease }) => [lease.generation, lease.claimId]), [[3, "claim-b"]]);
  await store.saveInput(claims[0]!.lease, "print", null);
  database.close();
});
