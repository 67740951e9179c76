import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { internalsOf } from "../../../src/engine/engine_internals.ts";
import type { Engine } from "../../../src/engine/engine.ts";
import { createHandler } from "../../../src/http/handler.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { StoreError } from "../../../src/model/error.ts";
import type { Health } from "../../../src/engine/operate/health.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { needs } from "../../support/platform.ts";
import { aClaimRequest } from "../../support/fixtures.ts";
import { forEachStore, holdRun, pass } from "../../support/stores/for_each_store.ts";
import { aJob, echo } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { withCalls } from "../../support/stores/with_calls.ts";

/** The names of the checks that found something, with what they found. */
function findingsOf({ checks }: Health): [name: string, status: string][] {
  return checks.filter(({ status }) => status !== "ok").map(({ name, status }) => [name, status]);
}

/** Asks for the health, which has to answer 0.2 seconds after a timer of a second at the latest. */
async function askInTime(engine: Engine): Promise<Health> {
  const since = performance.now();
  const timer = new Promise((resolve) => setTimeout(resolve, 1_000)).then(() => performance.now() - since);
  const health = await engine.health();
  const took = performance.now() - since;
  assert.ok(took < await timer + 200, `it took ${took} ms, and a timer of a second ${await timer} ms`);
  return health;
}

/** An engine on a file, with the polling of tests, and what damages the file. */
async function withFile(body: (file: { path: string; engine: Engine; store: SqliteStore }) => Promise<void>) {
  const folder = await Deno.makeTempDir();
  try {
    const path = `${folder}/jobs.db`;
    await using store = await SqliteStore.open(path);
    await using engine = createEngine({ store, jobs: { echo } });
    await engine.migrate();
    await body({ path, engine, store });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

forEachStore("health() of a started engine is ok", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo } });
  await engine.start();
  await host.settle();

  const health = await engine.health();

  assert.deepEqual([health.status, health.live, health.ready], ["ok", true, true]);
  assert.deepEqual(health.checks.map(({ name }) => name), ["worker", "store"]);
  assert.deepEqual(internalsOf(engine).monitor.liveness().live, true);
});

forEachStore("health() migrates a store that nobody has migrated", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });
  const before = internalsOf(engine).monitor.liveness();

  const health = await engine.health();

  assert.deepEqual([before.live, before.ready, health.ready], [true, false, true]);
});

forEachStore("health() is degraded by a lost worker, and by a run that is due for long", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });
  await store.claim(aClaimRequest({ workerId: "lost", leaseMs: 10_000, jobNames: ["other"] }));
  await engine.trigger(echo, null);
  host.advance(60_000);
  const early = await engine.health();
  host.advance(1_000);

  const health = await engine.health();
  await engine.pauseJob("echo");
  host.advance(1_000);
  const paused = await engine.health();

  assert.deepEqual(findingsOf(early), [["lost_workers", "degraded"]]);
  assert.deepEqual(findingsOf(health), [["lost_workers", "degraded"], ["due_runs", "degraded"]]);
  assert.deepEqual([health.status, health.live, health.ready], ["degraded", true, true]);
  assert.deepEqual(health.checks.filter(({ name }) => name === "due_runs"), [{
    name: "due_runs",
    status: "degraded",
    message: 'A run of job "echo" has been due for 61 s',
    value: 61_000,
  }]);
  assert.deepEqual(findingsOf(paused), [["lost_workers", "degraded"]]);
});

forEachStore(
  "a job that waits for its rate is neither in health() nor in the gauge of due runs",
  async ({ store, host }) => {
    const mail = defineJob({
      name: "mail",
      input: echo.input,
      limits: { rate: { limit: 1, period: "1h" } },
      run: () => null,
    });
    const engine = createEngine({ store, host, jobs: { echo, mail } });
    const saidOf = ({ checks }: Health) => checks.find(({ name }) => name === "due_runs")?.message;
    const gaugeOf = async (jobName: string) => {
      const text = await (await createHandler(engine).fetch(new Request("http://localhost/metrics"))).text();
      return Number(new RegExp(`^holdfast_oldest_due_seconds\\{job="${jobName}"\\} (.*)$`, "m").exec(text)![1]);
    };
    await engine.trigger(mail, null);
    await engine.runUntilIdle();
    await engine.trigger(mail, null);
    host.advance(600_000);

    const waiting = [saidOf(await engine.health()), await gaugeOf("mail")];
    await engine.trigger(echo, null);
    host.advance(61_000);
    const other = [saidOf(await engine.health()), await gaugeOf("mail"), await gaugeOf("echo")];
    host.advance(3_000_000);
    const open = [saidOf(await engine.health()), await gaugeOf("mail")];

    assert.deepEqual(waiting, [undefined, 0]);
    assert.deepEqual(other, ['A run of job "echo" has been due for 61 s', 0, 61]);
    assert.deepEqual(open, ['A run of job "mail" has been due for 3661 s', 3_661]);
  },
);

forEachStore("health() is degraded by held runs", async ({ store, host }) => {
  const engine = createEngine({ store, host, jobs: { echo } });
  for (let i = 0; i < 2; i++) {
    const { id } = await engine.trigger(echo, null);
    await holdRun(store, "echo", id);
    host.advance(1_000);
  }

  const { status, ready, checks } = await engine.health();

  assert.deepEqual([status, ready], ["degraded", true]);
  assert.deepEqual(checks.filter(({ name }) => name === "held_runs"), [{
    name: "held_runs",
    status: "degraded",
    message: "2 runs are held, the first for 2 s: the changed code does not fit",
    value: 2,
  }]);
});

forEachStore("health() is degraded by a million ended runs that nothing deletes", async ({ store, host }) => {
  const many = withCalls(store, {
    getJobs: async (rates) => {
      const list = await store.getJobs(rates);
      return { ...list, jobs: list.jobs.map((job) => ({ ...job, byStatus: { ...job.byStatus, failed: 1_000_000 } })) };
    },
  });
  const engines = [{}, { failed: "30d" as const }].map((retention) =>
    createEngine({ store: many, host, retention, jobs: { echo } })
  );
  await engines[0]!.trigger(echo, null);

  const [keeping, deleting] = await Promise.all(engines.map((engine) => engine.health()));

  assert.deepEqual(findingsOf(deleting!), []);
  assert.deepEqual(keeping!.checks.filter(({ status }) => status !== "ok"), [{
    name: "retention",
    status: "degraded",
    message: "1,000,000 runs have ended, and this engine deletes none: set retention",
    value: 1_000_000,
  }]);
});

forEachStore(
  "health() is degraded while writes fail, although idle claims and reads succeed",
  async ({ store, host }) => {
    let isFull = true;
    const full = withCalls(store, {
      enqueue: async (runs) => {
        if (isFull) throw new StoreError("The disk is full");
        return await store.enqueue(runs);
      },
    });
    await using engine = createEngine({ store: full, host, jobs: { echo } });
    await engine.start();
    await assert.rejects(engine.trigger(echo, null), StoreError);
    host.advance(2_000);
    await host.settle();

    const during = await engine.health();
    isFull = false;
    await engine.trigger(echo, null);
    await host.settle();
    const after = await engine.health();

    assert.deepEqual(findingsOf(during), [["writes", "degraded"]]);
    assert.equal(during.checks.find(({ name }) => name === "writes")?.message, "Writes fail: The disk is full");
    assert.deepEqual([during.status, during.ready], ["degraded", true]);
    assert.deepEqual(findingsOf(after), []);
  },
);

forEachStore("health() is not ready after claims have failed for a minute, although reads answer", async (context) => {
  const { store, host } = context;
  let fails = false;
  const failing = withCalls(store, {
    claim: async (request) => {
      if (fails) throw new StoreError("The disk is full");
      return await store.claim(request);
    },
  });
  await using engine = createEngine({ store: failing, host, jobs: { echo } });
  await engine.start();
  await pass(host, 120_000, 1_000);
  fails = true;

  await pass(host, 55_000, 1_000);
  const early = await engine.health();
  await pass(host, 10_000, 1_000);
  const late = await engine.health();
  const live = internalsOf(engine).monitor.liveness();
  fails = false;
  await pass(host, 5_000, 1_000);
  const after = await engine.health();

  assert.deepEqual([early.ready, findingsOf(early)], [true, [["writes", "degraded"], ["lost_workers", "degraded"]]]);
  assert.deepEqual([late.live, late.ready, live.live], [true, false, true]);
  const claims = late.checks.find(({ name }) => name === "claims");
  assert.match(claims!.message, /^Claims have failed for 6\d s: The disk is full$/);
  assert.deepEqual([after.ready, after.checks.some(({ name }) => name === "claims")], [true, false]);
});

Deno.test("health() is not ready while the engine stops, and after it has stopped; it stays live", async () => {
  const host = new FakeHost();
  const gate = Promise.withResolvers<void>();
  const slow = aJob((step) => step.run("wait", () => gate.promise), "slow");
  const engine = createEngine({ store: new MemoryStore({ host }), host, jobs: { slow } });
  await engine.start();
  await engine.trigger(slow, null);
  await host.settle();
  const stopping = engine.stop();
  await host.settle();

  const during = await engine.health();
  gate.resolve();
  await stopping;
  host.advance(1_000);
  const after = await engine.health();
  await engine.start();
  await host.settle();
  host.advance(1_000);
  const again = await engine.health();
  await engine.stop();

  assert.deepEqual([during.live, during.ready, findingsOf(during)], [true, false, [["stopping", "failing"]]]);
  assert.deepEqual([after.live, after.ready, findingsOf(after)], [true, false, [["stopping", "failing"]]]);
  assert.deepEqual([again.live, again.ready], [true, true]);
});

Deno.test("health() is not live when the loop of the worker is stuck", async () => {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  let hangs = false;
  const store = withCalls(memory, { claim: (request) => hangs ? new Promise(() => {}) : memory.claim(request) });
  const engine = createEngine({ store, host, jobs: { echo } });
  await engine.start();
  await host.settle();
  hangs = true;
  const limitMs = 3 * (1_000 + 30_000 / 3);
  host.advance(limitMs - 1_000);
  await host.settle();
  const before = internalsOf(engine).monitor.liveness();
  host.advance(3_000);
  await host.settle();

  const after = internalsOf(engine).monitor.liveness();
  const health = await engine.health();
  const stopping = engine.stop();
  for (let second = 0; second < 10; second++) {
    host.advance(1_000);
    await host.settle();
  }
  await stopping;

  assert.deepEqual([before.live, after.live, health.live, health.ready], [true, false, false, false]);
  assert.deepEqual(findingsOf(after), [["worker", "failing"]]);
});

Deno.test("health() is degraded while statistics cannot be written", async () => {
  const { StoreError } = await import("../../../src/model/error.ts");
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  let isFull = true;
  const store = withCalls(memory, {
    addStats: (rows) => isFull ? Promise.reject(new StoreError("database or disk is full")) : memory.addStats(rows),
  });
  const engine = createEngine({ store, host, jobs: { echo } });
  await engine.trigger(echo, null);
  await engine.runUntilIdle();
  const full = await engine.health();
  isFull = false;
  host.advance(1_000);
  await engine.trigger(echo, null);
  await engine.runUntilIdle();

  const fine = await engine.health();

  assert.deepEqual([full.status, full.ready, findingsOf(full)], ["degraded", true, [["statistics", "degraded"]]]);
  assert.match(full.checks.find(({ name }) => name === "statistics")!.message, /database or disk is full/);
  assert.equal(fine.status, "ok");
});

Deno.test("health() on a file that is full is ready: it can be read", async () => {
  await withFile(async ({ engine, store, path }) => {
    await engine.trigger(echo, null);
    await store.close();
    const database = new DatabaseSync(path);
    database.exec("PRAGMA page_count; PRAGMA max_page_count = 1");
    await using full = await SqliteStore.from(database as never);
    const other = createEngine({ store: full, jobs: { echo } });
    const big = "x".repeat(100_000);
    await assert.rejects(other.trigger(echo, { big }), { name: "StoreError" });

    const health = await askInTime(other);

    assert.deepEqual([health.live, health.ready], [true, true]);
    await full.close();
    database.close();
  });
});

Deno.test("health() on a file that another connection keeps locked is not ready, and live", async () => {
  await withFile(async ({ path, engine, store }) => {
    await engine.trigger(echo, null);
    await store.close();
    const database = new DatabaseSync(path);
    await using own = await SqliteStore.from(database as never);
    const other = createEngine({ store: own, jobs: { echo } });
    await other.migrate();
    database.exec("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE");
    const locking = new DatabaseSync(path);
    locking.exec("BEGIN EXCLUSIVE");

    const health = await askInTime(other);

    locking.exec("COMMIT");
    locking.close();
    assert.deepEqual([health.live, health.ready], [true, false]);
    assert.deepEqual(findingsOf(health), [["store", "failing"]]);
    await other.stop();
    await own.close();
    database.close();
  });
});

Deno.test("health() on a file that was replaced is not live", needs("moved files"), async () => {
  await withFile(async ({ path, engine }) => {
    await Deno.rename(path, `${path}.old`);
    await Deno.writeTextFile(path, "");
    await new Promise((resolve) => setTimeout(resolve, 1_050)); // the file is looked at once a second

    const first = await askInTime(engine);
    const live = internalsOf(engine).monitor.liveness();

    assert.deepEqual([first.ready, live.live, live.ready], [false, false, false]);
    assert.ok(findingsOf(live).some(([name]) => name === "store_file"));
  });
});

Deno.test("health() is degraded for a minute after the event loop was blocked", async () => {
  await using engine = createEngine({ store: new MemoryStore(), jobs: { echo } });
  await engine.start();
  const before = await engine.health();
  const until = performance.now() + 1_700;
  while (performance.now() < until);
  await new Promise((resolve) => setTimeout(resolve, 10));

  const { status, checks } = await engine.health();

  assert.equal(before.status, "ok");
  assert.equal(status, "degraded");
  const check = checks.find(({ name }) => name === "event_loop")!;
  assert.ok(check.value! > 250 && check.value! < 10_000);
});
