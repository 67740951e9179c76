import assert from "node:assert/strict";
import pg from "pg";
import { createEngine, defineJob } from "../../../../mod.ts";
import type { PostgresStoreOptions } from "../../../../src/stores/postgres/mod.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import type { StoreWatch } from "../../../../src/store/store.ts";
import { anything } from "../../../processes/anything.ts";
import { inTime, until } from "../../../processes/deadline.ts";
import { aClaimRequest, aRun } from "../../../support/fixtures.ts";
import { Proxy } from "../processes/proxy.ts";
import { startServer } from "../server.ts";

const server = startServer();
let schemas = 0;
// What is promised takes 250 ms at most; other tests keep the machine busy.
const PROMISED_MS = 250;
const TRIES = 9;
const IDLE_MS = 10_000;

/** What a test has: stores of one schema, and a proxy that only connections that listen go through. */
interface Place {
  url: string;
  proxy: Proxy;
  open(options?: PostgresStoreOptions): Promise<PostgresStore>;
  /** Opens a store that listens through the proxy. */
  openListening(): Promise<PostgresStore>;
}

function test(name: string, body: (place: Place) => Promise<void>): void {
  Deno.test({
    name,
    ignore: server === null,
    fn: async () => {
      const { url } = server!; // ignored without a server
      const { hostname, port } = new URL(url);
      await using proxy = new Proxy({ hostname, port: Number(port) }, { freezeMs: 60_000 });
      const listenUrl = new URL(url);
      listenUrl.port = String(proxy.port);
      const schema = `notify_${Deno.pid}_${++schemas}`;
      const open = (options: PostgresStoreOptions = {}) =>
        PostgresStore.open(url, { schema, durability: "relaxed", ...options });
      const stores: PostgresStore[] = [];
      const opening = async (options?: PostgresStoreOptions) => {
        const store = await open(options);
        stores.push(store);
        await store.migrate();
        return store;
      };
      try {
        await body({ url, proxy, open: opening, openListening: () => opening({ listenUrl }) });
      } finally {
        await Promise.all(stores.map((store) => store.close()));
      }
    },
  });
}

/** Watches a store, and counts what it reports. */
function watching(store: PostgresStore): StoreWatch & { seen: { changes: number; errors: string[] } } {
  const seen = { changes: 0, errors: [] as string[] };
  const watch = store.watch!({ // it listens
    onChange: () => void (seen.changes += 1),
    onError: (error) => void seen.errors.push(String(error)),
  });
  return {
    seen,
    get isLive() {
      return watch.isLive;
    },
    stop: () => watch.stop(),
  };
}

function untilLive(watch: StoreWatch, isLive = true): Promise<void> {
  return until(() => watch.isLive === isLive, `the watch was to be ${isLive ? "" : "not "}live`);
}

/** The median time of several tries, in milliseconds. */
async function medianOf(attempt: () => Promise<number>): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < TRIES; n++) times.push(await attempt());
  return times.toSorted((a, b) => a - b)[(TRIES - 1) / 2]!; // there are that many
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

test("watch() reports what another store has committed, and what this one has", async ({ open }) => {
  const [store, other] = [await open(), await open()];
  const watch = watching(store);
  await untilLive(watch);
  await pause(50);
  watch.seen.changes = 0;

  await other.enqueue([aRun()]);
  await until(() => watch.seen.changes > 0, "the change of the other store was to be reported");
  await pause(50);
  watch.seen.changes = 0;
  await store.enqueue([aRun({ id: "own" })]);
  await until(() => watch.seen.changes > 0, "the change of this store was to be reported");

  watch.stop();
  assert.deepEqual(watch.seen.errors, []);
});

test("watch() stays live in a session that would end when it is idle", async ({ url, open }) => {
  const store = await open({ listenUrl: `${url}?options=-c%20idle_session_timeout%3D100` });
  const watch = watching(store);
  await untilLive(watch);

  await pause(400);
  const { isLive } = watch;

  watch.stop();
  assert.equal(isLive, true);
  assert.deepEqual(watch.seen.errors, []);
});

test("watch() reports nothing of another schema, and no claim that finds nothing", async ({ url, open }) => {
  const [store, other] = [await open(), await open()];
  await using foreign = await PostgresStore.open(url, { schema: `notify_${Deno.pid}_x`, durability: "relaxed" });
  await foreign.migrate();
  const watch = watching(store);
  await untilLive(watch);
  await pause(50);
  watch.seen.changes = 0;

  await foreign.enqueue([aRun()]);
  for (let n = 0; n < 3; n++) await other.claim(aClaimRequest({ workerId: "idle", claimId: `${n}` }));
  await other.renew([], 1_000);
  await pause(200);
  const changes = watch.seen.changes;

  watch.stop();
  assert.equal(changes, 0);
});

test("an idle engine sends fewer than two statements a second", async ({ url }) => {
  const pool = new pg.Pool({ connectionString: url });
  let statements = 0;
  const client = {
    query: (sql: string, parameters?: (string | null)[]) => {
      statements += 1;
      return pool.query(sql, parameters);
    },
  };
  const schema = `notify_${Deno.pid}_${schemas}`;
  const store = PostgresStore.from(client, { schema, durability: "relaxed", listenUrl: url });
  const job = defineJob({ name: "idle", input: anything<null>(), run: () => {} });
  const engine = createEngine({ store, jobs: { job }, logger: null });
  await engine.start();
  const watch = watching(store);
  await untilLive(watch);
  await pause(1_000);
  statements = 0;

  await pause(IDLE_MS);
  const count = statements;

  watch.stop();
  await engine.stop();
  await store.close();
  await pool.end();
  assert.ok(count >= 5 && count < 2 * IDLE_MS / 1_000, `${count} statements in ${IDLE_MS} ms`);
});

test("close() sends the last notification", async ({ open }) => {
  const [store, other] = [await open(), await open()];
  const watch = watching(store);
  await untilLive(watch);
  await other.enqueue([aRun({ id: "first" })]);
  await pause(100);
  watch.seen.changes = 0;

  await Promise.all([other.enqueue([aRun({ id: "second" })]), other.close()]);

  await until(() => watch.seen.changes > 0, "the change was to be reported");
  watch.stop();
});

test("a store that does not listen reports nothing, and notifies those that do", async ({ open }) => {
  const [store, other] = [await open(), await open({ listenUrl: null })];
  const watch = watching(store);
  await untilLive(watch);
  await pause(50);
  watch.seen.changes = 0;

  await other.enqueue([aRun()]);
  await until(() => watch.seen.changes > 0, "the change was to be reported");

  assert.equal(other.watch, undefined);
  watch.stop();
});

test("from() listens at a direct address, or with a function of the caller", async ({ url, open }) => {
  const other = await open();
  const pool = new pg.Pool({ connectionString: url });
  const listening = new pg.Client({ connectionString: url });
  await listening.connect();
  const given = { schema: `notify_${Deno.pid}_${schemas}`, durability: "relaxed" } as const;
  const stores = [
    PostgresStore.from(pool, { ...given, listenUrl: new URL(url) }),
    PostgresStore.from(pool, {
      ...given,
      listen: async (channel, onNotify) => {
        listening.on("notification", (message) => message.channel === channel && onNotify());
        await listening.query(`listen ${channel}`);
        return () => listening.query(`unlisten ${channel}`);
      },
    }),
  ];
  const watches = stores.map(watching);
  await Promise.all(watches.map((watch) => untilLive(watch)));
  await pause(50);
  for (const { seen } of watches) seen.changes = 0;

  await other.enqueue([aRun()]);
  await until(() => watches.every(({ seen }) => seen.changes > 0), "both were to report the change");

  assert.equal(PostgresStore.from(pool, given).watch, undefined);
  for (const watch of watches) watch.stop();
  for (const store of stores) await store.close();
  await Promise.all([pool.end(), listening.end()]);
});

test("listen has to be a function", async ({ url }) => {
  await assert.rejects(PostgresStore.open(url, { listen: "yes" } as object), TypeError);
});

for (const fault of ["cut", "freeze", "half-close"] as const) {
  test(`an engine goes on when the connection that listens fails (${fault}), and listens again`, async (place) => {
    const { proxy, open, openListening } = place;
    const [store, other] = [await openListening(), await open()];
    const watch = watching(store);
    const started: number[] = [];
    const job = defineJob({
      name: "noted",
      input: anything<number>(),
      run: (_step, sentAt) => void started.push(performance.now() - sentAt),
    });
    const options = { jobs: { job }, logger: null, worker: { pollingInterval: 10_000 } };
    await using engine = createEngine({ store, ...options });
    await using triggering = createEngine({ store: other, ...options });
    await engine.start();
    await untilLive(watch);
    const trigger = async () => {
      const count = started.length;
      await triggering.jobs.job.trigger(performance.now());
      await until(() => started.length > count, "the run was to start");
      return started.at(-1)!;
    };

    const before = await medianOf(trigger);
    proxy.isRefusing = true;
    proxy.failAll(fault);
    const failedAt = performance.now();
    await untilLive(watch, false);
    const noticedMs = performance.now() - failedAt;
    const meanwhile = await medianOf(trigger);
    proxy.isRefusing = false;
    await untilLive(watch);
    const after = await medianOf(trigger);

    watch.stop();
    // Without a report and without polling they would start after up to 10 s.
    assert.ok(Math.max(before, meanwhile, after) < PROMISED_MS, `${before}, ${meanwhile}, ${after} ms`);
    assert.ok(noticedMs < (fault === "cut" ? 2_000 : 13_000), `noticed after ${noticedMs} ms`);
  });
}

test("an engine polls while LISTEN is refused from the start, says so once, and listens when it may", async (place) => {
  const { proxy, open, openListening } = place;
  proxy.isRefusing = true;
  const [store, other] = [await openListening(), await open()];
  const watch = watching(store);
  const errors: string[] = [];
  let count = 0;
  const job = defineJob({ name: "noted", input: anything<number>(), run: () => void (count += 1) });
  const options = { jobs: { job }, logger: null, worker: { pollingInterval: 10_000 } };
  await using engine = createEngine({ store, ...options });
  await using triggering = createEngine({ store: other, ...options });
  engine.on("worker:error", ({ error }) => void errors.push(String(error)));
  await engine.start();
  const trigger = async () => {
    const [before, sentAt] = [count, performance.now()];
    await triggering.jobs.job.trigger(1);
    await until(() => count > before, "the run was to start");
    return performance.now() - sentAt;
  };

  const refused = await medianOf(trigger);
  await pause(1_500); // it tries again meanwhile
  const { isLive } = watch;
  proxy.isRefusing = false;
  await untilLive(watch);
  const listening = await medianOf(trigger);

  watch.stop();
  assert.equal(isLive, false);
  assert.ok(Math.max(refused, listening) < PROMISED_MS, `${refused}, ${listening} ms`);
  assert.deepEqual(errors.map((error) => /found by polling until LISTEN succeeds/.test(error)), [true]);
});

test("a cancel and the events of a run reach another process within 250 ms, while nobody polls", async ({ open }) => {
  const [store, other] = [await open(), await open()];
  const cancelled: number[] = [];
  let gate = Promise.withResolvers<void>();
  let startedAt = 0;
  const job = defineJob({
    name: "long",
    input: anything<null>(),
    run: async (step) => {
      await gate.promise;
      await step.run("wait", ({ abortSignal }) => {
        startedAt = performance.now();
        return new Promise((_resolve, reject) => {
          abortSignal.addEventListener("abort", () => {
            cancelled.push(performance.now());
            reject(abortSignal.reason);
          });
        });
      });
    },
  });
  const options = { jobs: { job }, logger: null, worker: { pollingInterval: 10_000 } };
  await using engine = createEngine({ store, ...options });
  await using asking = createEngine({ store: other, ...options });
  await engine.start();
  const watch = watching(store);
  const asked = watching(other);
  await Promise.all([untilLive(watch), untilLive(asked)]);
  const streams: number[] = [];

  const cancels = await medianOf(async () => {
    gate = Promise.withResolvers();
    const { id } = await asking.jobs.job.trigger(null);
    const reader = asking.subscribe(id).getReader();
    await inTime(reader.read(), "the stream was to begin");
    gate.resolve();
    let next;
    do {
      next = await inTime(reader.read(), "the step was to start");
      assert.equal(next.done, false);
    } while (next.value?.type !== "step:start");
    streams.push(performance.now() - startedAt);
    await reader.cancel();
    const [count, sentAt] = [cancelled.length, performance.now()];
    await asking.cancel(id);
    await until(() => cancelled.length > count, "the cancel was to arrive");
    return cancelled.at(-1)! - sentAt;
  });

  watch.stop();
  asked.stop();
  const median = streams.toSorted((a, b) => a - b)[(TRIES - 1) / 2]!;
  assert.ok(cancels < PROMISED_MS, `a cancel takes ${cancels} ms`);
  assert.ok(median < PROMISED_MS, `an event takes ${median} ms`);
});

test("an item of a stream reaches another process within 250 ms, while nobody polls", async ({ open }) => {
  const [store, other] = [await open(), await open()];
  let gate = Promise.withResolvers<void>();
  let over = Promise.withResolvers<void>();
  let writtenAt = 0;
  const job = defineJob({
    name: "say",
    input: anything<null>(),
    run: (step) =>
      step.run("say", async ({ stream }) => {
        await stream("tokens").write("first");
        await gate.promise;
        writtenAt = performance.now();
        await stream("tokens").write("second");
        await over.promise;
      }),
  });
  const options = { jobs: { job }, logger: null, worker: { pollingInterval: 10_000 } };
  await using engine = createEngine({ store, ...options });
  await using reading = createEngine({ store: other, ...options });
  await engine.start();
  const watch = watching(store);
  const asked = watching(other);
  await Promise.all([untilLive(watch), untilLive(asked)]);

  const median = await medianOf(async () => {
    gate = Promise.withResolvers();
    over = Promise.withResolvers();
    const { id } = await reading.jobs.job.trigger(null);
    const reader = reading.readStream(id, "tokens").getReader();
    await inTime(reader.read(), "the first item was to come");
    gate.resolve();
    const { value } = await inTime(reader.read(), "the second item was to come");
    const ms = performance.now() - writtenAt;
    assert.deepEqual([value?.from, value?.items], [1, ["second"]]);
    over.resolve();
    await reader.cancel();
    return ms;
  });

  watch.stop();
  asked.stop();
  assert.ok(median < PROMISED_MS, `an item takes ${median} ms`);
});
