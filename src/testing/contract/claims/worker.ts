import assert from "node:assert/strict";
import { A_JOB, aClaimRequest } from "../fixtures.ts";
import { newCases } from "../case.ts";
import { hasWorker } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What the entries of live workers promise: `hasWorker()` reads them. */
export const workerCases = cases;

test("hasWorker() knows no worker before the first claim", async ({ store }) => {
  assert.equal(await hasWorker(store, A_JOB), false);
});

timed("hasWorker() knows the jobs of a worker for the length of its lease", async ({ store, host }) => {
  await store.claim(aClaimRequest({ jobNames: [A_JOB, "export"], leaseMs: 1_000 }));

  const at = [await hasWorker(store, "export"), await hasWorker(store, "other")];
  host.advance(999);
  const before = await hasWorker(store, A_JOB);
  host.advance(1);
  const after = await hasWorker(store, A_JOB);

  assert.deepEqual({ at, before, after }, { at: [true, false], before: true, after: false });
});

timed("hasWorker() goes by the newest claim, also one that finds nothing to do", async ({ store, host }) => {
  await store.claim(aClaimRequest({ leaseMs: 1_000 }));
  host.advance(900);
  await store.claim(aClaimRequest({ leaseMs: 1_000 }));
  host.advance(900);

  assert.equal(await hasWorker(store, A_JOB), true);
});

timed("hasWorker() finds the worker that lives among others", async ({ store, host }) => {
  await store.claim(aClaimRequest({ workerId: "worker-a", leaseMs: 100 }));
  await store.claim(aClaimRequest({ workerId: "worker-b", leaseMs: 10_000 }));
  host.advance(5_000);

  assert.equal(await hasWorker(store, A_JOB), true);
  await store.forgetWorker("worker-b");
  assert.equal(await hasWorker(store, A_JOB), false);
});

timed("hasWorker() knows nothing of a worker that was seen in the future", async ({ store, host }) => {
  await store.claim(aClaimRequest());
  host.jump(-60_000);

  assert.equal(await hasWorker(store, A_JOB), false);
});
