import assert from "node:assert/strict";
import type { Fact } from "../../../model/fact.ts";
import type { Store } from "../../../store/store.ts";
import { FactReader } from "../fact_reader.ts";
import { FAKE_START } from "../../fake_host.ts";
import { aClaimRequest, aFailure, aLogged, aProgress, aRun, aStart, aStep } from "../fixtures.ts";
import { add, addCompleted, aRetry, claimOne, complete, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";

const { cases, test, timed } = newCases();

/** What `Store.readJournal()` and what belongs to it promise. */
export const journalCases = cases;

const EVERYTHING = 1_000_000;

/** The kinds of the facts of all that there is in a journal. */
async function kinds(store: Store): Promise<string[]> {
  const { rows } = (await store.readJournal(0, EVERYTHING))!;
  return rows.flatMap(({ facts }) => facts.map(([, kind]) => kind));
}

test("readJournal() answers nothing and its end for a new store", async ({ store }) => {
  assert.deepEqual(await store.readJournal(0, EVERYTHING), { rows: [], end: { position: 0, at: 0 } });
  assert.deepEqual(await store.findCursor(null), { position: 0, at: 0 });
});

timed(
  "readJournal() answers all that was committed after a position, in the order of the calls",
  async ({ store, host }) => {
    const run = aRun();
    await store.enqueue([run]);
    host.advance(10);
    const { lease } = await claimOne(store);
    host.advance(10);
    await store.saveStep(lease, aStep(), [aStart()]);
    host.advance(10);
    await complete(store, lease);

    const { rows, end } = (await store.readJournal(0, EVERYTHING))!;
    const rest = (await store.readJournal(rows[1]!.position, EVERYTHING))!;
    const none = (await store.readJournal(end.position, EVERYTHING))!;

    const known = rows.map(({ at, facts }) => [at - FAKE_START, facts.map(([, kind]) => kind)]);
    assert.deepEqual(known, [[0, ["triggered"]], [10, ["claimed"]], [20, ["step_completed"]], [30, ["completed"]]]);
    assert.deepEqual(rest, { rows: rows.slice(2), end });
    assert.deepEqual(none, { rows: [], end });
    assert.deepEqual(end, { position: rows[3]!.position, at: rows[3]!.at });
  },
);

test("readJournal() numbers each fact, those of one call one after another", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.renew([{ lease, reports: [1, 2, 3].map((no) => aProgress({ current: no }, no)) }], 1_000);
  await complete(store, lease);

  const { rows } = (await store.readJournal(0, EVERYTHING))!;

  let last = 0;
  for (const { position, facts } of rows) {
    assert.ok(position - facts.length >= last, `${position} has ${facts.length} facts after ${last}`);
    last = position;
  }
});

test("readJournal() answers rows until they have so many characters, one at least", async ({ store }) => {
  const { lease } = await startRun(store);
  const message = "x".repeat(1_000);
  for (let no = 1; no <= 4; no++) await store.renew([{ lease, reports: [aLogged({ no, message })] }], 1_000);
  const { rows: [, claimed, ...lines], end } = (await store.readJournal(0, EVERYTHING))!;

  const one = (await store.readJournal(claimed!.position, 1))!;
  const two = (await store.readJournal(claimed!.position, 2_500))!;
  const all = (await store.readJournal(claimed!.position, 5_000))!;

  assert.deepEqual([one, two, all], [
    { rows: lines.slice(0, 1), end },
    { rows: lines.slice(0, 2), end },
    { rows: lines, end },
  ]);
});

test("readJournal() reaches the end in pages, whatever there is", async ({ store }) => {
  await store.enqueue(Array.from({ length: 700 }, () => aRun()));
  for (let n = 0; n < 7; n++) await store.claim(aClaimRequest({ limit: 100 }));
  const seen: Fact[] = [];
  let after = 0;

  for (let page = await store.readJournal(0, 5_000); page!.rows.length > 0;) {
    seen.push(...page!.rows.flatMap(({ facts }) => facts));
    after = page!.rows.at(-1)!.position;
    page = await store.readJournal(after, 5_000);
  }

  assert.deepEqual(seen.map(([, kind]) => kind), await kindsOfRuns(700));
  assert.equal(after, (await store.findCursor(null))!.position);
});

function kindsOfRuns(count: number): string[] {
  return [...Array(count).fill("triggered"), ...Array(count).fill("claimed")];
}

test("readJournal() answers null for a position beyond the end", async ({ store }) => {
  await add(store);
  const { position } = (await store.findCursor(null))!;

  assert.equal(await store.readJournal(position + 1, EVERYTHING), null);
});

timed("findCursor() accepts every place that readJournal() answers", async ({ store, host }) => {
  const { lease } = await startRun(store);
  host.advance(10);
  await store.saveStep(lease, aStep(), [aStart()]);
  await complete(store, lease);
  const { rows } = (await store.readJournal(0, EVERYTHING))!;
  const places = [{ position: 0, at: 0 }, ...rows.map(({ position, at }) => ({ position, at }))];

  const found = await Promise.all(places.map((place) => store.findCursor(place)));

  assert.deepEqual(found, places);
  assert.deepEqual(await store.findCursor(null), places.at(-1));
});

test("findCursor() refuses another instant, a position beyond the end, and one within a row", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);
  await store.renew([{ lease, reports: [aProgress({ current: 1 }), aProgress({ current: 2 }, 2)] }], 1_000);
  const { rows, end: { position, at } } = (await store.readJournal(0, EVERYTHING))!;
  const wrong = [
    ...rows.map((row) => ({ position: row.position, at: row.at + 1 })),
    { position: 0, at: 1 },
    { position: position + 1, at },
    { position: position - 1, at },
  ];

  const found = await Promise.all(wrong.map((cursor) => store.findCursor(cursor)));

  assert.deepEqual(found, wrong.map(() => null));
});

test("findLastFact() answers where a run was changed last, and where by a fact of some kinds", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const { seq } = (await store.getRunState(run.id))!;
  const message = `[${seq},"completed"]`;
  await store.saveStep(lease, aStep(), []);
  const ofStep = (await store.findCursor(null))!.position;
  await add(store);
  await store.renew([{ lease, reports: [aProgress({ current: 1 }), aLogged({ no: 2, message })] }], 1_000);
  const ofProgress = (await store.findCursor(null))!.position;
  const { run: other } = await add(store);
  const { position: end } = (await store.findCursor(null))!;
  const find = (after: number, kinds: Fact[1][] | null = null) => store.findLastFact(seq, after, kinds);

  const found = [await find(0), await find(ofStep), await find(ofProgress), await find(end)];
  const ofKinds = [await find(0, ["progressed"]), await find(ofProgress, ["progressed"]), await find(0, ["completed"])];
  await complete(store, lease);
  const ended = await find(0, ["failed", "completed"]);

  assert.deepEqual(found, [ofProgress, ofProgress, null, null]);
  assert.deepEqual(ofKinds, [ofProgress, null, null]);
  assert.equal(ended, (await store.findCursor(null))!.position);
  assert.equal(await store.findLastFact((await store.getRunState(other.id))!.seq, 0, null), end);
});

test("findLastFact() finds the trigger of a run, and a step", async ({ store }) => {
  const { run } = await add(store);
  const { seq } = (await store.getRunState(run.id))!;
  const triggered = (await store.findCursor(null))!.position;
  const ofTrigger = await store.findLastFact(seq, 0, null);
  const { lease } = await claimOne(store);
  const claimed = (await store.findCursor(null))!.position;
  await store.saveStep(lease, aStep(), []);
  const recorded = (await store.findCursor(null))!.position;
  await add(store);

  assert.equal(await store.findLastFact(seq, claimed, null), recorded);
  assert.equal(await store.findLastFact(seq, recorded, null), null);
  assert.equal(ofTrigger, triggered);
});

test("getRunState() answers its place: the state has nothing that is committed after it", async ({ store }) => {
  const { run, lease } = await startRun(store);
  const reader = new FactReader(store);
  await reader.skip();

  const before = (await store.getRunState(run.id))!.place;
  await store.saveStep(lease, aStep(), []);
  const between = (await store.getRunState(run.id))!.place;
  await complete(store, lease);
  const after = (await store.getRunState(run.id))!.place;

  const places = [before, between, after];
  const rest = await Promise.all(places.map(async ({ position }) => (await store.readJournal(position, EVERYTHING))!));
  assert.deepEqual(rest.map(({ rows }) => rows.length), [2, 1, 0]);
  assert.deepEqual(await Promise.all(places.map((place) => store.findCursor(place))), places);
});

test("getRunIdentities() answers in the order of the numbers, null for runs that are gone", async ({ store }) => {
  const gone = await addCompleted(store, { jobName: "gone" });
  const [first, second] = [await add(store, { labels: { org: "a" } }), await add(store)];
  const states = await Promise.all([gone.id, first.run.id, second.run.id].map((id) => store.getRunState(id)));
  const [goneSeq, firstSeq, secondSeq] = states.map((state) => state!.seq);
  await store.delete(gone.id);

  const identities = await store.getRunIdentities([secondSeq!, goneSeq!, firstSeq!, secondSeq!, 9_999]);

  const [one, other] = [first.run, second.run].map(({ id, jobName, labels }) => ({ id, jobName, labels }));
  assert.deepEqual(identities, [other, null, one, other, null]);
  assert.deepEqual(await store.getRunIdentities([]), []);
});

test("getRunIdentities() never takes a new run for one that is gone", async ({ store }) => {
  const { id } = await addCompleted(store);
  const { seq } = (await store.getRunState(id))!;
  await store.delete(id);
  const { run } = await add(store);

  assert.deepEqual(await store.getRunIdentities([seq]), [null]);
  assert.notEqual((await store.getRunState(run.id))!.seq, seq);
});

test("readFactValues() answers what facts leave out", async ({ store }) => {
  const [completed, failed] = [await startRun(store, { payload: '{"n":1}' }), await startRun(store, { payload: null })];
  const result = { status: "failed", failure: aFailure({ message: "no such file" }) } as const;
  await store.saveStep(completed.lease, aStep({ result: { status: "completed", output: "[1]" } }), []);
  await store.finish(completed.lease, { status: "completed", output: '"done"', durationMs: 0 }, []);
  await store.saveStep(failed.lease, aStep({ name: "open", result }), []);
  const failure = aFailure({ name: "AbortError", message: "" });
  await store.finish(failed.lease, { status: "failed", failure, failedStepName: "open" }, []);
  const [one, other] = await Promise.all([completed, failed].map(({ run }) => store.getRunState(run.id)));

  const values = await store.readFactValues([
    { run: one!.seq, of: "payload" },
    { run: one!.seq, of: "output" },
    { run: one!.seq, of: "step", stepName: "read" },
    { run: other!.seq, of: "payload" },
    { run: other!.seq, of: "failure" },
    { run: other!.seq, of: "step", stepName: "open" },
  ], EVERYTHING);

  const none = { json: null, error: null, failedStepName: null };
  assert.deepEqual(values, [
    { ...none, json: '{"n":1}' },
    { ...none, json: '"done"' },
    { ...none, json: "[1]" },
    none,
    { ...none, error: "AbortError", failedStepName: "open" },
    { ...none, error: "no such file" },
  ]);
});

test("readFactValues() answers null for what is gone, or was never there", async ({ store }) => {
  const run = await addCompleted(store);
  const { seq } = (await store.getRunState(run.id))!;
  const { run: other } = await add(store);
  const { seq: otherSeq } = (await store.getRunState(other.id))!;
  await store.delete(run.id);

  const values = await store.readFactValues([
    { run: seq, of: "payload" },
    { run: seq, of: "output" },
    { run: seq, of: "failure" },
    { run: seq, of: "step", stepName: "read" },
    { run: otherSeq, of: "step", stepName: "read" },
  ], EVERYTHING);

  assert.deepEqual(values, [null, null, null, null, null]);
});

test("readFactValues() stops when the values have so many characters", async ({ store }) => {
  const payload = JSON.stringify("x".repeat(1_000));
  const [added] = await store.enqueue([aRun({ payload })]);
  const { seq } = (await store.getRunState(added!.run.id))!;
  const refs = Array.from({ length: 5 }, () => ({ run: seq, of: "payload" as const }));

  const parts = [await store.readFactValues(refs, 1), await store.readFactValues(refs, 1_500)];

  assert.deepEqual(parts.map((part) => part.map((value) => value!.json!.length)), [[1_002], [1_002, 1_002]]);
  assert.deepEqual(await store.readFactValues([], 1), []);
});

test("the journal tells a run from its trigger to its end", async ({ store }) => {
  const { run, lease } = await startRun(store);
  await store.saveStep(lease, aRetry(0), [aStart()]);
  await parkUntilRetry(store, lease, FAKE_START + 100);
  await store.cancel(run.id, "c1", null);
  await store.delete(run.id);

  // SqliteStore keeps a trigger in the row of its run.
  const told = (await kinds(store)).filter((kind) => kind !== "triggered");

  assert.deepEqual(told, ["claimed", "step_failed", "waiting", "cancelled", "deleted"]);
});
