import {
  type ChildResult,
  nextDeadlineInMs,
  parseWait,
  type Signal,
  type SignalOutcome,
  type Wait,
  type WaitText,
} from "../../wait.ts";
import { isoTime } from "../../values/iso_time.ts";
import { ConflictError, LeaseLostError, NotFoundError } from "../../error.ts";
import { type Host, systemHost } from "../../host.ts";
import { coalescedFacts, type FactValue, type FactValueRef } from "../../fact.ts";
import type { Cursor, JournalPage } from "../../journal.ts";
import type { JsonText } from "../../values/json.ts";
import type { Lease, SeenLease } from "../../lease.ts";
import { type LogEntry, type LogText, type NewLogEntry, parseLog } from "../../log.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Report } from "../../execution_report.ts";
import {
  isTerminal,
  type Retention,
  type Run,
  type RunFilter,
  type RunIdentity,
  type RunPage,
  type RunText,
} from "../../run.ts";
import { parseStep, type SavedStep, type Step, type StepText, type StepWrite } from "../../step.ts";
import type { Store } from "../../store.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending, Renewal } from "../../store/claim.ts";
import type { HeldQuery, HoldRecord, NewHold, RunHistory, StrandedJob } from "../../store/hold_record.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { NewPause, PauseRequest, PauseResult } from "../../store/pause_request.ts";
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
import { addChildren, type ChildDeps, findCreated, lacksChildren, readResults } from "./children.ts";
import {
  claimRuns,
  type ClaimState,
  findLiveJobs,
  findLiveQueues,
  forgetDeadWorkers,
  type KnownWorker,
  updateTurns,
} from "./claim.ts";
import { findHeldRuns, findStrandedJobs } from "./holds.ts";
import { checkPending, commitDeadlines, findPause, isEndedBy, isWoken, preparePause, resolvePause } from "./pauses.ts";
import { addLine, type KeptPause, type KeptRun } from "./records.ts";
import { toHistory, toHoldRecord, toIdentity, toPauseRecord, toRun, toRunState, toWait } from "./copies.ts";
import { MemoryRates } from "./flow/rates.ts";
import { listRuns, readFactValues, readLogs, readRuns, readSteps, readValue, readWaits } from "./reads.ts";
import { MemoryRuns } from "./runs.ts";
import { MemorySchedules } from "./flow/schedules.ts";
import { listJobs, listWorkers, sampleRuns } from "./operate/numbers.ts";
import { MemoryStatistics } from "./operate/statistics.ts";
import { cancelSteps, recordAttempt } from "./steps.ts";
import { cancelOrphan } from "./timers.ts";
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
  readonly #pauses = new Map<string, { run: KeptRun; wait: KeptPause }>();
  readonly #paused = new Map<string, JobPause>();
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
    this.#runs = new MemoryRuns(options.journalLength);
    this.#schedules = new MemorySchedules(this.#runs);
    this.#state = {
      runs: this.#runs,
      workers: this.#workers,
      paused: this.#paused,
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
    return this.#perform((now) => {
      for (const { id, retriggerOf } of runs) {
        if (this.#runs.wasDeleted(id)) throw new ConflictError(`Cannot add run "${id}" again: it was deleted`);
        // When the call is repeated, the old run may have been deleted.
        if (retriggerOf === null || this.#runs.has(retriggerOf.runId) || this.#runs.has(id)) continue;
        throw new NotFoundError(`There is no run "${retriggerOf.runId}"`);
      }
      return runs.map((run) => this.#enqueueOne(run, now));
    });
  }

  #enqueueOne(request: NewRun, now: number): Enqueued {
    const known = this.#runs.get(request.id);
    if (known !== undefined) return { run: toRun(known), disposition: "created" };
    const same = this.#runs.findOpenRetry(request) ?? this.#runs.findIdempotent(request);
    if (same !== undefined) return { run: toRun(same), disposition: "idempotent" };
    const joined = this.#findCoalescable(request, now);
    if (joined !== undefined) {
      const run = toRun(joined);
      this.#runs.journal.note(...coalescedFacts(joined.seq, run, request));
      return { run, disposition: "coalesced" };
    }
    return { run: toRun(this.#add(request, now)), disposition: "created" };
  }

  #add(request: NewRun, now: number, parent: KeptRun["parent"] = null): KeptRun {
    const run = this.#runs.add(request, () => this.#host.newId(), now, parent);
    for (const wait of run.pauses) this.#pauses.set(wait.id, { run, wait });
    return run;
  }

  #findCoalescable(
    { jobName, aliases, concurrencyKey, coalesce }: NewRun,
    now: number,
  ): KeptRun | undefined {
    if (coalesce === null || concurrencyKey === null) return undefined;
    const names = [jobName, ...aliases];
    const rivals = this.#runs.open.filter((run) =>
      names.includes(run.jobName) && run.concurrencyKey === concurrencyKey && run.hold === null
    );
    const pending = rivals.find((run) => run.status === "pending" && !(run.isDelayed && (run.startAt ?? 0) > now));
    if (pending !== undefined || coalesce !== "active") return pending;
    return rivals.find(({ lease }) => lease !== null && lease.expiresAt > now) ??
      rivals.find((run) => run.status === "waiting");
  }

  /** Claims due runs of the known jobs that pass the gates, each under a new lease. */
  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#perform((now) => claimRuns(this.#state, request, now));
  }

  /** Extends leases to `leaseMs` from now, never shortening one, and stores the reports. */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]> {
    return this.#perform((now) =>
      renewals.map(({ lease, reports }) => {
        const run = this.#runs.findUnder(lease);
        const held = run?.lease ?? null;
        if (run === undefined || held === null) return null;
        held.expiresAt = Math.max(held.expiresAt + 1, now + leaseMs);
        this.#runs.noteReports(run, reports);
        this.#runs.touch(run, now);
        return held.expiresAt;
      })
    );
  }

  /** Releases a lease before its end. */
  release(lease: Lease, reports: readonly Report[]): Promise<void> {
    return this.#perform((now) => {
      // Also if the run has fewer records than its holder knows: nothing is written, and others can go on.
      const run = this.#runs.findUnder({ ...lease, recorded: 0 });
      if (run !== undefined) {
        this.#runs.noteReports(run, reports);
        this.#runs.interrupt(run, now);
      } else {
        const ghost = this.#runs.keys.findGhost(lease);
        if (ghost?.claimId === lease.claimId) this.#runs.releaseGhost(ghost);
      }
    });
  }

  /** Holds a run, and releases its lease and its concurrency key. */
  hold(lease: Lease, hold: NewHold, reports: readonly Report[]): Promise<void> {
    return this.#perform((now) => {
      const held = this.#runs.get(lease.runId);
      // Only this same call can have held the run: another claim would have raised the generation again.
      if (held !== undefined && held.hold !== null && hadLease(held, lease, 1)) return;
      const run = this.#runs.getUnder(lease);
      this.#runs.noteReports(run, reports);
      this.#runs.hold(run, hold, now);
    });
  }

  /** Makes a held run due for all workers that know its version. */
  resumeHeld(runId: string, continues: boolean): Promise<Run | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      if (run === undefined || run.hold === null) return null;
      this.#runs.resumeHeld(run, continues, now);
      return toRun(run);
    });
  }

  /** The hold of a run, or `null` if it is not held. */
  getHold(runId: string): Promise<HoldRecord | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toHoldRecord(run);
    });
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
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toHistory(run, now);
    });
  }

  /** The jobs and versions of open runs that no live worker knows, by name and version. */
  getStrandedJobs(): Promise<StrandedJob[]> {
    return this.#perform((now) => findStrandedJobs(this.#runs, findLiveQueues(this.#workers, now)));
  }

  /** All current leases, including those of cancelled runs that a worker may still execute. */
  getLeases(): Promise<SeenLease[]> {
    return this.#perform((now) => {
      const leases: SeenLease[] = [];
      for (const { id, generation, claimId, lastRecordedNo, concurrencyKey, lease } of this.#runs.open) {
        if (lease === null || claimId === null) continue;
        const leaseMs = this.#workers.get(lease.owner)?.leaseMs ?? null;
        const seen = { runId: id, generation, claimId, recorded: lastRecordedNo, concurrencyKey };
        leases.push({ ...seen, expiresAt: lease.expiresAt, leaseMs });
      }
      for (const { runId, generation, claimId, concurrencyKey, expiresAt } of this.#runs.keys.ghosts) {
        if (expiresAt <= now) continue;
        leases.push({ runId, generation, claimId, recorded: 0, concurrencyKey, expiresAt, leaseMs: null });
      }
      return leases;
    });
  }

  /** Which of these leases are no longer the current ones of their runs. */
  getLostLeases(leases: readonly Lease[]): Promise<Lease[]> {
    return this.#perform(() => leases.filter((lease) => this.#runs.findUnder(lease) === undefined));
  }

  /** Revokes leases regardless of the clock, unless they were renewed since they were read. */
  revoke(leases: readonly SeenLease[]): Promise<void> {
    return this.#perform((now) => {
      for (const lease of leases) {
        const run = this.#runs.findLeased(lease);
        const ghost = this.#runs.keys.findGhost(lease);
        if (run?.lease?.expiresAt === lease.expiresAt) this.#runs.abandon(run, now);
        else if (ghost?.expiresAt === lease.expiresAt) this.#runs.releaseGhost(ghost);
      }
    });
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
    return this.#perform((now) => this.#schedules.fire(firing, (run) => this.#enqueueOne(run, now)));
  }

  /** Reads how the children of a pause ended, up to a number of characters. */
  readChildren(pauseId: string, from: number, maxLength: number): Promise<Part<ChildResult> | null> {
    return this.#perform(() => {
      const pause = this.#pauses.get(pauseId)?.wait;
      return pause === undefined ? null : readResults(pause, from, maxLength);
    });
  }

  /** Deletes the entry of a worker that will not claim again. */
  forgetWorker(workerId: string): Promise<void> {
    return this.#perform(() => {
      if (this.#workers.delete(workerId)) this.#runs.countChange();
    });
  }

  /** Pauses a job: from now on, no run of it is claimed. */
  pauseJob(jobName: string, { by, note }: Pick<JobPause, "by" | "note">): Promise<JobPause> {
    return this.#perform((now) => {
      const known = this.#paused.get(jobName);
      if (known !== undefined) return { ...known };
      const pause = { jobName, since: isoTime(now), by, note };
      this.#paused.set(jobName, pause);
      this.#runs.countChange();
      return { ...pause };
    });
  }

  /** Ends the pause of a job. */
  resumeJob(jobName: string): Promise<boolean> {
    return this.#perform(() => {
      const wasPaused = this.#paused.delete(jobName);
      if (wasPaused) this.#runs.countChange();
      return wasPaused;
    });
  }

  /** A part of the records of a run, for its timeline; `null` if there is no such run. */
  getTimeline(runId: string, from: TimelinePlace, limit: number): Promise<TimelineRecords | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toTimeline(run, from, limit, now);
    });
  }

  /** The failures of a run and of the attempts at its steps; `null` if there is no such run. */
  getFailures(runId: string): Promise<RunFailures | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toRunFailures(run);
    });
  }

  /** Open waits, the soonest deadline first. */
  getOpenWaits(after: OpenWaitPlace | null, limit: number): Promise<OpenWaits> {
    return this.#perform(() => findOpenWaits(this.#runs, after, limit));
  }

  /** Finds runs by an id, a key or a label. */
  searchRuns(text: string, limit: number): Promise<SearchHit[]> {
    return this.#perform(() => searchRuns(this.#runs, text, limit));
  }

  /** What holds up a run, or `null` if there is none. */
  getBlockers(runId: string): Promise<RunBlockers | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : findBlockers(readBlockerFacts(this.#state, run, now));
    });
  }

  /** The paused jobs, in the order of their names. */
  getPausedJobs(): Promise<JobPause[]> {
    return this.#perform(() =>
      [...this.#paused.values()]
        .sort((left, right) => left.jobName < right.jobName ? -1 : 1)
        .map((pause) => ({ ...pause }))
    );
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
    return this.#perform((now) => listJobs(this.#state, rates, now));
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

  /** Whether a worker that knows a job is alive. */
  hasWorker(jobName: string): Promise<boolean> {
    return this.#perform((now) => findLiveJobs(this.#workers, now).some(({ name }) => name === jobName));
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
    return this.#perform((now) => {
      const { park, retryAt } = request;
      if (park && request.pauses.length === 0 && retryAt === null) {
        throw new TypeError(`Cannot park run "${lease.runId}": it has nothing to wait for`);
      }
      const repeated = this.#findParked(lease, request);
      if (repeated !== null) return this.#toPauseResult(request, true, repeated, now);

      const run = this.#runs.getUnder(lease);
      if (request.pauses.some((pause) => lacksChildren(run, pause))) throw new LeaseLostError(lease);
      this.#runs.noteReports(run, request.reports);
      const cancelled: RunIdentity[] = [];
      const pauses = request.pauses.map((pause) => this.#prepare(run, pause, cancelled, now));
      this.#runs.journal.putTriggersFirst();
      commitDeadlines(run, now);
      const isOver = pauses.some(({ state }) => state.status === "resolved") || (retryAt !== null && retryAt <= now);
      const parked = park && !isOver;
      if (parked) {
        const awaited = pauses.filter(({ kind }) => kind !== "patch");
        for (const pause of awaited) pause.suspendedAt ??= now;
        this.#runs.park(run, awaited, retryAt, now);
      }
      this.#runs.touch(run, now);
      return { ...this.#toPauseResult(request, parked, pauses, now), cancelled };
    });
  }

  /** The pauses of an earlier call with the same request that has parked the run, or `null`. */
  #findParked(lease: Lease, request: PauseRequest): KeptPause[] | null {
    const run = this.#runs.get(lease.runId);
    if (!request.park || run?.status !== "waiting" || !hadLease(run, lease)) return null;
    const pauses = request.pauses.map((pause) => findPause(run, pause));
    return pauses.every((pause) => pause !== undefined) ? pauses : null;
  }

  #prepare(run: KeptRun, request: NewPause, cancelled: RunIdentity[], now: number): KeptPause {
    const pause = findPause(run, request) ?? preparePause(run, request, this.#runs.nextPauseSeq(), now);
    this.#pauses.set(pause.id, { run, wait: pause });
    if (request.children !== null) {
      const deps: ChildDeps = {
        get: (runId) => this.#runs.get(runId),
        findOpenRetry: (retry) => this.#runs.findOpenRetry(retry),
        cancel: (orphan) => cancelled.push(cancelOrphan(this.#runs, orphan, now)),
        add: (child, parent) => this.#add(child, now, parent),
      };
      addChildren(run, pause, request.children, deps, now);
    }
    return pause;
  }

  #toPauseResult(request: PauseRequest, parked: boolean, pauses: readonly KeptPause[], now: number): PauseResult {
    const records = pauses.map(toPauseRecord);
    const created = pauses.flatMap((pause, at) => {
      const { children } = request.pauses[at]!; // one pause for each request
      return children === null ? [] : findCreated(pause, children, (runId) => this.#runs.get(runId));
    });
    return { parked, pauses: records, created, cancelled: [], nextDeadlineInMs: nextDeadlineInMs(records, now) };
  }

  #findWait(waitId: string): { run: KeptRun; wait: KeptPause } | undefined {
    const found = this.#pauses.get(waitId);
    return found?.wait.kind === "wait" ? found : undefined;
  }

  /** Ends a run. Its open waits are closed. */
  finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void> {
    return this.#perform((now) => {
      const ended = this.#runs.get(lease.runId);
      // Only this same call can have ended the run with this status under this lease.
      if (ended?.status === ending.status && hadLease(ended, lease)) return;
      const run = this.#runs.getUnder(lease);
      this.#runs.noteReports(run, reports);
      this.#runs.end(run, ending, now);
    });
  }

  /** Ends a wait by a signal. */
  signal(waitId: string, signal: Signal, trace: TraceText | null = null): Promise<SignalOutcome> {
    return this.#perform((now) => {
      const found = this.#findWait(waitId);
      if (found === undefined) throw new NotFoundError(`Cannot signal wait "${waitId}": there is no such wait`);
      const { run, wait } = found;
      if (isEndedBy(wait, signal)) {
        // The receipt of the first acceptance: the run had not resumed by then.
        const receipt = { ...toWait(run.id, wait), firstResumedAt: null };
        return { wait: receipt, disposition: "duplicate", run: toIdentity(run) };
      }
      checkPending(wait);
      const payload = JSON.stringify(signal.payload);
      const wasDue = isWoken(run);
      // Deadlines that passed before the signal are committed, even if one of them refuses the signal.
      if (commitDeadlines(run, now)) this.#runs.noteResolution(run, wasDue, now);
      checkPending(wait);
      wait.trace = trace;
      resolvePause(run, wait, { outcome: "signal", payload, signalId: signal.signalId }, now);
      this.#runs.noteResolution(run, wasDue, now);
      return { wait: toWait(run.id, wait), disposition: "accepted", run: toIdentity(run) };
    });
  }

  /** Cancels a run that has not ended, and records the steps that are being executed as cancelled. */
  cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<Run | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      if (run === undefined) return null;
      if (isTerminal(run.status)) return run.cancelledBy === requestId ? toRun(run) : null;
      run.cancelledBy = requestId;
      const current = execution !== null && this.#runs.findUnder(execution.lease) === run ? execution : null;
      this.#runs.noteReports(run, current?.reports ?? []);
      cancelSteps(run, current?.steps ?? [], this.#runs.journal, now);
      this.#runs.end(run, { status: "cancelled" }, now);
      return toRun(run);
    });
  }

  /** Deletes a run that has ended, with everything that belongs to it. */
  delete(runId: string): Promise<RunIdentity | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      return run === undefined || !isTerminal(run.status) ? null : this.#remove(run, now);
    });
  }

  /** Deletes the oldest of the runs that ended long enough ago, at most `limit` of them. */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]> {
    return this.#perform((now) =>
      this.#runs.all
        .filter(({ status, completedAt }) =>
          isTerminal(status) && completedAt !== null && completedAt <= now - (retention[status] ?? Infinity)
        )
        .sort((left, right) => left.completedAt! - right.completedAt!) // those that ended have one
        .slice(0, limit)
        .map((run) => this.#remove(run, now))
    );
  }

  #remove(run: KeptRun, now: number): RunIdentity {
    for (const pause of run.pauses) this.#pauses.delete(pause.id);
    return this.#runs.remove(run, now);
  }

  /** A run, or `null` if there is none. */
  getRun(runId: string): Promise<Run | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toRun(run);
    });
  }

  /** A run and its position in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toRunState(run, this.#runs.journal.end);
    });
  }

  /** The runs that match a filter, newest first. */
  getRuns(filter: RunFilter): Promise<RunPage> {
    return this.#perform(() => {
      const { runs, ...page } = listRuns(this.#runs, filter);
      return { runs: runs.map(toRun), ...page };
    });
  }

  /** The recorded steps of a run, in the order of their index. */
  async getSteps(runId: string): Promise<Step[]> {
    return (await this.readSteps(runId, null, Infinity))?.items.map(parseStep) ?? [];
  }

  /** The waits of a run, in the order in which they were prepared. */
  async getWaits(runId: string): Promise<Wait[]> {
    return (await this.readWaits(runId, null, Infinity))?.items.map(parseWait) ?? [];
  }

  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null> {
    return this.#perform(() => {
      const found = this.#findWait(waitId);
      return found === undefined ? null : toWait(found.run.id, found.wait);
    });
  }

  /** The stored log lines of a run, in the order in which they were added. */
  async getLogs(runId: string): Promise<LogEntry[]> {
    return (await this.readLogs(runId, null, Infinity))?.items.map(parseLog) ?? [];
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
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : readSteps(run, after, maxLength);
    });
  }

  /** Reads the waits of a run in the order in which they were prepared, up to a number of characters. */
  readWaits(runId: string, after: string | null, maxLength: number): Promise<Part<WaitText> | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : readWaits(run, after, maxLength);
    });
  }

  /** Reads the stored log lines of a run in the order in which they were added, up to a number of characters. */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : readLogs(run, after, maxLength);
    });
  }

  /** Reads the next part of a value. */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null> {
    return this.#perform(() => {
      const found = place.of === "wait" ? this.#findWait(place.waitId) : undefined;
      const run = place.of === "wait" ? found?.run : this.#runs.get(place.runId);
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

/**
 * Whether a lease was the last one of a run.
 *
 * @param later How often the generation was raised since.
 */
function hadLease(run: KeptRun, { generation, claimId }: Lease, later = 0): boolean {
  return run.generation === generation + later && run.claimId === claimId;
}
