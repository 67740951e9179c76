import assert from "node:assert/strict";
import { StoreError } from "../../../../src/model/error.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { addCompleted, complete, park, startRun } from "../../../../src/testing/contract/arrange.ts";
import { until } from "../../../processes/deadline.ts";
import { aClaimRequest, aPause, aRun, aStep } from "../../../support/fixtures.ts";
import { hasServer, type Pair, startPair } from "./standby.ts";

// The commits of these servers wait for a standby, which is cut off. When the session of a commit that waits is ended, this
// server has what was committed, and shows it, and the standby lacks it.

// None expires during the test.
const LEASE_MS = 600_000;

type Call = () => Promise<unknown>;

/** Arranges a call of each kind that has nothing to write when it is repeated. Each has runs of its own. */
const CALLS: Record<string, (store: PostgresStore) => Call | Promise<Call>> = {
  "a trigger": (store) => {
    const run = aRun();
    return () => store.enqueue([run]);
  },
  // Another run each time: a client that repeats its request.
  "a trigger with an idempotency key": (store) => () => store.enqueue([aRun({ idempotencyKey: "key" })]),
  "a claim": async (store) => {
    await store.enqueue([aRun({ jobName: "claimed" })]);
    const request = aClaimRequest({ jobNames: ["claimed"], limit: 1 });
    return () => store.claim(request);
  },
  "a step": async (store) => {
    const { lease } = await startRun(store, { jobName: "executed" }, { leaseMs: LEASE_MS });
    return () => store.saveStep(lease, aStep(), []);
  },
  "a pause": async (store) => {
    const { lease } = await startRun(store, { jobName: "paused" }, { leaseMs: LEASE_MS });
    const pause = aPause();
    return () => park(store, lease, pause);
  },
  "a signal": async (store) => {
    const { lease } = await startRun(store, { jobName: "signalled" }, { leaseMs: LEASE_MS });
    const pause = aPause();
    await park(store, lease, pause);
    return () => store.signal(pause.id, { signalId: "s1", payload: null });
  },
  "the end of a run": async (store) => {
    const { lease } = await startRun(store, { jobName: "ended" }, { leaseMs: LEASE_MS });
    return () => complete(store, lease);
  },
  "a release": async (store) => {
    const { lease } = await startRun(store, { jobName: "released" }, { leaseMs: LEASE_MS });
    return () => store.release(lease, []);
  },
  "a cancellation": async (store) => {
    const [added] = await store.enqueue([aRun({ jobName: "cancelled" })]);
    return () => store.cancel(added!.run.id, "request", null);
  },
  "a deletion": async (store) => {
    const { id } = await addCompleted(store, { jobName: "deleted" });
    return () => store.delete(id);
  },
  "the deletion of a schedule": async (store) => {
    await store.setSchedule(SCHEDULE, null);
    return () => store.deleteSchedule(SCHEDULE.name);
  },
};

const SCHEDULE = {
  name: "nightly",
  jobName: "import-csv",
  options: "{}",
  declared: null,
  pausedAt: null,
  pausedBy: null,
  nextAt: null,
  lastSlotAt: null,
  lastRunId: null,
  skipped: 0,
  error: null,
};

/**
 * Calls, and waits for the answer, or until the commit waits for the standby: then it stops that, and expects that the
 * call says that its outcome is not known.
 */
async function callUntilWaiting(pair: Pair, call: Call, stop = "pg_terminate_backend"): Promise<"answered" | "waited"> {
  let settled = false;
  const outcome = call().then(() => "answered" as const, (error: unknown) => error).finally(() => settled = true);
  await until(async () => settled || (await readWaiting(pair)).length > 0, "the call answers, or its commit waits");
  if (!settled) await pair.ask(`select ${stop}(pid) from pg_stat_activity where wait_event = 'SyncRep'`);
  const found = await outcome;
  if (found === "answered") return found;
  assert.ok(found instanceof StoreError && found.code === "unavailable" && found.outcomeUnknown, String(found));
  await until(async () => (await readWaiting(pair)).length === 0, "no commit waits");
  return "waited";
}

function readWaiting(pair: Pair): Promise<unknown[]> {
  return pair.ask("select pid from pg_stat_activity where wait_event = 'SyncRep'");
}

Deno.test({
  name: "a call whose commit was not confirmed by a synchronous standby is not answered when it is repeated",
  ignore: !hasServer,
  async fn(t) {
    await using pair = await startPair();
    await using store = await PostgresStore.open(pair.url, { listenUrl: null });
    await store.migrate();
    const calls: [string, Call][] = [];
    for (const [name, arrange] of Object.entries(CALLS)) calls.push([name, await arrange(store)]);
    await pair.cut();
    await pair.waitForStandby("*");
    await until(
      async () => await callUntilWaiting(pair, () => store.enqueue([aRun()])) === "waited",
      "commits wait for the standby",
    );

    for (const [name, call] of calls) {
      await t.step(name, async () => {
        assert.equal(await callUntilWaiting(pair, call), "waited");

        assert.equal(await callUntilWaiting(pair, call), "waited"); // it finds what the first one has committed
        assert.equal(await callUntilWaiting(pair, call), "waited");
      });
    }
    await t.step("a commit whose wait is cancelled", async () => {
      const run = aRun();
      assert.equal(await callUntilWaiting(pair, () => store.enqueue([run]), "pg_cancel_backend"), "waited");
    });

    await pair.waitForStandby("");
    for (const [name, call] of calls) {
      await t.step(`${name} is answered when commits wait no more`, async () => {
        await call();
      });
    }
  },
});
