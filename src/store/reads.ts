import { type LogEntry, parseLog } from "../model/log.ts";
import { type Message, parseMessage } from "../model/message.ts";
import { isOneOf, parseRun, type Run, type RunPage } from "../model/run.ts";
import { parseStep, type Step } from "../model/step.ts";
import type { RunQuery } from "./run_query.ts";
import type { Store } from "./store.ts";
import { parseWait, type Wait } from "../model/wait.ts";
import type { JobPause, WorkerRecord } from "./operate.ts";

/** A run, or `null` if there is none. */
export async function getRun(store: Pick<Store, "readRuns">, runId: string): Promise<Run | null> {
  const [run] = await store.readRuns([runId], Infinity);
  return run ? parseRun(run) : null;
}

/**
 * The runs that match a filter, newest first. They are found first and then read: a run that changes in between may be
 * missing, but no run is returned that does not match.
 */
export async function getRuns(store: Pick<Store, "findRuns" | "readRuns">, query: RunQuery): Promise<RunPage> {
  const { ids, total, hasMore, countedTo } = await store.findRuns(query);
  const read = ids.length === 0 ? [] : await store.readRuns(ids, Infinity);
  const runs = read.filter((run) => run !== null).filter((run) => isOneOf(run.status, query.status));
  return {
    runs: runs.map(parseRun),
    total: total - (ids.length - runs.length),
    ...(countedTo === null ? {} : { totalIsAtLeast: true }),
    hasMore,
  };
}

/** The recorded steps of a run, in the order of their index; empty for an unknown run. */
export async function getSteps(store: Pick<Store, "readSteps">, runId: string): Promise<Step[]> {
  return (await store.readSteps(runId, null, Infinity))?.items.map(parseStep) ?? [];
}

/** The messages of a run, in the order in which they were accepted; empty for an unknown run. */
export async function getMessages(store: Pick<Store, "readMessages">, runId: string): Promise<Message[]> {
  return (await store.readMessages(runId, null, Infinity))?.items.map(parseMessage) ?? [];
}

/** The waits of a run, in the order in which they were prepared, without its sleeps; empty for an unknown run. */
export async function getWaits(store: Pick<Store, "readWaits">, runId: string): Promise<Wait[]> {
  return (await store.readWaits(runId, null, Infinity))?.items.map(parseWait) ?? [];
}

/** The stored log lines of a run, in the order in which they were added; empty for an unknown run. */
export async function getLogs(store: Pick<Store, "readLogs">, runId: string): Promise<LogEntry[]> {
  return (await store.readLogs(runId, null, Infinity))?.items.map(parseLog) ?? [];
}

/** Whether a live worker knows a job. */
export async function hasWorker(store: Pick<Store, "getWorkers">, jobName: string): Promise<boolean> {
  const { workers, now } = await store.getWorkers();
  return workers.some((worker) => worker.jobNames.includes(jobName) && isLive(worker, now));
}

/** Whether a worker is live, by the store's clock. See {@linkcode Store}. */
export function isLive({ seenAt, leaseMs }: Pick<WorkerRecord, "seenAt" | "leaseMs">, now: number): boolean {
  return seenAt <= now && now - seenAt < leaseMs;
}

/** The paused jobs, in the order of their names. */
export async function getPausedJobs(store: Pick<Store, "getJobs">): Promise<JobPause[]> {
  return (await store.getJobs([])).paused;
}
