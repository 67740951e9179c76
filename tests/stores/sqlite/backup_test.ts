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
