import assert from "node:assert/strict";
import { drizzle } from "drizzle-orm/node-postgres";
import { pgTable, text } from "drizzle-orm/pg-core";
import { Kysely, PostgresDialect } from "kysely";
import pg from "pg";
import postgres from "postgres";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import {
  postgresDataSource,
  type PostgresTransaction,
} from "../../../src/stores/postgres/transactions/postgres_data_source.ts";
import type { DataSource } from "../../../src/model/data_source.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { until } from "../../processes/deadline.ts";
import { anything } from "../../processes/anything.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { startServer } from "./server.ts";

const server = startServer();

/** Pools of the two drivers, and how a transaction inserts a row. */
const DRIVERS = {
  "npm:pg": (max: number) => {
    const pool = new pg.Pool({ connectionString: server!.url, max });
    pool.on("error", () => {});
    return {
      source: postgresDataSource(pool) as DataSource,
      insert: (tx: PostgresTransaction, name: string) => tx.client.query("INSERT INTO rows VALUES ($1)", [name]),
      execute: (tx: PostgresTransaction, sql: string) => tx.client.query(sql),
      begin: async (work: (client: unknown) => Promise<unknown>) => {
        const client = await pool.connect();
        try {
          await client.query("BEGIN");
          await work(client);
          await client.query("COMMIT");
        } catch (error) {
          await client.query("ROLLBACK");
          throw error;
        } finally {
          client.release();
        }
      },
      end: () => pool.end(),
    };
  },
  "npm:postgres": (max: number) => {
    const sql = postgres(server!.url, { max, onnotice: () => {} });
    return {
      source: postgresDataSource<postgres.ReservedSql>(sql) as DataSource,
      insert: async (tx: PostgresTransaction<postgres.ReservedSql>, name: string) => {
        await tx.client`INSERT INTO rows VALUES (${name})`;
      },
      execute: async (tx: PostgresTransaction<postgres.ReservedSql>, sql: string) => await tx.client.unsafe(sql),
      begin: async (work: (client: unknown) => Promise<unknown>) => void await sql.begin((tx) => work(tx)),
      end: () => sql.end(),
    };
  },
} as const;

interface Opened {
  source: DataSource;
  insert(tx: never, name: string): Promise<unknown>;
  /** Executes a statement in a transaction. */
  execute(tx: never, sql: string): Promise<unknown>;
  begin(work: (client: unknown) => Promise<unknown>): Promise<void>;
  client: pg.Client;
  names(): Promise<string[]>;
}

/** A test with each driver, on a server. */
function forEachDriver(
  title: string,
  body: (opened: Opened) => Promise<void>,
  { max = 4, drivers = ["npm:pg", "npm:postgres"] }: { max?: number; drivers?: (keyof typeof DRIVERS)[] } = {},
): void {
  for (const name of drivers) {
    const open = DRIVERS[name];
    Deno.test({
      name: `${name}: ${title}`,
      ignore: server === null,
      sanitizeOps: name !== "npm:postgres", // the driver has timers that end by themselves after its end
      sanitizeResources: name !== "npm:postgres",
      fn: async () => {
        const client = new pg.Client({ connectionString: server!.url });
        await client.connect();
        await client.query(
          "DROP SCHEMA IF EXISTS holdfast CASCADE; DROP TABLE IF EXISTS rows; CREATE TABLE rows (name text)",
        );
        const { end, ...opened } = open(max);
        const names = async () => (await client.query("SELECT name FROM rows ORDER BY 1")).rows.map(({ name }) => name);
        try {
          await body({ ...opened, client, names });
        } finally {
          await end();
          await client.end();
        }
      },
    });
  }
}

function anEngine(jobs: Record<string, ReturnType<typeof defineJob>>, source: DataSource): Engine {
  return createEngine({ store: new MemoryStore(), jobs, dataSources: { app: source } }) as unknown as Engine;
}

forEachDriver("a step commits its rows with an effect, and triggers are relayed", async (opened) => {
  const note = defineJob({ name: "note", input: anything(), run: () => {} });
  const write = defineJob({
    name: "write",
    input: anything(),
    run: (step) =>
      step.transaction("insert", opened.source, async (tx) => {
        await opened.insert(tx as never, "a");
        await (tx as PostgresTransaction).trigger("note", { n: 1 });
      }),
  });
  await using engine = anEngine({ write, note } as never, opened.source);
  const { id } = await engine.trigger("write", null);
  await engine.start();
  await engine.waitForRun(id);

  assert.deepEqual(await opened.names(), ["a"]);
  assert.equal((await opened.client.query("SELECT step_key FROM holdfast.effects")).rows[0].step_key, `${id}/insert`);
  await until(
    async () => (await engine.getRuns({ jobName: "note", status: "completed" })).total === 1,
    "note was to run",
  );
});

for (
  const [title, statements, left] of [
    ["ROLLBACK", ["ROLLBACK"], ["b"]],
    ["COMMIT", ["COMMIT"], ["a", "b"]],
    ["ROLLBACK AND CHAIN", ["ROLLBACK AND CHAIN"], []],
    ["COMMIT AND CHAIN", ["COMMIT AND CHAIN"], ["a"]],
    ["BEGIN and COMMIT of an ORM", ["BEGIN", "COMMIT"], ["a", "b"]],
    ["ROLLBACK and BEGIN", ["ROLLBACK", "BEGIN"], []],
  ] as const
) {
  forEachDriver(`a step whose function executes ${title} fails, and records and triggers nothing`, async (opened) => {
    const note = defineJob({ name: "note", input: anything(), run: () => {} });
    const write = defineJob({
      name: "write",
      input: anything(),
      run: (step) =>
        step.transaction("insert", opened.source, async (tx) => {
          await opened.insert(tx as never, "a");
          for (const sql of statements) await opened.execute(tx as never, sql);
          await opened.insert(tx as never, "b");
          await (tx as PostgresTransaction).trigger("note", null);
        }),
    });
    await using engine = anEngine({ write, note } as never, opened.source);
    const { id } = await engine.trigger("write", null);
    await engine.runUntilIdle();
    const transacting = engine.transaction(opened.source, async (tx) => {
      for (const sql of statements) await opened.execute(tx as never, sql);
    });

    const run = await engine.getRun(id);
    assert.equal(run?.status, "failed");
    assert.match(run!.error!, /The transaction was ended by one of its statements: COMMIT, ROLLBACK, or/);
    await assert.rejects(transacting, /The transaction was ended by one of its statements: COMMIT, ROLLBACK, or/);
    assert.deepEqual(await opened.names(), left);
    for (const table of ["effects", "outbox"]) {
      assert.deepEqual((await opened.client.query(`SELECT * FROM holdfast.${table}`)).rows, []);
    }
    assert.equal((await engine.getRuns({ jobName: "note" })).total, 0);
  });
}

forEachDriver("savepoints of the function leave its transaction as it is", async (opened) => {
  const write = defineJob({
    name: "write",
    input: anything(),
    run: (step) =>
      step.transaction("insert", opened.source, async (tx) => {
        await opened.execute(tx as never, "SAVEPOINT first");
        await opened.insert(tx as never, "a");
        await opened.execute(tx as never, "ROLLBACK TO first");
        await opened.insert(tx as never, "b");
        await opened.execute(tx as never, "RELEASE first");
      }),
  });
  await using engine = anEngine({ write } as never, opened.source);
  const { id } = await engine.trigger("write", null);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))?.status, "completed");
  assert.deepEqual(await opened.names(), ["b"]);
});

forEachDriver(
  "a statement of a function that has ended is refused, and is not part of another transaction",
  async (opened) => {
    await using engine = anEngine({}, opened.source);
    let first: unknown;
    await engine.transaction(opened.source, async (tx) => {
      first = tx;
      await opened.execute(tx as never, "SELECT 1");
    });

    await assert.rejects(
      engine.transaction(opened.source, async (tx) => {
        await opened.insert(tx as never, "a");
        const ended = { name: "TypeError", message: "The transaction has ended" };
        await assert.rejects(async () => await opened.insert(first as never, "b"), ended);
        await assert.rejects(async () => await opened.execute(first as never, "COMMIT"), ended);
        throw new Error("roll back");
      }),
      /roll back/,
    );

    assert.deepEqual(await opened.names(), []);
  },
  { max: 1 },
);

forEachDriver("a function that releases its client keeps it until the commit", async (opened) => {
  await using engine = anEngine({}, opened.source);

  const { value } = await engine.transaction(opened.source, async (tx) => {
    await opened.insert(tx as never, "a");
    (tx as PostgresTransaction<pg.PoolClient>).client.release();
    const other = engine.transaction(opened.source, (tx) => opened.insert(tx as never, "b"));
    await new Promise((resolve) => setTimeout(resolve, 50));
    await opened.insert(tx as never, "c");
    return { other, seen: await opened.names() };
  });
  await value.other;

  assert.deepEqual(value.seen, []);
  assert.deepEqual(await opened.names(), ["a", "b", "c"]);
}, { max: 1 });

forEachDriver("what has a callback, or is no promise, is refused by a throw", async (opened) => {
  await using engine = anEngine({}, opened.source);
  let client: pg.PoolClient;
  await engine.transaction(opened.source, (tx) => void (client = (tx as PostgresTransaction).client as never));

  const ended = { name: "TypeError", message: "The transaction has ended" };
  assert.throws(() => client.query("SELECT 1", () => {}), ended);
  assert.throws(() => client.query({ submit: () => {} } as never), ended);
}, { drivers: ["npm:pg"] });

Deno.test({
  name: "Drizzle and Kysely take the client of a transaction, and Drizzle's transaction() is refused",
  ignore: server === null,
  fn: async () => {
    const pool = new pg.Pool({ connectionString: server!.url });
    await pool.query("CREATE TABLE orm (name text)");
    const orm = pgTable("orm", { name: text() });
    const app = postgresDataSource(pool, {
      wrap: (client: pg.PoolClient) => {
        const onlyOne = { connect: () => Promise.resolve(client as never), end: () => Promise.resolve() };
        return {
          drizzle: drizzle({ client }),
          kysely: new Kysely<{ orm: { name: string } }>({ dialect: new PostgresDialect({ pool: onlyOne }) }),
        };
      },
    });
    await using engine = anEngine({}, app);

    const { value } = await engine.transaction(app, async ({ db, client }) => {
      await db.drizzle.insert(orm).values({ name: "a" });
      await db.kysely.insertInto("orm").values({ name: "b" }).execute();
      assert.ok(client instanceof pg.Client);
      return await db.drizzle.select().from(orm);
    });
    const nested = engine.transaction(
      app,
      ({ db }) => db.drizzle.transaction((tx) => tx.insert(orm).values({ name: "c" })),
    );

    assert.deepEqual(value, [{ name: "a" }, { name: "b" }]);
    await assert.rejects(nested, /The transaction was ended by one of its statements/);
    await pool.end();
  },
});

forEachDriver("an order comes by a transaction of the user, and is gone if that is rolled back", async (opened) => {
  const note = defineJob({ name: "note", input: anything(), run: () => {} });
  await using engine = anEngine({ note } as never, opened.source);
  await engine.start();
  await opened.begin(async (client) => {
    await engine.inTransaction(opened.source, client).trigger("note", { n: 1 });
  });
  await assert.rejects(opened.begin(async (client) => {
    await engine.inTransaction(opened.source, client).trigger("note", { n: 2 });
    throw new Error("no");
  }));

  await until(async () => (await engine.getRuns({ status: "completed" })).total > 0, "the run was to end");
  assert.deepEqual((await engine.getRuns()).runs.map(({ input }) => input), [{ n: 1 }]);
});

forEachDriver(
  "a backend that is terminated inside of a transaction fails the attempt, and ends no process",
  async (opened) => {
    let executions = 0;
    const write = defineJob({
      name: "write",
      input: anything(),
      retry: { maxAttempts: 3, delay: 1 },
      run: (step) =>
        step.transaction("insert", opened.source, async (tx) => {
          await opened.insert(tx as never, "a");
          if (++executions > 1) return;
          await opened.client.query(
            `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()`,
          );
          await new Promise((resolve) => setTimeout(resolve, 50)); // the driver learns of it between two statements
        }),
    });
    await using engine = anEngine({ write } as never, opened.source);
    const { id } = await engine.trigger("write", null);
    await engine.runUntilIdle();

    assert.equal((await engine.getRun(id))?.status, "completed");
    assert.equal(executions, 2);
    assert.deepEqual(await opened.names(), ["a"]);
  },
  // npm:postgres 3.4 throws where nobody can catch it when a statement is sent by a reserved connection that has closed.
  { drivers: ["npm:pg"] },
);

forEachDriver(
  "a function that is idle for too long fails its attempt, and is retried by its policy",
  async (opened) => {
    let executions = 0;
    const write = defineJob({
      name: "write",
      input: anything(),
      retry: { maxAttempts: 2, delay: 0 },
      run: (step) =>
        step.transaction("insert", opened.source, async (tx) => {
          executions += 1;
          await opened.execute(tx as never, "SET LOCAL idle_in_transaction_session_timeout = 20");
          await new Promise((resolve) => setTimeout(resolve, 100));
        }),
    });
    await using engine = anEngine({ write } as never, opened.source);
    const { id } = await engine.trigger("write", null);
    await engine.runUntilIdle();

    const [step] = await engine.getSteps(id);
    assert.deepEqual([step?.status, step?.attempts], ["failed", 2]);
    assert.equal(executions, 2);
  },
  { drivers: ["npm:pg"] },
); // see above

forEachDriver(
  "a function that asks its pool of one connection for a second one ends with the timeout, and the lease is kept",
  async (opened) => {
    const write = defineJob({
      name: "write",
      input: anything(),
      run: (step) =>
        step.transaction("insert", opened.source, async (tx) => {
          await opened.insert(tx as never, "a");
          await opened.begin(() => Promise.resolve());
        }, { timeout: 300 }),
    });
    await using engine = createEngine({
      store: new MemoryStore(),
      jobs: { write },
      dataSources: { app: opened.source },
      worker: { staleThreshold: 150, heartbeatInterval: 30 },
    });
    const { id } = await engine.trigger("write", null);
    await engine.runUntilIdle();

    const run = await engine.getRun(id);
    assert.deepEqual([run?.status, run?.leaseGeneration], ["failed", 1]);
    assert.match(run!.error!, /took longer than 300 ms/);
    assert.deepEqual(await opened.names(), []);
  },
  { max: 1, drivers: ["npm:pg"] }, // npm:postgres cannot take back that it waits for a connection
);

forEachDriver("what a transaction returns and triggers is stored as it is, whatever it contains", async (opened) => {
  const hostile = [
    "$holdfast$; commit; --",
    "$x$",
    "'; DROP TABLE rows; --",
    "\\",
    "\u{1F600}",
    "\u2028",
    "%s $1 :name",
  ];
  const got: unknown[] = [];
  const note = defineJob({ name: "note", input: anything(), run: (_, input) => void got.push(input) });
  const write = defineJob({
    name: "write",
    input: anything(),
    run: (step) =>
      step.transaction("insert", opened.source, async (tx) => {
        for (const text of hostile) await opened.insert(tx as never, text);
        await (tx as PostgresTransaction).trigger("note", hostile);
        return hostile;
      }),
  });
  await using engine = anEngine({ write, note } as never, opened.source);
  const { id } = await engine.trigger("write", null);
  await engine.start();
  await engine.waitForRun(id);

  assert.deepEqual((await engine.getSteps(id))[0]?.output, hostile);
  await until(() => got.length > 0, "note was to run");
  assert.deepEqual(got, [hostile]);
  assert.deepEqual((await opened.names()).toSorted(), hostile.toSorted());
});

forEachDriver("what another step logs is not held back by a long transaction beside it", async (opened) => {
  const gate = Promise.withResolvers<void>();
  const both = defineJob({
    name: "both",
    input: anything(),
    run: async (step) => {
      await Promise.all([
        step.transaction("long", opened.source, async (tx) => {
          await opened.insert(tx as never, "a");
          await gate.promise;
        }),
        step.run("short", () => step.log.info("the short one is done")),
      ]);
    },
  });
  await using engine = anEngine({ both } as never, opened.source);
  const { id } = await engine.trigger("both", null);
  await engine.start();
  // The transaction is open until both are there.
  await until(async () => (await engine.getSteps(id)).some(({ name }) => name === "short"), "short was to be recorded");
  gate.resolve();
  assert.equal((await engine.waitForRun(id)).status, "completed");
  assert.deepEqual(await opened.names(), ["a"]);
});

Deno.test({
  name: "a data source of a store that was closed is closed again by the store",
  ignore: server === null,
  fn: async () => {
    const store = await PostgresStore.open(server!.url, { schema: "closed_twice", durability: "relaxed" });
    const app = store.dataSource();
    await using engine = createEngine({ store, jobs: {}, dataSources: { app } });
    await engine.migrate();
    const { value } = await engine.transaction(app, async (tx) => (await tx.client.query("SELECT 1 AS one")).rows);

    await app.close();
    await app.close();
    await store.close();

    assert.deepEqual(value, [{ one: 1 }]);
  },
});

Deno.test({
  name: "effects are found by a client of npm:postgres that renames columns",
  ignore: server === null,
  sanitizeOps: false,
  sanitizeResources: false,
  fn: async () => {
    const sql = postgres(server!.url, { transform: postgres.camel, onnotice: () => {} });
    const app = postgresDataSource<postgres.ReservedSql>(sql, { schema: "camel" });
    const write = defineJob({
      name: "write",
      input: anything(),
      run: (step) => step.transaction("insert", app, () => Promise.resolve(1)),
    });
    await using store = new MemoryStore();
    await using engine = createEngine({ store, jobs: { write }, dataSources: { app } });
    const { id: runId } = await engine.trigger("write", null);
    await engine.runUntilIdle();

    const found = await app.effects.findOlder((await store.getInfo()).id, Date.now() + 1_000, "", 10);

    assert.deepEqual(found.map(({ key, runId }) => ({ key, runId })), [{ key: `${runId}/insert`, runId }]);
    await sql.end();
  },
});

Deno.test({
  name: "a step in another database sends four messages besides those of its function",
  ignore: server === null,
  fn: async () => {
    const pool = new pg.Pool({ connectionString: server!.url });
    const sent: string[] = [];
    const app = postgresDataSource({
      connect: async () => {
        const client = await pool.connect();
        return {
          query: (sql: string, parameters?: unknown[]) => {
            sent.push(sql);
            return client.query(sql, parameters);
          },
          release: (destroy?: boolean) => client.release(destroy),
        };
      },
    });
    const write = defineJob({
      name: "write",
      input: anything(),
      run: async (step) => {
        sent.length = 0; // those that look at the outbox come before
        await step.transaction("insert", app, (tx) => tx.client.query("SELECT 1").then(() => null));
        return sent.map((sql) => /^\w+/.exec(sql)![0]);
      },
    });
    await using engine = anEngine({ write } as never, app);
    const { id } = await engine.trigger("write", null);
    await engine.runUntilIdle();

    assert.deepEqual((await engine.getRun(id))?.output, ["BEGIN", "SELECT", "SELECT", "INSERT", "select"]);
    await pool.end();
  },
});
