import assert from "node:assert/strict";
import { Hub } from "../../src/events/hub.ts";
import { ChangePoller, RerunOnChange } from "../../src/events/change_poller.ts";
import { ChangeWatch } from "../../src/events/change_watch.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aRun } from "../support/fixtures.ts";
import { pass } from "../support/stores/for_each_store.ts";

/** A rerun over a store in which nothing has changed since its first look. */
async function aRerun(look: () => Promise<void>) {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const hub = new Hub(host);
  const errors: unknown[] = [];
  hub.on("worker:error", ({ error }) => void errors.push(error));
  const watch = new ChangeWatch(store, { host, hub });
  const rerun = new RerunOnChange(look, { poller: new ChangePoller(store, 60_000, { host, hub, watch }), hub });
  rerun.start();
  await pass(host, 500, 10);
  const change = async () => {
    await store.enqueue([aRun()]);
    await pass(host, 500, 10);
  };
  return { host, rerun, change, errors };
}

Deno.test("RerunOnChange looks when it begins, after each change, and when it is asked", async () => {
  let looks = 0;
  const { host, rerun, change } = await aRerun(() => Promise.resolve(void looks++));
  const atFirst = looks;

  await change();
  await change();
  const afterChanges = looks;
  await rerun.look();
  const asked = looks;
  await pass(host, 500, 10);
  rerun.stop();

  assert.deepEqual([atFirst, afterChanges, asked, looks], [1, 3, 4, 4]);
});

Deno.test("RerunOnChange looks once at a time, and once more if something changes meanwhile", async () => {
  const gates: (() => void)[] = [];
  const { host, rerun, change } = await aRerun(() => new Promise((resolve) => void gates.push(resolve)));

  for (let n = 0; n < 3; n++) await change();
  const meanwhile = gates.length;
  gates[0]!();
  await host.settle();
  const onceMore = gates.length;
  gates[1]!();
  await host.settle();
  rerun.stop();

  assert.deepEqual([meanwhile, onceMore, gates.length], [1, 2, 2]);
});

Deno.test("RerunOnChange continues after a call that failed, and publishes the error", async () => {
  let looks = 0;
  const { rerun, change, errors } = await aRerun(() => Promise.reject(new Error(`look ${++looks} failed`)));

  await change();
  rerun.stop();

  assert.equal(looks, 2);
  assert.deepEqual(errors.map(String), ["Error: look 1 failed", "Error: look 2 failed"]);
});

Deno.test("RerunOnChange looks no more once it was stopped, not even for what changed during a look", async () => {
  const gates: (() => void)[] = [];
  const { host, rerun, change } = await aRerun(() => new Promise((resolve) => void gates.push(resolve)));
  await change();

  rerun.stop();
  gates[0]!();
  await change();
  await rerun.look();
  await host.settle();

  assert.equal(gates.length, 1);
});

Deno.test("RerunOnChange can be started again, also during the last look of before", async () => {
  const gates: (() => void)[] = [];
  const { host, rerun, change } = await aRerun(() => new Promise((resolve) => void gates.push(resolve)));
  rerun.stop();

  rerun.start();
  rerun.start();
  await change();
  const during = gates.length;
  gates[0]!();
  await host.settle();
  gates[1]!();
  rerun.stop();

  assert.deepEqual([during, gates.length], [1, 2]);
});
