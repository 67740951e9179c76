import assert from "node:assert/strict";
import type { NewRun } from "../../src/store/new_run.ts";
import { PostgresStore } from "../../src/stores/postgres/postgres_store.ts";
import { concurrencyCases } from "../../src/testing/contract/flow/concurrency.ts";
import { deadlineCases } from "../../src/testing/contract/flow/deadlines.ts";
import { delayCases } from "../../src/testing/contract/flow/delays.ts";
import { fairnessCases } from "../../src/testing/contract/flow/fairness.ts";
import { jobPauseCases } from "../../src/testing/contract/flow/job_pauses.ts";
import { limitCases } from "../../src/testing/contract/flow/limits.ts";
import { priorityCases } from "../../src/testing/contract/flow/priorities.ts";
import { rateCases } from "../../src/testing/contract/flow/rates.ts";
import { scheduleCases } from "../../src/testing/contract/flow/schedules.ts";
import { addressCases } from "../../src/testing/contract/records/messages/addresses.ts";
import { inboxCases } from "../../src/testing/contract/records/messages/inbox.ts";
import { receiveCases } from "../../src/testing/contract/records/messages/receive.ts";
import { sendCases } from "../../src/testing/contract/records/messages/send.ts";
import { streamCases } from "../../src/testing/contract/records/streams.ts";
import { transactionCases } from "../../src/testing/contract/records/transactions.ts";
import { endCases } from "../../src/testing/contract/runs/ends.ts";
import {
  add,
  addCompleted,
  addIds,
  aRetry,
  claimOne,
  complete,
  park,
  prepare,
  startRun,
} from "../../src/testing/contract/arrange.ts";
import { addHeld, offering } from "../../src/testing/contract/claims/holds/arrange_holds.ts";
import { A_JOB, aClaimRequest, aHold, aKnownJob, aLine, aPause, aStep } from "../../src/testing/contract/fixtures.ts";
import {
  aChild,
  addFailedParent,
  claimAll,
  end,
  fail,
  fromFailure,
  onChildren,
  PARENT,
  startParent,
} from "../../src/testing/contract/records/children/arrange_children.ts";
import { FakeHost } from "../../src/testing/fake_host.ts";
import { emptyServer } from "../simulation/pglite.ts";
import { SentKeys } from "./sent_keys.ts";

/** The cases of the contract whose rules are written in PL/pgSQL for the most part. */
const CASES = [
  ...concurrencyCases,
  ...deadlineCases,
  ...delayCases,
  ...fairnessCases,
  ...jobPauseCases,
  ...limitCases,
  ...priorityCases,
  ...rateCases,
  ...scheduleCases,
  ...addressCases,
  ...inboxCases,
  ...receiveCases,
  ...sendCases,
  ...streamCases,
  ...endCases,
  ...transactionCases,
];

// What is claimed is read by another call.
const LARGE = JSON.stringify("x".repeat(250_000));

const sent = new SentKeys();

/** A store without runs, of the server of this thread. */
async function openStore(host: FakeHost): Promise<PostgresStore> {
  const { client, schema } = await emptyServer();
  return PostgresStore.from(sent.watch(client), { schema, durability: "relaxed", host });
}

// PGlite starts timers of its own, of up to 10 seconds, which would be taken for leaks.
const options = { sanitizeOps: false, sanitizeResources: false };

Deno.test(
  "a PostgresStore that needs no server keeps the rules of flow, messages, streams and ends, and executes each function",
  options,
  async (t) => {
    const { client, schema } = await emptyServer();
    await client.exec("set track_functions = 'all'; select pg_stat_reset();");
    for (const { title, body } of CASES) {
      await t.step(title, async () => {
        const host = new FakeHost();
        await using store = await openStore(host);
        await store.migrate();
        await body({ store, host });
      });
    }
    for (const [title, use] of Object.entries({ useChildren, useHolds, useRecords, useOperation })) {
      await t.step(title, async () => {
        const host = new FakeHost();
        await using store = await openStore(host);
        await use(store, host);
      });
    }

    // A claim calls these if it has read many dead entries.
    await client.exec(`select "${schema}".may_note_starts_v1('{a}', 1), "${schema}".note_starts_v1('{a}', 1)`);
    // What is in PL/pgSQL is checked when it is executed, and not before.
    const { rows } = await client.query<{ name: string }>(`
    select p.proname as name from pg_proc p join pg_language l on l.oid = p.prolang
    left join pg_stat_user_functions f on f.funcid = p.oid
    where p.pronamespace = '${schema}'::regnamespace and l.lanname = 'plpgsql' and f.calls is null order by 1`);
    assert.deepEqual(rows, []);
    // A key that nobody sends is NULL, and no error.
    assert.deepEqual(sent.findUnsent(), []);
  },
);

Deno.test(
  "a PostgresStore that needs no server ends a run that is no retry by the same statement as all",
  options,
  async () => {
    const { client, schema } = await emptyServer();
    await using store = PostgresStore.from(client, { schema, durability: "relaxed" });
    await store.migrate();
    const { id } = await addCompleted(store);
    const callsOf = async (run: Partial<NewRun>) => {
      await add(store, run);
      const { lease } = await claimOne(store);
      await client.exec("set track_functions = 'all'; select pg_stat_force_next_flush()");
      await client.exec("select pg_stat_reset()");
      await complete(store, lease);
      await client.exec("select pg_stat_force_next_flush()");
      const { rows } = await client.query<{ name: string }>(`select funcname as name from pg_stat_user_functions
      where schemaname = '${schema}' and calls > 0 and funcname in ('finish_v1', 'finish_runs_v1', 'retried_runs_v1') order by 1`);
      return rows.map(({ name }) => name);
    };

    const plain = await callsOf({});
    const retry = await callsOf({ retriggerOf: { runId: id, from: "start" } });

    assert.deepEqual([plain, retry], [["finish_runs_v1"], ["finish_runs_v1", "finish_v1", "retried_runs_v1"]]);
  },
);

/** Children that are retried, taken over and cancelled. */
async function useChildren(store: PostgresStore): Promise<void> {
  const { lease } = await startParent(store);
  const { pauses: [pause] } = await park(store, lease, onChildren([aChild()]));
  for (const claim of (await claimAll(store)).claims) await end(store, claim, '"done"');
  await store.readChildren(pause!.id, 0, Infinity);
  await fail(store, await claimOne(store, { jobNames: [PARENT] }));
  await add(store, { jobName: PARENT, ...fromFailure(lease) }); // its pause is copied
  const { run: completed, lease: last } = await claimOne(store, { jobNames: [PARENT] });
  await complete(store, last);
  const [retried] = await store.readRuns([lease.runId], Infinity);
  assert.equal(retried!.completedAs, completed.id);
  const old = await addFailedParent(store);
  const { run } = await add(store, { jobName: PARENT, ...fromFailure(old) });
  const retry = await claimOne(store, { jobNames: [PARENT] });
  const { created } = await park(store, retry.lease, onChildren(old.children.map(() => aChild())));
  await store.cancel(run.id, "request-1", null);
  await store.getBlockers(created[0]!.run.id);

  const { cancelled } = await claimAll(store);

  assert.ok(cancelled.length > 0);
}

/** Runs that are held, offered and resumed. */
async function useHolds(store: PostgresStore, host: FakeHost): Promise<void> {
  const runId = await addHeld(store);
  const hold = await store.getHold(runId);
  const { ids } = await store.findHeld({ after: 0, limit: 10, code: hold!.code, jobNames: [A_JOB] });
  host.advance(1_000);
  const stranded = await store.getStrandedJobs();
  await store.claim(offering("print-2", { limit: 0 }));
  const resumed = await store.resumeHeld(runId, false);
  await store.hold((await claimOne(store)).lease, aHold(), []);

  const { claims } = await store.claim(offering("print-2"));

  assert.deepEqual([hold!.code, ids, stranded.length, resumed!.id, claims.length], ["diverged", [runId], 1, runId, 1]);
}

/** What a run records, and how it is read. */
async function useRecords(store: PostgresStore): Promise<void> {
  const { run: { id: runId }, lease } = await startRun(store, { labels: { tenant: "a" }, payload: LARGE });
  const { seq } = (await store.getRunState(runId))!;
  await store.saveInput(lease, "schema-2", "{}");
  await store.getInput(runId, "schema-2");
  const { pauses: [pause] } = await prepare(store, lease, aPause({ payloadSchema: "{}", metadata: "{}" }));
  await store.saveStep(lease, aStep(), []);
  await store.appendLogs([aLine(runId)]);
  await store.getLostLeases([lease]);
  await complete(store, { ...lease, recorded: 1 });
  const logs = await store.readLogs(runId, null, Infinity);
  await store.readValue({ of: "wait", waitId: pause!.id, value: "metadata" }, 0);
  const value = await store.readValue({ of: "step", runId, stepName: "read", value: "output" }, 0);
  await store.readFactValues([{ run: seq, of: "step", stepName: "read" }], Infinity);
  await store.findCursor(await store.findCursor(null));
  await store.findLastFact(seq, 0, null);
  await store.getVersion();
  await store.readJournal(0, Infinity, 0);
  await store.findRuns({ parentRunId: runId });
  const found = await store.findRuns({ labels: { tenant: "a" } });

  const purged = await store.purge({ completed: 0 }, 10);

  assert.deepEqual([logs!.items.length, value!.next, found.total, purged.length], [1, null, 1, 1]);
}

/** What operators read. */
async function useOperation(store: PostgresStore, host: FakeHost): Promise<void> {
  const jobs = [aKnownJob({ concurrency: 5 })];
  const { lease } = await startRun(store, { concurrencyKey: "a" }, { jobs, leaseMs: 10 });
  await store.saveStep(lease, aRetry(0), []);
  const [runId] = await addIds(store, { concurrencyKey: "a" }, {});
  const blockers = await store.getBlockers(runId!);
  await store.getTimeline(lease.runId, { steps: 0, pauses: 0, interruptions: 0 }, 10);
  const failures = await store.getFailures(lease.runId);
  await store.getOpenWaits(null, 10, [lease.runId]);
  const hits = await store.searchRuns(runId!, 10);
  await store.getWorkers();
  await store.getJobs([]);
  await store.addStats([]);
  await store.readStats({ span: 60_000, from: 0, limit: 10, jobName: A_JOB });
  await store.getWarnings();
  await store.noteStopping("worker-a");
  for (let crashes = 0; crashes < 2; crashes++) {
    host.advance(10);
    await store.claim(aClaimRequest({ jobs, leaseMs: 10 }));
  }
  host.advance(1_000);
  const { aloneSince } = await store.claim(aClaimRequest({ jobs, leaseMs: 10, workerId: "worker-b" }));

  assert.deepEqual([blockers !== null, failures!.steps.length, hits.length], [true, 1, 1]);
  assert.notEqual(aloneSince, null);
}
