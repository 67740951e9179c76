import assert from "node:assert/strict";
import { uuidV7 } from "../../../model/host.ts";
import { parseLog } from "../../../model/log.ts";
import { parseRun } from "../../../model/run.ts";
import { parseStep } from "../../../model/step.ts";
import type { Store } from "../../../store/store.ts";
import type { Part, ValuePart, ValuePlace } from "../../../store/run_query.ts";
import { parseWait } from "../../../model/wait.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aLine, aPause, aRun, aStep } from "../fixtures.ts";
import { add, addCompleted, prepare, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { getLogs, getRun, getSteps, getWaits } from "../../../store/reads.ts";

const { cases, test } = newCases();

/** What a store promises of lists that are read in parts. */
export const partCases = cases;

const UNKNOWN = uuidV7(FAKE_START);
/** As large as a value can be that is read with its record. */
const FULL = JSON.stringify("x".repeat(32_766));
const LARGE = JSON.stringify("ä€😀".repeat(60_000));

test("findRuns() answers the ids of what getRuns() answers", async ({ store }) => {
  const added = await store.enqueue(
    Array.from({ length: 7 }, (_, n) => aRun({ labels: { org: n % 2 === 0 ? "a" : "b" } })),
  );
  const filter = { labels: { org: "a" }, status: "pending", limit: 2, offset: 1 } as const;

  const { seqs, ...found } = await store.findRuns(filter);

  assert.equal(seqs.length, 2);
  assert.deepEqual(found, {
    ids: [added[4]!.run.id, added[2]!.run.id],
    total: 4,
    hasMore: true,
    countedTo: null,
  });
});

test("readRuns() answers runs in the order of the ids, and null for those that do not exist", async ({ store }) => {
  const first = await addCompleted(store, { payload: '{"__proto__":{"a":"ä\\ud800"}}', labels: { org: "acme" } });
  const { run: second } = await add(store, { payload: null });

  const runs = await store.readRuns([second.id, UNKNOWN, first.id], 1_000_000);

  assert.deepEqual(runs.map((run) => run && parseRun(run)), [second, null, first]);
  assert.equal(runs[2]!.payload, '{"__proto__":{"a":"ä\\ud800"}}');
  assert.equal(runs[0]!.payload, null);
});

test("readRuns() answers no runs if it is asked for none", async ({ store }) => {
  assert.deepEqual(await store.readRuns([], 100), []);
});

test("readRuns() stops at the first run that goes beyond the length", async ({ store }) => {
  const added = await store.enqueue([
    aRun(),
    aRun({ payload: FULL }),
    aRun({ payload: FULL }),
    aRun({ payload: FULL }),
    aRun(),
  ]);
  const ids = added.map(({ run }) => run.id);

  const [least, some, all] = await Promise.all([1, 50_000, 1_000_000].map((length) => store.readRuns(ids, length)));

  assert.deepEqual([least!.length, some!.length, all!.length], [1, 3, 5]);
});

test("readRuns() reads as many small runs as fit", async ({ store }) => {
  const added = await store.enqueue(Array.from({ length: 700 }, () => aRun()));
  const ids = added.map(({ run }) => run.id);

  const some = await store.readRuns(ids, 200_000);
  const all = await store.readRuns(ids, Infinity);

  assert.ok(some.length > 256 && some.length < 700, `it has read ${some.length}`);
  assert.deepEqual(all.map((run) => run!.id), ids);
});

test("readSteps() answers the parts of what getSteps() answers", async ({ store }) => {
  const { lease } = await startRun(store);
  for (const [name, index] of [["b", 1], ["a", 0], ["d", 2], ["c", 2], ["e", 3]] as const) {
    const output = name === "d" ? null : FULL;
    await store.saveStep(lease, aStep({ name, index, result: { status: "completed", output } }), []);
  }

  const parts = await readAll((after) => store.readSteps(lease.runId, after, 50_000), ({ name }) => name);

  assert.deepEqual(parts.map((part) => part.map(({ name }) => name)), [["a", "b"], ["d", "c", "e"], []]);
  assert.deepEqual(parts.flat().map(parseStep), await getSteps(store, lease.runId));
});

test("readSteps() reads a long history part by part", async ({ store }) => {
  const { lease } = await startRun(store);
  const steps = Array.from({ length: 1_500 }, (_, n) => aStep({ name: `s${n}`, index: n }));
  await Promise.all(steps.map((step) => store.saveStep(lease, step, [])));

  const parts = await readAll((after) => store.readSteps(lease.runId, after, 50_000), ({ name }) => name);

  assert.ok(parts.length > 3, `it was read in ${parts.length} parts`);
  assert.deepEqual(parts.flat().map(parseStep), await getSteps(store, lease.runId));
  assert.equal(parts.flat().length, 1_500);
});

test("readWaits() answers the parts of what getWaits() answers, without sleeps", async ({ store }) => {
  const { lease } = await startRun(store);
  const nap = aPause({ kind: "sleep", name: "nap", deadline: { afterMs: 10 } });
  const [b, a, open] = [aPause({ name: "b", metadata: FULL }), aPause({ name: "a" }), aPause({ name: "open" })];
  await prepare(store, lease, b, nap, a, open);
  await store.signal(a.id, { signalId: "s", payload: JSON.parse(FULL) });

  const parts = await readAll((after) => store.readWaits(lease.runId, after, 20_000), ({ id }) => id);

  assert.deepEqual(parts.map((part) => part.map(({ name }) => name)), [["b"], ["a"], ["open"]]);
  assert.deepEqual(parts.flat().map(parseWait), await getWaits(store, lease.runId));
});

test("readLogs() answers the parts of what getLogs() answers", async ({ store }) => {
  const { run } = await add(store);
  const data = JSON.stringify("x".repeat(3_000));
  await store.appendLogs(Array.from({ length: 300 }, (_, n) => aLine(run.id, { message: `line ${n}`, data })));

  const parts = await readAll((after) => store.readLogs(run.id, after, 100_000), ({ id }) => id);

  assert.deepEqual(parts.flat().map(parseLog), await getLogs(store, run.id));
  assert.ok(parts.length >= 8 && parts.length <= 11, `it was read in ${parts.length} parts`);
});

test("a large value is read alone, part by part", async ({ store }) => {
  const { lease } = await startRun(store, { payload: LARGE });
  const { runId } = lease;
  await store.saveStep(lease, aStep({ result: { status: "completed", output: LARGE } }), []);
  const wait = aPause({ metadata: LARGE });
  await prepare(store, lease, wait);
  await store.signal(wait.id, { signalId: "s", payload: JSON.parse(LARGE) });
  await store.finish(lease, { status: "completed", output: LARGE, durationMs: 0 }, []);
  const before = await Promise.all([getRun(store, runId), getSteps(store, runId), getWaits(store, runId)]);

  const [run] = await store.readRuns([runId], 1_000);
  const { items: [step] } = (await store.readSteps(runId, null, 1_000))!;
  const { items: [read] } = (await store.readWaits(runId, null, 1_000))!;
  const places: ValuePlace[] = [
    { of: "run", runId, value: "payload" },
    { of: "run", runId, value: "output" },
    { of: "step", runId, stepName: "read", value: "output" },
    { of: "wait", waitId: wait.id, value: "metadata" },
    { of: "wait", waitId: wait.id, value: "payload" },
  ];

  const isLarge = { isLarge: true };
  assert.deepEqual([run!.payload, run!.output, step!.output, read!.metadata, read!.payload], Array(5).fill(isLarge));
  assert.throws(() => parseRun(run!), TypeError);
  for (const place of places) {
    const parts = await readValue(store, place);
    assert.ok(parts.length > 3 && parts.every(({ length }) => length < 200_000));
    assert.equal(await new Blob(parts).text(), LARGE);
  }
  const after = await Promise.all([getRun(store, runId), getSteps(store, runId), getWaits(store, runId)]);
  assert.deepEqual(after, before);
});

test("readValue() reads a value of 4 MiB in at most 18 parts", async ({ store }) => {
  const payload = JSON.stringify("ab€".repeat(1_048_576));
  const { run } = await add(store, { payload });

  const parts = await readValue(store, { of: "run", runId: run.id, value: "payload" });

  assert.ok(parts.length <= 18, String(parts.length));
  assert.ok(await new Blob(parts).text() === payload);
});

test("readValue() keeps the characters at the ends of its parts whole", async ({ store }) => {
  const values = [0, 1, 2, 3].map((before) => JSON.stringify("a".repeat(before) + "😀".repeat(60_000)));
  const added = await store.enqueue(values.map((payload) => aRun({ payload })));

  for (const [n, { run }] of added.entries()) {
    const parts = await readValue(store, { of: "run", runId: run.id, value: "payload" });
    assert.ok(parts.length > 1);
    assert.ok(await new Blob(parts).text() === values[n], `of the value with ${n} letters before`);
  }
});

test("readValue() answers null for a value that does not exist", async ({ store }) => {
  const { lease } = await startRun(store);
  const { runId } = lease;
  const wait = aPause();
  await prepare(store, lease, wait);
  const places: ValuePlace[] = [
    { of: "run", runId, value: "output" },
    { of: "run", runId: UNKNOWN, value: "payload" },
    { of: "step", runId, stepName: "read", value: "output" },
    { of: "wait", waitId: wait.id, value: "payload" },
    { of: "wait", waitId: UNKNOWN, value: "metadata" },
  ];

  for (const place of places) assert.equal(await store.readValue(place, 0), null);
});

test("readSteps(), readWaits() and readLogs() know an empty list from an unknown run", async ({ store }) => {
  const { run } = await add(store);
  const read = (runId: string) =>
    Promise.all([
      store.readSteps(runId, null, 1_000),
      store.readWaits(runId, null, 1_000),
      store.readLogs(runId, null, 1_000),
    ]);

  const nothing = { items: [], hasMore: false };
  assert.deepEqual(await read(run.id), [nothing, nothing, nothing]);
  assert.deepEqual(await read(UNKNOWN), [null, null, null]);
});

async function readValue(store: Store, place: ValuePlace): Promise<Uint8Array<ArrayBuffer>[]> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  for (let from: number | null = 0; from !== null;) {
    const part: ValuePart | null = await store.readValue(place, from);
    parts.push(part!.bytes);
    from = part!.next;
  }
  return parts;
}

/** Reads a list part by part. */
async function readAll<T>(
  read: (after: string | null) => Promise<Part<T> | null>,
  nameOf: (item: T) => string,
): Promise<T[][]> {
  const parts: T[][] = [];
  for (let after: string | null = null;;) {
    const part: Part<T> | null = await read(after);
    parts.push(part!.items);
    if (!part!.hasMore) return parts;
    after = nameOf(part!.items.at(-1)!);
  }
}
