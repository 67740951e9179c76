import assert from "node:assert/strict";
import pg from "pg";
import type { Claim } from "../../../src/store/claim.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aFlow, aKnownJob, aRun } from "../../support/fixtures.ts";
import { findDeadEntries } from "./open_subject.ts";
import { findFault } from "./postgres_faults.ts";
import { startServer } from "./server.ts";

// Claims begin behind the entries of their indexes that vacuum cannot remove: see claim/scan_starts.ts.

const server = startServer();
const JOBS = [aKnownJob({ name: "a" })];
const BATCH = 250;
const BATCHES = 16;
let schemas = 0;

/** A store in a schema of its own, and clients of the same server. */
interface Fixture {
  store: PostgresStore;
  host: FakeHost;
  schema: string;
  connect(): Promise<pg.Client>;
}

function test(name: string, body: (fixture: Fixture) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore: ${name}`,
    ignore: server === null,
    async fn() {
      const { url } = server!; // ignored without one
      const [schema, host] = [`snapshots_${Deno.pid}_${++schemas}`, new FakeHost()];
      await using stack = new AsyncDisposableStack();
      const connect = async () => {
        const client = new pg.Client({ connectionString: url });
        await client.connect();
        stack.defer(() => client.end());
        return client;
      };
      const store = stack.use(await PostgresStore.open(url, { schema, durability: "relaxed", host }));
      await store.migrate();
      await body({ store, host, schema, connect });
    },
  });
}

let claims = 0;

async function claim(store: PostgresStore, limit = 1): Promise<Claim[]> {
  const request = aClaimRequest({ workerId: "w", claimId: `c${++claims}`, jobs: JOBS, limit, leaseMs: 60_000 });
  return (await store.claim(request)).claims;
}

async function idsOf(claiming: Promise<Claim[]>): Promise<string[]> {
  return (await claiming).map(({ run }) => run.id);
}

async function finish(store: PostgresStore, claims: readonly Claim[]): Promise<void> {
  await Promise.all(
    claims.map(({ lease }) => store.finish(lease, { status: "completed", output: null, durationMs: 0 }, [])),
  );
}

/** A store whose writes are in a transaction that is open. */
async function begin(client: pg.Client, schema: string, host: FakeHost): Promise<PostgresStore> {
  await client.query("begin");
  // The store refuses to write inside a transaction, so its calls are made those of a pool of its own.
  const query = (sql: string, parameters?: unknown[]) =>
    client.query(sql.replace(/^call (.*)apply_outside_v1(.*), null\)$/, "select $1apply_v1$2) as r"), parameters);
  return PostgresStore.from({ query }, { schema, durability: "relaxed", host });
}

/** The blocks that a claim reads, which is rolled back. */
async function countBlocks(client: pg.Client, schema: string, host: FakeHost): Promise<number> {
  let blocks = 0;
  const query = async (sql: string, parameters?: unknown[]) => {
    if (sql.includes("bounded_claim")) {
      const { rows } = await client.query(`explain (analyze, buffers, format json) ${sql}`, parameters);
      const { Plan: plan } = rows[0]["QUERY PLAN"][0];
      blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
    }
    return await client.query(sql, parameters);
  };
  await using store = PostgresStore.from({ query }, { schema, durability: "relaxed", host });
  await client.query("begin");
  await claim(store);
  await client.query("rollback");
  return blocks;
}

test("a claim reads few blocks however many runs have ended since a snapshot was taken", async ({ store, host, schema, connect }) => {
  const [holder, client] = [await connect(), await connect()];
  await store.enqueue([aRun({ id: "last", jobName: "a", flow: aFlow({ priority: -1 }) })]);
  // A session reads the catalog when it first calls a function.
  await countBlocks(client, schema, host);
  const before = await countBlocks(client, schema, host);
  await holder.query("begin isolation level repeatable read");
  await holder.query("select 1");

  for (let batch = 0; batch < BATCHES; batch++) {
    await store.enqueue(Array.from({ length: BATCH }, (_, n) => aRun({ id: `run-${batch}-${n}`, jobName: "a" })));
    await finish(store, await claim(store, BATCH));
    host.advance(1_000);
  }
  await claim(store, 0);
  const after = await countBlocks(client, schema, host);
  await holder.query("rollback");

  assert.ok(after < before + 200, `a claim reads ${after} blocks, and ${before} before`);
  assert.equal(await findFault(client, schema), null);
});

test("runs that come back are claimed in their order, wherever claims begin", async ({ store, host, schema, connect }) => {
  await findDeadEntries(server!.url, schema); // ignored without a server
  await store.enqueue([1, 2, 3].map((n) => aRun({ id: `early-${n}`, jobName: "a" })));
  const early = await claim(store, 3);
  await store.enqueue([1, 2, 3].map((n) => aRun({ id: `late-${n}`, jobName: "a" })));
  await claim(store, 0);
  await claim(store, 0);

  await store.release(early[2]!.lease, []);
  await store.release(early[1]!.lease, []);
  await store.enqueue([aRun({ id: "urgent", jobName: "a", flow: aFlow({ priority: 1 }) })]);

  assert.equal(await findFault(await connect(), schema), null);
  assert.deepEqual(await idsOf(claim(store, 2)), ["urgent", "early-2"]);
  host.advance(60_000);
  assert.deepEqual(await idsOf(claim(store, 4)), ["urgent", "early-1", "early-2", "early-3"]);
  assert.deepEqual(await idsOf(claim(store, 4)), ["late-1", "late-2", "late-3"]);
});

test("two transactions add runs that come before the place where claims begin", async ({ store, host, schema, connect }) => {
  await findDeadEntries(server!.url, schema); // ignored without a server
  await store.enqueue(["one", "other"].map((id) => aRun({ id, jobName: "a" })));
  const [one, other] = await claim(store, 2);
  await store.enqueue([aRun({ id: "late", jobName: "a" })]);
  await claim(store, 0);
  await claim(store, 0);

  const client = await connect();
  await using open = await begin(client, schema, host);
  const flow = aFlow({ priority: 2 });
  await open.enqueue([aRun({ id: "urgent", jobName: "a", flow })]);
  await store.enqueue([aRun({ id: "also urgent", jobName: "a", flow: aFlow({ priority: 1 }) })]);
  assert.deepEqual(await idsOf(claim(store)), ["also urgent"]);
  await client.query("commit");

  assert.equal(await findFault(client, schema), null);
  assert.deepEqual(await idsOf(claim(store)), ["urgent"]);
  await finish(store, [one!, other!]);
  assert.deepEqual(await idsOf(claim(store)), ["late"]);
});

test("a run that is about to be added is found, however far others are", async ({ store, host, schema, connect }) => {
  await findDeadEntries(server!.url, schema); // ignored without a server
  const client = await connect();
  await using open = await begin(client, schema, host);
  await open.enqueue([aRun({ id: "first", jobName: "a" })]);
  await store.enqueue([aRun({ id: "second", jobName: "a" })]);

  // Where claims begin is noted alone: the second one waits for the transaction.
  const claiming = claim(store);
  await new Promise((resolve) => setTimeout(resolve, 100));
  await client.query("commit");

  assert.deepEqual(await idsOf(claiming), ["first"]);
  assert.deepEqual(await idsOf(claim(store)), ["second"]);
  assert.equal(await findFault(client, schema), null);
});
