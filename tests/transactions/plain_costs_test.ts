import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { PGlite } from "@electric-sql/pglite";
import type { DataSource } from "../../src/model/data_source.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Store } from "../../src/store/store.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";

type JoinableStore = Store & { dataSource(): DataSource };

/** The same database, which reports each statement that it executes. */
function reporting<T extends object>(database: T, report: (sql: string) => void): T {
  return new Proxy(database, {
    get: (target, name) => {
      const member = Reflect.get(target, name, target);
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        if (typeof given[0] === "string") report(given[0]);
        if (name !== "transaction") return member.apply(target, given);
        const [work] = given as [(tx: object) => unknown];
        return member.call(target, (tx: object) => work(reporting(tx, report)));
      };
    },
  });
}

/** Executes steps, children, waits and triggers that make no transaction. */
async function executePlain(
  { store, host }: { store: JoinableStore; host: FakeHost },
  dataSources: Record<string, DataSource>,
  onReady: () => void,
) {
  const child = defineJob({ name: "child", input: anything, run: () => null });
  const parent = defineJob({
    name: "parent",
    input: anything,
    run: async (step) => {
      for (let n = 0; n < 3; n++) await step.run(`step ${n}`, () => n);
      await step.trigger("later", child, null);
      await step.invoke("child", child, null);
      return await step.wait("answer");
    },
  });
  await using engine = createEngine({ store, host, jobs: { parent, child }, dataSources });
  await engine.runUntilIdle(); // the table of the outbox is made once, and what waits there is counted once a minute
  onReady();
  const { id } = await engine.trigger(parent, null, { idempotencyKey: "k" });
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await engine.signal(wait!.id, { signalId: "s", payload: 1 });
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(id))!.status, "completed");
}

/** The statements of an engine without data sources, and of one that has a joined one. */
async function compare(open: (report: (sql: string) => void) => Promise<{ store: JoinableStore; host: FakeHost }>) {
  const statements: string[][] = [];
  for (const isJoined of [false, true]) {
    const executed: string[] = [];
    const place = await open((sql) => void executed.push(sql));
    let looks = 0;
    const app = place.store.dataSource();
    app.effects.takeRows = () => Promise.resolve((looks++, []));
    const dataSources: Record<string, DataSource> = isJoined ? { app } : {};
    await executePlain(place, dataSources, () => executed.length = looks = 0);
    assert.equal(
      looks,
      isJoined ? 4 : 0,
      "runUntilIdle() looks at the outbox once before its runs and once after them",
    );
    await place.store.close();
    statements.push(executed.map((sql) => /"?\w+"?\.(\w+)\(/.exec(sql)?.[1] ?? sql));
  }
  const [without, joined] = statements as [string[], string[]];
  assert.ok(without.length > 10, `${without.length} statements`);
  assert.deepEqual(joined, without);
  assert.deepEqual(without.filter((sql) => /savepoint|outbox|effects|^join$|find_step/i.test(sql)), []);
}

Deno.test("SQLite: plain steps and triggers execute the same statements with a data source as without", async () => {
  await compare(async (report) => {
    const host = new FakeHost();
    const database = reporting(new DatabaseSync(":memory:"), report);
    const store = await SqliteStore.from(database as unknown as SqliteDriver, { host });
    return { store: store as unknown as JoinableStore, host };
  });
});

Deno.test("PostgreSQL: plain steps and triggers execute the same statements with a data source as without", async () => {
  const database = await PGlite.create();
  let schemas = 0;
  await compare((report) => {
    const host = new FakeHost();
    const options = { schema: `plain_${++schemas}`, durability: "relaxed", host } as const;
    const store = PostgresStore.from(reporting(database, report), options);
    return Promise.resolve({ store: store as unknown as JoinableStore, host });
  });
  await database.close();
});
