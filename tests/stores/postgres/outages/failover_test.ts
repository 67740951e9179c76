import assert from "node:assert/strict";
import pg from "pg";
import { LeaseLostError, StoreError } from "../../../../src/model/error.ts";
import type { Lease } from "../../../../src/model/lease.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { aClaimRequest, aPause, aProgress, aRun, aStep } from "../../../support/fixtures.ts";
import { claimOne, complete, look, park, prepare, startRun } from "../../../../src/testing/contract/arrange.ts";
import { hasServer, type Pair, startPair } from "./standby.ts";
import { getRun, getSteps } from "../../../../src/store/reads.ts";

// Each test has a server with an asynchronous standby that is cut off from it, so that it lacks what is committed from
// then on, and is promoted.

const LEASE_MS = 60_000;

function test(name: string, body: (pair: Pair) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore after a failover to a standby that lacks the last commits: ${name}`,
    ignore: !hasServer,
    async fn() {
      await using pair = await startPair();
      await body(pair);
    },
  });
}

async function open(pair: Pair): Promise<PostgresStore> {
  const store = await PostgresStore.open(pair.url);
  await store.migrate();
  return store;
}

/** Promotes the standby. The first claim after it, which begins all leases anew, is done. */
async function failOver(pair: Pair): Promise<PostgresStore> {
  await pair.failOver();
  const store = await open(pair);
  await store.claim(aClaimRequest({ workerId: "first", limit: 0 }));
  return store;
}

/** All that a holder of a lease can write. */
function writesUnder(store: PostgresStore, lease: Lease): Promise<unknown>[] {
  return [
    store.saveStep(lease, aStep({ name: "late", index: 9 }), [aProgress({ current: 9 })]),
    complete(store, lease),
    prepare(store, lease, aPause()),
    store.saveInput(lease, "late", "1"),
  ];
}

async function assertRefused(store: PostgresStore, lease: Lease): Promise<void> {
  const before = await look(store, lease.runId);
  for (const ending of await Promise.allSettled(writesUnder(store, lease))) {
    assert.ok(ending.status === "rejected" && ending.reason instanceof LeaseLostError);
  }
  assert.deepEqual(await store.renew([{ lease, reports: [aProgress({ current: 9 })] }], LEASE_MS), [null]);
  assert.deepEqual(await store.getLostLeases([lease]), [lease]);
  assert.deepEqual(await look(store, lease.runId), before);
}

test("the holder of a claim that is lost writes nothing, before and after another one claims", async (pair) => {
  await using primary = await open(pair);
  await primary.enqueue([aRun()]);
  await pair.cut();
  const { lease: lost } = await claimOne(primary, { leaseMs: LEASE_MS });
  const { recordedNo } = await primary.saveStep(lost, aStep({ result: { status: "completed", output: '"lost"' } }), []);
  const known = { ...lost, recorded: recordedNo };
  await using store = await failOver(pair);

  await assertRefused(store, lost);
  const { lease, steps } = await claimOne(store, { workerId: "worker-b", leaseMs: LEASE_MS });

  assert.deepEqual([lease.generation, steps], [lost.generation, []]);
  await assertRefused(store, lost);
  await assertRefused(store, known);
  await store.release(known, []);
  await store.saveStep(lease, aStep({ result: { status: "completed", output: '"kept"' } }), []);
  await complete(store, lease);
  // The holder of the lost claim repeats the call that ended the run: it was not its own.
  await assert.rejects(complete(store, known), LeaseLostError);
  assert.deepEqual((await getSteps(store, lease.runId)).map(({ name, output }) => [name, output]), [["read", "kept"]]);
});

test("a holder does not write past a step that is lost, and others go on from before it", async (pair) => {
  await using primary = await open(pair);
  const { lease } = await startRun(primary, {}, { leaseMs: LEASE_MS });
  const first = await primary.saveStep(lease, aStep(), []);
  await pair.cut();
  const second = await primary.saveStep(
    { ...lease, recorded: first.recordedNo },
    aStep({ name: "write", index: 1 }),
    [],
  );
  const known = { ...lease, recorded: second.recordedNo };
  await using store = await failOver(pair);

  await assertRefused(store, known);
  await store.release(known, []);
  const next = await claimOne(store, { workerId: "worker-b" });

  assert.deepEqual(next.steps.map(({ name }) => name), ["read"]);
  await complete(store, next.lease);
  assert.equal((await getRun(store, lease.runId))!.status, "completed");
});

test("a holder goes on whose records are all there", async (pair) => {
  await using primary = await open(pair);
  const { lease } = await startRun(primary, {}, { leaseMs: LEASE_MS });
  const { recordedNo } = await primary.saveStep(lease, aStep(), []);
  await pair.cut();
  const known = { ...lease, recorded: recordedNo };
  await primary.renew([{ lease: known, reports: [aProgress({ current: 1 })] }], LEASE_MS);
  await using store = await failOver(pair);

  await store.saveStep(known, aStep({ name: "write", index: 1 }), []);

  assert.equal((await getSteps(store, lease.runId)).length, 2);
});

test("leases that expired meanwhile begin anew, so that no run is abandoned", async (pair) => {
  await using primary = await open(pair);
  const { lease, run } = await startRun(primary, {}, { leaseMs: 1_000 });
  await pair.cut();
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await pair.failOver();
  await using store = await open(pair);

  const first = await store.claim(aClaimRequest({ workerId: "worker-b", maxAbandonments: 1 }));

  assert.deepEqual([first.claims, first.failed], [[], []]);
  await store.saveStep(lease, aStep(), []);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  // Then it is as without an outage.
  assert.deepEqual((await claimOne(store, { workerId: "worker-b" })).run.id, run.id);
});

test("until then a client that is connected to the standby is told that it is not available", async (pair) => {
  await using primary = await open(pair);
  await primary.enqueue([aRun()]);
  await pair.cut();
  const pool = new pg.Pool({ connectionString: pair.standbyUrl });
  await using _pool = { [Symbol.asyncDispose]: () => pool.end() };
  await using standby = PostgresStore.from(pool, { listenUrl: null });

  const errors = await Promise.all(
    [standby.claim(aClaimRequest()), standby.enqueue([aRun()]), standby.cancel("none", "c1", null)]
      .map((call) => call.then(() => null, (error) => error)),
  );

  assert.deepEqual(errors.map((error) => error instanceof StoreError && [error.code, error.outcomeUnknown]), [
    ["unavailable", false],
    ["unavailable", false],
    ["unavailable", false],
  ]);
});

test("a holder does not add children to a pause that lacks the first ones, nor wait for it", async (pair) => {
  const onChildren = (from: number) =>
    aPause({ kind: "children", name: "all", children: { total: 2, from, runs: [aRun({ jobName: "child" })] } });
  await using primary = await open(pair);
  const { lease } = await startRun(primary, {}, { leaseMs: LEASE_MS });
  await pair.cut();
  await prepare(primary, lease, onChildren(0));
  await using store = await failOver(pair);

  await assert.rejects(park(store, lease, onChildren(1)), LeaseLostError);
  await assert.rejects(park(store, lease, aPause({ kind: "children", name: "all", children: null })), LeaseLostError);

  assert.deepEqual((await store.claim(aClaimRequest({ jobNames: ["child"] }))).claims, []);
  await park(store, lease, onChildren(0));
});

test("the run of a trigger that is lost does not exist, and the trigger can be repeated", async (pair) => {
  await using primary = await open(pair);
  await pair.cut();
  const request = aRun({ idempotencyKey: "order-1" });
  await primary.enqueue([request]);
  const { lease } = await claimOne(primary);
  await using store = await failOver(pair);

  assert.equal(await getRun(store, request.id), null);
  await assertRefused(store, lease);
  const [again] = await store.enqueue([request]);

  assert.equal(again!.disposition, "created");
  assert.equal((await claimOne(store)).run.id, request.id);
  await assertRefused(store, lease);
});

test("a cursor from before is valid, and one to what is lost is recognized", async (pair) => {
  await using primary = await open(pair);
  await primary.enqueue([aRun()]);
  const kept = (await primary.findCursor(null))!;
  await pair.cut();
  for (let at = 0; at < 40; at++) await primary.enqueue([aRun()]);
  const lost = (await primary.findCursor(null))!;
  await using store = await failOver(pair);

  assert.deepEqual(await store.findCursor(kept), kept);
  assert.equal(await store.findCursor(lost), null);
  const page = await store.readJournal(kept.position, Infinity);
  assert.deepEqual(page!.rows, []);
  // New commits come to the positions of those that are lost, and beyond them.
  while ((await store.findCursor(null))!.position <= lost.position) await store.enqueue([aRun()]);
  assert.equal(await store.findCursor(lost), null);
  assert.equal(await store.readJournal(lost.position, Infinity, lost.at), null);
  assert.ok((await store.readJournal(kept.position, Infinity, kept.at))!.rows.length > 0);
});
