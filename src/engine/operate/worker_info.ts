import { isLive } from "../../store/reads.ts";
import { isoTime } from "../../values/iso_time.ts";
import type { WorkerDetails, WorkerRecord } from "../../store/operate.ts";

/** The state of a worker. `lost`: it has not claimed for the length of its leases, so others claim its runs. */
export type WorkerState = "live" | "stopping" | "lost";

/** A worker. Times are ISO 8601 in UTC; `null`: not known. */
export interface WorkerInfo extends WorkerDetails {
  /** Its id; never reused. */
  id: string;
  /** When it claimed first. */
  startedAt: string;
  /** When it claimed last, up to a third of `leaseMs` too early. */
  lastSeenAt: string;
  /** Its state. */
  state: WorkerState;
  /** The names of the jobs that it knows, aliases included. */
  jobs: string[];
  /** How many runs are under its leases. */
  leases: number;
  /** How long its leases last unless renewed, in milliseconds. */
  leaseMs: number;
}

/** A worker as callers see it; `now` is an instant of the store's clock. */
export function toWorkerInfo(worker: WorkerRecord, now: number): WorkerInfo {
  const { id, details, jobNames, startedAt, seenAt, leases, leaseMs } = worker;
  return {
    id,
    name: details.name,
    hostname: details.hostname,
    pid: details.pid,
    runtime: details.runtime,
    version: details.version,
    deployment: details.deployment,
    startedAt: isoTime(startedAt),
    lastSeenAt: isoTime(seenAt),
    state: stateOf(worker, now),
    jobs: jobNames,
    concurrency: details.concurrency,
    leases,
    leaseMs,
  };
}

/** The state of a worker, by the rule of claims. */
export function stateOf(worker: WorkerRecord, now: number): WorkerState {
  if (!isLive(worker, now)) return "lost";
  return worker.isStopping ? "stopping" : "live";
}
