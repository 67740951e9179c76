import assert from "node:assert/strict";
import { LeaseLostError } from "../../../model/error.ts";
import type { Lease } from "../../../model/lease.ts";
import type { Chunk, StreamPlace } from "../../../model/stream.ts";
import type { Store } from "../../../store/store.ts";
import type { StreamText } from "../../../store/run_query.ts";
import { FAKE_START } from "../../fake_host.ts";
import { add, addCompleted, aRetry, claimOne, complete, park, parkUntilRetry, startRun } from "../arrange.ts";
import { newCases } from "../case.ts";
import { aClaimRequest, aFailure, aFlow, aHold, aLogged, aPause, aStep } from "../fixtures.ts";

const { cases, test, timed } = newCases();

/** What a store promises of the items of streams. */
export const streamCases = cases;

const FAILED = { status: "failed" as const, failure: aFailure(), failedStepName: null, durationMs: 0 };
const START: StreamPlace = { position: 0, at: 0 };

/** An open chunk of the stream "tokens" that follows the one before it. */
function aChunk(position: number, items: unknown[], overrides: Partial<Chunk> = {}): Chunk {
  const text = JSON.stringify(items);
  const rest = { after: position - 1, first: 0, count: items.length, size: text.length, isPermanent: false };
  return { stream: "tokens", position, items: text, ...rest, ...overrides };
}

/** Chunks of one item each that follow one another, the first of them the first of the stream. */
function chunksOf(...items: string[]): Chunk[] {
  return items.map((item, at) => aChunk(at + 1, [item], { first: at, size: 10 * (at + 1) }));
}

/** The chunk that makes what comes before it permanent, or, with another `after`, what is behind that void. */
function aMark(position: number, first: number, overrides: Partial<Chunk> = {}): Chunk {
  return aChunk(position, [], { first, size: 10 * first, isPermanent: true, ...overrides });
}

async function append(store: Store, lease: Lease, ...chunks: Chunk[]): Promise<boolean> {
  const [isHeld] = await store.appendItems([{ lease, chunks }]);
  return isHeld!;
}

async function read(store: Store, { runId }: { runId: string }, after: StreamPlace | null = null): Promise<StreamText> {
  return (await store.readStream(runId, "tokens", after, 1_000_000))!;
}

/** The items of the stream "tokens" that count. */
async function itemsOf(store: Store, run: { runId: string }): Promise<unknown[]> {
  return (await read(store, run)).chunks.flatMap(({ items }) => JSON.parse(items));
}

test("appendItems() stores items that are read in their order", async ({ store }) => {
  const { lease } = await startRun(store);

  const first = await append(store, lease, ...chunksOf("a", "b"));
  const second = await append(store, lease, ...chunksOf("a", "b", "c").slice(2));

  assert.deepEqual([first, second], [true, true]);
  assert.deepEqual(await itemsOf(store, lease), ["a", "b", "c"]);
});

test("appendItems() skips a chunk that is stored", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a", "b"));

  const isHeld = await append(store, lease, ...chunksOf("A", "B", "c"));

  assert.equal(isHeld, true);
  assert.deepEqual(await itemsOf(store, lease), ["a", "b", "c"]);
});

test("appendItems() stores the items of each run, and of none under a lost lease", async ({ store }) => {
  const { lease } = await startRun(store);
  const { lease: lost } = await startRun(store);
  await store.release(lost, []);

  const held = await store.appendItems([
    { lease: lost, chunks: chunksOf("x") },
    { lease, chunks: chunksOf("a") },
  ]);

  assert.deepEqual(held, [false, true]);
  assert.deepEqual([await itemsOf(store, lost), await itemsOf(store, lease)], [[], ["a"]]);
  assert.deepEqual(await store.getStreams(lost.runId), []);
});

test("appendItems() stores nothing of a run if a stream does not end right before a chunk", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));

  const isHeld = await append(store, lease, aChunk(1, ["x"], { stream: "other" }), aChunk(3, ["c"], { first: 2 }));

  assert.equal(isHeld, false);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);
  assert.deepEqual((await store.getStreams(lease.runId)).map(({ name }) => name), ["tokens"]);
});

test("appendItems() appends the fact `streamed` for each run that gets items", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  const end = await store.findCursor(null);

  await append(store, lease, ...chunksOf("a"));
  await append(store, lease, ...chunksOf("a", "b", "c").slice(1));

  const page = await store.readJournal(end!.position, 10_000);
  assert.deepEqual(page!.rows.flatMap(({ facts }) => facts).map(([, kind]) => kind), ["streamed"]);
});

timed("appendItems() renews no lease and changes no run", async ({ store, host }) => {
  const { lease } = await startRun(store);
  const before = await store.readRuns([lease.runId], Infinity);
  host.advance(10);

  await append(store, lease, ...chunksOf("a"));

  assert.deepEqual(await store.readRuns([lease.runId], Infinity), before);
});

test("readStream() returns an empty stream of a run that has none, and null for an unknown run", async ({ store }) => {
  const { run } = await add(store);

  const text = await store.readStream(run.id, "tokens", null, 100);

  const nothing = { position: 0, items: 0, bytes: 0 };
  assert.deepEqual(text, {
    chunks: [],
    hasMore: false,
    isPlace: true,
    end: { ...nothing, at: 0 },
    permanent: nothing,
    last: 0,
    isEnded: false,
  });
  assert.equal(await store.readStream("unknown", "tokens", null, 100), null);
  assert.deepEqual(await store.getStreams("unknown"), []);
});

test("readStream() reads a long stream in parts, from every place", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a", "b", "c", "d", "e"));

  const read: string[] = [];
  let place: StreamPlace = START;
  for (let hasMore = true; hasMore;) {
    const text: StreamText = (await store.readStream(lease.runId, "tokens", place, 15))!;
    read.push(text.chunks.map(({ items }) => JSON.parse(items)).join());
    place = text.chunks.at(-1)!;
    hasMore = text.hasMore;
    assert.equal(text.isPlace, true);
  }

  assert.deepEqual(read, ["a,b", "c,d", "e"]);
});

test("readStream() reads at least one chunk, and none if it is asked for none", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a", "b"));

  const one = await store.readStream(lease.runId, "tokens", null, 1);
  const none = await store.readStream(lease.runId, "tokens", null, 0);

  assert.deepEqual([one!.chunks.length, one!.hasMore], [1, true]);
  assert.deepEqual([none!.chunks.length, none!.hasMore, none!.end.position, none!.last], [0, false, 2, 2]);
});

timed("readStream() says whether a chunk of that number was committed at that instant", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  host.advance(7);
  await append(store, lease, ...chunksOf("a", "b").slice(1));

  const places = [[1, 0], [2, 7], [2, 0], [3, 7]].map(([position, ms]) => ({
    position: position!,
    at: FAKE_START + ms!,
  }));
  const texts = await Promise.all(places.map((place) => read(store, lease, place)));

  assert.deepEqual(texts.map(({ isPlace }) => isPlace), [true, true, false, false]);
  assert.deepEqual(texts.map(({ chunks }) => chunks.length), [1, 0, 0, 0]);
  assert.deepEqual(texts[0]!.end, { position: 2, at: FAKE_START + 7, items: 2, bytes: 20 });
});

test("saveStep() makes the items of its step permanent, with those that it brings", async ({ store }) => {
  const { lease } = await startRun(store);
  const [a, b] = chunksOf("a", "b");
  await append(store, lease, a!);

  await store.saveStep(lease, aStep({ chunks: [a!, { ...b!, isPermanent: true }] }), []);
  await store.release(lease, []);

  assert.deepEqual(await itemsOf(store, lease), ["a", "b"]);
  assert.deepEqual((await read(store, lease)).permanent, { position: 2, items: 2, bytes: 20 });
});

test("saveStep() with chunks appends no fact but that of its step", async ({ store }) => {
  const { lease } = await startRun(store);
  const end = await store.findCursor(null);

  await store.saveStep(lease, aStep({ chunks: [{ ...chunksOf("a")[0]!, isPermanent: true }] }), []);

  const page = await store.readJournal(end!.position, 10_000);
  assert.deepEqual(page!.rows.flatMap(({ facts }) => facts).map(([, kind]) => kind), ["step_completed"]);
});

test("saveStep() that is repeated, or late, stores no chunks", async ({ store }) => {
  const { lease } = await startRun(store);
  await store.saveStep(lease, aStep(), []);

  await store.saveStep(lease, aStep({ chunks: [{ ...chunksOf("x")[0]!, isPermanent: true }] }), []);

  assert.deepEqual(await itemsOf(store, lease), []);
});

test("saveStep() under a lost lease stores no chunks", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  await store.release(lease, []);

  const write = store.saveStep(lease, aStep({ chunks: [aMark(2, 1)] }), []);

  await assert.rejects(write, LeaseLostError);
  assert.deepEqual(await itemsOf(store, lease), []);
  assert.equal((await read(store, lease)).last, 1);
});

test("saveStep() is refused if a stream does not end right before its chunk", async ({ store }) => {
  const { lease } = await startRun(store);

  const write = store.saveStep(lease, aStep({ chunks: [aMark(2, 1)] }), [aLogged()]);

  await assert.rejects(write, LeaseLostError);
  assert.deepEqual((await store.getHistory(lease.runId))!.steps, []);
  assert.equal((await read(store, lease)).last, 0);
});

test("saveStep() with a retry to follow makes the items of its attempt void", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a", "b"));

  await store.saveStep(lease, aRetry(0, { chunks: [aMark(3, 0, { after: 0 })] }), []);

  const text = await read(store, lease);
  assert.deepEqual(text.chunks.map(({ position, after, items }) => [position, after, items]), [[3, 0, "[]"]]);
  assert.deepEqual([text.end.position, text.end.items, text.last], [3, 0, 3]);
});

test("a chunk that follows an earlier one than the last makes those between void, and no others", async ({ store }) => {
  const { lease } = await startRun(store);
  const [a, b, c] = chunksOf("a", "b", "c");
  await store.saveStep(lease, aStep({ chunks: [{ ...a!, isPermanent: true }] }), []);
  await append(store, lease, b!, c!);
  const before = await read(store, lease);

  await append(store, lease, aChunk(4, ["B"], { after: 1, first: 1, size: 20 }));

  assert.deepEqual(await itemsOf(store, lease), ["a", "B"]);
  const behind = await Promise.all(before.chunks.map((place) => read(store, lease, place)));
  assert.deepEqual(
    behind.map(({ isPlace, chunks }) => [isPlace, ...chunks.map(({ after, first }) => [after, first])]),
    [
      [true, [1, 1]],
      [true, [1, 1]],
      [true, [1, 1]],
    ],
  );
});

test("open items are void when their lease is released, and numbers are not used again", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a", "b"));

  await store.release(lease, []);

  const text = await read(store, lease);
  assert.deepEqual([text.chunks, text.end.position, text.last], [[], 0, 2]);
  const { lease: next } = await claimOne(store);
  assert.equal(await append(store, next, ...chunksOf("x")), true, "its number is taken");
  assert.equal(await append(store, next, aChunk(3, ["A"], { after: 0, size: 10 })), true);
  assert.deepEqual(await itemsOf(store, next), ["A"]);
});

timed("open items are void when a claim revokes their lease", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  host.advance(1_000);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);

  const { lease: next } = await claimOne(store, { workerId: "worker-b" });

  assert.equal(await append(store, lease, ...chunksOf("a", "b").slice(1)), false);
  assert.deepEqual(await itemsOf(store, next), []);
});

timed("open items are void when their lease is revoked by name", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));

  await store.revoke(await store.getLeases());

  assert.deepEqual(await itemsOf(store, lease), []);
});

test("open items are void when their run is held", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));

  await store.hold(lease, aHold(), []);

  assert.deepEqual(await itemsOf(store, lease), []);
});

test("open items count while their run waits, and are void when it is claimed again", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  const wait = aPause();
  await park(store, lease, wait);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);

  await store.signal(wait.id, { signalId: "s", payload: null });
  await claimOne(store);

  assert.deepEqual(await itemsOf(store, lease), []);
});

test("open items stay after a cancel", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));

  await store.cancel(lease.runId, "request", null);

  assert.equal(await append(store, lease, ...chunksOf("a", "b").slice(1)), false);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);
  const text = await read(store, lease);
  assert.deepEqual([text.isEnded, text.permanent.items, text.end.items], [true, 0, 1]);
});

test("open items stay when their run fails", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  await store.saveStep(lease, aStep({ result: { status: "failed", failure: aFailure() } }), []);

  await store.finish(lease, FAILED, []);

  assert.deepEqual(await itemsOf(store, lease), ["a"]);
});

timed("open items stay when their run misses its deadline while it waits", async ({ store, host }) => {
  const { lease } = await startRun(store, { flow: aFlow({ finishWithin: 100 }) });
  await append(store, lease, ...chunksOf("a"));
  await parkUntilRetry(store, lease, FAKE_START + 500);
  host.advance(100);

  const { failed } = await store.claim(aClaimRequest());

  assert.equal(failed.length, 1);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);
});

test("open items are void when their run completes, and permanent ones stay", async ({ store }) => {
  const { lease } = await startRun(store);
  const [a, b] = chunksOf("a", "b");
  await store.saveStep(lease, aStep({ chunks: [{ ...a!, isPermanent: true }] }), []);
  await append(store, lease, b!);

  await complete(store, lease);

  assert.deepEqual(await itemsOf(store, lease), ["a"]);
  assert.equal((await read(store, lease)).isEnded, true);
});

test("enqueue() begins a retry from the failure with the permanent items of the old run", async ({ store }) => {
  const { lease } = await startRun(store);
  const [a, b, c] = chunksOf("a", "b", "c");
  await store.saveStep(lease, aStep({ chunks: [{ ...a!, isPermanent: true }] }), []);
  await append(store, lease, b!);
  await store.saveStep(lease, aRetry(0, { name: "next", chunks: [aMark(3, 1, { after: 1 })] }), []);
  await append(store, lease, { ...c!, position: 4, after: 3 });
  await store.finish(lease, FAILED, []);

  const { run } = await add(store, { retriggerOf: { runId: lease.runId, from: "failure" } });
  const { run: anew } = await add(store, { retriggerOf: { runId: run.id, from: "start" } });

  const old = await read(store, lease);
  const copy = await read(store, { runId: run.id });
  assert.deepEqual(copy.chunks, old.chunks.slice(0, 2));
  assert.deepEqual([copy.last, copy.end.position, copy.permanent.items, copy.isEnded], [3, 3, 1, false]);
  assert.deepEqual(await itemsOf(store, { runId: anew.id }), []);
});

test("getStreams() lists the streams of a run by name", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a", "b"), aChunk(1, ["row"], { stream: "rows", size: 5 }));
  await store.saveStep(lease, aStep({ chunks: [aMark(2, 1, { stream: "rows", size: 5 })] }), []);

  const streams = await store.getStreams(lease.runId);

  assert.deepEqual(streams.map(({ name, items, bytes, isOpen }) => [name, items, bytes, isOpen]), [
    ["rows", 1, 5, false],
    ["tokens", 2, 20, true],
  ]);
});

timed("getStreams() says when a stream was last written to", async ({ store, host }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  host.advance(5);
  await append(store, lease, ...chunksOf("a", "b").slice(1));

  const [stream] = await store.getStreams(lease.runId);

  assert.equal(stream?.updatedAt, new Date(FAKE_START + 5).toISOString());
});

test("delete() deletes the items of a run", async ({ store }) => {
  const { lease } = await startRun(store);
  await append(store, lease, ...chunksOf("a"));
  await store.finish(lease, FAILED, []);

  await store.delete(lease.runId);

  assert.equal(await store.readStream(lease.runId, "tokens", null, 100), null);
  assert.deepEqual(await store.getStreams(lease.runId), []);
});

timed("purge() deletes the items of runs that ended long enough ago, and keeps the runs", async ({ store, host }) => {
  const { lease: open } = await startRun(store);
  const { lease } = await startRun(store);
  await append(store, open, ...chunksOf("a"));
  await append(store, lease, ...chunksOf("a"));
  await store.finish(lease, FAILED, []);
  host.advance(99);
  await store.purge({ streams: 100 }, 10);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);
  host.advance(1);

  const purged = await store.purge({ streams: 100 }, 10);

  assert.deepEqual(purged, []);
  assert.deepEqual([await itemsOf(store, open), await itemsOf(store, lease)], [["a"], []]);
  assert.deepEqual(await store.getStreams(lease.runId), []);
});

test("names and items can have any characters of Unicode", async ({ store }) => {
  const { lease } = await startRun(store);
  const items = ["\0", "\ud800", "\ue000 \u{1f600}", "\u2028\n\r"];
  const stream = "t\u00f6kens \ue000 \u{1f600}";
  await append(store, lease, aChunk(1, items, { stream }));

  const text = await store.readStream(lease.runId, stream, null, 1_000);

  assert.deepEqual(JSON.parse(text!.chunks[0]!.items), items);
  assert.deepEqual((await store.getStreams(lease.runId)).map(({ name }) => name), [stream]);
});

test("streams of other runs and other names are separate", async ({ store }) => {
  const other = await addCompleted(store);
  const { lease } = await startRun(store);

  await append(store, lease, ...chunksOf("a"), aChunk(1, ["row"], { stream: "rows" }));

  assert.deepEqual(await itemsOf(store, { runId: other.id }), []);
  assert.deepEqual(await itemsOf(store, lease), ["a"]);
  assert.deepEqual((await store.readStream(lease.runId, "rows", null, 10))!.chunks.map(({ items }) => items), [
    '["row"]',
  ]);
});
