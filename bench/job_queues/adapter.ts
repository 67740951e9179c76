// A process of the neutral benchmark of job queues on PostgreSQL: see README.md. It adds jobs and executes them until it
// gets SIGTERM, and prints what it measures, one JSON object a line. What it logs goes to the standard error.
//
// deno run -A --config bench/deno.json bench/job_queues/adapter.ts [holdfast | pgboss]

import { createInterface } from "node:readline";
import process from "node:process";
import { pause } from "../pause.ts";
import { Latencies } from "./latencies.ts";
import { produceAtRate, produceByLines, type Producer, produceToDepth } from "./producer.ts";
import { type JobInput, type QueueName, QUEUES } from "./queue.ts";
import { type Descriptor, type Sample, toDescriptor, toSamples, WINDOW_S } from "./records.ts";
import { readSettings } from "./settings.ts";

const DEPTH_EVERY_MS = 250;
// The benchmark waits for 5 seconds.
const LONGEST_STOP_MS = 4_000;

const startedAt = new Date();
const system = (Deno.args[0] ?? "holdfast") as QueueName;
const settings = readSettings(Deno.env);
const { workers, workMs, rate, sampleEveryS, instance } = settings;
const source = { system, instance };
const stopping = new AbortController();
for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => stopping.abort());

const latencies = {
  producer: new Latencies(WINDOW_S),
  pickup: new Latencies(WINDOW_S),
  endToEnd: new Latencies(WINDOW_S),
};
let [added, ended, depth, targetRate] = [0, 0, 0, rate.perSecond];

async function work(jobs: readonly JobInput[]): Promise<void> {
  const begunAt = Date.now();
  for (const { enqueuedAtMs } of jobs) latencies.pickup.record(begunAt - enqueuedAtMs, begunAt);
  if (workMs > 0) await pause(workMs * jobs.length);
  const endedAt = Date.now();
  for (const { enqueuedAtMs } of jobs) latencies.endToEnd.record(endedAt - enqueuedAtMs, endedAt);
}

const open = await QUEUES[system]();
const queue = await open({
  url: settings.databaseUrl,
  workers,
  rate: rate.perSecond,
  work,
  onEnd: (count) => ended += count,
});
print(toDescriptor(source, queue.about, settings.databaseUrl, startedAt));
await queue.start();

const producer: Producer = {
  ...settings,
  stopping: stopping.signal,
  onRate: (perSecond) => targetRate = perSecond,
  async insert(jobs) {
    const before = performance.now();
    await queue.insert(jobs);
    added += jobs.length;
    latencies.producer.record((performance.now() - before) / jobs.length, Date.now(), jobs.length);
  },
};
const readDepth = async () => depth = await queue.readDepth();

void produce();
if (instance === 0) void watchDepth();
void sample();
stopping.signal.addEventListener("abort", async () => {
  await Promise.race([queue.stop().catch(console.error), pause(LONGEST_STOP_MS)]);
  Deno.exit(0);
});

function produce(): Promise<void> {
  if (settings.producerMode === "depth-target") return produceToDepth(producer, settings.targetDepth, readDepth);
  if (settings.pacing === "adapter") return produceAtRate(producer, rate);
  return produceByLines(producer, createInterface({ input: process.stdin }));
}

async function watchDepth(): Promise<void> {
  while (!stopping.signal.aborted) {
    await readDepth().catch(() => {}); // the producer says that there is no server
    await pause(DEPTH_EVERY_MS);
  }
}

/** Prints all numbers at each multiple of the interval, so that those of several processes belong together. */
async function sample(): Promise<void> {
  const intervalMs = sampleEveryS * 1_000;
  let [addedBefore, endedBefore, before] = [added, ended, performance.now()];
  while (!stopping.signal.aborted) {
    await pause(intervalMs - Date.now() % intervalMs);
    const [at, now] = [new Date(), performance.now()];
    const seconds = (now - before) / 1_000;
    const measured = {
      producer: latencies.producer.percentiles(at.getTime()),
      pickup: latencies.pickup.percentiles(at.getTime()),
      endToEnd: latencies.endToEnd.percentiles(at.getTime()),
      enqueueRate: (added - addedBefore) / seconds,
      completionRate: (ended - endedBefore) / seconds,
      queueDepth: depth,
      targetRate,
    };
    [addedBefore, endedBefore, before] = [added, ended, now];
    for (const line of toSamples(source, measured, at, sampleEveryS)) print(line);
  }
}

function print(record: Descriptor | Sample): void {
  const line = new TextEncoder().encode(`${JSON.stringify(record)}\n`);
  for (let from = 0; from < line.length;) from += Deno.stdout.writeSync(line.subarray(from));
}
