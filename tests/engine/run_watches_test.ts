import assert from "node:assert/strict";
import { Hub } from "../../src/engine/hub.ts";
import { Pulse } from "../../src/engine/pulse.ts";
import { RunWatches, type Watcher } from "../../src/engine/run_watches.ts";
import { NotFoundError, StoreError } from "../../src/error.ts";
import type { RunEvent, RunHappening } from "../../src/event.ts";
import type { Claim, RunState } from "../../src/store.ts";
import { MemoryStore } from "../../src/stores/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aPause, aRun, aStep } from "../support/fixtures.ts";
import { claimOne, pass } from "../support/for_each_store.ts";

/** Counts how often runs are read, and fails or waits when it is told to. */
class WatchedStore extends MemoryStore {
  reads: string[] = [];
  looks = 0;
  fails = false;
  gate: Promise<void> | null = null;

  override async getRunState(runId: string): Promise<RunState | null> {
    this.reads.push(runId);
    if (this.fails) throw new StoreError("busy");
    const state = await super.getRunState(runId);
    await this.gate;
    return state;
  }

  override getVersion(): Promise<number> {
    this.looks += 1;
    return super.getVersion();
  }
}

/** Watches over a store to which another process writes: the test. */
async function aWorld() {
  const host = new FakeHost();
  const store = new WatchedStore({ host });
  const hub = new Hub(host);
  const executing = new Map<string, Claim>();
  const watches = new RunWatches({
    migrate: () => store.migrate(),
    store,
    hub,
    pulse: new Pulse(store, 1_000, { host, hub }),
    host,
    claimHere: (runId) => executing.get(runId) ?? null,
    progressHere: () => null,
  });
  const [added] = await store.enqueue([aRun()]);
  const run = added!.run;
  return { host, store, hub, executing, watches, run, claim: () => claimOne(store, run.jobName) };
}

/** Somebody who watches, and what became of it. */
class Witness implements Watcher {
  readonly events: RunEvent[] = [];
  readonly ends: unknown[] = [];

  get types(): string[] {
    return this.events.map(({ type }) => type);
  }

  next(event: RunEvent): void {
    this.events.push(event);
  }

  end(error?: unknown): void {
    this.ends.push(error);
  }
}

const COMPLETED = { status: "completed", output: null } as const;

Deno.test("RunWatches.watch() tells how the run stands, then what another process does, then that it is over", async () => {
  const { host, store, watches, run, claim } = await aWorld();
  const { lease } = await claim();
  const witness = new Witness();
  watches.watch(run.id, witness);
  await pass(host, 200, 10);
  const standing = [...witness.types];

  await store.saveStep(lease, aStep(), '{"current":1}');
  await pass(host, 200, 10);
  await store.finish(lease, COMPLETED, null);
  await pass(host, 200, 10);

  assert.deepEqual(standing, ["run:leased", "run:start"]);
  assert.deepEqual(witness.types.slice(2), ["run:progress", "step:complete", "run:complete"]);
  assert.deepEqual(witness.ends, [undefined]);
});

Deno.test("RunWatches.watch() reads a run once, however many watch it, and only when it has changed", async () => {
  const { host, store, watches, run, claim } = await aWorld();
  const [other] = await store.enqueue([aRun({ jobName: "other" })]);
  const stops = [run.id, run.id, run.id, other!.run.id].map((id) => watches.watch(id, new Witness()));
  await pass(host, 3_000, 10);
  store.reads.length = 0;

  await claim();
  await pass(host, 3_000, 10);
  for (const stop of stops) stop();

  assert.deepEqual(store.reads, [run.id]);
});

Deno.test("RunWatches.watch() tells whoever comes later how the run stands now", async () => {
  const { host, store, watches, run, claim } = await aWorld();
  const first = new Witness();
  const stops = [watches.watch(run.id, first)];
  await host.settle();
  const { lease } = await claim();
  await store.saveStep(lease, aStep(), '{"current":1}');
  await pass(host, 200, 10);

  const second = new Witness();
  stops.push(watches.watch(run.id, second));
  await pass(host, 200, 10);
  for (const stop of stops) stop();

  assert.deepEqual(first.types, ["run:leased", "run:start", "run:progress", "step:complete"]);
  assert.deepEqual(second.events, first.events.slice(0, 3));
});

Deno.test("RunWatches.watch() tells those who join during the first read the same as the first one", async () => {
  const { host, store, hub, watches, run, claim } = await aWorld();
  await claim();
  const reading = Promise.withResolvers<void>();
  store.gate = reading.promise;
  const witnesses = [new Witness(), new Witness()];
  const stops = [watches.watch(run.id, witnesses[0]!)];
  await host.settle();

  stops.push(watches.watch(run.id, witnesses[1]!));
  hub.publish(run, { type: "step:start", stepName: "read", stepIndex: 0, attempt: 1 });
  reading.resolve();
  await host.settle();
  for (const stop of stops) stop();

  assert.deepEqual(witnesses.map(({ types }) => types), [
    ["run:leased", "run:start", "step:start"],
    ["run:leased", "run:start", "step:start"],
  ]);
});

Deno.test("RunWatches.watch() tells once what happens here while the run is read", async () => {
  const { host, store, hub, watches, run, claim } = await aWorld();
  const { lease, leaseExpiresAt } = await claim();
  const wait = aPause();
  await store.pause(lease, { pauses: [wait], retryAt: null, park: true, progress: null });
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);

  hub.publish(run, { type: "run:waiting", waitId: wait.id, waitName: wait.name, deadlineAt: null }, lease);
  await host.settle();
  const leaseExpires = new Date(leaseExpiresAt).toISOString();
  const next = { ...lease, generation: lease.generation + 1 };
  hub.publish(run, { type: "run:leased", leaseOwner: "here", leaseExpiresAt: leaseExpires }, next);
  stop();

  assert.deepEqual(witness.types, ["run:waiting", "run:leased"]);
});

Deno.test("RunWatches.watch() ends with what went wrong if the run cannot be read, and can be asked again", async () => {
  const { host, store, watches, run } = await aWorld();
  const witnesses = [new Witness(), new Witness(), new Witness()];
  store.fails = true;
  for (const witness of witnesses.slice(0, 2)) watches.watch(run.id, witness);
  await host.settle();
  store.fails = false;

  const stop = watches.watch(run.id, witnesses[2]!);
  await host.settle();
  stop();

  assert.deepEqual(witnesses.map(({ ends }) => ends.map((error) => error instanceof StoreError)), [[true], [true], []]);
});

Deno.test("RunWatches.watch() ends with a NotFoundError for a run that is not there", async () => {
  const { host, watches } = await aWorld();
  const witness = new Witness();

  watches.watch("missing", witness);
  await host.settle();

  assert.ok(witness.ends[0] instanceof NotFoundError);
});

Deno.test("RunWatches.watch() tells what it could not read as soon as it can, although nothing changes any more", async () => {
  const { host, store, watches, run, claim } = await aWorld();
  const witness = new Witness();
  watches.watch(run.id, witness);
  await pass(host, 200, 10);

  store.fails = true;
  await store.finish((await claim()).lease, COMPLETED, null);
  await pass(host, 500, 10);
  store.fails = false;
  await pass(host, 1_500, 10);

  assert.deepEqual(witness.types, ["run:complete"]);
  assert.equal(witness.ends.length, 1);
});

for (const when of ["before the first look", "later"]) {
  Deno.test(`RunWatches.watch() ends when another process deletes the run ${when}`, async () => {
    const { host, store, watches, run } = await aWorld();
    const witness = new Witness();
    watches.watch(run.id, witness);
    await host.settle();
    if (when === "later") await pass(host, 200, 10);

    await store.cancel(run.id, "c1", []);
    await store.delete(run.id);
    await pass(host, 200, 10);

    assert.deepEqual([witness.types, witness.ends], [[], [undefined]]);
  });
}

Deno.test("RunWatches.watch() leaves a run to the hub while this process executes it", async () => {
  const { host, store, hub, executing, watches, run, claim } = await aWorld();
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);
  await pass(host, 200, 10);
  const claimed = await claim();
  const { lease, leaseExpiresAt } = claimed;
  executing.set(run.id, claimed);
  const leased = { leaseOwner: "dead-worker", leaseExpiresAt: new Date(leaseExpiresAt).toISOString() };

  hub.publish(run, { type: "run:leased", ...leased }, lease);
  hub.publish(run, { type: "run:start", execution: 1 }, lease);
  await store.saveStep(lease, aStep(), null);
  await pass(host, 500, 10);
  const here = [...witness.types];
  executing.delete(run.id);
  await pass(host, 1_500, 10);
  stop();

  assert.deepEqual(here, ["run:leased", "run:start"]);
  assert.deepEqual(witness.types, ["run:leased", "run:start", "step:complete"]);
});

/** What this process tells when it has taken up a run. */
function takeUp(hub: Hub, { run, lease, leaseExpiresAt, execution }: Claim, leaseOwner = "here"): void {
  hub.publish(run, { type: "run:leased", leaseOwner, leaseExpiresAt: new Date(leaseExpiresAt).toISOString() }, lease);
  hub.publish(run, { type: "run:start", execution }, lease);
}

/** Takes up a run in which another process has just recorded a step. */
async function claimAfterStep({ store, executing, run, claim }: Awaited<ReturnType<typeof aWorld>>): Promise<Claim> {
  const elsewhere = await claim();
  await store.saveStep(elsewhere.lease, aStep({ name: "there" }), null);
  await store.release(elsewhere.lease);
  const claimed = await claim();
  executing.set(run.id, claimed);
  return claimed;
}

Deno.test("RunWatches.watch() tells the steps that another process had recorded before a run is taken up", async () => {
  const world = await aWorld();
  const { host, store, hub, watches, run } = world;
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);
  await pass(host, 200, 10);
  // All this happens between two looks at the store.
  const claimed = await claimAfterStep(world);

  takeUp(hub, claimed);
  await store.saveStep(claimed.lease, aStep({ name: "here", index: 1 }), null);
  hub.publish(run, { type: "step:complete", stepName: "here", stepIndex: 1, output: null, duration: 0 }, claimed.lease);
  await pass(host, 500, 10);
  stop();

  const told = witness.events.map((event) => event.type === "step:complete" ? `step ${event.stepName}` : event.type);
  assert.deepEqual(told, ["step there", "run:leased", "run:start", "step here"]);
});

Deno.test("RunWatches.watch() tells what happens here when it could read what was recorded elsewhere before", async () => {
  const world = await aWorld();
  const { host, store, hub, watches, run } = world;
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);
  await pass(host, 200, 10);
  const claimed = await claimAfterStep(world);
  store.fails = true;

  takeUp(hub, claimed);
  hub.publish(run, { type: "run:complete", output: null, duration: 0 }, claimed.lease);
  await pass(host, 500, 10);
  const before = [...witness.types];
  store.fails = false;
  await pass(host, 2_000, 10);
  stop();

  assert.deepEqual(before, []);
  assert.deepEqual(witness.types, ["step:complete", "run:leased", "run:start", "run:complete"]);
  assert.deepEqual(witness.ends, [undefined]);
});

Deno.test("RunWatches.watch() waits no longer for what it cannot read when nobody watches", async () => {
  const { host, store, hub, watches, run } = await aWorld();
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);
  await pass(host, 200, 10);
  store.fails = true;

  hub.publish(run, { type: "run:cancel" });
  await host.settle();
  stop();
  await host.settle();
  const reads = store.reads.length;
  await pass(host, 5_000, 100);

  assert.equal(store.reads.length, reads);
  assert.deepEqual(witness.types, []);
});

Deno.test("RunWatches.watch() ends when too much happens while the run cannot be read, and keeps the latest progress", async () => {
  const { host, store, hub, executing, watches, run, claim } = await aWorld();
  const witness = new Witness();
  watches.watch(run.id, witness);
  await pass(host, 200, 10);
  const claimed = await claim();
  executing.set(run.id, claimed);
  const publish = (happening: RunHappening) => hub.publish(run, happening, claimed.lease);
  store.fails = true;
  hub.publish(run, { type: "run:cancel" });

  for (let current = 0; current < 20_000; current++) publish({ type: "run:progress", progress: { current } });
  const before = witness.ends.length;
  const line = { type: "log:write", stepName: null, level: "info", message: "hello", data: null } as const;
  for (let n = 0; n < 20_000; n++) publish(line);

  assert.equal(before, 0);
  assert.ok(witness.ends.length === 1 && witness.ends[0] instanceof StoreError);
});

for (const isFirstReadSlow of [false, true]) {
  const when = isFirstReadSlow ? "the run is read for the first time" : "nobody looks";
  Deno.test(`RunWatches.watch() tells steps of another process before an end that is decided here while ${when}`, async () => {
    const { host, store, hub, watches, run, claim } = await aWorld();
    const witness = new Witness();
    const gate = Promise.withResolvers<void>();
    if (isFirstReadSlow) store.gate = gate.promise;
    watches.watch(run.id, witness);
    await pass(host, 200, 10);
    const { lease } = await claim();
    await store.saveStep(lease, aStep({ name: "there" }), null);
    await store.cancel(run.id, "request", []);

    hub.publish(run, { type: "run:cancel" });
    gate.resolve();
    await host.settle();

    assert.deepEqual(witness.types, ["step:complete", "run:cancel"]);
    assert.deepEqual(witness.ends, [undefined]);
  });
}

Deno.test("RunWatches.watch() does not tell of a lease when the store has shown a newer one", async () => {
  const { host, store, hub, executing, watches, run, claim } = await aWorld();
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);
  await pass(host, 200, 10);
  const old = await claim();
  await store.release(old.lease);
  await claim();
  await pass(host, 2_000, 10); // it sees the newer one
  const before = [...witness.types];

  executing.set(run.id, old); // whose answer comes only now
  takeUp(hub, old, "late");
  await host.settle();
  stop();

  assert.deepEqual(before, ["run:leased", "run:start"]);
  assert.deepEqual(witness.types, before);
});

Deno.test("RunWatches.watch() forgets what it has read if something was told meanwhile", async () => {
  const { host, store, hub, watches, run, claim } = await aWorld();
  const witness = new Witness();
  const stop = watches.watch(run.id, witness);
  await pass(host, 200, 10);
  const gate = Promise.withResolvers<void>();
  const { lease, leaseExpiresAt } = await claim();
  store.gate = gate.promise;
  await pass(host, 2_000, 10); // it reads that the run is executed, and has no answer yet
  store.gate = null;

  const leased = { leaseOwner: "here", leaseExpiresAt: new Date(leaseExpiresAt).toISOString() };
  hub.publish(run, { type: "run:leased", ...leased }, lease);
  hub.publish(run, { type: "run:start", execution: 1 }, lease);
  const { pauses: [pause] } = await store.pause(lease, {
    pauses: [aPause({ kind: "sleep", name: "nap" })],
    retryAt: null,
    park: true,
    progress: null,
  });
  hub.publish(run, { type: "run:waiting", waitId: null, waitName: pause!.name, deadlineAt: null }, lease);
  gate.resolve();
  await pass(host, 200, 10);
  stop();

  assert.deepEqual(witness.types, ["run:leased", "run:start", "run:waiting"]);
});

Deno.test("RunWatches looks no more, and hears no more, when nobody watches", async () => {
  const { host, store, hub, watches, run } = await aWorld();
  const witnesses = [new Witness(), new Witness()];
  const stops = witnesses.map((witness) => watches.watch(run.id, witness));
  await pass(host, 200, 10);
  stops[0]!();
  stops[0]!();
  hub.publish(run, { type: "run:retry", newRunId: "x" });
  await pass(host, 200, 10);
  const { looks } = store;

  stops[1]!();
  hub.publish(run, { type: "run:retry", newRunId: "y" });
  await pass(host, 2_000, 10);

  assert.equal(store.looks, looks);
  assert.deepEqual(witnesses.map(({ types, ends }) => [types, ends]), [[[], []], [["run:retry"], []]]);
});

Deno.test("RunWatches.watch() stopped before the run was read tells nothing", async () => {
  const { host, store, watches, run, claim } = await aWorld();
  await claim();
  const witness = new Witness();

  watches.watch(run.id, witness)();
  await pass(host, 500, 10);

  assert.deepEqual([witness.types, witness.ends, store.looks], [[], [], 0]);
});

Deno.test("RunWatches.endAll() ends everything, and what is watched later works", async () => {
  const { host, store, watches, run } = await aWorld();
  const [other] = await store.enqueue([aRun()]);
  const witnesses = [run.id, run.id, other!.run.id].map((id) => {
    const witness = new Witness();
    watches.watch(id, witness);
    return witness;
  });

  watches.endAll();
  const again = new Witness();
  watches.watch(run.id, again);
  await host.settle();
  await store.cancel(run.id, "c1", []);
  await pass(host, 200, 10);

  assert.deepEqual(witnesses.map(({ types, ends }) => [types, ends]), [[[], [undefined]], [[], [undefined]], [[], [
    undefined,
  ]]]);
  assert.deepEqual([again.types, again.ends], [["run:cancel"], [undefined]]);
});

Deno.test("RunWatches.watch() tells the last event again to whoever comes after the end", async () => {
  const { host, store, watches, run } = await aWorld();
  await store.cancel(run.id, "c1", []);
  const witnesses = [new Witness(), new Witness()];

  for (const witness of witnesses) {
    watches.watch(run.id, witness);
    await host.settle();
  }

  for (const { types, ends } of witnesses) assert.deepEqual([types, ends], [["run:cancel"], [undefined]]);
});

Deno.test("RunWatches looks at very many runs", async () => {
  const { host, store, watches } = await aWorld();
  const added = await store.enqueue(Array.from({ length: 1_200 }, () => aRun()));
  const witnesses = added.map(({ run }) => {
    const witness = new Witness();
    watches.watch(run.id, witness);
    return witness;
  });
  await pass(host, 200, 20);

  for (const { run } of added) await store.cancel(run.id, "c1", []);
  await pass(host, 200, 20);

  assert.ok(witnesses.every(({ types, ends }) => types.join() === "run:cancel" && ends.length === 1));
});
