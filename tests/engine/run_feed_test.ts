import assert from "node:assert/strict";
import { Hub } from "../../src/engine/hub.ts";
import { Pulse } from "../../src/engine/pulse.ts";
import { RunFeed } from "../../src/engine/run_feed.ts";
import { StoreError } from "../../src/error.ts";
import type { RunEvent } from "../../src/event.ts";
import { ACTIVITY_LASTS_MS } from "../../src/activity.ts";
import type { Claim, NewRun, RunState, Store } from "../../src/store.ts";
import { SqliteStore } from "../../src/stores/sqlite_store.ts";
import type { FakeHost } from "../support/fake_host.ts";
import { aPause, aRun } from "../support/fixtures.ts";
import { claimOne, forEachStore, pass, type StoreTest } from "../support/for_each_store.ts";

const COMPLETED = { status: "completed", output: null } as const;

/** A feed over a store to which another process writes: the test. */
function aFeed({ store, host }: StoreTest) {
  const hub = new Hub(host);
  const executing = new Map<string, Claim>();
  const feed = new RunFeed({
    migrate: () => store.migrate(),
    store,
    hub,
    pulse: new Pulse(changing(store), 1_000, { host, hub }),
    host,
    claimHere: (runId) => executing.get(runId) ?? null,
    progressHere: () => null,
  });
  return { feed, hub, executing };
}

/** A store that looks as if another process had changed it each time: one of SQLite does not see its own writes. */
function changing(store: Store): Store {
  let version = 0;
  const getVersion = () => Promise.resolve(++version);
  return store instanceof SqliteStore ? withCalls(store, { getVersion }) : store;
}

/** A store some of whose calls are others. */
function withCalls(store: Store, calls: Partial<Store>): Store {
  return new Proxy(store, {
    get: (target, name) => {
      const member = calls[name as keyof Store] ?? target[name as keyof Store];
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}

/** Watches a feed, and keeps what it tells as `type payload`. */
function watch(feed: RunFeed, payloads: Map<string, string> = new Map()) {
  const told: string[] = [];
  const ends: unknown[] = [];
  const next = ({ type, runId }: RunEvent) => told.push([type, payloads.get(runId) ?? ""].join(" ").trim());
  const stop = feed.watch({ next: (event) => void next(event), end: (error) => void ends.push(error) });
  return { told, ends, stop };
}

async function add(store: Store, overrides: Partial<NewRun> = {}) {
  const [added] = await store.enqueue([aRun(overrides)]);
  return added!.run;
}

/** Takes a run up elsewhere, and parks it. */
async function park(store: Store, jobName: string) {
  const { lease } = await claimOne(store, jobName);
  await store.pause(lease, { pauses: [aPause()], retryAt: null, park: true, progress: null });
}

const look = (host: FakeHost) => pass(host, 300, 10);

forEachStore(
  "RunFeed.watch() tells what another process does with a run, from its trigger to its end",
  async (context) => {
    const { store, host } = context;
    const { feed } = aFeed(context);
    const { told, stop } = watch(feed);
    await look(host);

    await add(store);
    await look(host);
    const { lease } = await claimOne(store, "import-csv");
    await look(host);
    await store.renew([{ lease, progress: '{"current":1}' }], 30_000);
    await look(host);
    await store.finish(lease, COMPLETED, null);
    await look(host);
    stop();

    assert.deepEqual(told, ["run:trigger", "run:leased", "run:start", "run:progress", "run:complete"]);
  },
);

forEachStore("RunFeed.watch() tells what another process did between two looks", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  const payloads = new Map<string, string>();
  for (const name of ["parked", "ended", "cancelled"]) payloads.set((await add(store, { jobName: name })).id, name);
  host.advance(2 * ACTIVITY_LASTS_MS);
  const { told, stop } = watch(feed, payloads);
  await look(host);
  await pass(host, 3_000, 100);

  await park(store, "parked");
  await store.finish((await claimOne(store, "ended")).lease, COMPLETED, null);
  await store.cancel([...payloads].find(([, name]) => name === "cancelled")![0], "c1", []);
  await look(host);
  await pass(host, 3 * ACTIVITY_LASTS_MS, 100);
  stop();

  assert.deepEqual(told, ["run:waiting parked", "run:complete ended", "run:cancel cancelled"]);
});

forEachStore("RunFeed.watch() tells nothing of what was before", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  await add(store, { jobName: "pending" });
  for (const jobName of ["parked", "ended", "running"]) await add(store, { jobName });
  await park(store, "parked");
  await store.finish((await claimOne(store, "ended")).lease, COMPLETED, null);
  await claimOne(store, "running");

  const { told, stop } = watch(feed);
  await pass(host, 3 * ACTIVITY_LASTS_MS, 100);
  stop();

  assert.deepEqual(told, []);
});

forEachStore(
  "RunFeed.watch() tells everything that happens elsewhere from then on, before its first look",
  async (context) => {
    const { store, host } = context;
    const { feed } = aFeed(context);
    await add(store, { jobName: "old" });

    const { told, stop } = watch(feed);
    await host.settle();
    await add(store, { jobName: "new" });
    await park(store, "old");
    await look(host);
    stop();

    assert.deepEqual(told, ["run:waiting", "run:trigger"]);
  },
);

forEachStore("RunFeed.watch() tells once what happens here, although the store shows it too", async (context) => {
  const { store, host } = context;
  const { feed, hub, executing } = aFeed(context);
  const { told, stop } = watch(feed);
  await look(host);

  const run = await add(store);
  hub.publish(run, { type: "run:trigger", input: null });
  await look(host);
  const claim = await claimOne(store, run.jobName);
  const { lease, leaseExpiresAt } = claim;
  executing.set(run.id, claim);
  const leased = { leaseOwner: "dead-worker", leaseExpiresAt: new Date(leaseExpiresAt).toISOString() };
  hub.publish(run, { type: "run:leased", ...leased }, lease);
  hub.publish(run, { type: "run:start", execution: 1 }, lease);
  hub.publish(run, { type: "run:lease-renewed", ...leased }, lease);
  hub.publish(run, { type: "step:start", stepName: "read", stepIndex: 0, attempt: 1 }, lease);
  await look(host);
  await store.finish(lease, COMPLETED, null);
  hub.publish(run, { type: "run:complete", output: null, duration: 0 }, lease);
  executing.delete(run.id);
  await pass(host, 3 * ACTIVITY_LASTS_MS, 100);
  stop();

  assert.deepEqual(told, ["run:trigger", "run:leased", "run:start", "run:complete"]);
});

forEachStore("RunFeed.watch() tells once what the store shows before the hub tells it", async (context) => {
  const { store, host } = context;
  const { feed, hub } = aFeed(context);
  const { told, stop } = watch(feed);
  await look(host);

  const run = await add(store);
  await pass(host, 110, 10);
  hub.publish(run, { type: "run:trigger", input: null });
  await store.cancel(run.id, "c1", []);
  await pass(host, 110, 10);
  hub.publish(run, { type: "run:cancel" });
  stop();

  assert.deepEqual(told, ["run:trigger", "run:cancel"]);
});

forEachStore("RunFeed.watch() tells each of very many triggers once, here and elsewhere", async (context) => {
  const { store, host } = context;
  const { feed, hub } = aFeed(context);
  const { told, stop } = watch(feed);
  await look(host);

  for (const { run } of await store.enqueue(Array.from({ length: 2_500 }, () => aRun()))) {
    hub.publish(run, { type: "run:trigger", input: null });
  }
  await pass(host, 2_000, 50);
  const here = told.length;
  await store.enqueue(Array.from({ length: 2_500 }, () => aRun()));
  for (let waits = 0; waits < 100 && told.length < here + 2_500; waits++) await pass(host, 100, 50);
  await pass(host, 1_000, 50);
  stop();

  assert.deepEqual([here, told.length], [2_500, 5_000]);
});

forEachStore("RunFeed.watch() tells what it could not read as soon as it can", async (context) => {
  const { store, host } = context;
  let failures = 0;
  const getRunState = (runId: string): Promise<RunState | null> =>
    failures-- > 0 ? Promise.reject(new StoreError("busy")) : store.getRunState(runId);
  const { feed } = aFeed({ store: withCalls(store, { getRunState }), host });
  const { told, stop } = watch(feed);
  await look(host);

  failures = 3;
  for (let n = 0; n < 5; n++) await add(store);
  await pass(host, 6_000, 100);
  stop();

  assert.deepEqual(told, Array(5).fill("run:trigger"));
});

forEachStore("RunFeed.watch() after a break tells nothing of what happened in it", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  const first = watch(feed);
  await look(host);
  await store.enqueue(Array.from({ length: 200 }, () => aRun()));
  // It leaves while the runs are being read.
  for (let ms = 0; first.told.length === 0; ms += 10) await pass(host, 10, 10);
  first.stop();
  const before = first.told.length;
  await host.settle(100);
  await store.enqueue(Array.from({ length: 5 }, () => aRun()));
  host.advance(60_000);

  const second = watch(feed);
  await pass(host, 2_000, 50);
  await add(store);
  await look(host);
  second.stop();

  assert.equal(first.told.length, before);
  assert.deepEqual(second.told, ["run:trigger"]);
});

forEachStore("RunFeed.watch() tells everybody the same, from when they come until they go", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  const first = watch(feed);
  await look(host);
  const run = await add(store);
  await look(host);

  const second = watch(feed);
  await look(host);
  const { lease } = await claimOne(store, run.jobName);
  await look(host);
  first.stop();
  first.stop();
  await store.finish(lease, COMPLETED, null);
  await look(host);
  second.stop();

  assert.deepEqual(first.told, ["run:trigger", "run:leased", "run:start"]);
  assert.deepEqual(second.told, ["run:leased", "run:start", "run:complete"]);
});

forEachStore("RunFeed.watch() tells a run that waits once, whatever happens to what it waits for", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  await add(store);
  const { lease } = await claimOne(store, "import-csv");
  const waits = [aPause({ name: "first" }), aPause({ name: "second" })];
  const { told, stop } = watch(feed);
  await look(host);
  await store.pause(lease, { pauses: waits, retryAt: null, park: true, progress: null });
  await pass(host, 3 * ACTIVITY_LASTS_MS, 100);

  await store.signal(waits[0]!.id, { signalId: "s1", payload: null });
  await pass(host, 3 * ACTIVITY_LASTS_MS, 100);
  stop();

  assert.deepEqual(told, ["run:waiting", "run:waiting"]);
});

forEachStore("RunFeed forgets a run that was executed elsewhere, has ended and was deleted", async (context) => {
  const { store, host } = context;
  const asked = new Set<string>();
  const getMarks = (runIds: readonly string[]) => {
    for (const runId of runIds) asked.add(runId);
    return store.getMarks(runIds);
  };
  const { feed } = aFeed({ store: withCalls(store, { getMarks }), host });
  const { told, stop } = watch(feed);
  const run = await add(store);
  const { lease } = await claimOne(store, run.jobName);
  await look(host);

  await store.finish(lease, COMPLETED, null);
  await store.delete(run.id);
  await pass(host, 2_000, 100);
  const askedAtFirst = asked.has(run.id);
  asked.clear();
  await pass(host, 2_000, 100);
  stop();

  assert.deepEqual([askedAtFirst, asked.has(run.id)], [true, false]);
  assert.ok(!told.includes("run:complete"));
});

forEachStore("RunFeed.endAll() ends everything, and what is watched later works", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  const before = [watch(feed), watch(feed)];
  await look(host);

  feed.endAll();
  const after = watch(feed);
  await look(host);
  await add(store);
  await look(host);
  after.stop();

  assert.deepEqual(before.map(({ told, ends }) => [told, ends]), [[[], [undefined]], [[], [undefined]]]);
  assert.deepEqual([after.told, after.ends], [["run:trigger"], []]);
});

forEachStore("RunFeed tells that a run was triggered elsewhere before what happens to it here", async (context) => {
  const { store, host } = context;
  const { feed, hub, executing } = aFeed(context);
  const { told, stop } = watch(feed);
  await pass(host, 200, 50);
  const run = await add(store);
  const claim = await claimOne(store, run.jobName);
  const { lease } = claim;
  executing.set(run.id, claim);

  // It is taken up and over before the next look.
  const leaseExpiresAt = new Date(host.now() + 30_000).toISOString();
  hub.publish(run, { type: "run:leased", leaseOwner: "here", leaseExpiresAt }, lease);
  hub.publish(run, { type: "run:start", execution: 1 }, lease);
  await store.finish(lease, COMPLETED, null);
  hub.publish(run, { type: "run:complete", output: null, duration: 0 }, lease);
  executing.delete(run.id);
  await pass(host, 2_000, 50);
  stop();

  assert.deepEqual(told, ["run:trigger", "run:leased", "run:start", "run:complete"]);
});

forEachStore(
  "RunFeed tells that a run was triggered elsewhere that is taken up here while it is read",
  async (context) => {
    const { host } = context;
    const reading = Promise.withResolvers<void>();
    const store = withCalls(context.store, {
      getRunState: async (runId) => {
        const state = await context.store.getRunState(runId);
        await reading.promise;
        return state;
      },
    });
    const { feed, hub, executing } = aFeed({ ...context, store });
    const { told, stop } = watch(feed);
    await pass(host, 200, 50);
    const run = await add(store);
    await pass(host, 1_500, 50); // it is being read

    const claim = await claimOne(store, run.jobName);
    executing.set(run.id, claim);
    reading.resolve();
    await host.settle();
    const leaseExpiresAt = new Date(host.now() + 30_000).toISOString();
    hub.publish(run, { type: "run:leased", leaseOwner: "here", leaseExpiresAt }, claim.lease);
    await pass(host, 500, 50);
    stop();

    assert.deepEqual(told, ["run:trigger", "run:leased"]);
  },
);

forEachStore("RunFeed tells that a run was triggered elsewhere when it can read that at last", async (context) => {
  const { host } = context;
  let fails = false;
  const store = withCalls(context.store, {
    getActivity: (cursor) => fails ? Promise.reject(new StoreError("busy")) : context.store.getActivity(cursor),
  });
  const { feed, hub, executing } = aFeed({ ...context, store });
  const { told, stop } = watch(feed);
  await pass(host, 200, 50);
  const run = await add(store);
  const claim = await claimOne(store, run.jobName);
  executing.set(run.id, claim);

  fails = true;
  const leaseExpiresAt = new Date(host.now() + 30_000).toISOString();
  hub.publish(run, { type: "run:leased", leaseOwner: "here", leaseExpiresAt }, claim.lease);
  await pass(host, 2_000, 50);
  fails = false;
  await pass(host, 3_000, 50);
  stop();

  assert.deepEqual(told, ["run:trigger", "run:leased"]);
});

forEachStore("RunFeed tells progress elsewhere of a run that was there before anybody watched", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  const run = await add(store);
  const { told, stop } = watch(feed);
  await pass(host, 500, 50);

  const { lease } = await claimOne(store, run.jobName);
  await store.renew([{ lease, progress: JSON.stringify({ current: 1 }) }], 60_000);
  await pass(host, 2_000, 50);
  stop();

  assert.deepEqual(told, ["run:leased", "run:start", "run:progress"]);
});

forEachStore(
  "RunFeed tells nothing of a run that was deleted elsewhere, however late it is answered",
  async (context) => {
    const { store, host } = context;
    const { feed, hub, executing } = aFeed(context);
    const { told, stop } = watch(feed);
    await pass(host, 200, 50);
    const run = await add(store);
    const claim = await claimOne(store, run.jobName);
    await pass(host, 2_000, 50); // it sees how the run stands
    const before = [...told];
    await store.cancel(run.id, "request", []);
    await store.delete(run.id);
    await pass(host, 2_000, 50); // it sees that the run is gone

    // Only now the answers come that have made the run, and brought it here.
    hub.publish(run, { type: "run:trigger", input: null });
    executing.set(run.id, claim);
    const leaseExpiresAt = new Date(claim.leaseExpiresAt).toISOString();
    hub.publish(run, { type: "run:leased", leaseOwner: "here", leaseExpiresAt }, claim.lease);
    await pass(host, 2_000, 50);
    stop();

    assert.deepEqual(before, ["run:trigger", "run:leased", "run:start"]);
    assert.deepEqual(told, before);
  },
);

forEachStore(
  "RunFeed tells of a run that ends elsewhere during its first look, and not of one that had ended",
  async (context) => {
    const { host } = context;
    const listed = Promise.withResolvers<void>();
    const reading = Promise.withResolvers<void>();
    const store = withCalls(context.store, {
      getRunState: async (runId) => {
        listed.resolve();
        await reading.promise;
        return await context.store.getRunState(runId);
      },
    });
    const [old, run] = [await add(store), await add(store)];
    const [first, second] = [await claimOne(store, old.jobName), await claimOne(store, run.jobName)];
    await store.finish(first.lease, COMPLETED, null);
    const { feed } = aFeed({ ...context, store });
    const { told, stop } = watch(feed);
    await pass(host, 50, 10);
    await listed.promise;

    await store.finish(second.lease, COMPLETED, null);
    reading.resolve();
    await pass(host, 2_000, 50);
    stop();

    assert.deepEqual(told, ["run:complete"]);
  },
);

forEachStore("RunFeed tells what has waited under a number that is higher than the last one", async (context) => {
  const { store, host } = context;
  const { feed, hub } = aFeed(context);
  const numbers: number[] = [];
  const stop = feed.watch({ next: ({ sequence }) => void numbers.push(sequence), end: () => {} });
  await pass(host, 200, 50);
  const [unknown, known] = [await add(store), await add(store)];

  hub.publish(unknown, { type: "run:retry", newRunId: "x" }); // waits until it was looked whether it is new
  hub.publish(known, { type: "run:trigger", input: null });
  await pass(host, 500, 50);
  stop();

  assert.equal(numbers.length, 3);
  assert.deepEqual(numbers, numbers.toSorted((a, b) => a - b));
});

forEachStore("RunFeed tells no trigger of an older run that is taken up here", async (context) => {
  const { store, host } = context;
  const { feed, hub } = aFeed(context);
  const run = await add(store);
  const { told, stop } = watch(feed);
  await pass(host, 200, 50);

  hub.publish(run, { type: "run:cancel" });
  await pass(host, 500, 50);
  stop();

  assert.deepEqual(told, ["run:cancel"]);
});

forEachStore("RunFeed tells once how a run ended that had ended between two reads of one look", async (context) => {
  const { store, host } = context;
  let letGo: (() => Promise<void>) | null = null;
  // What happens right after the store has said what is active.
  const racing = withCalls(store, {
    getActivity: async (since) => {
      const activity = await store.getActivity(since);
      await letGo?.();
      letGo = null;
      return activity;
    },
  });
  const { feed } = aFeed({ store: racing, host });
  const { told, stop } = watch(feed);
  await look(host);
  const run = await add(store);
  const first = await claimOne(store, run.jobName);
  await look(host);
  await store.release(first.lease);

  letGo = async () => {
    const { lease } = await claimOne(store, run.jobName);
    await store.finish(lease, COMPLETED, null);
  };
  await pass(host, 3 * ACTIVITY_LASTS_MS, 100);
  stop();

  assert.deepEqual(told, ["run:trigger", "run:leased", "run:start", "run:complete"]);
});

forEachStore("RunFeed tells once how a run ended when the clock is set back and forward again", async (context) => {
  const { store, host } = context;
  const { feed } = aFeed(context);
  const { told, stop } = watch(feed);
  await look(host);
  const run = await add(store);
  const { lease } = await claimOne(store, run.jobName);
  await look(host);
  await store.finish(lease, COMPLETED, null);
  await look(host);

  for (const ms of [-1_152_215, 2_055_541]) {
    host.jump(ms);
    await look(host);
    await look(host);
  }
  stop();

  assert.deepEqual(told, ["run:trigger", "run:leased", "run:start", "run:complete"]);
});

forEachStore("RunFeed tells once that a run waits of which it hears first when it parks here", async (context) => {
  const { store, host } = context;
  const { feed, hub } = aFeed(context);
  const run = await add(store);
  const { lease } = await claimOne(store, run.jobName);
  const { told, stop } = watch(feed);
  const pauses = [aPause({ kind: "sleep", name: "nap" })];
  await store.pause(lease, { pauses, retryAt: null, park: true, progress: null });

  hub.publish(run, { type: "run:waiting", waitId: null, waitName: "nap", deadlineAt: null }, lease);
  await pass(host, 2 * ACTIVITY_LASTS_MS, 100);
  stop();

  assert.deepEqual(told, ["run:waiting"]);
});
