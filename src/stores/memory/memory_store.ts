import { LeaseLostError } from "../../model/error.ts";
import { type Host, systemHost } from "../../model/host.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import type { Store } from "../../store/store.ts";
import { readBlockerFacts } from "./blockers.ts";
import { findBlockers } from "../operate/find_blockers.ts";
import { findOpenWaits, searchRuns, toRunFailures, toTimeline } from "./operate/operator_reads.ts";
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
import {
  listRuns,
  readFactValues,
  readLogs,
  readMessages,
  readRuns,
  readSteps,
  readValue,
  readWaits,
} from "./reads.ts";
import { MemoryRuns } from "./runs.ts";
import { pauseJob, resumeJob } from "./flow/gates.ts";
import { cancelRun, deleteRun, enqueueRun, enqueueRuns, finishRun, purgeRuns } from "./writes/runs.ts";
import { listLeases, releaseLease, renewLeases, revokeLeases } from "./writes/leases.ts";
import { sendMessage } from "./writes/messages.ts";
import { pauseRun, signalWait } from "./writes/pauses.ts";
import { MemorySchedules } from "./flow/schedules.ts";
import { listJobs, listWorkers, sampleRuns } from "./operate/numbers.ts";
import { MemoryStatistics } from "./operate/statistics.ts";
import { appendItems, recordAttempt } from "./writes/steps.ts";
import { listStreams, newChunks, readStream } from "./streams.ts";
import { MemoryTurns } from "./flow/fairness_turns.ts";
import { addCalls } from "../store_calls.ts";

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
export class MemoryStore {
  readonly #host: Host;
  readonly #id = crypto.randomUUID();
  readonly #runs: MemoryRuns;
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
    this.#schedules = new MemorySchedules(this.#runs);
    this.#state = {
      runs: this.#runs,
      workers: this.#workers,
      paused: new Map(),
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

  static {
    addCalls<MemoryStore>(MemoryStore.prototype, {
      enqueue: (store, runs) => store.#perform((now) => enqueueRuns(store.#runs, runs, now)),
      claim: (store, request) => store.#perform((now) => claimRuns(store.#state, request, now)),
      renew: (store, renewals, leaseMs) => store.#perform((now) => renewLeases(store.#runs, renewals, leaseMs, now)),
      release: (store, lease, reports) => store.#perform((now) => releaseLease(store.#runs, lease, reports, now)),
      hold: (store, lease, hold, reports) => store.#perform((now) => holdRun(store.#runs, lease, hold, reports, now)),
      resumeHeld: (store, runId, continues, by = null) =>
        store.#perform((now) => {
          const run = store.#runs.get(runId);
          if (run === undefined || run.hold === null) return null;
          store.#runs.resumeHeld(run, continues, by, now);
          return toRunText(run);
        }),
      getHold: (store, runId) => store.#readRun(runId, toHoldRecord),
      findHeld: (store, query) =>
        store.#perform(() => {
          const runs = findHeldRuns(store.#runs, query);
          return { ids: runs.map(({ id }) => id), seqs: runs.map(({ seq }) => seq) };
        }),
      getInput: (store, runId, schemaPrint) =>
        store.#perform(() => {
          const input = store.#runs.get(runId)?.inputs.get(schemaPrint);
          return input === undefined ? null : { input };
        }),
      saveInput: (store, lease, schemaPrint, input) =>
        store.#perform((now) => {
          const run = store.#runs.getUnder(lease);
          const known = run.inputs.get(schemaPrint);
          if (known !== undefined) return known;
          run.inputs.set(schemaPrint, input);
          store.#runs.touch(run, now);
          return input;
        }),
      getHistory: (store, runId) => store.#readRun(runId, toHistory),
      getStrandedJobs: (store) =>
        store.#perform((now) => findStrandedJobs(store.#runs, findLiveQueues(store.#workers, now))),
      getLeases: (store) => store.#perform((now) => listLeases(store.#runs, store.#workers, now)),
      getLostLeases: (store, leases) =>
        store.#perform(() => leases.filter((lease) => store.#runs.findUnder(lease) === undefined)),
      revoke: (store, leases) => store.#perform((now) => revokeLeases(store.#state, leases, now)),
      setSchedule: (store, schedule, version) => store.#perform((now) => store.#schedules.set(schedule, version, now)),
      getSchedules: (store, name) => store.#perform((now) => ({ schedules: store.#schedules.list(name), now })),
      deleteSchedule: (store, name) => store.#perform(() => store.#schedules.delete(name)),
      fireSchedule: (store, firing) =>
        store.#perform((now) => store.#schedules.fire(firing, (run) => enqueueRun(store.#runs, run, now))),
      readChildren: (store, pauseId, from, maxLength) =>
        store.#perform(() => {
          const found = store.#runs.findPause(pauseId);
          return found === undefined ? null : readResults(found.pause, from, maxLength);
        }),
      forgetWorker: (store, workerId) =>
        store.#perform(() => {
          if (store.#workers.delete(workerId)) store.#runs.countChange();
        }),
      pauseJob: (store, jobName, pause) => store.#perform((now) => pauseJob(store.#state, jobName, pause, now)),
      resumeJob: (store, jobName) => store.#perform(() => resumeJob(store.#state, jobName)),
      getTimeline: (store, runId, from, limit) =>
        store.#readRun(runId, (run, now) => toTimeline(run, from, limit, now)),
      getFailures: (store, runId) => store.#readRun(runId, toRunFailures),
      getOpenWaits: (store, after, limit, runIds) =>
        store.#perform(() => findOpenWaits(store.#runs, after, limit, runIds)),
      searchRuns: (store, text, limit) => store.#perform(() => searchRuns(store.#runs, text, limit)),
      getBlockers: (store, runId) =>
        store.#readRun(runId, (run, now) => findBlockers(readBlockerFacts(store.#state, run, now))),
      noteStopping: (store, workerId) =>
        store.#perform(() => {
          const worker = store.#workers.get(workerId);
          if (worker !== undefined) worker.isStopping = true;
        }),
      getWorkers: (store) => store.#perform((now) => ({ workers: listWorkers(store.#state, now), now })),
      getJobs: (store, rates) => store.#perform((now) => listJobs(store.#state, rates, now)),
      addStats: (store, statistics) =>
        store.#perform((now) => store.#statistics.add(statistics, sampleRuns(store.#state, now), now)),
      readStats: (store, query) => store.#perform((now) => ({ rows: store.#statistics.read(query), now })),
      getInfo: (store) =>
        store.#perform(() => ({
          id: store.#id,
          kind: "memory",
          schemaVersion: 1,
          bytes: null,
          walBytes: null,
          freeBytes: null,
          runs: store.#runs.all.length,
        })),
      saveStep: (store, lease, step, reports) =>
        store.#perform((now) => {
          const run = store.#runs.getUnder(lease);
          const chunks = newChunks(run, step.chunks ?? []);
          if (chunks === null) throw new LeaseLostError(lease);
          const added = store.#runs.takeReports(run, reports);
          const saved = recordAttempt(run, step, chunks, added, store.#runs.journal, now);
          run.abandonments = 0;
          store.#runs.touch(run, now);
          return saved;
        }),
      appendItems: (store, writes) => store.#perform((now) => appendItems(store.#runs, writes, now)),
      readStream: (store, runId, stream, after, maxLength) =>
        store.#readRun(runId, (run) => readStream(run, stream, after, maxLength)),
      getStreams: async (store, runId) => await store.#readRun(runId, listStreams) ?? [],
      pause: (store, lease, request) => store.#perform((now) => pauseRun(store.#runs, lease, request, now)),
      finish: (store, lease, ending, reports) =>
        store.#perform((now) => finishRun(store.#runs, lease, ending, reports, now)),
      signal: (store, waitId, signal, trace = null) =>
        store.#perform((now) => signalWait(store.#runs, waitId, signal, trace, now)),
      send: (store, request) => store.#perform((now) => sendMessage(store.#runs, request, now)),
      cancel: (store, runId, requestId, execution) =>
        store.#perform((now) => cancelRun(store.#runs, runId, { requestId, execution }, now)),
      delete: (store, runId, by = null) => store.#perform((now) => deleteRun(store.#runs, runId, by, now)),
      purge: (store, retention, limit) => store.#perform((now) => purgeRuns(store.#runs, retention, limit, now)),
      getRunState: (store, runId) => store.#readRun(runId, (run) => toRunState(run, store.#runs.journal.end)),
      getWait: (store, waitId) =>
        store.#perform(() => {
          const found = store.#runs.findWait(waitId);
          return found === undefined ? null : toWait(found.run.id, found.pause);
        }),
      findRuns: (store, query) =>
        store.#perform(() => {
          const { runs, ...page } = listRuns(store.#runs, query, () => store.#host.monotonic());
          return { ids: runs.map(({ id }) => id), seqs: runs.map(({ seq }) => seq), ...page };
        }),
      findRetry: (store, runId) => store.#perform(() => store.#runs.findRetry(runId)?.id ?? null),
      readRuns: (store, runIds, maxLength) =>
        store.#perform(() => readRuns(runIds.map((id) => store.#runs.get(id)), maxLength)),
      readSteps: (store, runId, after, maxLength) => store.#readRun(runId, (run) => readSteps(run, after, maxLength)),
      readWaits: (store, runId, after, maxLength) => store.#readRun(runId, (run) => readWaits(run, after, maxLength)),
      readMessages: (store, runId, after, maxLength) =>
        store.#readRun(runId, (run) => readMessages(run, after, maxLength)),
      readLogs: (store, runId, after, maxLength) => store.#readRun(runId, (run) => readLogs(run, after, maxLength)),
      readValue: (store, place, from) =>
        store.#perform(() => {
          const run = place.of === "wait" ? store.#runs.findWait(place.waitId)?.run : store.#runs.get(place.runId);
          return run === undefined ? null : readValue(run, place, from);
        }),
      appendLogs: (store, entries) =>
        store.#perform(() => {
          for (const entry of entries) {
            const run = store.#runs.get(entry.runId);
            if (run !== undefined && addLine(run, entry)) store.#runs.countChange();
          }
        }),
      readJournal: (store, after, maxLength) => store.#perform(() => store.#runs.journal.read(after, maxLength)),
      findCursor: (store, cursor) => store.#perform(() => store.#runs.journal.find(cursor)),
      findLastFact: (store, run, after, kinds) =>
        store.#perform(() => store.#runs.journal.findLastFact(run, after, kinds)),
      getRunIdentities: (store, runs) =>
        store.#perform(() =>
          runs.map((seq) => {
            const run = store.#runs.getBySeq(seq);
            return run === undefined ? null : toIdentity(run);
          })
        ),
      readFactValues: (store, values, maxLength) => {
        const read = () =>
          readFactValues(values.map((ref) => ({ ref, run: store.#runs.getBySeq(ref.run) })), maxLength);
        return store.#perform(read);
      },
      getVersion: (store) => store.#perform(() => store.#runs.version),
    });
  }
}

/** See {@linkcode MemoryStore}. */
export interface MemoryStore extends Store {}
