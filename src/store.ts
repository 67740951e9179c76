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
 * Keeps everything there is to know about runs.
 *
 * - Every call is atomic: it happens whole or not at all, and is durable when its promise resolves.
 * - A write under a lease is refused with a {@linkcode LeaseLostError} when the lease is no longer the run's
 *   current one, and then leaves no trace.
 * - A call that is repeated because its outcome was unknown succeeds, and changes nothing a second time.
 * - A store tells its own time: all instants that it compares are its own.
 * - A {@linkcode StoreError} says that it could not answer. It says nothing about the run.
 */
export interface Store extends AsyncDisposable {
  /** Makes or updates the tables. Harmless when there is nothing to do, and in several processes at once. */
  migrate(): Promise<void>;

  /** Closes what the store has opened itself. Harmless when it is closed. */
  close(): Promise<void>;

  /**
   * Adds runs, or finds the ones that they stand for: all of them or none.
   *
   * A run of the same job with the same idempotency key wins over coalescing. The answers are in the order of
   * the requests, each with the run as it stands.
   *
   * A retry (`retriggerOf`) is not added while the newest retry of the same run has not ended: that one is answered
   * instead (`idempotent`). A new retry from the failure begins with copies of the old run's completed steps, finished
   * sleeps and resolved waits. A wait that timed out is copied only if something was recorded after it: as the last
   * thing it is what the run failed of.
   *
   * @throws {NotFoundError} The run in `retriggerOf` does not exist.
   * @throws {ConflictError} A run was deleted after it was added, and before this call was repeated.
   */
  enqueue(runs: readonly NewRun[]): Promise<Enqueued[]>;

  /**
   * Claims the oldest due runs of the known jobs, each under a new lease.
   *
   * First it does what time has brought, whatever the job: deadlines that passed are committed, sleepers are
   * woken, expired leases are taken away (and a run that was abandoned too often fails). Then it takes runs in
   * the order in which they were triggered. Of the runs with one concurrency key one is claimed at a time, and
   * none before an older one whose job a live worker knows.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Extends leases to `leaseMs` from now, and keeps the reports that come along. A lease is never shortened, and
   * always ends later than before, if only by a millisecond: so that others can see that it was renewed even after
   * the clock was set back.
   *
   * @returns When the leases end, in the order of the renewals; `null` for a lease that is lost.
   */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]>;

  /**
   * Releases a lease before its end, when nothing more is written under it: a run that still has it becomes pending at
   * once, a run that was cancelled frees its key. Any other lease is none any more, and nothing happens.
   *
   * @param reports Those that were not kept yet; kept only if the run still has the lease.
   */
  release(lease: Lease, reports: readonly Report[]): Promise<void>;

  /** All current leases, and the keys that cancelled runs still hold. */
  getLeases(): Promise<SeenLease[]>;

  /** Which of these leases are no longer the current ones of their runs, in the order in which they were given. */
  getLostLeases(leases: readonly Lease[]): Promise<Lease[]>;

  /**
   * Takes leases away whatever the clock says, unless they were renewed since they were seen. For a lease that
   * somebody saw unchanged for its whole length on a clock that cannot jump.
   */
  revoke(leases: readonly SeenLease[]): Promise<void>;

  /** Forgets what a worker had said of itself when it claimed: it will not claim again. */
  forgetWorker(workerId: string): Promise<void>;

  /** Whether a worker that knows a job lives: it has claimed within the length of its lease. */
  hasWorker(jobName: string): Promise<boolean>;

  /** Records how an attempt at a step ended. */
  saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep>;

  /**
   * Prepares pauses and, if `park` is set and none of them is over, sets the run waiting until the first of them
   * is: the lease is given up, and the concurrency key unless a retry delay is among them.
   *
   * Pauses that the run has already, by kind and name, keep their ids and deadlines. Deadlines that have passed
   * are committed.
   */
  pause(lease: Lease, request: PauseRequest): Promise<PauseResult>;

  /** Ends a run. Its open waits are closed. */
  finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void>;

  /**
   * Ends a wait by a signal.
   *
   * @throws {NotFoundError} There is no such wait.
   * @throws {ConflictError} Another signal came first, or the wait is cancelled or closed.
   * @throws {WaitExpiredError} The deadline passed first, even if nobody had looked yet.
   */
  signal(waitId: string, signal: Signal): Promise<SignalOutcome>;

  /**
   * Cancels a run that has not ended, and records the steps that are being executed as cancelled.
   *
   * @param requestId Makes a repeated call recognisable.
   * @param execution That of the process that cancels, if it executes the run.
   * @returns The run as it stands now, or `null` if there is no such run or it had ended.
   */
  cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<Run | null>;

  /**
   * Deletes a run that has ended, with everything that belongs to it.
   *
   * @returns Who the run was, or `null` if there is no such run or it has not ended.
   */
  delete(runId: string): Promise<RunIdentity | null>;

  /**
   * Deletes the oldest of the runs that ended at least so long ago, `limit` of them at most.
   *
   * @returns Who the runs were.
   */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]>;

  /** A run, or `null` if there is none. */
  getRun(runId: string): Promise<Run | null>;

  /** A run and its place in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null>;

  /** The runs that match a filter, newest first. */
  getRuns(filter: RunFilter): Promise<RunPage>;

  /** The recorded steps of a run, in the order of their index. */
  getSteps(runId: string): Promise<Step[]>;

  /** The waits of a run, in the order in which they were prepared. */
  getWaits(runId: string): Promise<Wait[]>;

  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null>;

  /** The kept log lines of a run, in the order in which they came. */
  getLogs(runId: string): Promise<LogEntry[]>;

  /** The ids of the runs that match a filter, newest first. */
  findRuns(query: RunQuery): Promise<FoundRuns>;

  /**
   * Reads runs without parsing their values: one after another until they have `maxLength` characters. For a value of
   * more than 32 KiB stands a {@linkcode LargeText}, which counts as so many characters and is to be read by
   * {@linkcode Store.readValue}: so little is in memory at once, whatever is stored. With `Infinity` everything is read.
   *
   * @returns The first of the runs, one at least, in the order of the ids; `null` for a run that does not exist.
   */
  readRuns(runIds: readonly string[], maxLength: number): Promise<(RunText | null)[]>;

  /**
   * Reads the recorded steps of a run in the order of their index, as {@linkcode Store.readRuns} reads runs.
   *
   * @param after The name of the step to go on after; `null`: from the first one.
   * @returns `null` for a run that does not exist.
   */
  readSteps(runId: string, after: string | null, maxLength: number): Promise<Part<StepText> | null>;

  /** Reads the waits of a run in the order in which they were prepared; `after` is the id of a wait. */
  readWaits(runId: string, after: string | null, maxLength: number): Promise<Part<WaitText> | null>;

  /** Reads the kept log lines of a run in the order in which they came; `after` is the id of a line. */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null>;

  /**
   * Reads the next part of a value, some 64 KiB of its JSON.
   *
   * @param from 0 at first, then what the call before has answered as `next`.
   * @returns `null` if there is no such value.
   */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null>;

  /**
   * Keeps log lines. Those of a run that is gone are dropped, one that takes more than 8 KiB of JSON is cut, and of the
   * lines of a run the newest 10,000 are kept: a line in front of them then says how many older ones there were.
   */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void>;

  /**
   * Reads what was committed after a position, in the order of the commits. Each write appends its
   * facts in the commit that makes them true; a write that is refused or repeated appends none.
   *
   * @param maxLength How many characters of facts about; one row at least.
   * @returns `null` if some of it is no longer kept, or the journal does not reach as far as `after`.
   */
  readJournal(after: number, maxLength: number): Promise<JournalPage | null>;

  /** The end of the journal (`null`), or a cursor if it is a place in the journal after which nothing is missing. */
  findCursor(cursor: Cursor | null): Promise<Cursor | null>;

  /** Who runs are, by their row numbers, in that order; `null` for one that is gone. */
  getRunIdentities(runs: readonly number[]): Promise<(RunIdentity | null)[]>;

  /**
   * Reads values that facts leave out, one after another until they have `maxLength` characters.
   *
   * @returns The first of them, one at least, in their order; `null` for one whose run is gone.
   */
  readFactValues(values: readonly FactValueRef[], maxLength: number): Promise<(FactValue | null)[]>;

  /** A number that changes whenever something was committed elsewhere; it may change at other times too. */
  getVersion(): Promise<number>;
}

/** A run to add. */
export interface NewRun {
  /** A UUIDv7. */
  id: string;
  /** The name of its job. */
  jobName: string;
  /** The input as it was given. */
  payload: JsonText | null;
  /** The input as the schema parsed it: what the job's function receives. */
  input: JsonText | null;
  /** Its labels. */
  labels: Labels;
  /** A run of the same job with this key is answered instead. */
  idempotencyKey: string | null;
  /** Runs with this key are executed one after another. */
  concurrencyKey: string | null;
  /** What to do when the concurrency key has runs of this job already; `null`: add another. */
  coalesce: Coalesce | null;
  /**
   * The id of the only run that it may join by coalescing: another one is answered, but not joined, so no event is about
   * it. Left out: any.
   */
  joinOnly?: string;
  /** The run that has ended of which this one is a retry; `null` if it is none. */
  retriggerOf: { runId: string; from: RetriggerFrom } | null;
}

/** What became of a run that was to be added. */
export interface Enqueued {
  /** The new run, or the one that was found. */
  run: Run;
  /** Which of the two it is. */
  disposition: Disposition;
}

/** Who wants runs, and of which kind. */
export interface ClaimRequest {
  /** The worker: other than any that lived before. */
  workerId: string;
  /** Makes a repeated call recognisable. */
  claimId: string;
  /** The names of the jobs that the worker knows. */
  jobNames: readonly string[];
  /**
   * The leases that the worker holds. Those that have expired meanwhile, while it was blocked, are extended instead of
   * being taken away: it lives.
   */
  holding: readonly Lease[];
  /** How many runs at most. */
  limit: number;
  /** How long the leases last unless renewed, in milliseconds. */
  leaseMs: number;
  /** A run that is abandoned so many times in a row, with nothing recorded in between, fails. */
  maxAbandonments: number;
}

/** What a claim brought. */
export interface ClaimResult {
  /** The claimed runs, in the order in which they were triggered. */
  claims: Claim[];
  /** Runs that failed because they were abandoned too often. */
  failed: { run: RunIdentity; error: string }[];
  /** When time will next do something to a run: an instant of the store's clock, or `null`. */
  nextTimerAt: number | null;
  /** Whether there is more to do at once than this call was ready to do. */
  hasMore: boolean;
  /** The store's clock. */
  now: number;
}

/** A run that was claimed, with all that a replay needs. */
export interface Claim {
  /** Who it is. */
  run: RunIdentity;
  /** The right to write to it. */
  lease: Lease;
  /** When the lease ends unless it is renewed: an instant of the store's clock. */
  leaseExpiresAt: number;
  /** What the job's function receives. */
  input: JsonText | null;
  /** 1 for the first execution, one more after each interruption. */
  execution: number;
  /** How long ago its function was first entered, in milliseconds. */
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
  /** What the execution has said since the last write that was answered. */
  reports: readonly Report[];
}

/** An execution that a cancel ends. */
export interface CancelledExecution {
  /** The generation of its lease: if that is lost, nothing is kept of it. */
  generation: number;
  /** The steps that are being executed. */
  steps: readonly ExecutingStep[];
  /** What it has said since the last write that was answered. */
  reports: readonly Report[];
}

/** What a run is to pause on. */
export interface PauseRequest {
  /** The waits and sleeps. */
  pauses: readonly NewPause[];
  /** When the earliest retry is due, if the run waits for one: an instant of the store's clock. */
  retryAt: number | null;
  /** Whether the run is to wait; otherwise the pauses are only prepared. */
  park: boolean;
  /** What the execution has said since the last write that was answered. */
  reports: readonly Report[];
}

/** What became of a pause. */
export interface PauseResult {
  /** Whether the run waits now, and the lease is given up. */
  parked: boolean;
  /** The pauses as they are kept, in the order of the request. */
  pauses: PauseRecord[];
  /** How long until the first deadline of those that are not over, in milliseconds; `null` if they have none. */
  nextDeadlineInMs: number | null;
}

/** Which runs to find. */
export interface RunQuery extends RunFilter {
  /**
   * What of the filter says whose runs these are: the names of labels, and whether the jobs do. A store finds the runs
   * by these, and looks at each of them for the rest, so that how long it takes tells nothing of the runs of others.
   */
  scope?: { labels: readonly string[]; jobs: boolean };
}

/** What a filter found. */
export interface FoundRuns extends Omit<RunPage, "runs"> {
  /** The ids of the runs of this page. */
  ids: string[];
}

/** Where a value is kept. */
export type ValuePlace =
  | { of: "run"; runId: string; value: "payload" | "output" }
  | { of: "step"; runId: string; stepName: string; value: "output" }
  | { of: "wait"; waitId: string; value: "metadata" | "payload" };

/** A part of a value. */
export interface ValuePart {
  /** Its JSON in UTF-8, from where it was asked for: the caller's own. */
  bytes: Uint8Array<ArrayBuffer>;
  /** Where it goes on, as the store counts; `null`: this was the last part. */
  next: number | null;
}

/** A part of a list. */
export interface Part<T> {
  /** The records, in their order. */
  items: T[];
  /** Whether more may follow. */
  hasMore: boolean;
}

/** A run and its place in the journal, read at one moment. */
export interface RunState {
  /** The run. */
  run: Run;
  /** Its row number, by which facts name it. */
  seq: number;
  /** The end of the journal at that moment: what is committed after it is not in this state. */
  place: Cursor;
  /** Its input as it was given; `null` for `undefined`, which the run itself cannot tell from a JSON `null`. */
  payload: JsonText | null;
  /** How often it was claimed: 1 before and during its first execution, one more after each interruption. */
  execution: number;
  /** What it has parked on, whether it is over by now or not, in the order in which it was prepared. */
  pauses: AwaitedPause[];
}

/** Something that a run waits for: a wait, a sleep, or another attempt at a step. `Instant`: how it writes them. */
export interface AwaitedPause<Instant = string> {
  /** The wait; `null` for what cannot be signalled. */
  waitId: string | null;
  /** The name of the wait, the sleep or the step. */
  name: string;
  /** When time ends it: ISO 8601 in UTC. */
  deadlineAt: Instant | null;
}

/** How a run ends, apart from being cancelled. */
export type Ending =
  | { status: "completed"; output: JsonText | null; durationMs: number }
  | { status: "failed"; failure: Failure; failedStepName: string | null };

/** A receipt, and whose wait it was. */
export interface SignalOutcome extends SignalReceipt {
  /** The run of the wait. */
  run: RunIdentity;
}

/** How long runs are kept after they ended, in milliseconds; those left out are kept for ever. */
export type Retention = { readonly [status in TerminalStatus]?: number };
