import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { aClaimRequest, aRun } from "../../support/fixtures.ts";
import { claimOne } from "../../../src/testing/contract/arrange.ts";
import { startServer } from "./server.ts";

// What becomes of leases when a call has to wait for a lock.

const server = startServer();
let schemas = 0;

interface World {
  schema: string;
  /** Two stores of the schema. */
  stores: readonly [PostgresStore, PostgresStore];
  /** Holds what a statement locks, until the returned function is called. */
  lock(sql: string): Promise<() => Promise<void>>;
  /** Resolves when so many calls wait for a lock. */
  untilWaiting(calls: number): Promise<void>;
}

function test(name: string, body: (world: World) => Promise<void>): void {
  Deno.test({
    name,
    ignore: server === null,
    async fn() {
      const { url } = server!; // ignored without a server
      const schema = `waits_${++schemas}`;
      await using one = await PostgresStore.open(url, { schema, durability: "relaxed" });
      await using other = await PostgresStore.open(url, { schema, durability: "relaxed" });
      await one.migrate();
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      const holder = new pg.Client({ connectionString: url });
      await holder.connect();
      await body({
        schema,
        stores: [one, other],
        lock: async (sql) => {
          await holder.query("begin");
          await holder.query(sql);
          return async () => void await holder.query("commit");
        },
        untilWaiting: async (calls) => {
          const waiting =
            "select from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'holdfast'";
          while ((await client.query(waiting)).rowCount! < calls);
        },
      });
      await Promise.all([client.end(), holder.end()]);
    },
  });
}

test("renew() extends a lease from when it has the row, not from when it was called", async ({ schema, stores, lock, untilWaiting }) => {
  const [store] = stores;
  await store.enqueue([aRun()]);
  const { lease } = await claimOne(store, { leaseMs: 60_000 });
  const unlock = await lock(`select from ${schema}.runs for update`);

  const renewing = store.renew([{ lease, reports: [] }], 120_000);
  await untilWaiting(1);
  await new Promise((resolve) => setTimeout(resolve, 500));
  const freedAt = Date.now();
  await unlock();

  const [end] = await renewing;
  assert.ok(end! >= freedAt + 120_000);
});

test("claim() that is repeated while its first try waits gives the same lease once", async ({ schema, stores, lock, untilWaiting }) => {
  const [store, other] = stores;
  await store.enqueue([aRun(), aRun()]);
  const request = aClaimRequest({ limit: 1, leaseMs: 60_000 });
  const unlock = await lock(`select ${schema}.lock_all_v1()`);

  const first = store.claim(request);
  await untilWaiting(1);
  const repeated = other.claim(request);
  await untilWaiting(2);
  await unlock();

  const [[one], [same]] = [(await first).claims, (await repeated).claims];
  assert.deepEqual([same!.run.id, same!.lease], [one!.run.id, one!.lease]);
  assert.equal((await store.getLeases()).length, 1);
});
