import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { z } from "zod";
import type { Rows } from "./for_each_source.ts";
import { forEachSource } from "./for_each_source.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { StoreError } from "../../src/model/error.ts";
import type { Schema } from "../../src/model/schema.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import type { SqliteDriver } from "../../src/stores/sqlite/sqlite_database.ts";
import { sqliteDataSource } from "../../src/stores/sqlite/transactions/sqlite_data_source.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { createHandler } from "../../src/http/handler.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { FakeHost } from "../support/fake_host.ts";
import { anything } from "../support/stores/for_each_store.ts";

const positive: Schema<{ n: number }> = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => {
      const { n } = value as { n: number };
      return n > 0 ? { value: { n } } : { issues: [{ message: "must be positive" }] };
    },
  },
};
const optional: Schema<number | undefined> = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => value === null ? { issues: [{ message: "must not be null" }] } : { value: value as number },
  },
};
const note = defineJob({ name: "note", input: positive, run: () => null });
const review = defineJob({ name: "review", input: anything, run: (step) => step.wait("review") });

function anEngine(store: Store, { source }: Rows, host?: FakeHost) {
  return createEngine({
    store,
    ...(host === undefined ? {} : { host }),
    jobs: { note, review },
    dataSources: { app: source },
  });
}

/** Starts an engine, which relays, until a run of "note" is there. */
async function untilRelayed(engine: ReturnType<typeof anEngine>, count = 1): Promise<{ id: string; input: unknown }[]> {
  await engine.start();
  while (true) {
    const { runs, total } = await engine.getRuns({ jobName: "note", status: "completed" });
    if (total >= count) return runs.toReversed();
    await new Promise((resolve) => setTimeout(resolve, 5)); // the database is no part of any fake time
  }
}

forEachSource("engine.transaction() in a database of its own relays its triggers before it resolves", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);

  const { runs, value } = await engine.transaction(rows.source, (tx) => {
    const calls = tx as { trigger(job: unknown, input: unknown, options: unknown): unknown };
    const inserted = rows.insert(tx as never, "a");
    const triggered = calls.trigger(note, { n: 1 }, { idempotencyKey: "k", labels: { org: "acme" } });
    return rows.source.kind === "sqlite" ? triggered : (async () => (await inserted, await triggered))();
  });

  assert.deepEqual(runs!.map(({ id, labels, input, disposition }) => [id, labels, input, disposition]), [
    [(value as { runId: string }).runId, { org: "acme" }, { n: 1 }, "created"],
  ]);
  assert.deepEqual(await rows.names(), ["a"]);
  assert.deepEqual(await rows.outbox(), []);
});

/** A function of a transaction that triggers a run and signals waits, on any source. */
function asks(rows: Rows, ...waitIds: string[]) {
  return (tx: unknown) => {
    const { trigger, signal } = tx as { trigger(...given: unknown[]): unknown; signal(...given: unknown[]): unknown };
    const asked = [
      trigger(note, { n: 1 }, { idempotencyKey: "k" }),
      ...waitIds.map((id) => signal(id, { signalId: "s", payload: 1 })),
    ];
    return rows.source.kind === "sqlite" ? undefined : Promise.all(asked).then(() => {});
  };
}

forEachSource("engine.transaction() resolves at once if another engine relays its rows", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  await using other = anEngine(store, rows);
  const waiting = await engine.trigger(review, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(waiting.id);
  const { effects } = rows.source;
  const takeRows = effects.takeRows.bind(effects);
  effects.takeRows = async (request) => {
    effects.takeRows = takeRows;
    await other.start();
    while ((await rows.outbox()).length > 0) await new Promise((resolve) => setTimeout(resolve, 5));
    return await takeRows(request);
  };
  const published: string[] = [];
  engine.on("run:trigger", ({ runId }) => published.push(runId));
  const since = performance.now();

  const { runs, signals } = await engine.transaction(rows.source, asks(rows, wait!.id));

  const { runs: added } = await engine.jobs.note.getRuns();
  assert.deepEqual(runs!.map(({ id }) => id), added.map(({ id }) => id));
  assert.deepEqual(signals!.map(({ wait: { id, payload } }) => [id, payload]), [[wait!.id, 1]]);
  assert.deepEqual(published.length, new Set(published).size);
  assert.ok(performance.now() - since < 4_000, "it has waited");
});

forEachSource("engine.transaction() resolves at once if one of its rows is refused", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  const since = performance.now();

  const { runs, signals } = await engine.transaction(rows.source, asks(rows, "unknown"));

  assert.deepEqual([runs, signals], [null, null]);
  assert.equal((await engine.jobs.note.getRuns()).total, 1);
  assert.deepEqual(await rows.outbox(), ['signal unknown There is no wait "unknown"']);
  assert.ok(performance.now() - since < 4_000, "it has waited");
});

forEachSource("engine.transaction() signals two waits with one signalId", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  const ids: string[] = [];
  for (const { id } of [await engine.trigger(review, 1), await engine.trigger(review, 2)]) {
    await engine.runUntilIdle();
    ids.push((await engine.getWaits(id))[0]!.id);
  }

  const { signals } = await engine.transaction(rows.source, asks(rows, ...ids));

  assert.deepEqual(signals!.map(({ wait }) => wait.id), ids);
});

forEachSource("tx.trigger() in a step adds the run once, with the labels of its run", async (rows) => {
  await using store = new MemoryStore({ host: new FakeHost() });
  const order = defineJob({
    name: "order",
    input: anything,
    run: (step) =>
      step.transaction("book", rows.source, async (tx) => {
        await (tx as { trigger(job: unknown, input: unknown): Promise<unknown> }).trigger(note, { n: 1 });
      }),
  });
  const orderNow = defineJob({
    name: "order",
    input: anything,
    run: (step) =>
      step.transaction("book", rows.source, (tx) => {
        (tx as { trigger(job: unknown, input: unknown): unknown }).trigger(note, { n: 1 });
      }),
  });
  const jobs = { note, order: rows.source.kind === "sqlite" ? orderNow : order };
  await using engine = createEngine({ store, jobs, dataSources: { app: rows.source } });
  await engine.trigger("order", null, { labels: { org: "acme" } });

  await engine.runUntilIdle();

  const { runs } = await engine.getRuns({ jobName: "note" });
  assert.deepEqual(runs.map(({ labels }) => labels), [{ org: "acme" }]);
  assert.deepEqual(await rows.outbox(), []);
});

forEachSource(
  "rows that a dead process has left are relayed by another one, each once, in their order",
  async (rows) => {
    const inputs = Array.from({ length: 12 }, (_, n) => ({ n: n + 1 })); // their numbers have one digit, and two
    await using store = new MemoryStore();
    const dead = anEngine(store, rows, new FakeHost());
    await dead.migrate();
    rows.source.effects.takeRows = ((take) => {
      let isDead = true;
      return (request) => {
        if (!isDead) return take(request);
        isDead = false;
        return new Promise(() => {});
      };
    })(rows.source.effects.takeRows.bind(rows.source.effects));
    dead.transaction(rows.source, (tx) => {
      const calls = tx as { trigger(job: unknown, input: unknown): unknown };
      const triggered = inputs.map((input) => calls.trigger(note, input));
      return rows.source.kind === "sqlite" ? [] : Promise.all(triggered);
    }).catch(() => {});
    while ((await rows.outbox()).length < inputs.length) await new Promise((resolve) => setTimeout(resolve, 1));
    await using engine = anEngine(store, rows);

    const runs = await untilRelayed(engine, inputs.length);

    assert.deepEqual(runs.map(({ input }) => input), inputs);
  },
);

forEachSource("a row that was relayed and not deleted leads to no second run", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  await engine.migrate();
  const { deleteRows } = rows.source.effects;
  rows.source.effects.deleteRows = () => {
    rows.source.effects.deleteRows = deleteRows.bind(rows.source.effects);
    return Promise.reject(new Error("the process dies"));
  };

  await engine.transaction(rows.source, (tx) => {
    const triggered = (tx as { trigger(job: unknown, input: unknown): unknown }).trigger(note, { n: 1 });
    return rows.source.kind === "sqlite" ? 0 : triggered;
  });
  const [left] = await rows.outbox();
  await rows.execute(
    `UPDATE ${rows.source.kind === "sqlite" ? "holdfast_outbox" : "holdfast.outbox"} SET taken_until = 0`,
  );
  await engine.start();
  while ((await rows.outbox()).length > 0) await new Promise((resolve) => setTimeout(resolve, 5));

  assert.equal(left, "trigger note ");
  assert.equal((await engine.getRuns({ jobName: "note" })).total, 1);
});

forEachSource("runUntilIdle() relays what its runs leave in an outbox, and says that it is due", async (rows) => {
  await using store = new MemoryStore();
  const host = new FakeHost();
  const book = defineJob({
    name: "book",
    input: anything,
    run: async (step) => {
      const add = async (client: unknown) =>
        void await engine.inTransaction(rows.source, client).trigger(note, { n: 1 });
      await step.run("insert", () => rows.begin(add));
    },
  });
  await using engine = createEngine({ store, host, jobs: { note, book }, dataSources: { app: rows.source } });
  await engine.trigger("book", null);

  const first = await engine.runUntilIdle();
  const second = await engine.runUntilIdle();

  assert.deepEqual([first.executed, first.nextDueAt], [1, new Date(host.now()).toISOString()]);
  assert.deepEqual([second.executed, second.nextDueAt, await rows.outbox()], [1, null, []]);
});

forEachSource("engine.inTransaction() adds triggers and signals to a transaction of the user", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  const waiting = await engine.trigger(review, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(waiting.id);
  let runId = "";

  await rows.begin(async (client) => {
    const tx = engine.inTransaction(rows.source, client);
    const triggered = tx.trigger(note, { n: 1 });
    const signalled = tx.signal(wait!.id, { signalId: "s1", payload: { ok: true } });
    ({ runId } = await triggered);
    await signalled;
  });
  const [run] = await untilRelayed(engine);
  const reviewed = await engine.waitForRun(waiting.id);

  assert.equal(run!.id, runId);
  assert.deepEqual((reviewed.output as { payload: unknown }).payload, { ok: true });
});

forEachSource(
  "a row that somebody has inserted by SQL is a trigger; one that is refused stays with the reason",
  async (rows) => {
    await using store = new MemoryStore();
    await using engine = anEngine(store, rows);
    await engine.migrate();
    const insert = (name: string, input: string) =>
      rows.execute(
        rows.source.kind === "sqlite"
          ? `INSERT INTO holdfast_outbox (kind, name, value) VALUES ('trigger', '${name}', '${input}')`
          : `SELECT holdfast.trigger('${name}', '${input}', idempotency_key => '${name} ${input}')`,
      );
    await insert("note", '{"n": -1}');
    await insert("unknown", '{"n": 1}');
    await insert("note", '{"n": 2}');
    const table = rows.source.kind === "sqlite" ? "holdfast_outbox" : "holdfast.outbox";
    await rows.execute(`UPDATE ${table} SET at = 0 WHERE name = 'unknown'`); // it waits for long

    const runs = await untilRelayed(engine);

    assert.deepEqual(runs.map(({ input }) => input), [{ n: 2 }]);
    const [refused, unknown] = await rows.outbox();
    assert.match(refused!, /^trigger note The input of job "note" does not fit its schema/);
    assert.equal(unknown, "trigger unknown ");
    const message =
      'The outbox of data source "app" has 1 refused row, and 1 row that no engine has relayed for a minute';
    const isThere = async () => (await engine.health()).checks.some((check) => check.message === message);
    while (!await isThere()) await new Promise((resolve) => setTimeout(resolve, 5)); // the relay counts soon
    const { checks } = await engine.health();
    assert.deepEqual(checks.filter(({ name }) => name === "outbox"), [
      { name: "outbox", status: "degraded", message, value: 2 },
    ]);
    const metrics = await (await createHandler(engine).fetch(new Request("http://localhost/metrics"))).text();
    assert.deepEqual(metrics.split("\n").filter((line) => line.startsWith("holdfast_outbox_rows")), [
      'holdfast_outbox_rows{source="app",state="refused"} 1',
      'holdfast_outbox_rows{source="app",state="waiting"} 1',
    ]);
  },
);

const open = defineJob({
  name: "open",
  input: optional,
  run: (_step, input) => input === undefined ? "nothing" : input,
});
const renamed = defineJob({ name: "after", aliases: ["before"], input: anything, run: () => null });

forEachSource("an input that is undefined, and the former name of a job, go through the outbox", async (rows) => {
  await using store = new MemoryStore();
  await using engine = createEngine({ store, jobs: { open, renamed }, dataSources: { app: rows.source } });

  const { runs } = await engine.transaction(rows.source, (tx) => {
    const { trigger } = tx as { trigger(job: unknown, input?: unknown): unknown };
    const triggered = [trigger(open), trigger("before", 1)];
    return rows.source.kind === "sqlite" ? undefined : Promise.all(triggered).then(() => {});
  });
  const table = rows.source.kind === "sqlite" ? "holdfast_outbox" : "holdfast.outbox";
  await rows.execute(`INSERT INTO ${table} (kind, name, value) VALUES ('trigger', 'before', '2')`);
  await engine.start();
  while ((await rows.outbox()).length > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(runs![0]!.id))!.output, "nothing");
  const { runs: after } = await engine.getRuns({ jobName: "after" });
  assert.deepEqual(after.map(({ input, status }) => [input, status]), [[2, "completed"], [1, "completed"]]);
});

forEachSource("labels that their schema changes go through the outbox", async (rows) => {
  await using store = new MemoryStore();
  const labels = z.object({ org: z.enum(["a", "b"]).transform((org) => `org ${org}`) });
  const trigger = (tx: unknown, options?: { labels: { org: string } }) => {
    const calls = tx as { trigger(job: unknown, input: unknown, options?: unknown): unknown };
    const triggered = calls.trigger(note, { n: 1 }, options);
    return rows.source.kind === "sqlite" ? null : (triggered as Promise<unknown>).then(() => null);
  };
  const order = defineJob({
    name: "order",
    input: anything,
    run: (step) => step.transaction("book", rows.source, (tx) => trigger(tx) as null),
  });
  await using engine = createEngine({ store, jobs: { order, note }, dataSources: { app: rows.source }, labels });

  await engine.transaction(rows.source, (tx) => trigger(tx, { labels: { org: "a" } }));
  await engine.trigger(order, null, { labels: { org: "b" } });
  await engine.runUntilIdle();

  const { runs } = await engine.getRuns({ jobName: "note" });
  assert.deepEqual(runs.map(({ labels }) => labels.org), ["org b", "org a"]);
  assert.deepEqual(await rows.outbox(), []);
});

forEachSource("the outbox keeps the trace that a plugin sets at a trigger, which is asked once", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const waiting = await engine.trigger(review, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(waiting.id);
  const seen: unknown[] = [];
  engine.use({
    name: "tracer",
    install: ({ around }) =>
      around({
        trigger: async (info, next) => {
          info.trace = { traceparent } as never;
          const outcome = await next();
          seen.push(outcome.kind === "refused" ? String(outcome.error) : outcome.kind);
          return outcome;
        },
        signal: async (_, next) => {
          const outcome = await next();
          seen.push(outcome.kind);
          return outcome;
        },
        execution: (info, next) => {
          if (info.jobName === "note") seen.push(info.trace?.traceparent);
          return next();
        },
      }),
  });

  await engine.transaction(rows.source, asks(rows, wait!.id));
  await rows.begin((client) => engine.inTransaction(rows.source, client).trigger(note, { n: 2 }));
  await engine.transaction(rows.source, (tx) => {
    const triggered = (tx as { trigger(job: unknown, input: unknown): unknown }).trigger(note, { n: 3 });
    const refuse = () => {
      throw new Error("the user's");
    };
    return rows.source.kind === "sqlite" ? refuse() : (triggered as Promise<unknown>).then(refuse);
  }).catch(() => {});
  await engine.runUntilIdle();

  const expected = ["triggered", "triggered", "accepted", "Error: the user's", traceparent, traceparent];
  assert.deepEqual(seen.toSorted(), expected.toSorted());
});

forEachSource("runUntilIdle() relays what the outbox has, and executes it", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  await engine.migrate();

  await rows.begin(async (client) => {
    await engine.inTransaction(rows.source, client).trigger(note, { n: 1 });
  });
  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 1);
  assert.deepEqual(await rows.outbox(), []);
});

forEachSource("a data source that is down holds up the outbox of no other", async (rows) => {
  await using store = new MemoryStore();
  await using down = await sqliteDataSource(":memory:");
  await using engine = createEngine({ store, jobs: { note }, dataSources: { down, app: rows.source } });
  await engine.migrate();
  down.effects.takeRows = () => Promise.reject(new Error("it is down"));

  const { runs } = await engine.transaction(rows.source, asks(rows));
  assert.equal(runs?.length, 1);
  await rows.begin((client) => engine.inTransaction(rows.source, client).trigger(note, { n: 2 }));
  const relayed = await untilRelayed(engine as never, 2);

  assert.equal(relayed.length, 2);
});

forEachSource("runUntilIdle() does not fail because a data source does", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  const errors: string[] = [];
  engine.on("worker:error", ({ error }) => void errors.push(String(error)));
  await engine.trigger(note, { n: 1 });
  rows.source.effects.takeRows = () => Promise.reject(new Error("it is down"));

  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 1);
  assert.deepEqual(errors, ["Error: it is down"]); // it looks before its runs and after them
});

forEachSource("an engine starts while a data source does not answer, and uses it once it does", async (rows) => {
  await using store = new MemoryStore();
  const { effects } = rows.source;
  const migrate = effects.migrate.bind(effects);
  let down = true;
  effects.migrate = (isJoined) => down ? Promise.reject(new StoreError("It is down")) : migrate(isJoined);
  await using engine = anEngine(store, rows);
  const first = await engine.trigger(note, { n: 1 });

  await engine.start();
  const { status } = await engine.waitForRun(first.id);
  const refused = await engine.transaction(rows.source, asks(rows)).catch(String);
  const migrating = engine.migrate();
  await assert.rejects(migrating, new StoreError("It is down"));
  down = false;
  const { runs } = await engine.transaction(rows.source, asks(rows));

  assert.deepEqual([status, refused, runs?.length], ["completed", "StoreError: It is down", 1]);
});

forEachSource("an engine does not start if the tables of a data source cannot be made", async (rows) => {
  await using store = new MemoryStore();
  const error = new StoreError("No rights", { code: "internal" });
  rows.source.effects.migrate = () => Promise.reject(error);
  await using engine = anEngine(store, rows);

  const starting = engine.start();

  await assert.rejects(starting, error);
});

forEachSource("engine.inTransaction() refuses coalesce and a source of another engine by a TypeError", async (rows) => {
  await using store = new MemoryStore();
  await using engine = anEngine(store, rows);
  await using other = createEngine({ store, jobs: { note } });
  await engine.migrate();

  await rows.begin(async (client) => {
    const tx = engine.inTransaction(rows.source, client);
    const coalesced = tx.trigger(note, { n: 1 }, { concurrencyKey: "k", coalesce: "skip" });
    const triggered = tx.trigger(note, { n: 1 }, { coalesce: undefined as never });
    await assert.rejects(coalesced, new TypeError("coalesce needs a data source that is joined"));
    await triggered;
  });

  assert.throws(() => other.inTransaction(rows.source, {}), {
    name: "TypeError",
    message: "The data source of engine.inTransaction() is not one of the dataSources of createEngine()",
  });
  assert.deepEqual(await rows.outbox(), ["trigger note "]);
});

Deno.test("rows are relayed together, in their order, also if some were relayed before, and one is refused", async () => {
  await using source = await sqliteDataSource(":memory:");
  await using store = new MemoryStore();
  const calls: number[] = [];
  const { enqueue } = store;
  store.enqueue = (runs) => {
    calls.push(runs.length);
    return enqueue.call(store, runs);
  };
  await using engine = createEngine({ store, jobs: { note }, dataSources: { app: source } });
  await engine.migrate();
  const insert = (from: number, to: number) => {
    const rows = Array.from({ length: to - from }, (_, at) => `('trigger', 'note', '{"n": ${from + at}}')`);
    return source.exec(`INSERT INTO holdfast_outbox (kind, name, value) VALUES ${rows.join(", ")}`);
  };
  const { deleteRows } = source.effects;
  source.effects.deleteRows = () => {
    source.effects.deleteRows = deleteRows.bind(source.effects);
    return Promise.reject(new Error("the process dies"));
  };

  await insert(1, 51);
  await engine.runUntilIdle({ maxRuns: 1 });
  await source.exec("UPDATE holdfast_outbox SET taken_until = 0");
  await insert(51, 100);
  await engine.runUntilIdle({ maxRuns: 1 });
  const together = calls.splice(0);
  await insert(-1, 0);
  await insert(100, 102);
  await engine.runUntilIdle({ maxRuns: 1 });

  assert.deepEqual(together, [50, 99]);
  assert.deepEqual(calls, [1, 1], "beside a refused one each is tried alone");
  const { runs } = await engine.getRuns({ limit: 200 });
  assert.deepEqual(
    runs.map(({ input }) => (input as { n: number }).n).toReversed(),
    Array.from({ length: 101 }, (_, at) => at + 1),
  );
});

Deno.test("engine.inTransaction() works in the file of the store, and refuses what is no client", async () => {
  const database = new DatabaseSync(":memory:");
  const store = await SqliteStore.from(database as unknown as SqliteDriver);
  const app = store.dataSource();
  const engine = createEngine({ store, jobs: { note }, dataSources: { app } });
  await engine.migrate();

  database.exec("BEGIN");
  const triggered = engine.inTransaction(app, database).trigger(note, { n: 1 });
  database.exec("ROLLBACK");
  await triggered;
  const rolledBack = database.prepare("SELECT count(*) AS n FROM holdfast_outbox").get()!.n;
  const effects = database.prepare("SELECT name FROM sqlite_schema WHERE name = 'holdfast_effects'").all();

  assert.equal(rolledBack, 0);
  assert.deepEqual(effects, [], "a joined data source needs no effects");
  assert.throws(() => engine.inTransaction(app, 7), /needs the client of an open transaction/);
  await engine.stop();
  await store.close();
  database.close();
});
