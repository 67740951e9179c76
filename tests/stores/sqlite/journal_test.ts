import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { ConflictError, StoreError } from "../../../src/model/error.ts";
import type { Lease } from "../../../src/model/lease.ts";
import type { Store } from "../../../src/store/store.ts";
import { SqliteDatabase, type SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { readJournal } from "../../../src/stores/sqlite/journal/read_journal.ts";
import { migrateTables } from "../../../src/stores/sqlite/schema.ts";
import { SqliteStore, type SqliteStoreOptions } from "../../../src/stores/sqlite/sqlite_store.ts";
import { WriteBatch } from "../../../src/stores/sqlite/write_batch.ts";
import { FactReader } from "../../support/fact_reader.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aLogged, aProgress, aRun, aStart, aStep } from "../../support/fixtures.ts";
import { startRun } from "../../../src/testing/contract/arrange.ts";

const HOUR_MS = 3_600_000;
const MAX_BYTES = 33_554_432;
const EVERYTHING = 1_000_000;

interface Context {
  store: SqliteStore;
  host: FakeHost;
  database: DatabaseSync;
}

/** Registers a test of a store, with the connection behind it. */
function test(title: string, body: (context: Context) => Promise<void>, options: SqliteStoreOptions = {}): void {
  Deno.test(`SqliteStore: ${title}`, async () => {
    const host = new FakeHost();
    const database = new DatabaseSync(":memory:");
    const store = await SqliteStore.from(database as SqliteDriver, { host, ...options });
    await store.migrate();
    await body({ store, host, database });
    await store.close();
    database.close();
  });
}

/** Makes rows of the journal, one fact each. */
async function say(store: Store, lease: Lease, count: number, from = 1): Promise<void> {
  for (let no = from; no < from + count; no++) {
    await store.renew([{ lease, reports: [aProgress({ current: no }, no)] }], 10 * HOUR_MS);
  }
}

function countRows(database: DatabaseSync): number {
  return Number(database.prepare("SELECT count(*) AS count FROM holdfast_journal").get()!.count);
}

/** Makes the journal seem to have so many bytes more before its newest row. */
function pretendBytes(database: DatabaseSync, bytes: number): void {
  database.prepare(
    "UPDATE holdfast_journal SET size = size + ? WHERE position = (SELECT max(position) FROM holdfast_journal)",
  ).run(bytes);
}

test("readJournal() after a position that a commit reaches meanwhile has no rows", async ({ store, database }) => {
  await store.enqueue([aRun()]);
  const end = await store.findCursor(null);
  const db = new SqliteDatabase(database as SqliteDriver);
  const snapshot = db.snapshot.bind(db);
  db.snapshot = (read) => {
    database.exec("PRAGMA foreign_keys = OFF; UPDATE holdfast_runs SET seq = seq + 1");
    return snapshot(read);
  };

  const page = readJournal(db, end!.position + 1, EVERYTHING);

  assert.deepEqual(page, { rows: [], end: { ...end, position: end!.position + 1 } });
});

test("a trigger and a step that completes write no row of the journal", async ({ store, database }) => {
  const { lease } = await startRun(store);
  const before = countRows(database);

  await store.enqueue([aRun()]);
  await store.saveStep(lease, aStep({ name: "a" }), [aStart({ stepName: "a" })]);
  await store.saveStep(lease, aStep({ name: "b", index: 1 }), []);

  assert.equal(countRows(database), before);
});

test("readJournal() answers null for what was trimmed, and all that is left", async ({ store, database }) => {
  const { lease } = await startRun(store);
  await say(store, lease, 5);
  pretendBytes(database, MAX_BYTES);
  const kept = (await store.readJournal(0, EVERYTHING))!.rows.at(-1)!;

  await store.renew([{ lease, reports: [aLogged({ no: 6, message: "x".repeat(20_000) })] }], HOUR_MS);

  const before = await store.readJournal(kept.position - 2, EVERYTHING);
  const after = (await store.readJournal(kept.position - 1, EVERYTHING))!;
  assert.equal(before, null);
  assert.equal(await store.readJournal(0, EVERYTHING), null);
  assert.deepEqual(after.rows.map(({ facts }) => facts[0]![1]), ["progressed", "logged"]);
});

test("findCursor() refuses a place after which something was trimmed", async ({ store, database }) => {
  const { lease } = await startRun(store);
  await say(store, lease, 5);
  const { rows } = (await store.readJournal(0, EVERYTHING))!;
  pretendBytes(database, MAX_BYTES);
  await store.renew([{ lease, reports: [aLogged({ no: 6, message: "x".repeat(20_000) })] }], HOUR_MS);

  const [trigger, , , , , , kept] = rows;
  const found = await Promise.all(
    [{ position: 0, at: 0 }, trigger!, kept!].map(({ position, at }) => store.findCursor({ position, at })),
  );

  // The first one is the row of the run, which is still there.
  assert.deepEqual(found, [null, null, { position: kept!.position, at: kept!.at }]);
});

test("trimming removes 2,000 rows at once at most", async ({ store, database }) => {
  const { lease } = await startRun(store);
  database.exec(`
    WITH RECURSIVE more (n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM more WHERE n < 3999)
    INSERT INTO holdfast_journal SELECT n, 0, 1000, '[[1,"erased"]]' FROM more;
    UPDATE holdfast_journal SET size = ${2 * MAX_BYTES} WHERE position = 3999`);
  const before = countRows(database);

  await store.renew([{ lease, reports: [aLogged({ message: "x".repeat(20_000) })] }], HOUR_MS);

  assert.equal(countRows(database), before + 1 - 2_000);
});

test("rows that are an hour old are trimmed by a claim that finds nothing", async ({ store, host, database }) => {
  const { lease } = await startRun(store);
  await say(store, lease, 3);
  host.advance(HOUR_MS / 2);
  await say(store, lease, 2, 4);
  host.advance(HOUR_MS / 2);
  const before = countRows(database);

  await store.claim(aClaimRequest());

  assert.equal(before, 6);
  assert.equal(countRows(database), 1 + 2);
  assert.equal(await store.readJournal(0, EVERYTHING), null);
});

for (
  const [name, call] of [
    ["purge", (store: Store) => store.purge({ completed: 0 }, 10)],
    ["migrate", (store: Store) => store.migrate()],
  ] as const
) {
  test(`${name}() trims rows that are an hour old, but never the newest one`, async ({ store, host, database }) => {
    const { lease } = await startRun(store);
    await say(store, lease, 3);
    const { end } = (await store.readJournal(0, EVERYTHING))!;
    host.advance(HOUR_MS);

    await call(store);
    await call(store);

    assert.equal(countRows(database), 1);
    assert.deepEqual(await store.findCursor(null), end);
    assert.deepEqual(await store.readJournal(end.position - 1, 1), { rows: [(await newest(store))!], end });
  });
}

async function newest(store: Store) {
  const { position } = (await store.findCursor(null))!;
  return (await store.readJournal(position - 1, EVERYTHING))!.rows.at(-1);
}

test("rows that are an hour old are trimmed by a store that is never idle", async ({ store, host, database }) => {
  const { lease } = await startRun(store);
  for (let no = 1; no <= 100; no++) {
    await say(store, lease, 1, no);
    host.advance(HOUR_MS / 20);
  }

  const oldest = database.prepare("SELECT min(at) AS at FROM holdfast_journal").get() as { at: number };

  assert.ok(host.now() - oldest.at <= HOUR_MS + 2 * HOUR_MS / 20, `the oldest row is ${host.now() - oldest.at} ms old`);
});

test("trimming by age leaves no hole after the clock was set back", async ({ store, host, database }) => {
  const { lease } = await startRun(store);
  await say(store, lease, 2);
  const { position } = (await store.findCursor(null))!;
  host.jump(2 * HOUR_MS);
  await say(store, lease, 2, 3);
  host.jump(-2 * HOUR_MS);
  await say(store, lease, 2, 5);
  const { rows } = (await store.readJournal(position, EVERYTHING))!;
  host.advance(HOUR_MS);

  await store.purge({}, 1);

  assert.equal(countRows(database), 1 + 4);
  assert.deepEqual((await store.readJournal(position, EVERYTHING))!.rows, rows);
});

test("a number never comes back when the newest runs are deleted and all is trimmed", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
  const { seq } = (await store.getRunState(lease.runId))!;
  await store.delete(lease.runId);
  const { position } = (await store.findCursor(null))!;
  host.advance(2 * HOUR_MS);
  await store.purge({}, 1);
  const run = aRun();

  await store.enqueue([run]);

  assert.ok(seq < position);
  assert.ok((await store.getRunState(run.id))!.seq > position);
});

for (
  const [what, error] of [["is refused", new ConflictError("no")], ["fails", new Error("disk I/O error")]] as const
) {
  Deno.test(`WriteBatch keeps no fact of a write that ${what}, and those of the others once`, async () => {
    const database = new SqliteDatabase(new DatabaseSync(":memory:") as SqliteDriver);
    migrateTables(database);
    const batch = new WriteBatch(database, new FakeHost());
    const write = (run: number, error?: Error) =>
      batch.submit(() => {
        database.facts.note([run, "failed"], [run, "cancelled"]);
        if (error !== undefined) throw error;
      });

    await Promise.allSettled([write(1), write(2, error), write(3)]);
    await batch.close();

    const { rows } = readJournal(database, 0, EVERYTHING)!;
    const facts = rows.flatMap(({ facts }) => facts);
    assert.deepEqual(facts, [[1, "failed"], [1, "cancelled"], [3, "failed"], [3, "cancelled"]]);
  });
}

Deno.test("WriteBatch rolls back a write that throws a StoreError, and keeps the others", async () => {
  const database = new SqliteDatabase(new DatabaseSync(":memory:") as SqliteDriver);
  migrateTables(database);
  const batch = new WriteBatch(database, new FakeHost());
  const write = (id: string, error?: Error) =>
    batch.submit(() => {
      database.run("INSERT INTO holdfast_deleted (id, deleted_at) VALUES (?, 0)", id);
      if (error !== undefined) throw error;
    });

  const results = await Promise.allSettled([write("a"), write("b", new StoreError("damaged")), write("c")]);
  await batch.close();

  assert.deepEqual(results.map(({ status }) => status), ["fulfilled", "rejected", "fulfilled"]);
  assert.deepEqual(database.all("SELECT id FROM holdfast_deleted").map(({ id }) => id), ["a", "c"]);
});

Deno.test("SqliteStore: facts of a transaction that was rolled back are written once, when it is tried again", async () => {
  const database = new DatabaseSync(":memory:");
  let isFailing = false;
  const driver: SqliteDriver = {
    exec: (sql) => {
      if (sql === "COMMIT" && isFailing) {
        isFailing = false;
        throw new Error("disk I/O error");
      }
      database.exec(sql);
    },
    prepare: (sql) => database.prepare(sql),
  };
  await using store = await SqliteStore.from(driver, { host: new FakeHost() });
  await store.migrate();
  const { lease } = await startRun(store);
  const reader = new FactReader(store);
  await reader.skip();
  isFailing = true;
  const run = aRun();

  await Promise.all([
    store.renew([{ lease, reports: [aProgress({ current: 1 })] }], HOUR_MS),
    store.saveStep(lease, aStep(), [aProgress({ current: 1 }), aStart({ no: 2 })]),
    store.enqueue([run]),
  ]);

  const facts = await reader.read();
  assert.deepEqual(facts.map(([runId, kind]) => [runId, kind]), [
    [lease.runId, "progressed"],
    [lease.runId, "step_completed"],
    [run.id, "triggered"],
  ]);
  await store.close();
  database.close();
});

Deno.test("SqliteStore: a call that is repeated since its commit was not answered says nothing twice", async () => {
  const database = new DatabaseSync(":memory:");
  let isFailing = false;
  const driver: SqliteDriver = {
    exec: (sql) => {
      database.exec(sql);
      if (sql !== "COMMIT" || !isFailing) return;
      isFailing = false;
      throw new Error("disk I/O error");
    },
    prepare: (sql) => database.prepare(sql),
  };
  await using store = await SqliteStore.from(driver, { host: new FakeHost() });
  await store.migrate();
  const { lease } = await startRun(store);
  const reader = new FactReader(store);
  await reader.skip();
  const save = () => store.saveStep(lease, aStep(), [aProgress({ current: 1 }), aStart({ no: 2 })]);
  isFailing = true;

  await assert.rejects(save(), { name: "StoreError", outcomeUnknown: true });
  await save();

  const facts = await reader.read();
  assert.deepEqual(facts.map(([, kind]) => kind), ["progressed", "step_completed"]);
  await store.close();
  database.close();
});

Deno.test("SqliteStore: every process reads the same rows of the journal", async () => {
  const folder = await Deno.makeTempDir();
  {
    const host = new FakeHost();
    await using one = await SqliteStore.open(`${folder}/jobs.db`, { host });
    await using other = await SqliteStore.open(`${folder}/jobs.db`, { host });
    await one.migrate();
    const { lease } = await startRun(one);
    await other.renew([{ lease, reports: [aProgress({ current: 1 })] }], HOUR_MS);
    await one.saveStep(lease, aStep(), [aProgress({ current: 1 }), aStart({ no: 2 })]);
    await other.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);

    const [left, right] = await Promise.all([one, other].map((store) => store.readJournal(0, EVERYTHING)));

    assert.deepEqual(left, right);
    const kinds = left!.rows.flatMap(({ facts }) => facts.map(([, kind]) => kind));
    assert.deepEqual(kinds, ["triggered", "claimed", "progressed", "step_completed", "completed"]);
  }
  await Deno.remove(folder, { recursive: true });
});

Deno.test("SqliteStore.getRunState() reads a run and its place at one moment", async () => {
  const folder = await Deno.makeTempDir();
  {
    const path = `${folder}/jobs.db`;
    await using other = await SqliteStore.open(path);
    await other.migrate();
    const { lease } = await startRun(other);
    using writer = new DatabaseSync(path);
    const database = new DatabaseSync(path);
    let hasWritten = false;
    const write = () => {
      if (hasWritten) return;
      hasWritten = true;
      writer.exec(`INSERT INTO holdfast_journal VALUES (9999, 0, 9999, '[[1,"failed"]]')`);
    };
    const driver: SqliteDriver = {
      exec: (sql) => database.exec(sql),
      prepare: (sql) => {
        const statement = database.prepare(sql);
        const isPlace = sql.includes("holdfast_journal");
        return {
          run: statement.run.bind(statement),
          get: (...parameters) => (isPlace && write(), statement.get(...parameters)),
          all: (...parameters) => (isPlace && write(), statement.all(...parameters)),
        };
      },
    };
    const store = await SqliteStore.from(driver);

    const { place } = (await store.getRunState(lease.runId))!;

    assert.ok(hasWritten);
    assert.ok(place.position < 9999);
    assert.equal((await store.findCursor(null))!.position, 9999);
    await store.close();
    database.close();
  }
  await Deno.remove(folder, { recursive: true });
});

test("secureDelete leaves the number of each fact of a deleted run, and nothing else of it", async (context) => {
  const { store, host, database } = context;
  const [{ lease: gone }, { lease: kept }] = [await startRun(store), await startRun(store)];
  const reports = [aProgress({ current: 1, message: "secret" }), aLogged({ no: 2, message: "secret" })];
  await Promise.all([gone, kept].map((lease) => store.renew([{ lease, reports }], HOUR_MS)));
  await store.cancel(gone.runId, "c1", null);
  const { seq } = (await store.getRunState(gone.runId))!;
  await store.delete(gone.runId);
  const before = (await store.readJournal(0, EVERYTHING))!;

  host.advance(1_000);

  const after = (await store.readJournal(0, EVERYTHING))!;
  const expected = before.rows.map((row) => ({
    ...row,
    facts: row.facts.map((fact) => fact[0] === seq ? [seq, "erased"] : fact),
  }));
  assert.deepEqual(after, { rows: expected, end: before.end });
  assert.equal(after.rows.flatMap(({ facts }) => facts).filter(([, kind]) => kind === "erased").length, 5);
  assert.equal(
    database.prepare("SELECT count(*) AS count FROM holdfast_journal WHERE facts LIKE '%deleted%'").get()!.count,
    0,
  );
}, { secureDelete: true });

test("secureDelete erases in slices a journal that takes long to go through", async ({ store, host, database }) => {
  const { lease } = await startRun(store);
  await say(store, lease, 1_000);
  await store.cancel(lease.runId, "c1", null);
  await store.delete(lease.runId);
  const monotonic = host.monotonic.bind(host);
  let looks = 0;
  host.monotonic = () => monotonic() + 10 * looks++;

  host.advance(1_000);

  const erased = database.prepare("SELECT count(*) AS count FROM holdfast_journal WHERE facts LIKE '%erased%'").get()!;
  assert.equal(erased.count, countRows(database));
  assert.ok(looks > 5, `the clock was looked at ${looks} times`);
}, { secureDelete: true });

test("trimming by age takes nothing from a reader that had read everything before", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await say(store, lease, 1);
  const { position } = (await store.findCursor(null))!;
  host.advance(2 * HOUR_MS);

  await store.enqueue([aRun()]);
  await store.claim(aClaimRequest({ claimId: "a" }));
  await store.claim(aClaimRequest({ claimId: "b", limit: 0 }));
  await store.purge({}, 10);

  const page = await store.readJournal(position, EVERYTHING);
  assert.deepEqual(page?.rows.flatMap(({ facts }) => facts.map(([, kind]) => kind)), ["triggered", "claimed"]);
});
