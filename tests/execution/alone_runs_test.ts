import assert from "node:assert/strict";
import { AloneRuns } from "../../src/execution/alone_runs.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aClaimRequest } from "../support/fixtures.ts";
import { claimOne, endDelay, forEachStore, LEASE_MS, pass } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aGatedJob, aJob } from "../support/jobs.ts";

Deno.test("AloneRuns drains a worker in times that grow", () => {
  const host = new FakeHost();
  const runs = new AloneRuns(1_000, host);
  const dueAt = host.now();
  const drained: number[] = [];

  for (let leases = 0; leases < 33; leases++) {
    noteAnswer(runs, host, { aloneSince: dueAt });
    if (runs.isDraining) drained.push(leases);
    host.advance(1_000);
  }

  assert.deepEqual(drained, [1, 4, 5, 6, 7, ...Array.from({ length: 16 }, (_, n) => 16 + n)]);
});

Deno.test("AloneRuns lets a worker claim others for a while after each run that it has claimed alone", () => {
  const host = new FakeHost();
  const runs = new AloneRuns(1_000, host);
  const aloneSince = host.now();
  host.advance(4_000);
  noteAnswer(runs, host, { aloneSince });
  const before = runs.isDraining;

  noteAnswer(runs, host, { aloneSince, isAlone: true });
  const after = runs.isDraining;
  host.advance(1_000);
  const later = runs.isDraining;

  assert.deepEqual([before, after, later], [true, false, true]);
});

Deno.test("AloneRuns drains a worker although the clock was set back", () => {
  const host = new FakeHost();
  const runs = new AloneRuns(1_000, host);
  const aloneSince = host.now() + 3_600_000;
  noteAnswer(runs, host, { aloneSince });
  host.advance(500);
  noteAnswer(runs, host, { aloneSince });
  const before = runs.isDraining;

  host.advance(500);
  noteAnswer(runs, host, { aloneSince });

  assert.deepEqual([before, runs.isDraining], [false, true]);
});

Deno.test("AloneRuns drains no worker while no run is claimed alone", () => {
  const host = new FakeHost();
  const runs = new AloneRuns(1_000, host);
  host.advance(10_000);

  noteAnswer(runs, host, { aloneSince: null });

  assert.deepEqual([runs.isDraining, runs.drainsForMs], [false, Infinity]);
});

forEachStore("a worker executes nothing beside a run that it has claimed alone, until a step is recorded", async ({
  store,
  host,
}) => {
  const gates: (() => void)[] = [];
  const job = aJob(async (step) => {
    await step.run("first", () => new Promise<void>((resolve) => gates.push(resolve)));
    await step.run("second", () => new Promise<void>((resolve) => gates.push(resolve)));
  });
  const other = aJob((_step, input) => input, "other");
  await using engine = createEngine({ store, host, jobs: { job, other } });
  const { id } = await engine.trigger(job, null);
  for (let crash = 0; crash < 2; crash++) {
    await claimOne(store, "job");
    host.advance(LEASE_MS);
  }
  await endDelay(store, host);
  await engine.start();
  await host.settle();
  const beside = await engine.trigger(other, null);
  await pass(host, 5_000);
  const during = (await engine.getRun(beside.id))!.status;

  gates.shift()!();
  await pass(host, 1_000);
  const after = (await engine.getRun(beside.id))!.status;
  gates.shift()!();
  await engine.waitForRun(id);

  assert.deepEqual([during, after], ["pending", "completed"]);
});

forEachStore("a busy worker drains for a run that is claimed alone", async ({ store, host }) => {
  const busy = aGatedJob("busy");
  const job = aJob((step) => step.run("work", () => "done"));
  await using engine = createEngine({ store, host, jobs: { job, busy: busy.job } });
  const { id } = await engine.trigger(job, null);
  for (let crash = 0; crash < 2; crash++) {
    await claimOne(store, "job");
    host.advance(LEASE_MS);
  }
  const first = await engine.trigger(busy.job, null);
  await engine.start();
  await pass(host, 1.5 * LEASE_MS, 1_000);
  const second = await engine.trigger(busy.job, null);
  await pass(host, 1_000);
  const before = await Promise.all([id, first.id, second.id].map(async (id) => (await engine.getRun(id))!.status));

  busy.letGo(null);
  await Promise.all([id, first.id, second.id].map((id) => engine.waitForRun(id)));

  assert.deepEqual(before, ["pending", "running", "pending"]);
});

forEachStore("runUntilIdle() executes a run that is claimed alone", async ({ store, host }) => {
  const job = aJob((step) => step.run("work", () => "done"));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  for (let crash = 0; crash < 2; crash++) {
    await claimOne(store, "job");
    host.advance(LEASE_MS);
  }
  await endDelay(store, host);

  const { executed } = await engine.runUntilIdle();

  assert.deepEqual([executed, (await engine.getRun(id))!.status], [1, "completed"]);
});

forEachStore("runUntilIdle() claims others again when it has drained for long enough", async ({ store, host }) => {
  const job = aJob((step) => step.run("work", () => "done"));
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  const waiting = aJob((step) => step.run("wait", () => answered), "waiting");
  const busy = aGatedJob("busy");
  const answering = aJob(() => answer(), "answering");
  const jobs = { job, waiting, busy: busy.job, answering };
  await using engine = createEngine({ store, host, jobs, worker: { concurrency: 2 } });
  const { id } = await engine.trigger(job, null);
  for (let crash = 0; crash < 2; crash++) {
    await claimOne(store, "job");
    host.advance(LEASE_MS);
  }
  await endDelay(store, host);
  await store.claim(aClaimRequest({ limit: 0 }));
  host.advance(3.5 * LEASE_MS);
  for (const other of [waiting, busy.job, answering]) await engine.trigger(other, null);

  const running = engine.runUntilIdle();
  await pass(host, LEASE_MS, 1_000);
  busy.letGo(null);
  await pass(host, 4 * LEASE_MS, 1_000);
  const { executed } = await running;

  assert.deepEqual([executed, (await engine.getRun(id))!.status], [4, "completed"]);
});

function noteAnswer(
  runs: AloneRuns,
  host: FakeHost,
  { aloneSince, isAlone = false }: { aloneSince: number | null; isAlone?: boolean },
): void {
  const result = {
    claims: [],
    failed: [],
    cancelled: [],
    nextTimerAt: null,
    hasMore: false,
    hasHeld: false,
    now: host.now(),
    aloneSince,
  };
  runs.noteAnswer(aClaimRequest({ isAlone }), result);
}
