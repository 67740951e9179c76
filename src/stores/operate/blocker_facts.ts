import type { KnownJob, Rate } from "../../model/flow.ts";
import type { StoredRun } from "../../model/run.ts";
import type { Blocker, BlockingRun, BlockingWorker, UnreadName } from "../../store/blockers.ts";
import type { JobPause } from "../../store/operate.ts";
import { isAloneQueue, jobNameOf, queueName, versionOf } from "../queue_name.ts";

/** Up to how many runs before another one are counted. */
export const MAX_AHEAD = 1_000;

/** What a store reads of one run, and of what may hold it up. Instants are milliseconds. */
export interface BlockerFacts {
  /** The run. */
  run: StoredRun;
  /** The current instant. */
  now: number;
  /** The queue from which it is claimed. */
  queue: string;
  /** Its place in the order of claims; a run that kept its key comes first of all. */
  position: number;
  /** When its lease was given; `null` if it has none. */
  leasedAt: number | null;
  /** The parent that has ended without it; `null`: none. */
  endedParentId: string | null;
  /** Whether it stands in a queue, or will with the next claim; a held run does only while it is offered. */
  isDue: boolean;
  /** When it becomes due, if it is delayed, or is claimed alone, and waits for that; `null`: it does not. */
  delayedUntil: number | null;
  /** How often in a row it was abandoned. */
  abandonments: number;
  /** Since when it is due, or was triggered; of a waiting run whose time comes later, when it will be due. */
  dueSince: number;
  /** What a waiting run waits for, the first deadline first. */
  awaited: Extract<Blocker, { kind: "signal" | "message" | "sleep" | "retry" | "child" }>[];
  /** Of a run that has ended, the messages that it has not received, the name of the oldest one first. */
  unread: readonly UnreadName[];
  /** The paused jobs. */
  paused: readonly JobPause[];
  /** The workers that are known. */
  workers: readonly WorkerFacts[];
  /** Its concurrency key; `null`: it has none. */
  key: KeyFacts | null;
  /**
   * What the limits of all live workers allow for its job, in all versions, and for those of the other runs in the queue
   * of its key.
   */
  limits: readonly LimitFacts[];
  /** How many runs that have passed their keys come before it in the queues of the workers that have its job. */
  readyBefore: number;
}

/** A worker that has claimed. */
export interface WorkerFacts extends BlockingWorker {
  /** When it claimed last. */
  lastSeenAt: number;
  /** How long its leases last. */
  leaseMs: number;
  /** The queues from which it claims, without those of the runs that are claimed alone. */
  queues: readonly string[];
  /** The limits of its jobs, where they have any. */
  limits: readonly WorkerLimit[];
  /** How many runs it executes at most; `null`: it is not known. */
  concurrency: number | null;
  /** How many runs are under its leases. */
  leases: number;
}

/** The limits of a job in the code of a worker. */
export type WorkerLimit = Pick<KnownJob, "names" | "concurrency" | "rate"> & { queue: string };

/** The limits that a worker has for its jobs. */
export function limitsOf(jobs: readonly KnownJob[]): WorkerLimit[] {
  return jobs.filter(({ concurrency, rate }) => concurrency !== null || rate !== null).map((job) => {
    const { name, names, version, concurrency, rate } = job;
    return { queue: queueName(name, version), names, concurrency, rate };
  });
}

/** What a limit of a job allows. */
export interface LimitFacts {
  /** The worker that has the limit. */
  workerId: string;
  /** The queue of the version of the job. */
  queue: string;
  /** How many runs of the job are executed, ghosts included. */
  inUse: number;
  /** How many may be; `null`: without limit. */
  concurrency: number | null;
  /** Its rate, how many more runs may start, and when the next one may after these; `null`: it has none. */
  rate: (Rate & { allowed: number; opensAt: number }) | null;
  /** The runs of the job, in all versions, that have passed their keys and come before the run: 1,000 at most. */
  ahead: readonly RunsAhead[];
}

/** Runs that follow one another in the order of claims, and are alike. */
export interface RunsAhead {
  /** Their queue. */
  queue: string;
  /** Whether they were claimed before. */
  hasBegun: boolean;
  /** How many they are. */
  count: number;
}

/** Counts runs that follow one another by their positions, 1,000 of them at most. */
export function countAhead(runs: readonly { queue: string; position: number; hasBegun: boolean }[]): RunsAhead[] {
  const counted: RunsAhead[] = [];
  for (const { queue, hasBegun } of runs.toSorted((one, other) => one.position - other.position).slice(0, MAX_AHEAD)) {
    const last = counted.at(-1);
    if (last?.queue === queue && last.hasBegun === hasBegun) last.count += 1;
    else counted.push({ queue, hasBegun, count: 1 });
  }
  return counted;
}

/** Whether the limit of a queue counts for a run: it is of the same job, or of another one in the queue of its key. */
export function isLimitMeant(limit: WorkerLimit, queue: string, others: ReadonlySet<string>): boolean {
  return limit.names.includes(jobNameOf(queue)) || others.has(limit.queue);
}

/** A run in the queue of a concurrency key. */
export interface KeyFacts {
  /** The queue of the run. */
  queue: string;
  /** Its position. */
  position: number;
  /** Whether it holds the key itself: then it passes. */
  isHolder: boolean;
  /** The other holders, 20 at most. */
  holders: readonly (BlockingRun & { since: number; workerId: string | null })[];
  /** How many others hold the key. */
  holderCount: number;
  /** How many may, with this run. */
  concurrency: number;
  /** The rate of the key, and when it allows another start; `null`: it has none, or the run has started before. */
  rate: (Rate & { opensAt: number }) | null;
  /** Of each queue, the first run that is due for the key, but for this one, and how many come before this one. */
  firsts: readonly FirstInQueue[];
}

/** The first run of a queue that is due for a key. */
export interface FirstInQueue {
  /** The queue. */
  queue: string;
  /** Its position. */
  position: number;
  /** Whether it has passed the key. */
  isReady: boolean;
  /** Whether it was claimed before. */
  hasBegun: boolean;
  /** How many runs may hold the key, with this one. */
  concurrency: number;
  /** How many runs of the queue come before the run that was asked for. */
  before: number;
  /** How many of these hold the key already: they have kept it over a retry delay. They come first. */
  kept: number;
}

/** The queue of the version of the job, of a queue that may be that of a print. */
export function versionQueue(queue: string): string {
  return queueName(jobNameOf(queue), versionOf(queue));
}

/** Whether a worker has the job of a queue. */
export function hasQueue({ queues }: WorkerFacts, queue: string): boolean {
  return queues.includes(isAloneQueue(queue) ? versionQueue(queue) : queue);
}

/** The live workers: those that claimed within the length of their leases. */
export function liveWorkers(workers: readonly WorkerFacts[], now: number): WorkerFacts[] {
  return workers.filter(({ lastSeenAt, leaseMs }) => lastSeenAt <= now && lastSeenAt + leaseMs > now);
}
