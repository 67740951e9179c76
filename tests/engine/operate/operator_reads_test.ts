import assert from "node:assert/strict";
import { z } from "zod";
import { ValidationError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import { aRun } from "../../support/fixtures.ts";
import { anything, forEachStore, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aJob } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";

interface Asked {
  timeout?: number;
}

const approval = aJob(
  (step, { timeout }: Asked) => step.wait("review", timeout === undefined ? {} : { timeout }),
  "approval",
);
const other = aJob((step) => step.wait("answer"), "other");
const failing = aJob((_step, message: string) => Promise.reject(new Error(message)), "import-csv");

function anEngine({ store, host }: StoreTest) {
  return createEngine({ store, host, jobs: { approval, other, failing } });
}

forEachStore("getOpenWaits() lists the open waits of all runs, the soonest deadline first", async (context) => {
  await using engine = anEngine(context);
  const never = await engine.trigger(approval, {}, { labels: { org: "acme" } });
  const late = await engine.trigger(approval, { timeout: 9_000 });
  const soon = await engine.trigger(approval, { timeout: 5_000 });
  const signalled = await engine.trigger(approval, {});
  const cancelled = await engine.trigger(approval, {});
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(signalled.id);
  await engine.signal(wait!.id, { signalId: "s", payload: 1 });
  await engine.cancel(cancelled.id);

  const page = await engine.getOpenWaits();

  assert.deepEqual(page.waits.map(({ runId }) => runId), [soon.id, late.id, never.id]);
  const { jobName, labels, name, status, deadlineAt, payloadSchema } = page.waits.at(-1)!;
  assert.deepEqual([jobName, { ...labels }, name, status, deadlineAt, payloadSchema], [
    "approval",
    { org: "acme" },
    "review",
    "pending",
    null,
    null,
  ]);
  assert.deepEqual([page.total, page.next], [3, null]);
});

forEachStore("getOpenWaits() is read in pages, and by job and labels", async (context) => {
  await using engine = anEngine(context);
  for (let count = 0; count < 5; count++) {
    await engine.trigger(approval, { timeout: 5_000 }, { labels: { org: count % 2 === 0 ? "acme" : "b" } });
  }
  await engine.trigger(other, null);
  await engine.runUntilIdle();

  const first = await engine.getOpenWaits({ limit: 4 });
  const second = await engine.getOpenWaits({ limit: 4, cursor: first.next! });
  const ofJob = await engine.getOpenWaits({ jobName: "other" });
  const ofOrg = await engine.getOpenWaits({ labels: { org: "acme" }, limit: 2 });
  const ofOrgNext = await engine.getOpenWaits({ labels: { org: "acme" }, limit: 2, cursor: ofOrg.next! });

  assert.deepEqual([first.waits.length, first.total, second.waits.length, second.next], [4, 6, 2, null]);
  const ids = [...first.waits, ...second.waits].map(({ id }) => id);
  assert.equal(new Set(ids).size, 6);
  assert.deepEqual([ofJob.waits.map(({ name }) => name), ofJob.total], [["answer"], 1]);
  assert.deepEqual([ofOrg.waits.length, ofOrgNext.waits.length, ofOrgNext.next], [2, 1, null]);
});

forEachStore("getOpenWaits() shows the schema of the payload that a job asks for", async (context) => {
  const { store, host } = context;
  const job = defineJob({
    name: "approval",
    input: anything,
    run: (step) => step.wait("review", { schema: z.object({ approved: z.boolean() }) }),
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  await engine.runUntilIdle();

  const { waits: [wait] } = await engine.getOpenWaits();

  assert.deepEqual(wait!.payloadSchema, {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: { approved: { type: "boolean" } },
    required: ["approved"],
  });
});

forEachStore("getOpenWaits() refuses a query that is not valid", async (context) => {
  await using engine = anEngine(context);

  for (const query of [{ limit: 0 }, { limit: 1_001 }, { cursor: "x" }, { cursor: "1" }, { jobName: "" }]) {
    await assert.rejects(engine.getOpenWaits(query), ValidationError, JSON.stringify(query));
  }
});

forEachStore("getFailures() groups failed runs by job, step and error, without numbers and ids", async (context) => {
  const { host } = context;
  await using engine = anEngine(context);
  const ids = [];
  for (const port of [5432, 5433, 5434, 5435]) {
    ids.push((await engine.trigger(failing, `ConnectionRefused: 10.0.3.${port % 10}:${port}`)).id);
    await engine.runUntilIdle();
    host.advance(1_000);
  }
  const other = await engine.trigger(failing, "no run 0193542e-9f14-7abc-8def-0123456789ab");
  await engine.runUntilIdle();

  const { groups, examined } = await engine.getFailures();
  const since = await engine.getFailures({ since: new Date(FAKE_START + 4_000).toISOString(), jobName: "import-csv" });

  assert.equal(examined, 5);
  assert.deepEqual(groups, [
    {
      jobName: "import-csv",
      stepName: null,
      error: "ConnectionRefused: #:#",
      count: 4,
      firstAt: new Date(FAKE_START).toISOString(),
      lastAt: new Date(FAKE_START + 3_000).toISOString(),
      runIds: ids.toReversed().slice(0, 3),
    },
    {
      jobName: "import-csv",
      stepName: null,
      error: "no run …",
      count: 1,
      firstAt: new Date(FAKE_START + 4_000).toISOString(),
      lastAt: new Date(FAKE_START + 4_000).toISOString(),
      runIds: [other.id],
    },
  ]);
  assert.deepEqual(since, { groups: groups.slice(1), examined: 1 });
});

forEachStore("findRuns() finds runs by ids, keys and labels", async (context) => {
  const { store } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger(approval, {});
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await store.enqueue([
    aRun({ id: "0193542e-0000-7000-8000-00000000aaaa", idempotencyKey: "order-1", labels: { org: "acme" } }),
    aRun({ id: "01935420-0000-7000-8000-00000000bbbb", concurrencyKey: "import:acme", labels: { org: "acme" } }),
    aRun({ id: "01935420-0000-7000-8000-00000000cccc", concurrencyKey: "import:acme" }),
  ]);
  const find = async (query: string) =>
    (await engine.findRuns(query)).map(({ run, by }) => `${by} ${run.id.slice(-4)}`);

  const found = {
    whole: await find("0193542e-0000-7000-8000-00000000aaaa"),
    start: await find("01935420"),
    end: await find("cccc"),
    key: await find("order-1"),
    concurrency: await find("import:acme"),
    label: await find("org=acme"),
    nothing: await find("org="),
    wait: (await engine.findRuns(wait!.id)).map(({ run, by }) => [by, run.id]),
  };

  assert.deepEqual(found, {
    whole: ["id aaaa"],
    start: ["id bbbb", "id cccc"],
    end: ["id cccc"],
    key: ["idempotencyKey aaaa"],
    concurrency: ["concurrencyKey bbbb", "concurrencyKey cccc"],
    label: ["label bbbb", "label aaaa"],
    nothing: [],
    wait: [["waitId", id]],
  });
});

forEachStore("findRuns() finds 20 runs at most, and refuses what is no text", async (context) => {
  await using engine = anEngine(context);
  await context.store.enqueue(Array.from({ length: 25 }, () => aRun({ labels: { org: "acme" } })));

  assert.equal((await engine.findRuns("org=acme")).length, 20);
  for (const query of ["", "x".repeat(321), "\0", "\ud800"]) {
    await assert.rejects(engine.findRuns(query), ValidationError, JSON.stringify(query));
  }
});

forEachStore("getFailures() leaves out failed runs of which a retry has completed", async (context) => {
  let isMended = false;
  const job = aJob(() => {
    if (!isMended) throw new Error("the disk is full");
  }, "sometimes");
  await using engine = createEngine({ ...context, jobs: { job } });
  const ids = [];
  for (let i = 0; i < 2; i++) ids.push((await engine.trigger(job, null)).id);
  await engine.runUntilIdle();
  const before = await engine.getFailures();
  isMended = true;
  const { id: retry } = await engine.retrigger(ids[0]!);
  await engine.runUntilIdle();

  const { groups, examined } = await engine.getFailures();

  assert.deepEqual([before.examined, examined, groups.map(({ runIds }) => runIds)], [2, 1, [[ids[1]]]]);
  assert.equal((await engine.getRun(ids[0]!))?.completedAs, retry);
  assert.equal((await engine.getRuns({ status: "failed", retried: false })).total, 1);
});
