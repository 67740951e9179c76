// What event streams cost while very many are open in one process: how long one event holds the event loop until it
// has reached all of them, how much memory a stream takes, and what is left when its reader has gone. And what a
// reader costs who never reads while a run reports its progress.

import { setImmediate } from "node:timers";
import { createEngine, createHandler, defineJob, type Engine, type Handler, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";

const STREAMS = 10_000;
const EVENTS = 20;
const UNREAD = 100_000;

type Step = Parameters<typeof script["run"]>[0];

// How many chunks all readers together have got.
let chunks = 0;
let begun: (step: Step) => void = () => {};
let end: () => void = () => {};
const script = defineJob({
  name: "script",
  input: z.object({}),
  run: (step) =>
    new Promise<void>((resolve) => {
      end = resolve;
      begun(step);
    }),
});
const idler = defineJob({ name: "idler", input: z.object({}), run: () => {} });

const folder = await Deno.makeTempDir();
try {
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await using engine = createEngine({ store, jobs: { script, idler } });
  const handler = createHandler(engine, { sseThrottleMs: 0, limits: { maxStreams: STREAMS } });
  await measureOneRun(engine, handler);
  await measureLists(engine, handler);
  await measureManyRuns(engine, handler, `${folder}/jobs.db`);
  await measureUnread(engine, handler);
} finally {
  await Deno.remove(folder, { recursive: true });
}

/** Everybody follows the same run. */
async function measureOneRun(engine: Engine, handler: Handler): Promise<void> {
  const { id, step, idle } = await play(engine);
  await measureReaders(`${STREAMS} streams of one run`, handler, () => `/subscribe?runId=${id}`, step);
  end();
  await idle;
}

/** Everybody follows all runs. */
async function measureLists(engine: Engine, handler: Handler): Promise<void> {
  const { step, idle } = await play(engine);
  await measureReaders(`${STREAMS} streams of all runs`, handler, () => "/runs/subscribe?jobName=script", step);
  end();
  await idle;
}

async function measureReaders(what: string, handler: Handler, path: () => string, step: Step): Promise<void> {
  const memoryBefore = usedMemory();
  const readers = await openAll(handler, path);
  await untilIdle();
  const eachStream = (usedMemory() - memoryBefore) / STREAMS / 1_024;

  const times: number[] = [];
  for (let n = 0; n < EVENTS; n++) {
    const before = chunks;
    const startedAt = performance.now();
    step.progress(n);
    // What the readers do follows in microtasks, before anything else.
    await new Promise((resolve) => setImmediate(resolve));
    times.push(performance.now() - startedAt);
    if (chunks - before !== STREAMS) throw new Error(`${chunks - before} readers were told`);
  }
  times.sort((left, right) => left - right);
  console.log(`${what}: ${eachStream.toFixed(1)} kB each, with their readers`);
  console.log(`one event reaches all: ${times[EVENTS / 2]!.toFixed(1)} ms, ${times.at(-1)!.toFixed(1)} ms at the most`);

  await Promise.all(readers.splice(0).map((reader) => reader.cancel()));
  await untilIdle();
  const left = (usedMemory() - memoryBefore) / STREAMS;
  const startedAt = performance.now();
  step.progress(EVENTS);
  const afterwards = performance.now() - startedAt;
  console.log(
    `when all have left: ${left.toFixed(0)} bytes each, and an event takes ${(afterwards * 1_000).toFixed(0)} us`,
  );
}

/** Everybody follows another run, and another process changes some of them. */
async function measureManyRuns(engine: Engine, handler: Handler, path: string): Promise<void> {
  const ids: string[] = [];
  while (ids.length < STREAMS) {
    const batch = Array.from({ length: 500 }, () => engine.trigger(idler, {}));
    ids.push(...(await Promise.all(batch)).map(({ id }) => id));
  }
  const memoryBefore = usedMemory();
  const readers = await openAll(handler, (n) => `/subscribe?runId=${ids[n]}`);
  await untilIdle();
  const eachStream = (usedMemory() - memoryBefore) / STREAMS / 1_024;
  console.log(`${STREAMS} streams of as many runs: ${eachStream.toFixed(1)} kB each, with their readers`);

  // What it writes is not waited for: that it reaches the disk would hold the event loop, too.
  await using elsewhere = await SqliteStore.open(path, { synchronous: "normal" });
  await using other = createEngine({ store: elsewhere, jobs: { idler } });
  const held = await longestHold(async () => {
    for (let n = 0; n < 20; n++) {
      const before = chunks;
      await other.cancel(ids[n]!);
      while (chunks === before) await pause(5);
    }
  });
  console.log(
    `another process cancels 20 of the runs, one by one: holds the event loop for ${held.toFixed(1)} ms at the most`,
  );
  await Promise.all(readers.map((reader) => reader.cancel()));
}

/** Nobody reads what a run reports. */
async function measureUnread(engine: Engine, handler: Handler): Promise<void> {
  const { id, step, idle } = await play(engine);
  const response = await handler.fetch(new Request(`http://localhost/subscribe?runId=${id}`));
  await untilIdle();
  const before = usedMemory();
  const startedAt = performance.now();
  for (let n = 0; n < UNREAD; n++) {
    step.progress(n, UNREAD, "one of very many rows");
    if (n % 1_000 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  const each = (performance.now() - startedAt) * 1_000 / UNREAD;
  const more = (usedMemory() - before) / 1_024;
  console.log(`${UNREAD} times progress that nobody reads: ${more.toFixed(0)} kB more, ${each.toFixed(1)} us each`);
  await response.body!.cancel();
  end();
  await idle;
}

/** Begins a run that reports what it is told to. */
async function play(engine: Engine): Promise<{ id: string; step: Step; idle: Promise<unknown> }> {
  const beginning = new Promise<Step>((resolve) => begun = resolve);
  const { id } = await engine.trigger(script, {});
  const idle = engine.runUntilIdle();
  return { id, step: await beginning, idle };
}

async function openAll(
  handler: Handler,
  path: (n: number) => string,
): Promise<ReadableStreamDefaultReader<Uint8Array>[]> {
  const readers = [];
  for (let n = 0; n < STREAMS; n++) {
    const response = await handler.fetch(new Request(`http://localhost${path(n)}`));
    const reader = response.body!.getReader();
    readAll(reader);
    readers.push(reader);
  }
  return readers;
}

async function readAll(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  while (!(await reader.read()).done) chunks += 1;
}

/** For how long nothing else could happen, at the most, while something was done. */
async function longestHold(work: () => Promise<void>): Promise<number> {
  let longest = 0;
  let last = performance.now();
  const watch = setInterval(() => {
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
  }, 1);
  await work();
  clearInterval(watch);
  return longest;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Lets the streams begin, and the first looks at the store pass. */
function untilIdle(): Promise<void> {
  return pause(1_500);
}

function usedMemory(): number {
  // @ts-ignore: there with --v8-flags=--expose-gc
  for (let n = 0; n < 3; n++) globalThis.gc?.();
  const { heapUsed, external } = Deno.memoryUsage();
  return heapUsed + external;
}
