import { StoreClosedError } from "../../model/store_closed_error.ts";
import { type Host, systemHost } from "../../model/host.ts";
import { kindOf } from "../../values/unknown_values.ts";
import type { Chunk } from "../../model/stream.ts";
import type { Store } from "../../store/store.ts";
import { readOpenWaits, searchRuns } from "./operate/operator_reads.ts";
import { readFailures, readTimeline } from "./operate/timeline.ts";
import { findBlockers } from "../operate/find_blockers.ts";
import { readBlockerFacts } from "./operate/blockers.ts";
import { backUp } from "./backup.ts";
import { readChildren } from "./children/child_results.ts";
import { claimRuns, findIdle } from "./writes/claim.ts";
import { pauseJob, resumeJob } from "./flow/job_gates.ts";
import { forgetDeadWorkers, noteStopping, readWorkers } from "./operate/workers.ts";
import { SqliteDatabase, type SqliteDriver } from "./sqlite_database.ts";
import { deleteRun, purgeRuns } from "./writes/deletions.ts";
import { cancelRun, finishRun } from "./writes/endings.ts";
import { enqueueRuns } from "./writes/enqueue.ts";
import {
  findHeld,
  findStrandedJobs,
  holdRun,
  readHold,
  readInput,
  resumeHeld,
  writeInput,
} from "./changed_code/holds.ts";
import { findRetry, findWait, readClaims, readHistory, readRunState } from "./reads/run_history.ts";
import { toLease } from "../claimed_row.ts";
import { findCursor, findLastFact, readFactValues, readIdentities, readJournal } from "./journal/read_journal.ts";
import { trimByAge } from "./journal/journal.ts";
import { findLostLeases, readLeases, releaseLease, renewLeases, revokeLeases } from "./writes/leases.ts";
import { findRuns } from "./reads/run_lists.ts";
import { appendItems, appendLines, readStream, readStreams } from "./streams.ts";
import { readLogs, readMessages, readRuns, readSteps, readValue, readWaits } from "./reads/bounded_reads.ts";
import { sendMessage } from "./writes/messages.ts";
import { deliver, pauseRun } from "./writes/pauses.ts";
import { deleteSchedule, fireSchedule, readSchedules, setSchedule } from "./schedules.ts";
import { migrateTables, MIGRATIONS } from "./schema.ts";
import { readJobNumbers } from "./operate/job_numbers.ts";
import { addStatistics, readStatistics, readStoreInfo } from "./operate/statistics.ts";
import { recordStep } from "./writes/steps.ts";
import { checkDriver, type Connection, openConnection } from "./connection.ts";
import { SecureDelete } from "./secure_delete.ts";
import { RetriedReads } from "./retried_reads.ts";
import { WriteBatch } from "./write_batch.ts";
import { toSignalOutcome } from "../signal_answer.ts";
import { addCalls } from "../store_calls.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { FindRun, FindWait, StepPlace, StoreAnswers, StoreWrites } from "../../store/transaction.ts";
import { transactNow } from "./transactions/transact.ts";
import { SqliteDataSource } from "./transactions/sqlite_data_source.ts";
import { UserStatements } from "./transactions/sqlite_transaction.ts";
import { checkOptionNames } from "../../values/option_names.ts";

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
export class SqliteStore {
  readonly #connection: Connection;
  readonly #db: SqliteDatabase;
  readonly #host: Host;
  readonly #reads: RetriedReads;
  readonly #writes: WriteBatch;
  readonly #secureDelete: SecureDelete | null;
  readonly #statements = new UserStatements(() => this.#db.driver);
  readonly #source: SqliteDataSource;
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
    this.#writes = new WriteBatch(this.#db, host, (now) => connection.file?.check(now));
    this.#source = new SqliteDataSource(
      {
        db: this.#db,
        writes: this.#writes,
        statements: this.#statements,
        close: () => {},
      },
      this,
      {},
    );
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
    const isUrl = path instanceof URL || path.startsWith("file:");
    if (isUrl && new URL(path).search !== "") {
      throw new TypeError("SqliteStore.open() takes a file: URL without parameters, which it would ignore");
    }
    const name = isUrl ? (await import("node:url")).fileURLToPath(path) : path;
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
   * @throws {TypeError} The database is closed, cuts integers off at 32 bits, returns every integer as a bigint, returns
   * rows as arrays, or is of a SQLite before 3.43.
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
      db.get`PRAGMA busy_timeout = 0`;
      db.get`PRAGMA journal_mode = WAL`;
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

  /**
   * This database as a data source, for `step.transaction()` and `engine.transaction()`: what they write to your tables
   * and what the store has to write are one commit.
   */
  dataSource(): SqliteDataSource {
    return this.#source;
  }

  /** See `Store.transact()`. The functions of several transactions share a commit with other writes. */
  async transact(
    source: DataSource,
    step: StepPlace | null,
    work: (tx: object, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>,
  ): Promise<StoreAnswers> {
    if (source !== this.#source) throw new TypeError("The data source is not that of this store");
    const deps = { db: this.#db, statements: this.#statements, host: this.#host };
    const answers = await this.#write((now) => transactNow(deps, step, work, now));
    if ("thrown" in answers) throw answers.thrown;
    return answers;
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
   * file is better copied by a process of its own. A process that is killed meanwhile leaves `PATH.partial`, which the
   * next backup replaces.
   *
   * @throws {StoreError} The file exists, or cannot be written.
   */
  async backup(path: string): Promise<void> {
    if (this.#closing.signal.aborted) throw new StoreClosedError();
    this.#connection.file?.check(this.#host.monotonic());
    await backUp(this.#db.driver, path);
  }

  #write<T>(work: (now: number) => T, options: { urgent?: boolean } = {}): Promise<T> {
    return this.#writes.submit(work, options);
  }

  /** A write that deletes runs, or finds none to delete. */
  #delete<T>(work: (now: number) => T): Promise<T> {
    const written = this.#write(work);
    // Even after an error: the outcome may be unknown.
    const note = () => {
      if (!this.#closing.signal.aborted) this.#secureDelete?.noteDeletion();
    };
    written.then(note, note);
    return written;
  }

  /** A write of chunks. Those that make others void delete items. */
  #writeItems<T>(chunks: readonly Chunk[], work: (now: number) => T): Promise<T> {
    return chunks.some(({ position, after }) => after < position - 1) ? this.#delete(work) : this.#write(work);
  }

  static {
    addCalls<SqliteStore>(SqliteStore.prototype, {
      enqueue: (store, runs) => store.#write((now) => enqueueRuns(store.#db, runs, store.#host, now)),
      claim: async (store, request) => {
        if (!store.#hasMore || request.limit === 0) {
          const now = store.#host.now();
          const idle = await store.#reads.read(() => findIdle(store.#db, request, now));
          if (idle !== null) return { claims: [], failed: [], cancelled: [], hasMore: false, now, ...idle };
        }
        const { rows, ...result } = await store.#write((now) => ({ ...claimRuns(store.#db, request, now), now }));
        store.#hasMore = result.hasMore;
        // Outside the transaction: nobody else writes to a run that has just been claimed, unless it is cancelled
        // meanwhile.
        const claims = await store.#reads.inSlices(() => readClaims(store.#db, rows, () => store.#host.now()));
        for (const row of rows) {
          // The caller does not learn of a run that is left out, and could not release its key.
          if (!claims.some(({ run }) => run.id === row.id)) await store.release(toLease(row), []);
        }
        return { ...result, claims };
      },
      renew: (store, renewals, leaseMs) =>
        store.#write((now) => renewLeases(store.#db, renewals, leaseMs, now), { urgent: true }),
      release: (store, lease, reports) => store.#write((now) => releaseLease(store.#db, lease, reports, now)),
      hold: (store, lease, hold, reports) => store.#write((now) => holdRun(store.#db, lease, hold, reports, now)),
      resumeHeld: (store, runId, continues, by = null) =>
        store.#write((now) => resumeHeld(store.#db, runId, continues, by, now)),
      getHold: (store, runId) => store.#reads.read(() => readHold(store.#db, runId)),
      findHeld: (store, query) => store.#reads.snapshot(() => findHeld(store.#db, query)),
      getInput: (store, runId, schemaPrint) => store.#reads.read(() => readInput(store.#db, runId, schemaPrint)),
      saveInput: (store, lease, schemaPrint, input) =>
        store.#write((now) => writeInput(store.#db, lease, schemaPrint, input, now)),
      getHistory: (store, runId) => store.#reads.snapshot(() => readHistory(store.#db, runId, store.#host.now())),
      getStrandedJobs: (store) => store.#reads.snapshot(() => findStrandedJobs(store.#db, store.#host.now())),
      getLeases: (store) => store.#reads.read(() => readLeases(store.#db, store.#host.now())),
      getLostLeases: (store, leases) => store.#reads.read(() => findLostLeases(store.#db, leases)),
      revoke: (store, leases) => store.#write((now) => revokeLeases(store.#db, leases, now)),
      setSchedule: (store, schedule, version) => store.#write((now) => setSchedule(store.#db, schedule, version, now)),
      getSchedules: (store, name) =>
        store.#reads.read(() => ({ schedules: readSchedules(store.#db, name), now: store.#host.now() })),
      deleteSchedule: (store, name) => store.#delete(() => deleteSchedule(store.#db, name)),
      readChildren: (store, pauseId, from, maxLength) =>
        store.#reads.snapshot(() => readChildren(store.#db, pauseId, from, maxLength)),
      fireSchedule: (store, firing) => store.#write((now) => fireSchedule(store.#db, firing, store.#host, now)),
      forgetWorker: (store, workerId) =>
        store.#write(() => void store.#db.run`DELETE FROM holdfast_workers WHERE id = ${workerId}`),
      noteStopping: (store, workerId) => store.#write(() => noteStopping(store.#db, workerId)),
      getWorkers: (store) =>
        store.#reads.read(() => {
          const now = store.#host.now();
          return { workers: store.#db.snapshot(() => readWorkers(store.#db, now)), now };
        }),
      getJobs: (store, rates) => store.#reads.snapshot(() => readJobNumbers(store.#db, rates, store.#host.now())),
      addStats: (store, statistics) => store.#write((now) => addStatistics(store.#db, statistics, now)),
      readStats: (store, query) =>
        store.#reads.read(() => ({ rows: readStatistics(store.#db, query), now: store.#host.now() })),
      getInfo: (store) => {
        const walBytes = store.#connection.file?.walBytes() ?? null;
        return store.#reads.snapshot(() => readStoreInfo(store.#db, MIGRATIONS.length, walBytes));
      },
      pauseJob: (store, jobName, pause) => store.#write((now) => pauseJob(store.#db, jobName, pause, now)),
      resumeJob: (store, jobName) => store.#write(() => resumeJob(store.#db, jobName)),
      getBlockers: (store, runId) =>
        store.#reads.read(() => {
          const facts = store.#db.snapshot(() => readBlockerFacts(store.#db, runId, store.#host.now()));
          return facts === null ? null : findBlockers(facts);
        }),
      saveStep: (store, lease, step, reports) =>
        store.#writeItems(step.chunks ?? [], (now) => recordStep(store.#db, lease, step, reports, now)),
      appendItems: (store, writes) =>
        store.#writeItems(writes.flatMap(({ chunks }) => chunks), (now) => appendItems(store.#db, writes, now)),
      readStream: (store, runId, stream, after, maxLength) =>
        store.#reads.snapshot(() => readStream(store.#db, runId, stream, after, maxLength)),
      getStreams: (store, runId) => store.#reads.snapshot(() => readStreams(store.#db, runId)),
      pause: (store, lease, request) => {
        if (request.park && request.pauses.length === 0 && request.retryAt === null) {
          return Promise.reject(new TypeError("A run cannot wait for nothing"));
        }
        return store.#write((now) => pauseRun(store.#db, lease, request, store.#host, now));
      },
      finish: (store, lease, ending, reports) =>
        store.#write((now) => finishRun(store.#db, lease, ending, reports, now)),
      signal: async (store, waitId, signal, trace = null) => {
        const payload = JSON.stringify(signal.payload);
        const answer = await store.#write((now) => deliver(store.#db, waitId, signal, payload, trace, now));
        return toSignalOutcome(answer, waitId, signal);
      },
      send: async (store, request) => {
        const outcome = await store.#write((now) => sendMessage(store.#db, request, store.#host, now));
        if ("refused" in outcome) throw outcome.refused;
        return outcome;
      },
      cancel: (store, runId, requestId, execution) =>
        store.#write((now) => cancelRun(store.#db, runId, { requestId, execution }, now)),
      delete: (store, runId, by = null) => store.#delete((now) => deleteRun(store.#db, runId, by, now)),
      purge: (store, retention, limit) => store.#delete((now) => purgeRuns(store.#db, retention, limit, now)),
      getRunState: (store, runId) => store.#reads.snapshot(() => readRunState(store.#db, runId)),
      getWait: (store, waitId) => store.#reads.read(() => findWait(store.#db, waitId)?.wait ?? null),
      getTimeline: (store, runId, from, limit) =>
        store.#reads.snapshot(() => readTimeline(store.#db, runId, from, limit, store.#host.now())),
      getFailures: (store, runId) => store.#reads.snapshot(() => readFailures(store.#db, runId)),
      getOpenWaits: (store, after, limit, runIds) =>
        store.#reads.snapshot(() => readOpenWaits(store.#db, after, limit, runIds)),
      searchRuns: (store, text, limit) => store.#reads.snapshot(() => searchRuns(store.#db, text, limit)),
      findRuns: (store, query) =>
        store.#reads.inSlices(() => findRuns(store.#db, query, () => store.#host.monotonic())),
      findRetry: (store, runId) => store.#reads.read(() => findRetry(store.#db, runId)),
      readRuns: (store, runIds, maxLength) => store.#reads.snapshot(() => readRuns(store.#db, runIds, maxLength)),
      readSteps: (store, runId, after, maxLength) =>
        store.#reads.snapshot(() => readSteps(store.#db, runId, after, maxLength)),
      readWaits: (store, runId, after, maxLength) =>
        store.#reads.snapshot(() => readWaits(store.#db, runId, after, maxLength)),
      readMessages: (store, runId, after, maxLength) =>
        store.#reads.snapshot(() => readMessages(store.#db, runId, after, maxLength)),
      readLogs: (store, runId, after, maxLength) =>
        store.#reads.snapshot(() => readLogs(store.#db, runId, after, maxLength)),
      readValue: (store, place, from) => store.#reads.read(() => readValue(store.#db, place, from)),
      appendLogs: (store, entries) => store.#write(() => appendLines(store.#db, entries)),
      readJournal: (store, after, maxLength) => store.#reads.read(() => readJournal(store.#db, after, maxLength)),
      findCursor: (store, cursor) => store.#reads.snapshot(() => findCursor(store.#db, cursor)),
      findLastFact: (store, run, after, kinds) =>
        store.#reads.inSlices(() => findLastFact(store.#db, run, after, kinds)),
      getRunIdentities: (store, runs) => store.#reads.read(() => readIdentities(store.#db, runs)),
      readFactValues: (store, values, maxLength) =>
        store.#reads.snapshot(() => readFactValues(store.#db, values, maxLength)),
      getVersion: (store) =>
        store.#reads.read(() => store.#db.one<{ data_version: number }>`PRAGMA data_version`.data_version),
    });
  }
}

/** See {@linkcode SqliteStore}. */
export interface SqliteStore extends Store {}

/** Options of a {@linkcode SqliteStore}. */
export interface SqliteStoreOptions {
  /**
   * `full` (default): what was acknowledged survives a power cut. `normal`: a power cut can lose the last moments,
   * a crash of the process cannot.
   */
  synchronous?: "full" | "normal";
  /**
   * Whether what was deleted is overwritten in the file and in the log beside it within a second (default `false`). If
   * another process reads an older state, that happens as soon as it has finished. Set it in each process that writes
   * to the file; what was deleted without it stays until its space is used again.
   *
   * The facts of a deleted run are erased from the journal within that second, too: an event stream that resumes later
   * does not show the delete.
   *
   * This is not complete: when SQLite moves rows between pages, it can leave parts of them in unused bytes of a page.
   * Only `VACUUM` removes those. If runs of all sizes are deleted at random, up to one value in a hundred stays.
   */
  secureDelete?: boolean;
  /** Time, timers, randomness and ids. Default: those of the system. */
  host?: Host;
}

const STORE_OPTIONS: Record<keyof SqliteStoreOptions, true> = { synchronous: true, secureDelete: true, host: true };

/**
 * Checks the options of a store.
 *
 * @param subject The call, for messages: `SqliteStore.open()`.
 * @throws {TypeError} An option is unknown or not valid.
 */
export function checkStoreOptions(options: SqliteStoreOptions, subject: string): void {
  checkOptionNames(options, STORE_OPTIONS, subject);
  const { synchronous = "full", secureDelete = false } = options;
  if (typeof secureDelete !== "boolean") {
    throw new TypeError(`secureDelete of ${subject} must be true or false, not ${kindOf(secureDelete)}`);
  }
  if (synchronous !== "full" && synchronous !== "normal") {
    throw new TypeError(`synchronous of ${subject} must be "full" or "normal", not "${synchronous}"`);
  }
}
