import { createEngine, createHandler, defineJob, type Engine, type Handler, SqliteStore } from "@holdfast/jobs";
import { setImmediate } from "node:timers";
import { z } from "zod";
import { longestGap } from "../longest_gap.ts";
import { pause } from "../pause.ts";
import { percentile } from "../statistics.ts";
import type { Setting } from "../setting.ts";
import type { Goal, Workload } from "../workload.ts";

const STREAMS = 10_000;
const EVENTS = 20;
const UNREAD = 100_000;
const BELOW: readonly Goal[] = [{ below: 50 }];

/** What it costs to tell very many readers what happens. */
export const fanOut: Workload = {
  name: "fan_out",
  title: "10,000 event streams in one process",
  about:
    "From the commit of an event until each reader has it, the median of 20. Raw hands the same bytes to as many " +
    "bare ReadableStreams. A stream's memory is that of its reader, too. What another process does is found by reading " +
    "the journal: the figure is how long the event loop is held.",
  trials: [
    {
      name: "all of one run",
      figures: [
        { name: "an event reaches all", unit: "ms", goals: BELOW },
        { name: "it is encoded", unit: "times", goals: [{ below: 5 }] },
        { name: "a stream takes", unit: "kB", goals: [] },
      ],
      rounds: 2,
      contenders: { raw, holdfast: (setting) => measureReaders(setting, (id) => `/subscribe?runId=${id}`) },
    },
    {
      name: "all of all runs",
      figures: [
        { name: "an event reaches all", unit: "ms", goals: BELOW },
        { name: "it is encoded", unit: "times", goals: [{ below: 5 }] },
        { name: "a stream takes", unit: "kB", goals: [] },
      ],
      rounds: 2,
      contenders: { holdfast: (setting) => measureReaders(setting, () => "/runs/subscribe?jobName=script") },
    },
    {
      name: "each of another run, and another process changes some of them",
      figures: [{ name: "held", unit: "ms", goals: [] }],
      rounds: 1,
      contenders: { holdfast: measureManyRuns },
    },
    {
      name: "one, which nobody reads, of a run that reports progress 100,000 times",
      figures: [{ name: "memory", unit: "kB", goals: [] }, { name: "a report", unit: "µs", goals: [] }],
      rounds: 1,
      contenders: { holdfast: measureUnread },
    },
  ],
};

const noInput = z.object({});
type Step = Parameters<typeof script["run"]>[0];
const KEY = "key";
// Readers are sent ids of events, as an EventSource is.
const EVENT_SOURCE = { accept: "text/event-stream" };
// How many events all readers together have received.
let chunks = 0;
// The first bytes of "data: ", and of "retry: ", which comes before the last event of a run.
const EVENT = [0x64, 0x72];
let begun: (step: Step) => void = () => {};
let end: () => void = () => {};
const script = defineJob({
  name: "script",
  input: noInput,
  run: (step) =>
    new Promise<void>((resolve) => {
      end = resolve;
      begun(step);
    }),
});
const idler = defineJob({ name: "idler", input: noInput, run: () => {} });
const jobs = { script, idler };

async function withHandler<T>(
  folder: string,
  work: (engine: Engine<typeof jobs>, handler: Handler) => Promise<T>,
): Promise<T> {
  await using store = await SqliteStore.open(`${folder}/jobs.db`);
  await using engine = createEngine({ store, jobs });
  return await work(engine, createHandler(engine, { sseThrottleMs: 0, limits: { maxStreams: STREAMS } }));
}

function measureReaders({ folder, size }: Setting, path: (runId: string) => string): Promise<number[]> {
  const count = size(STREAMS, 50);
  return withHandler(folder, async (engine, handler) => {
    const { id, idle } = await play(engine);
    const memoryBefore = usedMemory();
    const readers = await openAll(handler, count, () => path(id));
    await pause(size(1_500, 200)); // the streams begin, and the first looks at the store pass
    const eachStream = (usedMemory() - memoryBefore) / count / 1_024;
    let encoded = 0;
    const ms = await countEncodings(() => encoded += 1, () => reachAll(count, () => joinRun(engine)));
    await Promise.all(readers.map((reader) => reader.cancel()));
    end();
    await idle;
    return [ms, encoded / EVENTS, eachStream];
  });
}

/** A trigger joins the run: one event, of the run as well as of lists. Answers when it was committed. */
async function joinRun(engine: Engine<typeof jobs>): Promise<number> {
  const { promise: committed, resolve } = Promise.withResolvers<number>();
  const stopListening = engine.on("run:coalesced", () => resolve(performance.now()));
  await engine.jobs.script.trigger({}, { concurrencyKey: KEY, coalesce: "active" });
  stopListening();
  return await committed;
}

/**
 * Publishes something several times; the median of how long it takes until everybody has it.
 *
 * @param publish Answers since when.
 */
async function reachAll(count: number, publish: (n: number) => number | Promise<number>): Promise<number> {
  const times: number[] = [];
  for (let n = 0; n < EVENTS; n++) {
    const goal = chunks + count;
    const startedAt = await publish(n);
    while (chunks < goal) {
      if (performance.now() - startedAt > 5_000) {
        throw new Error(`${goal - chunks} readers have not received the event`);
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
    times.push(performance.now() - startedAt);
    await pause(20); // the ids follow
  }
  return percentile(times, 0.5);
}

/** Counts how often text is turned into bytes meanwhile. */
async function countEncodings<T>(note: () => void, work: () => Promise<T>): Promise<T> {
  const { encode } = TextEncoder.prototype;
  TextEncoder.prototype.encode = function (text) {
    note();
    return encode.call(this, text);
  };
  try {
    return await work();
  } finally {
    TextEncoder.prototype.encode = encode;
  }
}

async function raw({ size }: Setting): Promise<(number | null)[]> {
  const count = size(STREAMS, 50);
  const memoryBefore = usedMemory();
  const controllers: ReadableStreamDefaultController<Uint8Array>[] = [];
  const readers = Array.from({ length: count }, () => {
    const stream = new ReadableStream<Uint8Array>({ start: (controller) => void controllers.push(controller) });
    const reader = stream.getReader();
    readAll(reader);
    return reader;
  });
  await pause(size(500, 50));
  const eachStream = (usedMemory() - memoryBefore) / count / 1_024;
  const encoder = new TextEncoder();
  const ms = await reachAll(count, (n) => {
    const startedAt = performance.now();
    const bytes = encoder.encode(`data: ${JSON.stringify({ type: "run:progress", progress: { current: n } })}\n\n`);
    for (const controller of controllers) controller.enqueue(bytes);
    return startedAt;
  });
  await Promise.all(readers.map((reader) => reader.cancel()));
  return [ms, null, eachStream];
}

function measureManyRuns({ folder, size }: Setting): Promise<number[]> {
  const count = size(STREAMS, 50);
  return withHandler(folder, async (engine, handler) => {
    const ids: string[] = [];
    while (ids.length < count) {
      const batch = Array.from({ length: 50 }, () => ({ input: {} }));
      ids.push(...(await engine.jobs.idler.batchTrigger(batch)).map(({ id }) => id));
    }
    const readers = await openAll(handler, count, (n) => `/subscribe?runId=${ids[n]}`);
    await pause(size(1_500, 200));
    // What it writes is not waited for: that it reaches the disk would hold the event loop, too.
    await using elsewhere = await SqliteStore.open(`${folder}/jobs.db`, { synchronous: "normal" });
    await using other = createEngine({ store: elsewhere, jobs });
    const { longestMs } = await longestGap(() => 0, async () => {
      for (let n = 0; n < size(EVENTS, 3); n++) {
        const before = chunks;
        await other.cancel(ids[n]!);
        for (let tries = 0; chunks === before; tries++) {
          if (tries > 2_000) throw new Error("A reader has not received the event");
          await pause(5);
        }
      }
    });
    await Promise.all(readers.map((reader) => reader.cancel()));
    return [longestMs];
  });
}

function measureUnread({ folder, size }: Setting): Promise<number[]> {
  const count = size(UNREAD, 1_000);
  return withHandler(folder, async (engine, handler) => {
    const { id, step, idle } = await play(engine);
    const response = await handler.fetch(new Request(`http://localhost/subscribe?runId=${id}`));
    await pause(size(1_500, 200));
    const before = usedMemory();
    const startedAt = performance.now();
    for (let n = 0; n < count; n++) {
      step.progress(n, count, "one of very many rows");
      if (n % 1_000 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const each = (performance.now() - startedAt) * 1_000 / count;
    const more = (usedMemory() - before) / 1_024;
    await response.body!.cancel();
    end();
    await idle;
    return [more, each];
  });
}

/** Begins a run that reports what its input says. */
async function play(engine: Engine<typeof jobs>): Promise<{ id: string; step: Step; idle: Promise<unknown> }> {
  const beginning = new Promise<Step>((resolve) => begun = resolve);
  const { id } = await engine.jobs.script.trigger({}, { concurrencyKey: KEY });
  const idle = engine.runUntilIdle();
  return { id, step: await beginning, idle };
}

async function openAll(
  handler: Handler,
  count: number,
  path: (n: number) => string,
): Promise<ReadableStreamDefaultReader<Uint8Array>[]> {
  const readers = [];
  for (let n = 0; n < count; n++) {
    const response = await handler.fetch(new Request(`http://localhost${path(n)}`, { headers: EVENT_SOURCE }));
    const reader = response.body!.getReader();
    readAll(reader);
    readers.push(reader);
  }
  return readers;
}

async function readAll(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
    if (EVENT.includes(chunk.value[0]!)) chunks += 1; // not an id, nor a comment
  }
}

function usedMemory(): number {
  for (let n = 0; n < 3; n++) (globalThis as { gc?: () => void }).gc?.();
  const { heapUsed, external } = Deno.memoryUsage();
  return heapUsed + external;
}
