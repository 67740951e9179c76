import assert from "node:assert/strict";
import { Hub } from "../../src/events/hub.ts";
import { ChangePoller } from "../../src/events/change_poller.ts";
import { ChangeWatch } from "../../src/events/change_watch.ts";
import { StoreError } from "../../src/model/error.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aClaimRequest, aRun } from "../support/fixtures.ts";
import { pass } from "../support/stores/for_each_store.ts";

/** A poller over a store whose version a test sets, and which counts how often it is looked at. */
class Versions extends MemoryStore {
  version = 1;
  looks = 0;
  fails = false;

  override getVersion(): Promise<number> {
    this.looks += 1;
    return this.fails ? Promise.reject(new StoreError("busy")) : Promise.resolve(this.version);
  }
}

function aPoller() {
  const host = new FakeHost();
  const store = new Versions({ host });
  const hub = new Hub(host);
  return {
    host,
    store,
    hub,
    poller: new ChangePoller(store, 60_000, { host, hub, watch: new ChangeWatch(store, { host, hub }) }),
  };
}

Deno.test("ChangePoller.on() calls back after each change, and not without one", async () => {
  const { host, store, poller } = aPoller();
  let calls = 0;
  const stop = poller.on(() => calls++);
  await pass(host, 100, 10);
  const atFirst = calls;

  await pass(host, 200, 10);
  const unchanged = calls;
  store.version = 2;
  await pass(host, 100, 10);
  store.version = 7;
  await pass(host, 100, 10);
  stop();

  assert.ok(atFirst <= 1);
  assert.deepEqual([unchanged - atFirst, calls - atFirst], [0, 2]);
});

for (
  const { what, ms, watch } of [
    { what: "a store in its process or its file system every 10 ms", ms: 10, watch: undefined },
    {
      what: "a store that can report changes, and does not, every 20 ms",
      ms: 20,
      watch: () => ({ isLive: false, stop: () => {} }),
    },
  ]
) {
  Deno.test(`ChangePoller.on() looks at ${what}`, async () => {
    const { host, store, poller } = aPoller();
    if (watch !== undefined) Object.assign(store, { watch });
    const stop = poller.on(() => {});
    await pass(host, 100, 10);
    store.looks = 0;

    await pass(host, 400, 10);
    stop();

    assert.equal(store.looks, 400 / ms);
  });
}

Deno.test("ChangePoller.on() notices a lease that a claim of its own worker has extended", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const hub = new Hub(host);
  const poller = new ChangePoller(store, 60_000, { host, hub, watch: new ChangeWatch(store, { host, hub }) });
  await store.enqueue([aRun()]);
  const { claims: [held] } = await store.claim(aClaimRequest({ leaseMs: 1_000 }));
  let calls = 0;
  const stop = poller.on(() => calls++);
  await pass(host, 1_000, 10);
  calls = 0;

  await store.claim(aClaimRequest({ holding: [held!.lease] }));
  await pass(host, 100, 10);
  stop();

  assert.equal(calls, 1);
});

Deno.test("ChangePoller.on() looks only while somebody listens", async () => {
  const { host, store, poller } = aPoller();
  await pass(host, 200, 10);
  const before = store.looks;
  const stops = [poller.on(() => {}), poller.on(() => {})];
  await pass(host, 200, 10);
  stops[0]!();
  await pass(host, 200, 10);
  const meanwhile = store.looks;

  stops[1]!();
  await pass(host, 200, 10);

  assert.equal(before, 0);
  assert.ok(meanwhile >= 10);
  assert.equal(store.looks, meanwhile);
});

Deno.test("ChangePoller.on() calls a new listener at its first look, though one for former listeners has ended late", async () => {
  const { host, store, poller } = aPoller();
  const { getVersion } = store;
  const answered = Promise.withResolvers<void>();
  store.getVersion = async () => {
    await answered.promise;
    return await getVersion.call(store);
  };
  const stop = poller.on(() => {});
  await pass(host, 20, 10);
  stop();
  answered.resolve();
  await host.settle();
  let calls = 0;

  const stopNew = poller.on(() => calls++);
  await pass(host, 100, 10);
  stopNew();

  assert.equal(calls, 1);
});

Deno.test("ChangePoller.on() calls each listener, also the same function twice, until it is stopped", async () => {
  const { host, store, poller } = aPoller();
  const calls: string[] = [];
  const same = () => void calls.push("same");
  const stops = [poller.on(same), poller.on(same), poller.on(() => void calls.push("other"))];
  await pass(host, 100, 10);
  calls.length = 0;

  stops[0]!();
  store.version = 2;
  await pass(host, 100, 10);
  for (const stop of stops) stop();

  assert.deepEqual(calls, ["same", "other"]);
});

Deno.test("ChangePoller.on() continues after the store has failed, and publishes the error", async () => {
  const { host, store, hub, poller } = aPoller();
  const errors: unknown[] = [];
  hub.on("worker:error", ({ error }) => void errors.push(error));
  let calls = 0;
  const stop = poller.on(() => calls++);
  await pass(host, 100, 10);
  calls = 0;

  store.fails = true;
  await pass(host, 50, 10);
  store.fails = false;
  store.version = 2;
  await pass(host, 1_100, 10);
  stop();

  assert.ok(errors.length > 0 && errors.every((error) => error instanceof StoreError));
  assert.equal(calls, 1);
});

Deno.test("ChangePoller.onThrottled() calls back for the first change at once, then every 100 ms at most", async () => {
  const { host, store, poller } = aPoller();
  const calls: number[] = [];
  const stop = poller.onThrottled(() => void calls.push(host.monotonic()));
  await pass(host, 300, 10);
  calls.length = 0;

  for (let change = 0; change < 50; change++) {
    store.version += 1;
    await pass(host, 20, 10);
  }
  stop();
  const atStop = calls.length;
  store.version += 1;
  await pass(host, 500, 10);

  assert.ok(atStop >= 8 && atStop <= 12, `${atStop} calls in a second`);
  assert.ok(calls.slice(1).every((at, n) => at - calls[n]! >= 100));
  assert.equal(calls.length, atStop);
});

Deno.test("ChangePoller.onThrottled() does not lose the last change", async () => {
  const { host, store, poller } = aPoller();
  let seen = 0;
  const stop = poller.onThrottled(() => void (seen = store.version));
  await pass(host, 300, 10);

  store.version = 2;
  await pass(host, 30, 10);
  store.version = 3;
  await pass(host, 300, 10);
  stop();

  assert.equal(seen, 3);
});
