import assert from "node:assert/strict";
import pg from "pg";
import { uuidV7 } from "../../../../src/model/host.ts";
import type { StepWrite } from "../../../../src/model/step.ts";
import type { Claim } from "../../../../src/store/claim.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import {
  toGroupedWrite,
  toWriteGroup,
  type WriteParameter,
} from "../../../../src/stores/postgres/writes/write_group.ts";
import { aClaimRequest, aFailure, aRun, aStart, aStep } from "../../../support/fixtures.ts";
import { startServer } from "../server.ts";
import { getRuns, getSteps } from "../../../../src/store/reads.ts";

const server = startServer();

function test(name: string, body: (store: PostgresStore, client: pg.Client, schema: string) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore: ${name}`,
    ignore: server === null,
    fn: async () => {
      const schema = `group_${crypto.randomUUID().replaceAll("-", "")}`;
      const { url } = server!; // ignored without a server
      await using store = await PostgresStore.open(url, { schema, durability: "relaxed" });
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      try {
        await store.migrate();
        await body(store, client, schema);
      } finally {
        await client.end();
      }
    },
  });
}

const listsOf = (...writes: WriteParameter[]) => toWriteGroup(writes.map(toGroupedWrite)).lists;

const step = (runId: string, name: string) => ({
  kind: "save_step" as const,
  runId,
  name,
  status: "completed",
  attempts: 1,
  reports: [],
});

Deno.test("toWriteGroup() performs steps, endings and plain triggers together", () => {
  const lists = listsOf(
    step("a", "one"),
    { kind: "finish", runId: "b", reports: [] },
    { kind: "enqueue", runs: [{ id: "c", flow: null }] },
    step("a", "two"),
    { kind: "signal" },
  );

  assert.deepEqual(lists, { steps: [0, 3], endings: [1], triggers: [2], others: [4] });
});

Deno.test("toWriteGroup() keeps different writes of one run, and two to one of its steps, in their order", () => {
  const lists = listsOf(
    { kind: "renew", renewals: [{ runId: "a" }, { runId: "b" }] },
    step("a", "one"),
    step("c", "one"),
    step("c", "one"),
    step("d", "one"),
    { kind: "finish", runId: "d", reports: [] },
    step("e", "one"),
  );

  assert.deepEqual(lists, { steps: [6], endings: [], triggers: [], others: [0, 1, 2, 3, 4, 5] });
});

Deno.test("toWriteGroup() does not group an attempt that is one of several", () => {
  const lists = listsOf(
    { ...step("a", "one"), status: "retrying" },
    { ...step("b", "one"), attempts: 2 },
    { ...step("c", "one"), status: "failed" },
  );

  assert.deepEqual(lists, { steps: [2], endings: [], triggers: [], others: [0, 1] });
});

Deno.test("toWriteGroup() keeps triggers in their order if one of them is special", () => {
  const lists = listsOf(
    { kind: "enqueue", runs: [{ id: "a", flow: null }] },
    { kind: "enqueue", runs: [{ id: "b", flow: null }, { id: "c", concurrencyKey: "key" }] },
  );

  assert.deepEqual(lists, { steps: [], endings: [], triggers: [], others: [0, 1] });
});

test("parallel steps of one group, of which one is repeated, are recorded once and in their order", async (store) => {
  const [claim] = await claimRuns(store, 1);
  const names = [...Array.from({ length: 50 }, (_, n) => `step ${n}`), "step 7"];

  const saved = await Promise.all(names.map((name, index) => {
    return store.saveStep(claim!.lease, aStep({ name, index }), [aStart({ no: index + 1, stepName: name })]);
  }));

  const numbers = saved.map(({ recordedNo }) => recordedNo);
  assert.equal(numbers[50], numbers[7]);
  assert.deepEqual(numbers.slice(0, 50).toSorted((a, b) => a - b), Array.from({ length: 50 }, (_, n) => n + 1));
  assert.equal((await getSteps(store, claim!.run.id)).length, 50);
});

test("the second attempt at a step is recorded beside a new step of the same group", async (store) => {
  const claims = await claimRuns(store, 3);
  const retrying = { status: "retrying", failure: aFailure(), delayMs: 0 } as const;
  const save = ({ lease }: Claim, name: string, attempts: number, result: StepWrite["result"] = aStep().result) =>
    store.saveStep(lease, aStep({ name, attempts, result }), []);
  await Promise.all(claims.map((claim) => save(claim, "fetch", 1, retrying)));

  const saved = await Promise.all(claims.flatMap((claim) => [save(claim, "fetch", 2), save(claim, "store", 1)]));

  for (const [fetched, stored] of [saved.slice(0, 2), saved.slice(2, 4), saved.slice(4)]) {
    assert.deepEqual([fetched!.recordedNo, stored!.recordedNo].toSorted(), [2, 3]);
  }
});

test("a batch of triggers that is repeated adds no run", async (store) => {
  const runs = Array.from({ length: 70 }, () => aRun({ id: uuidV7(Date.now()) }));

  const first = await store.enqueue(runs);
  const [again, other] = await Promise.all([store.enqueue(runs), store.enqueue([aRun({ id: uuidV7(Date.now()) })])]);

  assert.deepEqual(again, first);
  assert.equal(other.length, 1);
  assert.equal((await getRuns(store, { limit: 0 })).total, 71);
});

test("no index sees the steps of a run", async (store, client, schema) => {
  for (let round = 0; round < 3; round++) {
    const claims = await claimRuns(store, 100);
    for (let index = 0; index < 5; index++) {
      await Promise.all(claims.map(({ lease }) => store.saveStep(lease, aStep({ name: `step ${index}`, index }), [])));
    }
  }

  const hot = async () => {
    const { rows: [row] } = await client.query(`select n_tup_upd::int - 300 as steps, n_tup_hot_upd::int as hot
      from pg_stat_user_tables where schemaname = '${schema}' and relname = 'runs'`);
    return row as { steps: number; hot: number };
  };
  await store.close(); // the server adds up what a connection has done when it ends
  for (let tries = 0; (await hot()).steps < 1_500; tries++) {
    assert.ok(tries < 400, "the server has not counted the updates");
    await client.query("select pg_sleep(0.05)");
  }
  const { steps, hot: unseen } = await hot();
  assert.equal(steps, 1_500);
  assert.ok(unseen > 0.95 * steps, `${unseen} of ${steps} updates`);
});

async function claimRuns(store: PostgresStore, count: number): Promise<Claim[]> {
  await store.enqueue(Array.from({ length: count }, () => aRun({ id: uuidV7(Date.now()) })));
  const request = aClaimRequest({ claimId: crypto.randomUUID(), limit: count, leaseMs: 60_000 });
  return (await store.claim(request)).claims;
}
