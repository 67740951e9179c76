import { ConflictError, LeaseLostError, NotFoundError, WaitExpiredError } from "../error.ts";
import { type Host, systemHost } from "../host.ts";
import { isSameJson, type JsonText } from "../json.ts";
import type { Lease, SeenLease } from "../lease.ts";
import type { LogEntry, NewLogEntry } from "../log.ts";
import { isTerminal, type Run, type RunFilter, type RunIdentity, type RunPage } from "../run.ts";
import type { ExecutingStep, Step, StepWrite } from "../step.ts";
import type {
  Claim,
  ClaimRequest,
  ClaimResult,
  Ending,
  Enqueued,
  NewRun,
  PauseRequest,
  PauseResult,
  Renewal,
  Retention,
  SignalOutcome,
  Store,
} from "../store.ts";
import { isoTime } from "../time.ts";
import type { NewPause, PauseRecord, Signal, Wait } from "../wait.ts";
import {
  type KeptPause,
  type KeptRun,
  newKeptRun,
  toClaim,
  toIdentity,
  toLogEntry,
  toPauseRecord,
  toRun,
  toStep,
  toWait,
} from "./memory_records.ts";

// How many leases, keys and sleepers one claim works off at most, each: so that it is short however many are due.
const MAX_TIMERS = 100;

/** Who holds a concurrency key. */
interface KeyHolder {
  runId: string;
  generation: number;
  /** Set once the run was cancelled under its lease: until then its worker may still be inside. */
  keptUntil: number | null;
}

/** What a worker last said of itself. */
interface KnownWorker {
  claimId: string;
  jobNames: readonly string[];
  leaseMs: number;
  seenAt: number;
}

/**
 * Keeps runs in memory, for tests and for work that may be lost with the process.
 *
 * It is the reference for other stores: what a run is due for is worked out anew by each claim, from all runs
 * that have not ended, so a claim takes time in proportion to them.
 */
export class MemoryStore implements Store {
  readonly #host: Host;
  // Maps keep the order in which entries were added: that of the triggers.
  readonly #runs = new Map<string, KeptRun>();
  /** Those of the runs that have not ended. */
  readonly #openRuns = new Map<string, KeptRun>();
  readonly #runsByIdempotency = new Map<string, KeptRun>();
  readonly #waits = new Map<string, { run: KeptRun; wait: KeptPause }>();
  readonly #keys = new Map<string, KeyHolder>();
  readonly #workers = new Map<string, KnownWorker>();
  #version = 0;

  /** Makes an empty store; `host` tells it the time. */
  constructor(options: { host?: Host } = {}) {
    this.#host = options.host ?? systemHost;
  }

  /** Does nothing: there are no tables. */
  migrate(): Promise<void> {
    return Promise.resolve();
  }

  /** Does nothing: there is nothing to close. */
  close(): Promise<void> {
    return Promise.resolve();
  }

  /** The same as {@linkcode MemoryStore.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Always refuses: use a `SqliteStore` for what is to be kept. */
  backup(path: string): Promise<void> {
    return Promise.reject(new TypeError(`Cannot back up to "${path}": a MemoryStore has no database to copy`));
  }

  /** Adds runs, or finds the ones that they stand for: all of them or none. */
  enqueue(runs: readonly NewRun[]): Promise<Enqueued[]> {
    return this.#perform((now) => {
      for (const { id, copyStepsOf } of runs) {
        // A run that is known already has its steps: its source may be gone when the call is repeated.
        if (copyStepsOf === null || this.#runs.has(copyStepsOf) || this.#runs.has(id)) continue;
        throw new NotFoundError(`Cannot copy the steps of run "${copyStepsOf}": there is no such run`);
      }
      return runs.map((run) => this.#enqueueOne(run, now));
    });
  }

  #enqueueOne(request: NewRun, now: number): Enqueued {
    const known = this.#runs.get(request.id);
    if (known !== undefined) return { run: toRun(known), disposition: "created" };
    const same = this.#runsByIdempotency.get(idempotencyIndex(request));
    if (request.idempotencyKey !== null && same !== undefined) return { run: toRun(same), disposition: "idempotent" };
    const joined = this.#findCoalescable(request, now);
    if (joined !== undefined) return { run: toRun(joined), disposition: "coalesced" };
    return { run: toRun(this.#add(request, now)), disposition: "created" };
  }

  #findCoalescable({ jobName, concurrencyKey, coalesce }: NewRun, now: number): KeptRun | undefined {
    if (coalesce === null || concurrencyKey === null) return undefined;
    const rivals = [...this.#openRuns.values()]
      .filter((run) => run.jobName === jobName && run.concurrencyKey === concurrencyKey);
    const pending = rivals.find((run) => run.status === "pending");
    if (pending !== undefined || coalesce !== "active") return pending;
    return rivals.find(({ lease }) => lease !== null && lease.expiresAt > now) ??
      rivals.find((run) => run.status === "waiting");
  }

  #add(request: NewRun, now: number): KeptRun {
    const run = newKeptRun(request, now);
    const source = request.copyStepsOf === null ? undefined : this.#runs.get(request.copyStepsOf);
    for (const step of source?.steps.values() ?? []) {
      if (step.result.status === "completed") run.steps.set(step.name, { ...step });
    }
    run.lastRecordedNo = source?.lastRecordedNo ?? 0;
    this.#runs.set(run.id, run);
    this.#openRuns.set(run.id, run);
    if (run.idempotencyKey !== null) this.#runsByIdempotency.set(idempotencyIndex(run), run);
    this.#touch(run, now);
    return run;
  }

  /** Claims the oldest due runs of the known jobs, each under a new lease. */
  claim(request: ClaimRequest): Promise<ClaimResult> {
    return this.#perform((now) => {
      const { workerId, claimId, jobNames, leaseMs } = request;
      if (this.#workers.get(workerId)?.claimId === claimId) {
        const claims = [...this.#openRuns.values()]
          .filter(({ lease }) => lease?.owner === workerId && lease.claimId === claimId)
          .map(toClaim);
        // Whether there is more is for the next call to see: this one is a repetition and does nothing.
        return { claims, failed: [], nextTimerAt: this.#nextTimerAt(), hasMore: true, now };
      }
      this.#workers.set(workerId, { claimId, jobNames: [...jobNames], leaseMs, seenAt: now });
      const { failed, hasMoreTimers } = this.#doWhatTimeBrought(request.maxAbandonments, now);
      const { claims, hasMoreRuns } = this.#takeDueRuns(request, now);
      return { claims, failed, nextTimerAt: this.#nextTimerAt(), hasMore: hasMoreTimers || hasMoreRuns, now };
    });
  }

  #doWhatTimeBrought(
    maxAbandonments: number,
    now: number,
  ): { failed: ClaimResult["failed"]; hasMoreTimers: boolean } {
    const openRuns = [...this.#openRuns.values()];
    const abandoned = openRuns.filter(({ lease }) => lease !== null && lease.expiresAt <= now);
    const keys = [...this.#keys].filter(([, { keptUntil }]) => keptUntil !== null && keptUntil <= now);
    const sleepers = openRuns.filter((run) => (wakesAt(run) ?? Infinity) <= now);

    for (const run of abandoned.slice(0, MAX_TIMERS)) this.#abandon(run, now);
    for (const [key] of keys.slice(0, MAX_TIMERS)) this.#letGo(key);
    for (const run of sleepers.slice(0, MAX_TIMERS)) this.#wake(run, now);
    const failed = abandoned.slice(0, MAX_TIMERS)
      .filter((run) => run.abandonments >= maxAbandonments)
      .map((run) => this.#failAbandoned(run, now));
    return { failed, hasMoreTimers: Math.max(abandoned.length, keys.length, sleepers.length) > MAX_TIMERS };
  }

  #failAbandoned(run: KeptRun, now: number): ClaimResult["failed"][number] {
    const error = `Abandoned ${run.abandonments} times in a row: ` +
      "each time its worker died or stalled before anything more was recorded";
    this.#end(run, { status: "failed", error }, now);
    return { run: toIdentity(run), error };
  }

  #wake(run: KeptRun, now: number): void {
    commitDeadlines(run, now);
    run.parking!.isWoken = true; // by its retry, if by no deadline
    this.#touch(run, now);
  }

  #takeDueRuns(request: ClaimRequest, now: number): { claims: Claim[]; hasMoreRuns: boolean } {
    const jobNames = new Set(request.jobNames);
    const liveJobNames = this.#findLiveJobNames(now);
    const spokenFor = new Set<string>(); // keys that are free, and have a run that some live worker can take
    const claims: Claim[] = [];
    for (const run of this.#openRuns.values()) {
      if (run.status !== "pending" && !run.parking?.isWoken) continue;
      const key = run.concurrencyKey;
      if (key !== null) {
        const holder = this.#keys.get(key);
        if (holder !== undefined && holder.runId !== run.id) continue;
        // A run that kept its key over a retry delay passes older ones: they cannot start before it lets go.
        if (holder === undefined && spokenFor.has(key)) continue;
        if (liveJobNames.has(run.jobName)) spokenFor.add(key);
      }
      if (!jobNames.has(run.jobName)) continue;
      if (claims.length >= request.limit) return { claims, hasMoreRuns: true };
      claims.push(this.#take(run, request, now));
    }
    return { claims, hasMoreRuns: false };
  }

  #findLiveJobNames(now: number): Set<string> {
    // One that was seen in the future tells of a clock that jumped back: nothing is known of it.
    const live = [...this.#workers.values()]
      .filter(({ seenAt, leaseMs }) => seenAt === now || (seenAt < now && now - seenAt < leaseMs));
    return new Set(live.flatMap(({ jobNames }) => jobNames));
  }

  #take(run: KeptRun, { workerId, claimId, leaseMs }: ClaimRequest, now: number): Claim {
    commitDeadlines(run, now);
    for (const pause of run.pauses) {
      if (pause.suspendedAt !== null && pause.state.status === "resolved") pause.firstResumedAt ??= now;
    }
    run.status = "running";
    run.parking = null;
    run.generation += 1;
    run.lease = { owner: workerId, claimId, expiresAt: now + leaseMs };
    run.startedAt ??= now;
    if (run.concurrencyKey !== null) {
      this.#keys.set(run.concurrencyKey, { runId: run.id, generation: run.generation, keptUntil: null });
    }
    this.#touch(run, now);
    return toClaim(run);
  }

  #nextTimerAt(): number | null {
    const instants = [...this.#openRuns.values()].map((run) => run.lease?.expiresAt ?? wakesAt(run));
    for (const { keptUntil } of this.#keys.values()) instants.push(keptUntil);
    return earliest(instants);
  }

  /** Extends leases to `leaseMs` from now, never shortening one, and keeps the progress that comes along. */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]> {
    return this.#perform((now) =>
      renewals.map(({ lease, progress }) => {
        const run = this.#findUnder(lease);
        if (run === undefined) return null;
        run.lease!.expiresAt = Math.max(run.lease!.expiresAt, now + leaseMs);
        this.#touch(run, now, progress);
        return run.lease!.expiresAt;
      })
    );
  }

  /** Lets go of a lease before its end. */
  release(lease: Lease): Promise<void> {
    return this.#perform((now) => {
      const run = this.#findUnder(lease);
      if (run !== undefined) this.#interrupt(run, now);
      else if (this.#findKept(lease) !== undefined) this.#letGo(lease.concurrencyKey!);
    });
  }

  /** All current leases, and the keys that cancelled runs still hold. */
  getLeases(): Promise<SeenLease[]> {
    return this.#perform(() => {
      const leases: SeenLease[] = [];
      for (const { id, generation, concurrencyKey, lease } of this.#openRuns.values()) {
        if (lease !== null) leases.push({ runId: id, generation, concurrencyKey, expiresAt: lease.expiresAt });
      }
      for (const [concurrencyKey, { runId, generation, keptUntil }] of this.#keys) {
        if (keptUntil !== null) leases.push({ runId, generation, concurrencyKey, expiresAt: keptUntil });
      }
      return leases;
    });
  }

  /** Takes leases away whatever the clock says, unless they were renewed since they were seen. */
  revoke(leases: readonly SeenLease[]): Promise<void> {
    return this.#perform((now) => {
      for (const lease of leases) {
        const run = this.#findUnder(lease);
        if (run?.lease?.expiresAt === lease.expiresAt) this.#abandon(run, now);
        else if (this.#findKept(lease)?.keptUntil === lease.expiresAt) this.#letGo(lease.concurrencyKey!);
      }
    });
  }

  /** Forgets what a worker had said of itself when it claimed: it will not claim again. */
  forgetWorker(workerId: string): Promise<void> {
    return this.#perform(() => {
      if (this.#workers.delete(workerId)) this.#version += 1;
    });
  }

  /** Records how an attempt at a step ended. */
  saveStep(lease: Lease, step: StepWrite, progress: JsonText | null): Promise<void> {
    return this.#perform((now) => {
      const run = this.#getUnder(lease);
      const earlier = run.steps.get(step.name);
      // What has ended for good stays, and so does what this very call has recorded before.
      const isOver = earlier !== undefined &&
        (earlier.result.status !== "retrying" || earlier.attempts >= step.attempts);
      if (isOver) return;
      const { result } = step;
      run.steps.set(step.name, {
        name: step.name,
        index: earlier?.index ?? step.index,
        attempts: step.attempts,
        result: result.status === "retrying"
          ? { status: "retrying", failure: { ...result.failure }, retryAt: now + result.delayMs }
          : structuredClone(result),
        recordedNo: nextRecordedNo(run),
        startedAt: earlier?.startedAt ?? step.startedAt,
        completedAt: result.status === "retrying" ? null : now,
      });
      run.abandonments = 0;
      this.#touch(run, now, progress);
    });
  }

  /** Prepares pauses and, if `park` is set and none of them is over, sets the run waiting. */
  pause(lease: Lease, request: PauseRequest): Promise<PauseResult> {
    return this.#perform((now) => {
      if (request.park && request.pauses.length === 0 && request.retryAt === null) {
        throw new TypeError(`Cannot park run "${lease.runId}": there is nothing that it would wait for`);
      }
      const repeated = this.#findParked(lease, request);
      if (repeated !== null) return { parked: true, pauses: repeated.map(toPauseRecord) };

      const run = this.#getUnder(lease);
      const pauses = request.pauses.map((pause) => findPause(run, pause) ?? this.#prepare(run, pause, now));
      commitDeadlines(run, now);
      const isOver = pauses.some(({ state }) => state.status === "resolved") ||
        (request.retryAt !== null && request.retryAt <= now);
      const parked = request.park && !isOver;
      if (parked) this.#park(run, pauses, request.retryAt, now);
      this.#touch(run, now, request.progress);
      return { parked, pauses: pauses.map(toPauseRecord) };
    });
  }

  /** Answers the pauses of a call that has parked the run before, or `null`. */
  #findParked(lease: Lease, request: PauseRequest): KeptPause[] | null {
    const run = this.#openRuns.get(lease.runId);
    if (!request.park || run?.status !== "waiting" || run.generation !== lease.generation) return null;
    const pauses = request.pauses.map((pause) => findPause(run, pause));
    return pauses.every((pause) => pause !== undefined) ? pauses : null;
  }

  #prepare(run: KeptRun, { id, kind, name, deadline, metadata }: NewPause, now: number): KeptPause {
    const deadlineAt = deadline === null ? null : "at" in deadline ? deadline.at : now + deadline.afterMs;
    const pause: KeptPause = {
      id,
      kind,
      name,
      metadata,
      deadlineAt,
      createdAt: now,
      suspendedAt: null,
      firstResumedAt: null,
      state: { status: "pending" },
    };
    run.pauses.push(pause);
    if (kind === "wait") this.#waits.set(id, { run, wait: pause });
    return pause;
  }

  #park(run: KeptRun, awaited: KeptPause[], retryAt: number | null, now: number): void {
    for (const pause of awaited) pause.suspendedAt ??= now;
    run.status = "waiting";
    run.parking = { awaited, retryAt, isWoken: false };
    run.lease = null;
    run.abandonments = 0;
    if (retryAt === null) this.#letGoOfKey(run);
  }

  /** Ends a run. Its open waits are closed. */
  finish(lease: Lease, ending: Ending, progress: JsonText | null): Promise<void> {
    return this.#perform((now) => {
      const ended = this.#runs.get(lease.runId);
      // Nobody but this call can have ended the run so under this lease.
      if (ended?.status === ending.status && ended.generation === lease.generation) return;
      const run = this.#getUnder(lease);
      this.#end(run, ending, now);
      this.#touch(run, now, progress);
    });
  }

  /** Ends a wait by a signal. */
  signal(waitId: string, signal: Signal): Promise<SignalOutcome> {
    return this.#perform((now) => {
      const payload = JSON.stringify(signal.payload);
      const found = this.#waits.get(waitId);
      if (found === undefined) throw new NotFoundError(`Cannot signal wait "${waitId}": there is no such wait`);
      const { run, wait } = found;
      if (isAcceptedBy(wait, signal)) {
        // The receipt as it was first given: nobody had taken the run up again by then.
        return {
          wait: { ...toWait(run.id, wait), firstResumedAt: null },
          disposition: "duplicate",
          run: toIdentity(run),
        };
      }
      // This is kept, even if the signal is refused.
      if (commitDeadlines(run, now)) this.#touch(run, now);
      refuseUnlessPending(wait);
      resolve(run, wait, { outcome: "signal", payload, signalId: signal.signalId }, now);
      this.#touch(run, now);
      return { wait: toWait(run.id, wait), disposition: "accepted", run: toIdentity(run) };
    });
  }

  /** Cancels a run that has not ended, and records the steps that are being executed as cancelled. */
  cancel(runId: string, requestId: string, executing: readonly ExecutingStep[]): Promise<Run | null> {
    return this.#perform((now) => {
      const run = this.#runs.get(runId);
      if (run === undefined) return null;
      if (isTerminal(run.status)) return run.cancelledBy === requestId ? toRun(run) : null;

      run.cancelledBy = requestId;
      for (const step of executing) recordCancelled(run, step, now);
      for (const step of run.steps.values()) {
        if (step.result.status !== "retrying") continue;
        step.result = { status: "cancelled", failure: step.result.failure };
        step.completedAt = now;
      }
      // A worker may still be inside the run: its key is no other's before that worker has noticed.
      const holder = this.#keys.get(run.concurrencyKey ?? "");
      if (holder?.runId === runId && run.lease !== null && run.lease.expiresAt > now) {
        holder.keptUntil = run.lease.expiresAt;
      }
      this.#end(run, { status: "cancelled" }, now);
      return toRun(run);
    });
  }

  /** Deletes a run that has ended, with everything that belongs to it. */
  delete(runId: string): Promise<RunIdentity | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined || !isTerminal(run.status) ? null : this.#remove(run);
    });
  }

  /** Deletes the oldest of the runs that ended at least so long ago, `limit` of them at most. */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]> {
    return this.#perform((now) =>
      [...this.#runs.values()]
        .filter(({ status, completedAt }) =>
          isTerminal(status) && completedAt !== null && completedAt <= now - (retention[status] ?? Infinity)
        )
        .sort((left, right) => left.completedAt! - right.completedAt!)
        .slice(0, limit)
        .map((run) => this.#remove(run))
    );
  }

  #remove(run: KeptRun): RunIdentity {
    this.#runs.delete(run.id);
    if (run.idempotencyKey !== null) this.#runsByIdempotency.delete(idempotencyIndex(run));
    for (const pause of run.pauses) this.#waits.delete(pause.id);
    this.#version += 1;
    return toIdentity(run);
  }

  /** A run, or `null` if there is none. */
  getRun(runId: string): Promise<Run | null> {
    return this.#perform(() => {
      const run = this.#runs.get(runId);
      return run === undefined ? null : toRun(run);
    });
  }

  /** The runs that match a filter, newest first. */
  getRuns(filter: RunFilter): Promise<RunPage> {
    return this.#perform(() => {
      const { limit = 50, offset = 0 } = filter;
      const matching = [...this.#runs.values()].filter((run) => matches(run, filter)).reverse();
      const runs = matching.slice(offset, offset + limit).map(toRun);
      return { runs, total: matching.length, hasMore: offset + runs.length < matching.length };
    });
  }

  /** The recorded steps of a run, in the order of their index. */
  getSteps(runId: string): Promise<Step[]> {
    return this.#perform(() =>
      [...this.#runs.get(runId)?.steps.values() ?? []]
        .sort((left, right) => left.index - right.index)
        .map((step) => toStep(runId, step))
    );
  }

  /** The waits of a run, in the order in which they were prepared. */
  getWaits(runId: string): Promise<Wait[]> {
    return this.#perform(() => {
      const waits = this.#runs.get(runId)?.pauses.filter(({ kind }) => kind === "wait") ?? [];
      return waits.map((wait) => toWait(runId, wait));
    });
  }

  /** A wait, or `null` if there is none. */
  getWait(waitId: string): Promise<Wait | null> {
    return this.#perform(() => {
      const found = this.#waits.get(waitId);
      return found === undefined ? null : toWait(found.run.id, found.wait);
    });
  }

  /** The kept log lines of a run, in the order in which they came. */
  getLogs(runId: string): Promise<LogEntry[]> {
    return this.#perform(() => [...this.#runs.get(runId)?.logs.values() ?? []].map(toLogEntry));
  }

  /** Keeps log lines. Those of a run that is gone are dropped. */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void> {
    return this.#perform(() => {
      for (const entry of entries) {
        const logs = this.#runs.get(entry.runId)?.logs;
        if (logs === undefined || logs.has(entry.id)) continue;
        logs.set(entry.id, { ...entry });
        this.#version += 1;
      }
    });
  }

  /** A number that changes whenever something was committed. */
  getVersion(): Promise<number> {
    return this.#perform(() => this.#version);
  }

  /** Does the work of a call at once and whole. What it throws rejects the promise. */
  #perform<T>(work: (now: number) => T): Promise<T> {
    return new Promise((resolve) => resolve(work(this.#host.now())));
  }

  #findUnder(lease: Lease): KeptRun | undefined {
    const run = this.#openRuns.get(lease.runId);
    return run?.status === "running" && run.generation === lease.generation ? run : undefined;
  }

  #getUnder(lease: Lease): KeptRun {
    const run = this.#findUnder(lease);
    if (run === undefined) throw new LeaseLostError(lease);
    return run;
  }

  /** Finds the key that a cancelled run still holds under its last lease. */
  #findKept({ runId, generation, concurrencyKey }: Lease): KeyHolder | undefined {
    const holder = concurrencyKey === null ? undefined : this.#keys.get(concurrencyKey);
    const isKept = holder?.runId === runId && holder.generation === generation && holder.keptUntil !== null;
    return isKept ? holder : undefined;
  }

  #abandon(run: KeptRun, now: number): void {
    this.#interrupt(run, now);
    run.abandonments += 1;
  }

  #interrupt(run: KeptRun, now: number): void {
    run.status = "pending";
    run.lease = null;
    run.generation += 1;
    run.interruptions += 1;
    this.#letGoOfKey(run);
    this.#touch(run, now);
  }

  #end(run: KeptRun, ending: Ending | { status: "cancelled" }, now: number): void {
    commitDeadlines(run, now);
    for (const pause of run.pauses) {
      if (pause.state.status !== "pending") continue;
      pause.state = { status: ending.status === "cancelled" ? "cancelled" : "closed" };
    }
    run.status = ending.status;
    run.output = ending.status === "completed" ? ending.output : null;
    run.error = ending.status === "failed" ? ending.error : null;
    run.lease = null;
    run.parking = null;
    run.completedAt = now;
    this.#openRuns.delete(run.id);
    this.#letGoOfKey(run);
    this.#touch(run, now);
  }

  /** Lets go of a run's key, unless the run was cancelled and keeps it a while. */
  #letGoOfKey(run: KeptRun): void {
    const holder = run.concurrencyKey === null ? undefined : this.#keys.get(run.concurrencyKey);
    if (holder?.runId === run.id && holder.keptUntil === null) this.#letGo(run.concurrencyKey!);
  }

  #letGo(key: string): void {
    this.#keys.delete(key);
    this.#version += 1;
  }

  /** Notes that a run has changed. */
  #touch(run: KeptRun, now: number, progress: JsonText | null = null): void {
    run.updatedAt = now;
    run.progress = progress ?? run.progress;
    this.#version += 1;
  }
}

function idempotencyIndex({ jobName, idempotencyKey }: NewRun): string {
  return JSON.stringify([jobName, idempotencyKey]);
}

/** When time wakes a run that is parked; `null` for any other, and for one that is woken already. */
function wakesAt({ parking }: KeptRun): number | null {
  if (parking === null || parking.isWoken) return null;
  return earliest([parking.retryAt, ...parking.awaited.map(({ deadlineAt }) => deadlineAt)]);
}

function earliest(instants: readonly (number | null)[]): number | null {
  return instants.reduce((first, at) => first === null || (at !== null && at < first) ? at : first, null);
}

/** Commits the timeouts of a run's pauses whose deadline has passed. Answers whether there were any. */
function commitDeadlines(run: KeptRun, now: number): boolean {
  const passed = run.pauses
    .filter(({ state, deadlineAt }) => state.status === "pending" && deadlineAt !== null && deadlineAt <= now)
    .sort((left, right) => left.deadlineAt! - right.deadlineAt!);
  for (const pause of passed) resolve(run, pause, { outcome: "timeout" }, pause.deadlineAt!);
  return passed.length > 0;
}

type Unrecorded<T> = T extends { recordedNo: number } ? Omit<T, "recordedNo"> : never;

/** Ends a pause, and wakes its run if it waits on it. */
function resolve(run: KeptRun, pause: KeptPause, by: Unrecorded<PauseRecord["resolution"]>, at: number): void {
  pause.state = { status: "resolved", resolvedAt: at, resolution: { ...by, recordedNo: nextRecordedNo(run) } };
  if (run.parking?.awaited.includes(pause)) run.parking.isWoken = true;
}

function nextRecordedNo(run: KeptRun): number {
  run.lastRecordedNo += 1;
  return run.lastRecordedNo;
}

function findPause(run: KeptRun, { kind, name }: NewPause): KeptPause | undefined {
  return run.pauses.find((pause) => pause.kind === kind && pause.name === name);
}

function isAcceptedBy({ state }: KeptPause, signal: Signal): boolean {
  return state.status === "resolved" && state.resolution.outcome === "signal" &&
    state.resolution.signalId === signal.signalId &&
    isSameJson(JSON.parse(state.resolution.payload), signal.payload);
}

function refuseUnlessPending({ id, state }: KeptPause): void {
  if (state.status === "pending") return;
  if (state.status !== "resolved") throw new ConflictError(`Cannot signal wait "${id}": it is ${state.status}`);
  if (state.resolution.outcome === "signal") {
    throw new ConflictError(`Cannot signal wait "${id}": another signal came first`);
  }
  throw new WaitExpiredError(`Cannot signal wait "${id}": its deadline passed at ${isoTime(state.resolvedAt)}`);
}

function recordCancelled(run: KeptRun, step: ExecutingStep, now: number): void {
  if (run.steps.has(step.name)) return;
  run.steps.set(step.name, {
    ...step,
    result: { status: "cancelled", failure: null },
    recordedNo: nextRecordedNo(run),
    completedAt: now,
  });
}

function matches(run: KeptRun, { jobName, status, labels = {} }: RunFilter): boolean {
  return isOneOf(run.jobName, jobName) && isOneOf(run.status, status) &&
    Object.entries(labels).every(([key, value]) => Object.hasOwn(run.labels, key) && run.labels[key] === value);
}

function isOneOf(value: string, allowed: string | readonly string[] | undefined): boolean {
  if (allowed === undefined) return true;
  return typeof allowed === "string" ? value === allowed : allowed.includes(value);
}
