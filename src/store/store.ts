import type { Report } from "../model/execution_report.ts";
import type { Fact, FactValue, FactValueRef } from "../model/fact.ts";
import type { Cursor, JournalPage } from "../model/journal.ts";
import type { JsonText } from "../values/json.ts";
import type { Lease, SeenLease } from "../model/lease.ts";
import type { LogText, NewLogEntry } from "../model/log.ts";
import type { MessageText } from "../model/message.ts";
import type { Retention, RunIdentity, RunText, StoredRun } from "../model/run.ts";
import type { SavedStep, StepText, StepWrite } from "../model/step.ts";
import type { Chunk, StreamInfo, StreamPlace } from "../model/stream.ts";
import type { RunBlockers } from "./blockers.ts";
import type { CancelledExecution, ClaimRequest, ClaimResult, Ending, Renewal } from "./claim.ts";
import type { Enqueued, NewRun } from "./new_run.ts";
import type { PauseRequest, PauseResult } from "./pause_request.ts";
import type { HeldQuery, HoldRecord, NewHold, RunHistory } from "./hold_record.ts";
import type { StrandedJob } from "../model/hold.ts";
import type { FoundRuns, Part, RunQuery, RunState, StreamText, ValuePart, ValuePlace } from "./run_query.ts";
import type {
  OpenWaitPlace,
  OpenWaits,
  RunFailures,
  SearchHit,
  TimelinePlace,
  TimelineRecords,
} from "./operator_reads.ts";
import type { SendOutcome, SendRequest } from "./send_request.ts";
import type {
  JobList,
  JobPause,
  JobStatistics,
  RatedJob,
  StatisticsQuery,
  StatisticsRow,
  StoreInfo,
  WorkerList,
} from "./operate.ts";
import type { Firing, ScheduleList, ScheduleRecord } from "./schedule_record.ts";
import type { DataSource } from "../model/data_source.ts";
import type { FindRun, FindWait, StepPlace, StoreAnswers, StoreWrites, TransactionLimits } from "./transaction.ts";
import type { OriginText } from "../model/origin.ts";
import type { ChildResult, Signal, SignalOutcome, Wait, WaitText } from "../model/wait.ts";

/**
 * Stores all state of runs.
 *
 * These comments and the contract suite (`storeContract()` of `@holdfast/jobs/testing`) say all that a new store has to do.
 *
 * **Atomic.** A write happens completely or not at all, and is durable when its promise resolves. A call that takes
 * several runs or leases is one write. Calls can come in any number at once, from several processes. A write may share
 * a transaction with others, as long as a refusal leaves no trace of its own call in it. A read shows only what was
 * committed. What it returns of one run, or of one list, is its state at one moment, unless its comment says otherwise.
 *
 * **Repeatable.** An answer can be lost after the commit, so the caller repeats the call unchanged. The store
 * recognizes the repetition by what the call names: the id of a run, a claim or a log line, the attempt at a step, the
 * generation of a lease, the id of a signal or a request. The second call has no second effect, and answers with the
 * state of that moment. The exceptions are named at the methods. A call under a lease that was lost meanwhile is
 * refused as the first would be then, except `finish`, `pause` and `hold`: these end the lease, and recognize that they
 * did.
 *
 * **Errors.** A {@linkcode StoreError} says that the store could not answer; it says nothing about the run. The store
 * sets `outcomeUnknown` if the write may have been committed despite the error, and leaves it `false` if certainly
 * nothing was. All other errors are refusals: they are answers, are not repeated, and have no effect, except that of
 * `signal` after the deadline.
 *
 * **Leases.** A run is under a lease while its status is `running`. The lease is the current one if its generation and
 * its claim are those of the run, and the run has at least as many records as the lease says that its holder knows
 * (`Lease.recorded`): a database that fails over to a standby without the last commits gives generations out again, and
 * lacks what its workers were told. Claim, release, hold and revocation each raise the generation by one. A run that
 * parks or ends keeps its generation, but is not under a lease any more. A lease that expired stays current until a
 * claim revokes it: until then its worker can write under it and renew it. A write under a lease that is not current
 * throws a {@linkcode LeaseLostError}; the store never compares owners.
 *
 * **Live workers.** A worker is live while its last claim is less than that claim's `leaseMs` old. Only claims count,
 * including those that find nothing; renewals do not. A claim in the future does not count either: the clock was set
 * back.
 *
 * **Child runs.** A run can pause on child runs (`NewPause.children`). Children are made in the commit that prepares
 * their pause or adds them to it, and the call that ends the last child of a pause resolves the pause in the same
 * commit: `finish`, `cancel` or `claim`. A child that is retried changes nothing in its parent. When a run ends, its
 * open pauses are closed. From that commit on none of their children is claimed any more; the following claims cancel
 * those that have not ended, 40 in a claim, and their children in turn; until then they keep their places in the lines
 * of their keys and among the runs of their fairness keys, but do not count as runs that pass all gates. The result of
 * a child stays with its run. If a child is deleted, its result is kept for the parents that have not ended, and lost
 * for the others.
 *
 * **Versions.** Each run has the version of the job that triggered it. A worker names the versions that it knows, and
 * claims no others: a version that it does not know is to a claim like another job. Where this page speaks of the runs
 * of a job in the line of a key, among the runs of a fairness key, or that a worker knows, the runs of each version are
 * a job of their own. Pauses, idempotency keys and coalescing are by the name of the job, whatever the version; limits
 * and rates count the runs of all names of the job (`KnownJob.names`). Idempotency and coalescing look at the aliases of
 * a request, too (`NewRun.aliases`): an idempotency key is looked up under the name, then under each alias in their
 * order.
 *
 * **Held runs.** A run that its worker holds (`hold`) is pending and not due: it passes no gate, is in no queue, holds
 * nothing, and is no target of coalescing. It keeps its position, takes signals, and can be cancelled. Its `finishBy`
 * applies; its `startBy` does not, since it has started. A claim with `triesHeld` takes no other runs than held ones,
 * and a claim without it takes none of them. If it finds none that is offered to it, it offers up to 20 that it may take:
 * those of a version that it knows, in the order of the triggers, whose print (`KnownJob.print`) has not tried them
 * since they last recorded something (a signal counts), or has tried them once, held them with `ended_early`, and they
 * were last held at least a minute ago. From then on such a run is offered to the workers with this
 * print and version alone. It passes the gates as a run of a job of its own, and its position comes after those of all
 * runs that are not held, so it keeps none of them from its key. It is held until it is claimed. Then it is not held,
 * and, after an interruption, due for all workers that know its version. If no live worker has the print and version any
 * more, a claim of another print that may take the run offers it to that one instead. `resumeHeld` makes a run due for
 * all workers that know its version.
 *
 * **Idempotency keys.** At most one run of a job has a given idempotency key. The key belongs to the run until the run
 * is deleted, also after it has ended, or until a request takes it for which the run does not count
 * (`NewRun.idempotencyUntil`): in the commit that adds the new run. A run without its former key still shows it
 * (`idempotencyKey`), and is found by it (`searchRuns`). Other jobs can use the same key.
 *
 * **End runs.** A run can have a run that cleans up after it (`NewRun.onEnd`): it is added in the commit that ends the
 * first one, whatever ends it, if it ends with one of the statuses. Its id follows from that of its run (`endRunId()`). It
 * has the version, labels, priority, fairness key and concurrency key of its run, and its input is `{ runId }`. With a
 * concurrency key, it precedes all runs that have not kept the key. It has no parent, no end run and no idempotency key.
 * While it, or a retry of it, has not ended, its run is neither retried nor deleted; nor is a parent retried from its
 * failure that would retry a child which has one open, or will have one. A retry from the failure has no copy of a step
 * that it has undone, for which it has a completed step (`undoneSteps()`), and knows of such steps without a record, too.
 *
 * **Gates.** A run is due if it is pending and its start (`flow.start`) has passed, or if it waits and one of its pauses
 * is over. A due run can be claimed when it passes these gates, in this order:
 *
 * 1. The key: a run with a concurrency key is the first of the runs of its job in the line of the key, and the key has
 *    room and, before the first start of the run, an open rate.
 * 2. The turn: a run with a fairness key is the first of the runs of its job that have passed the key and have the same
 *    fairness key. While the rate of the job is used up, runs that have not started do not count.
 * 3. The job: it is not paused, fewer of its runs are executed than `KnownJob.concurrency`, and, before the first start
 *    of the run, its rate is open.
 *
 * A run that is delayed, parked, behind others or of a paused job holds nothing. A run holds one key at most, so runs
 * never wait for each other in a circle.
 *
 * **Concurrency keys.** A key is shared by the runs of all jobs. A run takes its key when it is claimed, and holds it
 * with the lease. It holds the key without a lease in two cases. While it waits for the retry of a step, it keeps the
 * key, also if its job is paused. Once it is due, it passes the gate of the key, whatever the key has room for, and
 * precedes all runs that keep none. When it is cancelled under a lease, its worker may still execute
 * it: the key stays held until that worker releases the lease, or until the lease would have expired, even if the run
 * is deleted meanwhile. The due runs of a key are its line, by position. Two rules follow every change:
 *
 * - K1: a run that has not kept its key can be claimed only while fewer other runs hold the key than the run's own
 *   `flow.keyConcurrency`, and only if it is the first of its job in the line. So a run that wants the key for itself is
 *   not passed by others that share it.
 * - K2: while that is so, the first of each job can be claimed, except one behind the first of another job that a live
 *   worker knows: behind a job that the claiming worker does not know always, behind one that it knows while the key has
 *   no room, or no open rate, for that run. A job that no live worker knows, or that is paused, holds up nobody. Neither
 *   does a run that has passed the key while the limit or the rate of its job holds it back in each live worker that knows
 *   it. The limits of others are those of their last claims; what counts is the moment at which the claim begins.
 *
 * **Limits of a job.** The limit of the claiming worker (`KnownJob`, by version) counts the leases of the job, and its
 * runs that were cancelled under a lease until that lease is released or would have expired (`ghosts`). A rate counts
 * first claims: of the starts under it, at most `limit` lie in any `period`, by the store's clock. A start in the
 * future (the clock was set back) becomes one of now with the next claim of any worker. A start is counted in the
 * commit that gives the lease, for the job if the claiming worker has a rate for it, and for the key if the run has
 * one. A rate never holds back a run that has started. The rate of a key is that of the run that is first in its line.
 *
 * **Fairness.** Of the runs that pass all gates, fairness keys take turns: a claim takes the first of each key, by
 * position, before it takes a second of one. Runs without a fairness key form one group, which takes turns like a key. A
 * key that comes back after it had no run to claim joins the current turn: it has neither saved up turns nor lost any. Turns are
 * numbered. When the first run of a job and a fairness key passes its concurrency key, they get a turn: the one served
 * last, or the one after the last turn of the fairness key if that is later. They keep it, though their job is paused or
 * full, until one of them is claimed or none has passed its key any more. The lowest turn goes first, then the lowest
 * position. The group of the runs without a fairness key stores no turn: in each claim it has the turn that a new key
 * would get. Its claims count as turns only while a run with a fairness key passes all gates.
 *
 * **Order.** Runs are ordered by their position: the number of their trigger, less 100,000 for each step of priority
 * (`positionOf`). Triggers are numbered by commit, and within a call in the order of the requests. Timestamps do not
 * decide, since a clock can be set back. A run that is delayed, is interrupted or resumes keeps its position. What is
 * recorded in a run is numbered from 1 by one counter, in the order of the commits: the end of an attempt at a step,
 * a pause that is prepared for the job (`prepared`), a signal, a deadline. A replay delivers in this order.
 *
 * **Clock.** The store's own clock decides when something expires: the clock of the database if several machines share
 * it. Callers send durations, and instants that the store gave them before. Three kinds of instants are those of others:
 * the deadline that a job states as a date, the slots of schedules, and the times of reports and log lines, which the
 * store only keeps. What is
 * committed stays so after the clock is set back, and a pending run without a start can be claimed whatever the clock
 * says.
 *
 * **Reports.** Writes under a lease take the reports that the execution has not seen stored yet. They are numbered from
 * 1 under each lease and arrive in order; the store remembers the last number and ignores all up to it. New reports go
 * to the journal before the facts of the write. The latest progress among them becomes the run's `progress`, which is
 * `null` until the first. It is never cleared: a write without progress leaves it.
 *
 * **Streams.** A step writes items while it is executed, in chunks. Those of a stream are numbered from 1, and no number
 * is used twice. A chunk whose number is taken is skipped: the call is a repetition. Any other must have the number after
 * the last one that the stream ever had. A chunk that follows an earlier one than that (`after`) makes those between
 * void: they lose their items and keep their numbers, so that each place that a reader can have is known. A chunk is
 * permanent, and with it all that it follows, or open: then it has the generation of its lease. What counts are the
 * permanent chunks, and the open ones behind them if their generation is that of the run and the run has not completed.
 * So what was written under a lease that ended before its step counts no more, and what a run had when it failed or was
 * cancelled stays. Items go with their run, or before it (`Retention.streams`). A retry from the failure begins with copies of
 * the permanent chunks, with their numbers and instants.
 *
 * **Values** that are written are JSON strings, or `null` for `undefined`; only the payload of a signal is parsed. A
 * store keeps copies of what it is given, and hands out copies. Values keep the order of their keys. Names, keys, ids and
 * labels are compared character by character: case, white space and the form of an accent count. A store does not check
 * arguments: the engine limits names, labels, values and filters before.
 */
export interface Store extends AsyncDisposable {
  /**
   * Creates or updates the tables. It is called before all other calls. Safe to call again, and in several processes at
   * once.
   *
   * @throws {StoreError} The tables were made by a newer version of this package.
   */
  migrate(): Promise<void>;

  /**
   * Completes pending writes, and closes what the store has opened itself. Safe to call again. Later calls of other methods
   * throw a `StoreClosedError`, if they cannot be answered.
   */
  close(): Promise<void>;

  /**
   * Adds runs, or finds the existing ones that the requests lead to: all of them or none.
   *
   * Each request leads to the first of these that exists; requests earlier in the call count as committed:
   *
   * 1. The run with the same id: this call is a repetition. The disposition is `created` again.
   * 2. For a retry (`retriggerOf`), the newest retry of the same run, if it has not ended (`idempotent`).
   * 3. The run of the job with the same idempotency key, if it counts (`idempotent`). Without `idempotencyUntil` each
   *    counts, whatever its status. For `ended` and `failed` the newest retry of that run, or of that retry, and so on,
   *    counts in its place, and is returned; a run whose retry has completed counts as completed. A number of milliseconds is compared with the trigger of the run itself.
   * 4. If the request coalesces, a run of the job with the same concurrency key (`coalesced`): the oldest pending one;
   *    with `active` otherwise one whose lease has not expired, otherwise the oldest waiting one.
   * 5. A new run (`created`). A retry sets `retriggeredAs` of the old run. When it completes, it becomes `completedAs` of
   *    that run, of the one that this is a retry of, and so on, of each that has none.
   *
   * A new retry from the failure begins with copies of the old run's completed steps, finished sleeps, resolved waits,
   * patches and pauses whose children all completed, with their record numbers, and pauses get new ids. A pause on
   * children is not copied if a result is lost. What end runs of the old run, or of later runs with its steps, have undone
   * is not copied, either (`Claim.copied`). If the last record is the end of a wait, by a signal or by its
   * deadline, and the run has not parked since, it has failed of that: the wait is not copied, so the retry prepares it
   * again. A sleep is copied, and so is a receive that is resolved. Each retry, of either kind, has the messages of the old
   * run in their order, with their ids: those that a copied receive took are taken, all others unread. The run's own records
   * are numbered on from those of the old run.
   *
   * A repeated call finds the runs that it added. A request that had joined a run is not stored: it may lead elsewhere
   * the second time, or append its fact twice.
   *
   * @returns In the order of the requests, each run in its current state.
   * @throws {NotFoundError} The run in `retriggerOf` does not exist, nor does the retry itself.
   * @throws {ConflictError} A run was added by this call and deleted before the call was repeated. A store remembers
   * the ids of deleted runs for at least ten minutes.
   */
  enqueue(runs: readonly NewRun[]): Promise<Enqueued[]>;

  /**
   * Claims due runs of the known jobs that pass the gates, each under a new lease.
   *
   * First it processes expired timers, for all jobs, a bounded number of each kind:
   *
   * - It extends the leases in `holding` that have expired to `leaseMs` from now, unless they are lost.
   * - It revokes the other expired leases. Their runs become pending. The run counts as interrupted and as abandoned.
   *   If it was abandoned `maxAbandonments` times since it last recorded a step or parked, it fails instead
   *   (`abandonedFailure`), and its waits are closed. A time does not count if the claim that gave the lease took other
   *   runs, too, or came while the worker held some, or if the worker took others since.
   * - A run that was abandoned twice since then, or more often, is claimed alone: only a claim with `isAlone` takes it.
   *   It is due after `aloneDelayMs`, and keeps its place in the queue of its key. It is claimed with others again once it
   *   has recorded a step, parked, or was held.
   * - It cancels children of closed pauses (`cancelled`), as `cancel` does.
   * - It releases the concurrency keys and the places under the limit of a job that cancelled runs held, if their lease
   *   would have expired.
   * - It fails runs that are not under a lease and have not started in time (`expired`) or not ended in time
   *   (`timeout`), with the `deadlineFailure`, and closes their waits. A run under a lease is ended by its worker.
   * - It makes delayed runs due whose start has passed. They stay due, also if the clock is set back.
   * - It makes waiting runs due whose deadline or retry time has passed, and commits their timeouts. They stay due and
   *   `waiting` until they are claimed.
   *
   * Then it claims runs in their order, as far as they pass the gates. A run that is late for its start or for its end
   * fails instead, however many timers have expired. It commits timeouts of each claimed run that have passed, so that
   * its history is complete. The history may be read after the commit. If a run is cancelled or deleted meanwhile, so
   * that its history may be incomplete, it is left out and its key released.
   *
   * A repetition is a call with the `workerId` and the `claimId` of that worker's last claim. It returns those of the
   * claimed runs that are still under the same lease, empty `failed` and `cancelled`, and `hasMore: true`, and does
   * nothing else.
   * Only the last claim of a worker has to be remembered, and only if it changed something: a worker has one claim
   * pending at a time, and repeats it after any error.
   */
  claim(request: ClaimRequest): Promise<ClaimResult>;

  /**
   * Extends leases to `leaseMs` from now, and stores the reports. A lease is never shortened, and its end always
   * moves by at least a millisecond, so that others can see that it was renewed even after the clock was set back.
   * An expired lease is renewed, too, if it is still current. A repeated call extends again.
   *
   * @returns When the leases end, in the order of the renewals; `null` for a lease that is lost.
   */
  renew(renewals: readonly Renewal[], leaseMs: number): Promise<(number | null)[]>;

  /**
   * Releases a lease before its end, when nothing more is written under it: a run that still has it becomes pending at
   * once and counts as interrupted, not as abandoned. A run that was cancelled under it releases its concurrency key and
   * its place under the limit of its job.
   * For any other lease nothing happens: a repeated call does nothing. Only here `Lease.recorded` does not count: others
   * go on from what the run has recorded.
   *
   * @param reports Reports that no write has stored yet; stored only if the run still has the lease.
   */
  release(lease: Lease, reports: readonly Report[]): Promise<void>;

  /**
   * Holds a run, and releases its lease and its concurrency key. The run becomes pending; that counts neither as
   * interrupted nor as abandoned. If the run has recorded nothing since its last hold, the prints of that hold stay, and
   * this one is added, unless it is among them; otherwise the list begins anew.
   *
   * A repeated call finds the run held under the same generation, and does nothing.
   *
   * @param reports Reports that no write has stored yet.
   */
  hold(lease: Lease, hold: NewHold, reports: readonly Report[]): Promise<void>;

  /**
   * Makes a held run due for all workers that know its version. It is not held any more; the prints that have tried it
   * are forgotten.
   *
   * @param continues Whether the run is never held again: what is new goes on beside what it has recorded.
   * @param by Who resumes it, for the fact. Left out: `null`.
   * @returns The run; `null` if it is not held, or there is none. A repeated call returns `null`, too.
   */
  resumeHeld(runId: string, continues: boolean, by?: string | null): Promise<StoredRun | null>;

  /** The hold of a run; `null` if it is not held, or there is none. */
  getHold(runId: string): Promise<HoldRecord | null>;

  /** Finds held runs, in the order of their row numbers: also those that a claim has made due. */
  findHeld(query: HeldQuery): Promise<{ ids: string[]; seqs: number[] }>;

  /**
   * The input of a run as parsed by the schema with this print, if it was stored by `saveInput`: JSON in an object, since
   * it may be `undefined` (`null`). `null`: it was not stored.
   */
  getInput(runId: string, schemaPrint: string): Promise<{ input: JsonText | null } | null>;

  /**
   * Stores the input of a run as parsed by a schema with another print than that of its trigger. An input that is stored
   * for this print already stays.
   *
   * @returns The stored input.
   */
  saveInput(lease: Lease, schemaPrint: string, input: JsonText | null): Promise<JsonText | null>;

  /** All that a replay of a run needs; `null` if there is none. */
  getHistory(runId: string): Promise<RunHistory | null>;

  /** The jobs and versions of runs that have not ended and that no live worker knows, by name and version. */
  getStrandedJobs(): Promise<StrandedJob[]>;

  /** All current leases, and those under which a worker may still execute a cancelled run, in any order. */
  getLeases(): Promise<SeenLease[]>;

  /** Which of these leases are no longer the current ones of their runs, in the order in which they were given. */
  getLostLeases(leases: readonly Lease[]): Promise<Lease[]>;

  /**
   * Revokes leases regardless of the clock, unless they were renewed since they were read: generation and `expiresAt`
   * must be equal. For a lease that a worker saw unchanged for its whole length on a monotonic clock. The runs become
   * pending, and count as interrupted and as abandoned; none fails by it. A key that a cancelled run holds is released.
   */
  revoke(leases: readonly SeenLease[]): Promise<void>;

  /**
   * Deletes the entry of a worker that will not claim again, so that it is not live any more. Its leases stay. Does
   * nothing for an unknown worker. A store may delete the entries of workers that have been dead for long.
   */
  forgetWorker(workerId: string): Promise<void>;

  /** Notes that a worker claims nothing more and will end soon. Does nothing for an unknown worker. */
  noteStopping(workerId: string): Promise<void>;

  /** The workers, by their first claims. A worker is listed until 100 lengths of its lease have passed since its last claim. */
  getWorkers(): Promise<WorkerList>;

  /**
   * The numbers of each job that has or had runs, and when rates open. It counts nothing: a store keeps the numbers of
   * runs, and finds the oldest run of each job by an index.
   */
  getJobs(rates: readonly RatedJob[]): Promise<JobList>;

  /**
   * Adds what a process has counted to the slots of now, and removes slots that are no longer kept. All jobs together
   * (`""`) also get a sample of how many runs are pending, running and waiting, and how many are under leases of live
   * workers. A repeated call adds again.
   */
  addStats(statistics: readonly JobStatistics[]): Promise<void>;

  /** Reads statistics by the beginnings of their slots, then by the names of the jobs. */
  readStats(query: StatisticsQuery): Promise<{ rows: StatisticsRow[]; now: number }>;

  /** What the store is, and how large. */
  getInfo(): Promise<StoreInfo>;

  /**
   * Pauses a job: from the commit of this call on, no run of it is claimed, and its runs hold up no key. Runs that are
   * executed go on; triggers, timers and deadlines apply. A job that is paused already keeps its pause.
   *
   * @returns The pause of the job, this one or the earlier one.
   */
  pauseJob(jobName: string, pause: Pick<JobPause, "by" | "note">): Promise<JobPause>;

  /** Ends the pause of a job. Returns whether it was paused. */
  resumeJob(jobName: string): Promise<boolean>;

  /**
   * What holds up a run, in the order of a claim; `null` if there is no such run. It reads what a claim reads: the limits
   * are those of the live workers, as they said them with their last claims, and an expired timer counts although no
   * claim has processed it. A run that only a claim can take out of the way still counts, such as one whose lease has
   * expired.
   *
   * If live workers differ in the jobs and limits that they know, the reasons are those of one that has the fewest.
   */
  getBlockers(runId: string): Promise<RunBlockers | null>;

  /**
   * Adds a schedule, or replaces the one of that name, if it has not changed since it was read. The store sets its
   * `version`.
   *
   * @param version The version of the schedule that is replaced; `null`: there must be none of that name.
   * @returns The schedule as stored; `null` if it has another version, does not exist, or exists already. A repeated call
   * returns `null`, too.
   */
  setSchedule(schedule: Omit<ScheduleRecord, "version">, version: number | null): Promise<ScheduleRecord | null>;

  /** All schedules in the order of their names, or the one with a name: an empty list if there is none. */
  getSchedules(name?: string): Promise<ScheduleList>;

  /** Deletes a schedule. Its runs stay. Returns whether there was one. */
  deleteSchedule(name: string): Promise<boolean>;

  /**
   * Fires or skips a slot: compares the version of the schedule, changes it and adds the run (as `enqueue` does), all in
   * one commit. So each slot is fired once over all processes. A repeated call finds the run that it added; one that
   * added none is answered with `null`.
   *
   * @returns The schedule afterwards, and the run if one was added or found; `null` if the schedule has changed
   * meanwhile, or does not exist.
   */
  fireSchedule(firing: Firing): Promise<{ schedule: ScheduleRecord; run: Enqueued | null } | null>;

  /**
   * Records how an attempt at a step ended, under the next record number of the run.
   *
   * An attempt is recorded if the run has no step of that name, or if that step is between two attempts and this is a
   * later one (`attempts`). The record then replaces the earlier one, but the index and the start of the first stay.
   * Otherwise the call is a repetition, or late: nothing is recorded, and the answer is that of the existing record.
   *
   * The chunks of the attempt are stored if this call records it, in its commit. If a stream does not end right before
   * one of them, the call is refused like one under a lost lease: the database has lost commits in a failover.
   */
  saveStep(lease: Lease, step: StepWrite, reports: readonly Report[]): Promise<SavedStep>;

  /**
   * Stores items of streams, at most 1 MiB a call, and appends the fact `streamed` for each run that gets some. It renews
   * no lease, and writes no row of a run. See "Streams" above for what is stored of a chunk.
   *
   * @returns Whether each lease is held; `false` also if a stream does not end right before a chunk. Then nothing is stored of
   * that run.
   */
  appendItems(writes: readonly { lease: Lease; chunks: readonly Chunk[] }[]): Promise<boolean[]>;

  /**
   * Reads a stream of a run after a place, at one moment: the first chunk that counts behind it, and those with up to
   * `maxLength` more bytes of items; none if `maxLength` is 0. A stream without items is an empty one.
   *
   * @param after `null`: from the beginning. A number with another instant is no place, but what is behind it is read.
   * @returns `null` for a run that does not exist.
   */
  readStream(
    runId: string,
    stream: string,
    after: StreamPlace | null,
    maxLength: number,
  ): Promise<StreamText | null>;

  /** The streams of a run that have or had items, by name; none for a run that does not exist. */
  getStreams(runId: string): Promise<StreamInfo[]>;

  /**
   * Executes `work` in a transaction of a joined data source, writes what it returns as `saveStep`, `enqueue`, `signal`
   * and `send` would, and commits: the rows of `work` and of the store are there together, or neither. `work` can be
   * executed several times; of all executions at most one is committed. Optional: without it no data source is joined
   * with the store.
   *
   * The lease is checked first, and again last. If the step is recorded already, all is rolled back and the answer is
   * that record. A refusal rolls back everything, the timeout of an expired wait included, and is thrown.
   *
   * @param work Is given a new object with what the database can do, which the engine adds its calls to, and what finds
   * the waits that it signals, and the runs that it sends messages to.
   * @throws {WorkError} `work` has thrown, which is its `cause`: all is rolled back.
   */
  transact?(
    source: DataSource,
    step: StepPlace | null,
    work: (tx: object, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>,
    limits?: TransactionLimits,
  ): Promise<StoreAnswers>;

  /**
   * Prepares pauses and, if `park` is set and none of them is over, sets the run waiting until the first of them
   * is: it releases the lease, and the concurrency key unless a retry delay is among them.
   *
   * A pause that the run has already (same kind and name) keeps its id, deadline and metadata. A new one gets its
   * deadline as an instant (`deadlineAt`), which never changes. Then all deadlines of the run that have passed are
   * committed, in their order. A pause is over if it is resolved; a retry, if `retryAt` has passed. Only the pauses of
   * the request and `retryAt` make the parked run due. A patch is only prepared: the run never waits for it.
   *
   * Child runs of a pause are added with it. A pause of several thousand children is prepared by several calls, each
   * with some of them, in the order of their numbers. Each child gets the position of a run that is triggered now. What
   * a pause has is known by its name and the number of the child, so a repeated call adds none twice. The pause is over
   * when all its children (`NewChildren.total`) have been added and have ended.
   *
   * In a retry from the failure, a pause looks at the child of the same number in the pause of the same name in the old
   * run; if that run has no such child yet and is such a retry itself, in the run before it. An old child of the same job
   * (under the name or an alias of the request) with the same input (`payload`, as JSON text) is taken over if it
   * completed and its result is not lost. If it failed or was cancelled, the new child is a retry of it from its
   * failure, unless it was deleted, or a retry of it has not ended; one that a claim has yet to cancel, since its parent
   * has ended, is cancelled first. Otherwise the new child begins anew.
   *
   * A receive takes the oldest unread messages of its names, before deadlines are looked at: up to `receive.max`. If it
   * finds some it is resolved, under the next record number. It closes the inbox of the run in the commit of its timeout,
   * or, with `close: "always"`, also in the one in which it takes the last unread message of the run, of whatever name. From
   * then on all receives of the run that find no message are resolved by a timeout at once. A receive that the run has
   * already, and that is open, gets the names of the request first.
   *
   * A repeated call finds the run waiting under the same generation, and returns its pauses, until the run is claimed
   * again. If the first call did not park the run, the second acts like a new one.
   *
   * @throws {TypeError} The run is to be parked, but there is neither a pause nor a retry.
   * @throws {LeaseLostError} The lease is lost, or the run lacks children that were added before those of the request:
   * the database has lost them in a failover.
   */
  pause(lease: Lease, request: PauseRequest): Promise<PauseResult>;

  /**
   * Reads how the children of a pause ended, in the order of their numbers, until they have `maxLength` characters: at
   * least one child, with whole values.
   *
   * @param from The number of the first child to read.
   * @returns `null` if there is no such pause, or a child to read was not added, has not ended or has lost its result.
   */
  readChildren(pauseId: string, from: number, maxLength: number): Promise<Part<ChildResult> | null>;

  /**
   * Ends a run, and releases its lease and its concurrency key. Deadlines that have passed are committed, other open
   * waits become `closed`. Steps between two attempts stay as they are. The `error` of a failed run is the
   * `failureText` of its failure.
   *
   * A repeated call finds the run ended with the same status under the same generation. Another ending is refused.
   */
  finish(lease: Lease, ending: Ending, reports: readonly Report[]): Promise<void>;

  /**
   * Ends a wait by a signal, under the next record number of the run. If the run waits for it, the run becomes due. If
   * the run has not paused on it yet, the signal is kept until it does.
   *
   * Signals are accepted strictly before the deadline. If that has passed, the call commits the timeout and makes the
   * waiting run due, although it throws.
   *
   * A repeated call (same `signalId`, and a payload that is equal as JSON) is a `duplicate`: it returns the wait as the
   * first call left it, with `firstResumedAt` `null`, also after the run has ended.
   *
   * @param trace The origin of the signal. It is kept with the wait: its actor becomes `signalledBy`, and the execution that
   * resumes gets it (`ResumedPause.trace`). Left out: `null`.
   * @throws {NotFoundError} There is no such wait: it is unknown, a sleep, or deleted with its run.
   * @throws {ConflictError} Another signal was accepted first, or the wait is cancelled or closed.
   * @throws {WaitExpiredError} The deadline passed first. The timeout is committed, by this call at the latest.
   */
  signal(waitId: string, signal: Signal, trace?: OriginText | null): Promise<SignalOutcome>;

  /**
   * Sends a message to a run, which has it from then on. The first open receive that takes its name, in the order in which
   * they were prepared, takes it in the same commit, under the next record number of the run; if the run waits for that
   * receive, it becomes due. Otherwise the message is unread until a receive is prepared that takes it (`pause`).
   *
   * A run takes messages until it has ended, or has closed its inbox (`NewPause.receive`). Deadlines of the run that have
   * passed are committed first, and make it due, although the call may be refused.
   *
   * A repeated call, with the same `message.id`, name and payload (equal as JSON), is a `duplicate`, also after the run
   * has ended.
   *
   * @throws {NotFoundError} There is no such run.
   * @throws {ConflictError} The run has ended or has closed its inbox (`run_ended`), has another message with the id, or
   * has 100,000 messages.
   */
  send(request: SendRequest): Promise<SendOutcome>;

  /**
   * Cancels a run that has not ended. Its lease is lost at once. It keeps its concurrency key until the end of that
   * lease, if the lease has not expired, so that no other run of the key begins while the job's code still runs.
   *
   * Deadlines that have passed are committed, other open waits become `cancelled`. Steps between two attempts become
   * `cancelled`. So do the steps of `execution` that are not recorded yet.
   *
   * @param requestId Identifies a repeated call: the call that cancelled the run returns it again. Its actor (`withActor`)
   * becomes `cancelledBy`.
   * @param execution The execution in the calling process, if it executes the run. It is ignored unless its generation
   * is that of the current lease.
   * @returns The cancelled run, or `null` if there is no such run or it had ended otherwise.
   */
  cancel(runId: string, requestId: string, execution: CancelledExecution | null): Promise<StoredRun | null>;

  /**
   * Deletes a run that has ended, with everything that belongs to it. Its idempotency key becomes free. A run that
   * refers to it keeps its id. A repeated call returns `null`, as for a run that never existed.
   *
   * @param by Who deletes it, for the fact. Left out: `null`.
   * @returns The identity of the deleted run, or `null` if there is no such run or it has not ended.
   */
  delete(runId: string, by?: string | null): Promise<RunIdentity | null>;

  /**
   * Deletes the items of up to `limit` runs that ended long enough ago (`retention.streams`): those runs stay. Then it
   * deletes the oldest of the runs that ended long enough ago, at most `limit` of them, in the order in which they
   * ended. A store may stop earlier, to keep the call short, but deletes at least one if any is due. A repeated call
   * deletes the next ones.
   *
   * A run that was retried is not due while a retry from the failure of the same chain is open: what was sent in the name
   * of the run, such as the id of a wait, is for that retry.
   *
   * @returns The identities of the deleted runs; empty if none is due.
   */
  purge(retention: Retention, limit: number): Promise<RunIdentity[]>;

  /** A run and its position in the journal, read at one moment; `null` if there is none. */
  getRunState(runId: string): Promise<RunState | null>;

  /** A wait, or `null` if there is none, or it is a sleep. */
  getWait(waitId: string): Promise<Wait | null>;

  /**
   * A part of the records of a run, for its timeline: up to `limit` records of each kind after a place. Values are not
   * read. `null` if there is no such run.
   */
  getTimeline(runId: string, from: TimelinePlace, limit: number): Promise<TimelineRecords | null>;

  /** The failures of a run and of the attempts at its steps, with stacks and causes; `null` if there is no such run. */
  getFailures(runId: string): Promise<RunFailures | null>;

  /**
   * Open waits after a place (`null`: from the first one), the soonest deadline first, those without one last.
   *
   * @param runIds Only those of these runs: it costs what they have.
   */
  getOpenWaits(after: OpenWaitPlace | null, limit: number, runIds?: readonly string[]): Promise<OpenWaits>;

  /**
   * Finds runs by a string: by the id, or its start, or its end (that among the newest 5,000 runs); by the id of a wait; by
   * the idempotency key, those from which it was taken last; by the concurrency key, those that have not ended; by a label, `key=value`, the newest first. Each
   * run once, by what finds it first in this order.
   */
  searchRuns(text: string, limit: number): Promise<SearchHit[]>;

  /** The ids of the runs that match a filter, newest first. A long list may be read in parts, at several moments: a run that
   * changes meanwhile may be missing, but no run is found that did not match. */
  findRuns(query: RunQuery): Promise<FoundRuns>;

  /**
   * The retry from the failure that continues a run: its newest retry. If that was deleted, the newest of the retries that
   * began with the history of this run, or of a retry of it. All of them have the first run of their chain in common
   * (`Claim.originId`), so one that was deleted between does not matter.
   *
   * @returns Its id; `null`: there is none, the newest retry began anew, or there is no such run.
   */
  findRetry(runId: string): Promise<string | null>;

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

  /** Reads the messages of a run in the order in which they were accepted; `after` is the id of a message. */
  readMessages(runId: string, after: string | null, maxLength: number): Promise<Part<MessageText> | null>;

  /**
   * Reads the stored log lines of a run in the order in which they were added; `after` is the id of a line. If that
   * line was dropped meanwhile, it reads from the oldest line that is left.
   */
  readLogs(runId: string, after: string | null, maxLength: number): Promise<Part<LogText> | null>;

  /**
   * Reads the next part of a value: some 64 KiB of its JSON, or a sixteenth of it if that is more. Concatenated, the parts
   * are the whole value; one alone may end within a character.
   *
   * @param from 0 at first, then the `next` of the previous call.
   * @returns `null` if there is no such value, or it is `undefined`.
   */
  readValue(place: ValuePlace, from: number): Promise<ValuePart | null>;

  /**
   * Stores log lines, also those of a run that has ended. A line whose id is stored already is skipped. Lines of a
   * deleted run are dropped, and a line that takes more than 8 KiB of JSON is cut (`fitLine`). A run keeps its newest
   * 10,000 lines; a line before them then says how many older ones were dropped (`droppedLines`). It needs no lease.
   */
  appendLogs(entries: readonly NewLogEntry[]): Promise<void>;

  /**
   * Reads what was committed after a position, in the order of the commits. Each write appends its facts in the commit
   * that makes them true; a write that is refused or repeated appends none.
   *
   * - `enqueue`: `triggered` for each new run, `retried` for the run that it retries, `coalesced` for a run that is
   *   joined (`coalescedFacts`).
   * - `claim`: `claimed` for each claimed run, after `resumed` if it was held, `failed` for each that failed, `cancelled`
   *   for each that was cancelled.
   * - `saveStep`: the reports and the end of the attempt (`stepFacts`).
   * - `pause`: `triggered` for each new child, the reports, `retried` for each run that a new child retries; if the run
   *   parks, `waiting` for each pause, then for each step between two attempts.
   * - `finish`: the reports, then `completed` or `failed`.
   * - `cancel`: the reports, `step_cancelled` for each step that was being executed, then `cancelled`.
   * - Any of them that ends a run with an end run: `triggered` for the end run, at any place.
   * - `hold`: the reports, then `held`. `resumeHeld`: `resumed`.
   * - `delete` and `purge`: `deleted`.
   * - The facts `triggered`, `retried`, `cancelled`, `resumed` and `deleted` end with the actor, if somebody said who acts.
   * - `renew` and `release`: the reports (`toFact`). `appendItems`: `streamed` for each run that got items. All other
   *   calls: nothing.
   *
   * Facts are numbered from 1, and no number is used twice, also after the newest run was deleted. The numbers must be
   * in the order of the commits: once a reader has seen a number, no smaller one may appear later. A sequence of the
   * database alone does not ensure this, if transactions commit in another order than they draw numbers.
   *
   * A store removes old rows, from the oldest on, when they are too many or too old. It never removes the newest one.
   *
   * @param after The `position` of a row, or 0.
   * @param maxLength About how many characters of facts to read; at least one row.
   * @param at When the row at `after` was committed, if the caller knows it. A store that can lose rows in a failover
   * compares it.
   * @returns `null` if rows after `after` were removed, the journal ends before `after`, or it has another row there than
   * the one of `at`.
   */
  readJournal(after: number, maxLength: number, at?: number): Promise<JournalPage | null>;

  /**
   * For `null` the end of the journal: position 0 at instant 0 if it has no row. For a cursor that cursor, or `null` if
   * no row has its position and instant, or rows after it were removed.
   */
  findCursor(cursor: Cursor | null): Promise<Cursor | null>;

  /**
   * The position of the last row after `after` that has a fact about a run; `null`: there is none. It costs far less than
   * to read these rows.
   *
   * @param run The row number of the run.
   * @param kinds Only facts of these kinds, which are neither `triggered` nor the ends of steps; `null`: of any.
   */
  findLastFact(run: number, after: number, kinds: readonly Fact[1][] | null): Promise<number | null>;

  /** The identities of runs, by their row numbers, in that order; `null` for a deleted one. */
  getRunIdentities(runs: readonly number[]): Promise<(RunIdentity | null)[]>;

  /**
   * Reads values that facts leave out, one after another until they have `maxLength` characters.
   *
   * @returns The first of them, at least one, in their order; `null` for one whose run was deleted.
   */
  readFactValues(values: readonly FactValueRef[], maxLength: number): Promise<(FactValue | null)[]>;

  /**
   * A version that changes whenever another `Store` object, of this process or another, has committed something. It may
   * change at other times, too. Only versions that the same object returned are compared.
   */
  getVersion(): Promise<number>;

  /**
   * Reports changes soon after any `Store` object, this one included, has committed them, until the watch is stopped.
   * Optional: without it, and while the watch is not live, the engine asks for the version every 20 ms.
   *
   * A report is a hint. It may come without a change, and a few may be missing while the watch is live. When the store
   * notices that it misses them, the watch is no longer live. A commit that makes nothing due, has no facts and changes
   * no schedule, such as a renewal or a claim that finds nothing, needs no report.
   */
  watch?(listener: ChangeListener): StoreWatch;
}

/** Receives what {@linkcode Store.watch} reports. */
export interface ChangeListener {
  /** Something may have been committed, or {@linkcode StoreWatch.isLive} has changed. */
  onChange(): void;
  /** A row may have been added to the outbox of a data source that is joined with the store. */
  onOutboxRow?(): void;
  /** The store cannot report changes: once, until it can again. */
  onError(error: unknown): void;
}

/** A watch of a store. */
export interface StoreWatch {
  /** Whether the store reports changes at present. While it does not, those who need to know poll. */
  readonly isLive: boolean;
  /** Ends the watch: nothing is called any more. */
  stop(): void;
}
