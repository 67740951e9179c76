import { PLAIN_FLOW } from "../../src/model/flow.ts";
import { createEngine, createHandler, SqliteStore } from "@holdfast/jobs";
import { existsSync } from "node:fs";
import process from "node:process";
import { pause } from "../pause.ts";
import type { Setting } from "../setting.ts";
import type { Measure, Trial, Workload } from "../workload.ts";

const RUNS = 1_000;
const MAX_OLD_SPACE_MB = 256;
const SLOW_PAUSE_MS = 10;

/** What a list takes whose values are as large as values can be. */
export const largeAnswers: Workload = {
  name: "large_answers",
  title: "GET /runs of 1,000 runs with 1 MiB of input each",
  about:
    `A process with --max-old-space-size=${MAX_OLD_SPACE_MB} serves a file, another one reads the answer: as fast as it ` +
    `can, or with a pause of ${SLOW_PAUSE_MS} ms after each MiB. The memory is the most that the list adds to a process that has answered ` +
    "five runs before. A timer every millisecond tells how long the event loop is held; of that, no more counts than the " +
    "process has used its cores, so that other processes do not. The inputs are one long text, or 350,000 small objects.",
  trials: [
    trial("one text, read fast", "text", 0),
    trial("one text, read slowly", "text", SLOW_PAUSE_MS),
    trial("small objects, read fast", "objects", 0),
  ],
};

type Kind = "text" | "objects";

/** What the serving process tells. */
interface Report {
  residentMb: number;
  heapMb: number;
  longestMs: number;
}

function trial(name: string, kind: Kind, pauseMs: number): Trial {
  return {
    name,
    figures: [
      { name: "first byte", unit: "ms", goals: [] },
      { name: "last byte", unit: "ms", goals: [] },
      { name: "resident", unit: "MB", goals: [{ below: 32 }] },
      { name: "heap", unit: "MB", goals: [{ below: 32 }] },
      { name: "longest block", unit: "ms", goals: [{ below: 20 }] },
    ],
    rounds: 3,
    contenders: { holdfast: read(kind, pauseMs) },
  };
}

function read(kind: Kind, pauseMs: number): Measure {
  return async (setting) => {
    const path = await fill(setting, kind, setting.size(RUNS, 20));
    await using server = serve(path);
    const url = await server.url;
    await (await fetch(`${url}/runs?limit=5`)).body?.pipeTo(new WritableStream());
    await (await fetch(`${url}/begin`)).text();
    const startedAt = performance.now();
    let firstByteMs: number | null = null;
    let bytes = 0;
    for await (const chunk of (await fetch(`${url}/runs?limit=${RUNS}`)).body!) {
      firstByteMs ??= performance.now() - startedAt;
      bytes += chunk.length;
      if (pauseMs > 0 && bytes % 2 ** 20 < chunk.length) await pause(pauseMs);
    }
    const lastByteMs = performance.now() - startedAt;
    if (bytes < setting.size(RUNS, 20) * 1_000_000) throw new Error(`The answer has only ${bytes} bytes`);
    const { residentMb, heapMb, longestMs }: Report = await (await fetch(`${url}/end`)).json();
    return [firstByteMs, lastByteMs, residentMb, heapMb, longestMs];
  };
}

/** Makes a file with so many runs, once for each command. */
async function fill(setting: Setting, kind: Kind, runs: number): Promise<string> {
  const path = `${setting.shared}/large_${kind}_${runs}.db`;
  if (existsSync(path)) return path;
  setting.say(`making ${runs} runs of 1 MiB`);
  const items = kind === "text" ? "x".repeat(2 ** 20 - 20) : Array.from({ length: 349_000 }, () => ({}));
  const payload = JSON.stringify({ items });
  await using store = await SqliteStore.open(path);
  await store.migrate();
  for (let n = 0; n < runs; n++) {
    await store.enqueue([{
      id: crypto.randomUUID(),
      jobName: "large",
      version: 1,
      aliases: [],
      schemaPrint: null,
      payload,
      input: payload,
      labels: {},
      idempotencyKey: null,
      concurrencyKey: null,
      coalesce: null,
      retriggerOf: null,
      flow: PLAIN_FLOW,
      schedule: null,
      trace: null,
    }]);
  }
  return path;
}

/** Starts the process that serves a file. */
function serve(path: string): AsyncDisposable & { url: Promise<string> } {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `--v8-flags=--max-old-space-size=${MAX_OLD_SPACE_MB}`, import.meta.url, path],
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const reader = child.stdout.getReader();
  return {
    url: reader.read().then(({ value }) => new TextDecoder().decode(value).trim()),
    [Symbol.asyncDispose]: async () => {
      child.kill();
      await reader.cancel();
      await child.status;
    },
  };
}

/** What the other process does. */
async function answer(path: string): Promise<void> {
  const store = await SqliteStore.open(path);
  const { fetch } = createHandler(createEngine({ store, jobs: {} }));
  let report: (() => Report) | null = null;
  Deno.serve({
    hostname: "127.0.0.1",
    port: 0,
    onListen: ({ port }) => console.log(`http://127.0.0.1:${port}`),
  }, async (request) => {
    const { pathname } = new URL(request.url);
    if (pathname === "/begin") report = watch();
    else if (pathname === "/end") return Response.json(report!());
    else return await fetch(request);
    return new Response(null);
  });
}

/** Watches memory and the event loop until it is asked for its report. */
function watch(): () => Report {
  const before = used();
  const most = { residentMb: 0, heapMb: 0, longestMs: 0 };
  let last = performance.now();
  let lastCpu = process.cpuUsage();
  const look = () => {
    const { residentMb, heapMb } = used();
    const { user, system } = process.cpuUsage(lastCpu);
    const gap = performance.now() - last;
    most.residentMb = Math.max(most.residentMb, residentMb - before.residentMb);
    most.heapMb = Math.max(most.heapMb, heapMb - before.heapMb);
    most.longestMs = Math.max(most.longestMs, Math.min(gap, (user + system) / 1_000));
    last = performance.now();
    lastCpu = process.cpuUsage();
  };
  const timer = setInterval(look, 1);
  return () => {
    clearInterval(timer);
    return most;
  };
}

function used(): { residentMb: number; heapMb: number } {
  const { rss, heapUsed, external } = Deno.memoryUsage();
  return { residentMb: rss / 2 ** 20, heapMb: (heapUsed + external) / 2 ** 20 };
}

if (import.meta.main) await answer(Deno.args[0]!);
