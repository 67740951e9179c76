import assert from "node:assert/strict";
import { uuidV7 } from "../../../model/host.ts";
import type { RetriggerFrom } from "../../../model/run.ts";
import type { NewRun } from "../../../store/new_run.ts";
import type { Store } from "../../../store/store.ts";
import { getRun } from "../../../store/reads.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aFailure } from "../fixtures.ts";
import { add, complete, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What `Store.findRetry()` promises, and `Store.purge()` of runs that were retried. */
export const retryChainCases = cases;

test("findRetry() answers the newest retry from the failure, open or not", async ({ store }) => {
  const first = await addFailed(store);
  const old = await addFailed(store, first);
  const second = await addFailed(store, first);
  const { run: third } = await add(store, retryOf(second));

  const found = await Promise.all([first, old, second, third.id].map((id) => store.findRetry(id)));

  assert.deepEqual(found, [second, null, third.id, null]);
});

test("findRetry() answers null for a retry that began anew, without a retry, and for an unknown run", async ({ store }) => {
  const first = await addFailed(store);
  const anew = await addFailed(store, first, "start");

  const found = await Promise.all([first, anew, uuidV7(FAKE_START)].map((id) => store.findRetry(id)));

  assert.deepEqual(found, [null, null, null]);
});

test("findRetry() passes retries that were deleted, and never goes back", async ({ store }) => {
  const first = await addFailed(store);
  const second = await addFailed(store, first);
  const third = await addFailed(store, second);
  const fourth = await addFailed(store, third);
  const ofOther = await addFailed(store, await addFailed(store));
  await store.delete(second);
  await store.delete(third);

  const left = await Promise.all([first, fourth, ofOther].map((id) => store.findRetry(id)));
  await store.delete(fourth);
  const none = await store.findRetry(first);

  assert.deepEqual(left, [fourth, null, null]);
  assert.equal(none, null);
  assert.equal((await getRun(store, first))!.retriggeredAs, second, "the id stays");
});

test("delete() removes a run whose retry is open", async ({ store }) => {
  const first = await addFailed(store);
  await add(store, retryOf(first));

  await store.delete(first);

  assert.deepEqual([await getRun(store, first), await store.findRetry(first)], [null, null]);
});

timed(
  "purge() leaves the runs that an open retry from the failure continues, and no others",
  async ({ store, host }) => {
    const first = await addFailed(store);
    const second = await addFailed(store, first);
    const others = [await addFailed(store), await addFailed(store), await addFailed(store)];
    await add(store, retryOf(second));
    await add(store, retryOf(others[0]!, "start"));
    host.advance(1_000);

    const purged = [];
    for (let n = 0; n < 4; n++) purged.push(...await store.purge({ failed: 1_000 }, 1));

    assert.deepEqual(purged.map(({ id }) => id), others);
    assert.deepEqual((await Promise.all([first, second].map((id) => getRun(store, id)))).map((run) => run?.id), [
      first,
      second,
    ]);
  },
);

timed("purge() leaves the first run of a chain of which another one was deleted", async ({ store, host }) => {
  const first = await addFailed(store);
  const second = await addFailed(store, first);
  await add(store, retryOf(second));
  await store.delete(second);
  host.advance(1_000);

  assert.deepEqual(await store.purge({ failed: 1_000 }, 10), []);
});

timed("purge() removes a run once the retry that continues it has ended", async ({ store, host }) => {
  const first = await addFailed(store);
  const { lease } = await startRun(store, retryOf(first));
  host.advance(1_000);
  const before = await store.purge({ failed: 1_000 }, 10);
  await complete(store, lease);

  const purged = await store.purge({ failed: 1_000 }, 10);

  assert.deepEqual(before, []);
  assert.deepEqual(purged.map(({ id }) => id), [first]);
});

function retryOf(runId: string, from: RetriggerFrom = "failure"): Pick<NewRun, "retriggerOf"> {
  return { retriggerOf: { runId, from } };
}

/** Adds a run that has failed, perhaps as a retry. No older run may be due. */
async function addFailed(store: Store, of?: string, from?: RetriggerFrom): Promise<string> {
  const { lease } = await startRun(store, of === undefined ? {} : retryOf(of, from));
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  return lease.runId;
}
