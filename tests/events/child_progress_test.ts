import assert from "node:assert/strict";
import { isoTime } from "../../src/values/iso_time.ts";
import type { RunEvent } from "../../src/model/event.ts";
import { createHandler } from "../../src/http/handler.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob, echo } from "../support/jobs.ts";
import { FAKE_START } from "../support/fake_host.ts";
import { aRequest } from "../support/http/http.ts";
import { forEachStore, pass, type StoreTest } from "../support/stores/for_each_store.ts";
import { withCalls } from "../support/stores/with_calls.ts";

const child = aJob((step) => step.wait("go"), "child");
const parent = aJob(
  async (step) => await step.invokeAll("fan-out", child, [1, 2, 3].map((input) => ({ input }))),
  "parent",
);

/** A parent that waits for three children, each of which waits for a signal. */
async function aWaitingParent({ store, host }: StoreTest) {
  const engine = createEngine({ store, host, jobs: { parent, child, echo } });
  const { id } = await engine.trigger("parent", null);
  await engine.runUntilIdle();
  const { children } = await engine.getChildren(id);
  const endOne = async (at: number) => {
    const [wait] = await engine.getWaits(children[at]!.id);
    await engine.signal(wait!.id, { signalId: `go-${at}`, payload: null });
    await engine.runUntilIdle();
  };
  return { engine, id, endOne };
}

function progressOf(events: readonly RunEvent[]) {
  return events.flatMap((event) => event.type === "run:progress" ? [event.progress] : []);
}

/** Reads the events of a stream as they come. */
function read(stream: ReadableStream<RunEvent>) {
  const events: RunEvent[] = [];
  const reader = stream.getReader();
  const reading = (async () => {
    for (let next = await reader.read(); !next.done; next = await reader.read()) events.push(next.value);
  })();
  return { events, leave: async () => [await reader.cancel(), await reading] };
}

forEachStore(
  "subscribe() shows how many children of a waiting run have ended, at most once a second",
  async (context) => {
    const { engine, id, endOne } = await aWaitingParent(context);
    await using _engine = engine;
    const { events, leave } = read(engine.subscribe(id));
    await pass(context.host, 100);

    await endOne(0);
    await pass(context.host, 500);
    await endOne(1);
    assert.deepEqual(progressOf(events), [{ current: 0, total: 3 }]);
    await pass(context.host, 1_000);

    assert.deepEqual(progressOf(events), [{ current: 0, total: 3 }, { current: 2, total: 3 }]);
    assert.equal(events.at(-1)?.timestamp, isoTime(FAKE_START + 1_100));
    const numbers = events.map(({ sequence }) => sequence);
    assert.deepEqual(numbers, [...new Set(numbers)].sort((one, other) => one - other));
    await leave();
  },
);

forEachStore(
  "GET /subscribe shows the children of a run that begins to wait for them, up to its end",
  async (context) => {
    const { store, host } = context;
    await using engine = createEngine({ store, host, jobs: { parent, child } });
    const { fetch } = createHandler(engine, { host });
    const { id } = await engine.trigger("parent", null);
    const response = await fetch(aRequest("GET", `/subscribe?runId=${id}`));
    const text = response.text();
    await engine.runUntilIdle();
    await pass(host, 1_500);
    const { children } = await engine.getChildren(id);
    for (const [at, { id: childId }] of children.entries()) {
      const [wait] = await engine.getWaits(childId);
      await engine.signal(wait!.id, { signalId: `go-${at}`, payload: null });
      await engine.runUntilIdle();
      await pass(host, 1_500);
    }

    const shown = (await text).match(/"progress":\{[^}]*\}[^}]*/g);
    assert.deepEqual(
      shown?.map((one) => one.replace(/,"runId".*/, "")),
      [0, 1, 2].map((current) => `"progress":{"current":${current},"total":3},"of":"children"`),
    );
  },
);

forEachStore("a run that nobody follows, and one that waits for no children, is not looked at", async (context) => {
  const reads: string[] = [];
  const store = withCalls(context.store, {
    getRunState: (runId) => {
      reads.push(runId);
      return context.store.getRunState(runId);
    },
  });
  const { engine, id } = await aWaitingParent({ ...context, store });
  await using _engine = engine;
  const run = await engine.trigger("echo", 1, { delay: 60_000 });
  reads.length = 0;

  await pass(context.host, 5_000);
  assert.deepEqual(reads, []);

  const { leave } = read(engine.subscribe(run.id));
  await pass(context.host, 5_000);
  assert.deepEqual(reads, [run.id]);
  await leave();
  const follower = read(engine.subscribe(id));
  await pass(context.host, 2_500);
  await follower.leave();
  const { length } = reads;
  await pass(context.host, 5_000);
  assert.equal(reads.length, length);
});
