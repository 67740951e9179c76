import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { NonRetryableError, StoreError, WaitExpiredError } from "../../src/model/error.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { getRun, getSteps } from "../../src/store/reads.ts";
import { SQLITE_CHECKS } from "../../src/stores/sqlite/checks.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { sqliteDataSource } from "../../src/stores/sqlite/transactions/sqlite_data_source.ts";
import type { SqliteTransaction } from "../../src/stores/sqlite/transactions/sqlite_transaction.ts";
import { anything, pass } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { FakeHost } from "../support/fake_host.ts";

type Work = (tx: SqliteTransaction) => unknown;

/** A store over a database with a table of its owner, and what the tests do with them. */
async function aBank(wrap: (database: DatabaseSync) => DatabaseSync = (database) => database) {
  const database = new DatabaseSync(":memory:");
  database.exec("CREATE TABLE rows (name TEXT NOT NULL, n INTEGER)");
  const host = new FakeHost();
  const store = await SqliteStore.from(wrap(database) as unknown as SqliteDriver, { host });
  await store.migrate();
  const app = store.dataSource();
  const names = () => database.prepare("SELECT name FROM rows ORDER BY rowid").all().map(({ name }) => name);
  return {
    database,
    host,
    store,
    app,
    names,
    /** Executes a job whose only step is a transaction. */
    async perform(work: Work, options = {}) {
      const warnings: string[] = [];
      const job = defineJob({
        name: "order",
        input: anything,
        run: (step) => step.transaction("book", app, work, options),
      });
      const logger = { info: () => {}, warn: (text: string) => void warnings.push(text), error: () => {} };
      await using engine = createEngine({ store, host, jobs: { job, note }, dataSources: { app }, logger });
      const { id } = await engine.trigger("order", null, { labels: { org: "acme" } });
      await engine.runUntilIdle({ maxRuns: 1 });
      return { run: (await engine.getRun(id))!, steps: await engine.getSteps(id), warnings };
    },
    async [Symbol.asyncDispose]() {
      await store.close();
      database.close();
    },
  };
}

const note = defineJob({ name: "note", input: anything, run: () => null });
const insert = (tx: SqliteTransaction, name: string) => tx.run("INSERT INTO rows (name) VALUES (?)", name);

Deno.test("step.transaction() writes rows and records its result, and a replay returns it", async () => {
  await using bank = await aBank();
  let executions = 0;
  const job = defineJob({
    name: "order",
    input: anything,
    async run(step) {
      const left = await step.transaction("book", bank.app, (tx) => {
        executions += 1;
        assert.deepEqual(insert(tx, "a"), { changes: 1 });
        assert.deepEqual(tx.all("SELECT name FROM rows").map(({ name }) => name), ["a"]);
        return tx.get<{ n: number }>("SELECT count(*) AS n FROM rows")?.n;
      });
      await step.sleep("nap", 1_000);
      return left;
    },
  });
  await using engine = createEngine({
    store: bank.store,
    host: bank.host,
    jobs: { job },
    dataSources: { app: bank.app },
  });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  bank.host.advance(1_000);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, 1);
  assert.equal(executions, 1);
  assert.deepEqual(bank.names(), ["a"]);
});

Deno.test("step.transaction() rolls back what its function wrote before it threw, and is tried again", async () => {
  await using bank = await aBank();
  let attempts = 0;

  const { run, steps } = await bank.perform((tx) => {
    insert(tx, `attempt ${++attempts}`);
    if (attempts < 3) throw new Error("not yet");
    return attempts;
  }, { retry: { maxAttempts: 3, delay: 0 } });

  assert.equal(run.output, 3);
  assert.equal(steps[0]!.attempts, 3);
  assert.deepEqual(bank.names(), ["attempt 3"]);
});

Deno.test("step.transaction() is not tried again after a NonRetryableError", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform((tx) => {
    insert(tx, "a");
    throw new NonRetryableError("no");
  }, { retry: { maxAttempts: 3, delay: 0 } });

  assert.match(run.error!, /no/);
  assert.deepEqual(bank.names(), []);
});

Deno.test("step.transaction() rolls back if its result cannot be stored, and is not tried again", async () => {
  await using bank = await aBank();
  let attempts = 0;

  const { run } = await bank.perform((tx) => {
    attempts += 1;
    insert(tx, "a");
    return 7n;
  }, { retry: { maxAttempts: 3, delay: 0 } });

  assert.match(run.error!, /The result of step "book"/);
  assert.equal(attempts, 1);
  assert.deepEqual(bank.names(), []);
});

Deno.test("step.transaction() on SQLite refuses a function that returns a promise, with nothing left of it", async () => {
  await using bank = await aBank();
  let attempts = 0;

  const { run } = await bank.perform(async (tx) => {
    attempts += 1;
    insert(tx, "a");
    await Promise.resolve();
    throw new Error("nobody sees this");
  }, { retry: { maxAttempts: 3, delay: 0 } });

  assert.match(
    run.error!,
    /The function of transaction "book" of job "order" returned a promise: on SQLite it has to be synchronous/,
  );
  assert.equal(attempts, 1);
  assert.deepEqual(bank.names(), []);
});

Deno.test("step.transaction() gives its function a tx that ends with it", async () => {
  await using bank = await aBank();
  let kept: SqliteTransaction;

  await bank.perform((tx) => void (kept = tx));

  for (const call of [() => kept.run("DELETE FROM rows"), () => kept.all("SELECT 1"), () => kept.trigger(note, null)]) {
    assert.throws(call, { name: "TypeError", message: "The transaction has ended" });
  }
});

for (
  const [sql, message] of [
    ["PRAGMA synchronous = OFF", /A transaction cannot execute "PRAGMA": only queries and changes of rows/],
    ["/* note */ COMMIT", /cannot execute "COMMIT"/],
    ["-- SELECT\nBEGIN", /cannot execute "BEGIN"/],
    ["SAVEPOINT x", /cannot execute "SAVEPOINT"/],
    ["DROP TABLE rows", /cannot execute "DROP"/],
    ["INSERT OR /* */ ROLLBACK INTO rows (name) VALUES ('a')", /cannot execute OR ROLLBACK/],
    ["DELETE FROM holdfast_runs", /The tables of Holdfast cannot be changed here/],
    ['WITH x AS (SELECT 1) UPDATE "holdfast_runs" SET status = 1', /The tables of Holdfast cannot be changed here/],
    ["INSERT INTO 'holdfast_steps' VALUES (1)", /The tables of Holdfast cannot be changed here/],
    ["INSERT INTO rows (name) VALUES ('a'); DELETE FROM rows", /executes one statement, not several: call it once for/],
    ["SELECT 1;/**/;\nSELECT 2", /executes one statement, not several/],
  ] as const
) {
  Deno.test(`a transaction on SQLite does not execute ${sql.replaceAll("\n", " ")}`, async () => {
    await using bank = await aBank();

    const { run } = await bank.perform((tx) => void tx.run(sql));

    assert.match(run.error!, message);
  });
}

for (
  const [parameter, kind] of [
    [new Date(0), "a Date"],
    [{ name: 1 }, "an object"],
    [["a"], "an Array"],
    [Promise.resolve("a"), "a Promise"],
    [new Map(), "a Map"],
    [true, "a boolean"],
    [undefined, "undefined"],
  ] as const
) {
  Deno.test(`a transaction on SQLite takes no parameter that is ${kind}`, async () => {
    await using bank = await aBank();
    const message =
      `Parameter 1 of a statement must be a number, a bigint, a string, a Uint8Array or null, not ${kind}`;

    const { run } = await bank.perform((tx) => {
      for (const call of [tx.run, tx.get, tx.all]) {
        assert.throws(
          () => void call("INSERT INTO rows (name, n) VALUES (?, ?)", parameter as unknown as string, 2),
          { name: "TypeError", message },
        );
        assert.throws(
          () => void call("SELECT ?, ?", "a", parameter as unknown as string),
          /^TypeError: Parameter 2 of/,
        );
      }
      const row = tx.get("SELECT ? AS a, ? AS b, length(?) AS c, ? AS d", 2n, "b", new Uint8Array(3), null);
      return Object.values(row!);
    });

    assert.deepEqual([run.error, run.output], [null, [2, "b", 3, null]]);
    assert.deepEqual(bank.names(), []);
  });
}

Deno.test("a transaction on SQLite executes queries and changes of rows in any words", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform((tx) => {
    tx.run("insert into rows (name) values ('commit or rollback -- it''s data')");
    tx.run("/* a comment */ WITH x (n) AS (VALUES (1)) INSERT INTO rows SELECT 'b', n FROM x");
    tx.run("REPLACE INTO rows (name, n) VALUES (?, ?)", "c", 2n);
    tx.run("-- it's two;\nINSERT INTO rows (name) SELECT 'd; -- it''s' AS \"a;b\" ; /* that's; all */ ; -- don't;");
    const deleted = tx.get("DELETE FROM rows WHERE n = 2 RETURNING name");
    return [deleted?.name, tx.all("SELECT status FROM holdfast_runs").length, tx.get("SELECT 1 WHERE 0") === undefined];
  });

  assert.deepEqual(run.output, ["c", 1, true]);
  assert.deepEqual(bank.names(), ["commit or rollback -- it's data", "b", "d; -- it's"]);
});

Deno.test("tx.trigger() in a step adds a run with the labels of its run, and only if the step commits", async () => {
  await using bank = await aBank();
  let attempts = 0;

  const { run } = await bank.perform((tx) => {
    attempts += 1;
    const { runId } = tx.trigger(note, { attempt: attempts }, { by: "the bank" });
    if (attempts === 1) throw new Error("not yet");
    return runId;
  }, { retry: { maxAttempts: 2, delay: 0 } });

  const triggered = (await getRun(bank.store, run.output as string))!;
  assert.deepEqual(triggered.input, { attempt: 2 });
  assert.deepEqual([triggered.labels, triggered.triggeredBy], [{ org: "acme" }, "the bank"]);
  const [runs] = bank.database.prepare("SELECT count(*) AS n FROM holdfast_runs WHERE job = 'note'").all();
  assert.equal(runs!.n, 1);
});

Deno.test("tx.trigger() checks at once, and a function that catches the refusal goes on without that run", async () => {
  await using bank = await aBank();

  const { run } = await bank.perform((tx) => {
    const refusals: string[] = [];
    for (const ask of [() => tx.trigger("nothing", null), () => tx.trigger(note, null, { idempotencyKey: "" })]) {
      try {
        ask();
      } catch (error) {
        refusals.push((error as Error).message);
      }
    }
    insert(tx, "a");
    return refusals;
  });

  const refusals = run.output as string[];
  assert.match(refusals[0]!, /cannot start a run of job "nothing"/);
  assert.match(refusals[1]!, /idempotencyKey/);
  assert.deepEqual(bank.names(), ["a"]);
});

Deno.test("a trigger of a table that rolls everything back does not take the writes beside it with it", async () => {
  await using bank = await aBank();
  bank.database.exec(
    "CREATE TRIGGER refuse BEFORE INSERT ON rows WHEN new.name = 'bad' BEGIN SELECT RAISE(ROLLBACK, 'bad row'); END",
  );
  const errors: string[] = [];
  const job = defineJob({
    name: "order",
    input: anything,
    run: (step, input) =>
      step.transaction("book", bank.app, (tx) => {
        if (input !== "bad") return void insert(tx, String(input));
        try {
          insert(tx, "bad");
        } catch (error) {
          errors.push((error as Error).message);
        }
        insert(tx, "after the end");
      }),
  });
  await using engine = createEngine({
    store: bank.store,
    host: bank.host,
    jobs: { job },
    dataSources: { app: bank.app },
    worker: { concurrency: 60 },
  });
  const inputs = Array.from({ length: 51 }, (_, index) => index === 20 ? "bad" : `row ${index}`);
  const runs = await engine.jobs.job.batchTrigger(inputs.map((input) => ({ input })));

  await engine.runUntilIdle();

  const ended = await Promise.all(runs.map(({ id }) => engine.getRun(id)));
  assert.deepEqual(ended.filter((run) => run!.status === "completed").length, 50);
  assert.match(ended[20]!.error!, /The transaction has ended/);
  assert.ok(errors.length >= 1 && errors.every((error) => /bad row/.test(error)));
  assert.deepEqual(bank.names().toSorted(), inputs.filter((input) => input !== "bad").toSorted());
});

Deno.test("a function that hides that its transaction was rolled back fails, and commits nothing", async () => {
  await using bank = await aBank();
  bank.database.exec("CREATE TRIGGER refuse BEFORE INSERT ON rows BEGIN SELECT RAISE(ROLLBACK, 'no'); END");

  const { run } = await bank.perform((tx) => {
    try {
      insert(tx, "a");
    } catch {
      // The function does not care.
    }
  });

  assert.match(run.error!, /The transaction was ended by one of its statements/);
  assert.deepEqual(bank.names(), []);
});

Deno.test("a function that executes ROLLBACK and BEGIN by its database fails, and the error says so", async () => {
  await using bank = await aBank();
  let executions = 0;
  const work = (isThrowing: boolean) => (tx: SqliteTransaction) => {
    executions += 1;
    if (executions > 1) throw new Error("executed again"); // alone, since a batch of one is no batch that failed
    insert(tx, "a");
    bank.database.exec("ROLLBACK; BEGIN");
    bank.database.exec("INSERT INTO rows (name) VALUES ('b')");
    if (isThrowing) throw new RangeError("no");
  };

  const { run, steps } = await bank.perform(work(false));
  executions = 0;
  const thrown = await bank.perform(work(true));

  assert.match(run.error!, /The transaction was ended by one of its statements/);
  assert.match(run.error!, /what was written before a COMMIT, or after the end, is committed$/);
  assert.deepEqual(steps.map(({ status }) => status), ["failed"]);
  assert.match(thrown.run.error!, /no/);
  assert.deepEqual(bank.names(), []);
});

for (const sql of ["COMMIT", "END; BEGIN"]) {
  Deno.test(`${sql} by the database of a function fails, and the writes that share its commit are done once`, async () => {
    await using bank = await aBank();
    const { store, host, app } = bank;
    const steps = defineJob({
      name: "steps",
      input: anything,
      run: async (step, name) => {
        await step.run("plain", () => null);
        await step.transaction("book", app, (tx) => insert(tx, String(name)));
      },
    });
    const ends = defineJob({
      name: "ends",
      input: anything,
      run: (step) =>
        step.transaction("book", app, (tx) => {
          insert(tx, "gone");
          bank.database.exec(sql);
        }),
    });
    const jobs = { steps, ends };
    const options = { store, host, jobs, dataSources: { app }, worker: { concurrency: 40 }, logger: null };
    await using engine = createEngine(options);
    const names = Array.from({ length: 20 }, (_, index) => `step ${index}`);
    await engine.jobs.steps.batchTrigger(names.map((input) => ({ input })));
    await engine.jobs.ends.batchTrigger(names.map((input) => ({ input })));

    const [, refused] = await Promise.allSettled([
      engine.transaction(app, (tx) => insert(tx, "request")),
      engine.transaction(app, () => bank.database.exec(sql)),
      engine.runUntilIdle(),
    ]);

    assert.match(String((refused as PromiseRejectedResult).reason), /FOREIGN KEY constraint failed/);
    const { runs } = await engine.getRuns({ jobName: "ends", status: "failed" });
    assert.equal(runs.length, names.length);
    assert.match(runs[0]!.error!, /FOREIGN KEY constraint failed/);
    assert.deepEqual(bank.names().toSorted(), ["request", ...names].toSorted());
    assert.deepEqual(SQLITE_CHECKS.flatMap((check) => bank.database.prepare(check.sql).all()), []);
  });
}

const ORPHANS =
  "CREATE TABLE parents (id INTEGER PRIMARY KEY); CREATE TABLE children (parent INTEGER REFERENCES parents " +
  "DEFERRABLE INITIALLY DEFERRED)";

Deno.test("a constraint that is checked at COMMIT fails an attempt, and not the writes beside it", async () => {
  await using bank = await aBank();
  bank.database.exec(ORPHANS);
  let calls = 0;
  const work = (tx: SqliteTransaction) => {
    calls += 1;
    return tx.run("INSERT INTO children VALUES (99)").changes;
  };
  const orphan = defineJob({
    name: "orphan",
    input: anything,
    run: (step) => step.transaction("book", bank.app, work, { retry: { maxAttempts: 1 } }),
  });
  const { store, host, app } = bank;
  await using engine = createEngine({ store, host, jobs: { orphan, note }, dataSources: { app }, logger: null });

  const { id } = await engine.trigger("orphan", null);
  const others = await Promise.all(Array.from({ length: 5 }, () => engine.trigger("note", null)));
  await engine.runUntilIdle();

  const run = (await engine.getRun(id))!;
  assert.equal(run.status, "failed");
  assert.ok(calls <= 2, `${calls} calls: with other writes, and alone`);
  assert.match(run.error!, /FOREIGN KEY constraint failed/);
  assert.equal((await engine.getRuns({ status: "completed" })).total, others.length);
  await assert.rejects(engine.transaction(app, work), /FOREIGN KEY constraint failed/);
  assert.deepEqual(bank.database.prepare("SELECT * FROM children").all(), []);
});

Deno.test("a constraint of another file that is checked at COMMIT fails an attempt", async () => {
  await using source = await sqliteDataSource(":memory:");
  await source.exec(ORPHANS);
  const orphan = defineJob({
    name: "orphan",
    input: anything,
    run: (step) =>
      step.transaction("book", source, (tx) => tx.run("INSERT INTO children VALUES (99)").changes, {
        retry: { maxAttempts: 1 },
      }),
  });
  await using store = await SqliteStore.open(":memory:");
  await using engine = createEngine({ store, jobs: { orphan }, dataSources: { app: source }, logger: null });

  const { id } = await engine.trigger("orphan", null);
  await engine.runUntilIdle();

  assert.match((await engine.getRun(id))!.error!, /FOREIGN KEY constraint failed/);
});

Deno.test("a transaction whose COMMIT fails is executed again, and takes effect once", async () => {
  let failures = 1;
  await using bank = await aBank((database) =>
    new Proxy(database, {
      get: (target, name) => {
        const member = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        if (name !== "exec") return member.bind(target);
        return (sql: string) => {
          const rows = target.prepare("SELECT count(*) AS n FROM rows").get()!.n;
          if (sql === "COMMIT" && rows !== 0 && failures-- > 0) throw new Error("database or disk is full");
          return target.exec(sql);
        };
      },
    })
  );
  let executions = 0;

  const performing = bank.perform((tx) => {
    executions += 1;
    insert(tx, "a");
  });
  await pass(bank.host, 1_000); // it is repeated after a pause
  const { run } = await performing;

  assert.equal(run.status, "completed");
  assert.equal(executions, 2);
  assert.deepEqual(bank.names(), ["a"]);
});

Deno.test("a transaction on SQLite that takes long is warned of once for each step, and cannot have a timeout", async () => {
  await using bank = await aBank();
  const { host } = bank;
  const job = defineJob({
    name: "order",
    input: anything,
    async run(step: StepContext) {
      for (let time = 0; time < 2; time++) await step.transaction("slow", bank.app, () => host.advance(62));
      await step.transaction("late", bank.app, () => {}, { timeout: 5 });
    },
  });
  const warnings: string[] = [];
  const logger = { info: () => {}, warn: (text: string) => void warnings.push(text), error: () => {} };
  await using engine = createEngine({ store: bank.store, host, jobs: { job }, dataSources: { app: bank.app }, logger });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.deepEqual(warnings.filter((text) => /took/.test(text)), [
    'Transaction "slow" of job "order" took 62 ms: nobody else can write to the file meanwhile',
    'Transaction "slow#2" of job "order" took 62 ms: nobody else can write to the file meanwhile',
  ]);
  assert.match((await engine.getRun(id))!.error!, /a synchronous function cannot be interrupted/);
});

Deno.test("step.transaction() of a run that was cancelled before it commits nothing", async () => {
  await using bank = await aBank();
  let executions = 0;
  const job = defineJob({
    name: "order",
    input: anything,
    async run(step) {
      const cancelled = engine.cancel(step.runId); // it is in the queue of writes first
      await step.transaction("book", bank.app, (tx) => {
        executions += 1;
        insert(tx, "a");
      });
      await cancelled;
    },
  });
  await using engine = createEngine({
    store: bank.store,
    host: bank.host,
    jobs: { job },
    dataSources: { app: bank.app },
  });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "cancelled");
  assert.equal(executions, 0);
  assert.deepEqual(bank.names(), []);
});

Deno.test("step.transaction() needs a data source that the engine names", async () => {
  await using bank = await aBank();
  await using other = await aBank();
  const job = defineJob({
    name: "order",
    input: anything,
    run: (step) => step.transaction("book", other.app, () => {}, { retry: { maxAttempts: 5, delay: 0 } }),
  });
  await using engine = createEngine({ store: bank.store, host: bank.host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();

  const { error, failedStepName } = (await engine.getRun(id))!;
  assert.equal(failedStepName, "book");
  assert.match(error!, /is not one of the dataSources of createEngine\(\)/);
  assert.equal((await engine.getSteps(id))[0]!.attempts, 1);
});

for (const [given, message] of [[7, /must be an object/], [{ app: {} }, /dataSources.app must be/]] as const) {
  Deno.test(`createEngine() refuses dataSources that are ${JSON.stringify(given)}`, async () => {
    await using bank = await aBank();
    const dataSources = given as never;

    assert.throws(() => createEngine({ store: bank.store, jobs: { note }, dataSources }), {
      name: "TypeError",
      message,
    });
  });
}

Deno.test("createEngine() refuses a data source with two names", async () => {
  await using bank = await aBank();
  const dataSources = { a: bank.app, b: bank.app };

  assert.throws(() => createEngine({ store: bank.store, jobs: { note }, dataSources }), /same data source as/);
});

function anEngineOf(bank: Awaited<ReturnType<typeof aBank>>, host = bank.host) {
  const review = defineJob({
    name: "review",
    input: anything,
    run: (step) => step.wait("review", { timeout: 1_000 }),
  });
  return createEngine({ store: bank.store, host, jobs: { note, review }, dataSources: { app: bank.app } });
}

Deno.test("engine.transaction() returns the value, the runs and the signals, which are there with the rows", async () => {
  await using bank = await aBank();
  await using engine = anEngineOf(bank);
  const waiting = await engine.trigger("review", null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(waiting.id);
  const types: string[] = [];
  engine.on("run:trigger", ({ runId }) => types.push(runId));

  const { value, runs, signals } = await engine.transaction(bank.app, (tx) => {
    insert(tx, "a");
    const first = tx.trigger(note, { n: 1 }, { idempotencyKey: "k", labels: { org: "acme" } });
    tx.trigger("note", { n: 2 });
    tx.signal(wait!.id, { signalId: "s1", payload: { ok: true } });
    return first.runId;
  });

  assert.deepEqual(runs!.map(({ id, input, disposition }) => [id, input, disposition]), [
    [value, { n: 1 }, "created"],
    [runs![1]!.id, { n: 2 }, "created"],
  ]);
  assert.deepEqual(runs![0]!.labels, { org: "acme" });
  assert.deepEqual(signals!.map(({ disposition }) => disposition), ["accepted"]);
  assert.deepEqual(types, runs!.map(({ id }) => id));
  assert.deepEqual(bank.names(), ["a"]);
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(waiting.id))!.status, "completed");
});

Deno.test("engine.transaction() throws what its function throws, and leaves nothing", async () => {
  await using bank = await aBank();
  await using engine = anEngineOf(bank);
  const events: unknown[] = [];
  engine.on("*", (event) => events.push(event));
  const error = new RangeError("too many");

  const call = engine.transaction(bank.app, (tx) => {
    insert(tx, "a");
    tx.trigger(note, null, { idempotencyKey: "k" });
    throw error;
  });

  await assert.rejects(call, (thrown) => thrown === error);
  assert.deepEqual(bank.names(), []);
  assert.deepEqual(events, []);
  assert.equal((await engine.trigger(note, null, { idempotencyKey: "k" })).disposition, "created");
});

Deno.test("engine.transaction() throws the refusal of a signal, and rolls its rows back", async () => {
  await using bank = await aBank();
  await using engine = anEngineOf(bank);
  const waiting = await engine.trigger("review", null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(waiting.id);
  bank.host.advance(1_000);

  const call = engine.transaction(bank.app, (tx) => {
    insert(tx, "a");
    tx.signal(wait!.id, { signalId: "s1", payload: 1 });
  });

  await assert.rejects(call, WaitExpiredError);
  assert.deepEqual(bank.names(), []);
});

Deno.test("engine.transaction() throws a StoreError if a statement has ended the transaction", async () => {
  await using bank = await aBank();
  await using engine = anEngineOf(bank);
  bank.database.exec("CREATE TRIGGER refuse BEFORE INSERT ON rows BEGIN SELECT RAISE(ROLLBACK, 'no'); END");

  const call = engine.transaction(bank.app, (tx) => {
    try {
      insert(tx, "a");
    } catch {
      // The function does not care.
    }
  });

  await assert.rejects(call, StoreError);
});

Deno.test("tx.trigger() refuses a job whose schema is asynchronous", async () => {
  await using bank = await aBank();
  const slow = defineJob({
    name: "slow",
    input: { "~standard": { version: 1, vendor: "test", validate: (value) => Promise.resolve({ value }) } },
    run: () => null,
  });
  await using engine = createEngine({
    store: bank.store,
    host: bank.host,
    jobs: { slow },
    dataSources: { app: bank.app },
  });

  const call = engine.transaction(bank.app, (tx) => tx.trigger(slow, null));

  await assert.rejects(call, { name: "TypeError", message: /The schema of job "slow" is asynchronous/ });
});

Deno.test("tx.trigger() keeps the trace that a plugin sets, and tells it of the commit", async () => {
  await using bank = await aBank();
  await using engine = anEngineOf(bank);
  const trace = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };
  const outcomes: unknown[] = [];
  engine.use({
    name: "tracer",
    install: ({ around }) =>
      around({
        trigger: async (info, next) => {
          info.trace = trace as never;
          const outcome = await next();
          outcomes.push(outcome.kind);
          return outcome;
        },
      }),
  });

  const { runs } = await engine.transaction(bank.app, (tx) => void tx.trigger(note, null));
  await engine.transaction(bank.app, (tx) => {
    tx.trigger(note, null);
    throw new Error("no");
  }).catch(() => {});

  await bank.host.settle();
  assert.deepEqual(outcomes, ["triggered", "refused"]);
  assert.ok((await bank.store.getRunState(runs![0]!.id))!.trace !== null);
});

Deno.test("steps, triggers and signals without a data source execute no statement of transactions", async () => {
  const statements: string[] = [];
  await using bank = await aBank((database) =>
    new Proxy(database, {
      get: (target, name) => {
        const member = Reflect.get(target, name, target);
        if (typeof member !== "function") return member;
        return (...given: unknown[]) => {
          if (typeof given[0] === "string") statements.push(given[0]);
          return member.apply(target, given);
        };
      },
    })
  );
  const job = defineJob({ name: "order", input: anything, run: (step) => step.run("book", () => 1) });
  await using engine = createEngine({ store: bank.store, host: bank.host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.equal((await getSteps(bank.store, id))[0]!.output, 1);
  assert.ok(statements.length > 10);
  assert.deepEqual(statements.filter((sql) => /SAVEPOINT|ROLLBACK TO|holdfast_(effects|outbox)/.test(sql)), []);
});
