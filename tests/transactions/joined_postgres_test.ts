import assert from "node:assert/strict";
import { PGlite, type Transaction } from "@electric-sql/pglite";
import pg from "pg";
import postgres from "postgres";
import { StoreError } from "../../src/model/error.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { getSteps } from "../../src/store/reads.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import type { PostgresPool } from "../../src/stores/postgres/transactions/drivers.ts";
import {
  postgresDataSource,
  type PostgresTransaction,
  type PostgresTransactionClient,
} from "../../src/stores/postgres/transactions/postgres_data_source.ts";
import { transactionCases } from "../../src/testing/contract/records/transactions.ts";
import { startPooler } from "../stores/postgres/database/pooler.ts";
import { startServer } from "../stores/postgres/server.ts";
import { FakeHost } from "../support/fake_host.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anything } from "../support/stores/for_each_store.ts";

type Tx = PostgresTransaction<PostgresTransactionClient>;
type Work = (tx: Tx) => unknown;

const server = startServer();
const pooled = server === null ? null : await startPooler(server);
const note = defineJob({ name: "note", input: anything, run: () => null });

// PGlite and npm:postgres have timers that end by themselves, some after the test in which they have begun.
const TIMERS_OF_DRIVERS = { sanitizeOps: false, sanitizeResources: false };

/** A test that is skipped where there is no server. */
function test(name: string, body: () => Promise<void>, ignore = server === null): void {
  Deno.test({ name, ignore, fn: body, ...TIMERS_OF_DRIVERS });
}

/** The pools that transactions can be made with, besides the one that the store opens. */
const POOLS: { name: string; ignore?: boolean; open(): { pool: PostgresPool; end(): Promise<unknown> } }[] = [
  {
    name: "npm:pg",
    open: () => {
      const pool = new pg.Pool({ connectionString: server!.url, max: 4 });
      return { pool, end: () => pool.end() };
    },
  },
  {
    name: "npm:postgres",
    open: () => {
      const pool = postgres(server!.url, { max: 4, transform: postgres.camel, types: { bigint: postgres.BigInt } });
      return { pool, end: () => pool.end({ timeout: 1 }) };
    },
  },
  {
    name: "npm:pg through a pooler in transaction mode",
    ignore: pooled === null,
    open: () => {
      const pool = new pg.Pool({ connectionString: pooled!, max: 4 });
      return { pool, end: () => pool.end() };
    },
  },
];

for (const { name, ignore = false, open } of POOLS) {
  for (const { title, body } of transactionCases) {
    test(`${name}: ${title}`, async () => {
      const host = new FakeHost();
      const store = await server!.open(host);
      const { pool, end } = open();
      const source = store.dataSource(pool);
      try {
        await body({ store: Object.assign(store, { dataSource: () => source }), host });
      } finally {
        await store.close();
        await end();
      }
    }, server === null || ignore);
  }
}

const embedded = await PGlite.create();
// It starts a timer that stays, which would be taken for a leak of the first test.
await PostgresStore.from(embedded, { schema: "first", durability: "relaxed" }).migrate();
for (const [index, { title, body }] of transactionCases.entries()) {
  Deno.test(`PGlite: ${title}`, TIMERS_OF_DRIVERS, async () => {
    const host = new FakeHost();
    const store = PostgresStore.from(embedded, { schema: `case_${index}`, durability: "relaxed", host });
    await store.migrate();
    await body({ store, host });
    await store.close();
  });
}

for (const how of ["COMMIT", "ROLLBACK AND CHAIN", "rollback()"]) {
  Deno.test(`PGlite: a transaction whose function executes ${how} is not recorded`, TIMERS_OF_DRIVERS, async () => {
    await using store = PostgresStore.from(embedded, { schema: "ended", durability: "relaxed" });
    const app = store.dataSource();
    const job = defineJob({
      name: "order",
      input: anything,
      run: (step: StepContext) =>
        step.transaction("book", app, async ({ client }) => {
          if (how !== "rollback()") await client.query(how);
          else await (client as unknown as Transaction).rollback();
        }),
    });
    await using engine = createEngine({ store, jobs: { job }, dataSources: { app } });
    const { id } = await engine.trigger(job, null);

    await engine.runUntilIdle();

    assert.match((await engine.getRun(id))!.error!, /The transaction was ended by one of its statements/);
  });
}

/** A store in a database with a table of its owner, and what the tests do with them. */
async function aBank({ wrap = (pool: pg.Pool): PostgresPool => pool, url = server!.url } = {}) {
  const store = await server!.open();
  const own = new pg.Pool({ connectionString: url, max: 4 });
  own.on("error", () => {});
  const table = `rows_${crypto.randomUUID().replaceAll("-", "")}`;
  await own.query(`CREATE TABLE ${table} (no serial, name text NOT NULL, n int)`);
  const app = store.dataSource(wrap(own));
  const column = async (sql: string) => (await own.query(sql)).rows.map((row) => row.v);
  return {
    store,
    app,
    own,
    table,
    names: () => column(`SELECT name AS v FROM ${table} ORDER BY no`),
    insert: (tx: Tx, name: string) => tx.client.query(`INSERT INTO ${table} (name) VALUES ($1)`, [name]),
    /** Executes a job whose only step is a transaction. */
    async perform(work: Work, options = {}) {
      const job = defineJob({
        name: "order",
        input: anything,
        run: (step: StepContext) => step.transaction("book", app, work, options),
      });
      await using engine = createEngine({ store, jobs: { job, note }, dataSources: { app } });
      const { id } = await engine.trigger("order", null, { labels: { org: "acme" } });
      await engine.runUntilIdle({ maxRuns: 1 });
      return { run: (await engine.getRun(id))!, steps: await engine.getSteps(id) };
    },
    async [Symbol.asyncDispose]() {
      await own.query(`DROP TABLE ${table}`);
      await store.close();
      await own.end();
    },
  };
}

test("step.transaction() writes rows, records its result and triggers, in one commit", async () => {
  await using bank = await aBank();
  let executions = 0;

  const { run, steps } = await bank.perform(async (tx) => {
    executions += 1;
    await bank.insert(tx, "a");
    const { runId } = await tx.trigger(note, { n: 1 });
    await assert.rejects(tx.trigger("nothing", null), /cannot start a run of job "nothing"/);
    assert.deepEqual(await bank.names(), [], "nothing is visible before the commit");
    return runId;
  });

  assert.equal(run.status, "completed");
  assert.equal(executions, 1);
  assert.deepEqual(await bank.names(), ["a"]);
  assert.deepEqual(steps.map(({ name, output }) => [name, output]), [["book", run.output]]);
  const triggered = await bank.own.query(`SELECT labels FROM ${schemaOf(bank.store)}.runs WHERE id = $1`, [run.output]);
  assert.deepEqual(triggered.rows.map(({ labels }) => JSON.parse(labels)), [{ org: "acme" }]);
});

test("step.transaction() rolls back what its function wrote before it threw, and is tried again", async () => {
  await using bank = await aBank();
  let attempts = 0;

  const { run, steps } = await bank.perform(async (tx) => {
    await bank.insert(tx, `attempt ${++attempts}`);
    if (attempts < 3) throw new Error("not yet");
    return attempts;
  }, { retry: { maxAttempts: 3, delay: 0 } });

  assert.equal(run.output, 3);
  assert.equal(steps[0]!.attempts, 3);
  assert.deepEqual(await bank.names(), ["attempt 3"]);
});

test("a transaction whose function has caught the error of a statement commits nothing", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform(async (tx) => {
    await bank.insert(tx, "a");
    await tx.client.query("SELECT * FROM nothing").catch(() => {});
  });

  assert.match(run.error!, /current transaction is aborted/);
  assert.deepEqual(await bank.names(), []);
});

for (const [sql, left] of [["ROLLBACK", []], ["COMMIT", ["a"]], ["COMMIT AND CHAIN", ["a"]]] as const) {
  test(`a transaction whose function executes ${sql} is not recorded, and the error says what is committed`, async () => {
    await using bank = await aBank();
    await using engine = createEngine({ store: bank.store, jobs: { note }, dataSources: { app: bank.app } });

    const { run, steps } = await bank.perform(async (tx) => {
      await bank.insert(tx, "a");
      await tx.client.query(sql);
      await tx.trigger(note, null);
    });
    const transacting = engine.transaction(bank.app, (tx: Tx) => tx.client.query(sql));

    const said =
      /The transaction was ended by one of its statements: .* before a COMMIT, or after the end, is committed$/;
    assert.match(run.error!, said);
    assert.deepEqual(steps.map(({ status }) => status), ["failed"]);
    await assert.rejects(transacting, said);
    assert.deepEqual(await bank.names(), left);
    assert.equal((await engine.getRuns({ jobName: "note" })).total, 0);
  });
}

test("a constraint that refuses the commit fails the step, and nothing is recorded", async () => {
  await using bank = await aBank();
  await bank.own.query(`ALTER TABLE ${bank.table} ADD CONSTRAINT once UNIQUE (name) DEFERRABLE INITIALLY DEFERRED`);

  const { run } = await bank.perform(async (tx) => {
    await bank.insert(tx, "a");
    await bank.insert(tx, "a");
  });

  assert.match(run.error!, /duplicate key value/);
  assert.deepEqual(await bank.names(), []);
});

for (
  const [state, executed] of [["40001", 11], ["40P01", 11], ["55P03", 11], ["25006", 11], ["57014", 1], [
    "53100",
    1,
  ]] as const
) {
  test(`a commit that always fails with ${state} is executed ${executed} times, and fails the attempt`, async () => {
    await using bank = await aBank();
    await bank.own.query(`CREATE FUNCTION refuse_${state}() RETURNS trigger LANGUAGE plpgsql AS
      $$BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '${state}'; END$$;
      CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON ${bank.table} DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION refuse_${state}()`);
    let executions = 0;

    const { run, steps } = await bank.perform(async (tx) => {
      executions += 1;
      await bank.insert(tx, "a");
    });

    assert.match(run.error!, /refused/);
    assert.deepEqual(steps.map(({ status, attempts }) => [status, attempts]), [["failed", 1]]);
    assert.equal(executions, executed);
    assert.deepEqual(await bank.names(), []);
  });
}

test("a function that makes its transaction READ ONLY fails its attempt", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform((tx) => tx.client.query("SET TRANSACTION READ ONLY").then(() => null));

  assert.match(run.error!, /in a read-only transaction/);
});

test("a function that always loses its connection is executed eleven times, and fails the attempt", async () => {
  await using bank = await aBank();
  let executions = 0;

  const { run, steps } = await bank.perform(async (tx) => {
    executions += 1;
    await tx.client.query("SELECT pg_terminate_backend(pg_backend_pid())");
  });

  assert.match(run.error!, /The connection of the transaction is lost: terminating connection/);
  assert.deepEqual(steps.map(({ status, attempts }) => [status, attempts]), [["failed", 1]]);
  assert.equal(executions, 11);
});

test("an isolation that does not exist fails the step", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform(() => Promise.resolve(1), { isolation: "none" as never });

  assert.match(run.error!, /isolation must be one of read committed/);
});

for (const isolation of ["repeatable read", "serializable"] as const) {
  test(`transactions of isolation ${isolation} that are in each other's way are repeated until both are there`, async () => {
    await using bank = await aBank();
    await bank.own.query(`INSERT INTO ${bank.table} (name, n) VALUES ('sum', 0)`);
    const both = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let executions = 0;
    const job = defineJob({
      name: "add",
      input: anything,
      run: (step: StepContext, index: 0 | 1) =>
        step.transaction("add", bank.app, async (tx: Tx) => {
          executions += 1;
          const { rows: [row] } = await tx.client.query(`SELECT n FROM ${bank.table} WHERE name = 'sum'`);
          both[index]!.resolve();
          await Promise.all(both.map(({ promise }) => promise));
          await tx.client.query(`UPDATE ${bank.table} SET n = $1 WHERE name = 'sum'`, [row.n + 1]);
        }, { isolation }),
    });
    await using engine = createEngine({ store: bank.store, jobs: { job }, dataSources: { app: bank.app } });
    const runs = await engine.jobs.job.batchTrigger([{ input: 0 }, { input: 1 }]);

    await engine.runUntilIdle();

    assert.deepEqual(await Promise.all(runs.map(async ({ id }) => (await engine.getRun(id))!.status)), [
      "completed",
      "completed",
    ]);
    assert.equal((await bank.own.query(`SELECT n FROM ${bank.table}`)).rows[0].n, 2);
    assert.ok(executions > 2, `${executions} executions`);
  });
}

test("a transaction that triggers has to be READ COMMITTED", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform((tx) => tx.trigger(note, 1), { isolation: "serializable" });

  assert.match(run.error!, /A transaction that triggers, signals or sends has to be READ COMMITTED/);
});

test("a transaction whose backend is terminated takes effect once", async () => {
  await using bank = await aBank();
  let executions = 0;

  const { run, steps } = await bank.perform(async (tx) => {
    await bank.insert(tx, `execution ${++executions}`);
    if (executions > 2) return;
    const { rows: [{ pid }] } = await tx.client.query("SELECT pg_backend_pid() AS pid");
    await bank.own.query("SELECT pg_terminate_backend($1)", [pid]);
    while ((await bank.own.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", [pid])).rows.length > 0);
    if (executions === 1) await tx.client.query("SELECT 1"); // otherwise the last message finds out
  });

  assert.equal(run.status, "completed");
  assert.equal(steps[0]!.attempts, 1);
  assert.deepEqual(await bank.names(), ["execution 3"]);
});

/** A pool whose first answer to a commit of the store is lost after the commit. */
function losingAnswer(pool: pg.Pool): PostgresPool {
  let left = 1;
  return {
    connect: async () => {
      const client = await pool.connect();
      return {
        query: async (sql: string, parameters?: unknown[]) => {
          const answer = await client.query(sql, parameters);
          if (/ as r; COMMIT$/.test(sql) && left-- > 0) throw new Error("Connection terminated unexpectedly");
          return answer;
        },
        release: (destroy?: boolean) => client.release(destroy),
      };
    },
  };
}

test("a step whose answer to COMMIT is lost finds its record, and does not take effect twice", async () => {
  await using bank = await aBank({ wrap: losingAnswer });
  let executions = 0;

  const { run, steps } = await bank.perform(async (tx) => {
    await bank.insert(tx, `execution ${++executions}`);
    return executions;
  });

  assert.equal(run.output, 1);
  assert.equal(executions, 1);
  assert.equal(steps[0]!.attempts, 1);
  assert.deepEqual(await bank.names(), ["execution 1"]);
});

test("engine.transaction() says that it does not know the outcome if the answer to COMMIT is lost", async () => {
  await using bank = await aBank({ wrap: losingAnswer });
  await using engine = createEngine({ store: bank.store, jobs: { note }, dataSources: { app: bank.app } });

  const transacting = engine.transaction(bank.app, async (tx: Tx) => {
    await bank.insert(tx, "a");
    await tx.trigger(note, null);
  });

  await assert.rejects(transacting, (error) => error instanceof StoreError && error.outcomeUnknown);
  assert.deepEqual(await bank.names(), ["a"]);
});

test("engine.transaction() commits rows and their runs together, and throws what its function throws", async () => {
  await using bank = await aBank();
  await using engine = createEngine({ store: bank.store, jobs: { note }, dataSources: { app: bank.app } });

  const { value, runs } = await engine.transaction(bank.app, async (tx: Tx) => {
    await bank.insert(tx, "a");
    return await tx.trigger(note, { n: 1 }, { idempotencyKey: "k" });
  });
  const failing = engine.transaction(bank.app, async (tx: Tx) => {
    await bank.insert(tx, "b");
    await tx.trigger(note, { n: 2 });
    throw new RangeError("no");
  });

  await assert.rejects(failing, { name: "RangeError", message: "no" });
  assert.deepEqual(runs!.map(({ id, input, disposition }) => [id, input, disposition]), [
    [value.runId, { n: 1 }, "created"],
  ]);
  assert.equal((await engine.getRuns({ jobName: "note" })).total, 1);
  assert.deepEqual(await bank.names(), ["a"]);
});

test("a user's open transaction holds up nobody: others trigger, and executions end, meanwhile", async () => {
  await using bank = await aBank();
  await using engine = createEngine({ store: bank.store, jobs: { note }, dataSources: { app: bank.app } });

  const { runs } = await engine.transaction(bank.app, async (tx: Tx) => {
    await bank.insert(tx, "a");
    await tx.trigger(note, 1, { idempotencyKey: "k" });
    // The store could not answer these if the transaction had locked anything of its tables.
    const run = await engine.trigger(note, 2, { idempotencyKey: "another" });
    await engine.runUntilIdle();
    assert.equal((await engine.getRun(run.id))!.status, "completed");
  });

  assert.equal(runs!.length, 1);
});

test("a transaction on PostgreSQL that takes longer than its timeout is ended, and its connection closed", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform(async (tx) => {
    await bank.insert(tx, "a");
    await new Promise(() => {});
  }, { timeout: 50 });

  assert.match(run.error!, /Transaction "book" of job "order" took longer than 50 ms/);
  assert.deepEqual(await bank.names(), []);
  assert.equal(bank.own.totalCount, bank.own.idleCount);
});

test("strange strings go through the last message: quotes, tags, U+0000 and lone surrogates", async () => {
  await using bank = await aBank();
  const strange = ["$hf_$ $$ $x$", "'; COMMIT; --", "nul \0 and \\u0000", "lone \ud800", "\ue000"];

  const { run } = await bank.perform(() => Promise.resolve(strange));

  assert.deepEqual(run.output, strange);
  assert.deepEqual((await getSteps(bank.store, run.id))[0]!.output, strange);
});

test("a transaction leaves no setting in the session of a pooler", async () => {
  await using bank = await aBank({ url: pooled! });
  const { run } = await bank.perform((tx) => bank.insert(tx, "a").then(() => "done"));

  const sessions = await Promise.all(Array.from({ length: 4 }, () =>
    bank.own.query(
      "SELECT pg_sleep(0.1), current_setting('idle_in_transaction_session_timeout') AS idle, current_setting('enable_seqscan') AS scan",
    )));

  assert.equal(run.output, "done");
  for (const { rows: [{ idle, scan }] } of sessions) assert.deepEqual([idle, scan], ["0", "on"]);
}, pooled === null);

test("dataSource() refuses a pool of another database, that of the store, and what is none", async () => {
  await using bank = await aBank();
  await bank.own.query("CREATE DATABASE another").catch(() => {});
  const elsewhere = new pg.Pool({ connectionString: server!.url.replace(/\/postgres$/, "/another") });
  const app = bank.store.dataSource(elsewhere);
  await using engine = createEngine({ store: bank.store, jobs: {}, dataSources: { app: bank.app, elsewhere: app } });
  const lent = PostgresStore.from(bank.own, { schema: "lent" });

  const transacting = engine.transaction(app, () => Promise.resolve(1));

  await assert.rejects(transacting, {
    name: "StoreError",
    code: "internal", // another try would not help
    message: "The pool of the data source is connected to another database than the store",
  });
  await assert.rejects(engine.start(), /^StoreError: The pool of .* is connected to another database than the store$/);
  assert.throws(() => lent.dataSource(bank.own), /renewals of leases would wait for transactions/);
  assert.throws(() => lent.dataSource(), /needs a pool of yours/);
  assert.throws(() => bank.store.dataSource(7 as never), /needs a pool of npm:pg or npm:postgres/);
  const client = await bank.own.connect();
  for (const one of [client, new pg.Client(server!.url)]) {
    assert.throws(() => bank.store.dataSource(one), {
      name: "TypeError",
      message:
        "PostgresStore.dataSource() needs a pool, not one connection of npm:pg: each transaction has one of its own",
    });
    assert.throws(() => postgresDataSource(one), /postgresDataSource\(\) needs a pool, not one connection of npm:pg/);
  }
  client.release();
  await elsewhere.end();
});

test("dataSource() names the right that the role of its pool lacks, and refuses its sessions without standard strings", async () => {
  await using bank = await aBank();
  const role = `poor_${crypto.randomUUID().slice(0, 8)}`;
  await bank.own.query(`CREATE ROLE ${role} LOGIN`);
  const poor = new pg.Pool({ connectionString: Object.assign(new URL(server!.url), { username: role }).href });
  const odd = new pg.Pool({ connectionString: `${server!.url}?options=-c%20standard_conforming_strings%3Doff` });
  const dataSources = { poor: bank.store.dataSource(poor), odd: bank.store.dataSource(odd) };
  await using engine = createEngine({ store: bank.store, jobs: {}, dataSources });

  await assert.rejects(engine.transaction(dataSources.poor, () => Promise.resolve(1)), {
    name: "StoreError",
    code: "internal",
    message: /^The role of the pool of the data source lacks a right: permission denied for schema /,
  });
  await assert.rejects(engine.transaction(dataSources.odd, () => Promise.resolve(1)), {
    name: "StoreError",
    code: "internal",
    message: /^The pool of the data source has standard_conforming_strings off/,
  });
  await Promise.all([poor.end(), odd.end()]);
  await bank.own.query(`DROP ROLE ${role}`);
});

/** The schema of a store, in quotes. */
function schemaOf(store: PostgresStore): string {
  const { effects } = store.dataSource();
  const row = { id: "", kind: "trigger", name: "", value: null, options: null, storeId: null, at: 0 } as const;
  return /INSERT INTO ("\w+")/.exec(effects.insertion(row).sql)![1]!;
}
