import assert from "node:assert/strict";
import type { KnownJob } from "../../../model/flow.ts";
import { A_JOB, aClaimRequest, aFlow, aKnownJob, aRun } from "../fixtures.ts";
import { add, addCompleted, addIds, claimedIds, claimOne, complete, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun, hasWorker } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of the versions and the aliases of jobs. */
export const versionCases = cases;

const KEY = "cust-1";
const V1 = aKnownJob();
const V2 = aKnownJob({ version: 2, print: "print-2" });

test("enqueue() shows the version of a run, and claim() answers it with the print of the schema", async ({ store }) => {
  const { run } = await add(store, { version: 2, schemaPrint: "schema-1" });

  const claim = await claimOne(store, { jobs: [V2] });

  assert.equal(run.version, 2);
  assert.equal((await getRun(store, run.id))!.version, 2);
  assert.deepEqual([claim.version, claim.schemaPrint], [2, "schema-1"]);
});

test("claim() takes runs of the versions that the worker knows alone", async ({ store }) => {
  const [one, two, three] = await addIds(store, { version: 1 }, { version: 2 }, { version: 3 });

  const first = await claimedIds(store, { jobs: [V2] });
  const rest = await claimedIds(store, { jobs: [V1, V2, aKnownJob({ version: 3 })] });

  assert.deepEqual([first, rest], [[two], [one, three]]);
});

test("claim() takes runs of several versions in their order", async ({ store }) => {
  const ids = await addIds(store, { version: 2 }, { version: 1 }, { version: 2 });

  assert.deepEqual(await claimedIds(store, { jobs: [V1, V2] }), ids);
});

test("claim() has no more to do if it does not know the version of what is left", async ({ store }) => {
  await add(store, { version: 2 });

  const { claims, hasMore, nextTimerAt } = await store.claim(aClaimRequest({ jobs: [V1] }));

  assert.deepEqual([claims, hasMore, nextTimerAt], [[], false, null]);
});

test("claim() holds a run back behind another version that a live worker knows, and no other", async ({ store }) => {
  const [, second] = await addIds(store, { version: 2, concurrencyKey: KEY }, { concurrencyKey: KEY });
  await store.claim(aClaimRequest({ workerId: "worker-b", jobs: [V2], limit: 0 }));

  const behind = await claimedIds(store, { jobs: [V1] });
  await store.forgetWorker("worker-b");
  const alone = await claimedIds(store, { jobs: [V1] });

  assert.deepEqual([behind, alone], [[], [second]]);
});

test("claim() takes the runs of a key in their order whatever the version", async ({ store }) => {
  const ids = await addIds(
    store,
    ...[2, 1, 2].map((version) => ({ version, concurrencyKey: KEY })),
  );

  const taken: string[] = [];
  for (const _ of ids) {
    const { run, lease } = await claimOne(store, { jobs: [V1, V2], limit: 10 });
    taken.push(run.id);
    await complete(store, lease);
  }

  assert.deepEqual(taken, ids);
});

test("claim() takes each version of a job separately for the turns of a fairness key", async ({ store }) => {
  const flow = aFlow({ fairnessKey: "a" });
  const [, second] = await addIds(store, { version: 2, flow }, { version: 1, flow });

  assert.deepEqual(await claimedIds(store, { jobs: [V1] }), [second]);
});

test("claim() counts the runs of all versions under the limit of a job", async ({ store }) => {
  const [one] = await addIds(store, { version: 2 }, { version: 1 });
  const jobs = [V1, V2].map((job): KnownJob => ({ ...job, concurrency: 1 }));

  const first = await claimedIds(store, { jobs });
  const second = await claimedIds(store, { jobs });

  assert.deepEqual([first, second], [[one], []]);
});

timed("claim() counts the runs of all names under the limit and the rate of a job", async ({ store, host }) => {
  const rate = { limit: 1, period: 1_000 };
  const known = (limits: Partial<KnownJob>) =>
    ["new", "old"].map((name) => aKnownJob({ name, names: ["new", "old"], ...limits }));
  const claim = (limits: Partial<KnownJob>) => store.claim(aClaimRequest({ jobs: known(limits), leaseMs: 60_000 }));
  await store.enqueue([aRun({ jobName: "old" }), aRun({ jobName: "new" }), aRun({ jobName: "old" })]);

  const together = await claim({ concurrency: 1 });
  const full = await claim({ concurrency: 1 });
  const first = await claim({ rate });
  const early = await claim({ rate });
  host.advance(1_000);
  const second = await claim({ rate });

  const claimed = [together, full, first, early, second].map(({ claims }) => claims.map(({ run }) => run.jobName));
  assert.deepEqual(claimed, [["old"], [], ["new"], [], ["old"]]);
});

test("claim() counts a cancelled run under the limit of its job whatever the version", async ({ store }) => {
  const jobs = [V1, V2].map((job): KnownJob => ({ ...job, concurrency: 1 }));
  const { lease } = await startRun(store, { version: 2 }, { jobs });
  await add(store);

  await store.cancel(lease.runId, "request-1", null);

  assert.deepEqual(await claimedIds(store, { jobs }), []);
  await store.release(lease, []);
  assert.equal((await claimedIds(store, { jobs })).length, 1);
});

timed("claim() counts the starts of all versions under the rate of a job", async ({ store, host }) => {
  const [one, two] = await addIds(store, { version: 2 }, { version: 1 });
  const jobs = [V1, V2].map((job): KnownJob => ({ ...job, rate: { limit: 1, period: 1_000 } }));

  const first = await claimedIds(store, { jobs, leaseMs: 10_000 });
  const second = await claimedIds(store, { jobs, leaseMs: 10_000 });
  host.advance(1_000);

  assert.deepEqual([first, second], [[one], []]);
  assert.deepEqual(await claimedIds(store, { jobs }), [two]);
});

test("claim() applies the limits that the worker has for the version of a run", async ({ store }) => {
  const jobs: KnownJob[] = [{ ...V1, rate: { limit: 1, period: 1_000 } }, { ...V2, concurrency: 2 }];
  const [one, two] = await addIds(store, { version: 2 }, {}, {}, { version: 2 });

  const taken = await claimedIds(store, { jobs });

  // The start of version 2 is under no rate. The third run is; the fourth is one more than its version allows.
  assert.deepEqual(taken, [one, two]);
});

test("pauseJob() pauses all versions of a job", async ({ store }) => {
  await addIds(store, { version: 1 }, { version: 2 });

  await store.pauseJob(A_JOB, { by: null, note: null });

  assert.deepEqual(await claimedIds(store, { jobs: [V1, V2] }), []);
});

test("hasWorker() knows a job whatever the version", async ({ store }) => {
  await store.claim(aClaimRequest({ jobs: [V2] }));

  assert.equal(await hasWorker(store, A_JOB), true);
});

test("enqueue() finds the run with an idempotency key whatever its version", async ({ store }) => {
  const { run } = await add(store, { idempotencyKey: "once" });

  const again = await add(store, { idempotencyKey: "once", version: 2 });

  assert.deepEqual([again.run.id, again.run.version, again.disposition], [run.id, 1, "idempotent"]);
});

test("enqueue() finds the run with an idempotency key that the same call has added in another version", async ({ store }) => {
  const requests = [2, 3, 1].map((version) => aRun({ version, idempotencyKey: "once" }));

  const added = await store.enqueue(requests);

  assert.deepEqual(added.map(({ run }) => run.id), [requests[0]!.id, requests[0]!.id, requests[0]!.id]);
  assert.deepEqual(added.map(({ disposition }) => disposition), ["created", "idempotent", "idempotent"]);
});

test("enqueue() finds the run with an idempotency key under an alias", async ({ store }) => {
  const old = await addCompleted(store, { jobName: "check-out", idempotencyKey: "once" });

  const { run, disposition } = await add(store, {
    jobName: "checkout",
    aliases: ["cart", "check-out"],
    idempotencyKey: "once",
  });

  assert.deepEqual([run.id, run.jobName, disposition], [old.id, "check-out", "idempotent"]);
});

test("enqueue() looks for an idempotency key under the name, then under the aliases in their order", async ({ store }) => {
  const [first, second, named] = await addIds(
    store,
    { jobName: "cart", idempotencyKey: "once" },
    { jobName: "check-out", idempotencyKey: "once" },
    { jobName: "checkout", idempotencyKey: "once" },
  );

  const find = async (jobName: string, aliases: string[]) =>
    (await add(store, { jobName, aliases, idempotencyKey: "once" })).run.id;
  assert.equal(await find("checkout", ["check-out", "cart"]), named);
  assert.equal(await find("shop", ["check-out", "cart"]), second);
  assert.equal(await find("shop", ["cart", "check-out"]), first);
});

test("enqueue() does not find the runs of a job under the name of its alias", async ({ store }) => {
  const { run } = await add(store, { jobName: "checkout", aliases: ["check-out"], idempotencyKey: "once" });

  const other = await add(store, { jobName: "check-out", idempotencyKey: "once" });

  assert.notEqual(other.run.id, run.id);
  assert.equal(other.disposition, "created");
});

test("enqueue() joins a run of another version", async ({ store }) => {
  const { run } = await add(store, { concurrencyKey: KEY });

  const joined = await add(store, { concurrencyKey: KEY, coalesce: "skip", version: 2 });

  assert.deepEqual([joined.run.id, joined.run.version, joined.disposition], [run.id, 1, "coalesced"]);
});

test("enqueue() joins the oldest pending run under the name and the aliases", async ({ store }) => {
  const [, oldest] = await addIds(
    store,
    { jobName: "cart", concurrencyKey: KEY },
    { jobName: "check-out", concurrencyKey: KEY },
    { jobName: "checkout", concurrencyKey: KEY },
  );

  const request = { jobName: "checkout", aliases: ["check-out"], concurrencyKey: KEY, coalesce: "skip" } as const;
  const joined = await add(store, request);

  assert.deepEqual([joined.run.id, joined.disposition], [oldest, "coalesced"]);
});

test("enqueue() joins a run that is executed under an alias", async ({ store }) => {
  const { run } = await startRun(store, { jobName: "check-out", concurrencyKey: KEY });

  const joined = await add(store, { aliases: ["check-out"], concurrencyKey: KEY, coalesce: "active" });

  assert.equal(joined.run.id, run.id);
});

test("enqueue() gives a retry the version of its request", async ({ store }) => {
  const old = await addCompleted(store);

  const { run } = await add(store, { version: 2, retriggerOf: { runId: old.id, from: "failure" } });

  assert.deepEqual([run.version, (await getRun(store, old.id))!.version], [2, 1]);
});
