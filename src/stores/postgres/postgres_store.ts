import type { Fact, FactValue, FactValueRef } from "../../fact.ts";
import { systemHost } from "../../host.ts";
import type { Cursor, JournalPage } from "../../journal.ts";
import type { JsonText } from "../../values/json.ts";
import type { Lease, SeenLease } from "../../lease.ts";
import type { LogText, NewLogEntry } from "../../log.ts";
import type { Report } from "../../execution_report.ts";
import type { Retention, RunIdentity, RunText, StoredRun } from "../../run.ts";
import { kindOf } from "../../values/kind_of.ts";
import { retryTime, type SavedStep, type StepText, type StepWrite } from "../../step.ts";
import { LeaseLostError, StoreError } from "../../error.ts";
import type { Store } from "../../store.ts";
import type { OpenWaitPlace, OpenWaits, SearchHit } from "../../store/operator_reads.ts";
import type { RunFailures, TimelinePlace, TimelineRecords } from "../../store/timeline_records.ts";
import {
  type FailuresAnswer,
  type OpenWaitsAnswer,
  type TimelineAnswer,
  toFound,
  toOpenWaits,
  toRunFailures,
  toTimeline,
} from "./operate/operator_reads.ts";
import type { RunBlockers } from "../../store/blockers.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending, Renewal } from "../../store/claim.ts";
import type { HeldQuery, HoldRecord, NewHold, RunHistory, StrandedJob } from "../../store/hold_record.ts";
import type { JobPause } from "../../store/job_pause.ts";
import type { JobList, RatedJob } from "../../store/job_numbers.ts";
import type { JobStatistics, StatisticsQuery, StatisticsRow } from "../../store/statistics.ts";
import type { StoreInfo } from "../../store/store_info.ts";
import type { WorkerList } from "../../store/worker_record.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { PauseRequest, PauseResult } from "../../store/pause_request.ts";
import type { FoundRuns, Part, RunQuery, ValuePart, ValuePlace } from "../../store/run_query.ts";
import type { TraceText } from "../../trace_context.ts";
import type { RunState } from "../../store/run_state.ts";
import type { Firing, ScheduleList, ScheduleRecord } from "../../store/schedule_record.ts";
import type { ChangeListener, StoreWatch } from "../../store/store_watch.ts";
import type { ChildResult, Signal, SignalOutcome, Wait, WaitText } from "../../wait.ts";
import { type Connection, lendClient, openPool, type PostgresClient } from "./database/client.ts";
import { type BoundedClaimAnswer, type ClaimAnswer, toClaimResult } from "./claims.ts";
import {
  type HistoryAnswer,
  type HoldRow,
  type StrandedRow,
  toHistory,
  toHoldParameter,
  toHoldRecord,
  toStrandedJobs,
} from "./holds.ts";
import { LogQueue } from "./writes/log_queue.ts";
import { checkServer, type Durability } from "./database/check_server.ts";
import { migrateTables } from "./database/migrate.ts";
import { Announcer } from "./notify/announcer.ts";
import { changeChannel, testChannel } from "./notify/channels.ts";
import type { Listen } from "./notify/listen.ts";
import { NotifyListener } from "./notify/listener.ts";
import {
  toClaimParameter,
  toEndingParameter,
  toExecutionParameter,
  toLeaseParameter,
  toNewRunParameter,
  toPauseParameter,
  toReportParameters,
  toStepParameter,
} from "./writes/parameters.ts";
import { findBlockers } from "../operate/find_blockers.ts";
import { type BlockersAnswer, toBlockerFacts } from "./operate/blockers.ts";
import { type PauseAnswer, type SignalAnswer, toPauseResult, toSignalOutcome } from "./pauses.ts";
import { checkStoreOptions, listenOf, type PostgresStoreOptions } from "./postgres_store_options.ts";
import { isRefusal, type Refusal, toRefusalError } from "./writes/refusal.ts";
import { PostgresDatabase } from "./database/postgres_database.ts";
import { readLogs, readRuns, readSteps, readValue, readWaits } from "./reads/bounded_reads.ts";
import { readChildren } from "./reads/children.ts";
import { findCursor, readFactValues, readIdentities, readJournal, readRunState } from "./reads/journal.ts";
import { findRuns } from "./reads/run_lists.ts";
import { type PostgresWarning, readWarnings } from "./reads/warnings.ts";
import {
  type IdentityRow,
  type JobPauseRow,
  type ScheduleRow,
  toJobPause,
  toRunIdentity,
  toSchedule,
  toWait,
  type WaitRow,
} from "../rows.ts";
import { type RunRow, toRunText } from "./rows.ts";
import { type FiringAnswer, toFiringParameter, toFiringResult } from "./schedules.ts";
import type { WriteKind } from "./sql/writes/apply.ts";
import { type JobsAnswer, toJobList, toWorkerList, type WorkersAnswer } from "./operate/numbers.ts";
import { VERSION } from "./sql/names.ts";
import { VersionWatch } from "./database/version_watch.ts";
import { WriteBatch } from "./writes/write_batch.ts";
import type { WriteParameter } from "./writes/write_group.ts";

/**
 * Keeps everything in one schema of a PostgreSQL database, which any number of processes on any machines can share.
 *
 * Each call is one statement, and so one transaction: no connection waits for the process between two statements, so a
 * pooler in transaction mode can be in between.
 *
 * @example
 * ```ts
 * import { createEngine } from "@holdfast/jobs";
 * import { PostgresStore } from "@holdfast/jobs/postgres";
 *
 * export async function work(url: string) {
 *   await using store = await PostgresStore.open(url); // postgres://user:password@localhost:5432/app
 *   await using engine = createEngine({ store, jobs: {} });
 *   await engine.start();
 * }
 * ```
 */
export class PostgresStore implements Store {
  readonly #database: PostgresDatabase;
  readonly #writes: WriteBatch;
  readonly #logs: LogQueue;
  readonly #versions: VersionWatch;
  readonly #announcer: Announcer;
  readonly #listener: NotifyListener | null = null;
  readonly #durability: Durability;
  /** Reports changes of this and other stores by LISTEN and NOTIFY; `undefined` if the store does not listen. */
  readonly watch?: (listener: ChangeListener) => StoreWatch;

  /** Use {@linkcode PostgresStore.open} or {@linkcode PostgresStore.from}. */
  private constructor(
    connection: Connection,
    listen: Listen | null,
    { schema = "holdfast", durability = "full", host }: PostgresStoreOptions,
  ) {
    const clock = host === undefined ? () => null : () => Math.floor(host.now());
    const database = new PostgresDatabase(connection, schema, clock);
    const timers = host ?? systemHost;
    this.#database = database;
    this.#writes = new WriteBatch(database);
    this.#logs = new LogQueue(database);
    this.#versions = new VersionWatch(database, () => timers.monotonic());
    this.#announcer = new Announcer(database, changeChannel(schema), timers);
    this.#durability = durability;
    if (listen === null) return;
    const listener = new NotifyListener({
      listen,
      notify: (channel) => database.notify(channel),
      changeChannel: changeChannel(schema),
      testChannel: testChannel(timers.newId()),
      host: timers,
    });
    this.#listener = listener;
    this.watch = (given) => listener.watch(given);
  }

  /**
   * Opens a database. Loads `npm:pg`, and needs permission to connect to the server. If the server does not answer now,
   * the first call that needs it fails.
   *
   * @param url The address: `postgres://user:password@host:5432/database`.
   * @throws {TypeError} The address or an option is not valid.
   * @throws {StoreError} The server may lose what it has acknowledged and `durability` is `full`, or it is not PostgreSQL.
   */
  static async open(url: string | URL, options: PostgresStoreOptions = {}): Promise<PostgresStore> {
    checkStoreOptions(options, "PostgresStore.open()");
    if (typeof url !== "string" && !(url instanceof URL)) {
      throw new TypeError(`PostgresStore.open() needs the address of a database, not ${kindOf(url)}`);
    }
    const store = new PostgresStore(await openPool(String(url)), listenOf(options, url), options);
    try {
      await checkServer(store.#database, store.#durability);
    } catch (error) {
      if (!(error instanceof StoreError && error.code === "unavailable")) {
        await store.close();
        throw error;
      }
    }
    return store;
  }

  /**
   * Uses a client that you have opened: a pool of `npm:pg`, `npm:postgres`, `jsr:@db/postgres` or PGlite. The store never
   * closes it. A pool of `npm:pg` needs an `error` listener of your own: without one, a connection that breaks while it is
   * idle ends the process.
   */
  static from(client: PostgresClient, options: PostgresStoreOptions = {}): PostgresStore {
    checkStoreOptions(options, "PostgresStore.from()");
    return new PostgresStore(lendClient(client), listenOf(options, null), options);
  }

  /** Creates or updates the tables; safe in several processes at once. */
  migrate(): Promise<void> {
    return migrateTables(this.#database, this.#durability);
  }

  /** Completes pending calls, and closes the connections if the store has opened them. Safe to call twice. */
  async close(): Promise<void> {
    await Promise.all([this.#writes.close(), this.#logs.close(), this.#listener?.close()]);
    await this.#announcer.close();
    await this.#database.close();
  }

  /** The same as {@linkcode PostgresStore.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Adds runs, or finds the existing ones that the requests lead to: all of them or none. */
  async enqueue(runs: readonly NewRun[]): Promise<Enqueued[]> {
    const rows = await this.#write<EnqueuedRow[]>("enqueue", { runs: runs.map(toNewRunParameter) });
    return rows.map(({ disposition, run }) => ({ disposition, run: toRunText(run) }));
  }

  /** Claims due runs of the known jobs that pass the gates, each under a new lease. */
  async claim(request: ClaimRequest): Promise<ClaimResult> {
    await this.#versions.look();
    const parameter = toClaimParameter(request);
    const { claims, ...answer } = await this.#database.write<BoundedClaimAnswer>("bounded_claim", parameter, "leases");
    const { failed, cancelled } = answer;
    // A claim that finds nothing changes nothing: idle processes would wake each other over and over.
    if (claims === null || claims.length + failed.length + cancelled.length > 0) this.#announcer.announce();
    if (claims !== null) return toClaimResult({ ...answer, claims });
    return toClaimResult({
      ...await this.#database.write<ClaimAnswer>("claim", parameter, "reads"),
      failed,
      cancelled,
    });
  }

  /** Extends leases to `leaseMs` from now, never shortening one, and stores the reports. */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]> {
    return this.#write("renew", {
      renewals: renewals.map(({ lease, reports }) => ({
        ...toLeaseParameter(lease),
        reports: toReportParameters(reports),
      })),
      leaseMs,
    }, { isUrgent: true, isSilent: renewals.every(({ reports }) => reports.length === 0) });
  }

  /** Releases a lease before its end. */
  async release(lease: Lease, reports: readonly Report[]): Promise<void> {
    await this.#write("release", { ...toLeaseParameter(lease), reports: toReportParameters(reports) });
  }

  /** Holds a run, and releases its lease and its concurrency key. */
  async hold(lease: Lease, hold: NewHold, reports: readonly Report[]): Promise<void> {
    await this.#writeUnder(lease, "hold", { ...toHoldParameter(hold), reports: toReportParameters(reports) });
  }

  /** Makes a held run due for all workers that know its version. */
  async resumeHeld(runId: string, continues: boolean): Promise<StoredRun | null> {
    const row = await this.#write<RunRow | null>("resume_held", { runId, continues });
    return row === null ? null : toRunText(row);
  }

  /** The hold of a run, or `null` if it is not held. */
  async getHold(runId: string): Promise<HoldRecord | null> {
    const row = await this.#database.read<HoldRow | null>("get_hold", { runId });
    return row === null ? null : toHoldRecord(row);
  }

  /** Finds held runs, in the order of their row numbers. */
  findHeld(query: HeldQuery): Promise<{ ids: string[]; seqs: number[] }> {
    return this.#database.read("find_held", query);
  }

  /** The input of a run as parsed by the schema with this print, or `null` if it was not stored. */
  getInput(runId: string, schemaPrint: string): Promise<{ input: JsonText | null } | null> {
    return this.#database.read("get_input", { runId, schemaPrint });
  }

  /** Stores the input of a run as parsed by another schema than that of its trigger, and returns the stored one. */
  async saveInput(lease: Lease, schemaPrint: string, input: JsonText | null): Promise<JsonText | null> {
    const stored = await this.#writeUnder<{ input: JsonText | null }>(lease, "save_input", { schemaPrint, input });
    return stored.input;
  }

  /** All that a replay of a run needs, or `null` if there is none. */
  async getHistory(runId: string): Promise<RunHistory | null> {
    const history = await this.#database.read<HistoryAnswer | null>("get_history", { runId });
    return history === null ? null : toHistory(history);
  }

  /** The jobs and versions of open runs that no live worker knows, by name and version. */
  async getStrandedJobs(): Promise<StrandedJob[]> {
    return toStrandedJobs(await this.#database.read<StrandedRow[]>("get_stranded_jobs"));
  }

  /** All current leases, including those of cancelled runs that a worker may still execute. */
  getLeases(): Promise<SeenLease[]> {
    return this.#database.read("get_leases", {}, "leases");
  }

  /** Which of these leases are no longer the current ones of their runs. */
  async getLostLeases(leases: readonly Lease[]): Promise<Lease[]> {
    const lost = await this.#database.read<number[]>("get_lost_leases", leases.map(toLeaseParameter), "leases");
    return lost.map((at) => leases[at]!); // the index of a given lease
  }

  /** Revokes leases regardless of the clock, unless they were renewed since they were read. */
  async revoke(leases: readonly SeenLease[]): Promise<void> {
    await this.#write("revoke", {
      leases: leases.map((lease) => ({ ...toLeaseParameter(lease), expiresAt: lease.expiresAt })),
    });
  }

  /** Deletes the entry of a worker that will not claim again. */
  async forgetWorker(workerId: string): Promise<void> {
    await this.#write("forget_worker", { workerId });
  }

  /** Notes that a worker claims nothing more. */
  async noteStopping(workerId: string): Promise<void> {
    await this.#database.write("note_stopping", { workerId });
  }

  /** The workers, by their first claims. */
  async getWorkers(): Promise<WorkerList> {
    return toWorkerList(await this.#database.read<WorkersAnswer>("get_workers"));
  }

  /** The numbers of each job, and when rates open. */
  async getJobs(rates: readonly RatedJob[]): Promise<JobList> {
    return toJobList(await this.#database.read<JobsAnswer>("get_jobs", { rates }));
  }

  /** Adds what a process has counted to the statistics. */
  async addStats(statistics: readonly JobStatistics[]): Promise<void> {
    await this.#database.write("add_stats", { statistics });
  }

  /** Reads statistics, by time and job. */
  readStats(query: StatisticsQuery): Promise<{ rows: StatisticsRow[]; now: number }> {
    return this.#database.read("read_stats", query);
  }

  /** How large the tables and their indexes are. */
  async getInfo(): Promise<StoreInfo> {
    const { runs, bytes } = await this.#database.read<Pick<StoreInfo, "runs" | "bytes">>("get_info");
    return { kind: "postgres", schemaVersion: VERSION, bytes, walBytes: null, freeBytes: null, runs };
  }

  /** Pauses a job: from now on, no run of it is claimed. */
  async pauseJob(jobName: string, { by, note }: Pick<JobPause, "by" | "note">): Promise<JobPause> {
    return toJobPause(await this.#write<JobPauseRow>("pause_job", { jobName, by, note }));
  }

  /** Ends the pause of a job. */
  resumeJob(jobName: string): Promise<boolean> {
    return this.#write("resume_job", { jobName });
  }

  /** A part of the records of a run, for its timeline; `null` if there is no such run. */
  async getTimeline(runId: string, from: TimelinePlace, limit: number): Promise<TimelineRecords | null> {
    const answer = await this.#database.read<TimelineAnswer | null>("get_timeline", { runId, from, limit });
    return answer === null ? null : toTimeline(answer);
  }

  /** The failures of a run and of the attempts at its steps; `null` if there is no such run. */
  async getFailures(runId: string): Promise<RunFailures | null> {
    const answer = await this.#database.read<FailuresAnswer | null>("get_failures", { runId });
    return answer === null ? null : toRunFailures(answer);
  }

  /** Open waits, the soonest deadline first. */
  async getOpenWaits(after: OpenWaitPlace | null, limit: number, runIds?: readonly string[]): Promise<OpenWaits> {
    return toOpenWaits(await this.#database.read<OpenWaitsAnswer>("get_open_waits", { after, limit, runIds }));
  }

  /** Finds runs by an id, a key or a label. */
  async searchRuns(text: string, limit: number): Promise<SearchHit[]> {
    return toFound(await this.#database.read<SearchHit[]>("search_runs", { text, limit }), limit);
  }

  /** What holds up a run, or `null` if there is none. */
  async getBlockers(runId: string): Promise<RunBlockers | null> {
    const answer = await this.#database.read<BlockersAnswer | null>("get_blockers", { runId });
    return answer === null ? null : findBlockers(toBlockerFacts(answer));
  }

  /** Adds a schedule, or replaces one that has not changed meanwhile. */
  async setSchedule(
    schedule: Omit<ScheduleRecord, "version">,
    version: number | null,
  ): Promise<ScheduleRecord | null> {
    const row = await this.#database.write<ScheduleRow | null>("set_schedule", { ...schedule, version });
    this.#announcer.announce();
    return row === null ? null : toSchedule(row);
  }

  /** All schedules in the order of their names, or the one with a name. */
  async getSchedules(name?: string): Promise<ScheduleList> {
    const { schedules, now } = await this.#database.read<{ schedules: ScheduleRow[]; now: number }>("get_schedules", {
      name,
    });
    return { schedules: schedules.map(toSchedule), now };
  }

  /** Deletes a schedule. */
  async deleteSchedule(name: string): Promise<boolean> {
    const isDeleted = await this.#database.write<boolean>("delete_schedule", { name });
    this.#announcer.announce();
    return isDeleted;
  }

  /** Fires or skips a slot. */
  async fireSchedule(firing: Firing): Promise<{ schedule: ScheduleRecord; run: Enqueued | null } | null> {
    const answer = await this.#write<FiringAnswer | null>("fire_schedule", toFiringParameter(firing));
    return answer === null ? null : toFiringResult(answer);
  }

  /** Records how an attempt at a step ended. */
  async saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep> {
    const parameter = { ...toStepParameter(step, reports), reports: toReportParameters(reports) };
    const { recordedNo, retryAt, now } = await this.#writeUnder<
      { recordedNo: number; retryAt: number | null; now: number }
    >(lease, "save_step", parameter);
    return { recordedNo, retry: retryAt === null ? null : retryTime(retryAt, now) };
  }

  /** Prepares pauses and, if requested, parks the run. */
  async pause(lease: Lease, request: PauseRequest): Promise<PauseResult> {
    if (request.park && request.pauses.length === 0 && request.retryAt === null) {
      throw new TypeError("A run cannot wait for nothing");
    }
    return toPauseResult(await this.#writeUnder<PauseAnswer>(lease, "pause", toPauseParameter(request)));
  }

  /** Reads how the children of a pause ended, up to a number of characters. */
  readChildren(pauseId: string, from: number, maxLength: number): Promise<Part<ChildResult> | null> {
    return readChildren(this.#database, pauseId, from, maxLength);
  }

  /** Ends a run. */
  async finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void> {
    await this.#writeUnder(lease, "finish", { ...toEndingParameter(ending), reports: toReportParameters(reports) });
  }

  /** Ends a wait by a signal. */
  async signal(waitId: string, signal: Signal, trace: TraceText | null = null): Promise<SignalOutcome> {
    const payload = JSON.stringify(signal.payload);
    const answer = await this.#write<SignalAnswer>("signal", { waitId, signalId: signal.signalId, payload, trace });
    return toSignalOutcome(answer, waitId, signal);
  }

  /** Cancels a run that has not ended. */
  async cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<StoredRun | null> {
    const row = await this.#write<RunRow | null>("cancel", {
      runId,
      requestId,
      execution: execution === null ? null : toExecutionParameter(execution),
    });
    return row === null ? null : toRunText(row);
  }

  /** Deletes a run that has ended, with everything that belongs to it. */
  async delete(runId: string): Promise<RunIdentity | null> {
    const row = await this.#write<IdentityRow | null>("delete", { runId });
    return row === null ? null : toRunIdentity(row);
  }

  /** Deletes the oldest of the runs that ended long enough ago. */
  async purge(retention: Retention, limit: number): Promise<RunIdentity[]> {
    // Those who purge find nothing most of the time.
    const rows = await this.#write<IdentityRow[]>("purge", { retention, limit }, { isSilent: true });
    if (rows.length > 0) this.#announcer.announce();
    return rows.map(toRunIdentity);
  }

  /** A run and its position in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null> {
    return readRunState(this.#database, runId);
  }

  /** A wait, or `null` if there is none. */
  async getWait(waitId: string): Promise<Wait | null> {
    const row = await this.#database.read<WaitRow & { run_id: string } | null>("get_wait", { waitId });
    return row === null ? null : toWait(row.run_id, row);
  }

  /** The ids of the runs that match a filter, newest first. */
  findRuns(query: RunQuery): Promise<FoundRuns> {
    return findRuns(this.#database, query);
  }

  /** Reads runs without parsing their values, up to a number of characters. */
  readRuns(runIds: readonly string[], maxLength: number): Promise<(RunText | null)[]> {
    return readRuns(this.#database, runIds, maxLength);
  }

  /** Reads the recorded steps of a run in the order of their index, up to a number of characters. */
  readSteps(runId: string, after: string | null, maxLength: number): Promise<Part<StepText> | null> {
    return readSteps(this.#database, { runId, after, maxLength });
  }

  /** Reads the waits of a run in the order in which they were prepared, up to a number of characters. */
  readWaits(runId: string, after: string | null, maxLength: number): Promise<Part<WaitText> | null> {
    return readWaits(this.#database, { runId, after, maxLength });
  }

  /** Reads the stored log lines of a run in the order in which they were added, up to a number of characters. */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null> {
    return readLogs(this.#database, { runId, after, maxLength });
  }

  /** Reads the next part of a value. */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null> {
    return readValue(this.#database, place, from);
  }

  /** Stores log lines. Lines of a deleted run are dropped. */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void> {
    return this.#logs.append(entries);
  }

  /** Reads what was committed after a position, in the order of the commits. */
  readJournal(after: number, maxLength: number, at?: number): Promise<JournalPage | null> {
    return readJournal(this.#database, after, maxLength, at);
  }

  /** For `null` the end of the journal; for a cursor that cursor, or `null` if rows after it are missing. */
  findCursor(cursor: Cursor | null): Promise<Cursor | null> {
    return findCursor(this.#database, cursor);
  }

  /** The position of the last row after a position that has a fact about a run. */
  findLastFact(run: number, after: number, kinds: readonly Fact[1][] | null): Promise<number | null> {
    return this.#database.read("find_last_fact", { run, after, kinds });
  }

  /** The identities of runs, by their row numbers. */
  getRunIdentities(runs: readonly number[]): Promise<(RunIdentity | null)[]> {
    return readIdentities(this.#database, runs);
  }

  /** Reads values that facts leave out, up to a number of characters. */
  readFactValues(values: readonly FactValueRef[], maxLength: number): Promise<(FactValue | null)[]> {
    return readFactValues(this.#database, values, maxLength);
  }

  /** A version that changes whenever another process has committed. */
  getVersion(): Promise<number> {
    return this.#database.read("get_version", {}, "leases");
  }

  /**
   * Finds what makes this store slow and is outside of it: transactions of others that have been open for more than five
   * minutes, the oldest first. Those of other roles are seen only by a role with the rights of `pg_read_all_stats`.
   *
   * @param options.olderThanMs Another age of the transactions, in milliseconds (default 300,000).
   */
  getWarnings({ olderThanMs = 300_000 }: { olderThanMs?: number } = {}): Promise<PostgresWarning[]> {
    return readWarnings(this.#database, olderThanMs);
  }

  async #writeUnder<T>(lease: Lease, kind: WriteKind, parameter: object): Promise<T> {
    const answer = await this.#perform<T>({ kind, ...toLeaseParameter(lease), ...parameter });
    if (isRefusal(answer)) throw new LeaseLostError(lease);
    return answer;
  }

  async #write<T>(kind: WriteKind, parameter: object, options: WriteOptions = {}): Promise<T> {
    const answer = await this.#perform<T>({ kind, ...parameter }, options);
    if (isRefusal(answer)) throw toRefusalError(answer);
    return answer;
  }

  async #perform<T>(
    write: WriteParameter,
    { isUrgent = false, isSilent = false }: WriteOptions = {},
  ): Promise<T | Refusal> {
    // Reports precede the steps that are written after them.
    const answer = await this.#writes.submit(write, { isUrgent, isAwaited: !isSilent });
    if (!isSilent) this.#announcer.announce();
    return answer as T | Refusal; // the functions of each kind return it
  }
}

interface WriteOptions {
  /** Whether it waits for no other write. */
  isUrgent?: boolean;
  /** Whether nobody else needs to know. */
  isSilent?: boolean;
}

interface EnqueuedRow {
  disposition: Enqueued["disposition"];
  run: RunRow;
}
