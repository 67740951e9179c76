import assert from "node:assert/strict";
import { uuidV7 } from "../../../src/host.ts";
import type { Activity, ActivityCursor, Store } from "../../../src/store.ts";
import { ACTIVITY_LASTS_MS } from "../../../src/activity.ts";
import { FAKE_START, type FakeHost } from "../../support/fake_host.ts";
import { aClaimRequest, aFailure, aPause, aRun, aStep } from "../../support/fixtures.ts";
import {
  add,
  addCompleted,
  aRetry,
  claimOne,
  complete,
  NO_PAUSE,
  park,
  parkUntilRetry,
  prepare,
  startRun,
} from "./arrange.ts";
import { newCases } from "./case.ts";

const { cases, test } = newCases();

/** What `Store.getMarks()` and `Store.getActivity()` promise. */
export const activityCases = cases;

// Longer than anything stays in the answers.
const LONG_MS = 10 * ACTIVITY_LASTS_MS;

test("getMarks() answers in the order of the ids, and null for a run that does not exist", async ({ store }) => {
  const [first, second] = [await add(store), await add(store)];
  const unknown = uuidV7(FAKE_START);

  const marks = await store.getMarks([second.run.id, unknown, first.run.id, second.run.id]);

  assert.deepEqual(marks.map((mark) => typeof mark), ["string", "object", "string", "string"]);
  assert.deepEqual([marks[1], marks[3]], [null, marks[0]]);
  assert.deepEqual(await store.getMarks([first.run.id]), [marks[2]]);
  assert.deepEqual(await store.getMarks([]), []);
});

test("getMarks() answers the same as long as nothing happens in the run", async ({ store, host }) => {
  const { run, lease } = await startRun(store);
  await park(store, lease, aPause());
  const before = await store.getMarks([run.id]);

  host.advance(LONG_MS);
  await addCompleted(store);
  await store.getRunState(run.id);

  assert.deepEqual(await store.getMarks([run.id]), before);
});

test("getMarks() answers null for a run that was deleted", async ({ store }) => {
  const run = await addCompleted(store);

  await store.delete(run.id);

  assert.deepEqual(await store.getMarks([run.id]), [null]);
});

type Write = (store: Store, host: FakeHost) => Promise<{ runId: string; write: () => Promise<unknown> }>;

const underLease =
  (write: (store: Store, lease: Awaited<ReturnType<typeof startRun>>["lease"]) => Promise<unknown>) =>
  async (store: Store) => {
    const { run, lease } = await startRun(store);
    return { runId: run.id, write: () => write(store, lease) };
  };

const onWaiting = (write: (store: Store, host: FakeHost, runId: string, waitId: string) => Promise<unknown>) =>
async (
  store: Store,
  host: FakeHost,
) => {
  const { run, lease } = await startRun(store);
  const wait = aPause({ deadline: { afterMs: 100 } });
  await park(store, lease, wait);
  return { runId: run.id, write: () => write(store, host, run.id, wait.id) };
};

// Everything at one instant of the clock, so that no time stamp tells one write from another.
const WRITES: Record<string, Write> = {
  "a claim": async (store) => {
    const { run } = await add(store);
    return { runId: run.id, write: () => claimOne(store) };
  },
  "a renewal": underLease((store, lease) => store.renew([{ lease, progress: null }], 1_000)),
  "a renewal with progress": underLease((store, lease) => store.renew([{ lease, progress: '{"current":1}' }], 1_000)),
  "a claim that extends an expired lease": async (store, host) => {
    const { run, lease } = await startRun(store);
    host.advance(1_000);
    return { runId: run.id, write: () => store.claim(aClaimRequest({ holding: [lease] })) };
  },
  "a release": underLease((store, lease) => store.release(lease)),
  "a revocation": underLease(async (store) => store.revoke(await store.getLeases())),
  "a step that completed": underLease((store, lease) => store.saveStep(lease, aStep(), null)),
  "a step that failed": underLease((store, lease) =>
    store.saveStep(
      lease,
      aStep({ result: { status: "failed", failure: aFailure() } }),
      null,
    )
  ),
  "a step that is to be tried again": underLease((store, lease) => store.saveStep(lease, aRetry(100), null)),
  "progress that comes with pauses": underLease((store, lease) =>
    store.pause(lease, { ...NO_PAUSE, progress: '{"current":1}' })
  ),
  "a prepared wait": underLease((store, lease) => prepare(store, lease, aPause({ prepared: true }))),
  "a park": underLease((store, lease) => park(store, lease, aPause())),
  "a park until a retry": underLease(async (store, lease) => {
    await parkUntilRetry(store, lease, FAKE_START + 100);
  }),
  "a signal": onWaiting((store, _host, _runId, waitId) => store.signal(waitId, { signalId: "s1", payload: null })),
  "a deadline": onWaiting((store, host) => {
    host.advance(100);
    return store.claim(aClaimRequest({ limit: 0 }));
  }),
  "a claim after a pause": onWaiting((store, host) => {
    host.advance(100);
    return claimOne(store);
  }),
  "a completion": underLease((store, lease) => complete(store, lease)),
  "a failure": underLease((store, lease) =>
    store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, null)
  ),
  "a cancel": async (store) => {
    const { run } = await add(store);
    return { runId: run.id, write: () => store.cancel(run.id, "c1", []) };
  },
  "a cancel while a step is executed": underLease((store, lease) =>
    store.cancel(lease.runId, "c1", [{ name: "read", index: 0, attempts: 1, startedAgoMs: 0 }])
  ),
};

for (const [what, arrange] of Object.entries(WRITES)) {
  test(`getMarks() answers something else after ${what}`, async ({ store, host }) => {
    const { runId, write } = await arrange(store, host);
    const { run: other } = await add(store, { jobName: "other" });
    const before = await store.getMarks([runId, other.id]);

    await write();

    const after = await store.getMarks([runId, other.id]);
    assert.notEqual(after[0], null);
    assert.notEqual(after[0], before[0]);
    assert.equal(after[1], before[1]);
  });
}

test("getMarks() answers something else after each of many renewals at one instant", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const marks = new Set<string | null>();

  for (let n = 0; n < 5; n++) {
    await store.renew([{ lease, progress: null }], 1_000);
    marks.add((await store.getMarks([run.id]))[0]!);
  }

  assert.equal(marks.size, 5);
});

test("getActivity() begins with the runs that are executed, and none of them is new", async ({ store, host }) => {
  await addCompleted(store);
  await startRun(store).then(({ lease }) => park(store, lease, aPause()));
  host.advance(LONG_MS);
  const { run } = await startRun(store);
  await add(store);

  const { runs, hasMore } = await store.getActivity(null);

  assert.deepEqual(runs, [{ id: run.id, mark: (await store.getMarks([run.id]))[0], isNew: false }]);
  assert.equal(hasMore, false);
});

test("getActivity() begins with what the next answer will show, too", async ({ store }) => {
  const ended = await addCompleted(store);
  const { run: asleep, lease } = await startRun(store);
  await park(store, lease, aPause());

  const first = await store.getActivity(null);
  const second = await store.getActivity(first.next);

  assert.deepEqual(first.runs.map(({ id }) => id), [ended.id, asleep.id]);
  assert.deepEqual(second.runs, first.runs);
});

test("getActivity() shows a run that was triggered since, once as new", async ({ store }) => {
  await add(store);
  const first = await store.getActivity(null);
  const added = await store.enqueue([aRun(), aRun({ jobName: "unknown" })]);

  const second = await store.getActivity(first.next);
  const third = await store.getActivity(second.next);

  assert.deepEqual(first.runs, []);
  assert.deepEqual(second.runs.map(({ id, isNew }) => [id, isNew]), added.map(({ run }) => [run.id, true]));
  assert.deepEqual(third.runs, []);
});

test("getActivity() shows a run as long as it is executed", async ({ store, host }) => {
  const { next } = await store.getActivity(null);
  const { run } = await startRun(store, {}, { leaseMs: 3 * LONG_MS });
  host.advance(LONG_MS);
  const second = await store.getActivity(next);
  host.advance(LONG_MS);

  const third = await store.getActivity(second.next);

  assert.deepEqual([second, third].map(({ runs }) => runs.map(({ id, isNew }) => [id, isNew])), [
    [[run.id, true]],
    [[run.id, false]],
  ]);
});

const LEAVING: Record<string, (store: Store, runId: string) => Promise<unknown>> = {
  "was cancelled": (store, runId) => store.cancel(runId, "c1", []),
  "has completed": async (store) => complete(store, (await claimOne(store)).lease),
  "has failed": async (store) =>
    store.finish((await claimOne(store)).lease, { status: "failed", failure: aFailure(), failedStepName: null }, null),
  "waits": async (store) => park(store, (await claimOne(store)).lease, aPause()),
  "sleeps": async (store) =>
    park(store, (await claimOne(store)).lease, aPause({ kind: "sleep", deadline: { afterMs: LONG_MS * 10 } })),
  "waits for a retry": async (store, runId) => {
    const { lease } = await claimOne(store);
    await store.saveStep(lease, aRetry(LONG_MS * 10), null);
    await parkUntilRetry(store, lease, Date.parse((await store.getRun(runId))!.updatedAt) + LONG_MS * 10);
  },
};

for (const [what, leave] of Object.entries(LEAVING)) {
  test(`getActivity() shows a run that ${what} between two looks, for a while`, async ({ store, host }) => {
    const { run } = await add(store);
    const first = await store.getActivity((await store.getActivity(null)).next);
    host.advance(LONG_MS);

    await leave(store, run.id);
    host.advance(LONG_MS);
    const second = await store.getActivity(first.next);
    const third = await store.getActivity(second.next);

    assert.deepEqual(first.runs, []);
    assert.deepEqual(second.runs, [{ id: run.id, mark: (await store.getMarks([run.id]))[0], isNew: false }]);
    assert.deepEqual(third.runs, []);
  });
}

test("getActivity() does not show a run that slept long when something happens to it", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const [first, second] = [aPause({ name: "first" }), aPause({ name: "second" })];
  const idle = aPause({ name: "idle" });
  await prepare(store, lease, idle);
  await park(store, lease, first, second);
  host.advance(LONG_MS);
  const { next } = await store.getActivity(null);
  host.advance(LONG_MS);

  await store.signal(idle.id, { signalId: "s1", payload: null });
  const atRest = await store.getActivity(next);
  await store.signal(first.id, { signalId: "s2", payload: null });
  const awake = await store.getActivity(next);

  assert.deepEqual([atRest.runs, awake.runs], [[], []]);
});

test("getActivity() shows what it shows in the order of the triggers", async ({ store, host }) => {
  const [sleeping, running, ended] = await store.enqueue([aRun(), aRun(), aRun()]);
  const { next } = await store.getActivity(null);
  const claims = [await claimOne(store), await claimOne(store), await claimOne(store)];
  host.jump(-1_000);
  await complete(store, claims[2]!.lease);
  await park(store, claims[0]!.lease, aPause());
  const { run: pending } = await add(store);

  const { runs } = await store.getActivity(next);

  assert.deepEqual(runs.map(({ id }) => id), [sleeping!.run.id, running!.run.id, ended!.run.id, pending.id]);
});

test("getActivity() misses nothing that ends right after the clock was set back, or before", async ({ store, host }) => {
  const { next } = await store.getActivity(null);
  host.advance(LONG_MS);
  const before = await addCompleted(store);
  host.jump(-3_600_000);
  const after = await addCompleted(store);

  const { runs, next: nextAfter } = await store.getActivity({ ...next, at: host.now() + 3_600_000 });
  const { run: sleeping, lease } = await startRun(store);
  await park(store, lease, aPause());
  const later = await store.getActivity(nextAfter);

  assert.deepEqual(runs.map(({ id }) => id), [before.id, after.id]);
  assert.ok(later.runs.some(({ id }) => id === sleeping.id));
});

test("getActivity() does not show again what had happened long before the clock was set back", async (context) => {
  const { store, host } = context;
  host.advance(1_800_000);
  const old = await addCompleted(store);
  host.advance(1_800_000);
  const { next } = await store.getActivity(null);

  host.jump(-3_600_000);

  const first = await store.getActivity(next);
  const second = await store.getActivity(first.next);
  assert.ok([...first.runs, ...second.runs].every(({ id }) => id !== old.id));
});

test("getActivity() shows a run that is triggered after the newest one was deleted", async ({ store }) => {
  await add(store);
  const { id } = await addCompletedLast(store);
  const first = await store.getActivity(null);
  await store.delete(id);
  const second = await store.getActivity(first.next);
  const { run } = await add(store);

  const third = await store.getActivity(second.next);
  const alsoFromFirst = await store.getActivity(first.next);

  assert.deepEqual(third.runs.map(({ id, isNew }) => [id, isNew]), [[run.id, true]]);
  assert.deepEqual(alsoFromFirst.runs.map(({ id, isNew }) => [id, isNew]), [[run.id, true]]);
});

test("getActivity() shows all of very many runs that were triggered, in pages if it has to", async ({ store }) => {
  let { next }: { next: ActivityCursor } = await store.getActivity(null);
  const added = await store.enqueue(Array.from({ length: 2_500 }, () => aRun()));
  const shown: string[] = [];
  let page: Activity;

  do {
    page = await store.getActivity(next);
    shown.push(...page.runs.filter(({ isNew }) => isNew).map(({ id }) => id));
    next = page.next;
  } while (page.hasMore);

  assert.deepEqual(shown, added.map(({ run }) => run.id));
});

test("getActivity() shows all of very many runs that are executed, and that have ended", async ({ store }) => {
  const { next } = await store.getActivity(null);
  const added = await store.enqueue(Array.from({ length: 1_500 }, () => aRun({ jobName: "executed" })));
  await store.claim(aClaimRequest({ jobNames: ["executed"], limit: 1_500 }));
  const { lastSeq } = (await store.getActivity(next)).next;
  const executed = await store.getActivity({ ...next, lastSeq: lastSeq + 1_500 });
  for (const { run } of added) await store.cancel(run.id, "c1", []);

  const ended = await store.getActivity({ ...next, lastSeq: lastSeq + 1_500 });

  assert.deepEqual([executed.runs.length, ended.runs.length], [1_500, 1_500]);
});

/** Adds a run that has ended, although older ones are due. */
async function addCompletedLast(store: Store): Promise<{ id: string }> {
  const { lease, run } = await startRun(store, { jobName: "last" });
  await complete(store, lease);
  return run;
}
