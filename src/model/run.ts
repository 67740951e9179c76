import type { Duration } from "../values/duration.ts";
import { type Failure, FAILURE_KINDS, type FailureKind } from "./failure.ts";
import type { Held } from "./hold.ts";
import { type Json, type JsonText, parseValue, type Stored } from "../values/json.ts";

/**
 * The status of a run. `leased` means that a worker holds the run and has not yet called its function; the stores of
 * this package set a claimed run to `running` at once.
 */
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

/** Whether a value is a status. */
export function isRunStatus(value: unknown): value is RunStatus {
  return RUN_STATUSES.some((status) => status === value);
}

/** A final status: it never changes. */
export type TerminalStatus = "completed" | "failed" | "cancelled";

/** Key and value pairs of a run, for filters and for access rules. */
export type Labels = { readonly [key: string]: string };

/** The progress of a run, as its job reports it. */
export interface Progress {
  /** The amount of work done. */
  current: number;
  /** The total amount of work. */
  total?: number;
  /** A description of the current work. */
  message?: string;
}

/** One execution of a job for one input. Times are ISO 8601 in UTC; `null` means that there is no value. */
export interface Run {
  /** A UUIDv7. Never a credential. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** Its status. */
  status: RunStatus;
  /** The input that was given to the trigger: any JSON; `null` also if none was given. */
  input: Json;
  /** The same as `input`. */
  payload: Json;
  /** What the job's function returned; `null` until the run has completed. */
  output: Json;
  /** Why it failed. */
  error: string | null;
  /** The step that made it fail, with its occurrence; `null` if none did. */
  failedStepName: string | null;
  /** The failure, with its stack; `null` if the run has not failed. It never leaves the process. */
  failure: Failure | null;
  /** The latest stored progress. */
  progress: Progress | null;
  /** Its labels; they never change. */
  labels: Labels;
  /** A later trigger with this key returns this run instead of creating another. */
  idempotencyKey: string | null;
  /** Runs with the same key are executed one after another. */
  concurrencyKey: string | null;
  /** The worker that holds the lease. */
  leaseOwner: string | null;
  /** When the lease expires unless it is renewed. */
  leaseExpiresAt: string | null;
  /** The number of the newest lease, raised by each claim and each revocation; only its holder can write. */
  leaseGeneration: number;
  /** When it was triggered. */
  createdAt: string;
  /** Who triggered it, or retried the run of which it is a retry; `null`: nobody said so. */
  triggeredBy: string | null;
  /** Who cancelled it; `null`: it is not cancelled, or nobody said so. */
  cancelledBy: string | null;
  /** When it last changed. */
  updatedAt: string;
  /** When its function was first called. */
  startedAt: string | null;
  /** When it ended. */
  completedAt: string | null;
  /** Not claimed before this instant. */
  startAt: string | null;
  /** From -1,000 to 1,000: higher ones are claimed first. */
  priority: number;
  /** Runs with different keys take turns. */
  fairnessKey: string | null;
  /** It fails as `expired` if it has not started by then. */
  startBy: string | null;
  /** It fails as `timeout` if it has not ended by then; known once it has started. */
  finishBy: string | null;
  /** Why it failed; `null` if it has not. */
  failureKind: FailureKind | null;
  /** The run that waits for it, or waited for it. The id stays when that run is deleted. */
  parentRunId: string | null;
  /** The schedule that made it. */
  scheduleName: string | null;
  /** The slot of its schedule. */
  slotAt: string | null;
  /** The version of the job that triggered it. */
  version: number;
  /** Why no worker executes it; `null`: it is not held. A held run is pending. */
  held: Held | null;
  /** The run after which it cleans up (`onEnd`); `null`: it is no such run. The id stays when that run is deleted. */
  endOf: string | null;
  /** The run that cleans up after it; `null` while there is none. */
  endRunId: string | null;
  /** The run of which it is a retry. The id stays when that run is deleted. */
  retriggerOf: string | null;
  /** Its newest retry. The id stays when the retry is deleted, until there is another retry. */
  retriggeredAs: string | null;
  /** The first of its retries, or of theirs, that completed. The id stays when that run is deleted. `null`: none has. */
  completedAs: string | null;
}

/** The fields of a run that hold JSON values. */
export const RUN_VALUES = ["payload", "output"] as const;

/** A run with its values as stored JSON, or placeholders for large ones. */
export type RunText = Stored<Omit<Run, "input">, "payload" | "output">;

/** A run as a store returns it from a write: nothing has parsed its values. */
export type StoredRun = RunText & { payload: JsonText | null; output: JsonText | null };

/** Parses the values of a stored run. */
export function parseRun(run: RunText): Run {
  const input = parseValue(run.payload);
  return { ...run, input, payload: input, output: parseValue(run.output) };
}

/** Where a retry begins: from the start, or from the failure with the old run's recorded history. */
export type RetriggerFrom = "start" | "failure";

/** The identity of a run, for events and access rules. It never changes. */
export interface RunIdentity {
  /** The run's id. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** Its labels. */
  labels: Labels;
}

/** Which runs to list. A field that is left out does not restrict. */
export interface RunFilter {
  /** Runs of this job, or of any of these, 50 at most; an empty list matches nothing. */
  jobName?: string | readonly string[];
  /** Runs with this status, or with any of these; an empty list matches nothing. */
  status?: RunStatus | readonly RunStatus[];
  /** Runs that have all of these labels: 16 at most. */
  labels?: Labels;
  /** Runs that this run waits for or waited for. */
  parentRunId?: string;
  /** Runs that clean up after this run. */
  endOf?: string;
  /** Runs that clean up after another one; `false`: the others. */
  endRun?: boolean;
  /** Runs that failed for this reason. */
  failureKind?: FailureKind;
  /** Runs that are held; `false`: those that are not. */
  held?: boolean;
  /** Runs of which a retry has completed (`completedAs`); `false`: the others. */
  retried?: boolean;
  /** Runs that ended at this instant or later: ISO 8601. */
  completedAfter?: string;
  /** Runs that ended before this instant: ISO 8601. */
  completedBefore?: string;
  /** Runs that were triggered at this instant or later: ISO 8601. */
  createdAfter?: string;
  /** Runs that were triggered before this instant: ISO 8601. */
  createdBefore?: string;
  /** The maximum number of runs, 0 to 1,000. Default 50. */
  limit?: number;
  /** How many to skip, 0 to 1,000,000. Default 0. */
  offset?: number;
}

/** What a field of a filter asks of one field of a run. */
export interface Condition {
  /** The field of a run. */
  readonly field: keyof Run;
  /** `is`: it has this value; `from`: it is this instant or later; `until`: it is an earlier one; `has`: it has a value, or none. */
  readonly by: "is" | "from" | "until" | "has";
  /** The values that it can have; left out: any name. */
  readonly values?: readonly string[];
  /** The statuses of the runs that can meet it; those that have a value, for `has`; left out: all. */
  readonly statuses?: readonly RunStatus[];
}

/** The statuses of a run that has ended. */
export const ENDED: readonly TerminalStatus[] = RUN_STATUSES.filter(isTerminal);

/** The statuses of a run that has not ended. */
export const OPEN: readonly RunStatus[] = RUN_STATUSES.filter((status) => !isTerminal(status));

/**
 * The fields of a filter beside jobs, statuses, labels and the page. What reads, checks, describes, narrows and applies a
 * filter follows from this; each store names its column of each `field`, and checks what is cheap to read first.
 */
export const CONDITIONS = {
  parentRunId: { field: "parentRunId", by: "is" },
  completedAfter: { field: "completedAt", by: "from", statuses: ENDED },
  completedBefore: { field: "completedAt", by: "until", statuses: ENDED },
  createdAfter: { field: "createdAt", by: "from" },
  createdBefore: { field: "createdAt", by: "until" },
  failureKind: { field: "failureKind", by: "is", values: FAILURE_KINDS, statuses: ["failed"] },
  held: { field: "held", by: "has", statuses: ["pending"] },
  retried: { field: "completedAs", by: "has", statuses: ENDED },
  endOf: { field: "endOf", by: "is" },
  endRun: { field: "endOf", by: "has" },
} as const satisfies Record<Exclude<keyof RunFilter, "jobName" | "status" | "labels" | "limit" | "offset">, Condition>;

type ConditionName = keyof typeof CONDITIONS;

/** A field of a run that conditions are about. */
export type ConditionField = (typeof CONDITIONS)[ConditionName]["field"];

/** Every condition with its name. */
export const CONDITION_LIST = Object.entries(CONDITIONS).map(([name, condition]) => ({
  name: name as ConditionName,
  ...condition as Condition & { field: ConditionField },
}));

/** The conditions that a filter has, with their values. */
export function conditionsOf(filter: RunFilter) {
  const found = [];
  for (const condition of CONDITION_LIST) {
    const value = filter[condition.name];
    if (value !== undefined) found.push({ ...condition, value });
  }
  return found;
}

/** Whether a value meets a condition: instants are numbers, or strings in UTC with milliseconds. */
export function meets(value: string | number | object | null, by: Condition["by"], wanted: string | number | boolean) {
  if (by === "has") return (value !== null) === wanted;
  return value !== null && (by === "is" ? value === wanted : by === "from" ? value >= wanted : value < wanted);
}

/** The default limit of a list. */
export const DEFAULT_RUN_LIMIT = 50;

/** Which runs a stream of events shows. A field that is left out does not restrict. */
export type ListFilter = Pick<RunFilter, "jobName" | "labels">;

/** A filter that matches no run: its list of jobs is empty. */
export const NO_RUN: ListFilter = { jobName: [] };

/** Whether a run matches a filter. */
export function matches({ jobName, labels }: Omit<RunIdentity, "id">, filter: ListFilter): boolean {
  return isOneOf(jobName, filter.jobName) &&
    Object.entries(filter.labels ?? {}).every(([key, value]) => labels[key] === value);
}

/** Whether a value equals the allowed one or is in the list; without either, any value is allowed. */
export function isOneOf(value: string, allowed: string | readonly string[] | undefined): boolean {
  if (allowed === undefined) return true;
  return typeof allowed === "string" ? value === allowed : allowed.includes(value);
}

/** An operation on each of many runs. */
export type BulkOperation = "cancel" | "retrigger" | "resume" | "delete";

/** A page of a list of runs, newest first. */
export interface RunPage {
  /** The runs of this page. */
  runs: Run[];
  /** How many runs match the filter, or how many have been counted: see {@linkcode RunPage.totalIsAtLeast}. */
  total: number;
  /** There are at least so many: the count has ended at 10,000, or after 50 ms. */
  totalIsAtLeast?: true;
  /** Whether there are more runs after this page. */
  hasMore: boolean;
}

/** A page of a list whose runs were not counted. */
export type UncountedPage = Pick<RunPage, "runs" | "hasMore">;

/**
 * What a trigger did: `created` a run, found an existing one (`idempotent`: by its idempotency key, or a retry that
 * has not ended), or joined one by its concurrency key (`coalesced`).
 */
export type Disposition = "created" | "idempotent" | "coalesced";

/**
 * Which runs with the idempotency key of a trigger count. Any (`forever`); those that have not ended (`ended`); those that
 * have not failed or been cancelled (`failed`); or those that were triggered less than so long ago. If none counts, there
 * is a new run, which takes the key. For `ended` and `failed`, the newest retry counts in the place of its run.
 */
export type IdempotencyUntil = "forever" | "ended" | "failed" | Duration;

/**
 * What a trigger does when its concurrency key has runs of the job already. `skip` and `queue` join the oldest pending
 * one. `active` does so too; if none is pending, it joins the run that a worker holds (`leased` or `running`, unless
 * the lease has expired), and otherwise the oldest waiting one. A trigger that joins none adds a run.
 */
export type Coalesce = "skip" | "queue" | "active";

/** All coalesce modes. */
export const COALESCE_MODES: readonly Coalesce[] = ["skip", "queue", "active"];

/** Whether a run has ended. */
export function isTerminal(status: RunStatus): status is TerminalStatus {
  return status === "completed" || status === "failed" || status === "cancelled";
}

/** Whether a worker holds the run. */
export function isLeased(status: RunStatus): boolean {
  return status === "leased" || status === "running";
}

/**
 * How long runs are kept after they ended, in milliseconds; those left out are kept permanently. `streams`: how long the
 * items of their streams are kept.
 */
export type Retention = { readonly [status in TerminalStatus | "streams"]?: number };
