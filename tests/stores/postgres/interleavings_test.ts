import assert from "node:assert/strict";
import pg from "pg";
import type { KnownJob } from "../../../src/model/flow.ts";
import { LeaseLostError } from "../../../src/model/error.ts";
import type { Claim } from "../../../src/store/claim.ts";
import type { NewRun } from "../../../src/store/new_run.ts";
import type { ScheduleRecord } from "../../../src/store/schedule_record.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { aClaimRequest, aFailure, aFlow, aHold, aKnownJob, aPause, aRun, aStep } from "../../support/fixtures.ts";
import { findFault } from "./postgres_faults.ts";
import { startServer } from "./server.ts";
import { getSteps } from "../../../src/store/reads.ts";

// Transactions of several processes, in the order in which they do harm: each is held open on purpose.

const server = startServer();
let schemas = 0;

/** A store, another one whose writes are in a transaction that is open, and what checks both. */
interface Fixture {
  store: PostgresStore;
  /** Begins a transaction, and returns a store that works in it. */
  begin(): Promise<{ store: PostgresStore; commit(): Promise<void>; rollback(): Promise<void> }>;
  /** Opens one more store of the same schema. */
  open(): Promise<PostgresStore>;
  client: pg.Client;
  schema: string;
}

function test(name: string, body: (fixture: Fixture) => Promise<void>): void {
  Deno.test({
    name: `PostgresStore: ${name}`,
    ignore: server === null,
    async fn() {
      const { url } = server!; // ignored without one
      const schema = `interleavings_${Deno.pid}_${++schemas}`;
      await using stack = new AsyncDisposableStack();
      const open = async () => stack.use(await PostgresStore.open(url, { schema, durability: "relaxed" }));
      const connect = async () => {
        const client = new pg.Client({ connectionString: url });
        await client.connect();
        stack.defer(() => client.end());
        return client;
      };
      const store = await open();
      await store.migrate();
      const begin = async () => {
        const client = await connect();
        await client.query("begin");
        // The store refuses to write inside a transaction, so its calls are made those of a pool of its own.
        const query = (sql: string, parameters?: (string | null)[]) =>
          client.query(sql.replace(/^call (.*)apply_outside_v1(.*), null\)$/, "select $1apply_v1$2) as r"), parameters);
        return {
          store: stack.use(PostgresStore.from({ query }, { schema, durability: "relaxed" })),
          commit: async () => void await client.query("commit"),
          rollback: async () => void await client.query("rollback"),
        };
      };
      await body({ store, begin, open, client: await connect(), schema });
    },
  });
}

const JOBS: readonly KnownJob[] = [aKnownJob({ name: "a" }), aKnownJob({ name: "b" })];
const KEY = "key";

async function claim(store: PostgresStore, workerId: string, { limit = 1, jobs = JOBS } = {}): Promise<Claim[]> {
  const request = aClaimRequest({ workerId, claimId: crypto.randomUUID(), jobs, limit, leaseMs: 60_000 });
  return (await store.claim(request)).claims;
}

/** A call that waits for all other writes, and they for it, until its transaction ends. */
function lockAll(store: PostgresStore): Promise<unknown> {
  return store.cancel("no such run", "request", null);
}

const COMPLETED = { status: "completed", output: null, durationMs: 0 } as const;

test("a key goes on when its holder ends while a trigger is about to commit", async ({ store, begin, client, schema }) => {
  await store.enqueue([aRun({ id: "first", jobName: "a", concurrencyKey: KEY })]);
  const [first] = await claim(store, "worker");

  const transaction = await begin();
  await transaction.store.enqueue([aRun({ id: "second", jobName: "a", concurrencyKey: KEY })]);
  const ending = store.finish(first!.lease, COMPLETED, []);
  await pause(100);
  await transaction.commit();
  await ending;

  assert.equal(await findFault(client, schema), null);
  assert.deepEqual((await claim(store, "worker")).map(({ run }) => run.id), ["second"]);
});

test("a key goes on when a run is triggered while its holder's end is about to commit", async ({ store, begin, client, schema }) => {
  await store.enqueue([aRun({ id: "first", jobName: "a", concurrencyKey: KEY })]);
  const [first] = await claim(store, "worker");

  const transaction = await begin();
  await transaction.store.finish(first!.lease, COMPLETED, []);
  const trigger = store.enqueue([aRun({ id: "second", jobName: "a", concurrencyKey: KEY })]);
  await pause(100);
  await transaction.commit();
  await trigger;

  assert.equal(await findFault(client, schema), null);
  assert.deepEqual((await claim(store, "worker")).map(({ run }) => run.id), ["second"]);
});

test("two runs of a chain that are retried at the same time have one retry", async ({ store, begin }) => {
  const retryOf = (runId: string, id: string) => aRun({ id, jobName: "a", retriggerOf: { runId, from: "failure" } });
  for (const run of [aRun({ id: "first", jobName: "a" }), retryOf("first", "second")]) {
    await store.enqueue([run]);
    const [claimed] = await claim(store, "worker");
    await store.finish(claimed!.lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  }

  const transaction = await begin();
  await transaction.store.enqueue([retryOf("first", "third")]);
  const retrying = store.enqueue([retryOf("second", "fourth")]);
  await pause(100);
  await transaction.commit();

  assert.deepEqual((await retrying).map(({ run, disposition }) => [run.id, disposition]), [["third", "idempotent"]]);
});

for (const end of ["commit", "rollback"] as const) {
  test(`a claim beside another one that is about to ${end} takes no younger run of its key`, async ({ store, begin }) => {
    await store.enqueue([aRun({ id: "elder", jobName: "a", concurrencyKey: KEY })]);
    await store.enqueue([aRun({ id: "younger", jobName: "b", concurrencyKey: KEY })]);

    const transaction = await begin();
    const [elder] = await claim(transaction.store, "worker-1");
    const claiming = claim(store, "worker-2", { limit: 2 });
    await pause(100);
    await transaction[end]();
    const claimed = await claiming;

    assert.equal(elder!.run.id, "elder");
    assert.deepEqual(claimed.map(({ run }) => run.id), end === "commit" ? [] : ["elder"]);
  });
}

test("two claims at the same moment take different runs", async ({ store, begin }) => {
  await store.enqueue([aRun({ id: "first", jobName: "a" })]);
  await store.enqueue([aRun({ id: "second", jobName: "a" })]);

  const transaction = await begin();
  const before = await claim(transaction.store, "worker-1");
  const claiming = claim(store, "worker-2");
  await pause(100);
  await transaction.commit();
  const claimed = [...before, ...await claiming, ...await claim(store, "worker-3")];

  assert.deepEqual(claimed.map(({ run }) => run.id), ["first", "second"]);
});

test("a claim that waits while a job is paused takes no run of it", async ({ store, begin }) => {
  await store.enqueue([aRun({ id: "first", jobName: "a" })]);
  await store.enqueue([aRun({ id: "second", jobName: "b" })]);

  const transaction = await begin();
  await transaction.store.pauseJob("a", { by: null, note: null });
  const claiming = claim(store, "worker", { limit: 2 });
  await pause(100);
  await transaction.commit();
  const claimed = [...await claiming, ...await claim(store, "worker", { limit: 2 })];

  assert.deepEqual(claimed.map(({ run }) => run.id), ["second"]);
});

test("a claim that waits while the parent of a run is cancelled does not take the child", async ({ store, begin }) => {
  await store.enqueue([aRun({ id: "parent", jobName: "a" })]);
  const [parent] = await claim(store, "worker");
  const children = aPause({
    kind: "children",
    children: { total: 1, from: 0, runs: [aRun({ id: "child", jobName: "b" })] },
  });
  await store.pause(parent!.lease, { pauses: [children], retryAt: null, park: true, reports: [] });

  const transaction = await begin();
  await transaction.store.cancel("parent", "request", null);
  const claiming = claim(store, "worker", { limit: 2 });
  await pause(100);
  await transaction.commit();

  assert.deepEqual(await claiming, []);
  assert.deepEqual(await claim(store, "worker", { limit: 2 }), []);
});

test("a trigger that is repeated while its first try is under way answers the same run", async ({ store, begin, open }) => {
  const run = aRun({ id: "run", jobName: "a" });
  const again = await open();

  const transaction = await begin();
  await lockAll(transaction.store);
  const tries = [store.enqueue([run]), again.enqueue([run])];
  await pause(100);
  await transaction.commit();

  assert.deepEqual((await Promise.all(tries)).map(([enqueued]) => enqueued!.run.id), ["run", "run"]);
});

test("a claim that waits beyond the deadline of a run does not take it", async ({ store, begin }) => {
  await store.enqueue([aRun({ id: "first", jobName: "a", flow: aFlow({ startWithin: 300 }) })]);
  await store.enqueue([aRun({ id: "second", jobName: "a" })]);

  const transaction = await begin();
  await lockAll(transaction.store);
  const claiming = claim(store, "worker", { limit: 2 });
  await pause(400);
  await transaction.rollback();
  const claimed = [...await claiming, ...await claim(store, "worker", { limit: 2 })];

  assert.deepEqual(claimed.map(({ run }) => run.id), ["second"]);
});

for (const end of ["commit", "rollback"] as const) {
  test(`of two triggers of a key at the same moment one is claimable when the other is about to ${end}`, async (fixture) => {
    const { store, begin, client, schema } = fixture;

    const transaction = await begin();
    await transaction.store.enqueue([aRun({ id: "first", jobName: "a", concurrencyKey: KEY })]);
    const trigger = store.enqueue([aRun({ id: "second", jobName: "a", concurrencyKey: KEY })]);
    await pause(100);
    await transaction[end]();
    await trigger;

    assert.equal(await findFault(client, schema), null);
    const claimed = await claim(store, "worker", { limit: 2 });
    assert.deepEqual(claimed.map(({ run }) => run.id), [end === "commit" ? "first" : "second"]);
  });
}

/** Triggers that depend on other runs, and what a second one at the same moment answers if the first is committed. */
const DEPENDENT: Record<string, (n: number) => Partial<NewRun>> = {
  "an idempotency key": (n) => ({ idempotencyKey: `once-${n}` }),
  "a key to join": (n) => ({ concurrencyKey: `key-${n}`, coalesce: "active" }),
  "a run to retry": (n) => ({ retriggerOf: { runId: `failed-${n}`, from: "failure" } }),
};

for (const [what, overrides] of Object.entries(DEPENDENT)) {
  for (const end of ["commit", "rollback"] as const) {
    test(`of two triggers with ${what} at the same moment one run is left when the first is about to ${end}`, async (fixture) => {
      const { store, begin, open, client, schema } = fixture;
      await addFailed(store, 2);

      const transaction = await begin();
      await transaction.store.enqueue([aRun({ id: "first", jobName: "a", ...overrides(1) })]);
      const trigger = store.enqueue([aRun({ id: "second", jobName: "a", ...overrides(1) })]);
      const beside = await (await open()).enqueue([aRun({ id: "other", jobName: "a", ...overrides(2) })]);
      await transaction[end]();
      const [enqueued] = await trigger;

      assert.equal(beside[0]!.disposition, "created");
      assert.equal(enqueued!.run.id, end === "commit" ? "first" : "second");
      assert.equal(await findFault(client, schema), null);
      const claimed = await claim(store, "worker", { limit: 5 });
      assert.deepEqual(claimed.map(({ run }) => run.id).sort(), [enqueued!.run.id, "other"].sort());
    });
  }
}

test("a retry completes, and another run is retried again, beside a retry that is about to complete", async (fixture) => {
  const { store, begin, client } = fixture;
  await addFailed(store, 2);
  const chain = (id: string, runId: string) =>
    store.enqueue([aRun({ id, jobName: "a", retriggerOf: { runId, from: "start" } })]);
  await chain("retry-1", "failed-1");
  await chain("retry-2", "failed-2");
  const [one, two] = await claim(store, "worker", { limit: 2 });
  const beside = await fixture.open();

  const transaction = await begin();
  await transaction.store.finish(two!.lease, COMPLETED, []);
  const ending = store.finish(one!.lease, COMPLETED, []);
  const again = beside.enqueue([
    aRun({ id: "retry-3", jobName: "a", retriggerOf: { runId: "failed-2", from: "start" } }),
  ]);
  await ending;
  await transaction.commit();

  assert.equal((await again)[0]!.disposition, "created");
  const { rows } = await client.query(
    `select id, completed_as from ${fixture.schema}.runs where id like 'failed%' order by id`,
  );
  assert.deepEqual(rows.map((row) => row.completed_as), ["retry-1", "retry-2"]);
});

test("a slot of a schedule that fires beside a run of that schedule waits for it, and is skipped", async ({ store, begin, open }) => {
  const schedule = (name: string, slot: number) => ({ name, slotAt: new Date(slot).toISOString(), slot: "{}" });
  const record = {
    jobName: "a",
    options: "{}",
    declared: null,
    pausedAt: null,
    pausedBy: null,
    nextAt: 0,
    lastSlotAt: null,
  };
  const add = (name: string) => store.setSchedule({ ...record, name, lastRunId: null, skipped: 0, error: null }, null);
  const [nightly, daily] = [(await add("nightly"))!, (await add("daily"))!];
  const fire = (by: PostgresStore, fired: ScheduleRecord) =>
    by.fireSchedule({
      schedule: fired,
      next: { nextAt: 60_000, lastSlotAt: 0, error: null },
      run: aRun({ id: fired.name, jobName: "a", schedule: schedule(fired.name, 0), idempotencyKey: fired.name }),
      skipsOverlap: true,
      skipped: 0,
    });

  const transaction = await begin();
  await transaction.store.enqueue([aRun({ id: "by hand", jobName: "a", schedule: schedule("nightly", 1) })]);
  const firing = fire(store, nightly);
  const other = await fire(await open(), daily);
  await transaction.commit();

  assert.equal(other!.run!.run.id, "daily");
  assert.equal((await firing)!.run, null);
});

test("two runs that hold one key end at the same moment, and as many others become claimable", async (fixture) => {
  const { store, begin, client, schema } = fixture;
  const flow = aFlow({ keyConcurrency: 2 });
  for (const id of ["first", "second", "third", "fourth"]) {
    await store.enqueue([aRun({ id, jobName: "a", concurrencyKey: KEY, flow })]);
  }
  const [first, second] = await claim(store, "worker", { limit: 2 });

  const transaction = await begin();
  await transaction.store.finish(first!.lease, COMPLETED, []);
  const ending = store.finish(second!.lease, COMPLETED, []);
  await pause(100);
  await transaction.commit();
  await ending;

  assert.equal(await findFault(client, schema), null);
  const claimed = await claim(store, "worker", { limit: 2 });
  assert.deepEqual(claimed.map(({ run }) => run.id), ["third", "fourth"]);
});

test("runs are claimed in the order of their triggers, whichever process has triggered them", async ({ store, open }) => {
  const stores = [store, ...await Promise.all([open(), open(), open()])];
  const ids: string[] = [];
  for (let n = 0; n < 40; n++) {
    const id = `run-${n}`;
    const concurrencyKey = n % 5 === 0 ? KEY : null;
    await stores[n % stores.length]!.enqueue([aRun({ id, jobName: "a", concurrencyKey })]);
    if (concurrencyKey === null) ids.push(id);
  }

  const claimed = await claim(store, "worker", { limit: 40 });

  const unkeyed = claimed.filter(({ lease }) => lease.concurrencyKey === null).map(({ run }) => run.id);
  assert.deepEqual(unkeyed, ids);
});

test("parallel steps of one run are recorded once each, also if one of them is repeated", async ({ store }) => {
  await store.enqueue([aRun({ id: "run", jobName: "a" })]);
  const [{ lease } = { lease: undefined }] = await claim(store, "worker");
  const names = Array.from({ length: 50 }, (_, n) => `step-${n}`);
  const save = (name: string) => store.saveStep(lease!, aStep({ name, index: names.indexOf(name) }), []);

  const saved = await Promise.all(names.slice(0, 40).map(save));
  const others = await Promise.all([...names.slice(40), "step-7", "step-45"].map(save));

  const numbers = [...saved, ...others].map(({ recordedNo }) => recordedNo);
  assert.deepEqual(numbers.slice(0, 50).toSorted((a, b) => a - b), names.map((_, n) => n + 1));
  assert.deepEqual(numbers.slice(50), [numbers[7], numbers[45]]);
  assert.deepEqual((await getSteps(store, "run")).map(({ name }) => name), names);
  const { rows } = (await store.readJournal(0, 1_000_000))!;
  assert.equal(rows.flatMap(({ facts }) => facts).filter(([, kind]) => kind === "step_completed").length, 50);
});

test("a step is refused, and nobody waits in vain, when its run is cancelled at the same moment", async (fixture) => {
  const { store, begin, client } = fixture;
  await store.enqueue([aRun({ id: "run", jobName: "a" })]);
  const [{ lease } = { lease: undefined }] = await claim(store, "worker");
  const count = "select deadlocks::int from pg_stat_database where datname = current_database()";
  const before = (await client.query(count)).rows[0].deadlocks;

  const transaction = await begin();
  await lockAll(transaction.store);
  const saved = assert.rejects(store.saveStep(lease!, aStep(), []), LeaseLostError);
  await pause(100);
  const cancelled = await transaction.store.cancel("run", "request", null);
  await transaction.commit();
  await saved;

  assert.equal(cancelled?.status, "cancelled");
  assert.equal((await client.query(count)).rows[0].deadlocks, before);
});

for (const end of ["commit", "rollback"] as const) {
  test(`runs of other keys are triggered, claimed, parked and ended beside a transaction that will ${end}`, async (fixture) => {
    const { store, begin, open, client, schema } = fixture;
    const ids = ["first", "behind first", "second", "third", "behind third"];
    const keys = ["one", "one", "two", "three", "three"];
    await store.enqueue(ids.map((id, n) => aRun({ id, jobName: "a", concurrencyKey: keys[n]! })));
    const [first] = await claim(store, "worker-1");

    const transaction = await begin();
    await transaction.store.finish(first!.lease, COMPLETED, []);
    // It is due by the end that is not committed.
    const [behind] = await claim(transaction.store, "worker-1");
    const beside = await open();
    const [second] = await claim(beside, "worker-2");
    await beside.enqueue([aRun({ id: "new", jobName: "a", concurrencyKey: "four" })]);
    await beside.finish(second!.lease, COMPLETED, []);
    const claimed = await claim(beside, "worker-2", { limit: 2 });
    await beside.pause(claimed[0]!.lease, {
      pauses: [aPause({ kind: "sleep" })],
      retryAt: null,
      park: true,
      reports: [],
    });
    await transaction[end]();

    assert.deepEqual([behind!.run.id, second!.run.id], ["behind first", "second"]);
    assert.deepEqual(claimed.map(({ run }) => run.id), ["third", "new"]);
    assert.equal(await findFault(client, schema), null);
    const left = await claim(store, "worker-3", { limit: 5 });
    assert.deepEqual(left.map(({ run }) => run.id), ["behind third"]);
  });
}

test("a run is triggered and another ends beside a claim of the same key, and the key goes on", async (fixture) => {
  const { store, begin, client, schema } = fixture;
  await store.enqueue([aRun({ id: "first", jobName: "a", concurrencyKey: KEY })]);

  const transaction = await begin();
  const [first] = await claim(transaction.store, "worker-1");
  const trigger = store.enqueue([aRun({ id: "second", jobName: "a", concurrencyKey: KEY })]);
  const meanwhile = await claim(await fixture.open(), "worker-2");
  await pause(100);
  await transaction.commit();
  await trigger;

  assert.deepEqual(meanwhile, []);
  assert.equal(await findFault(client, schema), null);
  assert.deepEqual(await claim(store, "worker-2"), []);
  await store.finish(first!.lease, COMPLETED, []);
  assert.deepEqual((await claim(store, "worker-2")).map(({ run }) => run.id), ["second"]);
});

test("a claim beside another one that resumes runs whose time has come takes what is left", async (fixture) => {
  const { store, begin, client, schema } = fixture;
  await store.enqueue([aRun({ id: "first", jobName: "a" }), aRun({ id: "second", jobName: "a" })]);
  for (const { lease } of await claim(store, "worker", { limit: 2 })) {
    const sleep = aPause({ kind: "sleep", deadline: { afterMs: 1 } });
    await store.pause(lease, { pauses: [sleep], retryAt: null, park: true, reports: [] });
  }
  await pause(20);

  const transaction = await begin();
  const before = await claim(transaction.store, "worker-1");
  const meanwhile = await claim(store, "worker-2", { limit: 2 });
  await transaction.commit();
  const after = await claim(store, "worker-2", { limit: 2 });

  assert.deepEqual(before.map(({ run, pauses }) => [run.id, pauses[0]!.resolution?.outcome]), [["first", "timeout"]]);
  assert.deepEqual(meanwhile, []);
  assert.deepEqual(after.map(({ run, pauses }) => [run.id, pauses[0]!.resolution?.outcome]), [["second", "timeout"]]);
  assert.equal(await findFault(client, schema), null);
});

test("a run with a fairness key comes to a key while its holder ends, and gets its turn", async (fixture) => {
  const { store, begin, client, schema } = fixture;
  await store.enqueue([aRun({ id: "holder", jobName: "a", concurrencyKey: KEY })]);
  const [holder] = await claim(store, "worker");

  const transaction = await begin();
  const flow = aFlow({ fairnessKey: "tenant" });
  await transaction.store.enqueue([aRun({ id: "fair", jobName: "a", concurrencyKey: KEY, flow })]);
  const ending = store.finish(holder!.lease, COMPLETED, []);
  await pause(100);
  await transaction.commit();
  await ending;

  assert.equal(await findFault(client, schema), null);
  assert.deepEqual((await claim(store, "worker")).map(({ run }) => run.id), ["fair"]);
});

test("a purge locks runs in the order in which log lines lock them", async ({ store, begin, client, schema }) => {
  await store.enqueue(["first", "second"].map((id) => aRun({ id, jobName: "a" })));
  const claims = await claim(store, "worker", { limit: 2 });
  // The second run ends first, and is deleted first.
  for (const { lease } of claims.toReversed()) await store.finish(lease, COMPLETED, []);
  await client.query(`update ${schema}.runs set completed_at = completed_at + seq`);
  await client.query(`update ${schema}.runs set completed_at = 1 where id = 'second'`);
  const count = "select deadlocks::int from pg_stat_database where datname = current_database()";
  const before = (await client.query(count)).rows[0].deadlocks;
  const lines = (
    runId: string,
  ) => [{ runId, id: runId, stepName: null, level: "info" as const, message: "", data: null, writtenAt: 1 }];

  const transaction = await begin();
  await transaction.store.appendLogs(lines("first"));
  const purge = store.purge({ completed: 0 }, 10);
  await pause(200);
  await transaction.store.appendLogs(lines("second"));
  await transaction.commit();
  const purged = await purge;

  assert.deepEqual(purged.map(({ id }) => id), ["second", "first"]);
  assert.equal((await client.query(count)).rows[0].deadlocks, before);
});

test("claims at the same moment take what the others leave, without another try", async ({ store, begin }) => {
  await store.enqueue(Array.from({ length: 9 }, (_, n) => aRun({ id: `run-${n}`, jobName: "a" })));

  const transaction = await begin();
  const before = await claim(transaction.store, "worker-1", { limit: 3 });
  const beside = await claim(store, "worker-2", { limit: 3 });
  await transaction.commit();

  assert.deepEqual(before.map(({ run }) => run.id), ["run-0", "run-1", "run-2"]);
  assert.deepEqual(beside.map(({ run }) => run.id), ["run-3", "run-4", "run-5"]);
});

test("a claim that leaves out runs which others have locked says that there is more", async ({ store, client, schema }) => {
  await store.enqueue(["first", "second", "third"].map((id) => aRun({ id, jobName: "a" })));

  await client.query("begin");
  await client.query(`select from ${schema}.runs where id in ('first', 'second') for no key update`);
  const request = aClaimRequest({ workerId: "worker", jobs: JOBS, limit: 2, leaseMs: 60_000 });
  const beside = await store.claim({ ...request, claimId: "beside" });
  await client.query("rollback");
  const after = await store.claim({ ...request, claimId: "after" });

  assert.deepEqual(beside.claims.map(({ run }) => run.id), ["third"]);
  assert.equal(beside.hasMore, true);
  assert.deepEqual(after.claims.map(({ run }) => run.id), ["first", "second"]);
});

test("a claim that waits while a run is held and offered to other code does not take it", async ({ store, begin }) => {
  await store.enqueue([aRun({ id: "first", jobName: "a" }), aRun({ id: "second", jobName: "a" })]);

  const transaction = await begin();
  await lockAll(transaction.store);
  const claiming = claim(store, "worker-1", { limit: 2, jobs: [aKnownJob({ name: "a" })] });
  await pause(100);
  const claimed = await claim(transaction.store, "worker-2", { limit: 2, jobs: [aKnownJob({ name: "a" })] });
  for (const { lease } of claimed) await transaction.store.hold(lease, aHold(), []);
  const offering = aClaimRequest({
    workerId: "worker-3",
    jobs: [aKnownJob({ name: "a", print: "print-2" })],
    limit: 1,
    triesHeld: true,
    leaseMs: 60_000,
  });
  const offered = await transaction.store.claim(offering); // offers both, and takes one
  await transaction.commit();

  assert.deepEqual(offered.claims.map(({ run }) => run.id), ["first"]);
  assert.deepEqual(await claiming, []);
  const { claims } = await store.claim({ ...offering, claimId: "another" });
  assert.deepEqual(claims.map(({ run, isResumed }) => [run.id, isResumed]), [["second", true]]);
});

/** Adds runs that have failed: `failed-1`, `failed-2`, and so on. */
async function addFailed(store: PostgresStore, count: number): Promise<void> {
  for (let n = 1; n <= count; n++) {
    await store.enqueue([aRun({ id: `failed-${n}`, jobName: "a" })]);
    const [failed] = await claim(store, "worker");
    await store.finish(failed!.lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
