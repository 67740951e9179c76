import assert from "node:assert/strict";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aRun } from "../support/fixtures.ts";

const STORES: Record<string, (host: FakeHost) => Store | Promise<Store>> = {
  MemoryStore: (host) => new MemoryStore({ host }),
  SqliteStore: (host) => SqliteStore.open(":memory:", { host }),
};

for (const [name, open] of Object.entries(STORES)) {
  Deno.test(`${name}: findRuns() counts all of a few thousand runs, however slow the machine is`, async () => {
    await using store = await openSlow(open);
    await addRuns(store, 2_500);

    const { total, countedTo } = await store.findRuns({ labels: { org: "acme" }, limit: 1 });

    assert.deepEqual([total, countedTo], [2_500, null]);
  });

  Deno.test(`${name}: findRuns() ends the count of a slow list of many runs early`, async () => {
    await using store = await openSlow(open);
    await addRuns(store, 9_900);

    const { total, countedTo } = await store.findRuns({ labels: { org: "acme" }, limit: 1 });

    assert.ok(total >= 5_000 && total < 9_900, `${total}`);
    assert.notEqual(countedTo, null);
  });
}

/** Opens a store on a machine on which each look at the clock is 100 ms after the one before. */
async function openSlow(open: (host: FakeHost) => Store | Promise<Store>): Promise<Store> {
  const host = new FakeHost();
  let looks = 0;
  host.monotonic = () => 100 * looks++;
  const store = await open(host);
  await store.migrate();
  return store;
}

async function addRuns(store: Store, count: number): Promise<void> {
  await store.enqueue(Array.from({ length: count }, () => aRun({ labels: { org: "acme" } })));
}
