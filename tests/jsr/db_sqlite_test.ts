// SqliteStore over the real jsr:@db/sqlite.
//
// `deno task test:jsr` runs it. It needs:
// - jsr.io, for @db/sqlite, @std/assert and @std/http;
// - github.com for the first import of @db/sqlite, which downloads the SQLite library, or DENO_SQLITE_PATH: the path of
//   such a library, of SQLite 3.43 or later (/usr/lib/x86_64-linux-gnu/libsqlite3.so.0);
// - the permissions --allow-ffi and --allow-env without a scope (the task has -A).
//
// `tests/long/jsr_test.ts` runs the same tests without all that, over stand-ins for what comes from JSR.
import { assertEquals, assertRejects } from "@std/assert";
import { Database } from "@db/sqlite";
import { createEngine, defineJob, SqliteStore, StoreError } from "@holdfast/jobs";
import { z } from "zod";
import { storeContract } from "../../src/testing/contract/store_contract.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aRun } from "../support/fixtures.ts";
import { afterClose, withFile } from "../support/stores/sqlite.ts";

storeContract("SqliteStore on @db/sqlite", async (host) => {
  const database = new Database(":memory:", { int64: true });
  return afterClose(await SqliteStore.from(database, { host }), () => database.close());
});

const double = defineJob({
  name: "double",
  input: z.object({ value: z.number() }),
  run: (step, { value }) => step.run("double", () => value * 2),
});

Deno.test("SqliteStore.from() runs jobs on @db/sqlite", async () => {
  const database = new Database(":memory:", { int64: true });
  await using store = await SqliteStore.from(database);
  await using engine = createEngine({ store, jobs: { double } });
  await engine.start();

  const run = await engine.jobs.double.triggerAndWait({ value: 21 });

  assertEquals(run.output, 42);
  assertEquals((await engine.getSteps(run.id)).map(({ name }) => name), ["double"]);
  await engine.stop();
  await store.close();
  database.close();
});

Deno.test("SqliteStore.from() refuses a database that cuts integers off", async () => {
  const database = new Database(":memory:");

  await assertRejects(() => SqliteStore.from(database), TypeError, "int64: true");

  database.close();
});

Deno.test("SqliteStore.from() reads while a write waits for another connection's lock, with @db/sqlite", () =>
  withFile(async (path) => {
    const host = new FakeHost();
    const database = new Database(path, { int64: true });
    await using store = afterClose(await SqliteStore.from(database, { host }), () => database.close());
    await store.migrate();
    const [added] = await store.enqueue([aRun()]);
    const other = new Database(path, { int64: true });
    other.exec("BEGIN IMMEDIATE");
    const waiting = store.enqueue([aRun()]);
    await host.settle();

    const { total } = await store.findRuns({});
    const state = await store.getRunState(added!.run.id);

    assertEquals<unknown>([total, state!.run.status], [1, "pending"]);
    other.exec("COMMIT");
    other.close();
    host.advance(100);
    assertEquals((await waiting)[0]!.disposition, "created");
  }));

Deno.test("SqliteStore.backup() copies a database of @db/sqlite, and refuses a file that exists", () =>
  withFile(async (path) => {
    const database = new Database(path, { int64: true });
    const store = await SqliteStore.from(database);
    const engine = createEngine({ store, jobs: { double } });
    const { id } = await engine.jobs.double.trigger({ value: 1 });

    await store.backup(`${path}.copy`);

    const copied = new Database(`${path}.copy`, { int64: true });
    assertEquals(copied.prepare("SELECT id FROM holdfast_runs").all(), [{ id }]);
    await assertRejects(() => store.backup(`${path}.copy`), StoreError, "the file exists");
    copied.close();
    await engine.stop();
    await store.close();
    database.close();
  }));

Deno.test("SqliteStore.from() does not touch a database of @db/sqlite that was closed before its store", async () => {
  const database = new Database(":memory:", { int64: true });
  const store = await SqliteStore.from(database);
  await store.migrate();
  const pending = store.renew([], 1_000);
  database.close();

  await assertRejects(() => pending, StoreError, "closed before its store");
  await assertRejects(() => store.findRuns({}), StoreError, "closed before its store");
  await store.close();
});
