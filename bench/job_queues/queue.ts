import { loadOther } from "../load_other.ts";

/** A job queue, as the adapter drives it: by what its users have, apart from counting what waits. */
export interface Queue {
  /** What the descriptor says of it. */
  readonly about: QueueDescription;
  /** Begins to execute jobs. */
  start(): Promise<void>;
  /** Adds jobs, in one call. */
  insert(jobs: readonly JobInput[]): Promise<void>;
  /** How many jobs no worker has taken yet. */
  readDepth(): Promise<number>;
  /** Stops, and closes the connections. */
  stop(): Promise<void>;
}

/** What is known of a queue when its tables have been made. */
export interface QueueDescription {
  /** What was measured, with its version. */
  version: string;
  /** The version of its tables. */
  schemaVersion: string;
  /** The tables that its jobs change, the one with the jobs first. */
  eventTables: string[];
}

/** The input of a job. */
export interface JobInput {
  /** The number of the job, in its process. */
  seq: number;
  /** When it was added, by the clock of the machine. */
  enqueuedAtMs: number;
  /** Makes it as long as it is to be. */
  padding: string;
}

/** How a queue is opened. */
export interface QueueOptions {
  /** The address of its database. */
  url: string;
  /** How many workers there are. */
  workers: number;
  /** How many jobs a second are added: what a worker fetches at once can depend on it. */
  rate: number;
  /** Does the work of some jobs that a worker has taken together, one after the other. */
  work(jobs: readonly JobInput[]): Promise<void>;
  /** Called when so many jobs have ended, as far as the queue says it. */
  onEnd(count: number): void;
}

type Open = (options: QueueOptions) => Promise<Queue>;

/** Opens a queue, by its name in the benchmark. */
export const QUEUES = {
  holdfast: async () => (await import("./holdfast_queue.ts")).openHoldfast,
  pgboss: async () => (await loadOther<{ openPgBoss: Open }>("job_queues/pg_boss_queue.ts")).openPgBoss,
} as const satisfies Record<string, () => Promise<Open>>;

/** The name of a queue. */
export type QueueName = keyof typeof QUEUES;
