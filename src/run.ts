import type { Failure } from "./failure.ts";
import { type Json, parseValue, type Stored } from "./json.ts";

/** How a run stands. `leased` is a run that a worker holds and has not entered yet. */
export type RunStatus = "pending" | "leased" | "running" | "waiting" | "completed" | "failed" | "cancelled";

/** Every status, in the order of a run's life. */
export const RUN_STATUSES: readonly RunStatus[] = [
  "pending",
  "leased",
  "running",
  "waiting",
  "completed",
  "failed",
  "cancelled",
];

/** A status that never changes any more. */
export type TerminalStatus = "completed" | "failed" | "cancelled";

/** Key and value pairs of a run, for filters and for access rules. */
export type Labels = { readonly [key: string]: string };

/** How far a run has come, in the words of its job. */
export interface Progress {
  /** How much is done. */
  current: number;
  /** How much there is to do. */
  total?: number;
  /** What is being done. */
  message?: string;
}

/** One execution of a job for one input. Times are ISO 8601 in UTC; `null` stands for what is not known. */
export interface Run {
  /** A UUIDv7. Never a credential. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** How it stands. */
  status: RunStatus;
  /** The input as it was given. */
  payload: Json;
  /** What the job's function returned; `null` until the run has completed. */
  output: Json;
  /** Why it failed. */
  error: string | null;
  /** The step that made it fail, with its occurrence; `null` if none did. */
  failedStepName: string | null;
  /** What was thrown, with its stack; `null` if it has not failed. It never leaves the process. */
  failure: Failure | null;
  /** The latest progress that was kept. */
  progress: Progress | null;
  /** What it was labelled with; labels never change. */
  labels: Labels;
  /** The key that makes a trigger land on this run instead of making another. */
  idempotencyKey: string | null;
  /** Runs with the same key are executed one after another. */
  concurrencyKey: string | null;
  /** The worker that holds the lease. */
  leaseOwner: string | null;
  /** When the lease ends unless it is renewed. */
  leaseExpiresAt: string | null;
  /** How often the run was taken or taken away; only the newest holder can write. */
  leaseGeneration: number;
  /** When it was triggered. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** When its function was first entered. */
  startedAt: string | null;
  /** When it ended. */
  completedAt: string | null;
  /** The run of which it is a retry. It keeps this id when that run is deleted. */
  retriggerOf: string | null;
  /** Its newest retry. It keeps this id when the retry is deleted, until there is another one. */
  retriggeredAs: string | null;
}

/** The fields of a run that can have any value, of any size. */
export const RUN_VALUES = ["payload", "output"] as const;

/** A run whose values are as they are stored. */
export type RunText = Stored<Run, "payload" | "output">;

/** A run with its values. */
export function parseRun(run: RunText): Run {
  return { ...run, payload: parseValue(run.payload), output: parseValue(run.output) };
}

/** Where a retry begins: anew, or where the old run failed, with what was recorded before. */
export type RetriggerFrom = "start" | "failure";

/** Who a run is: what its events and its access rules need to know. None of it ever changes. */
export interface RunIdentity {
  /** The run's id. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** Its labels. */
  labels: Labels;
}

/** Which runs to list. What is left out does not restrict. */
export interface RunFilter {
  /** Runs of this job, or of any of these, 50 at most; an empty list matches nothing. */
  jobName?: string | readonly string[];
  /** Runs with this status, or with any of these; an empty list matches nothing. */
  status?: RunStatus | readonly RunStatus[];
  /** Runs that carry all of these labels: 16 at most. */
  labels?: Labels;
  /** How many at most, 0 to 1,000. Default 50. */
  limit?: number;
  /** How many to pass over, 0 to 1,000,000. Default 0. */
  offset?: number;
}

/** How many runs a list has unless it is told otherwise. */
export const DEFAULT_RUN_LIMIT = 50;

/** Which runs somebody watches. What is left out does not restrict. */
export type ListFilter = Pick<RunFilter, "jobName" | "labels">;

/** What no run matches: it would have to be of none of the jobs. */
export const NO_RUN: ListFilter = { jobName: [] };

/** Whether a run is one of those that a filter describes. */
export function matches({ jobName, labels }: Omit<RunIdentity, "id">, filter: ListFilter): boolean {
  return isOneOf(jobName, filter.jobName) &&
    Object.entries(filter.labels ?? {}).every(([key, value]) => labels[key] === value);
}

/** Whether a value is the one that is allowed, or one of those; without any, all are. */
export function isOneOf(value: string, allowed: string | readonly string[] | undefined): boolean {
  if (allowed === undefined) return true;
  return typeof allowed === "string" ? value === allowed : allowed.includes(value);
}

/** A page of a list of runs, newest first. */
export interface RunPage {
  /** The runs of this page. */
  runs: Run[];
  /** How many runs match the filter. */
  total: number;
  /** Whether runs follow after this page. */
  hasMore: boolean;
}

/**
 * What a trigger did: made a run, found one that stands for it (by its idempotency key, or a retry that has not ended),
 * or joined one that is still to run.
 */
export type Disposition = "created" | "idempotent" | "coalesced";

/**
 * What a trigger does when its concurrency key has runs already. `active` joins one that is pending, leased or
 * waiting; `skip` and `queue` join one that is pending, and else queue behind what executes.
 */
export type Coalesce = "skip" | "queue" | "active";

/** Every way to coalesce. */
export const COALESCE_MODES: readonly Coalesce[] = ["skip", "queue", "active"];

/** Whether a run has ended, for good. */
export function isTerminal(status: RunStatus): status is TerminalStatus {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Whether a worker holds the run. */
export function isLeased(status: RunStatus): boolean {
  return status === "leased" || status === "running";
}

/** A run as `/run` and `/runs` show it: {@linkcode toClientRun} makes it. */
export interface ClientRun {
  /** The run's id. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** How it stands. */
  status: RunStatus;
  /** The input as it was given. */
  input: Json;
  /** What the job's function returned; `null` until the run has completed. */
  output: Json;
  /** Why it failed. */
  error?: string;
  /** The step that made it fail, with its occurrence. */
  failedStepName?: string;
  /** The latest progress that was kept. */
  progress?: Progress;
  /** Its labels. */
  labels: Labels;
  /** When it was triggered. */
  createdAt: string;
  /** When its function was first entered. */
  startedAt?: string;
  /** When it ended. */
  completedAt?: string;
  /** The run of which it is a retry. */
  retriggerOf?: string;
  /** Its newest retry. */
  retriggeredAs?: string;
  /** Whether it has ended, for good. */
  isTerminal: boolean;
  /** Whether it is pending, leased or running. */
  isActive: boolean;
  /** Whether it is paused. */
  isWaiting: boolean;
}

/** Leaves out of a run what is not for clients (its keys, its lease and stacks) and adds what follows from its status. */
export function toClientRun(run: Run): ClientRun {
  return {
    id: run.id,
    jobName: run.jobName,
    status: run.status,
    input: run.payload,
    output: run.output,
    ...(run.error === null ? {} : { error: run.error }),
    ...(run.failedStepName === null ? {} : { failedStepName: run.failedStepName }),
    ...(run.progress === null ? {} : { progress: run.progress }),
    labels: run.labels,
    createdAt: run.createdAt,
    ...(run.startedAt === null ? {} : { startedAt: run.startedAt }),
    ...(run.completedAt === null ? {} : { completedAt: run.completedAt }),
    ...(run.retriggerOf === null ? {} : { retriggerOf: run.retriggerOf }),
    ...(run.retriggeredAs === null ? {} : { retriggeredAs: run.retriggeredAs }),
    isTerminal: isTerminal(run.status),
    isActive: run.status === "pending" || isLeased(run.status),
    isWaiting: run.status === "waiting",
  };
}
