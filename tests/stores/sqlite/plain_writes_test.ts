import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import type { Lease } from "../../../src/model/lease.ts";
import { getRun, getSteps } from "../../../src/store/reads.ts";
import type { SqliteDriver, SqliteDriverStatement } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import type { SqliteTransaction } from "../../../src/stores/sqlite/transactions/sqlite_transaction.ts";
import { aClaimRequest, aRun, aStep } from "../../../src/testing/contract/fixtures.ts";
import { FakeHost } from "../../../src/testing/fake_host.ts";

const MANY = 40;

/** A store with runs under leases, and how often each statement of it was executed since they were claimed. */
async function manyRuns() {
  const database = new DatabaseSync(":memory:");
  const counts = new Map<string, number>();
  const count = (sql: string) => counts.set(sql, (counts.get(sql) ?? 0) + 1);
  const driver: SqliteDriver = {
    exec: (sql) => {
      count(sql);
      database.exec(sql);
    },
    prepare: (sql) => {
      const statement: SqliteDriverStatement = database.prepare(sql);
      return {
        run: (...parameters) => (count(sql), statement.run(...parameters)),
        get: (...parameters) => (count(sql), statement.get(...parameters)),
        all: (...parameters) => (count(sql), statement.all(...parameters)),
      };
    },
  };
  // On a clock that stands still no batch takes too long.
  const store = await SqliteStore.from(driver, { host: new FakeHost() });
  await store.migrate();
  await store.enqueue(Array.from({ length: MANY }, () => aRun()));
  const { claims } = await store.claim(aClaimRequest({ limit: MANY }));
  counts.clear();
  const total = () => [...counts.values()].reduce((sum, one) => sum + one, 0);
  return { store, database, leases: claims.map(({ lease }) => lease), counts, total };
}

function record(store: SqliteStore, leases: readonly Lease[]) {
  return Promise.allSettled(leases.map((lease) => store.saveStep(lease, aStep(), [])));
}

Deno.test("SqliteStore records the steps of many runs, and ends them, with a few statements", async () => {
  const { store, database, leases, total, counts } = await manyRuns();

  await record(store, leases);
  const ofSteps = total();
  const updates = new Set(counts.keys().filter((sql) => sql.startsWith("UPDATE holdfast_runs")));
  counts.clear();
  await Promise.all(
    leases.map((lease) => store.finish(lease, { status: "completed", output: null, durationMs: 0 }, [])),
  );

  for (const sql of counts.keys()) if (sql.startsWith("UPDATE holdfast_runs")) updates.add(sql);
  assert.equal(updates.size, 2);
  assert.ok(ofSteps <= 7, `${ofSteps} statements`); // BEGIN, COMMIT, a number, an update, inserts of 16, 16 and 8
  assert.ok(total() <= 8, `${total()} statements`); // BEGIN, COMMIT, an update, 2 counts, the journal
  for (const sql of updates) {
    const parameters = Array.from(sql.matchAll(/\?/g), () => null);
    const [plan] = database.prepare(`EXPLAIN QUERY PLAN ${sql}`).all(...parameters);
    assert.match(String(plan!.detail), /^SEARCH holdfast_runs USING INTEGER PRIMARY KEY/);
  }
  await store.close();
  database.close();
});

Deno.test("SqliteStore records the steps of eight runs with a few statements", async () => {
  const { store, database, leases, total } = await manyRuns();

  await record(store, leases.slice(0, 8));

  assert.ok(total() <= 5, `${total()} statements`); // BEGIN, COMMIT, a number, an update, an insert
  await store.close();
  database.close();
});

Deno.test("SqliteStore ends the runs of two batches at the same instant, each with its output", async () => {
  const { store, database, leases } = await manyRuns();
  const outputs = leases.map((_, n) => ['"a"', '"a"', "null", null][n % 4]!); // `null` stands for no output
  const end = (from: number, to: number) =>
    Promise.all(
      leases.slice(from, to).map((lease, n) =>
        store.finish(lease, { status: "completed", output: outputs[from + n]!, durationMs: 0 }, [])
      ),
    );

  await end(0, MANY / 2 + 1);
  await end(MANY / 2 + 1, MANY);

  const runs = await store.readRuns(leases.map(({ runId }) => runId), Infinity);
  assert.deepEqual(runs.map((run) => [run!.status, run!.output]), outputs.map((output) => ["completed", output]));
  await store.close();
  database.close();
});

Deno.test("SqliteStore finds out which of many writes came too late, and performs the others in one commit", async () => {
  const { store, database, leases, counts } = await manyRuns();
  const [lost, ...others] = leases;
  database.prepare("UPDATE holdfast_runs SET lease_generation = 2 WHERE id = ?").run(lost!.runId);

  const answers = await record(store, leases);

  assert.deepEqual(answers.map(({ status }) => status), ["rejected", ...others.map(() => "fulfilled")]);
  assert.deepEqual([counts.get("ROLLBACK"), counts.get("COMMIT")], [1, 1]);
  assert.equal((await getSteps(store, lost!.runId)).length, 0);
  for (const { runId } of others) assert.equal((await getSteps(store, runId)).length, 1);
  await store.close();
  database.close();
});

Deno.test("SqliteStore ends a run of many in full that has got a message from elsewhere", async () => {
  const { store, database, leases, counts } = await manyRuns();
  database.prepare("UPDATE holdfast_runs SET has_pauses = 1 WHERE id = ?").run(leases[7]!.runId);
  const ending = { status: "completed", output: "1", durationMs: 0 } as const;

  await Promise.all(leases.map((lease) => store.finish(lease, ending, [])));

  assert.deepEqual([counts.get("ROLLBACK"), counts.get("COMMIT")], [1, 1]);
  for (const { runId } of leases) assert.equal((await getRun(store, runId))!.status, "completed");
  const closed = [...counts.keys()].find((sql) => sql.startsWith("UPDATE holdfast_pauses SET status"));
  assert.equal(counts.get(closed!), 1);
  await store.close();
  database.close();
});

Deno.test("SqliteStore performs many writes one by one for a while after some of them came too late", async () => {
  const { store, database, leases, total, counts } = await manyRuns();
  database.prepare("UPDATE holdfast_runs SET lease_generation = 2 WHERE id = ?").run(leases[0]!.runId);
  await record(store, leases);
  const again = async (name: string) => {
    counts.clear();
    await Promise.allSettled(leases.slice(1).map((lease) => store.saveStep(lease, aStep({ name }), [])));
    return total();
  };

  const first = await again("step 0");
  let last = first;
  for (let n = 1; n <= 40; n++) last = await again(`step ${n}`);

  assert.ok(first > 2 * MANY, `${first} statements`);
  assert.ok(last <= 10, `${last} statements`);
  await store.close();
  database.close();
});

Deno.test("SqliteStore records the steps of many transactions with a few statements, apart from a savepoint for each", async () => {
  const { store, database, leases, counts } = await manyRuns();
  database.exec("CREATE TABLE rows (n INTEGER)");
  const source = store.dataSource();
  const write = { ...aStep(), result: { status: "completed", output: null } } as const;

  const answers = await Promise.all(
    leases.map((lease, n) =>
      store.transact(source, { name: write.name, lease: () => lease }, (tx) => {
        (tx as SqliteTransaction).run("INSERT INTO rows VALUES (?)", n);
        if (n === 7) throw new Error("no");
        return { step: { write, reports: [] }, runs: [], signals: [] };
      }).catch((error) => error.cause.message)
    ),
  );

  assert.deepEqual(answers.filter((answer) => answer === "no").length, 1);
  assert.equal(database.prepare("SELECT count(*) AS count FROM rows").get()!.count, MANY - 1);
  assert.equal(database.prepare("SELECT count(*) AS count FROM holdfast_steps").get()!.count, MANY - 1);
  const inserts = [...counts].filter(([sql]) => sql.startsWith("INSERT INTO holdfast_steps"));
  const inserted = inserts.reduce((sum, [, count]) => sum + count, 0);
  assert.ok(inserted <= 6, `${inserted} statements`);
  assert.deepEqual([counts.get("ROLLBACK"), counts.get("COMMIT")], [undefined, 1]);
  await store.close();
  database.close();
});

Deno.test("SqliteStore keeps the steps of others when a transaction of their batch looks for a wait and throws", async () => {
  const { store, database, leases, counts } = await manyRuns();
  const source = store.dataSource();
  const [own, ...others] = leases;

  const recorded = record(store, others);
  const thrown = await store.transact(source, { name: "book", lease: () => own! }, (_, findWait) => {
    findWait("unknown");
    throw new Error("no");
  }).catch((error) => error.cause.message);
  const answers = await recorded;

  assert.deepEqual([counts.get("ROLLBACK"), counts.get("COMMIT")], [undefined, 1]);
  assert.equal(thrown, "no");
  assert.deepEqual(answers.map(({ status }) => status), others.map(() => "fulfilled"));
  for (const { runId } of others) assert.equal((await getSteps(store, runId)).length, 1);
  await store.close();
  database.close();
});
