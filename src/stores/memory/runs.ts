import { LeaseLostError } from "../../model/error.ts";
import type { Lease } from "../../model/lease.ts";
import { actorOf } from "../../model/origin.ts";
import { type Fact, factBy, failedFact, toFact, triggeredFact } from "../../model/fact.ts";
import { latestProgress, type Report } from "../../model/execution_report.ts";
import { endRunId } from "../../model/end.ts";
import { isTerminal, type RunIdentity } from "../../model/run.ts";
import type { Ending } from "../../store/claim.ts";
import type { NewHold } from "../../store/hold_record.ts";
import type { NewRun } from "../../store/new_run.ts";
import type { NewPause } from "../../store/pause_request.ts";
import type { Interruption } from "../../store/operator_reads.ts";
import { toEndRun } from "../end_runs.ts";
import { countsByNewestRetry, countsForKey } from "../idempotency.ts";
import { ALONE_FROM, aloneDelayMs, DELETED_RUNS_KNOWN_MS } from "../rules.ts";
import { addTry } from "../holds.ts";
import { type Ghost, MemoryKeys } from "./flow/concurrency_keys.ts";
import { MemoryJournal } from "./journal.ts";
import { endChild, loseResult } from "./children.ts";
import {
  closePauses,
  commitDeadlines,
  findPause,
  hasClosedInbox,
  isWoken,
  noteResumption,
  preparePause,
} from "./pauses.ts";
import { type KeptPause, type KeptRun, newKeptRun, triedPrints } from "./records.ts";
import { retriesOf, toAwaitedPause, toIdentity } from "./copies.ts";
import { copyHistory, copyMessages, toUndoingRun, undoneIn } from "./copy_history.ts";

/** The worker of a run whose lease is revoked. */
export interface LostWorker {
  /** The last claim by which it took a run, if that was the only run that it held then. */
  soleClaimId: string | null;
  /** How long its leases last. */
  leaseMs: number;
}

/** The runs of a memory store and their concurrency keys: one method for each state change of a run. */
export class MemoryRuns {
  // Maps keep the order in which entries were added: that of the triggers.
  readonly #all = new Map<string, KeptRun>();
  readonly #bySeq = new Map<number, KeptRun>();
  readonly #open = new Map<string, KeptRun>();
  readonly #byIdempotency = new Map<string, KeptRun>();
  readonly #pauses = new Map<string, { run: KeptRun; pause: KeptPause }>();
  /** When runs were deleted, for a while. */
  readonly #deletedAt = new Map<string, number>();
  readonly #newId: () => string;
  #fairCount = 0;
  /** Who holds their concurrency keys. */
  readonly keys = new MemoryKeys();
  /** The journal of their facts. */
  readonly journal: MemoryJournal;
  #version = 0;
  #lastSeq = 0;
  #lastPauseSeq = 0;

  /**
   * @param newId Makes the ids of the pauses that a retry begins with.
   * @param journalLength The maximum size of the journal, in characters of facts.
   */
  constructor(newId: () => string, journalLength?: number) {
    this.#newId = newId;
    this.journal = new MemoryJournal(journalLength);
  }

  /** All runs, oldest first. */
  get all(): KeptRun[] {
    return [...this.#all.values()];
  }

  /** The runs that have not ended, oldest first. */
  get open(): KeptRun[] {
    return [...this.#open.values()];
  }

  /** Whether a run that has not ended has a fairness key. */
  get hasFairnessKeys(): boolean {
    return this.#fairCount > 0;
  }

  /** Counts the changes. */
  get version(): number {
    return this.#version;
  }

  /** Finds a run. */
  get(runId: string): KeptRun | undefined {
    return this.#all.get(runId);
  }

  /** Finds a run by its row number. */
  getBySeq(seq: number): KeptRun | undefined {
    return this.#bySeq.get(seq);
  }

  /** Whether there is such a run. */
  has(runId: string): boolean {
    return this.#all.has(runId);
  }

  /** Finds the run that has the idempotency key of a request, and counts; or the newest retry of that run. */
  findIdempotent(request: NewRun, now: number): KeptRun | undefined {
    for (const run of this.#withKeyOf(request)) {
      const found = countsByNewestRetry(request) ? this.#newestRetry(run) : run;
      const hasCompleted = run.status === "completed" || run.completedAs !== null;
      const counted = { ...found, hasCompleted, hasClosedInbox: () => hasClosedInbox(found) };
      if (countsForKey(counted, request, now)) return found;
    }
    return undefined;
  }

  /** Finds the run of a job with an idempotency key, by the first of its names under which there is one, or its newest retry. */
  findKeyed(jobNames: readonly string[], idempotencyKey: string): KeptRun | undefined {
    const [jobName = "", ...aliases] = jobNames;
    const [run] = this.#withKeyOf({ jobName, aliases, idempotencyKey });
    return run && this.#newestRetry(run);
  }

  /** The newest retry of a run, or of its newest retry, and so on; the run itself without one. */
  #newestRetry(run: KeptRun): KeptRun {
    const retry = this.#retryOf(run);
    return retry === undefined ? run : this.#newestRetry(retry);
  }

  /** The newest retry of a run; if that was deleted, the newest that has the steps of the run. */
  #retryOf(run: KeptRun): KeptRun | undefined {
    if (run.retriggeredAs === null) return undefined;
    return this.#all.get(run.retriggeredAs) ??
      this.all.findLast(({ originId, seq }) => originId === run.originId && seq > run.seq);
  }

  /** The runs of a job, by its name and then by its aliases, that have the idempotency key of a request. */
  #withKeyOf({ jobName, aliases, idempotencyKey }: Pick<NewRun, "jobName" | "aliases" | "idempotencyKey">): KeptRun[] {
    if (idempotencyKey === null) return [];
    const indexes = [jobName, ...aliases].map((name) => idempotencyIndex({ jobName: name, idempotencyKey }));
    return indexes.flatMap((index) => this.#byIdempotency.get(index) ?? []);
  }

  /** Finds the run that a lease is current on. */
  findUnder(lease: Lease): KeptRun | undefined {
    const run = this.findLeased(lease);
    return run?.claimId === lease.claimId && run.lastRecordedNo >= lease.recorded ? run : undefined;
  }

  /** Finds the run whose lease has this number. */
  findLeased({ runId, generation }: Pick<Lease, "runId" | "generation">): KeptRun | undefined {
    const run = this.#open.get(runId);
    return run?.status === "running" && run.generation === generation ? run : undefined;
  }

  /**
   * The run that a lease is current on.
   *
   * @throws {LeaseLostError} There is none.
   */
  getUnder(lease: Lease): KeptRun {
    const run = this.findUnder(lease);
    if (run === undefined) throw new LeaseLostError(lease);
    return run;
  }

  /** A retry that has not ended, of the run that a request is to retrigger: its newest one, or one with the same steps. */
  findOpenRetry({ retriggerOf }: Pick<NewRun, "retriggerOf">): KeptRun | undefined {
    const old = retriggerOf === null ? undefined : this.#all.get(retriggerOf.runId);
    if (old === undefined) return undefined;
    const newest = this.#newestRetry(old);
    if (newest !== old && this.#open.has(newest.id)) return newest;
    return this.open.find((run) => run !== old && run.originId !== run.id && run.originId === old.originId);
  }

  /** Finds the retry from the failure that continues a run. See `Store.findRetry()`. */
  findRetry(runId: string): KeptRun | undefined {
    const run = this.#all.get(runId);
    const retry = run && this.#retryOf(run);
    return retry?.copied == null ? undefined : retry;
  }

  /** Finds a pause of any run. */
  findPause(pauseId: string): { run: KeptRun; pause: KeptPause } | undefined {
    return this.#pauses.get(pauseId);
  }

  /** Finds a wait of any run: a pause that a signal can end. */
  findWait(waitId: string): { run: KeptRun; pause: KeptPause } | undefined {
    const found = this.#pauses.get(waitId);
    return found?.pause.kind === "wait" ? found : undefined;
  }

  /** Adds a run, perhaps as a child. */
  add(request: NewRun, now: number, parent: KeptRun["parent"] = null, endOf: string | null = null): KeptRun {
    for (const former of this.#withKeyOf(request)) {
      former.isKeyTaken = true;
      this.#byIdempotency.delete(idempotencyIndex(former));
    }
    const run = newKeptRun(request, ++this.#lastSeq, now);
    run.parent = parent;
    run.endOf = endOf;
    run.depth = parent === null ? 0 : parent.run.depth + 1;
    this.#all.set(run.id, run);
    this.#bySeq.set(run.seq, run);
    this.#open.set(run.id, run);
    if (run.flow.fairnessKey !== null) this.#fairCount += 1;
    if (run.idempotencyKey !== null) this.#byIdempotency.set(idempotencyIndex(run), run);
    this.journal.note(triggeredFact(run.seq, run.startAt, parent?.run.id, request.schedule, actorOf(run.trace)));
    if (request.retriggerOf !== null) this.#link(run, request.retriggerOf);
    this.touch(run, now);
    return run;
  }

  #link(run: KeptRun, { runId, from }: NonNullable<NewRun["retriggerOf"]>): void {
    const old = this.#all.get(runId)!; // the caller has checked that it exists
    old.retriggeredAs = run.id;
    run.endOf = old.endOf;
    this.journal.note(factBy([old.seq, "retried", run.id], actorOf(run.trace)));
    if (run.schedule !== null) run.schedule = { ...run.schedule, slot: old.schedule?.slot };
    if (from === "failure") {
      const undone = this.findContinuing(old).flatMap((one) => [...undoneIn(one, this.endRunsOf(one))]);
      copyHistory(old, run, new Map(undone), this.#newId);
    }
    copyMessages(old, run);
    for (const pause of run.pauses) this.#pauses.set(pause.id, { run, pause });
  }

  /** The pause of a run that a request names: one that it has already, or a new one. */
  prepare(run: KeptRun, request: NewPause, now: number): KeptPause {
    const known = findPause(run, request);
    if (known !== undefined) {
      known.receive = request.receive ?? known.receive;
      return known;
    }
    const pause = preparePause(run, request, ++this.#lastPauseSeq, now);
    this.#pauses.set(pause.id, { run, pause });
    return pause;
  }

  /** Gives a run to a worker, with its concurrency key. */
  take(run: KeptRun, worker: { workerId: string; claimId: string; leaseMs: number }, now: number): void {
    commitDeadlines(run, now);
    noteResumption(run, now);
    const isResumed = run.hold !== null;
    if (isResumed) this.#endHold(run, null);
    run.status = "running";
    run.parking = null;
    run.isClaimedAlone = false;
    run.generation += 1;
    const { workerId: owner, claimId } = worker;
    run.claimId = claimId;
    run.lease = { owner, expiresAt: now + worker.leaseMs, lastReportNo: 0, isResumed, since: now };
    run.startedAt ??= now;
    this.journal.note([run.seq, "claimed", run.generation, owner, run.lease.expiresAt, run.interruptions + 1]);
    if (run.concurrencyKey !== null) {
      this.keys.take(run.concurrencyKey, { runId: run.id, generation: run.generation });
    }
    this.touch(run, now);
  }

  /** Ends the lease of a run, so that it can be claimed again. */
  interrupt(run: KeptRun, now: number, kind: Interruption["kind"] = "released"): void {
    this.#leaveLease(run, kind, now);
    run.interruptions += 1;
    run.isClaimedAlone = run.abandonments >= ALONE_FROM;
  }

  /** Takes the lease from a run that does not end. While it only waits for a retry, it keeps its concurrency key. */
  #leaveLease(run: KeptRun, how: Interruption["kind"] | "parked" | "retrying", now: number): void {
    const isParked = how === "parked" || how === "retrying";
    if (!isParked) {
      const { owner: workerId, since: leasedAt } = run.lease!; // it is under a lease
      run.interrupted.push({ kind: how, workerId, leasedAt, endedAt: now });
      run.generation += 1;
    }
    run.status = isParked ? "waiting" : "pending";
    run.lease = null;
    if (how !== "retrying") this.keys.release(run);
    this.touch(run, now);
  }

  /**
   * Revokes the lease of a run whose worker has abandoned it.
   *
   * @param worker Its worker; `undefined`: it is forgotten.
   */
  abandon(run: KeptRun, worker: LostWorker | undefined, now: number): void {
    const wasAlone = worker !== undefined && worker.soleClaimId === run.claimId;
    run.abandonmentsAlone = (run.abandonments === 0 ? 0 : run.abandonmentsAlone) + (wasAlone ? 1 : 0);
    run.abandonments += 1;
    this.interrupt(run, now, "lost");
    const delayMs = aloneDelayMs(run.abandonments, worker?.leaseMs ?? 0);
    if (run.isClaimedAlone && delayMs > 0) run.dueAt = now + delayMs;
  }

  /** Holds a run. */
  hold(run: KeptRun, hold: NewHold, now: number): void {
    const { code, message, details } = hold;
    this.#leaveLease(run, "held", now);
    run.hold = { code, message, details: structuredClone(details), since: now };
    run.tried = { prints: addTry(triedPrints(run), hold), recordedNo: run.lastRecordedNo };
    this.journal.note([run.seq, "held", code, message]);
  }

  /** Makes a held run due for the code with a print. */
  offer(run: KeptRun, print: string): void {
    run.offeredTo = print;
    this.countChange();
  }

  /** Makes a held run due for all workers that know its version. */
  resumeHeld(run: KeptRun, continues: boolean, by: string | null, now: number): void {
    this.#endHold(run, by);
    run.tried = { prints: [], recordedNo: 0 };
    run.continues ||= continues;
    this.touch(run, now);
  }

  #endHold(run: KeptRun, by: string | null): void {
    run.hold = null;
    run.offeredTo = null;
    this.journal.note(factBy([run.seq, "resumed"], by));
  }

  /** Sets a run waiting. */
  park(run: KeptRun, awaited: KeptPause[], retryAt: number | null, now: number): void {
    this.#leaveLease(run, retryAt === null ? "parked" : "retrying", now);
    run.parking = { awaited, retryAt, isWoken: false, since: now };
    run.parkedNo = run.lastRecordedNo;
    run.abandonments = 0;
    for (const { waitId, name, deadlineAt } of [...awaited.map(toAwaitedPause), ...retriesOf(run)]) {
      this.journal.note([run.seq, "waiting", waitId, name, deadlineAt]);
    }
  }

  /** Makes a waiting run due whose deadline has passed or whose retry is due. */
  wake(run: KeptRun, now: number): void {
    commitDeadlines(run, now);
    if (run.parking !== null) run.parking.isWoken = true;
    this.touch(run, now);
  }

  /** Makes a run due whose start has passed. */
  endDelay(run: KeptRun, now: number): void {
    run.dueAt = null;
    this.touch(run, now);
  }

  /** Ends a run, with its pauses. */
  end(run: KeptRun, ending: Ending | { status: "cancelled" }, now: number): void {
    closePauses(run, ending.status === "cancelled" ? "cancelled" : "closed", now);
    const mayExecute = ending.status === "cancelled" || (ending.status === "failed" && ending.stillExecuting === true);
    if (!mayExecute || !this.#becomeGhost(run, now)) this.keys.release(run);
    run.status = ending.status;
    run.output = ending.status === "completed" ? ending.output : null;
    run.failure = ending.status === "failed" ? structuredClone(ending.failure) : null;
    run.failedStepName = ending.status === "failed" ? ending.failedStepName : null;
    run.lease = null;
    run.parking = null;
    run.hold = null;
    run.offeredTo = null;
    run.completedAt = Math.max(now, run.createdAt);
    this.journal.note(endFact(run, ending));
    this.#open.delete(run.id);
    if (run.status === "completed") this.#completeRetried(run);
    if (run.flow.fairnessKey !== null) this.#fairCount -= 1;
    this.touch(run, now);
    this.#addEnd(run, now);
    const wasDue = run.parent !== null && isWoken(run.parent.run);
    const parent = endChild(run, now);
    if (parent !== null) this.noteResolution(parent, wasDue, now);
  }

  /** Adds the run that cleans up after a run that has just ended. */
  #addEnd(run: KeptRun, now: number): void {
    const { status, onEnd } = run;
    if (onEnd === undefined || !isTerminal(status) || !onEnd.statuses.includes(status)) return;
    this.add(toEndRun(run, { ...onEnd, id: endRunId(run.id) }), now, null, run.id);
    this.journal.putTriggersFirst();
  }

  /** A run, and the later ones that have its steps: retries from the failure of it, or of one before it. */
  findContinuing(run: KeptRun): KeptRun[] {
    return this.all.filter(({ originId, seq }) => originId === run.originId && seq >= run.seq);
  }

  /** The runs that clean up, or did, after a run: its end run and the retries of that. */
  endRunsOf(run: KeptRun): KeptRun[] {
    return run.onEnd === undefined ? [] : this.all.filter(({ endOf }) => endOf === run.id);
  }

  /** The open run that cleans up after a run. */
  findOpenEnd(run: KeptRun): KeptRun | undefined {
    return this.endRunsOf(run).find(({ status }) => !isTerminal(status));
  }

  /** Notes that a retry has completed: a run keeps the first one, and so have those before it. */
  #completeRetried({ id, retriggerOf }: KeptRun): void {
    const find = (runId: string | null) => runId === null ? undefined : this.#all.get(runId);
    for (let old = find(retriggerOf); old?.completedAs === null; old = find(old.retriggerOf)) old.completedAs = id;
  }

  /** Deletes a run. A key that it still holds after its cancel stays held. */
  remove(run: KeptRun, by: string | null, now: number): RunIdentity {
    for (const [id, deletedAt] of this.#deletedAt) {
      if (deletedAt > now - DELETED_RUNS_KNOWN_MS) break; // the later entries are younger
      this.#deletedAt.delete(id);
    }
    this.#deletedAt.set(run.id, now);
    loseResult(run);
    const ended = run.endOf === null ? undefined : this.#all.get(run.endOf);
    if (ended !== undefined) ended.deletedEnds = [...ended.deletedEnds, toUndoingRun(run)];
    this.#all.delete(run.id);
    this.#bySeq.delete(run.seq);
    for (const pause of run.pauses) this.#pauses.delete(pause.id);
    this.journal.note(factBy([run.seq, "deleted", run.id, run.jobName, run.labels], by));
    if (run.idempotencyKey !== null && !run.isKeyTaken) this.#byIdempotency.delete(idempotencyIndex(run));
    this.countChange();
    return toIdentity(run);
  }

  /** Whether a run was deleted a while ago. */
  wasDeleted(runId: string): boolean {
    return this.#deletedAt.has(runId);
  }

  /** Releases what a cancelled run still holds. */
  releaseGhost(ghost: Ghost): void {
    this.keys.releaseGhost(ghost);
    this.countChange();
  }

  /** Stores the progress of reports, and returns those that are new under the lease of a run. */
  takeReports(run: KeptRun, reports: readonly Report[]): Report[] {
    const { lease } = run;
    if (lease === null || reports.length === 0) return [];
    const added = reports.filter(({ no }) => no > lease.lastReportNo);
    const progress = latestProgress(added);
    if (progress !== null) run.progress = JSON.stringify(progress);
    lease.lastReportNo = Math.max(lease.lastReportNo, reports.at(-1)?.no ?? 0);
    return added;
  }

  /** Stores the progress of reports, and adds the facts of the new ones to the journal. */
  noteReports(run: KeptRun, reports: readonly Report[]): void {
    this.journal.note(...this.takeReports(run, reports).map((report) => toFact(run.seq, report)));
  }

  /** Notes that a run has changed. */
  touch(run: KeptRun, now: number): void {
    run.updatedAt = now;
    this.countChange();
  }

  /** Notes that a pause of a run has ended. If the run was due before, its last change still says since when it is due. */
  noteResolution(run: KeptRun, wasDue: boolean, now: number): void {
    if (wasDue) this.countChange();
    else this.touch(run, now);
  }

  /** Notes that something else has changed. */
  countChange(): void {
    this.#version += 1;
  }

  /** A worker may still execute a cancelled run: what it holds stays held until that worker must have noticed. */
  #becomeGhost({ id: runId, jobName, generation, claimId, concurrencyKey, lease }: KeptRun, now: number): boolean {
    if (lease === null || claimId === null || lease.expiresAt <= now) return false;
    this.keys.keep({ runId, jobName, generation, claimId, concurrencyKey, expiresAt: lease.expiresAt });
    return true;
  }
}

function endFact({ seq: run, cancelRequest }: KeptRun, ending: Ending | { status: "cancelled" }): Fact {
  switch (ending.status) {
    case "completed":
      return [run, "completed", ending.durationMs];
    case "failed":
      return failedFact(run, ending.failure.kind);
    case "cancelled":
      return factBy([run, "cancelled"], actorOf(cancelRequest));
  }
}

function idempotencyIndex({ jobName, idempotencyKey }: Pick<NewRun, "jobName" | "idempotencyKey">): string {
  return JSON.stringify([jobName, idempotencyKey]);
}
