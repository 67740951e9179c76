import assert from "node:assert/strict";
import pg from "pg";
import { createEngine, defineJob } from "../../../../mod.ts";
import { StoreError } from "../../../../src/model/error.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { anything } from "../../../support/stores/for_each_store.ts";
import { A_JOB, aClaimRequest, aRun, aStep } from "../../../support/fixtures.ts";
import { claimedIds, claimOne, complete } from "../../../../src/testing/contract/arrange.ts";
import { type Server, startServer } from "../server.ts";
import { getRun } from "../../../../src/store/reads.ts";

const server = startServer({ fsync: true, isOwn: true });

const LEASE_MS = 1_000;
const DOWN_MS = 3_000;
const ONLY_A = "only-a";
const ONLY_B = "only-b";
const OF_A = { workerId: "worker-a", jobNames: [A_JOB, ONLY_A], leaseMs: LEASE_MS };
const OF_B = { workerId: "worker-b", jobNames: [A_JOB, ONLY_B], leaseMs: LEASE_MS };

let schemas = 0;

function test(name: string, body: (server: Server, store: PostgresStore, schema: string) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore ${name}`,
    ignore: server === null,
    async fn() {
      const schema = `outage_${++schemas}`;
      await using store = await PostgresStore.open(server!.url, { schema }); // ignored without a server
      await store.migrate();
      await body(server!, store, schema);
    },
  });
}

/** Repeats a call until the server is there again. */
async function whenBack<T>(call: () => Promise<T>): Promise<T> {
  const until = performance.now() + 20_000;
  while (true) {
    try {
      return await call();
    } catch (error) {
      if (performance.now() > until) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/** Kills a process of the server: all others restart, and the server says that it was started long ago. */
async function crashProcess({ url }: Server): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  const { rows: [row] } = await client.query("select pg_backend_pid() as pid");
  Deno.kill(row.pid, "SIGKILL");
  await client.end().catch(() => {});
}

const OUTAGES: Record<string, (server: Server) => Promise<void>> = {
  "a crash of the server": (server) => server.restart({ downMs: DOWN_MS }),
  "a shutdown of the server": (server) => server.restart({ downMs: DOWN_MS, mode: "fast" }),
  "a crash of one of its processes": async (server) => {
    await new Promise((resolve) => setTimeout(resolve, LEASE_MS));
    await crashProcess(server);
  },
};

for (const [outage, happen] of Object.entries(OUTAGES)) {
  test(
    `lets nobody take a run, or pass an elder one, after ${outage} that outlasts the leases`,
    async (server, store) => {
      await store.enqueue([aRun()]);
      const held = await claimOne(store, OF_A);
      const [elder, younger] = [
        aRun({ jobName: ONLY_A, concurrencyKey: "key" }),
        aRun({ jobName: ONLY_B, concurrencyKey: "key" }),
      ];
      await store.enqueue([elder, younger]);
      await happen(server);

      const { claims, failed } = await whenBack(() => store.claim(aClaimRequest({ ...OF_B, maxAbandonments: 1 })));

      assert.deepEqual([claims, failed], [[], []]);
      await store.saveStep(held.lease, aStep(), []);
      await store.renew([{ lease: held.lease, reports: [] }], LEASE_MS);
      const run = await getRun(store, held.run.id);
      assert.deepEqual([run!.status, run!.leaseGeneration], ["running", held.lease.generation]);
      await complete(store, held.lease);
      assert.deepEqual(await claimedIds(store, OF_A), [elder.id]);
    },
  );
}

test(
  "revokes a lease one length after the end of an outage, if its worker does not come back",
  async (server, store) => {
    await store.enqueue([aRun()]);
    const held = await claimOne(store, OF_A);
    await server.restart({ downMs: LEASE_MS });
    const backAt = Date.now();

    const first = await whenBack(() => store.claim(aClaimRequest(OF_B)));
    const leaseEndsAt = Date.parse((await getRun(store, held.run.id))!.leaseExpiresAt!);
    await new Promise((resolve) => setTimeout(resolve, LEASE_MS));
    const second = await store.claim(aClaimRequest(OF_B));

    assert.deepEqual(first.claims, []);
    assert.ok(leaseEndsAt >= backAt + LEASE_MS && leaseEndsAt <= first.now + LEASE_MS);
    assert.deepEqual(second.claims.map(({ run, execution }) => [run.id, execution]), [[held.run.id, 2]]);
  },
);

test("keeps the key of a cancelled run after an outage, until its worker must have noticed", async (server, store) => {
  await store.enqueue([aRun({ concurrencyKey: "key" }), aRun({ concurrencyKey: "other" })]);
  const { claims: [before, after] } = await store.claim(aClaimRequest(OF_A));
  await store.cancel(before!.run.id, "c1", null);
  const behind = [aRun({ concurrencyKey: "key" }), aRun({ concurrencyKey: "other" })];
  await store.enqueue(behind);
  await server.restart({ downMs: DOWN_MS });

  await whenBack(() => store.cancel(after!.run.id, "c2", null));

  assert.deepEqual(await claimedIds(store, OF_B), []);
  await store.release(before!.lease, []);
  await store.release(after!.lease, []);
  assert.deepEqual(await claimedIds(store, OF_B), behind.map(({ id }) => id));
});

test("counts no abandonment of what engines execute during an outage", async (server, _store, schema) => {
  const slow = defineJob({
    name: "slow",
    input: anything,
    run: async (step) => {
      for (let at = 0; at < 4; at++) {
        await step.run(`step ${at}`, () => new Promise((resolve) => setTimeout(resolve, 200)));
      }
    },
  });
  const stores = await Promise.all([0, 1].map(() => PostgresStore.open(server.url, { schema })));
  const worker = { staleThreshold: 2 * LEASE_MS, heartbeatInterval: 200, maxAbandonments: 1 };
  const engines = stores.map((store) => createEngine({ store, jobs: { slow }, worker, logger: null }));
  await Promise.all(engines.map((engine) => engine.start()));
  const runs = await Promise.all(Array.from({ length: 6 }, () => engines[0]!.jobs.slow.trigger(null)));
  await new Promise((resolve) => setTimeout(resolve, 300));

  await server.restart({ downMs: 2 * DOWN_MS });
  const ended = await Promise.all(runs.map(({ id }) => whenBack(() => engines[1]!.waitForRun(id))));

  assert.deepEqual(ended.map(({ status }) => status), Array(6).fill("completed"));
  await Promise.all(engines.map((engine) => engine.stop()));
  await Promise.all(stores.map((store) => store.close()));
});

test(
  "refuses a role whose commits do not wait for the disk, on a server whose commits do",
  async ({ url }, store, schema) => {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query("create role hasty login superuser; alter role hasty set synchronous_commit = off");
    await client.end();
    const address = new URL(url);
    address.username = "hasty";
    await using relaxed = await PostgresStore.open(address, { schema, durability: "relaxed" });

    await assert.rejects(
      PostgresStore.open(address, { schema }),
      (error) => error instanceof StoreError && /synchronous_commit/.test(error.message),
    );

    await relaxed.migrate();
    await store.migrate();
  },
);
