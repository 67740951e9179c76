import assert from "node:assert/strict";
import pg from "pg";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { aClaimRequest, aPause, aRun } from "../../../support/fixtures.ts";
import { startServer } from "../server.ts";

const server = startServer();
const RUNS = 60_000;
const TRIES = 8;
const SCHEMA = `key_costs_${Deno.pid}`;
const KEY = "busy";

// Plans are made when the tables are empty, and kept as long as the session: so the session of the store is made before
// the rows are. The measure is a read of the whole queue.
Deno.test({
  name: "PostgresStore triggers, claims, parks and ends a run as fast among many of the same key",
  ignore: server === null,
  fn: async () => {
    const [admin, session] = [await connect(), await connect()];
    const store = PostgresStore.from(session, { schema: SCHEMA, durability: "relaxed" });
    try {
      await store.migrate();
      await admin.query(`alter table ${SCHEMA}.runs set (autovacuum_enabled = false)`);
      await timesOf(store);

      await admin.query(
        `insert into ${SCHEMA}.runs (seq, id, job, status, queue, queue_state, position, labels, concurrency_key,
          created_at, updated_at) overriding system value
        select n, 'run-' || n, 'greet', 'pending', 'greet', 'B', n, '{}', '${KEY}', 1, 1
        from (select nextval('${SCHEMA}.runs_seq_seq') as n from generate_series(1, ${RUNS})) s`,
      );
      await admin.query(`update ${SCHEMA}.runs set queue_state = 'R'
        where seq = (select min(seq) from ${SCHEMA}.runs where queue_state is not null)`);
      await admin.query(`insert into ${SCHEMA}.inputs (run_seq) select seq from ${SCHEMA}.runs on conflict do nothing`);

      for (const isAnalyzed of [false, true]) {
        if (isAnalyzed) await admin.query("analyze");
        const readAll = () =>
          admin.query(
            `select sum(started_at) from ${SCHEMA}.runs where concurrency_key = '${KEY}' and queue_state = 'B'`,
          );
        const whole = await shortest(readAll);
        for (const [what, ms] of Object.entries(await timesOf(store))) {
          assert.ok(ms < whole, `${what} takes ${ms} ms, a read of the queue ${whole} ms (analyzed: ${isAnalyzed})`);
        }
      }
    } finally {
      await store.close();
      await admin.query(`drop schema if exists ${SCHEMA} cascade`);
      await Promise.all([admin.end(), session.end()]);
    }
  },
});

/** How long each of what is done with runs of the key takes at least, in milliseconds. */
async function timesOf(store: PostgresStore): Promise<Record<string, number>> {
  const trigger = await shortest(() => store.enqueue([aRun({ jobName: "greet", concurrencyKey: KEY })]));
  const claims: number[] = [];
  const pauses: number[] = [];
  const ends: number[] = [];
  for (let n = 0; n < TRIES; n++) {
    const { lease } = await timed(claims, async () => {
      const request = aClaimRequest({ jobNames: ["greet"], claimId: crypto.randomUUID(), limit: 1, leaseMs: 600_000 });
      const [claim] = (await store.claim(request)).claims;
      assert.ok(claim !== undefined, "the key goes on");
      return claim;
    });
    if (n % 2 === 0) {
      await timed(ends, () => store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []));
    } else {
      const pause = aPause({ id: crypto.randomUUID(), kind: "wait" });
      await timed(pauses, () => store.pause(lease, { pauses: [pause], retryAt: null, park: true, reports: [] }));
    }
  }
  return { trigger, claim: Math.min(...claims), pause: Math.min(...pauses), end: Math.min(...ends) };
}

async function timed<T>(times: number[], work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now();
  const result = await work();
  times.push(performance.now() - startedAt);
  return result;
}

async function shortest(work: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < TRIES; n++) await timed(times, work);
  return Math.min(...times);
}

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server!.url }); // ignored without a server
  await client.connect();
  return client;
}
