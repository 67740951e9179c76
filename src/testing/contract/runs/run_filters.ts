import assert from "node:assert/strict";
import { isoTime } from "../../../values/iso_time.ts";
import type { FailureKind } from "../../../model/failure.ts";
import type { RunFilter } from "../../../model/run.ts";
import type { Store } from "../../../store/store.ts";
import { FAKE_START, type FakeHost } from "../../fake_host.ts";
import { aFailure, aFlow } from "../fixtures.ts";
import { add, addCompleted, claimOne, startRun } from "../arrange.ts";
import { addHeld, offering } from "../claims/holds/arrange_holds.ts";
import { newCases } from "../case.ts";
import { getRun, getRuns } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What `Store.findRuns()` promises of filters by time, by failure, by hold and by parent. */
export const runFilterCases = cases;

const KINDS: FailureKind[] = ["error", "timeout", "expired", "abandoned"];

test("getRuns() finds the runs that failed for a reason", async ({ store }) => {
  await addCompleted(store);
  const ids = new Map<FailureKind, string>();
  for (const kind of KINDS) ids.set(kind, await fail(store, kind));
  await add(store);

  for (const kind of KINDS) assert.deepEqual(await find(store, { failureKind: kind }), [ids.get(kind)], kind);
});

timed("getRuns() finds the runs that ended from an instant on, and until another", async ({ store, host }) => {
  const [, second, third] = await endOneASecond(store, host);
  await add(store);

  assert.deepEqual(await find(store, { completedAfter: isoTime(FAKE_START + 1_000) }), [third, second]);
  assert.deepEqual(
    await find(store, { completedAfter: isoTime(FAKE_START + 1_000), completedBefore: isoTime(FAKE_START + 2_000) }),
    [second],
  );
});

timed("a run has not ended before it was triggered, also if the clock was set back", async ({ store, host }) => {
  const { run: cancelled } = await add(store, { jobName: "export" });
  const { run: finished } = await add(store);
  host.jump(-60_000);
  const { lease } = await claimOne(store);
  await store.finish(lease, { status: "completed", output: null, durationMs: 0 }, []);
  await store.cancel(cancelled.id, "cancel", null);

  for (const { id } of [finished, cancelled]) {
    const run = await getRun(store, id);
    assert.equal(run?.completedAt, run?.createdAt);
  }
  assert.deepEqual(await find(store, { completedBefore: isoTime(FAKE_START) }), []);
  assert.deepEqual(await find(store, { completedBefore: isoTime(FAKE_START + 1) }), [finished.id, cancelled.id]);
});

timed("getRuns() leaves out what has not ended if it is asked for what ended before", async ({ store, host }) => {
  const [first, second, third] = await endOneASecond(store, host);
  await add(store);
  const waiting = await startRun(store, { jobName: "export" });

  const found = await find(store, { completedBefore: isoTime(FAKE_START + 60_000) });

  assert.deepEqual(found, [third, second, first]);
  assert.equal(found.includes(waiting.run.id), false);
});

timed("getRuns() finds the runs that were triggered from an instant on, and until another", async ({ store, host }) => {
  const ids = [];
  for (let i = 0; i < 3; i++) {
    ids.push((await add(store)).run.id);
    host.advance(1_000);
  }

  assert.deepEqual(await find(store, { createdAfter: isoTime(FAKE_START + 1_000) }), [ids[2], ids[1]]);
  assert.deepEqual(await find(store, { createdBefore: isoTime(FAKE_START + 1_000) }), [ids[0]]);
  assert.deepEqual(
    await find(store, { createdAfter: isoTime(FAKE_START + 1_000), createdBefore: isoTime(FAKE_START + 2_000) }),
    [ids[1]],
  );
});

test("getRuns() counts a delayed run by its trigger, not by its start", async ({ store }) => {
  const { run } = await add(store, { flow: aFlow({ start: { at: FAKE_START + 60_000 } }) });

  assert.deepEqual(await find(store, { createdBefore: isoTime(FAKE_START + 1) }), [run.id]);
});

timed("getRuns() takes instants in any time zone, and without milliseconds", async ({ store, host }) => {
  await add(store);
  host.advance(1_000);
  const { run } = await add(store);

  assert.deepEqual(await find(store, { createdAfter: "2040-01-01T01:00:01+01:00" }), [run.id]);
  assert.deepEqual(await find(store, { createdAfter: "2040-01-01T00:00:01Z" }), [run.id]);
});

test("getRuns() finds the runs that are held, and those that are not", async ({ store }) => {
  const [older, newer] = [await addHeld(store, { labels: { org: "acme" } }), await addHeld(store)];
  const cancelled = await addHeld(store);
  await store.cancel(cancelled, "request-1", null);
  const other = await addHeld(store, { jobName: "export" });
  const resumed = await addHeld(store);
  await store.resumeHeld(resumed, false);

  assert.deepEqual(await find(store, { held: true }), [other, newer, older]);
  assert.deepEqual(await find(store, { held: false }), [resumed, cancelled]);
  assert.deepEqual(await find(store, { held: true, jobName: "import-csv" }), [newer, older]);
  assert.deepEqual(await find(store, { held: true, labels: { org: "acme" } }), [older]);
  assert.deepEqual(await find(store, { held: false, status: "pending" }), [resumed]);
  assert.deepEqual(await find(store, { held: true, status: ["waiting", "failed"] }), []);
  assert.deepEqual((await store.findRuns({ held: true, limit: 1, offset: 1, countUpTo: 0 })).ids, [newer]);
});

test("getRuns() finds a held run until its code has claimed it", async ({ store }) => {
  const runId = await addHeld(store);
  await store.claim(offering("print-2", { limit: 0 }));
  const offered = await find(store, { held: true });

  await claimOne(store, offering("print-2"));

  assert.deepEqual([offered, await find(store, { held: true })], [[runId], []]);
});

test("findRuns() finds the held runs of a scope", async ({ store }) => {
  const own = await addHeld(store, { labels: { org: "acme" } });
  await addHeld(store, { labels: { org: "other" } });
  const scope = { labels: ["org"], jobs: false };

  const { ids } = await store.findRuns({ held: true, labels: { org: "acme" }, scope });

  assert.deepEqual(ids, [own]);
});

test("getRuns() finds the runs of which a retry has completed, and those that are left to do", async ({ store }) => {
  const failed = await fail(store, "error");
  const retried = await fail(store, "error");
  const { run: failedRetry } = await add(store, { retriggerOf: { runId: retried, from: "start" } });
  const { lease } = await claimOne(store);
  await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
  const before = await find(store, { retried: false, status: "failed" });
  const { id: last } = await addCompleted(store, { retriggerOf: { runId: failedRetry.id, from: "failure" } });

  const runs = await Promise.all([failed, retried, failedRetry.id, last].map((id) => getRun(store, id)));
  assert.deepEqual(runs.map((run) => run!.completedAs), [null, last, last, null]);
  assert.deepEqual(before, [failedRetry.id, retried, failed]);
  assert.deepEqual(await find(store, { retried: true }), [failedRetry.id, retried]);
  assert.deepEqual(await find(store, { retried: false, status: "failed" }), [failed]);
  assert.deepEqual(await find(store, { retried: false }), [last, failed]);
});

test("a run of which a retry has completed stays so when it is retried again, and when all its retries are deleted", async ({ store }) => {
  const { first, retries } = await failRetries(store, 1);
  const { id: last } = await addCompleted(store, { retriggerOf: { runId: retries[0]!, from: "failure" } });

  await addCompleted(store, { retriggerOf: { runId: first, from: "start" } });
  for (const id of [last, ...retries]) await store.delete(id);

  assert.equal((await getRun(store, first))?.completedAs, last);
  assert.deepEqual(await find(store, { retried: true }), [first]);
  assert.deepEqual(await find(store, { retried: false, status: "failed" }), []);
});

test("finish() of a retry completes all runs before it, up to one that is deleted", async ({ store }) => {
  const { first, retries } = await failRetries(store, 30);
  const deleted = await failRetries(store, 2);
  await store.delete(deleted.retries[0]!);

  const { id } = await addCompleted(store, { retriggerOf: { runId: retries.at(-1)!, from: "start" } });
  const { id: other } = await addCompleted(store, { retriggerOf: { runId: deleted.retries[1]!, from: "start" } });

  const { runs } = await getRuns(store, { retried: true, limit: 100 });
  const all = [first, ...retries].map((runId) => ({ runId, as: id }));
  assert.deepEqual(
    runs.map((run) => ({ runId: run.id, as: run.completedAs })),
    [...all, { runId: deleted.retries[1]!, as: other }].reverse(),
  );
});

test("a retry that fails or is cancelled completes no other run", async ({ store }) => {
  const { first, retries } = await failRetries(store, 1);
  const { run } = await add(store, { retriggerOf: { runId: first, from: "start" } });

  await store.cancel(run.id, "c1", null);

  assert.deepEqual(await find(store, { retried: false, status: "failed" }), [...retries, first]);
});

test("getRuns() finds no run of a parent that has none", async ({ store }) => {
  const { run } = await add(store);

  assert.deepEqual(await find(store, { parentRunId: run.id }), []);
  assert.equal((await getRun(store, run.id))?.parentRunId, null);
});

timed("getRuns() joins all parts of a filter, and pages through what is left", async ({ store, host }) => {
  const ids = [];
  for (const org of ["acme", "other", "acme", "acme"]) {
    const { lease } = await startRun(store, { labels: { org } });
    await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
    ids.push(lease.runId);
    host.advance(1_000);
  }
  const filter: RunFilter = {
    jobName: ["import-csv", "export"],
    status: "failed",
    labels: { org: "acme" },
    failureKind: "error",
    createdAfter: isoTime(FAKE_START),
    completedBefore: isoTime(FAKE_START + 3_000),
  };

  const page = await getRuns(store, { ...filter, limit: 1, offset: 0 });
  const next = await getRuns(store, { ...filter, limit: 1, offset: 1 });

  assert.deepEqual([page.runs.map(({ id }) => id), page.total, page.hasMore], [[ids[2]], 2, true]);
  assert.deepEqual([next.runs.map(({ id }) => id), next.total, next.hasMore], [[ids[0]], 2, false]);
});

test("getRuns() counts what matches though it lists none", async ({ store }) => {
  await fail(store, "error");

  const { runs, total, hasMore } = await getRuns(store, { failureKind: "error", limit: 0 });

  assert.deepEqual([runs, total, hasMore], [[], 1, true]);
});

test("findRuns() continues before a row number, also after runs were added and removed", async ({ store }) => {
  const ids = [];
  for (let i = 0; i < 5; i++) ids.push((await addCompleted(store, { labels: { org: "acme" } })).id);
  const [fifth, fourth, third, second, first] = ids.reverse();
  for (const filter of [{}, { jobName: "import-csv" }, { status: "completed" }, { labels: { org: "acme" } }] as const) {
    const page = await store.findRuns({ ...filter, limit: 2 });
    assert.deepEqual(page.ids, [fifth, fourth], JSON.stringify(filter));
  }
  const { seqs } = await store.findRuns({ limit: 2 });
  await store.delete(fourth!);
  const { id: added } = await addCompleted(store, { labels: { org: "acme" } });

  const filters = [{}, { jobName: "import-csv" }, { jobName: "import-csv", status: "completed" }, {
    labels: { org: "acme" },
  }] as const;
  for (const filter of filters) {
    const all = await store.findRuns(filter);
    const next = await store.findRuns({ ...filter, before: seqs[1]!, limit: 2 });
    const last = await store.findRuns({ ...filter, before: next.seqs[1]!, limit: 2 });
    const none = await store.findRuns({ ...filter, before: last.seqs[0]!, limit: 2 });

    assert.deepEqual(all.ids, [added, fifth, third, second, first]);
    assert.deepEqual(all.seqs, all.seqs.toSorted((left, right) => right - left));
    assert.deepEqual([next.ids, next.total, next.hasMore], [[third, second], 3, true]);
    assert.deepEqual([last.ids, last.total, last.hasMore], [[first], 1, false]);
    assert.deepEqual([none.ids, none.total, none.hasMore], [[], 0, false]);
  }
});

test("findRuns() leaves out runs that were retriggered, if it is asked to", async ({ store }) => {
  const first = await addCompleted(store);
  const second = await addCompleted(store);
  const { run: retry } = await add(store, { retriggerOf: { runId: first.id, from: "start" } });

  const { ids, total } = await store.findRuns({ notRetried: true });
  const completed = await store.findRuns({ notRetried: true, status: "completed", jobName: "import-csv" });

  assert.deepEqual([ids, total], [[retry.id, second.id], 2]);
  assert.deepEqual([completed.ids, completed.total], [[second.id], 1]);
});

test("findRuns() need not count: it says whether there are more", async ({ store }) => {
  for (let i = 0; i < 4; i++) await add(store, { labels: { org: "acme" } });

  for (const filter of [{}, { jobName: "import-csv" }, { status: "pending" }, { labels: { org: "acme" } }] as const) {
    const answers = [];
    for (const page of [{ limit: 2 }, { limit: 2, offset: 1 }, { limit: 2, offset: 2 }, { limit: 9 }, { limit: 0 }]) {
      const { ids, total, hasMore } = await store.findRuns({ ...filter, ...page, countUpTo: 0 });
      answers.push([ids.length, total, hasMore]);
    }

    assert.deepEqual(answers, [[2, 2, true], [2, 3, true], [2, 4, false], [4, 4, false], [0, 0, true]]);
  }
});

test("findRuns() counts up to a number, and continues there", async ({ store }) => {
  for (let i = 0; i < 9; i++) await add(store, { labels: { org: i % 2 === 0 ? "acme" : "other", all: "yes" } });
  const filters = [{ labels: { all: "yes" } }, { status: "pending", labels: { all: "yes" } }] as const;

  for (const filter of filters) {
    const answers = [];
    for (const countUpTo of [3, 8, 9, 20]) {
      const { total, hasMore, countedTo } = await store.findRuns({ ...filter, limit: 2, countUpTo });
      const rest = countedTo === null ? null : await store.findRuns({ ...filter, limit: 0, before: countedTo });
      answers.push([total, hasMore, rest?.total ?? null]);
    }
    const page = await store.findRuns({ ...filter, limit: 5, offset: 1, countUpTo: 3 });

    assert.deepEqual(answers, [[3, true, 6], [8, true, 1], [9, true, null], [9, true, null]]);
    assert.deepEqual([page.ids.length, page.total, page.hasMore, page.countedTo], [5, 6, true, page.seqs[4]]);
  }
});

test("findRuns() counts all runs of jobs and statuses", async ({ store }) => {
  for (let i = 0; i < 5; i++) await add(store);

  for (const filter of [{}, { jobName: "import-csv" }, { jobName: "import-csv", status: "pending" }] as const) {
    const { total, countedTo } = await store.findRuns({ ...filter, limit: 1, countUpTo: 2 });

    assert.deepEqual([total, countedTo], [5, null]);
  }
});

test("getRuns() says that there are at least as many runs as were counted", async ({ store }) => {
  for (let i = 0; i < 3; i++) await add(store, { labels: { org: "acme" } });

  const [some, all] = [
    await getRuns(store, { labels: { org: "acme" }, limit: 1, countUpTo: 2 }),
    await getRuns(store, { labels: { org: "acme" }, limit: 1 }),
  ];

  assert.deepEqual([some.total, some.totalIsAtLeast], [2, true]);
  assert.deepEqual([all.total, "totalIsAtLeast" in all], [3, false]);
});

/** The runs that both `getRuns()` and `findRuns()` find. */
async function find(store: Store, filter: RunFilter): Promise<string[]> {
  const { runs, total, hasMore } = await getRuns(store, filter);
  const ids = runs.map(({ id }) => id);
  assert.deepEqual([total, hasMore], [ids.length, false]);
  const { seqs, ...found } = await store.findRuns(filter);
  assert.deepEqual([found, seqs.length], [{ ids, total, hasMore, countedTo: null }, ids.length]);
  return ids;
}

async function fail(store: Store, kind: FailureKind): Promise<string> {
  const { lease } = await startRun(store);
  await store.finish(lease, { status: "failed", failure: aFailure({ kind }), failedStepName: null }, []);
  return lease.runId;
}

/** Fails a run, and so many retries, each of the one before. */
async function failRetries(store: Store, count: number): Promise<{ first: string; retries: string[] }> {
  const first = await fail(store, "error");
  const retries: string[] = [];
  for (let at = 0; at < count; at++) {
    await add(store, { retriggerOf: { runId: retries.at(-1) ?? first, from: "start" } });
    const { lease } = await claimOne(store);
    await store.finish(lease, { status: "failed", failure: aFailure(), failedStepName: null }, []);
    retries.push(lease.runId);
  }
  return { first, retries };
}

async function endOneASecond(store: Store, host: FakeHost): Promise<string[]> {
  const ids = [];
  for (let i = 0; i < 3; i++) {
    ids.push((await addCompleted(store)).id);
    host.advance(1_000);
  }
  return ids;
}
