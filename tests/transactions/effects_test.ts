import { sqliteDataSource } from "../../src/stores/sqlite/transactions/sqlite_data_source.ts";
import assert from "node:assert/strict";
import { sweep } from "../../src/engine/transactions/sweep.ts";
import type { ChangeDefinition } from "../../src/model/job/job_changes.ts";
import { StoreError } from "../../src/model/error.ts";
import type { Job } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { postgresDataSource } from "../../src/stores/postgres/transactions/postgres_data_source.ts";
import { emptyPglite, forEachSource, ON_PGLITE, type Rows } from "./for_each_source.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { FakeHost } from "../support/fake_host.ts";
import { anything, LEASE_MS, pass } from "../support/stores/for_each_store.ts";

/** A job whose only step writes a row, and counts how often its function is executed. */
function aBooking({ source, insert }: Rows, { step = "book", changes }: { step?: string } & ChangeDefinition = {}) {
  const counts = { executions: 0 };
  const job = defineJob({
    name: "order",
    input: anything,
    ...(changes === undefined ? {} : { changes }),
    run: async (tools) => {
      const value = await tools.transaction(step, source, (tx) => {
        counts.executions += 1;
        const inserted = insert(tx as never, `row ${counts.executions}`);
        const result = { execution: counts.executions };
        return source.kind === "sqlite" ? result : (async () => (await inserted, result))();
      });
      return value;
    },
  });
  return { job, counts };
}

/** The same store, whose records of steps fail: a process that dies between its commit and the record. */
function withoutRecords(store: Store): Store {
  return new Proxy(store, {
    get: (target, name) => {
      if (name === "saveStep") return () => new Promise(() => {});
      const member = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}

/** Executes a run until its effect is committed, and lets the process die before the record. */
async function dieBeforeRecord(rows: Rows, job: Job<unknown>, store: Store): Promise<string> {
  const dead = createEngine({
    store: withoutRecords(store),
    host: new FakeHost(),
    jobs: { job },
    dataSources: { app: rows.source },
  });
  const { id } = await dead.trigger(job, null);
  dead.runUntilIdle().catch(() => {});
  while ((await rows.names()).length === 0 || (await rows.effects()).length === 0) {
    await new Promise((resolve) => setTimeout(resolve, 1)); // the database is no part of the fake time
  }
  return id;
}

forEachSource("step.transaction() commits the rows with an effect, and records its result", async (rows) => {
  await using store = new MemoryStore({ host: new FakeHost() });
  const { job, counts } = aBooking(rows);
  await using engine = createEngine({ store, jobs: { job }, dataSources: { app: rows.source } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, { execution: 1 });
  assert.deepEqual(await rows.names(), ["row 1"]);
  assert.deepEqual(await rows.effects(), [`${id}/book`]);
  assert.equal(counts.executions, 1);
});

forEachSource(
  "a process that dies between commit and record has booked: the next one takes the output",
  async (rows) => {
    const host = new FakeHost();
    await using store = new MemoryStore({ host });
    const { job, counts } = aBooking(rows);
    const id = await dieBeforeRecord(rows, job, store);
    host.advance(LEASE_MS);
    await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: rows.source } });

    await engine.runUntilIdle();

    assert.deepEqual((await engine.getRun(id))!.output, { execution: 1 });
    assert.deepEqual(await rows.names(), ["row 1"]);
    assert.equal(counts.executions, 1);
  },
);

forEachSource("a renamed step finds the effect of its old name", async (rows) => {
  const host = new FakeHost();
  await using store = new MemoryStore({ host });
  const id = await dieBeforeRecord(rows, aBooking(rows).job, store);
  host.advance(LEASE_MS);
  const { job, counts } = aBooking(rows, { step: "reserve", changes: { renamed: { book: "reserve" } } });
  await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: rows.source } });

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRun(id))!.output, { execution: 1 });
  assert.equal(counts.executions, 0);
});

forEachSource(
  "a run that was cancelled between commit and record keeps its effect: its retry finds it after days",
  async (rows) => {
    const host = new FakeHost();
    await using store = new MemoryStore({ host });
    const { job, counts } = aBooking(rows);
    const id = await dieBeforeRecord(rows, job, store);
    await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: rows.source } });
    await engine.cancel(id);
    host.advance(3 * 86_400_000);
    const swept = await sweep(rows.source.effects, await sweepDeps(store, host));

    const retry = await engine.retrigger(id, { from: "failure" });
    await engine.runUntilIdle();

    assert.equal(swept, 0);
    assert.deepEqual((await engine.getRun(retry.id))!.output, { execution: 1 });
    assert.equal(counts.executions, 1);
  },
);

forEachSource("a retry executes a transaction again that was undone, and finds no effect of it", async (rows) => {
  await using store = new MemoryStore();
  const { job: { run }, counts } = aBooking(rows);
  const order = defineJob({
    name: "order",
    input: anything,
    onEnd: { statuses: ["failed"], run: (_, end) => end.undo("book", () => {}) },
    run: async (step, input) => {
      await run(step, input);
      if (counts.executions === 1) throw new Error("The warehouse is on fire");
    },
  });
  await using engine = createEngine({ store, jobs: { order }, dataSources: { app: rows.source }, logger: null });
  const { id } = await engine.trigger(order, null);
  await engine.runUntilIdle();

  const retry = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(retry.id))!.status, "completed");
  assert.deepEqual(await rows.names(), ["row 1", "row 2"]);
  const { endRunId } = (await engine.getRun(id))!;
  assert.deepEqual(new Set(await rows.effects()), new Set([`${id}/book`, `${endRunId}/book`]));
});

async function sweepDeps(store: Store, host: FakeHost) {
  const { id } = await store.getInfo();
  return { store, host, storeId: () => Promise.resolve(id), shortestRetentionMs: Infinity };
}

forEachSource(
  "sweep() deletes old effects of completed runs, and those of unknown runs after 30 days",
  async (rows) => {
    const host = new FakeHost();
    await using store = new MemoryStore({ host });
    const { job } = aBooking(rows);
    await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: rows.source } });
    const [known, deleted] = [await engine.trigger(job, null), await engine.trigger(job, null)];
    await engine.runUntilIdle();
    await engine.deleteRun(deleted.id);
    const deps = await sweepDeps(store, host);

    const young = await sweep(rows.source.effects, deps);
    host.advance(3_600_001);
    const old = await sweep(rows.source.effects, deps);
    const left = await rows.effects();
    host.advance(30 * 86_400_000);
    const oldest = await sweep(rows.source.effects, deps);

    assert.deepEqual([young, old, oldest], [0, 1, 1]);
    assert.deepEqual(left, [`${deleted.id}/book`]);
    assert.notEqual(known.id, deleted.id);
    assert.deepEqual(await rows.effects(), []);
  },
);

forEachSource(
  "sweep() leaves the effects of another store, and keeps none longer than half of the retention",
  async (rows) => {
    const host = new FakeHost();
    await using store = new MemoryStore({ host });
    await using other = new MemoryStore({ host });
    const { job } = aBooking(rows);
    await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: rows.source } });
    await engine.trigger(job, null);
    await engine.runUntilIdle();
    host.advance(60_000);
    const { keepMs } = rows.source.effects;
    Object.assign(rows.source.effects, { keepMs: Infinity });

    const ofKept = await sweep(rows.source.effects, await sweepDeps(store, host));
    Object.assign(rows.source.effects, { keepMs });
    const ofOther = await sweep(rows.source.effects, { ...await sweepDeps(other, host), shortestRetentionMs: 100 });
    const ofStore = await sweep(rows.source.effects, { ...await sweepDeps(store, host), shortestRetentionMs: 100 });

    assert.deepEqual([ofKept, ofOther, ofStore], [0, 0, 1]);
  },
);

forEachSource("a started engine sweeps once a minute", async (rows) => {
  const host = new FakeHost();
  await using store = new MemoryStore({ host });
  const { job } = aBooking(rows);
  await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: rows.source } });
  await engine.trigger(job, null);
  await engine.runUntilIdle();
  const { promise: swept, resolve } = Promise.withResolvers<void>();
  const forget = rows.source.effects.forget.bind(rows.source.effects);
  rows.source.effects.forget = (keys) => forget(keys).then(resolve);

  await engine.start();
  await pass(host, 3_700_000, 20_000);

  await swept;
  assert.deepEqual(await rows.effects(), []);
});

forEachSource("runUntilIdle() sweeps before it deletes runs that retention does not keep", async (rows) => {
  const host = new FakeHost();
  await using store = new MemoryStore({ host });
  const { job } = aBooking(rows);
  const options = { jobs: { job }, dataSources: { app: rows.source }, retention: { completed: 1_000 } };
  await using engine = createEngine({ store, host, ...options });
  await engine.trigger(job, null);
  await engine.runUntilIdle();
  const young = await rows.effects();

  host.advance(1_001);
  await engine.runUntilIdle();

  assert.equal(young.length, 1);
  assert.deepEqual(await rows.effects(), []);
  assert.equal((await engine.getRuns()).total, 0);
});

forEachSource("step.transaction() that throws leaves neither rows nor an effect, and is tried again", async (rows) => {
  await using store = new MemoryStore({ host: new FakeHost() });
  let attempts = 0;
  const job = defineJob({
    name: "order",
    input: anything,
    run: (step) =>
      step.transaction("book", rows.source, (tx) => {
        const inserted = rows.insert(tx as never, `attempt ${++attempts}`);
        const end = () => {
          if (attempts < 2) throw new Error("not yet");
          return attempts;
        };
        return rows.source.kind === "sqlite" ? end() : (async () => (await inserted, end()))();
      }, { retry: { maxAttempts: 2, delay: 0 } }),
  });
  await using engine = createEngine({ store, jobs: { job }, dataSources: { app: rows.source } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, 2);
  assert.deepEqual(await rows.names(), ["attempt 2"]);
});

forEachSource("a step whose data source does not answer fails, and is retried by its policy", async (rows) => {
  await using store = new MemoryStore();
  const { effects } = rows.source;
  const migrate = effects.migrate.bind(effects);
  let failures = 0;
  effects.migrate = (isJoined) => ++failures <= 3 ? Promise.reject(new StoreError("It is down")) : migrate(isJoined); // the begin and the relay look, too
  const job = defineJob({
    name: "job",
    input: anything,
    run: (step) => step.transaction("book", rows.source, (() => 7) as never, { retry: { maxAttempts: 2, delay: 0 } }),
  });
  await using engine = createEngine({ store, jobs: { job }, dataSources: { app: rows.source } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  const { status, output } = (await engine.getRun(id))!;
  const step = (await engine.getSteps(id))![0]!;
  assert.deepEqual([status, output, step.attempts, failures], ["completed", 7, 2, 4]);
});

forEachSource(
  "engine.transaction() commits rows in a database of its own, and throws what its function throws",
  async (rows) => {
    await using store = new MemoryStore({ host: new FakeHost() });
    await using engine = createEngine({ store, jobs: {}, dataSources: { app: rows.source } });

    const { value } = await engine.transaction(rows.source, (tx) => {
      const inserted = rows.insert(tx as never, "a");
      return rows.source.kind === "sqlite" ? 7 : (async () => (await inserted, 7))();
    });
    const call = engine.transaction(rows.source, (tx) => {
      rows.insert(tx as never, "b");
      throw new RangeError("no");
    });

    await assert.rejects(call, RangeError);
    assert.equal(value, 7);
    assert.deepEqual(await rows.names(), ["a"]);
    assert.deepEqual(await rows.effects(), []);
  },
);

forEachSource("a lease that is in doubt at the commit is renewed before it", async (rows) => {
  const host = new FakeHost();
  await using store = new MemoryStore({ host });
  const { source, insert } = rows;
  let executions = 0;
  const job = defineJob({
    name: "order",
    input: anything,
    run: (step) =>
      step.transaction("book", source, (tx) => {
        if (++executions === 1) host.advance(LEASE_MS + 1); // the event loop was blocked
        const inserted = insert(tx as never, "a");
        return source.kind === "sqlite" ? 1 : (async () => (await inserted, 1))();
      }),
  });
  await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: source } });
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await pass(host, 1_000);
  await idle;

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(await rows.names(), ["a"]);
});

Deno.test("PostgreSQL: a transaction that takes too long ends, and its attempt fails", ON_PGLITE, async () => {
  const host = new FakeHost();
  await using store = new MemoryStore({ host });
  const database = await emptyPglite();
  const source = postgresDataSource(database);
  const reached = Promise.withResolvers<void>();
  const job = defineJob({
    name: "order",
    input: anything,
    run: (step) =>
      step.transaction("book", source, () => {
        reached.resolve();
        return new Promise(() => {});
      }, { timeout: 50 }),
  });
  await using engine = createEngine({ store, host, jobs: { job }, dataSources: { app: source } });
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await reached.promise;
  await pass(host, 100);
  await idle;

  assert.match((await engine.getRun(id))!.error!, /Transaction "book" of job "order" took longer than 50 ms/);
});

Deno.test("postgresDataSource() refuses a wrap that is no function", ON_PGLITE, async () => {
  const database = await emptyPglite();

  assert.throws(() => postgresDataSource(database, { wrap: 5 as never }), {
    name: "TypeError",
    message: "wrap of postgresDataSource() must be a function, not a number",
  });
});

Deno.test("PostgreSQL: wrap() makes tx.db of the client, and an isolation is set", ON_PGLITE, async () => {
  await using store = new MemoryStore({ host: new FakeHost() });
  const database = await emptyPglite();
  const source = postgresDataSource(database, {
    wrap: (client: { query(sql: string): Promise<{ rows: { v: string }[] }> }) => ({
      show: async (name: string) => (await client.query(`SELECT current_setting('${name}') AS v`)).rows[0]!.v,
    }),
  });
  await using engine = createEngine({ store, jobs: {}, dataSources: { app: source } });

  const { value } = await engine.transaction(source, (tx) => tx.db.show("transaction_isolation"), {
    isolation: "serializable",
  });

  assert.equal(value, "serializable");
});

for (const sql of ["ROLLBACK", "COMMIT", "ROLLBACK AND CHAIN", "COMMIT AND CHAIN"]) {
  Deno.test(`PGlite: a step whose function executes ${sql} fails, and leaves no effect`, ON_PGLITE, async () => {
    const database = await emptyPglite();
    const source = postgresDataSource(database);
    const job = defineJob({
      name: "order",
      input: anything,
      run: (step) => step.transaction("book", source, async (tx) => void await tx.client.query(sql)),
    });
    await using store = new MemoryStore({ host: new FakeHost() });
    await using engine = createEngine({ store, jobs: { job }, dataSources: { app: source } });
    const { id } = await engine.trigger(job, null);

    await engine.runUntilIdle();

    assert.match((await engine.getRun(id))!.error!, /The transaction was ended by one of its statements/);
    assert.deepEqual((await database.query("SELECT * FROM holdfast.effects")).rows, []);
  });
}

Deno.test("postgresDataSource() refuses what is no pool, and unknown options", () => {
  assert.throws(
    () => postgresDataSource(7 as never),
    /needs a pool of npm:pg or npm:postgres, a PGlite, or an address/,
  );
  assert.throws(() => postgresDataSource("postgres://localhost/a", { pool: 1 } as never), /has no option "pool"/);
});

Deno.test("sqliteDataSource() refuses unknown options", async () => {
  await assert.rejects(sqliteDataSource(":memory:", { keepEffect: "1h" } as never), {
    name: "TypeError",
    message: /sqliteDataSource\(\) has no option "keepEffect"/,
  });
});

Deno.test("a data source that has opened its file can be closed twice", async () => {
  const file = await Deno.makeTempFile();
  const source = await sqliteDataSource(file);

  await source.close();
  await source.close();

  await Deno.remove(file);
});
