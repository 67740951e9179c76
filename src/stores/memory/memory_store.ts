import type { ChildResult, Signal, SignalOutcome, Wait, WaitText } from "../../wait.ts";
import { type Host, systemHost } from "../../host.ts";
import type { Fact, FactValue, FactValueRef } from "../../fact.ts";
import type { Cursor, JournalPage } from "../../journal.ts";
import type { JsonText } from "../../values/json.ts";
import type { Lease, SeenLease } from "../../lease.ts";
import type { LogText, NewLogEntry } from "../../log.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Report } from "../../execution_report.ts";
import type { Retention, RunIdentity, RunText, StoredRun } from "../../run.ts";
import type { SavedStep, StepText, StepWrite } from "../../step.ts";
import type { Store } from "../../store.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending, Renewal } from "../../store/claim.ts";
import type { HeldQuery, HoldRecord, NewHold, RunHistory, StrandedJob } from "../../store/hold_record.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { PauseRequest, PauseResult } from "../../store/pause_request.ts";
import type { FoundRuns, Part, RunQuery, ValuePart, ValuePlace } from "../../store/run_query.ts";
import type { RunState } from "../../store/run_state.ts";
import type { JobPause } from "../../store/job_pause.ts";
import type { JobList, RatedJob } from "../../store/job_numbers.ts";
import type { JobStatistics, StatisticsQuery, StatisticsRow } from "../../store/statistics.ts";
import type { StoreInfo } from "../../store/store_info.ts";
import type { WorkerList } from "../../store/worker_record.ts";
import type { Firing, ScheduleList, ScheduleRecord } from "../../store/schedule_record.ts";
import { readBlockerFacts } from "./blockers.ts";
import { findBlockers } from "../operate/find_blockers.ts";
import type { OpenWaitPlace, OpenWaits, SearchHit } from "../../store/operator_reads.ts";
import type { RunFailures, TimelinePlace, TimelineRecords } from "../../store/timeline_records.ts";
import { findOpenWaits, searchRuns, toRunFailures, toTimeline } from "./operate/operator_reads.ts";
import type { RunBlockers } from "../../store/blockers.ts";
import type { TraceText } from "../../trace_context.ts";
import { readResults } from "./children.ts";
import {
  claimRuns,
  type ClaimState,
  findLiveQueues,
  forgetDeadWorkers,
  type KnownWorker,
  updateTurns,
} from "./writes/claim.ts";
import { findHeldRuns, findStrandedJobs, holdRun } from "./holds.ts";
import { addLine, type KeptRun } from "./records.ts";
import { toHistory, toHoldRecord, toIdentity, toRunState, toRunText, toWait } from "./copies.ts";
import { MemoryRates } from "./flow/rates.ts";
import { listRuns, readFactValues, readLogs, readRuns, readSteps, readValue, readWaits } from "./reads.ts";
import { MemoryRuns } from "./runs.ts";
import { MemoryJobPauses } from "./flow/job_pauses.ts";
import { enqueueRun, enqueueRuns } from "./writes/enqueue.ts";
import { cancelRun, deleteRun, finishRun, purgeRuns } from "./writes/endings.ts";
import { listLeases, releaseLease, renewLeases, revokeLeases } from "./writes/leases.ts";
import { pauseRun } from "./writes/pause_run.ts";
import { signalWait } from "./writes/signal_wait.ts";
import { MemorySchedules } from "./flow/schedules.ts";
import { listJobs, listWorkers, sampleRuns } from "./operate/numbers.ts";
import { MemoryStatistics } from "./operate/statistics.ts";
import { recordAttempt } from "./writes/steps.ts";
import { MemoryTurns } from "./flow/fairness_turns.ts";

const STORE_OPTIONS = { host: true, journalLength: true } as const;

/**
 * Keeps runs in memory, for tests and for work that may be lost with the process.
 *
 * It is the reference for other stores. Each claim computes what is due from all runs that have not ended, so its
 * time is proportional to their number.
 *
 * @example
 * ```ts
 * import { createEngine, defineJob, MemoryStore } from "@holdfast/jobs";
 * import { z } from "zod";
 *
 * const double = defineJob({
 *   name: "double",
 *   input: z.object({ value: z.number() }),
 *   run: (step, { value }) => step.run("double", () => value * 2),
 * });
 *
 * await using engine = createEngine({ store: new MemoryStore(), jobs: { double } });
 * const { id } = await engine.jobs.double.trigger({ value: 21 });
 * await engine.runUntilIdle(); // executes what is due, without a worker that polls
 * console.log((await engine.getRun(id))?.output); // 42
 * ```
 */
export class MemoryStore implements Store {
  readonly #host: Host;
  readonly #runs: MemoryRuns;
  readonly #jobPauses: MemoryJobPauses;
  readonly #schedules: MemorySchedules;
  readonly #statistics = new MemoryStatistics();
  readonly #workers = new Map<string, KnownWorker>();
  readonly #state: ClaimState;

  /**
   * Creates an empty store. `host` is its clock; `journalLength` is the size of the journal for event streams that
   * resume, in characters (default 4,194,304).
   */
  constructor(options: { host?: Host; journalLength?: number } = {}) {
    checkOptionNames(options, STORE_OPTIONS, "MemoryStore()");
    this.#host = options.host ?? systemHost;
    this.#runs = new MemoryRuns(() => this.#host.newId(), options.journalLength);
    this.#jobPauses = new MemoryJobPauses(this.#runs);
    this.#schedules = new MemorySchedules(this.#runs);
    this.#state = {
      runs: this.#runs,
      workers: this.#workers,
      paused: this.#jobPauses.byName,
      rates: new MemoryRates(),
      turns: new MemoryTurns(),
    };
  }

  /** Makes no tables: there are none. Forgets the workers that died long ago. */
  migrate(): Promise<void> {
    return this.#perform((now) => forgetDeadWorkers(this.#workers, now));
  }

  /** Does nothing: there is nothing to close. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  /** The same as {@linkcode MemoryStore.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Adds runs, or finds the existing ones that the requests lead to: all of them or none. */
  enqueue(runs: readonly NewRun[]): Promise<Enqueued[]> {
    return this.#perform((now) => enqueueRuns(this.#runs, runs, now));
  }

  /** Claims due runs of the known jobs that pass the gates, each under a new lease. */
  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#perform((now) => claimRuns(this.#state, request, now));
  }

  /** Extends leases to `leaseMs` from now, never shortening one, and stores the reports. */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]> {
    return this.#perform((now) => renewLeases(this.#runs, renewals, leaseMs, now));
  }

  /** Releases a lease before its end. */
  release(lease: Lease, reports: readonly Report[]): Promise<void> {
    return this.#perform((now) => releaseLease(this.#runs, lease, reports, now));
  }

  /** Holds a run, and releases its lease and its concurrency key. */
  hold(lease: Lease, hold: NewHold, reports: readonly Report[]): Promise<void> {
    return this.#perform((now) => holdRun(this.#runs, lease, hold, reports, now));
  }

  /** Makes a held run due for all workers that know its version. */
  resumeHeld(runId: string, continues: boolean): Promise<StoredRun | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      if (run === undefined || run.hold === null) return null;
      this.#runs.resumeHeld(run, continues, now);
      return toRunText(run);
    });
  }

  /** The hold of a run, or `null` if it is not held. */
  getHold(runId: string): Promise<HoldRecord | null> {
    return this.#readRun(runId, toHoldRecord);
  }

  /** Finds held runs, in the order of their row numbers. */
  findHeld(query: HeldQuery): Promise<{ ids: string[]; seqs: number[] }> {
    return this.#perform(() => {
      const runs = findHeldRuns(this.#runs, query);
      return { ids: runs.map(({ id }) => id), seqs: runs.map(({ seq }) => seq) };
    });
  }

  /** The input of a run as parsed by the schema with this print, or `null` if it was not stored. */
  getInput(runId: string, schemaPrint: string): Promise<{ input: JsonText | null } | null> {
    return this.#perform(() => {
      const input = this.#runs.get(runId)?.inputs.get(schemaPrint);
      return input === undefined ? null : { input };
    });
  }

  /** Stores the input of a run as parsed by another schema than that of its trigger, and returns the stored one. */
  saveInput(lease: Lease, schemaPrint: string, input: JsonText | null): Promise<JsonText | null> {
    return this.#perform((now) => {
      const run = this.#runs.getUnder(lease);
      const known = run.inputs.get(schemaPrint);
      if (known !== undefined) return known;
      run.inputs.set(schemaPrint, input);
      this.#runs.touch(run, now);
      return input;
    });
  }

  /** All that a replay of a run needs, or `null` if there is none. */
  getHistory(runId: string): Promise<RunHistory | null> {
    return this.#readRun(runId, toHistory);
  }

  /** The jobs and versions of open runs that no live worker knows, by name and version. */
  getStrandedJobs(): Promise<StrandedJob[]> {
    return this.#perform((now) => findStrandedJobs(this.#runs, findLiveQueues(this.#workers, now)));
  }

  /** All current leases, including those of cancelled runs that a worker may still execute. */
  getLeases(): Promise<SeenLease[]> {
    return this.#perform((now) => listLeases(this.#runs, this.#workers, now));
  }

  /** Which of these leases are no longer the current ones of their runs. */
  getLostLeases(leases: readonly Lease[]): Promise<Lease[]> {
    return this.#perform(() => leases.filter((lease) => this.#runs.findUnder(lease) === undefined));
  }

  /** Revokes leases regardless of the clock, unless they were renewed since they were read. */
  revoke(leases: readonly SeenLease[]): Promise<void> {
    return this.#perform((now) => revokeLeases(this.#state, leases, now));
  }

  /** Adds a schedule, or replaces one that has not changed meanwhile. */
  setSchedule(schedule: Omit<ScheduleRecord, "version">, version: number | null): Promise<ScheduleRecord | null> {
    return this.#perform((now) => this.#schedules.set(schedule, version, now));
  }

  /** All schedules in the order of their names, or the one with a name. */
  getSchedules(name?: string): Promise<ScheduleList> {
    return this.#perform((now) => ({ schedules: this.#schedules.list(name), now }));
  }

  /** Deletes a schedule. */
  deleteSchedule(name: string): Promise<boolean> {
    return this.#perform(() => this.#schedules.delete(name));
  }

  /** Fires or skips a slot. */
  fireSchedule(firing: Firing): Promise<{ schedule: ScheduleRecord; run: Enqueued | null } | null> {
    return this.#perform((now) => this.#schedules.fire(firing, (run) => enqueueRun(this.#runs, run, now)));
  }

  /** Reads how the children of a pause ended, up to a number of characters. */
  readChildren(pauseId: string, from: number, maxLength: number): Promise<Part<ChildResult> | null> {
    return this.#perform(() => {
      const found = this.#runs.findPause(pauseId);
      return found === undefined ? null : readResults(found.pause, from, maxLength);
    });
  }

  /** Deletes the entry of a worker that will not claim again. */
  forgetWorker(workerId: string): Promise<void> {
    return this.#perform(() => {
      if (this.#workers.delete(workerId)) this.#runs.countChange();
    });
  }

  /** Pauses a job: from now on, no run of it is claimed. */
  pauseJob(jobName: string, pause: Pick<JobPause, "by" | "note">): Promise<JobPause> {
    return this.#perform((now) => this.#jobPauses.pause(jobName, pause, now));
  }

  /** Ends the pause of a job. */
  resumeJob(jobName: string): Promise<boolean> {
    return this.#perform(() => this.#jobPauses.resume(jobName));
  }

  /** A part of the records of a run, for its timeline; `null` if there is no such run. */
  getTimeline(runId: string, from: TimelinePlace, limit: number): Promise<TimelineRecords | null> {
    return this.#readRun(runId, (run, now) => toTimeline(run, from, limit, now));
  }

  /** The failures of a run and of the attempts at its steps; `null` if there is no such run. */
  getFailures(runId: string): Promise<RunFailures | null> {
    return this.#readRun(runId, toRunFailures);
  }

  /** Open waits, the soonest deadline first. */
  getOpenWaits(after: OpenWaitPlace | null, limit: number, runIds?: readonly string[]): Promise<OpenWaits> {
    return this.#perform(() => findOpenWaits(this.#runs, after, limit, runIds));
  }

  /** Finds runs by an id, a key or a label. */
  searchRuns(text: string, limit: number): Promise<SearchHit[]> {
    return this.#perform(() => searchRuns(this.#runs, text, limit));
  }

  /** What holds up a run, or `null` if there is none. */
  getBlockers(runId: string): Promise<RunBlockers | null> {
    return this.#readRun(runId, (run, now) => findBlockers(readBlockerFacts(this.#state, run, now)));
  }

  /** Notes that a worker claims nothing more. */
  noteStopping(workerId: string): Promise<void> {
    return this.#perform(() => {
      const worker = this.#workers.get(workerId);
      if (worker !== undefined) worker.isStopping = true;
    });
  }

  /** The workers, by their first claims. */
  getWorkers(): Promise<WorkerList> {
    return this.#perform((now) => ({ workers: listWorkers(this.#state, now), now }));
  }

  /** The numbers of each job, and when rates open. */
  getJobs(rates: readonly RatedJob[]): Promise<JobList> {
    return this.#perform((now) => ({ ...listJobs(this.#state, rates, now), paused: this.#jobPauses.list() }));
  }

  /** Adds what a process has counted to the statistics. */
  addStats(statistics: readonly JobStatistics[]): Promise<void> {
    return this.#perform((now) => this.#statistics.add(statistics, sampleRuns(this.#state, now), now));
  }

  /** Reads statistics, by time and job. */
  readStats(query: StatisticsQuery): Promise<{ rows: StatisticsRow[]; now: number }> {
    return this.#perform((now) => ({ rows: this.#statistics.read(query), now }));
  }

  /** What the store is. */
  getInfo(): Promise<StoreInfo> {
    return this.#perform(() => ({
      kind: "memory",
      schemaVersion: 1,
      bytes: null,
      walBytes: null,
      freeBytes: null,
      runs: this.#runs.all.length,
    }));
  }

  /** Records how an attempt at a step ended. */
  saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep> {
    return this.#perform((now) => {
      const run = this.#runs.getUnder(lease);
      const saved = recordAttempt(run, step, this.#runs.takeReports(run, reports), this.#runs.journal, now);
      run.abandonments = 0;
      this.#runs.touch(run, now);
      return saved;
    });
  }

  /** Prepares pauses and, if `park` is set and none of them is over, sets the run waiting. */
  pause(lease: Lease, request: PauseRequest): Promise<PauseResult> {
    return this.#perform((now) => pauseRun(this.#runs, lease, request, now));
  }

  /** Ends a run. Its open waits are closed. */
  finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void> {
    return this.#perform((now) => finishRun(this.#runs, lease, ending, reports, now));
  }

  /** Ends a wait by a signal. */
  signal(waitId: string, signal: Signal, trace: TraceText | null = null): Promise<SignalOutcome> {
    return this.#perform((now) => signalWait(this.#runs, waitId, signal, trace, now));
  }

  /** Cancels a run that has not ended, and records the steps that are being executed as cancelled. */
  cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<StoredRun | null> {
    return this.#perform((now) => cancelRun(this.#runs, runId, { requestId, execution }, now));
  }

  /** Deletes a run that has ended, with everything that belongs to it. */
  delete(runId: string): Promise<RunIdentity | null> {
    return this.#perform((now) => deleteRun(this.#runs, runId, now));
  }

  /** Deletes the oldest of the runs that ended long enough ago, at most `limit` of them. */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]> {
    return this.#perform((now) => purgeRuns(this.#runs, retention, limit, now));
  }

  /** A run and its position in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null> {
    return this.#readRun(runId, (run) => toRunState(run, this.#runs.journal.end));
  }

  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null> {
    return this.#perform(() => {
      const found = this.#runs.findWait(waitId);
      return found === undefined ? null : toWait(found.run.id, found.pause);
    });
  }

  /** The ids of the runs that match a filter, newest first. */
  findRuns(query: RunQuery): Promise<FoundRuns> {
    return this.#perform(() => {
      const { runs, ...page } = listRuns(this.#runs, query);
      return { ids: runs.map(({ id }) => id), seqs: runs.map(({ seq }) => seq), ...page };
    });
  }

  /** Reads runs without parsing their values, up to a number of characters. */
  readRuns(runIds: readonly string[], maxLength: number): Promise<(RunText | null)[]> {
    return this.#perform(() => readRuns(runIds.map((id) => this.#runs.get(id)), maxLength));
  }

  /** Reads the recorded steps of a run in the order of their index, up to a number of characters. */
  readSteps(runId: string, after: string | null, maxLength: number): Promise<Part<StepText> | null> {
    return this.#readRun(runId, (run) => readSteps(run, after, maxLength));
  }

  /** Reads the waits of a run in the order in which they were prepared, up to a number of characters. */
  readWaits(runId: string, after: string | null, maxLength: number): Promise<Part<WaitText> | null> {
    return this.#readRun(runId, (run) => readWaits(run, after, maxLength));
  }

  /** Reads the stored log lines of a run in the order in which they were added, up to a number of characters. */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null> {
    return this.#readRun(runId, (run) => readLogs(run, after, maxLength));
  }

  /** Reads the next part of a value. */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null> {
    return this.#perform(() => {
      const run = place.of === "wait" ? this.#runs.findWait(place.waitId)?.run : this.#runs.get(place.runId);
      return run === undefined ? null : readValue(run, place, from);
    });
  }

  /** Stores log lines. Lines of a deleted run are dropped. */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void> {
    return this.#perform(() => {
      for (const entry of entries) {
        const run = this.#runs.get(entry.runId);
        if (run !== undefined && addLine(run, entry)) this.#runs.countChange();
      }
    });
  }

  /** Reads what was committed after a position, in the order of the calls. */
  readJournal(after: number, maxLength: number): Promise<JournalPage | null> {
    return this.#perform(() => this.#runs.journal.read(after, maxLength));
  }

  /** For `null` the end of the journal; for a cursor that cursor, or `null` if rows after it are missing. */
  findCursor(cursor: Cursor | null): Promise<Cursor | null> {
    return this.#perform(() => this.#runs.journal.find(cursor));
  }

  /** The position of the last row after a position that has a fact about a run. */
  findLastFact(run: number, after: number, kinds: readonly Fact[1][] | null): Promise<number | null> {
    return this.#perform(() => this.#runs.journal.findLastFact(run, after, kinds));
  }

  /** The identities of runs, by their row numbers. */
  getRunIdentities(runs: readonly number[]): Promise<(RunIdentity | null)[]> {
    return this.#perform(() =>
      runs.map((seq) => {
        const run = this.#runs.getBySeq(seq);
        return run === undefined ? null : toIdentity(run);
      })
    );
  }

  /** Reads values that facts leave out, up to a number of characters. */
  readFactValues(values: readonly FactValueRef[], maxLength: number): Promise<(FactValue | null)[]> {
    const read = () => readFactValues(values.map((ref) => ({ ref, run: this.#runs.getBySeq(ref.run) })), maxLength);
    return this.#perform(read);
  }

  /** A version that changes with every commit. */
  getVersion(): Promise<number> {
    return this.#perform(() => this.#runs.version);
  }

  /** Reads something of a run; `null` if there is no such run. */
  #readRun<T>(runId: string, read: (run: KeptRun, now: number) => T): Promise<T | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : read(run, now);
    });
  }

  /** Performs a call synchronously and atomically. What it throws rejects the promise. */
  #perform<T>(work: (now: number) => T): Promise<T> {
    return new Promise((resolve) => {
      const now = this.#host.now();
      const { version } = this.#runs;
      try {
        const answer = work(now);
        if (this.#runs.version !== version) updateTurns(this.#state, now);
        this.#runs.journal.commit(now);
        resolve(answer);
      } finally {
        this.#runs.journal.rollBack();
      }
    });
  }
}
