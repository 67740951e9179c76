import assert from "node:assert/strict";
import { NotFoundError, StoreError } from "../../src/model/error.ts";
import { measuredStore } from "../../src/statistics/measured_store.ts";
import { ProcessMetrics } from "../../src/statistics/process_metrics.ts";
import type { Store } from "../../src/store/store.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { withCalls } from "../support/stores/with_calls.ts";

Deno.test("measuredStore() counts each call, though from the hundredth on it measures each eighth", async () => {
  const host = new FakeHost();
  const metrics = new ProcessMetrics();
  const { store } = measuredStore(new MemoryStore({ host }), metrics, host);

  for (let call = 0; call < 180; call++) await store.getRunState("nobody");

  const { counts } = metrics.storeCalls.get("getRunState")!;
  assert.equal(counts.reduce((sum, count) => sum + count, 0), 100 + 80);
});

Deno.test("measuredStore() answers with the promise of the store, and times it", async () => {
  const host = new FakeHost();
  const metrics = new ProcessMetrics();
  const { promise, resolve } = Promise.withResolvers<null>();
  const { store } = measuredStore(withCalls(new MemoryStore({ host }), { getRunState: () => promise }), metrics, host);
  await store.migrate();
  const answer = store.getRunState("nobody");
  host.advance(1_500);
  resolve(null);
  await answer;
  await host.settle();

  assert.equal(answer, promise);
  assert.equal(metrics.storeCalls.get("getRunState")!.sum, 1.5);
});

Deno.test("measuredStore() notes errors by code, and a store that is broken until it answers again", async () => {
  const host = new FakeHost();
  const metrics = new ProcessMetrics();
  let error: Error | null = new StoreError("the file was replaced", { code: "internal" });
  const memory = new MemoryStore({ host });
  const failing = withCalls(memory, {
    getRunState: () => error === null ? Promise.resolve(null) : Promise.reject(error),
  });
  const { store, condition } = measuredStore(failing, metrics, host);
  const states: boolean[] = [];
  for (const next of [error, new StoreError("busy"), error, new NotFoundError("no run"), error, null]) {
    error = next;
    await store.getRunState("nobody").catch(() => {});
    await host.settle();
    states.push(condition.isBroken);
  }

  assert.deepEqual(states, [true, false, true, false, true, false]);
  assert.deepEqual([...metrics.storeErrors.values], [["internal", 3], ["unavailable", 1]]);
});

Deno.test("measuredStore() creates the tables once, before the first call, and tries again if that failed", async () => {
  const host = new FakeHost();
  const made: string[] = [];
  let isDown = true;
  const recording = withCalls(new MemoryStore({ host }), {
    migrate: () => {
      made.push("migrate");
      return isDown ? Promise.reject(new StoreError("down")) : Promise.resolve();
    },
    getRunState: () => {
      made.push("getRunState");
      return Promise.resolve(null);
    },
  });
  const { store, condition } = measuredStore(recording, new ProcessMetrics(), host);

  await assert.rejects(store.getRunState("nobody"), /down/);
  const before = condition.isMigrated;
  isDown = false;
  await Promise.all([store.getRunState("nobody"), store.getRunState("nobody"), store.migrate()]);

  assert.deepEqual(made, ["migrate", "migrate", "getRunState", "getRunState"]);
  assert.deepEqual([before, condition.isMigrated], [false, true]);
});

Deno.test("measuredStore() has the calls of the classes of a store, those of its own, and the optional ones that it has", () => {
  class OwnStore extends MemoryStore {
    override readonly cancel = () => Promise.reject(new Error("not here"));
  }
  const names = Object.getOwnPropertyNames(MemoryStore.prototype) as (keyof Store)[];
  const watching = withCalls(new OwnStore(), { watch: () => ({ isLive: true, stop: () => {} }) });

  const [plain, watched] = [new OwnStore(), watching].map((given) =>
    measuredStore(given, new ProcessMetrics(), new FakeHost()).store
  );

  assert.deepEqual(names.filter((name) => typeof plain![name] !== "function"), []);
  assert.deepEqual([typeof plain!.watch, typeof plain!.transact], ["undefined", "undefined"]);
  assert.deepEqual([typeof watched!.watch, typeof watched!.claim], ["function", "function"]);
});
