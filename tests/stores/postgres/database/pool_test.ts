import assert from "node:assert/strict";
import pg from "pg";
import { createEngine, defineJob, type Engine } from "../../../../mod.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { anything } from "../../../processes/anything.ts";
import { inTime, until } from "../../../processes/deadline.ts";
import { Proxy } from "../processes/proxy.ts";
import { startServer } from "../server.ts";
import { getRuns } from "../../../../src/store/reads.ts";

const server = startServer();
const LEASE_MS = 4_000;
let schemas = 0;

const open = Promise.withResolvers<void>(); // never resolved: a step that waits for it ends with its signal

/** A step that goes on until its run is told to end, or its lease is lost. */
const long = defineJob({
  name: "long",
  input: anything<number>(),
  run: (step, ms) =>
    step.run("work", ({ abortSignal }) =>
      Promise.race([
        new Promise((resolve) => setTimeout(resolve, ms, "done")),
        new Promise((_resolve, reject) => abortSignal.addEventListener("abort", () => reject(abortSignal.reason))),
        open.promise,
      ])),
});

const short = defineJob({
  name: "short",
  input: anything<number>(),
  run: async (step, n) => {
    const doubled = await step.run("double", () => {
      executed.set(n, (executed.get(n) ?? 0) + 1);
      return 2 * n;
    });
    await step.sleep("nap", 20);
    return doubled;
  },
});

/** How often the step of each short run was executed. */
const executed = new Map<number, number>();

interface Place {
  /** Asks the server something beside the store. */
  ask(sql: string): Promise<Record<string, unknown>[]>;
  proxy: Proxy;
  schema: string;
  store: PostgresStore;
  /** Started; its store reaches the server through the proxy, as a role of its own. */
  engine: Engine<{ long: typeof long; short: typeof short }>;
  /** The role. */
  role: string;
  /** When leases were renewed, on the monotonic clock. */
  renewals: number[];
}

function test(name: string, body: (place: Place) => Promise<void>, worker: object = {}): void {
  Deno.test({
    name,
    ignore: server === null,
    fn: async () => {
      const url = new URL(server!.url); // ignored without a server
      const schema = `pool_${Deno.pid}_${++schemas}`;
      const admin = new pg.Pool({ connectionString: url.href, max: 2 });
      await admin.query(`create role ${schema} login; create schema ${schema} authorization ${schema}`);
      await using proxy = new Proxy({ hostname: url.hostname, port: Number(url.port) }, { freezeMs: 60_000 });
      url.port = String(proxy.port);
      url.username = schema;
      const options = { schema, durability: "relaxed", listenUrl: server!.url } as const;
      await using store = await PostgresStore.open(url, options);
      const engine = createEngine({
        store,
        jobs: { long, short },
        logger: null,
        worker: { heartbeatInterval: 500, staleThreshold: LEASE_MS, ...worker },
      });
      const renewals: number[] = [];
      engine.on("run:lease-renewed", () => void renewals.push(performance.now()));
      await engine.start();
      const ask = async (sql: string) => (await admin.query(sql)).rows;
      try {
        await body({ ask, proxy, schema, role: schema, store, engine, renewals });
      } finally {
        await engine.stop({ timeout: 0 });
        await store.close();
        await admin.end();
      }
    },
  });
}

/** Triggers a run whose step lasts so long, and waits until it is executed. */
async function begin({ engine }: Place, ms: number): Promise<string> {
  const started = new Promise((resolve) => engine.on("step:start", resolve));
  const { id } = await engine.jobs.long.trigger(ms);
  await inTime(started, "the run was to start");
  return id;
}

/** Checks that a run completes in its first execution: its lease was never lost. */
async function checkUndisturbed({ engine, ask, schema }: Place, id: string): Promise<void> {
  await waitForRun(engine, id);
  const [row] = await ask(`select lease_generation as leases, interruptions from ${schema}.runs where id = '${id}'`);
  assert.deepEqual(row, { leases: 1, interruptions: 0 });
}

function longestGap(times: readonly number[]): number {
  return Math.max(...times.slice(1).map((at, n) => at - times[n]!));
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

test("a renewal does not wait for lists whose connections are frozen", async (place) => {
  const { ask, proxy, role, store, renewals } = place;
  const id = await begin(place, 6_000);
  await until(() => renewals.length >= 2, "leases were to be renewed");
  const ports = new Set<number>();
  while (ports.size < 2) {
    await Promise.all([1, 2, 3, 4].map(() => store.findRuns({ labels: { a: "b" } })));
    const rows = await ask(
      `select client_port as port from pg_stat_activity where usename = '${role}' and query like '%find_runs%'`,
    );
    for (const { port } of rows) ports.add(port as number);
  }
  renewals.length = 0;

  proxy.failAll("freeze", [...ports]);
  const lists = Promise.allSettled(Array.from({ length: 20 }, () => store.findRuns({ labels: { a: "b" } })));
  await checkUndisturbed(place, id);
  const failed = (await lists).filter(({ status }) => status === "rejected");

  assert.ok(failed.length >= 2, `${failed.length} lists failed`);
  assert.ok(longestGap(renewals) < 2_000, `${longestGap(renewals)} ms between two renewals`);
});

test("a renewal does not wait for lists that the server holds up", async (place) => {
  const { store, schema, renewals } = place;
  const id = await begin(place, 6_000);
  await until(() => renewals.length >= 2, "leases were to be renewed");
  const locking = new pg.Client({ connectionString: server!.url });
  await locking.connect();
  await locking.query(`begin; lock table ${schema}.labels in access exclusive mode`);
  renewals.length = 0;

  const lists = Promise.allSettled(Array.from({ length: 20 }, () => store.findRuns({ labels: { a: "b" } })));
  await until(() => renewals.length >= 8, "leases were to be renewed");
  await locking.query("rollback");
  await locking.end();
  await checkUndisturbed(place, id);
  await lists;

  assert.ok(longestGap(renewals) < 2_000, `${longestGap(renewals)} ms between two renewals`);
});

test("no lease is lost while the server takes no more connections", async (place) => {
  const { ask, role, store, renewals } = place;
  const id = await begin(place, 6_000);
  await until(() => renewals.length >= 2, "leases were to be renewed");
  renewals.length = 0;

  // As if others had taken all max_connections: those that are open stay.
  await ask(`alter role ${role} connection limit 0`);
  const lists = await Promise.allSettled(Array.from({ length: 10 }, () => getRuns(store, { limit: 5 })));
  await until(() => renewals.length >= 6, "leases were to be renewed");
  await ask(`alter role ${role} connection limit -1`);
  await checkUndisturbed(place, id);

  assert.ok(longestGap(renewals) < 2_500, `${longestGap(renewals)} ms between two renewals`);
  for (const list of lists) {
    if (list.status === "rejected") assert.equal(list.reason.code, "unavailable");
  }
});

test("no lease is lost when all connections are cut and the server refuses new ones for a second", async (place) => {
  const { ask, role, renewals } = place;
  const id = await begin(place, 6_000);
  await until(() => renewals.length >= 2, "leases were to be renewed");

  await ask(`alter role ${role} connection limit 0`);
  await ask(`select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}'`);
  await pause(1_000);
  await ask(`alter role ${role} connection limit -1`);

  await checkUndisturbed(place, id);
});

test("no lease is lost when all connections are half-open: nobody answers, and nothing says so", async (place) => {
  const { proxy, renewals } = place;
  const id = await begin(place, 17_000);
  await until(() => renewals.length >= 2, "leases were to be renewed");

  proxy.failAll("freeze");
  await checkUndisturbed(place, id);

  assert.ok(longestGap(renewals) < 14_000, `${longestGap(renewals)} ms between two renewals`);
}, { staleThreshold: 20_000, heartbeatInterval: 1_000 });

test("no run fails and no step is executed twice while all idle connections are cut over and over", async (place) => {
  const { ask, engine, role, schema } = place;
  executed.clear();
  const ids: string[] = [];
  let cuts = 0;
  let isOver = false;
  // A connection that is made on a busy machine has time for its first statement.
  const cutting = (async () => {
    while (!isOver) {
      const rows = await ask(
        `select pg_terminate_backend(pid) from pg_stat_activity where usename = '${role}' and state = 'idle'
          and backend_start < clock_timestamp() - interval '200 ms'`,
      );
      cuts += rows.length;
      await pause(50);
    }
  })();

  try {
    for (let n = 0; n < 60 || cuts < 30; n++) {
      assert.ok(n < 1_000, `${cuts} connections were cut`);
      const trigger = () => engine.jobs.short.trigger(n, { idempotencyKey: `${n}` });
      ids.push((await trigger().catch(trigger).catch(trigger)).id);
      await pause(20);
    }
    await Promise.all(ids.map((id) => waitForRun(engine, id)));
  } finally {
    isOver = true;
    await cutting;
  }

  const rows = await ask(`select status, count(*)::int as runs from ${schema}.runs group by 1`);
  assert.deepEqual(rows, [{ status: "completed", runs: ids.length }]);
  assert.deepEqual([...executed.values()].filter((times) => times !== 1), []);
});

/** Waits until a run has completed. Its reads can fail, too: they are not repeated by the engine. */
async function waitForRun(engine: Place["engine"], id: string): Promise<void> {
  while (true) {
    try {
      await engine.waitForRun(id);
      return;
    } catch (error) {
      assert.equal((error as { code?: string }).code, "unavailable");
    }
  }
}
