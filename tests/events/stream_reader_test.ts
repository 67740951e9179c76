import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import { NotFoundError } from "../../src/model/error.ts";
import { defineStream, formatPlace, type StreamPart } from "../../src/model/stream.ts";
import type { Store } from "../../src/store/store.ts";
import type { FakeHost } from "../support/fake_host.ts";
import { aJob } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { forEachStore, pass } from "../support/stores/for_each_store.ts";

const tokens = defineStream<string>("tokens");

/** A job of one step that does what a test says, one thing after another: writes an item, fails, or returns. */
function aTypist() {
  const orders: string[] = [];
  let wake = () => {};
  const job = aJob((step) =>
    step.run("type", async ({ stream, abortSignal }) => {
      while (true) {
        while (orders.length === 0) {
          await new Promise<void>((resolve, reject) => {
            wake = resolve;
            abortSignal.addEventListener("abort", () => reject(abortSignal.reason));
          });
        }
        const order = orders.shift()!;
        if (order === "return") return;
        if (order === "fail") throw new Error("broken");
        await stream(tokens).write(order);
      }
    }, { retry: { maxAttempts: 9, delay: 0 } })
  );
  const say = (...said: string[]) => {
    orders.push(...said);
    wake();
  };
  return { job, say };
}

/** A reader that gathers all parts, and keeps the list that they make. */
function collect(source: ReadableStream<StreamPart<string>>) {
  const parts: StreamPart<string>[] = [];
  const list: string[] = [];
  const ended = (async () => {
    for await (const part of source) {
      assert.ok(part.from <= list.length, `a gap: ${part.from} after ${list.length}`);
      parts.push(part);
      list.splice(part.from, Infinity, ...part.items);
    }
  })();
  ended.catch(() => {});
  return { parts, list, ended };
}

async function until(host: FakeHost, holds: () => boolean): Promise<void> {
  for (let tries = 0; !holds(); tries++) {
    assert.ok(tries < 1_000, "the condition never held");
    await pass(host, 10);
  }
}

/** Begins a run of a typist, whose steps end by the test. */
async function begin({ store, host }: { store: Store; host: FakeHost }, watched: Store = store) {
  const { job, say } = aTypist();
  const engine = createEngine({ store: watched, host, jobs: { job } });
  const { id } = await engine.trigger("job", null);
  const done = engine.runUntilIdle();
  return { engine, id, say, done };
}

forEachStore("readStream() gives what counts, then what comes, and ends with the run", async (context) => {
  const { host } = context;
  const { engine, id, say, done } = await begin(context);
  say("a", "b");
  const early = collect(engine.readStream(id, tokens));
  await until(host, () => early.list.length === 2);
  const late = collect(engine.readStream(id, "tokens") as ReadableStream<StreamPart<string>>);
  await until(host, () => late.list.length === 2);

  say("c", "return");
  await done;
  await until(host, () => early.list.length === 3);
  await Promise.all([early.ended, late.ended]);

  assert.deepEqual([early.list, late.list], [["a", "b", "c"], ["a", "b", "c"]]);
  await engine.stop();
});

forEachStore("readStream() may come before the stream exists", async (context) => {
  const { host } = context;
  const { engine, id, say, done } = await begin(context);
  const reader = collect(engine.readStream(id, tokens));
  await pass(host, 100);

  say("a", "return");
  await done;
  await until(host, () => reader.list.length === 1);
  await reader.ended;

  assert.deepEqual(reader.list, ["a"]);
  await engine.stop();
});

forEachStore("readStream() tells where to cut when an attempt is followed by another", async (context) => {
  const { host } = context;
  const { engine, id, say, done } = await begin(context);
  const reader = collect(engine.readStream(id, tokens));
  say("a", "b");
  await until(host, () => reader.list.length === 2);

  say("fail");
  await until(host, () => reader.list.length === 0);
  say("c", "return");
  await done;
  await until(host, () => reader.list.length === 1);
  await reader.ended;

  assert.deepEqual(reader.parts.map(({ from, items }) => [from, items.join("")]), [[0, "ab"], [0, ""], [0, "c"]]);
  await engine.stop();
});

forEachStore(
  "readStream() after a position continues, and cuts first if its items do not count any more",
  async (context) => {
    const { host } = context;
    const { engine, id, say, done } = await begin(context);
    const reader = collect(engine.readStream(id, tokens));
    for (const item of ["a", "b"]) {
      say(item);
      await until(host, () => reader.list.includes(item));
    }
    const [first, second] = reader.parts.map(({ position }) => position);
    say("fail", "c");
    await until(host, () => reader.list.includes("c"));
    say("return");
    await done;

    const read = async (after: string) => {
      const { parts, ended } = collect(engine.readStream(id, tokens, { after }));
      await ended;
      return parts.map(({ from, items }) => [from, items.join("")]);
    };

    assert.deepEqual(await read(first!), [[0, "c"]]);
    assert.deepEqual(await read(second!), [[0, "c"]]);
    assert.deepEqual(await read(reader.parts.at(-1)!.position), []);
    assert.deepEqual(await read(formatPlace({ position: 4, at: 1 })), [[0, "c"]]); // another instant
    assert.deepEqual(await read(formatPlace({ position: 99, at: host.now() })), [[0, "c"]]); // not there
    await engine.stop();
  },
);

forEachStore("readStream() cuts what an execution has left that lost its lease", async ({ store, host }) => {
  const { engine, id, say } = await begin({ store, host });
  say("a");
  const observer = createEngine({ store, host, jobs: {} });
  const reader = collect(observer.readStream(id, tokens));
  await until(host, () => reader.list.length === 1);

  await store.revoke(await store.getLeases());
  await until(host, () => reader.list.length === 0);

  assert.deepEqual(reader.parts.map(({ from, items }) => [from, items.join("")]), [[0, "a"], [0, ""]]);
  const stopped = Promise.all([engine.stop({ timeout: 10 }), observer.stop()]);
  await pass(host, 1_000);
  await stopped;
});

forEachStore("readStream() with follow: false ends at what is there", async (context) => {
  const { host } = context;
  const { engine, id, say, done } = await begin(context);
  const reader = collect(engine.readStream(id, tokens));
  say("a");
  await until(host, () => reader.list.length === 1);

  const now = collect(engine.readStream(id, tokens, { follow: false }));
  await now.ended;

  assert.deepEqual(now.list, ["a"]);
  say("return");
  await done;
  await until(host, () => true);
  await engine.stop();
});

forEachStore("readStream() ends when the run is deleted, and when the engine stops", async (context) => {
  const { store, host } = context;
  const { engine, id, say, done } = await begin(context);
  const observer = createEngine({ store, host, jobs: {} });
  say("a");
  const reader = collect(engine.readStream(id, tokens));
  await until(host, () => reader.list.length === 1);
  const other = collect(observer.readStream(id, tokens));
  await until(host, () => other.list.length === 1);

  await observer.stop();
  await other.ended;
  say("return");
  await done;
  await engine.deleteRun(id);
  await pass(host, 2_000);
  await reader.ended;

  await assert.rejects(collect(engine.readStream(id, tokens)).ended, NotFoundError);
  await assert.rejects(engine.getStreams(id), NotFoundError);
  await engine.stop();
});

forEachStore("readStream() refuses what is no position, and an unknown run", async ({ store, host }) => {
  await using engine: Engine = createEngine({ store, host, jobs: {} });

  assert.throws(() => engine.readStream("x", tokens, { after: "12" }), TypeError);
  await assert.rejects(collect(engine.readStream("unknown", tokens)).ended, NotFoundError);
  await assert.rejects(collect(engine.readStream("unknown", tokens, { follow: false })).ended, NotFoundError);
});

forEachStore("readers of one stream share their reads, and those that wait read nothing", async ({ store, host }) => {
  let reads = 0;
  const counted = new Proxy(store, {
    get: (target, name) => {
      const call = Reflect.get(target, name, target);
      if (typeof call !== "function") return call;
      if (name !== "readStream") return call.bind(target);
      return (...parameters: Parameters<Store["readStream"]>) => {
        reads += 1;
        return target.readStream(...parameters);
      };
    },
  });
  const { engine, id, say, done } = await begin({ store, host }, counted);
  const readers = Array.from({ length: 50 }, () => collect(engine.readStream(id, tokens)));
  say("a");
  await until(host, () => readers.every(({ list }) => list.length === 1));
  await pass(host, 500);
  const before = reads;

  await pass(host, 5_000);
  const idle = reads - before;
  say("b");
  await until(host, () => readers.every(({ list }) => list.length === 2));

  assert.equal(idle, 0);
  assert.ok(reads - before < 10, `${reads - before} reads for one item and 50 readers`);
  say("return");
  await done;
  await pass(host, 100);
  await Promise.all(readers.map(({ ended }) => ended));
  await engine.stop();
});

forEachStore("readStream() reads on when the journal has lost rows", async ({ store, host }) => {
  let isGap = false;
  const gapped = new Proxy(store, {
    get: (target, name) => {
      const call = Reflect.get(target, name, target);
      if (typeof call !== "function") return call;
      if (name !== "readJournal") return call.bind(target);
      return (...parameters: Parameters<Store["readJournal"]>) => {
        if (!isGap) return target.readJournal(...parameters);
        isGap = false;
        return Promise.resolve(null);
      };
    },
  });
  const { engine, id, say, done } = await begin({ store, host }, gapped);
  const reader = collect(engine.readStream(id, tokens));
  say("a");
  await until(host, () => reader.list.length === 1);

  isGap = true;
  say("b");
  await until(host, () => reader.list.length === 2);

  assert.deepEqual(reader.list, ["a", "b"]);
  say("return");
  await done;
  await pass(host, 100);
  await reader.ended;
  await engine.stop();
});
