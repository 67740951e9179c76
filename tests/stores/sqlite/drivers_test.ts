import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import Database from "better-sqlite3";
import { StoreError } from "../../../src/model/error.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import type { SqliteValue } from "../../../src/stores/sqlite/statement.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aRun } from "../../support/fixtures.ts";
import { afterClose, Closable, withFile } from "../../support/stores/sqlite.ts";
import { getRun, getRuns } from "../../../src/store/reads.ts";

Deno.test("SqliteStore.from() refuses a database that cuts integers off at 32 bits", async () => {
  const database = {
    exec: () => {},
    prepare: () => ({ run: () => 0, get: () => ({ value: 1_700_000_000_000 | 0 }), all: () => [] }),
  };

  await assert.rejects(SqliteStore.from(database), TypeError);
});

Deno.test("SqliteStore.from() refuses a database that returns every integer as a bigint", async () => {
  const database = new Database(":memory:");
  database.defaultSafeIntegers();

  // With such a database a signal would not resume its run: the columns are compared with numbers.
  await assert.rejects(SqliteStore.from(database), { name: "TypeError", message: /every integer as a bigint/ });
  database.close();
});

Deno.test("SqliteStore.from() refuses a database that returns rows as arrays", async () => {
  const database = new DatabaseSync(":memory:", { returnArrays: true } as object);

  await assert.rejects(SqliteStore.from(database), {
    name: "TypeError",
    message: "The database returns rows as arrays; open it without `returnArrays`",
  });
  database.close();
});

for (
  const [version, isAccepted] of [["3.40.1", false], ["3.42.0", false], ["3.43.0", true], ["4.0.0", true]] as const
) {
  Deno.test(`SqliteStore.from() ${isAccepted ? "takes" : "refuses"} a database of SQLite ${version}`, async () => {
    const database = new DatabaseSync(":memory:");
    const driver = {
      exec: (sql: string) => database.exec(sql),
      prepare: (sql: string) => database.prepare(sql.replace("sqlite_version()", `'${version}'`)),
    } as SqliteDriver;

    const opening = SqliteStore.from(driver);

    if (isAccepted) await (await opening).close();
    else await assert.rejects(opening, { name: "TypeError", message: new RegExp(`3\\.43 or later.*has ${version}`) });
    database.close();
  });
}

Deno.test("SqliteStore.from() leaves other tables and the version of the file alone", async () => {
  const database = new DatabaseSync(":memory:");
  database.exec("CREATE TABLE runs (id TEXT); PRAGMA user_version = 7");

  await using store = await SqliteStore.from(database);
  await store.migrate();
  await store.close();

  const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
  assert.deepEqual(
    tables.map(({ name }) => String(name)).filter((name) =>
      !name.startsWith("holdfast_") && !name.startsWith("sqlite_")
    ),
    ["runs"],
  );
  assert.equal(database.prepare("PRAGMA user_version").get()!.user_version, 7);
  database.close();
});

/**
 * A driver that resets no statement that has failed, as that of `jsr:@db/sqlite`: SQLite refuses each `COMMIT` while a
 * prepared `BEGIN IMMEDIATE` that found the lock taken is not reset. What `exec()` runs is always finalized.
 */
function withoutReset(database: DatabaseSync): SqliteDriver {
  const failed = new Set<string>();
  const commit = (sql: string, run: () => unknown) => {
    if (sql === "COMMIT" && failed.size > 0) {
      throw new Error("cannot commit transaction - SQL statements in progress");
    }
    return run();
  };
  return {
    exec: (sql) => commit(sql, () => database.exec(sql)),
    prepare: (sql) => {
      const statement = database.prepare(sql);
      return {
        run: (...parameters: SqliteValue[]) => {
          failed.delete(sql);
          return commit(sql, () => {
            try {
              return statement.run(...parameters);
            } catch (error) {
              failed.add(sql);
              throw new Error((error as Error).message); // no code, as there
            }
          });
        },
        get: (...parameters: SqliteValue[]) => statement.get(...parameters),
        all: (...parameters: SqliteValue[]) => statement.all(...parameters),
      };
    },
  };
}

for (const driver of ["node:sqlite", "better-sqlite3", "one that resets no failed statement"]) {
  Deno.test(`SqliteStore.from() reads while a write waits for another connection's lock, with ${driver}`, () =>
    withFile(async (path) => {
      const host = new FakeHost();
      // Both connections are of one library: two do not see each other's locks within a process.
      const open = () => driver === "better-sqlite3" ? new Database(path) : new DatabaseSync(path);
      const database = open();
      const lent = driver.startsWith("one") ? withoutReset(database as DatabaseSync) : database as SqliteDriver;
      await using store = afterClose(await SqliteStore.from(lent, { host }), () => database.close());
      await store.migrate();
      const [added] = await store.enqueue([aRun()]);
      const other = open();
      other.exec("BEGIN IMMEDIATE");
      const waiting = store.enqueue([aRun()]);
      await host.settle();

      const { total } = await getRuns(store, {});
      const state = await store.getRunState(added!.run.id);

      assert.deepEqual([total, state!.run.status], [1, "pending"]);
      other.exec("COMMIT");
      other.close();
      host.advance(100);
      assert.equal((await waiting)[0]!.disposition, "created");
    }));
}

for (const property of ["open", "isOpen"] as const) {
  Deno.test(`SqliteStore.from() does not touch a database that was closed before its store and says so with \`${property}\``, async () => {
    const database = new Closable(property);
    const store = await SqliteStore.from(database);
    await store.migrate();
    const { run } = (await store.enqueue([aRun()]))[0]!;
    const pending = [store.enqueue([aRun()]), store.renew([], 1_000)];
    database.close();

    const answers = await Promise.allSettled([
      ...pending,
      getRun(store, run.id),
      getRuns(store, {}),
      store.claim(aClaimRequest()),
      store.cancel(run.id, "request", null),
      store.backup("never.db"),
    ]);
    await store.close();

    for (const answer of answers) {
      assert.equal(answer.status, "rejected");
      assert.ok(answer.reason instanceof StoreError);
      assert.match(answer.reason.message, /database was closed before its store.*close the store first/);
    }
    assert.equal(database.touched, 0);
  });
}

Deno.test("SqliteStore.from() refuses what is no database", async () => {
  for (const odd of [undefined, null, {}, { exec: () => {} }, "jobs.db"]) {
    await assert.rejects(SqliteStore.from(odd as never), {
      name: "TypeError",
      message: /^SqliteStore\.from\(\) takes an open database, with exec\(\) and prepare\(\), not /,
    });
  }
});

Deno.test("SqliteStore.from() refuses a database that is closed", async () => {
  const database = new Closable("open");
  database.close();

  await assert.rejects(SqliteStore.from(database), /open database.*is closed/);

  assert.equal(database.touched, 0);
});

for (const driver of ["node:sqlite", "better-sqlite3", "a driver without a fitting backup()"]) {
  Deno.test(`SqliteStore.backup() writes a copy of a database that was lent, with ${driver}`, () =>
    withFile(async (path) => {
      const database = driver === "better-sqlite3" ? new Database(path) : new DatabaseSync(path);
      const lent = driver.startsWith("a ")
        ? { exec: database.exec.bind(database), prepare: database.prepare.bind(database), backup: assert.fail }
        : database;
      await using store = afterClose(await SqliteStore.from(lent as SqliteDriver), () => database.close());
      await store.migrate();
      const run = aRun();
      await store.enqueue([run]);

      await store.backup(`${path}.copy`);

      await using copy = await SqliteStore.open(`${path}.copy`);
      await copy.migrate();
      assert.equal((await getRun(copy, run.id))?.id, run.id);
      await assert.rejects(store.backup(`${path}.copy`), {
        name: "StoreError",
        message: `Cannot back up to "${path}.copy": the file exists; name a new file, or remove this one first`,
      });
      assert.equal((await getRun(copy, run.id))?.id, run.id);
    }));

  Deno.test(`SqliteStore.backup() names the file that it cannot write, with ${driver}`, () =>
    withFile(async (path) => {
      const database = driver === "better-sqlite3" ? new Database(path) : new DatabaseSync(path);
      const lent = driver.startsWith("a ")
        ? { exec: database.exec.bind(database), prepare: database.prepare.bind(database) }
        : database;
      await using store = afterClose(await SqliteStore.from(lent as SqliteDriver), () => database.close());
      await store.migrate();

      await assert.rejects(store.backup(`${path}/nowhere/copy.db`), {
        name: "StoreError",
        message: new RegExp(`^Cannot back up to "${path}/nowhere/copy.db": `),
      });
    }));
}
