// Needs JSR, FFI and, for the first import of @db/sqlite, a download of the SQLite library: `deno task test:jsr`.
import { assertEquals, assertRejects } from "@std/assert";
import { Database } from "@db/sqlite";
import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
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
