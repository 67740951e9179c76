import assert from "node:assert/strict";
import pg from "pg";
import { getRun } from "../../../src/store/reads.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { aClaimRequest, aRun, aStep } from "../../support/fixtures.ts";
import { startServer } from "./server.ts";

const server = startServer();
const RUNS = 60_000;
const SCHEMA = `costs_${Deno.pid}`;

// Plans are made when the tables are empty, and kept as long as the session: so the session of the store is made before
// the rows are. The measure is a list that counts all runs, which has to read them all.
Deno.test({
  name: "PostgresStore reads a page as fast among many runs, with plans from when there were none",
  ignore: server === null,
  fn: async () => {
    const [admin, session] = [await connect(), await connect()];
    const store = PostgresStore.from(session, { schema: SCHEMA, durability: "relaxed" });
    try {
      await store.migrate();
      const { rows } = await admin.query(`select tablename from pg_tables where schemaname = '${SCHEMA}'`);
      for (const { tablename } of rows) {
        await admin.query(`alter table ${SCHEMA}.${tablename} set (autovacuum_enabled = false)`);
      }
      const reads = readsOf(store);
      for (const read of Object.values(reads)) await read();

      await fill(admin);

      for (const isAnalyzed of [false, true]) {
        if (isAnalyzed) await admin.query("analyze");
        const all = await timeOf(() =>
          store.findRuns({ labels: { org: "acme" }, createdAfter: new Date(1).toISOString() })
        );
        for (const [what, read] of Object.entries(reads)) {
          const one = await timeOf(read);
          assert.ok(one < all / 2, `${what} takes ${one} ms, a list of all runs ${all} ms (analyzed: ${isAnalyzed})`);
        }
        const [leases, runs] = [await timeOf(reads["lost leases"]!), await timeOf(reads["runs by their ids"]!)];
        assert.ok(leases < runs, `lost leases take ${leases} ms, the same runs ${runs} ms (analyzed: ${isAnalyzed})`);
      }
    } finally {
      await store.close();
      await admin.query(`drop schema if exists ${SCHEMA} cascade`);
      await Promise.all([admin.end(), session.end()]);
    }
  },
});

Deno.test({
  name: "PostgresStore reads no value of the steps that a part of a list leaves out",
  ignore: server === null,
  fn: async () => {
    const [schema, client] = [`${SCHEMA}_values`, await connect()];
    let blocks = 0;
    const query = async (sql: string, parameters?: unknown[]) => {
      if (/^select .*read_steps/.test(sql)) {
        const { rows } = await client.query(`explain (analyze, buffers, format json) ${sql}`, parameters);
        const { Plan: plan } = rows[0]["QUERY PLAN"][0];
        blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
      }
      return await client.query(sql, parameters);
    };
    await using store = PostgresStore.from({ query }, { schema, durability: "relaxed" });
    await store.migrate();
    const run = aRun();
    await store.enqueue([run]);
    const { claims: [claim] } = await store.claim(aClaimRequest());
    // What is compressed well is stored in few blocks.
    const output = JSON.stringify(Array.from({ length: 20_000 }, () => Math.random()));
    for (let index = 0; index < 20; index++) {
      const step = aStep({ name: `step-${index}`, index, result: { status: "completed", output } });
      await store.saveStep(claim!.lease, step, []);
    }
    await store.readSteps(run.id, null, 10_000); // a session reads the catalog when it first calls a function

    const part = await store.readSteps(run.id, null, 10_000);

    await client.query(`drop schema ${schema} cascade`);
    await client.end();
    assert.equal(part!.items.length, 1);
    assert.ok(blocks < 300, `${blocks} blocks`);
  },
});

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server!.url }); // ignored without a server
  await client.connect();
  return client;
}

function readsOf(store: PostgresStore): Record<string, () => Promise<unknown>> {
  const ids = Array.from({ length: 20 }, (_, n) => `run-${n * 1_000 + 1}`);
  const numbers = Array.from({ length: 20 }, (_, n) => n * 1_000 + 1);
  const leases = ids.map((runId) => ({ runId, generation: 1, claimId: "claim", recorded: 0, concurrencyKey: null }));
  return {
    "a run": () => getRun(store, "run-5"),
    "the newest runs": () => store.findRuns({ limit: 20 }),
    "runs of a job": () => store.findRuns({ limit: 20, jobName: "often" }),
    "runs of a job with one run": () => store.findRuns({ limit: 20, jobName: "rare" }),
    "runs in a rare status": () => store.findRuns({ limit: 20, status: "waiting" }),
    "runs in a frequent status": () => store.findRuns({ limit: 20, status: "completed" }),
    "runs of a job in a rare status": () => store.findRuns({ limit: 20, jobName: "often", status: "waiting" }),
    "runs with a rare label": () => store.findRuns({ limit: 20, labels: { order: "7" } }),
    "runs with two labels": () => store.findRuns({ limit: 20, labels: { org: "acme", order: "7" } }),
    "a page of a frequent label": () => store.findRuns({ limit: 20, labels: { org: "acme" }, countUpTo: 0 }),
    "runs with a parent": () => store.findRuns({ limit: 20, parentRunId: "run-1" }),
    "runs by their ids": () => store.readRuns(ids, 100_000),
    "identities": () => store.getRunIdentities(numbers),
    "values of facts": () => store.readFactValues(numbers.map((run) => ({ run, of: "payload" as const })), 100_000),
    "steps": () => store.readSteps("run-5", null, 100_000),
    "log lines": () => store.readLogs("run-5", null, 100_000),
    "the state of a run": () => store.getRunState("run-5"),
    "a history": () => store.getHistory("run-5"),
    "the last page of the journal": async () => {
      const { position } = (await store.findCursor(null))!;
      return await store.readJournal(position - 640, 10_000);
    },
    "lost leases": () => store.getLostLeases(leases),
    "held runs": () => store.findHeld({ after: 0, limit: 20 }),
  };
}

async function fill(client: pg.Client): Promise<void> {
  await client.query(`
    insert into ${SCHEMA}.runs (id, job, status, queue, position, labels, created_at, updated_at, completed_at)
      select 'run-' || n, case when n = 100 then 'rare' else 'often' end,
        case when n % 10000 = 0 then 'waiting' else 'completed' end, 'often', n, '{"org":"acme"}', n, n,
        case when n % 10000 = 0 then null else n end from generate_series(1, ${RUNS}) n;
    insert into ${SCHEMA}.inputs (run_seq, payload) select seq, '{"n":' || seq || '}' from ${SCHEMA}.runs;
    insert into ${SCHEMA}.labels select 'org', 'acme', seq from ${SCHEMA}.runs
      union all select 'order', (seq / 20)::text, seq from ${SCHEMA}.runs;
    insert into ${SCHEMA}.counts select status, job, count(*) from ${SCHEMA}.runs group by 1, 2;
    insert into ${SCHEMA}.steps (run_seq, name, position, status, attempts, recorded_no, started_at, output)
      select seq, 'read', 0, 'completed', 1, 1, 1, '{}' from ${SCHEMA}.runs;
    insert into ${SCHEMA}.logs (id, run_seq, no, level, message, written_at)
      select 'line-' || seq, seq, 1, 'info', 'hello', 1 from ${SCHEMA}.runs;
    insert into ${SCHEMA}.journal (at, facts) select 1, '[' || seq || ',"triggered"]' from ${SCHEMA}.runs`);
}

/** The shortest of three times, in milliseconds. */
async function timeOf(read: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < 3; round++) {
    const startedAt = performance.now();
    await read();
    times.push(performance.now() - startedAt);
  }
  return Math.min(...times);
}
