import { pause } from "../pause.ts";
import type { JobInput } from "./queue.ts";

/** How many jobs are added a second. */
export interface Rate {
  /** The number, unless there is a file. */
  perSecond: number;
  /** A file with the number, which the benchmark changes; `null`: there is none. */
  file: string | null;
}

/** Adds jobs, and notes what came of it. */
export interface Producer {
  /** The queue's call, with inputs that are as long as they are to be. */
  insert(jobs: readonly JobInput[]): Promise<void>;
  /** Called with each rate that is read. */
  onRate(rate: number): void;
  /** The maximum number of jobs that are added at once. */
  batchMax: number;
  /** How long it waits when it has nothing to add, in milliseconds. */
  batchMs: number;
  /** About how long the input of a job is. */
  payloadBytes: number;
  /** When it is to stop. */
  stopping: AbortSignal;
}

// The least input, without padding. The benchmark's own adapters subtract the same.
const BYTES_WITHOUT_PADDING = 96;
const BACKOFF_MS = 200;

/**
 * Adds jobs at a rate. What is due is computed from the time that has passed, so a call that takes long, or fails, makes the
 * next ones larger or more frequent, and the rate is kept.
 */
export async function produceAtRate(producer: Producer, rate: Rate): Promise<void> {
  const add = adder(producer);
  let due = 0;
  let at = performance.now();
  while (!producer.stopping.aborted) {
    const perSecond = await readRate(rate);
    producer.onRate(perSecond);
    const now = performance.now();
    due += perSecond * (now - at) / 1_000;
    at = now;
    const count = Math.min(producer.batchMax, Math.floor(due));
    if (count > 0 && await add(count)) due -= count;
    if (due < 1) await pause(producer.batchMs);
  }
}

/** Adds jobs while fewer than so many wait. */
export async function produceToDepth(producer: Producer, target: number, readDepth: () => Promise<number>) {
  const add = adder(producer);
  while (!producer.stopping.aborted) {
    const depth = await readDepth().catch(reportFailure);
    const count = depth === null ? 0 : Math.max(0, Math.min(producer.batchMax, target - depth));
    if (count > 0) await add(count);
    else await pause(depth === null ? BACKOFF_MS : producer.batchMs);
  }
}

/** Adds as many jobs as the lines say: `ENQUEUE 25`. A number that could not be added is not tried again. */
export async function produceByLines(producer: Producer, lines: AsyncIterable<string>): Promise<void> {
  const add = adder(producer);
  for await (const line of lines) {
    const [, count] = /^ENQUEUE (\d+)$/.exec(line) ?? [];
    if (count !== undefined) await add(Number(count));
    if (producer.stopping.aborted) return;
  }
}

/** The number in the file, if it has one. */
export async function readRate({ perSecond, file }: Rate): Promise<number> {
  if (file === null) return perSecond;
  const text = await Deno.readTextFile(file).catch(() => "");
  const number = Number(text);
  return text.trim() === "" || !Number.isFinite(number) ? perSecond : number;
}

/** Adds so many jobs; `false`: it failed, as it does while there is no server. */
function adder({ insert, payloadBytes }: Producer): (count: number) => Promise<boolean> {
  const padding = "x".repeat(Math.max(0, payloadBytes - BYTES_WITHOUT_PADDING));
  let seq = 0;
  return async (count) => {
    const jobs = Array.from({ length: count }, () => ({ seq: ++seq, enqueuedAtMs: Date.now(), padding }));
    const added = await insert(jobs).then(() => true, reportFailure);
    if (added === null) await pause(BACKOFF_MS);
    return added !== null;
  };
}

function reportFailure(error: unknown): null {
  console.error(error instanceof Error ? error.message : error);
  return null;
}
