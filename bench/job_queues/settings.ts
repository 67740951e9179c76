import type { Rate } from "./producer.ts";

/** What the benchmark tells an adapter by its environment. */
export interface Settings {
  /** The address of a database of its own. */
  databaseUrl: string;
  /** Whether jobs are added at a rate, or so that always as many wait. */
  producerMode: "fixed" | "depth-target";
  /** Who keeps the rate: the adapter, or the benchmark by lines of the standard input. */
  pacing: "adapter" | "harness";
  /** The rate; a file can change it. */
  rate: Rate;
  /** The maximum number of jobs that are added at once. */
  batchMax: number;
  /** How long the producer waits when it has nothing to add, in milliseconds. */
  batchMs: number;
  /** How many jobs are to wait. */
  targetDepth: number;
  /** How many workers there are. */
  workers: number;
  /** About how long the input of a job is. */
  payloadBytes: number;
  /** How long a job works, in milliseconds. */
  workMs: number;
  /** How often metrics are printed. */
  sampleEveryS: number;
  /** Which of several processes this one is. The first one prints what is the same for all. */
  instance: number;
}

/**
 * Reads the settings, with the defaults of the benchmark.
 *
 * @throws {Error} `DATABASE_URL` is missing, a number is none, or the mode or the scenario is unknown.
 */
export function readSettings(env: { get(name: string): string | undefined }): Settings {
  const databaseUrl = env.get("DATABASE_URL");
  if (databaseUrl === undefined) throw new Error("DATABASE_URL must be set");
  const count = (name: string, byDefault: number) => {
    const value = Number(env.get(name) ?? byDefault);
    if (!Number.isFinite(value) || value < 0) throw new Error(`${name} is no number: ${env.get(name)}`);
    return value;
  };
  const oneOf = <T extends string>(name: string, values: readonly [T, ...T[]]): T => {
    const value = env.get(name) ?? values[0];
    const found = values.find((one) => one === value);
    if (found === undefined) throw new Error(`${name} must be one of ${values.join(", ")}, not ${value}`);
    return found;
  };
  oneOf("SCENARIO", ["long_horizon"]);
  return {
    databaseUrl,
    producerMode: oneOf("PRODUCER_MODE", ["fixed", "depth-target"]),
    pacing: oneOf("PRODUCER_PACING", ["adapter", "harness"]),
    rate: { perSecond: count("PRODUCER_RATE", 800), file: env.get("PRODUCER_RATE_CONTROL_FILE") ?? null },
    batchMax: count("PRODUCER_BATCH_MAX", 128),
    batchMs: count("PRODUCER_BATCH_MS", 10),
    targetDepth: count("TARGET_DEPTH", 1_000),
    workers: count("WORKER_COUNT", 32),
    payloadBytes: count("JOB_PAYLOAD_BYTES", 256),
    workMs: count("JOB_WORK_MS", 1),
    sampleEveryS: count("SAMPLE_EVERY_S", 5),
    instance: count("BENCH_INSTANCE_ID", 0),
  };
}
