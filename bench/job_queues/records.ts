import type { QueueDescription } from "./queue.ts";
import type { Percentiles } from "./latencies.ts";

/** For how many seconds latencies count. */
export const WINDOW_S = 30;

/** The line that an adapter prints when it has started. */
export interface Descriptor {
  kind: "descriptor";
  system: string;
  event_tables: string[];
  extensions: string[];
  version: string;
  schema_version: string;
  db_name: string;
  started_at: string;
  instance_id: number;
}

/** A line with one number. */
export interface Sample {
  t: string;
  system: string;
  kind: "adapter";
  subject_kind: "adapter";
  subject: "";
  metric: string;
  value: number;
  window_s: number;
  instance_id: number;
}

/** Who prints the lines. */
export interface Source {
  /** The name of the queue in the benchmark. */
  system: string;
  /** Which of several processes it is. */
  instance: number;
}

/** What is known at one instant. */
export interface Measured {
  /** How long a job took to be added: its part of the call. */
  producer: Percentiles;
  /** How long a job waited until a worker began it. */
  pickup: Percentiles;
  /** How long it took until it had ended. */
  endToEnd: Percentiles;
  /** How many jobs were added a second. */
  enqueueRate: number;
  /** How many jobs ended a second. */
  completionRate: number;
  /** How many jobs no worker has taken yet. */
  queueDepth: number;
  /** How many jobs are to be added a second. */
  targetRate: number;
}

/** Builds the first line. */
export function toDescriptor(
  { system, instance }: Source,
  about: QueueDescription,
  databaseUrl: string,
  startedAt: Date,
): Descriptor {
  return {
    kind: "descriptor",
    system,
    event_tables: about.eventTables,
    extensions: [],
    version: about.version,
    schema_version: about.schemaVersion,
    db_name: new URL(databaseUrl).pathname.slice(1),
    started_at: startedAt.toISOString(),
    instance_id: instance,
  };
}

/** Builds the lines of one instant. What is the same for all processes is printed by the first one. */
export function toSamples({ system, instance }: Source, measured: Measured, at: Date, sampleEveryS: number): Sample[] {
  const latencies = { producer: measured.producer, subscriber: measured.pickup, claim: measured.pickup };
  const numbers: [metric: string, value: number, windowS: number][] = [
    ...Object.entries({ ...latencies, end_to_end: measured.endToEnd }).flatMap(([name, percentiles]) =>
      Object.entries(percentiles).map(([part, ms]): [string, number, number] => [`${name}_${part}_ms`, ms, WINDOW_S])
    ),
    ["enqueue_rate", measured.enqueueRate, sampleEveryS],
    ["completion_rate", measured.completionRate, sampleEveryS],
  ];
  if (instance === 0) {
    numbers.push(["queue_depth", measured.queueDepth, 0], ["producer_target_rate", measured.targetRate, 0]);
  }
  return numbers.map(([metric, value, window_s]) => ({
    t: at.toISOString(),
    system,
    kind: "adapter",
    subject_kind: "adapter",
    subject: "",
    metric,
    value,
    window_s,
    instance_id: instance,
  }));
}
