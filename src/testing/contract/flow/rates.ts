import assert from "node:assert/strict";
import type { Rate } from "../../../model/flow.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aClaimRequest, aFlow, aKnownJob, aPause, type ClaimOverrides } from "../fixtures.ts";
import { add, addIds, claimedIds, claimOne, complete, park, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What a store promises of the rates of jobs and of concurrency keys. */
export const rateCases = cases;

const TWO_A_SECOND: Rate = { limit: 2, period: 1_000 };
const ONE_A_SECOND: Rate = { limit: 1, period: 1_000 };
const LONG = 10_000_000; // a lease that outlasts the test

timed("claim() starts as many runs of a job in a period as its rate allows", async ({ store, host }) => {
  const ids = await addIds(store, {}, {}, {}, {}, {});
  const first = await store.claim(atRate(TWO_A_SECOND));
  host.advance(999);
  const before = await store.claim(atRate(TWO_A_SECOND));
  host.advance(1);
  const then = await store.claim(atRate(TWO_A_SECOND));

  assert.deepEqual([first.claims.map(({ run }) => run.id), first.hasMore], [ids.slice(0, 2), false]);
  assert.deepEqual([before.claims, before.hasMore, before.nextTimerAt], [[], false, FAKE_START + 1_000]);
  assert.deepEqual(then.claims.map(({ run }) => run.id), ids.slice(2, 4));
});

timed("claim() starts no more runs in any period than the rate allows", async ({ store, host }) => {
  await addIds(store, ...Array.from({ length: 20 }, () => ({})));

  const starts: number[] = [];
  for (let at = 0; at < 3_000; at += 100) {
    // One run at 400, then as many as the rate allows.
    const { claims } = await store.claim(
      atRate({ limit: 3, period: 1_000 }, { limit: at < 900 ? (at === 400 ? 1 : 0) : 10 }),
    );
    starts.push(...claims.map(() => at));
    host.advance(100);
  }

  assert.deepEqual(starts, [400, 900, 900, 1_400, 1_900, 1_900, 2_400, 2_900, 2_900]);
});

timed("claim() says when the rate of a job opens, only while it holds up a run", async ({ store, host }) => {
  await add(store);
  const { claims: [claim] } = await store.claim(atRate(ONE_A_SECOND));
  await complete(store, claim!.lease);
  host.advance(100);

  const idle = await store.claim(atRate(ONE_A_SECOND));
  await add(store);
  const held = await store.claim(atRate(ONE_A_SECOND));

  assert.deepEqual([idle.nextTimerAt, held.nextTimerAt], [null, FAKE_START + 1_000]);
  assert.deepEqual([held.claims, held.hasMore], [[], false]);
});

timed("claim() says when a rate opens that it has used up itself", async ({ store }) => {
  await addIds(store, {}, {});

  const { nextTimerAt, hasMore } = await store.claim(atRate(ONE_A_SECOND));

  assert.deepEqual([nextTimerAt, hasMore], [FAKE_START + 1_000, false]);
});

timed("claim() lets a run pass the rate of its job that has started", async ({ store, host }) => {
  const anHour = { limit: 1, period: 3_600_000 };
  await addIds(store, {});
  const { claims: [claim] } = await store.claim(atRate(anHour));
  await park(store, claim!.lease, aPause({ kind: "sleep", deadline: { afterMs: 1_000 } }));
  const [younger] = await addIds(store, { flow: aFlow({ priority: 1 }) });
  host.advance(1_000);

  const resumed = await store.claim(atRate(anHour));

  assert.deepEqual(resumed.claims.map(({ run }) => run.id), [claim!.run.id]);
  await store.release(resumed.claims[0]!.lease, []);
  assert.deepEqual((await store.claim(atRate(anHour))).claims.map(({ run }) => run.id), [claim!.run.id]);
  host.advance(3_600_000 - 1_000);
  assert.ok((await store.claim(atRate(anHour))).claims.some(({ run }) => run.id === younger));
});

timed("claim() does not count a run that starts again", async ({ store, host }) => {
  await add(store);
  const { claims: [claim] } = await store.claim(atRate(TWO_A_SECOND));
  await store.release(claim!.lease, []);
  host.advance(500);
  await store.claim(atRate(TWO_A_SECOND));
  const ids = await addIds(store, {}, {});

  const { claims, nextTimerAt } = await store.claim(atRate(TWO_A_SECOND));

  assert.deepEqual(claims.map(({ run }) => run.id), [ids[0]]);
  assert.equal(nextTimerAt, FAKE_START + 1_000);
});

timed("claim() counts a start though nothing else becomes of the run", async ({ store, host }) => {
  const [first, second] = await addIds(store, {}, {});
  await store.claim(atRate(ONE_A_SECOND));
  await store.cancel(first!, "c1", null);
  await store.delete(first!);

  const during = await store.claim(atRate(ONE_A_SECOND));
  host.advance(1_000);

  assert.deepEqual(during.claims, []);
  assert.deepEqual((await store.claim(atRate(ONE_A_SECOND))).claims.map(({ run }) => run.id), [second]);
});

test("claim() counts starts over all workers, also in calls at once", async ({ store }) => {
  await addIds(store, ...Array.from({ length: 10 }, () => ({})));

  const results = await Promise.all(
    ["a", "b", "c"].map((name) => store.claim(atRate(TWO_A_SECOND, { workerId: `worker-${name}`, limit: 1 }))),
  );

  assert.equal(results.flatMap(({ claims }) => claims).length, 2);
});

test("claim() counts no start twice when it is repeated", async ({ store }) => {
  await addIds(store, {}, {});
  const request = atRate(TWO_A_SECOND, { limit: 1 });
  await store.claim(request);

  await store.claim(request);

  assert.equal((await store.claim(atRate(TWO_A_SECOND))).claims.length, 1);
});

test("claim() takes runs of other jobs while the rate of one is used up", async ({ store }) => {
  const jobs = [aKnownJob({ rate: ONE_A_SECOND }), aKnownJob({ name: "export" })];
  const [first, , other] = await addIds(store, {}, {}, { jobName: "export" });

  assert.deepEqual(await claimedIds(store, { jobs }), [first, other]);
});

test("claim() keeps the rates of jobs apart", async ({ store }) => {
  const jobs = ["import", "export"].map((name) => aKnownJob({ name, rate: ONE_A_SECOND }));
  const [one, , two] = await addIds(store, { jobName: "import" }, { jobName: "import" }, { jobName: "export" });

  assert.deepEqual(await claimedIds(store, { jobs }), [one, two]);
});

timed(
  "claim() counts a start in the future as one of now: at most one period until the next",
  async ({ store, host }) => {
    const [, second] = await addIds(store, {}, {});
    await store.claim(atRate(ONE_A_SECOND, { limit: 1 }));
    host.jump(-3_600_000);

    const after = await store.claim(atRate(ONE_A_SECOND));
    host.advance(999);
    const before = await store.claim(atRate(ONE_A_SECOND));
    host.advance(1);
    const then = await store.claim(atRate(ONE_A_SECOND));

    assert.deepEqual([after.claims, after.nextTimerAt], [[], FAKE_START - 3_600_000 + 1_000]);
    assert.deepEqual([before.claims, before.nextTimerAt], [[], FAKE_START - 3_600_000 + 1_000]);
    assert.deepEqual(then.claims.map(({ run }) => run.id), [second]);
  },
);

timed("claim() counts a start again that has left the period, if the clock is set back", async ({ store, host }) => {
  const [, second] = await addIds(store, {}, {});
  await store.claim(atRate(ONE_A_SECOND, { limit: 1 }));
  host.advance(1_500);
  await store.claim(atRate(ONE_A_SECOND, { limit: 0 }));
  host.jump(-1_000);

  const during = await store.claim(atRate(ONE_A_SECOND));
  host.advance(500);

  assert.deepEqual([during.claims, during.nextTimerAt], [[], FAKE_START + 1_000]);
  assert.deepEqual((await store.claim(atRate(ONE_A_SECOND))).claims.map(({ run }) => run.id), [second]);
});

timed("claim() counts a start under the rate of a key again, if the clock is set back", async ({ store, host }) => {
  const rate = { limit: 1, period: 400 };
  const [, second] = await addIds(store, ofKey("cust-1", rate, 1), ofKey("cust-1", rate, 1));
  const { lease } = await claimOne(store, { leaseMs: LONG });
  host.advance(500);
  await complete(store, lease);
  host.jump(-200);

  const during = await store.claim(aClaimRequest());
  host.advance(100);

  assert.deepEqual([during.claims, during.nextTimerAt], [[], FAKE_START + 400]);
  assert.deepEqual(await claimedIds(store), [second]);
});

timed("claim() has the rate open after the clock was set forward", async ({ store, host }) => {
  const [, second] = await addIds(store, {}, {});
  await store.claim(atRate(ONE_A_SECOND, { limit: 1 }));
  host.jump(3_600_000);

  assert.deepEqual((await store.claim(atRate(ONE_A_SECOND))).claims.map(({ run }) => run.id), [second]);
});

timed("claim() fails a run that the rate holds up when it has not started in time", async ({ store, host }) => {
  await addIds(store, {}, { flow: aFlow({ startWithin: 300 }) });
  const first = await store.claim(atRate(ONE_A_SECOND));
  host.advance(300);

  const then = await store.claim(atRate(ONE_A_SECOND));

  assert.equal(first.nextTimerAt, FAKE_START + 300);
  assert.deepEqual([then.claims, then.failed.map(({ failureKind }) => failureKind)], [[], ["expired"]]);
});

timed("claim() counts no start of a run that is late", async ({ store, host }) => {
  const [, next] = await addIds(store, { flow: aFlow({ startWithin: 300 }) }, {});
  host.advance(300);

  assert.deepEqual((await store.claim(atRate(ONE_A_SECOND))).claims.map(({ run }) => run.id), [next]);
});

timed("claim() starts as many runs of a key in a period as its rate allows", async ({ store, host }) => {
  const ids = await addIds(store, ...Array.from({ length: 4 }, () => ofKey("cust-1", TWO_A_SECOND, 5)));

  const first = await store.claim(aClaimRequest({ leaseMs: LONG }));
  host.advance(999);
  const before = await store.claim(aClaimRequest());
  host.advance(1);

  assert.deepEqual([first.claims.map(({ run }) => run.id), first.hasMore], [ids.slice(0, 2), false]);
  assert.deepEqual([before.claims, before.hasMore, before.nextTimerAt], [[], false, FAKE_START + 1_000]);
  assert.deepEqual(await claimedIds(store), ids.slice(2));
});

test("claim() keeps the rates of keys apart, and holds up no run without a key", async ({ store }) => {
  const [one, , two, plain] = await addIds(
    store,
    ofKey("cust-1", ONE_A_SECOND, 5),
    ofKey("cust-1", ONE_A_SECOND, 5),
    ofKey("cust-2", ONE_A_SECOND, 5),
    {},
  );

  assert.deepEqual(await claimedIds(store), [one, two, plain]);
});

timed("claim() counts the starts of a key whatever their jobs", async ({ store, host }) => {
  const jobNames = ["import", "export"];
  const [one, two] = await addIds(
    store,
    { ...ofKey("cust-1", ONE_A_SECOND, 5), jobName: "import" },
    { ...ofKey("cust-1", ONE_A_SECOND, 5), jobName: "export" },
  );

  const first = await claimedIds(store, { jobNames, leaseMs: LONG });
  host.advance(1_000);

  assert.deepEqual([first, await claimedIds(store, { jobNames })], [[one], [two]]);
});

timed("claim() counts the starts of a key for each of its rates, however short the others are", async (setting) => {
  const { store, host } = setting;
  const start = async (rate: Rate) => {
    await addIds(store, ofKey("cust-1", rate, 5));
    const claimed = await claimedIds(store, { leaseMs: LONG });
    host.advance(200);
    return claimed.length;
  };
  const slow = { limit: 3, period: 10_000 };
  const fast = { limit: 1, period: 100 };

  const first = await start(slow);
  const meanwhile = [await start(fast), await start(fast), await start(fast)];
  const fifth = await start(slow);

  assert.deepEqual([first, ...meanwhile, fifth], [1, 1, 1, 1, 0]);
  host.advance(10_000 - 900); // the third of the last three starts was at 200
  assert.equal((await claimedIds(store)).length, 0);
  host.advance(100);
  assert.equal((await claimedIds(store)).length, 1);
});

timed("claim() counts old starts of a key for a longer rate that came after them", async ({ store, host }) => {
  const daily = { limit: 2, period: 86_400_000 };
  for (const rate of [{ limit: 1, period: 100 }, daily]) {
    await addIds(store, ofKey("cust-1", rate, 1));
    await complete(store, (await claimOne(store)).lease);
  }
  host.advance(7_200_000);
  await store.claim(aClaimRequest()); // an empty claim removes what counts no more

  await addIds(store, ofKey("cust-1", daily, 1));

  assert.deepEqual(await claimedIds(store), []);
});

timed("claim() says when the rate of a key opens, only while it holds up a run that could go", async ({ store }) => {
  await addIds(store, ofKey("cust-1", ONE_A_SECOND, 1), ofKey("cust-1", ONE_A_SECOND, 1));

  const held = await store.claim(aClaimRequest({ leaseMs: LONG }));
  await complete(store, held.claims[0]!.lease);
  const free = await store.claim(aClaimRequest());

  assert.deepEqual([held.nextTimerAt, free.nextTimerAt], [FAKE_START + LONG, FAKE_START + 1_000]);
});

timed(
  "claim() lets the runs of a key wait for the first in its line, though they have started",
  async ({ store, host }) => {
    const { lease, run } = await startRun(store, ofKey("cust-1", ONE_A_SECOND, 5));
    const review = aPause();
    await park(store, lease, review);
    const [urgent] = await addIds(store, {
      concurrencyKey: "cust-1",
      flow: aFlow({ keyConcurrency: 5, keyRate: ONE_A_SECOND, priority: 1 }),
    });
    await store.signal(review.id, { signalId: "s1", payload: null });

    const during = await claimedIds(store);
    host.advance(1_000);

    assert.deepEqual(during, []);
    assert.deepEqual(await claimedIds(store), [urgent, run.id]);
  },
);

test("claim() lets a run pass the rate of its key that has started", async ({ store }) => {
  const { lease } = await startRun(store, ofKey("cust-1", ONE_A_SECOND, 1));
  await add(store, ofKey("cust-1", ONE_A_SECOND, 1));

  await store.release(lease, []);

  assert.deepEqual(await claimedIds(store), [lease.runId]);
});

timed("claim() counts starts of a key in the future as starts of now", async ({ store, host }) => {
  const [, second] = await addIds(store, ofKey("cust-1", ONE_A_SECOND, 5), ofKey("cust-1", ONE_A_SECOND, 5));
  await store.claim(aClaimRequest({ leaseMs: LONG }));
  host.jump(-3_600_000);

  const after = await store.claim(aClaimRequest());
  host.advance(1_000);

  assert.deepEqual([after.claims, after.nextTimerAt], [[], FAKE_START - 3_600_000 + 1_000]);
  assert.deepEqual(await claimedIds(store), [second]);
});

timed("claim() starts a run when the rates of its key and of its job are both open", async ({ store, host }) => {
  const [, second] = await addIds(
    store,
    ofKey("cust-1", { limit: 1, period: 400 }, 5),
    ofKey("cust-1", { limit: 1, period: 400 }, 5),
  );
  const first = await store.claim(atRate(ONE_A_SECOND));
  host.advance(400);
  const during = await store.claim(atRate(ONE_A_SECOND));
  host.advance(600);

  assert.equal(first.nextTimerAt, FAKE_START + 1_000);
  assert.deepEqual([during.claims, during.nextTimerAt], [[], FAKE_START + 1_000]);
  assert.deepEqual((await store.claim(atRate(ONE_A_SECOND))).claims.map(({ run }) => run.id), [second]);
});

timed("claim() has no timer for a rate while the limit of the job is reached", async ({ store }) => {
  await addIds(store, {}, {});
  const jobs = [aKnownJob({ concurrency: 1, rate: ONE_A_SECOND })];

  const { nextTimerAt, hasMore } = await store.claim(aClaimRequest({ jobs, leaseMs: LONG }));

  assert.deepEqual([nextTimerAt, hasMore], [FAKE_START + LONG, false]);
});

timed("claim() has no timer for the rate of a job that is paused", async ({ store }) => {
  await addIds(store, {}, {});
  await store.claim(atRate(ONE_A_SECOND));
  await store.pauseJob(A_JOB, { by: null, note: null });

  const { nextTimerAt, hasMore } = await store.claim(atRate(ONE_A_SECOND));

  assert.deepEqual([nextTimerAt, hasMore], [FAKE_START + LONG, false]);
});

timed("claim() takes the most urgent run when the rate opens", async ({ store, host }) => {
  await addIds(store, {}, {});
  await store.claim(atRate(ONE_A_SECOND));
  const [urgent] = await addIds(store, { flow: aFlow({ priority: 1 }) });
  host.advance(1_000);

  const { claims } = await store.claim(atRate(ONE_A_SECOND, { holding: await store.getLeases() }));

  assert.deepEqual(claims.map(({ run }) => run.id), [urgent]);
});

test("claim() takes a run again at once that was interrupted, though the rate is used up", async ({ store }) => {
  await addIds(store, {}, {});
  const { lease } = await claimOne(store, { jobs: [aKnownJob({ rate: ONE_A_SECOND })] });
  await store.release(lease, []);

  const { claims } = await store.claim(atRate(ONE_A_SECOND));

  assert.deepEqual(claims.map(({ run }) => run.id), [lease.runId]);
});

function atRate(rate: Rate, overrides: ClaimOverrides = {}) {
  return aClaimRequest({ jobs: [aKnownJob({ rate })], leaseMs: LONG, ...overrides });
}

function ofKey(concurrencyKey: string, keyRate: Rate, keyConcurrency: number) {
  return { concurrencyKey, flow: aFlow({ keyConcurrency, keyRate }) };
}
