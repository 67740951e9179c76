import { DatabaseSync } from "node:sqlite";
import Database from "better-sqlite3";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import type { SqliteValue } from "../../src/stores/sqlite/statement.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { storeContract } from "../../src/testing/contract/store_contract.ts";
import { afterClose } from "../support/stores/sqlite.ts";

// `tests/stores/sqlite/sqlite_store_test.ts` tests the stores that `SqliteStore.open()` makes.

storeContract("SqliteStore on an open node:sqlite database", async (host) => {
  const database = new DatabaseSync(":memory:");
  return afterClose(await SqliteStore.from(database, { host }), () => database.close());
});

storeContract("SqliteStore on an open better-sqlite3 database", async (host) => {
  const database = new Database(":memory:");
  return afterClose(await SqliteStore.from(database, { host }), () => database.close());
});

storeContract("SqliteStore on a driver that answers null for no row", async (host) => {
  const database = new DatabaseSync(":memory:");
  const driver: SqliteDriver = {
    exec: (sql) => database.exec(sql),
    prepare: (sql) => {
      const statement = database.prepare(sql);
      return {
        run: statement.run.bind(statement),
        get: (...parameters: SqliteValue[]) => statement.get(...parameters) ?? null,
        all: statement.all.bind(statement),
      };
    },
  };
  return afterClose(await SqliteStore.from(driver, { host }), () => database.close());
});
