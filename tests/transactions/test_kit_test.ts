import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { type SqliteDataSource, sqliteDataSource } from "../../src/stores/sqlite/transactions/sqlite_data_source.ts";
import { crashAtEveryCheckpoint } from "../../src/testing/crashes/crash_at_every_checkpoint.ts";
import { createTestEngine } from "../../src/testing/create_test_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";

async function aBook(): Promise<{ database: DatabaseSync; source: SqliteDataSource }> {
  const database = new DatabaseSync(":memory:");
  const source = await sqliteDataSource(database as unknown as SqliteDriver);
  await source.exec("CREATE TABLE rows (name TEXT NOT NULL)");
  return { database, source };
}

function transfer(source: SqliteDataSource) {
  return defineJob({
    name: "transfer",
    input: anything,
    async run(step) {
      for (const name of ["debit", "credit"]) {
        await step.transaction(name, source, (tx) => tx.run("INSERT INTO rows VALUES (?)", name).changes);
      }
      return "done";
    },
  });
}

Deno.test("crashAtEveryCheckpoint() crashes before the commit of a transaction, and between it and the record: each row is there once", async () => {
  // One database for all executions; each begins with it empty. The ids of runs are the same each time, so effects, too.
  const { database, source } = await aBook();
  await source.effects.migrate(false);

  const report = await crashAtEveryCheckpoint(() => {
    database.exec("DELETE FROM rows; DELETE FROM holdfast_effects");
    return {
      job: transfer(source),
      input: null,
      dataSources: { book: source },
      observe: () => database.prepare("SELECT name FROM rows").all().map(({ name }) => name),
    };
  });

  assert.equal(report.checkpoints, 6, "the claim, the ending, and a commit and a record for each step");
  assert.deepEqual(report.unreached, []);
  assert.deepEqual(report.findings, []);
  await source.close();
  database.close();
});

Deno.test("createTestEngine() executes transactions in a database of the test, and fakes them", async () => {
  const { database, source } = await aBook();
  const job = transfer(source);
  await using t = createTestEngine({ jobs: { job }, dataSources: { book: source } });
  t.fake(job, "debit").returns(7, { times: 1 });

  const { id } = await t.trigger(job, null);

  assert.equal((await t.engine.getRun(id))!.status, "completed");
  assert.deepEqual((await t.engine.getSteps(id)).map(({ output }) => output), [7, 1]);
  assert.deepEqual(database.prepare("SELECT name FROM rows").all().map(({ name }) => name), ["credit"]);
  await source.close();
  database.close();
});
