// Needs JSR, FFI and, for the first import of @db/sqlite, a download of the SQLite library: `deno task test:jsr`.
import { assertEquals, assertRejects } from "@std/assert";
import { Database } from "@db/sqlite";
import { createEngine, defineJob, SqliteStore, StoreError } from "@holdfast/jobs";
import { z } from "zod";

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

async function withFile(test: (path: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await test(`${folder}/jobs.db`);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("SqliteStore.from() reads on @db/sqlite while a write waits for another connection's lock", () =>
  withFile(async (path) => {
    const database = new Database(path, { int64: true });
    const store = await SqliteStore.from(database);
    const engine = createEngine({ store, jobs: { double } });
    const { id } = await engine.jobs.double.trigger({ value: 1 });
    const other = new Database(path, { int64: true });
    other.exec("BEGIN IMMEDIATE");
    const waiting = engine.jobs.double.trigger({ value: 2 });
    await new Promise((resolve) => setTimeout(resolve, 50)); // the write has found the lock taken by then

    const { total } = await engine.getRuns();
    const run = await engine.getRun(id);

    assertEquals([total, run?.status], [1, "pending"]);
    other.exec("COMMIT");
    await waiting;
    other.close();
    await engine.stop();
    await store.close();
    database.close();
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
  await assertRejects(() => store.getRuns({}), StoreError, "closed before its store");
  await store.close();
});
