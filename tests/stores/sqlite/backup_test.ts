import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { StoreError } from "../../../src/model/error.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { aRun } from "../../support/fixtures.ts";
import { needs } from "../../support/platform.ts";
import { afterClose, withFile } from "../../support/stores/sqlite.ts";
import { getRun } from "../../../src/store/reads.ts";

Deno.test("SqliteStore.backup() writes a copy that opens clean", () =>
  withFile(async (path) => {
    const run = aRun();
    await using store = await SqliteStore.open(path);
    await store.migrate();
    await store.enqueue([run]);

    await store.backup(`${path}.copy`);

    await using copy = await SqliteStore.open(`${path}.copy`);
    await copy.migrate();
    assert.equal((await getRun(copy, run.id))?.id, run.id);
  }));

Deno.test("SqliteStore.backup() gives a copy its name once it is complete, and replaces what a killed one has left", () =>
  withFile(async (path) => {
    const copy = `${path}.copy`;
    const seen: string[][] = [];
    const database = new DatabaseSync(path);
    await using store = afterClose(
      await SqliteStore.from(onVacuum(database, () => seen.push(namesBeside(path)))),
      () => database.close(),
    );
    await store.migrate();
    await Deno.writeTextFile(`${copy}.partial`, "what a killed backup has left");
    await Deno.writeTextFile(`${copy}.partial-journal`, "and its journal");

    await store.backup(copy);

    assert.deepEqual(seen, [["jobs.db", "jobs.db.copy.partial"]]);
    assert.deepEqual(namesBeside(path), ["jobs.db", "jobs.db.copy"]);
    await using opened = await SqliteStore.open(copy);
    await opened.migrate();
  }));

Deno.test("SqliteStore.backup() replaces no file that is made meanwhile", () =>
  withFile(async (path) => {
    const copy = `${path}.copy`;
    const database = new DatabaseSync(path);
    await using store = afterClose(
      await SqliteStore.from(onVacuum(database, () => Deno.writeTextFileSync(copy, "of another"))),
      () => database.close(),
    );
    await store.migrate();

    await assert.rejects(store.backup(copy), /the file exists/);

    assert.equal(await Deno.readTextFile(copy), "of another");
    assert.deepEqual(namesBeside(path), ["jobs.db", "jobs.db.copy"]);
  }));

Deno.test("SqliteStore.backup() leaves the file of another backup that has begun meanwhile", () =>
  withFile(async (path) => {
    const copy = `${path}.copy`;
    const database = new DatabaseSync(path);
    const replace = () => {
      Deno.writeTextFileSync(`${copy}.new`, "of another");
      Deno.renameSync(`${copy}.new`, `${copy}.partial`);
    };
    await using store = afterClose(
      await SqliteStore.from(onVacuum(database, () => {}, replace)),
      () => database.close(),
    );
    await store.migrate();

    await assert.rejects(store.backup(copy), /another backup to it has begun meanwhile/);

    assert.deepEqual(namesBeside(path), ["jobs.db", "jobs.db.copy.partial"]);
  }));

Deno.test("SqliteStore.backup() leaves no file behind when it fails", () =>
  withFile(async (path) => {
    const database = new DatabaseSync(path);
    const lent = { exec: database.exec.bind(database), prepare: database.prepare.bind(database) };
    await using store = afterClose(await SqliteStore.from(lent as SqliteDriver), () => database.close());
    database.exec("BEGIN"); // `VACUUM` works in no transaction

    await assert.rejects(store.backup(`${path}.copy`), StoreError);

    await assert.rejects(Deno.stat(`${path}.copy`), Deno.errors.NotFound);
  }));

Deno.test(
  "SqliteStore.backup() leaves nothing behind when it is refused, not even behind a link",
  needs("file modes"),
  () =>
    withFile(async (path) => {
      await using store = await SqliteStore.open(path);
      await store.migrate();
      Deno.symlinkSync(`${path}.missing`, `${path}.link`);
      Deno.mkdirSync(`${path}.directory`);
      const directory = path.slice(0, path.lastIndexOf("/"));
      const before = Array.from(Deno.readDirSync(directory), ({ name }) => name).sort();

      for (const to of [`${path}.link`, `${path}.directory`, `${path}.missing/copy`, path]) {
        await assert.rejects(store.backup(to), StoreError);
      }

      assert.deepEqual(Array.from(Deno.readDirSync(directory), ({ name }) => name).sort(), before);
    }),
);

Deno.test("SqliteStore.backup() refuses a store that is closed", () =>
  withFile(async (path) => {
    const store = await SqliteStore.open(path);
    await store.close();

    await assert.rejects(store.backup(`${path}.copy`), { name: "StoreError", message: "The store is closed" });
  }));

/** A driver whose copies are made by `VACUUM`, with something before and after it. */
function onVacuum(database: DatabaseSync, before: () => void, after = () => {}): SqliteDriver {
  const prepare = (sql: string) => {
    const statement = database.prepare(sql);
    if (!sql.startsWith("VACUUM")) return statement;
    return {
      run(path: string) {
        before();
        statement.run(path);
        after();
      },
    };
  };
  return { exec: database.exec.bind(database), prepare } as SqliteDriver; // of a `VACUUM` only `run()` is called
}

/** The files in the folder of a database, without those that SQLite makes for it. */
function namesBeside(path: string): string[] {
  const names = Array.from(Deno.readDirSync(path.slice(0, path.lastIndexOf("/"))), ({ name }) => name);
  return names.filter((name) => !/^jobs\.db-/.test(name)).sort();
}
