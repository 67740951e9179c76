import type { ChildrenQuery } from "../model/children.ts";
import type { RunEventBase, RunHappening } from "../model/event.ts";
import type { Job } from "../model/job.ts";
import type { ClientRun } from "../model/client_run.ts";
import type { Coalesce, Disposition, IdempotencyUntil, RunFilter, RunStatus } from "../model/run.ts";
import type { Duration } from "../values/duration.ts";
import type { ClientWait } from "../model/wait.ts";

/** The jobs of a server, by any key: `typeof jobs` of what its `createEngine()` is given. */
// deno-lint-ignore no-explicit-any -- a job of any input
export type ClientJobs = { readonly [key: string]: Job<any, unknown> };

/** The name of a job. */
export type JobName<J extends ClientJobs> = J[keyof J]["name"];

/** The job of a name. */
export type JobNamed<J extends ClientJobs, Name> = Extract<J[keyof J], { readonly name: Name }>;

/** The input of a job's trigger. */
export type JobInput<J extends ClientJobs, Name> = JobNamed<J, Name> extends Job<infer Input, unknown> ? Input : never;

/** The output of a job's completed runs. */
export type JobOutput<J extends ClientJobs, Name> = JobNamed<J, Name> extends
  { readonly outputType?: infer Output | undefined } ? Output : never;

/** A run of a job. Its `output` is `null` until it has completed. */
export type RunOf<J extends ClientJobs, Name extends JobName<J> = JobName<J>> = {
  [N in Name]: Omit<ClientRun, "jobName" | "output"> & { jobName: N; output: JobOutput<J, N> | null };
}[Name];

/** A completed run of a job. */
export type CompletedRunOf<J extends ClientJobs, Name extends JobName<J> = JobName<J>> = {
  [N in Name]: Omit<ClientRun, "jobName" | "output" | "status"> & {
    jobName: N;
    output: JobOutput<J, N>;
    status: "completed";
  };
}[Name];

/** The id of a run: a string of which TypeScript knows the job. */
export type RunId<Name extends string> = string & { readonly jobName?: Name };

/** An event of a run, as the service sends it. */
export type ClientEvent<Output = unknown> =
  & RunEventBase
  & (
    | Exclude<RunHappening, { type: "run:complete" }>
    | { type: "run:complete"; output: Output; duration: number }
  );

/** An event of a run of a job. */
export type EventOf<J extends ClientJobs, Name extends JobName<J> = JobName<J>> = {
  [N in Name]: ClientEvent<JobOutput<J, N>> & { jobName: N };
}[Name];

/** How a call can be stopped. */
export interface CallOptions {
  /** Stops the call, which then throws the signal's reason. */
  abortSignal?: AbortSignal | undefined;
}

/** Options of a trigger: the fields of the body of `POST /trigger` beside `jobName` and `input`. */
export interface ClientTriggerOptions extends CallOptions {
  /** A later trigger with this key answers the same run. */
  idempotencyKey?: string;
  /** Which runs with that key count; if none does, there is a new one. Default: `forever`. */
  idempotencyUntil?: IdempotencyUntil;
  /** Runs with the same key are executed one after another. */
  concurrencyKey?: string;
  /** What to do when runs of this job and key exist already. Needs a `concurrencyKey`. */
  coalesce?: Coalesce;
  /** Strings for filters and access rules. */
  labels?: Readonly<Record<string, string>>;
  /** Not claimed before this instant: ISO 8601 with a time zone. */
  startAt?: string;
  /** The same as `startAt`, as a duration from now: milliseconds, or such as `"5m"`. */
  delay?: Duration;
  /** From -1,000 to 1,000: higher ones are claimed first. */
  priority?: number;
  /** If it has not started this long after it was due, it fails. */
  startWithin?: Duration;
  /** If it has not ended this long after its first start, it fails. */
  finishWithin?: Duration;
}

/** What a trigger answered. */
export interface Triggered<Name extends string> {
  /** The run. */
  runId: RunId<Name>;
  /** Whether it is new. */
  disposition: Disposition;
  /** Its status. */
  status: RunStatus;
}

/** Which runs a list has: the filters of `GET /runs`. A field that is left out does not restrict. */
export interface ClientFilter<Name extends string = string> extends Omit<RunFilter, "jobName" | "limit" | "offset"> {
  /** The job, or one of several. */
  jobName?: Name | readonly Name[];
}

/** Which page of a list. */
export interface PageOptions extends CallOptions {
  /** At most how many runs: 0 to 1,000. Default: 50. */
  limit?: number;
  /** How many of the newest to leave out: at most 1,000,000. */
  offset?: number;
  /** Only runs that were triggered before this one. */
  before?: string | undefined;
}

/** Which children of a run to read. */
export interface ChildrenOptions extends CallOptions, ChildrenQuery {}

/** Runs, newest first. */
export interface PageOf<R> {
  /** The runs. */
  runs: R[];
  /** How many runs fit the filter. */
  total: number;
  /** There are at least so many: no more were counted. */
  totalIsAtLeast?: true;
  /** Whether there are more. */
  hasMore: boolean;
}

/** The state of a run, with its waits. The events that follow it change this state. */
export interface RunSnapshot<R> {
  /** Told apart from events by this. */
  type: "snapshot";
  /** The run. */
  run: R;
  /** Its waits; empty if the caller may not read them. */
  waits: ClientWait[];
}

/** The newest runs of a list. The events that follow it change this state. */
export interface ListSnapshot<R> {
  /** Told apart from events by this. */
  type: "snapshot";
  /** The first page of the list. */
  page: PageOf<R>;
}
