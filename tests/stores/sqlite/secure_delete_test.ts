import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import Database from "better-sqlite3";
import type { Chunk } from "../../../src/model/stream.ts";
import type { Store } from "../../../src/store/store.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aFailure, aLogged, aProgress, aRun, aStep } from "../../support/fixtures.ts";
import { afterClose, Closable, runProgram, withFile } from "../../support/stores/sqlite.ts";

/** What can be found in a database file and in its log, by another process: to close a file here drops its locks. */
async function grep(path: string, text: string): Promise<string[]> {
  const program = `
    const [path, text] = ${JSON.stringify([path, text])};
    for (const suffix of ["", "-wal"]) {
      const bytes = await Deno.readFile(path + suffix).catch(() => new Uint8Array());
      if (new TextDecoder("latin1").decode(bytes).includes(text)) console.log(suffix || "file");
    }
  `;
  const { stdout } = await runProgram(["run", "-A", "-"], program);
  return stdout.split("\n").filter((line) => line !== "");
}

const MARKER = "the-unique-content-of-a-run";

/** Adds a run full of content, short and long, with a step and a log line, and cancels it. */
async function addMarked(store: Store): Promise<string> {
  const text = JSON.stringify(MARKER);
  const long = JSON.stringify(MARKER.repeat(2_000));
  const run = aRun({ payload: text, input: long, labels: { owner: MARKER }, concurrencyKey: "key" });
  const [added] = await store.enqueue([run, { ...run, id: aRun().id, coalesce: "skip" }]);
  const { claims: [claim] } = await store.claim(aClaimRequest());
  const reports = [aProgress({ current: 1, message: MARKER }), aLogged({ no: 2, message: MARKER, data: MARKER })];
  await store.renew([{ lease: claim!.lease, reports }], 1_000);
  const failure = aFailure({ message: MARKER });
  await store.saveStep(claim!.lease, aStep({ result: { status: "retrying", failure, delayMs: 0 } }), []);
  await store.saveStep(claim!.lease, aStep({ attempts: 2, result: { status: "completed", output: long } }), []);
  await store.cancel(added!.run.id, "request", null);
  return added!.run.id;
}

for (const how of ["delete", "purge"] as const) {
  Deno.test(`SqliteStore with secureDelete leaves nothing of a run in file and log a second after a ${how}`, () =>
    withFile(async (path) => {
      const host = new FakeHost();
      await using store = await SqliteStore.open(path, { host, secureDelete: true });
      await store.migrate();
      const runId = await addMarked(store);
      await store.enqueue([aRun()]);
      assert.notDeepEqual(await grep(path, MARKER), []);

      if (how === "delete") await store.delete(runId);
      else assert.equal((await store.purge({ cancelled: 0 }, 10)).length, 1);
      host.advance(1_000);

      assert.deepEqual(await grep(path, MARKER), []);
    }));
}

/** A chunk of one item that has the marker. */
function aMarkedChunk(position: number): Chunk {
  const items = JSON.stringify([MARKER]);
  const rest = { after: position - 1, first: 0, count: 1, size: items.length, isPermanent: false };
  return { stream: MARKER.slice(0, 5), position, items, ...rest };
}

Deno.test("SqliteStore with secureDelete leaves nothing of the items of an attempt a second after a write that makes them void", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    await using store = await SqliteStore.open(path, { host, secureDelete: true });
    await store.migrate();
    await store.enqueue([aRun()]);
    const { claims: [claim] } = await store.claim(aClaimRequest());
    await store.appendItems([{ lease: claim!.lease, chunks: [aMarkedChunk(1), aMarkedChunk(2)] }]);
    assert.notDeepEqual(await grep(path, MARKER), []);

    const mark = { ...aMarkedChunk(3), after: 0, count: 0, items: "[]", isPermanent: true };
    const result = { status: "retrying" as const, failure: aFailure(), delayMs: 0 };
    await store.saveStep(claim!.lease, aStep({ result, chunks: [mark] }), []);
    host.advance(1_000);

    assert.deepEqual(await grep(path, MARKER), []);
  }));

for (const how of ["delete", "purge", "retention of streams"] as const) {
  Deno.test(`SqliteStore with secureDelete leaves nothing of the items of a run a second after a ${how}`, () =>
    withFile(async (path) => {
      const host = new FakeHost();
      await using store = await SqliteStore.open(path, { host, secureDelete: true });
      await store.migrate();
      await store.enqueue([aRun()]);
      const { claims: [claim] } = await store.claim(aClaimRequest());
      const { run, lease } = claim!;
      await store.appendItems([{ lease, chunks: [aMarkedChunk(1)] }]);
      await store.finish(lease, { status: "completed", output: null, durationMs: 1 }, []);
      await store.enqueue([aRun()]);
      host.advance(1_000);
      assert.notDeepEqual(await grep(path, MARKER), []);

      if (how === "delete") await store.delete(run.id);
      else if (how === "purge") await store.purge({ completed: 0 }, 10);
      else await store.purge({ streams: 500 }, 10);
      host.advance(1_000);

      assert.deepEqual(await grep(path, MARKER), []);
      assert.equal((await store.getHistory(run.id)) !== null, how === "retention of streams");
    }));
}

Deno.test("SqliteStore without secureDelete leaves the content of a deleted run for now", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    await using store = await SqliteStore.open(path, { host });
    await store.migrate();
    await store.delete(await addMarked(store));
    host.advance(10_000);

    assert.notDeepEqual(await grep(path, MARKER), []);
    assert.equal(host.timerCount, 0);
  }));

Deno.test("SqliteStore with secureDelete tries again as long as somebody reads what was deleted", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    await using store = await SqliteStore.open(path, { host, secureDelete: true });
    await store.migrate();
    const runId = await addMarked(store);
    const reader = new DatabaseSync(path);
    reader.exec("BEGIN; SELECT * FROM holdfast_runs");
    await store.delete(runId);
    host.advance(5_000);
    const during = await grep(path, MARKER);
    reader.exec("COMMIT");

    host.advance(1_000);

    assert.notDeepEqual(during, []);
    assert.deepEqual(await grep(path, MARKER), []);
    assert.equal(host.timerCount, 0);
    reader.close();
  }));

Deno.test("SqliteStore with secureDelete wipes at most about once per second, whatever is deleted", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    const database = new DatabaseSync(path);
    let checkpoints = 0;
    const counting: SqliteDriver = {
      exec: (sql) => database.exec(sql),
      prepare: (sql) => {
        const statement = database.prepare(sql);
        if (!/wal_checkpoint/.test(sql)) return statement;
        return { run: () => assert.fail(), get: () => (checkpoints += 1, statement.get()), all: () => assert.fail() };
      },
    };
    await using store = afterClose(
      await SqliteStore.from(counting, { host, secureDelete: true }),
      () => database.close(),
    );
    await store.migrate();
    host.advance(1_000);
    checkpoints = 0;
    const runs = Array.from({ length: 100 }, () => aRun());
    await store.enqueue(runs);

    for (const { id } of runs) {
      await store.cancel(id, id, null);
      await store.delete(id);
      await store.delete(id); // there is nothing more to delete
      host.advance(50);
    }

    assert.ok(checkpoints >= 5 && checkpoints <= 7, `${checkpoints} in 5 seconds`);
  }));

Deno.test("SqliteStore with secureDelete wipes when it is closed, and sets no timer after that", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    const other = new DatabaseSync(path); // keeps the log when the store is closed
    const store = await SqliteStore.open(path, { host, secureDelete: true });
    await store.migrate();
    await store.delete(await addMarked(store));

    await store.close();

    assert.deepEqual(await grep(path, MARKER), []);
    assert.equal(host.timerCount, 0);
    other.close();
  }));

Deno.test("SqliteStore with secureDelete wipes what a process that died has left in the log", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    const died = new DatabaseSync(path);
    const before = await SqliteStore.from(died as SqliteDriver, { host, secureDelete: true });
    await before.migrate();
    await before.delete(await addMarked(before)); // and its timer never comes

    await using _store = await SqliteStore.open(path, { host: new FakeHost(), secureDelete: true });
    const left = await grep(path, MARKER);
    await using _after = await SqliteStore.open(path, { host, secureDelete: true });
    host.advance(1_000);

    assert.notDeepEqual(left, []);
    assert.deepEqual(await grep(path, MARKER), []);
    await before.close();
    died.close();
  }));

Deno.test("SqliteStore with secureDelete wipes on a lent better-sqlite3, around the transactions of its owner", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    const database = new Database(path);
    await using store = afterClose(
      await SqliteStore.from(database as SqliteDriver, { host, secureDelete: true }),
      () => database.close(),
    );
    await store.migrate();
    await store.delete(await addMarked(store));
    database.exec("CREATE TABLE own (value TEXT); BEGIN; INSERT INTO own VALUES ('kept')");
    host.advance(2_000);
    database.exec("COMMIT");

    host.advance(1_000);

    assert.deepEqual(await grep(path, MARKER), []);
    assert.equal((database.prepare("SELECT value FROM own").get() as { value: string }).value, "kept");
  }));

Deno.test("SqliteStore with secureDelete gives up when its database was closed before it", async () => {
  const host = new FakeHost();
  const database = new Closable("open");
  const store = await SqliteStore.from(database, { host, secureDelete: true });
  await store.migrate();
  await store.delete(await addMarked(store));
  database.close();

  host.advance(5_000);

  assert.equal(host.timerCount, 0);
  await store.close();
  assert.equal(database.touched, 0);
});
