import type { Failure } from "./failure.ts";
import type { FactValue, FactValueRef } from "./fact.ts";
import type { Cursor, JournalPage } from "./journal.ts";
import type { JsonText } from "./json.ts";
import type { Lease, SeenLease } from "./lease.ts";
import type { LogEntry, LogText, NewLogEntry } from "./log.ts";
import type { Report } from "./report.ts";
import type {
  Coalesce,
  Disposition,
  Labels,
  RetriggerFrom,
  Run,
  RunFilter,
  RunIdentity,
  RunPage,
  RunText,
  TerminalStatus,
} from "./run.ts";
import type { ExecutingStep, SavedStep, Step, StepRecord, StepText, StepWrite } from "./step.ts";
import type { NewPause, PauseRecord, Signal, SignalReceipt, Wait, WaitText } from "./wait.ts";

/**
 * Stores all state of runs.
 *
 * - Every call is atomic, and durable when its promise resolves.
 * - A write under a lease is refused with a {@linkcode LeaseLostError} when the lease is no longer the run's
 *   current one, and then has no effect.
 * - A call that is repeated because its outcome was unknown succeeds, and has no second effect.
 * - A store uses its own clock: it compares only instants of that clock.
 * - A {@linkcode StoreError} means that the store could not answer. It says nothing about the run.
 */
export interface Store extends AsyncDisposable {
  /** Creates or updates the tables. Safe to call again, and in several processes at once. */
  migrate(): Promise<void>;

  /** Closes what the store has opened itself. Safe to call again. */
  close(): Promise<void>;

  /**
   * Adds runs, or finds the existing ones that the requests lead to: all of them or none.
   *
   * A run of the same job with the same idempotency key wins over coalescing. The answers are in the order of
   * the requests, each with the run's current state.
   *
   * A retry (`retriggerOf`) is not added while the newest retry of the same run has not ended: that one is returned
   * instead (`idempotent`). A new retry from the failure begins with copies of the old run's completed steps, finished
   * sleeps and resolved waits. A wait that timed out is copied only if something was recorded after it: the last
   * record is what made the run fail.
   *
   * @throws {NotFoundError} The run in `retriggerOf` does not exist.
   * @throws {ConflictError} A run was deleted after it was added, and before this call was repeated.
   */
  enqueue(runs: readonly NewRun[]): Promise<Enqueued[]>;

  /**
   * Claims the oldest due runs of the known jobs, each under a new lease.
   *
   * First it processes expired timers, for all jobs: it commits the deadlines that passed, wakes sleeping runs and
   * revokes expired leases (a run that was abandoned too often fails). Then it claims runs in the order of their
   * triggers. Of the runs with one concurrency key only one is claimed at a time, and none before an older one whose
   * job a live worker knows.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Extends leases to `leaseMs` from now, and stores the reports. A lease is never shortened, and its end always
   * moves by at least a millisecond, so that others can see that it was renewed even after the clock was set back.
   *
   * @returns When the leases end, in the order of the renewals; `null` for a lease that is lost.
   */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]>;

  /**
   * Releases a lease before its end, when nothing more is written under it: a run that still has it becomes pending at
   * once, a run that was cancelled releases its key. For a lease that is no longer current nothing happens.
   *
   * @param reports Reports that no write has stored yet; stored only if the run still has the lease.
   */
  release(lease: Lease, reports: readonly Report[]): Promise<void>;

  /** All current leases, including those of cancelled runs that still hold a key. */
  getLeases(): Promise<SeenLease[]>;

  /** Which of these leases are no longer the current ones of their runs, in the order in which they were given. */
  getLostLeases(leases: readonly Lease[]): Promise<Lease[]>;

  /**
   * Revokes leases regardless of the clock, unless they were renewed since they were read. For a lease that a worker
   * saw unchanged for its whole length on a monotonic clock.
   */
  revoke(leases: readonly SeenLease[]): Promise<void>;

  /** Deletes the entry of a worker that will not claim again. */
  forgetWorker(workerId: string): Promise<void>;

  /** Whether a worker that knows a job is alive: it has claimed within the length of its lease. */
  hasWorker(jobName: string): Promise<boolean>;

  /** Records how an attempt at a step ended. */
  saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep>;

  /**
   * Prepares pauses and, if `park` is set and none of them is over, sets the run waiting until the first of them
   * is: it releases the lease, and the concurrency key unless a retry delay is among them.
   *
   * Pauses that already exist (same kind and name) keep their ids and deadlines. Deadlines that have passed
   * are committed.
   */
  pause(lease: Lease, request: PauseRequest): Promise<PauseResult>;

  /** Ends a run. Its open waits are closed. */
  finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void>;

  /**
   * Ends a wait by a signal.
   *
   * @throws {NotFoundError} There is no such wait.
   * @throws {ConflictError} Another signal was accepted first, or the wait is cancelled or closed.
   * @throws {WaitExpiredError} The deadline passed first, even if the timeout was not committed yet.
   */
  signal(waitId: string, signal: Signal): Promise<SignalOutcome>;

  /**
   * Cancels a run that has not ended, and records the steps that are being executed as cancelled.
   *
   * @param requestId Identifies a repeated call.
   * @param execution The execution in the calling process, if it executes the run.
   * @returns The cancelled run, or `null` if there is no such run or it had ended.
   */
  cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<Run | null>;

  /**
   * Deletes a run that has ended, with everything that belongs to it.
   *
   * @returns The identity of the deleted run, or `null` if there is no such run or it has not ended.
   */
  delete(runId: string): Promise<RunIdentity | null>;

  /**
   * Deletes the oldest of the runs that ended long enough ago, at most `limit` of them.
   *
   * @returns The identities of the deleted runs.
   */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]>;

  /** A run, or `null` if there is none. */
  getRun(runId: string): Promise<Run | null>;

  /** A run and its position in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null>;

  /** The runs that match a filter, newest first. */
  getRuns(filter: RunFilter): Promise<RunPage>;

  /** The recorded steps of a run, in the order of their index. */
  getSteps(runId: string): Promise<Step[]>;

  /** The waits of a run, in the order in which they were prepared. */
  getWaits(runId: string): Promise<Wait[]>;

  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null>;

  /** The stored log lines of a run, in the order in which they were added. */
  getLogs(runId: string): Promise<LogEntry[]>;

  /** The ids of the runs that match a filter, newest first. */
  findRuns(query: RunQuery): Promise<FoundRuns>;

  /**
   * Reads runs without parsing their values: one after another until they have `maxLength` characters. A value of
   * more than 32 KiB is replaced by a {@linkcode LargeText}, to be read with {@linkcode Store.readValue}: this
   * bounds the memory in use. With `Infinity` everything is read.
   *
   * @returns The first of the runs, at least one, in the order of the ids; `null` for a run that does not exist.
   */
  readRuns(runIds: readonly string[], maxLength: number): Promise<(RunText | null)[]>;

  /**
   * Reads the recorded steps of a run in the order of their index, as {@linkcode Store.readRuns} reads runs.
   *
   * @param after The name of the step to continue after; `null`: from the first one.
   * @returns `null` for a run that does not exist.
   */
  readSteps(runId: string, after: string | null, maxLength: number): Promise<Part<StepText> | null>;

  /** Reads the waits of a run in the order in which they were prepared; `after` is the id of a wait. */
  readWaits(runId: string, after: string | null, maxLength: number): Promise<Part<WaitText> | null>;

  /** Reads the stored log lines of a run in the order in which they were added; `after` is the id of a line. */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null>;

  /**
   * Reads the next part of a value, some 64 KiB of its JSON.
   *
   * @param from 0 at first, then the `next` of the previous call.
   * @returns `null` if there is no such value.
   */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null>;

  /**
   * Stores log lines. Lines of a deleted run are dropped, and a line that takes more than 8 KiB of JSON is cut. A run
   * keeps its newest 10,000 lines; a line before them then says how many older ones were dropped.
   */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void>;

  /**
   * Reads what was committed after a position, in the order of the commits. Each write appends its
   * facts in the commit that makes them true; a write that is refused or repeated appends none.
   *
   * @param maxLength About how many characters of facts to read; at least one row.
   * @returns `null` if rows after `after` were removed, or the journal ends before `after`.
   */
  readJournal(after: number, maxLength: number): Promise<JournalPage | null>;

  /**
   * For `null` the end of the journal; for a cursor that cursor, or `null` if it is not in the journal or rows after
   * it were removed.
   */
  findCursor(cursor: Cursor | null): Promise<Cursor | null>;

  /** The identities of runs, by their row numbers, in that order; `null` for a deleted one. */
  getRunIdentities(runs: readonly number[]): Promise<(RunIdentity | null)[]>;

  /**
   * Reads values that facts leave out, one after another until they have `maxLength` characters.
   *
   * @returns The first of them, at least one, in their order; `null` for one whose run was deleted.
   */
  readFactValues(values: readonly FactValueRef[], maxLength: number): Promise<(FactValue | null)[]>;

  /** A version that changes whenever something was committed elsewhere; it may change at other times too. */
  getVersion(): Promise<number>;
}

/** A run to add. */
export interface NewRun {
  /** A UUIDv7. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** The input that was given to the trigger. */
  payload: JsonText | null;
  /** The input as parsed by the schema: what the job's function receives. */
  input: JsonText | null;
  /** Its labels. */
  labels: Labels;
  /** If a run of the same job has this key, that run is returned instead. */
  idempotencyKey: string | null;
  /** Runs with this key are executed one after another. */
  concurrencyKey: string | null;
  /** What to do if the concurrency key has runs of this job already; `null`: add another. */
  coalesce: Coalesce | null;
  /**
   * The id of the only run that it may join by coalescing: another one is returned, but not joined, and no event is
   * published. Left out: any.
   */
  joinOnly?: string;
  /** The run that has ended of which this one is a retry; `null` if it is none. */
  retriggerOf: { runId: string; from: RetriggerFrom } | null;
}

/** The result of a request to add a run. */
export interface Enqueued {
  /** The new run, or the existing one. */
  run: Run;
  /** Whether the run is new, and if not, why it was returned. */
  disposition: Disposition;
}

/** A worker's request for runs. */
export interface ClaimRequest {
  /** The id of the worker; never reused. */
  workerId: string;
  /** Identifies a repeated call. */
  claimId: string;
  /** The names of the jobs that the worker knows. */
  jobNames: readonly string[];
  /**
   * The leases that the worker holds. Those that expired while it was blocked are extended instead of being revoked.
   */
  holding: readonly Lease[];
  /** The maximum number of runs. */
  limit: number;
  /** How long the leases last unless renewed, in milliseconds. */
  leaseMs: number;
  /** A run fails if it is abandoned this many times in a row with nothing recorded in between. */
  maxAbandonments: number;
}

/** The result of a claim. */
export interface ClaimResult {
  /** The claimed runs, in the order in which they were triggered. */
  claims: Claim[];
  /** Runs that failed because they were abandoned too often. */
  failed: { run: RunIdentity; error: string }[];
  /** When the next timer of a run expires, by the store's clock; `null` if there is none. */
  nextTimerAt: number | null;
  /** Whether there is more to do at once than one call does. */
  hasMore: boolean;
  /** The current instant of the store's clock. */
  now: number;
}

/** A claimed run, with its history for the replay. */
export interface Claim {
  /** Its identity. */
  run: RunIdentity;
  /** The right to write to it. */
  lease: Lease;
  /** When the lease expires unless it is renewed, by the store's clock. */
  leaseExpiresAt: number;
  /** The input that the job's function receives. */
  input: JsonText | null;
  /** 1 for the first execution, one more after each interruption. */
  execution: number;
  /** How long ago its function was first called, in milliseconds. */
  startedAgoMs: number;
  /** The first run of the chain of retries from the failure to which the run belongs; its own id without one. */
  originId: string;
  /** The recorded steps. */
  steps: StepRecord[];
  /** The waits and sleeps. */
  pauses: PauseRecord[];
}

/** A lease to extend. */
export interface Renewal {
  /** The lease. */
  lease: Lease;
  /** The reports of the execution since the last acknowledged write. */
  reports: readonly Report[];
}

/** An execution that a cancel ends. */
export interface CancelledExecution {
  /** The generation of its lease: if that is lost, nothing of the execution is stored. */
  generation: number;
  /** The steps that are being executed. */
  steps: readonly ExecutingStep[];
  /** Its reports since the last acknowledged write. */
  reports: readonly Report[];
}

/** A request to pause a run. */
export interface PauseRequest {
  /** The waits and sleeps. */
  pauses: readonly NewPause[];
  /** When the earliest retry is due, if the run waits for one, by the store's clock. */
  retryAt: number | null;
  /** Whether to park the run; otherwise the pauses are only prepared. */
  park: boolean;
  /** The reports of the execution since the last acknowledged write. */
  reports: readonly Report[];
}

/** The result of a request to pause. */
export interface PauseResult {
  /** Whether the run waits now, and the lease is released. */
  parked: boolean;
  /** The stored pauses, in the order of the request. */
  pauses: PauseRecord[];
  /** How long until the first deadline of those that are not over, in milliseconds; `null` if they have none. */
  nextDeadlineInMs: number | null;
}

/** Which runs to find. */
export interface RunQuery extends RunFilter {
  /**
   * The part of the filter that restricts access: the names of labels, and whether the jobs do. A store looks runs up
   * by this part and checks the rest on each of them, so that the time a list takes reveals nothing about other
   * runs.
   */
  scope?: { labels: readonly string[]; jobs: boolean };
}

/** The runs that match a filter. */
export interface FoundRuns extends Omit<RunPage, "runs"> {
  /** The ids of the runs of this page. */
  ids: string[];
}

/** Which stored value to read. */
export type ValuePlace =
  | { of: "run"; runId: string; value: "payload" | "output" }
  | { of: "step"; runId: string; stepName: string; value: "output" }
  | { of: "wait"; waitId: string; value: "metadata" | "payload" };

/** A part of a value. */
export interface ValuePart {
  /** Its JSON in UTF-8, from the requested position on; the caller owns the bytes. */
  bytes: Uint8Array<ArrayBuffer>;
  /** Where the next part begins, in the store's own units; `null`: this was the last part. */
  next: number | null;
}

/** A part of a list. */
export interface Part<T> {
  /** The records, in their order. */
  items: T[];
  /** Whether more may follow. */
  hasMore: boolean;
}

/** A run and its position in the journal, read at one moment. */
export interface RunState {
  /** The run. */
  run: Run;
  /** Its row number, by which facts name it. */
  seq: number;
  /** The end of the journal at that moment: later commits are not in this state. */
  place: Cursor;
  /** The input of the trigger; `null` for `undefined`, which the run itself does not distinguish from a JSON `null`. */
  payload: JsonText | null;
  /** How often it was claimed: 1 before and during its first execution, one more after each interruption. */
  execution: number;
  /** What it has parked on, ended or not, in the order of preparation. */
  pauses: AwaitedPause[];
}

/**
 * Something that a run waits for: a wait, a sleep, or another attempt at a step. `Instant` is the type of its
 * instants.
 */
export interface AwaitedPause<Instant = string> {
  /** The id of the wait; `null` for a sleep or a step. */
  waitId: string | null;
  /** The name of the wait, the sleep or the step. */
  name: string;
  /** When it ends without a signal: ISO 8601 in UTC. */
  deadlineAt: Instant | null;
}

/** How a run ends, other than by a cancel. */
export type Ending =
  | { status: "completed"; output: JsonText | null; durationMs: number }
  | { status: "failed"; failure: Failure; failedStepName: string | null };

/** A receipt, with the run of the wait. */
export interface SignalOutcome extends SignalReceipt {
  /** The run of the wait. */
  run: RunIdentity;
}

/** How long runs are kept after they ended, in milliseconds; those left out are kept permanently. */
export type Retention = { readonly [status in TerminalStatus]?: number };
