import assert from "node:assert/strict";
import { ConflictError } from "../../../model/error.ts";
import { getLogs, getRun, getRuns, getSteps, getWaits } from "../../../store/reads.ts";
import { add, addIds, claimedIds, claimOne, prepare, startRun } from "../arrange.ts";
import { aFailure, aLine, aPause, aProgress, aStep } from "../fixtures.ts";
import { newCases } from "../case.ts";

const { cases, test } = newCases();

/** That a `Store` keeps and compares strings as they are, which not every column of a database does. */
export const exactStringCases = cases;

/** Each pair is equal to some collation, to `LIKE`, to a column that is too short, or after a normalization. */
const SIMILAR = [
  ...["order", "Order", "order ", "o_der", "o%"],
  ...["caf\u00e9", "cafe\u0301", "\u{1f600}", "\u{1f601}"],
  ...["a", "b"].map((end) => `${"x".repeat(254)}${end}`),
];
const VALUE = '{"b":1,"a":{"d":"\u{1f600}\\u0000","c":2}}';
const same = (value: unknown) => JSON.stringify(value) === VALUE;

test("enqueue() tells similar idempotency keys apart, and searchRuns() finds each alone", async ({ store }) => {
  const ids = await addIds(store, ...SIMILAR.map((idempotencyKey) => ({ idempotencyKey })));

  const found = await Promise.all(SIMILAR.map((key) => store.searchRuns(key, 10)));
  const again = await addIds(store, ...SIMILAR.map((idempotencyKey) => ({ idempotencyKey })));

  assert.equal(new Set(ids).size, SIMILAR.length);
  assert.deepEqual(found.map((hits) => hits.map(({ runId }) => runId)), ids.map((id) => [id]));
  assert.deepEqual(again, ids);
});

test("claim() tells similar concurrency keys apart", async ({ store }) => {
  const ids = await addIds(store, ...SIMILAR.map((concurrencyKey) => ({ concurrencyKey })));

  assert.deepEqual(await claimedIds(store, { limit: 20 }), ids);
});

test("getRuns() and searchRuns() tell similar labels apart", async ({ store }) => {
  const all = [...SIMILAR.map((order) => ({ order })), { Order: "order" }];
  const ids = await addIds(store, ...all.map((labels) => ({ labels })));

  for (const [at, labels] of all.entries()) {
    const { runs } = await getRuns(store, { labels });
    const hits = await store.searchRuns(Object.entries(labels)[0]!.join("="), 10);

    assert.deepEqual(runs.map((run) => [run.id, run.labels]), [[ids[at], labels]]);
    assert.deepEqual(hits.map(({ runId }) => runId), [ids[at]]);
  }
});

test("saveStep() tells similar names apart", async ({ store }) => {
  const { lease } = await startRun(store);

  for (const [index, name] of SIMILAR.entries()) await store.saveStep(lease, aStep({ name, index }), []);

  assert.deepEqual((await getSteps(store, lease.runId)).map(({ name }) => name), SIMILAR);
});

test("signal() tells similar ids apart", async ({ store }) => {
  const { lease } = await startRun(store);
  const pause = aPause();
  await prepare(store, lease, pause);
  await store.signal(pause.id, { signalId: "order", payload: null });

  for (const signalId of ["Order", "order ", "o_der"]) {
    await assert.rejects(store.signal(pause.id, { signalId, payload: null }), ConflictError);
  }
});

test("values keep the order of their keys, and each character", async ({ store }) => {
  const { run } = await add(store, { input: VALUE, payload: VALUE });
  const first = await claimOne(store);
  const pause = aPause({ metadata: VALUE });
  await prepare(store, first.lease, pause);
  await store.signal(pause.id, { signalId: "s", payload: JSON.parse(VALUE) });
  const step = aStep({ result: { status: "completed", output: VALUE } });
  await store.saveStep(first.lease, step, [aProgress({ current: 1, message: "\u{1f600}" })]);
  await store.release(first.lease, []);

  const replay = await claimOne(store);
  await store.finish(replay.lease, { status: "completed", output: VALUE, durationMs: 0 }, []);
  await store.appendLogs([aLine(run.id, { message: "\u{1f600}", data: VALUE })]);

  const { input, output, progress } = (await getRun(store, run.id))!;
  const [wait] = await getWaits(store, run.id);
  const [line] = await getLogs(store, run.id);
  const { result } = replay.steps[0]!;
  const kept = [input, output, wait!.metadata, wait!.payload, line!.data, JSON.parse(Object(result).output)];
  assert.deepEqual(kept.map(same), kept.map(() => true));
  assert.deepEqual([progress?.message, line!.message], ["\u{1f600}", "\u{1f600}"]);
});

test("finish() keeps each character of a failure", async ({ store }) => {
  const { lease } = await startRun(store);
  const failure = aFailure({ message: "\u{1f600} o_der " });

  await store.finish(lease, { status: "failed", failure, failedStepName: "Order " }, []);

  const run = (await getRun(store, lease.runId))!;
  assert.deepEqual([run.failure, run.failedStepName], [failure, "Order "]);
});
