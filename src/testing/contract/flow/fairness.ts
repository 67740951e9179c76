import assert from "node:assert/strict";
import type { Flow } from "../../../model/flow.ts";
import type { Store } from "../../../store/store.ts";
import type { NewRun } from "../../../store/new_run.ts";
import { A_JOB, aClaimRequest, aFlow, aKnownJob, aPause, aRun } from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, park, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getRun } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of runs with a fairness key. */
export const fairnessCases = cases;

test("enqueue() shows the fairness key of a run", async ({ store }) => {
  const { run } = await add(store, of("a"));

  assert.equal(run.fairnessKey, "a");
  assert.equal((await getRun(store, run.id))?.fairnessKey, "a");
});

test("claim() takes the first run of each key before the second of one", async ({ store }) => {
  const [a1, a2, a3, b1, b2, c1] = await addIds(store, of("a"), of("a"), of("a"), of("b"), of("b"), of("c"));

  assert.deepEqual(await claimedIds(store), [a1, b1, c1, a2, b2, a3]);
});

test("claim() takes the runs of one key in their order", async ({ store }) => {
  const ids = await addIds(store, of("a"), of("a"), of("a"));

  assert.deepEqual(await claimedIds(store), ids);
});

test("claim() goes on with the turns of the claim before", async ({ store }) => {
  const [a1, a2, a3, b1, b2] = await addIds(store, of("a"), of("a"), of("a"), of("b"), of("b"));

  const taken = await claimSingly(store, 5);

  assert.deepEqual(taken, [a1, b1, a2, b2, a3]);
});

test("claim() takes runs without a fairness key as those of one key", async ({ store }) => {
  const [a1, a2, a3, plain1, plain2] = await addIds(store, of("a"), of("a"), of("a"), {}, {});

  assert.deepEqual(await claimedIds(store), [a1, plain1, a2, plain2, a3]);
});

test("claim() lets the runs of a key pass a backlog of runs without one", async ({ store }) => {
  const plain = await addIds(store, ...Array.from({ length: 50 }, () => ({})));
  await claimSingly(store, 5);
  const [a1, a2] = await addIds(store, of("a"), of("a"));

  const taken = await claimSingly(store, 4);

  assert.deepEqual(new Set(taken), new Set([a1, a2, plain[5], plain[6]]));
});

test("claim() says that there is more while a key waits for its turn", async ({ store }) => {
  await addIds(store, of("a"), of("a"));

  const { claims, hasMore } = await store.claim(aClaimRequest({ limit: 1 }));

  assert.deepEqual([claims.length, hasMore], [1, true]);
});

test("claim() serves a key that appears beside a backlog in the current turn", async ({ store }) => {
  await addIds(store, ...Array.from({ length: 100 }, () => of("a")));
  await claimSingly(store, 20);
  const [b1] = await addIds(store, of("b"));

  assert.deepEqual(await claimSingly(store, 1), [b1]);
});

test("claim() starts twenty runs within 29 beside a backlog of a thousand", async ({ store }) => {
  await addIds(store, ...Array.from({ length: 1_000 }, () => of("a")));
  await claimSingly(store, 1);
  const few = await addIds(store, ...Array.from({ length: 20 }, (_, i) => i < 10 ? of("b") : {}));

  const taken = await claimedIds(store, { limit: 29 });

  assert.deepEqual(few.filter((id) => !taken.includes(id)), []);
});

test("claim() gives no key two turns while another waits, with keys of different length", async ({ store }) => {
  const keyOf = new Map<string, string>();
  for (const [key, count] of [["a", 9], ["b", 3], ["c", 6]] as const) {
    for (const id of await addIds(store, ...Array.from({ length: count }, () => of(key)))) keyOf.set(id, key);
  }

  const served = (await claimSingly(store, 18)).map((id) => keyOf.get(id)!);

  const rounds = [served.slice(0, 3), served.slice(3, 6), served.slice(6, 9), served.slice(9, 11)];
  assert.deepEqual(rounds.map((round) => round.toSorted().join("")), ["abc", "abc", "abc", "ac"]);
  assert.deepEqual(served.slice(-3), ["a", "a", "a"]);
});

test("claim() heeds priorities within a key, not across keys", async ({ store }) => {
  const [a1, a2, a3, b1, b2] = await addIds(
    store,
    of("a"),
    of("a", { priority: 2 }),
    of("a", { priority: 3 }),
    of("b", { priority: -1 }),
    of("b"),
  );

  assert.deepEqual(await claimedIds(store), [a3, b2, a2, b1, a1]);
});

test("claim() lets an urgent run take the turn of the first of its key", async ({ store }) => {
  await addIds(store, of("a"), of("b"));
  await claimSingly(store, 2);
  const [a1, b1] = await addIds(store, of("a"), of("b"));
  const [urgent] = await addIds(store, of("a", { priority: 1 }));

  const taken = await claimedIds(store);

  assert.deepEqual(taken, [urgent, b1, a1]);
});

test("claim() hands the turn of a cancelled run to the next of its key", async ({ store }) => {
  const [a1, a2, b1, b2] = await addIds(store, of("a"), of("a"), of("b"), of("b"));

  await store.cancel(a1!, "c1", null);

  assert.deepEqual(await claimedIds(store), [a2, b1, b2]);
});

test("claim() remembers no debts of a backlog that was cancelled", async ({ store }) => {
  const backlog = await addIds(store, ...Array.from({ length: 100 }, () => of("a")));
  await addIds(store, ...Array.from({ length: 20 }, () => of("b")));
  await claimSingly(store, 6);
  for (const id of backlog.slice(3)) await store.cancel(id, `c-${id}`, null);
  const [late] = await addIds(store, of("a"));

  const taken = await claimSingly(store, 2);

  assert.ok(taken.includes(late!));
});

test("claim() gives a key no turns for the time in which its job was paused", async ({ store }) => {
  const jobs = ["import", "export"].map((name) => aKnownJob({ name }));
  const mine = await addIds(store, ...Array.from({ length: 40 }, () => ({ ...of("a"), jobName: "import" })));
  await addIds(store, ...Array.from({ length: 40 }, () => ({ ...of("b"), jobName: "export" })));
  await store.pauseJob("import", { by: null, note: null });
  await claimedIds(store, { jobs, limit: 20 });

  await store.resumeJob("import");

  const taken = await claimedIds(store, { jobs, limit: 10 });
  const share = taken.filter((id) => mine.includes(id)).length;
  assert.ok(share >= 4 && share <= 6, `${share} of 10`);
});

test("claim() counts no turns of runs without a key while no run with one can go", async ({ store }) => {
  const jobs = ["import", "export"].map((name) => aKnownJob({ name }));
  const [a1, a2] = await addIds(store, { ...of("a"), jobName: "import" }, { ...of("a"), jobName: "import" });
  const plain = await addIds(store, ...Array.from({ length: 20 }, () => ({ jobName: "export" })));
  await store.pauseJob("import", { by: null, note: null });
  await claimedIds(store, { jobs, limit: 5 });

  await store.resumeJob("import");

  assert.deepEqual(await claimedIds(store, { jobs, limit: 4 }), [a1, plain[5], a2, plain[6]]);
});

test("claim() lets a key join the current turn that had no runs for a while", async ({ store }) => {
  const jobs = ["import", "export"].map((name) => aKnownJob({ name }));
  const [old] = await addIds(store, { ...of("a"), jobName: "import" });
  const b = await addIds(store, ...Array.from({ length: 30 }, () => ({ ...of("b"), jobName: "export" })));
  await store.pauseJob("import", { by: null, note: null });
  await claimedIds(store, { jobs, limit: 20 });
  await store.cancel(old!, "c1", null);
  const [a1, a2] = await addIds(store, { ...of("a"), jobName: "import" }, { ...of("a"), jobName: "import" });

  await store.resumeJob("import");

  assert.deepEqual(await claimedIds(store, { jobs, limit: 4 }), [a1, b[20], a2, b[21]]);
});

timed("claim() gives a key no turns for the time in which its runs were delayed", async ({ store, host }) => {
  const start = { afterMs: 500 };
  const mine = await addIds(store, ...Array.from({ length: 40 }, () => of("a", { start })));
  await addIds(store, ...Array.from({ length: 40 }, () => of("b")));
  await claimedIds(store, { limit: 20, leaseMs: 60_000 });
  host.advance(500);

  const taken = await claimedIds(store, { limit: 10 });

  const share = taken.filter((id) => mine.includes(id)).length;
  assert.ok(share >= 4 && share <= 6, `${share} of 10`);
});

test("claim() gives a key no turns for the time in which the limit of its job was reached", async ({ store }) => {
  const jobs = [aKnownJob({ name: "import", concurrency: 1 }), aKnownJob({ name: "export" })];
  const { lease } = await startRun(store, { jobName: "import" });
  const mine = await addIds(store, ...Array.from({ length: 40 }, () => ({ ...of("a"), jobName: "import" })));
  await addIds(store, ...Array.from({ length: 40 }, () => ({ ...of("b"), jobName: "export" })));
  const during = await claimedIds(store, { jobs, limit: 20 });
  await complete(store, lease);

  const taken = await claimedIds(store, { jobs: [aKnownJob({ name: "import" }), jobs[1]!], limit: 10 });

  assert.deepEqual(during.filter((id) => mine.includes(id)), []);
  const share = taken.filter((id) => mine.includes(id)).length;
  assert.ok(share >= 4 && share <= 6, `${share} of 10`);
});

test("claim() takes turns across jobs: a key has one turn with all its jobs", async ({ store }) => {
  const jobNames = ["import", "export"];
  const [a1, , a3, b1] = await addIds(
    store,
    { ...of("a"), jobName: "import" },
    { ...of("a"), jobName: "import" },
    { ...of("a"), jobName: "export" },
    { ...of("b"), jobName: "import" },
  );

  const taken = await claimedIds(store, { jobNames });

  assert.deepEqual(taken.slice(0, 2), [a1, b1]);
  assert.equal(taken.length, 4);
  assert.ok(taken.includes(a3!));
});

test("claim() lets a run of a fairness key pass one that waits for its concurrency key", async ({ store }) => {
  await startRun(store, { concurrencyKey: "cust-1" });
  const [, other, b1] = await addIds(store, { ...of("a"), concurrencyKey: "cust-1" }, of("a"), of("b"));

  assert.deepEqual(await claimedIds(store), [other, b1]);
});

test("claim() takes the runs of a concurrency key in their line, whatever their fairness keys", async ({ store }) => {
  const [a1, b1, c1] = await addIds(
    store,
    { ...of("a"), concurrencyKey: "cust-1" },
    { ...of("b"), concurrencyKey: "cust-1" },
    { ...of("a"), concurrencyKey: "cust-1" },
  );

  const taken = [];
  for (let i = 0; i < 3; i++) {
    const { run, lease } = await claimOne(store, { limit: 10 });
    taken.push(run.id);
    await complete(store, lease);
  }

  assert.deepEqual(taken, [a1, b1, c1]);
});

test("claim() takes the first in the line of a key though another worker's run stands behind it", async ({ store }) => {
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  const [first, , other] = await addIds(
    store,
    { concurrencyKey: "cust-1" },
    { jobName: "export", concurrencyKey: "cust-1" },
    of("a"),
  );

  assert.deepEqual(await claimedIds(store), [first, other]);
});

test("claim() leaves out the first of a fairness key as soon as another job's run comes before it in its line", async ({ store }) => {
  const shared = { concurrencyKey: "cust-1" };
  const [first] = await addIds(
    store,
    { ...shared, jobName: "import" },
    { ...shared, jobName: "import" }, // waits until it can have the key for itself
    { ...of("a", { keyConcurrency: 2 }), ...shared, jobName: "export" },
  );

  assert.deepEqual(await claimedIds(store, { jobNames: ["import", "export"], limit: 3 }), [first]);
});

test("claim() lets the runs of a fairness key pass its first one, which is behind another worker's run in its line", async ({ store }) => {
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  const [, , a2, b1, a3] = await addIds(
    store,
    { jobName: "export", concurrencyKey: "cust-1" },
    { ...of("a"), concurrencyKey: "cust-1" },
    of("a"),
    of("b"),
    of("a"),
  );

  assert.deepEqual(await claimedIds(store), [a2, b1, a3]);
});

test("claim() lets the runs of a fairness key pass many that are behind another worker's runs", async ({ store }) => {
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  for (let i = 0; i < 20; i++) {
    const concurrencyKey = `cust-${i}`;
    await addIds(store, { jobName: "export", concurrencyKey }, { ...of(i < 10 ? "a" : "b"), concurrencyKey });
  }
  const [a, b, c] = await addIds(store, of("a"), of("b"), of("c"));

  assert.deepEqual(await claimedIds(store), [a, b, c]);
});

test("claim() orders the keys of one turn by the runs that can be claimed, not by those before them", async ({ store }) => {
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  const [, , b1, a2] = await addIds(
    store,
    { jobName: "export", concurrencyKey: "cust-1" },
    { ...of("a"), concurrencyKey: "cust-1" },
    of("b"),
    of("a"),
  );

  assert.deepEqual(await claimSingly(store, 2), [b1, a2]);
});

test("claim() takes a run that others of its fairness key have passed as soon as the run before it is gone", async ({ store }) => {
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  const [before, a1, a2, b1, b2, a3] = await addIds(
    store,
    { jobName: "export", concurrencyKey: "cust-1" },
    { ...of("a"), concurrencyKey: "cust-1" },
    of("a"),
    of("b"),
    of("b"),
    of("a"),
  );
  const passed = await claimSingly(store, 2);

  await store.cancel(before!, "c1", null);

  assert.deepEqual([passed, await claimedIds(store)], [[a2, b1], [a1, b2, a3]]);
});

test("claim() lets a begun run of a fairness key pass one behind another worker's run, while a rate is used up", async ({ store }) => {
  const jobs = [aKnownJob({ rate: { limit: 2, period: 3_600_000 } })];
  await store.claim(aClaimRequest({ workerId: "worker-x", jobNames: ["export"], limit: 0 }));
  const [, second] = await addIds(store, { ...of("a"), concurrencyKey: "cust-1" }, of("a"));
  const { claims } = await store.claim(aClaimRequest({ jobs }));
  for (const { lease } of claims) await store.release(lease, []);
  await add(store, { jobName: "export", concurrencyKey: "cust-1", flow: aFlow({ priority: 1 }) });

  assert.deepEqual(await claimedIds(store, { jobs }), [second]);
});

timed(
  "claim() takes the runs that kept their concurrency key over a retry delay in the turns of their fairness keys",
  async ({ store, host }) => {
    const shared = { concurrencyKey: "cust-1" };
    const [first, second] = await addIds(
      store,
      { ...of("a", { keyConcurrency: 2 }), ...shared },
      { ...of("b", { keyConcurrency: 2 }), ...shared },
    );
    const { claims } = await store.claim(aClaimRequest());
    for (const { lease } of claims) await parkUntilRetry(store, lease, host.now() + 500);
    await add(store, of("a"));
    await claimOne(store, { leaseMs: 60_000 });
    host.advance(500);

    assert.deepEqual(await claimedIds(store), [second, first]);
  },
);

test("claim() takes a run that the turn of another has made the next in its line", async ({ store }) => {
  await add(store, of("a"));
  await claimOne(store); // from now on the runs without a key have their turn first
  const [first, second, plain] = await addIds(
    store,
    { ...of("a", { keyConcurrency: 2 }), concurrencyKey: "cust-1" },
    { flow: aFlow({ keyConcurrency: 2 }), concurrencyKey: "cust-1" },
    { flow: aFlow({ finishWithin: 60_000 }) },
  );

  assert.deepEqual(await claimedIds(store), [plain, first, second]);
});

test("claim() leaves out a key whose first run cannot go, and serves the others", async ({ store }) => {
  const jobs = [aKnownJob({ name: "import", concurrency: 1 }), aKnownJob()];
  await startRun(store, { jobName: "import" });
  const [, b1, a2, b2] = await addIds(store, { ...of("a"), jobName: "import" }, of("b"), of("a"), of("b"));

  assert.deepEqual(await claimedIds(store, { jobs }), [b1, a2, b2]);
});

test("claim() lets an interrupted run be the first of its key, in the key's turn", async ({ store }) => {
  const [a1, , b1] = await addIds(store, of("a"), of("a"), of("b"));
  const { lease } = await claimOne(store);
  await store.release(lease, []);

  const taken = await claimedIds(store);

  assert.equal(lease.runId, a1);
  assert.deepEqual(taken.slice(0, 2), [b1, a1]);
});

test("claim() lets a resumed run wait for the turn of its key, one round at most", async ({ store }) => {
  const { lease, run } = await startRun(store, of("a"));
  const review = aPause();
  await park(store, lease, review);
  await store.enqueue([aRun(of("b")), aRun(of("b")), aRun(of("c")), aRun(of("c"))]);
  await claimSingly(store, 2);
  await store.signal(review.id, { signalId: "s1", payload: null });

  assert.ok((await claimSingly(store, 3)).includes(run.id));
});

test("claim() lets a run pass the first of its key that has started, while the rate of the job is used up", async ({ store }) => {
  const jobs = [aKnownJob({ rate: { limit: 1, period: 3_600_000 } })];
  await add(store, of("a"));
  const { lease } = await claimOne(store, { jobs });
  await add(store, of("a", { priority: 1 }));
  await store.release(lease, []);

  assert.deepEqual(await claimedIds(store, { jobs }), [lease.runId]);
});

timed("claim() fails a late run in its place, which costs its key no turn", async ({ store, host }) => {
  await addIds(store, of("a"), of("b"));
  await claimSingly(store, 2);
  const [, a2, b1] = await addIds(store, of("a", { startWithin: 300 }), of("a"), of("b"));
  host.advance(300);

  assert.deepEqual(await claimedIds(store), [a2, b1]);
});

test("claim() answers the same runs if it is repeated, and serves no turn for them", async ({ store }) => {
  const [a1, a2, b1] = await addIds(store, of("a"), of("a"), of("b"));
  const request = aClaimRequest({ limit: 1 });
  await store.claim(request);

  const { claims } = await store.claim(request);

  assert.deepEqual(claims.map(({ run }) => run.id), [a1]);
  assert.deepEqual(await claimedIds(store), [b1, a2]);
});

function of(fairnessKey: string, flow: Partial<Flow> = {}): Partial<NewRun> {
  return { jobName: A_JOB, flow: aFlow({ fairnessKey, ...flow }) };
}

/** The runs that claims of one run each take. */
async function claimSingly(store: Store, count: number): Promise<string[]> {
  const ids = [];
  for (let i = 0; i < count; i++) ids.push((await claimOne(store, { leaseMs: 60_000 })).run.id);
  return ids;
}
