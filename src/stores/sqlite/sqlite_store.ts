import type { ChildResult, Signal, SignalOutcome, Wait, WaitText } from "../../wait.ts";
import { StoreError, WaitExpiredError } from "../../error.ts";
import { type Host, systemHost } from "../../host.ts";
import type { Fact, FactValue, FactValueRef } from "../../fact.ts";
import type { Cursor, JournalPage } from "../../journal.ts";
import type { Lease, SeenLease } from "../../lease.ts";
import type { LogText, NewLogEntry } from "../../log.ts";
import { kindOf } from "../../values/kind_of.ts";
import type { Retention, RunIdentity, RunText, StoredRun } from "../../run.ts";
import type { Report } from "../../execution_report.ts";
import type { SavedStep, StepText, StepWrite } from "../../step.ts";
import type { Store } from "../../store.ts";
import type { OpenWaitPlace, OpenWaits, SearchHit } from "../../store/operator_reads.ts";
import type { RunFailures, TimelinePlace, TimelineRecords } from "../../store/timeline_records.ts";
import { readOpenWaits, searchRuns } from "./operate/operator_reads.ts";
import { readFailures, readTimeline } from "./operate/timeline_reads.ts";
import type { RunBlockers } from "../../store/blockers.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending, Renewal } from "../../store/claim.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { HeldQuery, HoldRecord, NewHold, RunHistory, StrandedJob } from "../../store/hold_record.ts";
import type { JsonText } from "../../values/json.ts";
import type { PauseRequest, PauseResult } from "../../store/pause_request.ts";
import type { FoundRuns, Part, RunQuery, ValuePart, ValuePlace } from "../../store/run_query.ts";
import type { RunState } from "../../store/run_state.ts";
import type { JobPause } from "../../store/job_pause.ts";
import type { JobList, RatedJob } from "../../store/job_numbers.ts";
import type { JobStatistics, StatisticsQuery, StatisticsRow } from "../../store/statistics.ts";
import type { StoreInfo } from "../../store/store_info.ts";
import type { WorkerList } from "../../store/worker_record.ts";
import type { Firing, ScheduleList, ScheduleRecord } from "../../store/schedule_record.ts";
import { findBlockers } from "../operate/find_blockers.ts";
import { readBlockerFacts } from "./operate/blockers.ts";
import { backUp } from "./backup.ts";
import { readChildren } from "./children/child_results.ts";
import { claimRuns, findIdle } from "./writes/claim.ts";
import { pauseJob, resumeJob } from "./flow/job_pauses.ts";
import { settleHeads } from "./flow/turns.ts";
import { forgetDeadWorkers } from "./writes/known_workers.ts";
import { SqliteDatabase, type SqliteDriver } from "./sqlite_database.ts";
import { cancelRun, deleteRun, finishRun, purgeRuns } from "./writes/endings.ts";
import type { TraceText } from "../../trace_context.ts";
import { enqueueRuns } from "./writes/enqueue.ts";
import { findHeld, holdRun, readHold, resumeHeld } from "./evolution/holds.ts";
import { readInput, writeInput } from "./evolution/other_inputs.ts";
import { findStrandedJobs } from "./evolution/stranded_jobs.ts";
import { readHistory } from "./reads/run_history.ts";
import { readClaims, toLease } from "./reads/replay_history.ts";
import { readFactValues, readIdentities } from "./reads/fact_values.ts";
import { trimByAge } from "./journal/journal.ts";
import { findCursor, findLastFact, readJournal } from "./journal/read_journal.ts";
import { findLostLeases, readLeases, releaseLease, renewLeases, revokeLeases } from "./writes/leases.ts";
import { findRuns } from "./reads/run_lists.ts";
import { appendLines } from "./writes/logs.ts";
import { readLogs, readRuns, readSteps, readValue, readWaits } from "./reads/bounded_reads.ts";
import { deliver, pauseRun } from "./writes/pauses.ts";
import { toWait } from "../rows.ts";
import type { PauseRow } from "./rows.ts";
import { readRunState } from "./reads/run_state.ts";
import { deleteSchedule, fireSchedule, readSchedules, setSchedule } from "./schedules.ts";
import { migrateTables, MIGRATIONS } from "./schema.ts";
import { readJobNumbers } from "./operate/job_numbers.ts";
import { addStatistics, readStatistics } from "./operate/statistics.ts";
import { readStoreInfo } from "./operate/store_info.ts";
import { noteStopping, readWorkers } from "./operate/workers.ts";
import { recordStep } from "./writes/steps.ts";
import { checkDriver } from "./check_driver.ts";
import { SecureDelete } from "./secure_delete.ts";
import { type Connection, openConnection } from "./connection.ts";
import { RetriedReads } from "./retried_reads.ts";
import { checkStoreOptions, type SqliteStoreOptions } from "./sqlite_store_options.ts";
import { WriteBatch } from "./write_batch.ts";

/**
 * Keeps everything in one SQLite file, which several processes on one machine can share.
 *
 * It uses a write-ahead log. Copy the file with {@linkcode SqliteStore.backup}, never by reading it: opening and
 * closing a database file by other means drops the locks of the whole process
 * (https://www.sqlite.org/howtocorrupt.html, section 2.2).
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const double = defineJob({
 *   name: "double",
 *   input: z.object({ value: z.number() }),
 *   run: (step, { value }) => step.run("double", () => value * 2),
 * });
 *
 * await using store = await SqliteStore.open(":memory:"); // a path in production: "jobs.db"
 * await using engine = createEngine({ store, jobs: { double } });
 * await engine.start();
 * const run = await engine.jobs.double.triggerAndWait({ value: 21 });
 * console.log(run.output); // 42
 * ```
 */
export class SqliteStore implements Store {
  readonly #connection: Connection;
  readonly #db: SqliteDatabase;
  readonly #host: Host;
  readonly #reads: RetriedReads;
  readonly #writes: WriteBatch;
  readonly #secureDelete: SecureDelete | null;
  /** Aborted when the store is closed: reads that wait for a lock end. */
  readonly #closing = new AbortController();
  /** Whether the last claim has left ready runs behind: the next one need not look whether there are any. */
  #hasMore = false;

  /** Use {@linkcode SqliteStore.open} or {@linkcode SqliteStore.from}. */
  private constructor(connection: Connection, { host = systemHost, secureDelete }: SqliteStoreOptions) {
    this.#connection = connection;
    this.#db = new SqliteDatabase(connection.driver);
    this.#host = host;
    this.#reads = new RetriedReads(this.#db, connection.file, host, this.#closing.signal);
    this.#writes = new WriteBatch(this.#db, host);
    this.#secureDelete = secureDelete ? new SecureDelete(this.#db, host) : null;
  }

  /**
   * Opens a file, or creates it. Loads `node:sqlite`, and needs permission to read and to write the file. A new file,
   * and those that SQLite keeps beside it, can be read and written by their owner only (mode 0600; not on Windows).
   *
   * @param path The path of the file, a `file:` URL, or `":memory:"`.
   * @throws {StoreError} The file cannot be opened or made, or is not a database.
   */
  static async open(path: string | URL, options: SqliteStoreOptions = {}): Promise<SqliteStore> {
    checkStoreOptions(options, "SqliteStore.open()");
    if (typeof path !== "string" && !(path instanceof URL)) {
      throw new TypeError(`SqliteStore.open() needs the path of a file, not ${kindOf(path)}`);
    }
    const name = path instanceof URL || path.startsWith("file:")
      ? (await import("node:url")).fileURLToPath(path)
      : path;
    const refusal = `Cannot open the database "${name}"`;
    const connection = await openConnection(name, refusal);
    try {
      const store = new SqliteStore(connection, options);
      await store.#configure(options, refusal);
      return store;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /**
   * Uses an open database of `node:sqlite`, `bun:sqlite`, `jsr:@db/sqlite` (opened with `int64: true`), `better-sqlite3`
   * or another driver of the same shape. All its tables begin with `holdfast_`. Close the store first, then the database.
   *
   * Use one SQLite library for one file in a process. Two libraries (a `node:sqlite` store and your own connection of
   * `better-sqlite3`, say) do not see each other's locks there, since locks belong to the process: both can write at
   * once, and when one closes the file the other loses its locks, which can damage the database
   * (https://www.sqlite.org/howtocorrupt.html, section 2.2).
   *
   * @throws {TypeError} The database is closed, cuts integers off at 32 bits, returns every integer as a bigint, or is of
   * a SQLite before 3.43.
   */
  static async from(database: SqliteDriver, options: SqliteStoreOptions = {}): Promise<SqliteStore> {
    checkStoreOptions(options, "SqliteStore.from()");
    checkDriver(database);
    const store = new SqliteStore({ driver: database, close: () => {}, file: null }, options);
    await store.#configure(options);
    return store;
  }

  async #configure({ synchronous = "full" }: SqliteStoreOptions, refusal?: string): Promise<void> {
    const db = this.#db;
    await this.#reads.read(() => {
      // SQLite would wait by blocking the event loop: `WriteBatch` and `RetriedReads` wait instead.
      db.get("PRAGMA busy_timeout = 0");
      db.get("PRAGMA journal_mode = WAL");
      db.exec(`PRAGMA synchronous = ${synchronous}; PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = 67108864`);
      this.#secureDelete?.start();
    }, refusal);
  }

  /** Creates or updates the tables; safe in several processes at once. */
  migrate(): Promise<void> {
    return this.#write(() => {
      migrateTables(this.#db);
      forgetDeadWorkers(this.#db, this.#host.now());
      trimByAge(this.#db, this.#host.now());
    });
  }

  /** Completes pending calls, and closes the file if the store has opened it. Safe to call twice. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    await this.#writes.close();
    this.#secureDelete?.close();
    this.#connection.close();
  }

  /** The same as {@linkcode SqliteStore.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /**
   * Writes a consistent copy to a new file while the store is in use. Only the file's owner can read it. It is made in
   * one go, although others write meanwhile: this process does nothing else for some 3 ms for each megabyte. A large
   * file is better copied by a process of its own.
   *
   * @throws {StoreError} The file exists, or cannot be written.
   */
  async backup(path: string): Promise<void> {
    if (this.#closing.signal.aborted) throw new StoreError("The store is closed");
    this.#connection.file?.check(this.#host.monotonic());
    await backUp(this.#db.driver, path);
  }

  /** Adds runs, or finds the existing ones that the requests lead to: all of them or none. */
  enqueue(runs: readonly NewRun[]): Promise<Enqueued[]> {
    return this.#write((now) => enqueueRuns(this.#db, runs, this.#host, now));
  }

  /** Claims due runs of the known jobs that pass the gates, each under a new lease. */
  async claim(request: ClaimRequest): Promise<ClaimResult> {
    if (!this.#hasMore || request.limit === 0) {
      const now = this.#host.now();
      const idle = await this.#reads.read(() => findIdle(this.#db, request, now));
      if (idle !== null) return { claims: [], failed: [], cancelled: [], hasMore: false, now, ...idle };
    }
    const { rows, ...result } = await this.#write((now) => ({ ...claimRuns(this.#db, request, now), now }));
    this.#hasMore = result.hasMore;
    // Outside the transaction: nobody else writes to a run that has just been claimed, unless it is cancelled
    // meanwhile.
    const claims = await this.#reads.inSlices(() =>
      readClaims(this.#db, rows, request.claimId, () => this.#host.now())
    );
    for (const row of rows) {
      // The caller does not learn of a run that is left out, and could not release its key.
      if (!claims.some(({ run }) => run.id === row.id)) await this.release(toLease(row, request.claimId), []);
    }
    return { ...result, claims };
  }

  /** Extends leases to `leaseMs` from now, never shortening one, and stores the reports. */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]> {
    return this.#write((now) => renewLeases(this.#db, renewals, leaseMs, now), { urgent: true });
  }

  /** Releases a lease before its end. */
  release(lease: Lease, reports: readonly Report[]): Promise<void> {
    return this.#write((now) => releaseLease(this.#db, lease, reports, now));
  }

  /** Holds a run, and releases its lease and its concurrency key. */
  hold(lease: Lease, hold: NewHold, reports: readonly Report[]): Promise<void> {
    return this.#write((now) => holdRun(this.#db, lease, hold, reports, now));
  }

  /** Makes a held run due for all workers that know its version. */
  resumeHeld(runId: string, continues: boolean): Promise<StoredRun | null> {
    return this.#write((now) => resumeHeld(this.#db, runId, continues, now));
  }

  /** The hold of a run, or `null` if it is not held. */
  getHold(runId: string): Promise<HoldRecord | null> {
    return this.#reads.read(() => readHold(this.#db, runId));
  }

  /** Finds held runs, in the order of their row numbers. */
  findHeld(query: HeldQuery): Promise<{ ids: string[]; seqs: number[] }> {
    return this.#reads.snapshot(() => findHeld(this.#db, query));
  }

  /** The input of a run as parsed by the schema with this print, or `null` if it was not stored. */
  getInput(runId: string, schemaPrint: string): Promise<{ input: JsonText | null } | null> {
    return this.#reads.read(() => readInput(this.#db, runId, schemaPrint));
  }

  /** Stores the input of a run as parsed by another schema than that of its trigger, and returns the stored one. */
  saveInput(lease: Lease, schemaPrint: string, input: JsonText | null): Promise<JsonText | null> {
    return this.#write((now) => writeInput(this.#db, lease, schemaPrint, input, now));
  }

  /** All that a replay of a run needs, or `null` if there is none. */
  getHistory(runId: string): Promise<RunHistory | null> {
    return this.#reads.snapshot(() => readHistory(this.#db, runId, this.#host.now()));
  }

  /** The jobs and versions of open runs that no live worker knows, by name and version. */
  getStrandedJobs(): Promise<StrandedJob[]> {
    return this.#reads.snapshot(() => findStrandedJobs(this.#db, this.#host.now()));
  }

  /** All current leases, including those of cancelled runs that a worker may still execute. */
  getLeases(): Promise<SeenLease[]> {
    return this.#reads.read(() => readLeases(this.#db, this.#host.now()));
  }

  /** Which of these leases are no longer the current ones of their runs. */
  getLostLeases(leases: readonly Lease[]): Promise<Lease[]> {
    return this.#reads.read(() => findLostLeases(this.#db, leases));
  }

  /** Revokes leases regardless of the clock, unless they were renewed since they were read. */
  revoke(leases: readonly SeenLease[]): Promise<void> {
    return this.#write((now) => revokeLeases(this.#db, leases, now));
  }

  /** Adds a schedule, or replaces one that has not changed meanwhile. */
  setSchedule(schedule: Omit<ScheduleRecord, "version">, version: number | null): Promise<ScheduleRecord | null> {
    return this.#write((now) => setSchedule(this.#db, schedule, version, now));
  }

  /** All schedules in the order of their names, or the one with a name. */
  getSchedules(name?: string): Promise<ScheduleList> {
    return this.#reads.read(() => ({ schedules: readSchedules(this.#db, name), now: this.#host.now() }));
  }

  /** Deletes a schedule. */
  deleteSchedule(name: string): Promise<boolean> {
    return this.#delete(() => deleteSchedule(this.#db, name));
  }

  /** Reads how the children of a pause ended, up to a number of characters. */
  readChildren(pauseId: string, from: number, maxLength: number): Promise<Part<ChildResult> | null> {
    return this.#reads.snapshot(() => readChildren(this.#db, pauseId, from, maxLength));
  }

  /** Fires or skips a slot. */
  fireSchedule(firing: Firing): Promise<{ schedule: ScheduleRecord; run: Enqueued | null } | null> {
    return this.#write((now) => fireSchedule(this.#db, firing, this.#host, now));
  }

  /** Deletes the entry of a worker that will not claim again. */
  forgetWorker(workerId: string): Promise<void> {
    return this.#write(() => void this.#db.run("DELETE FROM holdfast_workers WHERE id = ?", workerId));
  }

  /** Notes that a worker claims nothing more. */
  noteStopping(workerId: string): Promise<void> {
    return this.#write(() => noteStopping(this.#db, workerId));
  }

  /** The workers, by their first claims. */
  getWorkers(): Promise<WorkerList> {
    return this.#reads.read(() => {
      const now = this.#host.now();
      return { workers: this.#db.snapshot(() => readWorkers(this.#db, now)), now };
    });
  }

  /** The numbers of each job, and when rates open. */
  getJobs(rates: readonly RatedJob[]): Promise<JobList> {
    return this.#reads.snapshot(() => readJobNumbers(this.#db, rates, this.#host.now()));
  }

  /** Adds what a process has counted to the statistics. */
  addStats(statistics: readonly JobStatistics[]): Promise<void> {
    return this.#write((now) => addStatistics(this.#db, statistics, now));
  }

  /** Reads statistics, by time and job. */
  readStats(query: StatisticsQuery): Promise<{ rows: StatisticsRow[]; now: number }> {
    return this.#reads.read(() => ({ rows: readStatistics(this.#db, query), now: this.#host.now() }));
  }

  /** How large the file is. */
  getInfo(): Promise<StoreInfo> {
    const walBytes = this.#connection.file?.walBytes() ?? null;
    return this.#reads.snapshot(() => readStoreInfo(this.#db, MIGRATIONS.length, walBytes));
  }

  /** Pauses a job: from now on, no run of it is claimed. */
  pauseJob(jobName: string, pause: Pick<JobPause, "by" | "note">): Promise<JobPause> {
    return this.#write((now) => pauseJob(this.#db, jobName, pause, now));
  }

  /** Ends the pause of a job. */
  resumeJob(jobName: string): Promise<boolean> {
    return this.#write(() => resumeJob(this.#db, jobName));
  }

  /** What holds up a run, or `null` if there is none. */
  getBlockers(runId: string): Promise<RunBlockers | null> {
    return this.#reads.read(() => {
      const facts = this.#db.snapshot(() => readBlockerFacts(this.#db, runId, this.#host.now()));
      return facts === null ? null : findBlockers(facts);
    });
  }

  /** Records how an attempt at a step ended. */
  saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep> {
    return this.#write((now) => recordStep(this.#db, lease, step, reports, now));
  }

  /** Prepares pauses and, if requested, parks the run. */
  pause(lease: Lease, request: PauseRequest): Promise<PauseResult> {
    if (request.park && request.pauses.length === 0 && request.retryAt === null) {
      return Promise.reject(new TypeError("A run cannot wait for nothing"));
    }
    return this.#write((now) => pauseRun(this.#db, lease, request, this.#host, now));
  }

  /** Ends a run. */
  finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void> {
    return this.#write((now) => finishRun(this.#db, lease, ending, reports, now));
  }

  /** Ends a wait by a signal. */
  async signal(waitId: string, signal: Signal, trace: TraceText | null = null): Promise<SignalOutcome> {
    const payload = JSON.stringify(signal.payload);
    const delivery = await this.#write((now) => deliver(this.#db, waitId, signal, payload, trace, now));
    if ("expired" in delivery) throw new WaitExpiredError(`The deadline of wait "${waitId}" has passed`);
    return delivery.outcome;
  }

  /** Cancels a run that has not ended. */
  cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<StoredRun | null> {
    return this.#write((now) => cancelRun(this.#db, runId, { requestId, execution }, now));
  }

  /** Deletes a run that has ended, with everything that belongs to it. */
  delete(runId: string): Promise<RunIdentity | null> {
    return this.#delete((now) => deleteRun(this.#db, runId, now));
  }

  /** Deletes the oldest of the runs that ended long enough ago. */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]> {
    return this.#delete((now) => purgeRuns(this.#db, retention, limit, now));
  }

  /** A run and its position in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null> {
    return this.#reads.snapshot(() => readRunState(this.#db, runId));
  }

  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null> {
    const sql = "SELECT p.*, r.id AS run_id FROM holdfast_pauses p JOIN holdfast_runs r ON r.seq = p.run_seq " +
      "WHERE p.id = ? AND p.kind = 'wait'";
    return this.#reads.read(() => {
      const row = this.#db.get<PauseRow & { run_id: string }>(sql, waitId);
      return row === undefined ? null : toWait(row.run_id, row);
    });
  }

  /** A part of the records of a run, for its timeline; `null` if there is no such run. */
  getTimeline(runId: string, from: TimelinePlace, limit: number): Promise<TimelineRecords | null> {
    return this.#reads.snapshot(() => readTimeline(this.#db, runId, from, limit, this.#host.now()));
  }

  /** The failures of a run and of the attempts at its steps; `null` if there is no such run. */
  getFailures(runId: string): Promise<RunFailures | null> {
    return this.#reads.snapshot(() => readFailures(this.#db, runId));
  }

  /** Open waits, the soonest deadline first. */
  getOpenWaits(after: OpenWaitPlace | null, limit: number, runIds?: readonly string[]): Promise<OpenWaits> {
    return this.#reads.snapshot(() => readOpenWaits(this.#db, after, limit, runIds));
  }

  /** Finds runs by an id, a key or a label. */
  searchRuns(text: string, limit: number): Promise<SearchHit[]> {
    return this.#reads.snapshot(() => searchRuns(this.#db, text, limit));
  }

  /** The ids of the runs that match a filter, newest first. */
  findRuns(query: RunQuery): Promise<FoundRuns> {
    return this.#reads.inSlices(() => findRuns(this.#db, query));
  }

  /** Reads runs without parsing their values, up to a number of characters. */
  readRuns(runIds: readonly string[], maxLength: number): Promise<(RunText | null)[]> {
    return this.#reads.snapshot(() => readRuns(this.#db, runIds, maxLength));
  }

  /** Reads the recorded steps of a run in the order of their index, up to a number of characters. */
  readSteps(runId: string, after: string | null, maxLength: number): Promise<Part<StepText> | null> {
    return this.#reads.snapshot(() => readSteps(this.#db, runId, after, maxLength));
  }

  /** Reads the waits of a run in the order in which they were prepared, up to a number of characters. */
  readWaits(runId: string, after: string | null, maxLength: number): Promise<Part<WaitText> | null> {
    return this.#reads.snapshot(() => readWaits(this.#db, runId, after, maxLength));
  }

  /** Reads the stored log lines of a run in the order in which they were added, up to a number of characters. */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null> {
    return this.#reads.snapshot(() => readLogs(this.#db, runId, after, maxLength));
  }

  /** Reads the next part of a value. */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null> {
    return this.#reads.read(() => readValue(this.#db, place, from));
  }

  /** Stores log lines. Lines of a deleted run are dropped. */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void> {
    return this.#write(() => appendLines(this.#db, entries));
  }

  /** Reads what was committed after a position, in the order of the commits. */
  readJournal(after: number, maxLength: number): Promise<JournalPage | null> {
    return this.#reads.read(() => readJournal(this.#db, after, maxLength));
  }

  /** For `null` the end of the journal; for a cursor that cursor, or `null` if rows after it are missing. */
  findCursor(cursor: Cursor | null): Promise<Cursor | null> {
    return this.#reads.snapshot(() => findCursor(this.#db, cursor));
  }

  /** The position of the last row after a position that has a fact about a run. */
  findLastFact(run: number, after: number, kinds: readonly Fact[1][] | null): Promise<number | null> {
    return this.#reads.inSlices(() => findLastFact(this.#db, run, after, kinds));
  }

  /** The identities of runs, by their row numbers. */
  getRunIdentities(runs: readonly number[]): Promise<(RunIdentity | null)[]> {
    return this.#reads.read(() => readIdentities(this.#db, runs));
  }

  /** Reads values that facts leave out, up to a number of characters. */
  readFactValues(values: readonly FactValueRef[], maxLength: number): Promise<(FactValue | null)[]> {
    return this.#reads.snapshot(() => readFactValues(this.#db, values, maxLength));
  }

  /** A version that changes whenever another connection of any process has committed. */
  getVersion(): Promise<number> {
    return this.#reads.read(() => this.#db.one<{ data_version: number }>("PRAGMA data_version").data_version);
  }

  #write<T>(work: (now: number) => T, options: { urgent?: boolean } = {}): Promise<T> {
    return this.#writes.submit(() => {
      this.#connection.file?.check(this.#host.monotonic());
      const value = work(this.#host.now());
      settleHeads(this.#db);
      return value;
    }, options);
  }

  /** A write that deletes runs, or finds none to delete. */
  async #delete<T>(work: (now: number) => T): Promise<T> {
    try {
      return await this.#write(work);
    } finally {
      // Even after an error: the outcome may be unknown.
      if (!this.#closing.signal.aborted) this.#secureDelete?.noteDeletion();
    }
  }
}
