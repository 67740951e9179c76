import assert from "node:assert/strict";
import { uuidV7 } from "../../../model/host.ts";
import { type Labels, parseRun, type RunFilter } from "../../../model/run.ts";
import type { Store } from "../../../store/store.ts";
import { isoTime } from "../../../values/iso_time.ts";
import { FAKE_START } from "../../fake_host.ts";
import { A_JOB, aLine, aPause, aRun, aStep } from "../fixtures.ts";
import { add, addCompleted, aRetry, claimOne, complete, NO_PAUSE, park, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getLogs, getRun, getRuns, getWaits } from "../../../store/reads.ts";

const { cases, test, timed } = newCases();

/** What a store promises of all that is only read, and of log lines. */
export const readingCases = cases;

test("getRun() answers null for an unknown run", async ({ store }) => {
  assert.equal(await getRun(store, uuidV7(FAKE_START)), null);
});

test("readRuns() answers copies that are the reader's own", async ({ store }) => {
  const { run } = await add(store, { payload: '{"rows":[1]}', labels: { org: "acme" } });
  const before = structuredClone(run);
  const read = (await store.readRuns([run.id], Infinity))[0]!;

  read.status = "failed";
  assert.throws(() => Object.assign(read.labels, { org: "other" }), TypeError);

  assert.deepEqual(await getRun(store, run.id), before);
});

test("enqueue() keeps a copy of what it was given", async ({ store }) => {
  const labels: Record<string, string> = { org: "acme" };
  const { run } = await add(store, { labels });

  labels.org = "other";

  assert.deepEqual((await getRun(store, run.id))!.labels, { org: "acme" });
});

timed("getRuns() answers the newest first", async ({ store, host }) => {
  const first = await add(store);
  host.jump(-60_000);
  const [second, third] = await store.enqueue([aRun(), aRun()]);

  const page = await getRuns(store, {});

  assert.deepEqual(page, { runs: [parseRun(third!.run), parseRun(second!.run), first.run], total: 3, hasMore: false });
});

test("getRuns() answers 50 runs unless it is asked for another number", async ({ store }) => {
  await store.enqueue(Array.from({ length: 51 }, () => aRun()));

  const { runs, total, hasMore } = await getRuns(store, {});

  assert.equal(runs.length, 50);
  assert.equal(total, 51);
  assert.equal(hasMore, true);
});

test("getRuns() answers pages", async ({ store }) => {
  const added = await store.enqueue([1, 2, 3, 4, 5].map(() => aRun()));
  const newestFirst = added.map(({ run }) => parseRun(run)).reverse();

  const first = await getRuns(store, { limit: 2 });
  const second = await getRuns(store, { limit: 2, offset: 2 });
  const third = await getRuns(store, { limit: 2, offset: 4 });
  const beyond = await getRuns(store, { limit: 2, offset: 9 });

  assert.deepEqual(first, { runs: newestFirst.slice(0, 2), total: 5, hasMore: true });
  assert.deepEqual(second, { runs: newestFirst.slice(2, 4), total: 5, hasMore: true });
  assert.deepEqual(third, { runs: newestFirst.slice(4), total: 5, hasMore: false });
  assert.deepEqual(beyond, { runs: [], total: 5, hasMore: false });
});

for (const filter of [{ status: [] }, { jobName: [] }, { jobName: [], status: [] }]) {
  for (const [what, rest] of Object.entries({ "": {}, " with labels": { labels: { org: "acme" } } })) {
    test(`getRuns() finds nothing for ${JSON.stringify(filter)}${what}`, async ({ store }) => {
      await add(store, { labels: { org: "acme" } });
      await startRun(store, { jobName: "export", labels: { org: "acme" } });

      const page = await getRuns(store, { ...filter, ...rest });

      assert.deepEqual(page, { runs: [], total: 0, hasMore: false });
    });
  }
}

test("getRuns() finds nothing for an empty list beside another condition", async ({ store }) => {
  await add(store);

  const pages = [
    await getRuns(store, { jobName: A_JOB, status: [] }),
    await getRuns(store, { jobName: [], status: "pending" }),
    await getRuns(store, { jobName: [], limit: 0, offset: 1 }),
  ];

  assert.deepEqual(pages.map(({ runs, total }) => [runs, total]), [[[], 0], [[], 0], [[], 0]]);
});

test("getRuns() counts without answering runs when the limit is 0", async ({ store }) => {
  await store.enqueue([aRun(), aRun()]);

  const page = await getRuns(store, { limit: 0 });

  assert.deepEqual(page, { runs: [], total: 2, hasMore: true });
});

const FILTERS: { that: string; filter: RunFilter; found: string[] }[] = [
  { that: "are of a job", filter: { jobName: "import" }, found: ["i-acme-eu", "i-other", "i-done"] },
  { that: "are of one of several jobs", filter: { jobName: ["export", "report"] }, found: ["e-acme", "r"] },
  { that: "are of a job in a list of one", filter: { jobName: ["report"] }, found: ["r"] },
  { that: "are of no job at all, for an empty list", filter: { jobName: [] }, found: [] },
  { that: "have a status", filter: { status: "completed" }, found: ["i-done"] },
  { that: "have one of several statuses", filter: { status: ["completed", "cancelled"] }, found: ["i-done"] },
  { that: "have no status at all, for an empty list", filter: { status: [] }, found: [] },
  { that: "carry a label", filter: { labels: { org: "acme" } }, found: ["i-acme-eu", "e-acme"] },
  { that: "carry all of several labels", filter: { labels: { org: "acme", region: "eu" } }, found: ["i-acme-eu"] },
  { that: "carry a label that nobody has", filter: { labels: { toString: "x" } }, found: [] },
  {
    that: "fit in every respect",
    filter: { jobName: "export", status: "pending", labels: { org: "acme" } },
    found: ["e-acme"],
  },
  { that: "fit in every respect, or else not", filter: { jobName: "export", labels: { org: "other" } }, found: [] },
];

for (const { that, filter, found } of FILTERS) {
  test(`getRuns() finds runs that ${that}`, async ({ store }) => {
    await addVarious(store);

    const { runs, total } = await getRuns(store, filter);

    assert.deepEqual(runs.map(({ payload }) => payload).sort(), [...found].sort());
    assert.equal(total, found.length);
  });
}

test("getRuns() finds runs by labels whatever they are called", async ({ store }) => {
  const labels: Labels = JSON.parse('{"__proto__":"acme"}');
  const { run } = await add(store, { labels });
  await add(store);

  const { runs } = await getRuns(store, { labels });

  assert.deepEqual(runs.map(({ id }) => id), [run.id]);
});

test("getRuns() pages through what a filter finds", async ({ store }) => {
  await addVarious(store);

  const { runs, total, hasMore } = await getRuns(store, { jobName: "import", limit: 1, offset: 1 });

  assert.deepEqual(runs.map(({ payload }) => payload), ["i-other"]);
  assert.equal(total, 3);
  assert.equal(hasMore, true);
});

test("getRunState() answers null for an unknown run", async ({ store }) => {
  assert.equal(await store.getRunState(uuidV7(FAKE_START)), null);
});

test("getRunState() answers a run, and no pauses while it is running", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep({ name: "b", index: 1 }), []);
  await store.saveStep(lease, aRetry(100, { name: "a", index: 0 }), []);
  await prepare(store, lease, aPause());

  const state = await store.getRunState(lease.runId);

  const { seq, run, ...rest } = state!;
  assert.deepEqual(parseRun(run), await getRun(store, lease.runId));
  assert.equal(run.payload, aRun().payload);
  assert.deepEqual(rest, {
    place: await store.findCursor(null),
    trace: null,
    execution: 1,
    pauses: [],
  });
  assert.deepEqual((await store.getRunIdentities([seq])).map((run) => run?.id), [lease.runId]);
});

test("getRunState() counts executions as a claim does", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const first = (await store.getRunState(run.id))!.execution;
  await store.release(lease, []);
  const second = await claimOne(store);

  const state = await store.getRunState(run.id);

  assert.equal(first, 1);
  assert.equal(state!.execution, second.execution);
});

timed("getRunState() shows what a run has parked on", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aRetry(900, { name: "send", index: 0 }), []);
  const review = aPause({ name: "review", deadline: { afterMs: 500 } });
  const open = aPause({ name: "open" });
  const nap = aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 700 } });
  await prepare(store, lease, aPause({ name: "prepared" }), review);
  await store.pause(lease, { ...NO_PAUSE, pauses: [nap, open, review], retryAt: host.now() + 900, park: true });

  const { pauses } = (await store.getRunState(lease.runId))!;

  assert.deepEqual(pauses, [
    { waitId: review.id, name: "review", deadlineAt: isoTime(FAKE_START + 500) },
    { waitId: null, name: "nap", deadlineAt: isoTime(FAKE_START + 700) },
    { waitId: open.id, name: "open", deadlineAt: null },
    { waitId: null, name: "send", deadlineAt: isoTime(FAKE_START + 900) },
  ]);
});

test("getRunState() shows pauses that are over until the run is claimed or has ended", async ({ store }) => {
  const { lease } = await startRun(store);
  const [review, other] = [aPause({ name: "review" }), aPause({ name: "other" })];
  await park(store, lease, review, other);
  await store.signal(review.id, { signalId: "s1", payload: null });
  const woken = await store.getRunState(lease.runId);
  await store.cancel(lease.runId, "c1", null);

  const cancelled = await store.getRunState(lease.runId);

  assert.deepEqual(woken!.pauses.map(({ name }) => name), ["review", "other"]);
  assert.deepEqual(cancelled!.pauses, []);
});

test("getWaits() answers the waits in the order in which they were prepared, without sleeps", async ({ store }) => {
  const { lease } = await startRun(store);
  await prepare(store, lease, aPause({ name: "b" }), aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 10 } }));
  await prepare(store, lease, aPause({ name: "a" }));

  const waits = await getWaits(store, lease.runId);

  assert.deepEqual(waits.map(({ name }) => name), ["b", "a"]);
});

test("getWaits() answers nothing for an unknown run", async ({ store }) => {
  assert.deepEqual(await getWaits(store, uuidV7(FAKE_START)), []);
});

test("getWait() answers null for an unknown wait, and for a sleep", async ({ store }) => {
  const { lease } = await startRun(store);
  const nap = aPause({ kind: "sleep", deadline: { afterMs: 10 } });
  await prepare(store, lease, nap);

  assert.equal(await store.getWait(uuidV7(FAKE_START)), null);
  assert.equal(await store.getWait(nap.id), null);
});

test("appendLogs() keeps lines in the order in which they came", async ({ store }) => {
  const { run } = await add(store);
  const first = aLine(run.id, { stepName: "read", level: "warn", data: '{"row":3}', writtenAt: FAKE_START + 5 });
  const second = aLine(run.id, { message: "second", writtenAt: FAKE_START - 5 });

  await store.appendLogs([first]);
  await store.appendLogs([second]);

  assert.deepEqual(await getLogs(store, run.id), [
    {
      id: first.id,
      runId: run.id,
      stepName: "read",
      level: "warn",
      message: "hello",
      data: { row: 3 },
      timestamp: isoTime(FAKE_START + 5),
    },
    {
      id: second.id,
      runId: run.id,
      stepName: null,
      level: "info",
      message: "second",
      data: null,
      timestamp: isoTime(FAKE_START - 5),
    },
  ]);
});

test("appendLogs() keeps no line twice when it is repeated", async ({ store }) => {
  const { run } = await add(store);
  const first = aLine(run.id, { message: "hello" });
  await store.appendLogs([first, aLine(run.id, { message: "second" })]);

  await store.appendLogs([{ ...first, message: "again" }, aLine(run.id, { message: "third" })]);

  assert.deepEqual((await getLogs(store, run.id)).map(({ message }) => message), ["hello", "second", "third"]);
});

test("appendLogs() drops the lines of a run that is gone, and keeps the others", async ({ store }) => {
  const gone = await addCompleted(store);
  const { run } = await add(store);
  await store.delete(gone.id);

  await store.appendLogs([aLine(gone.id), aLine(run.id)]);

  assert.deepEqual(await getLogs(store, gone.id), []);
  assert.equal((await getLogs(store, run.id)).length, 1);
});

test("appendLogs() keeps lines of a run that has ended", async ({ store }) => {
  const ended = await addCompleted(store);

  await store.appendLogs([aLine(ended.id)]);

  assert.equal((await getLogs(store, ended.id)).length, 1);
});

test("appendLogs() cuts a line of more than 8 KiB, and says so", async ({ store }) => {
  const { run } = await add(store);
  const data = JSON.stringify("x".repeat(10_000));

  await store.appendLogs([aLine(run.id, { message: "y".repeat(10_000) }), aLine(run.id, { data })]);

  const [long, large] = await getLogs(store, run.id);
  assert.match(long!.message, /^y{8000,}… \(cut\)$/);
  assert.deepEqual([large!.message, large!.data], ["hello", { cut: true, bytes: 10_002 }]);
});

test("appendLogs() keeps the newest 10,000 lines of a run, and says how many older ones there were", async ({ store }) => {
  const [{ run }, { run: other }] = [await add(store), await add(store)];
  const lines = Array.from({ length: 10_053 }, (_, n) => aLine(run.id, { message: `line ${n + 1}`, writtenAt: n }));

  await store.appendLogs([...lines.slice(0, 10_000), aLine(other.id)]);
  const full = await getLogs(store, run.id);
  await store.appendLogs([lines[10_000]!]);
  const one = await getLogs(store, run.id);
  await store.appendLogs(lines.slice(10_001));
  const [note, ...kept] = await getLogs(store, run.id);

  assert.deepEqual(full.map(({ message }) => message), lines.slice(0, 10_000).map(({ message }) => message));
  assert.deepEqual([one.length, one[0]!.data, one[1]!.message], [10_001, { dropped: 1 }, "line 2"]);
  assert.deepEqual(note, {
    id: lines[52]!.id,
    runId: run.id,
    stepName: null,
    level: "warn",
    message: "Older lines were dropped: 53 (a run keeps its newest 10000)",
    data: { dropped: 53 },
    timestamp: isoTime(52),
  });
  assert.deepEqual(kept.map(({ id }) => id), lines.slice(53).map(({ id }) => id));
  assert.equal((await getLogs(store, other.id)).length, 1);
});

test("readLogs() goes on with the oldest line that is left when the others were dropped meanwhile", async ({ store }) => {
  const { run } = await add(store);
  const lines = Array.from({ length: 10_020 }, () => aLine(run.id));
  await store.appendLogs(lines.slice(0, 10_000));
  const first = (await store.readLogs(run.id, null, 1))!;

  await store.appendLogs(lines.slice(10_000));
  const next = (await store.readLogs(run.id, first.items[0]!.id, 1_000_000))!;

  assert.deepEqual(first.items.map(({ id }) => id), [lines[0]!.id]);
  assert.deepEqual(next.items.slice(0, 2).map(({ id, data }) => [id, data]), [
    [lines[19]!.id, '{"dropped":20}'],
    [lines[20]!.id, null],
  ]);
});

test("getVersion() answers a number", async ({ store }) => {
  const version = await store.getVersion();

  assert.equal(typeof version, "number");
});

/** Adds five runs, which show their names as payloads. One has ended. */
async function addVarious(store: Store): Promise<void> {
  await startRun(store, { jobName: "import", payload: '"i-done"' }).then(({ lease }) => complete(store, lease));
  await store.enqueue([
    aRun({ jobName: "import", payload: '"i-other"', labels: { org: "other", region: "eu" } }),
    aRun({ jobName: "export", payload: '"e-acme"', labels: { org: "acme" } }),
    aRun({ jobName: "report", payload: '"r"' }),
    aRun({ jobName: "import", payload: '"i-acme-eu"', labels: { org: "acme", region: "eu", team: "x" } }),
  ]);
}
