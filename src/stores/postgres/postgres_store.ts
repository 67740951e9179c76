import { withActor } from "../../model/origin.ts";
import { systemHost } from "../../model/host.ts";
import type { JsonText } from "../../values/json.ts";
import type { Lease } from "../../model/lease.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { retryTime } from "../../model/step.ts";
import { LeaseLostError, StoreError } from "../../model/error.ts";
import type { ChangeListener, Store, StoreWatch } from "../../store/store.ts";
import { OPERATOR_READS, type PostgresWarning, readWarnings } from "./operator_reads.ts";
import { type Connection, isOfStandby, lendClient, openPool, type PostgresClient } from "./database/client.ts";
import {
  type BoundedClaimAnswer,
  type ClaimedHead,
  type ClaimedRow,
  type EnqueuedRow,
  type FiringAnswer,
  type PauseAnswer,
  type RunRow,
  type SendAnswer,
  toClaimResult,
  toEnqueued,
  toFiringResult,
  toPauseResult,
  toRunText,
  toSendOutcome,
  toSendParameter,
} from "./run_answers.ts";
import { readHistories } from "./claimed_histories.ts";
import { toLease } from "../claimed_row.ts";
import { LogQueue, WriteBatch } from "./writes/write_batch.ts";
import { checkServer, type Durability, migrateTables, VersionWatch } from "./database/migrate.ts";
import { Announcer, changeChannel, outboxChannel, testChannel } from "./notify/announcer.ts";
import { type Listen, NotifyListener } from "./notify/listener.ts";
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
import { checkStoreOptions, listenOf, type PostgresStoreOptions } from "./postgres_store_options.ts";
import { isRefusal, type Refusal, toRefusalError, type WriteParameter } from "./writes/write_group.ts";
import { type DatabaseCalls, PostgresDatabase } from "./database/postgres_database.ts";
import { READS } from "./reads.ts";
import {
  type IdentityRow,
  type JobPauseRow,
  type ScheduleRow,
  toJobPause,
  toRunIdentity,
  toSchedule,
} from "../rows.ts";
import type { WriteKind } from "./sql/writes/apply.ts";
import type { DataSource } from "../../model/data_source.ts";
import type {
  FindRun,
  FindWait,
  StepPlace,
  StoreAnswers,
  StoreWrites,
  TransactionLimits,
} from "../../store/transaction.ts";
import type { PostgresPool } from "./transactions/drivers.ts";
import {
  joinedDataSource,
  type JoinedDataSourceOptions,
  type PostgresDataSource,
  type PostgresTransactionClient,
} from "./transactions/postgres_data_source.ts";
import { transact, type TransactDeps } from "./transactions/transact.ts";
import { type SignalAnswer, toSignalOutcome } from "../signal_answer.ts";
import { addCalls, type StoreCalls } from "../store_calls.ts";

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
export class PostgresStore {
  readonly #database: PostgresDatabase;
  readonly #writes: WriteBatch;
  readonly #logs: LogQueue;
  readonly #versions: VersionWatch;
  /** A clock in milliseconds that is never set. */
  readonly #monotonic: () => number;
  readonly #announcer: Announcer;
  readonly #listener: NotifyListener | null = null;
  readonly #durability: Durability;
  /** Its address, or the client of the user. */
  readonly #client: string | PostgresClient;
  readonly #schema: string;
  readonly #sources = new Map<DataSource & AsyncDisposable, TransactDeps>();
  /** Reports changes of this and other stores by LISTEN and NOTIFY; `undefined` if the store does not listen. */
  readonly watch?: (listener: ChangeListener) => StoreWatch;

  /** Use {@linkcode PostgresStore.open} or {@linkcode PostgresStore.from}. */
  private constructor(
    connection: Connection,
    listen: Listen | null,
    client: string | PostgresClient,
    { schema = "holdfast", durability = "full", host }: PostgresStoreOptions,
  ) {
    this.#client = client;
    this.#schema = schema;
    const clock = host === undefined ? () => null : () => Math.floor(host.now());
    const database = new PostgresDatabase(connection, schema, clock);
    const timers = host ?? systemHost;
    this.#database = database;
    this.#writes = new WriteBatch(database);
    this.#logs = new LogQueue(database);
    this.#monotonic = () => timers.monotonic();
    this.#versions = new VersionWatch(database, this.#monotonic);
    this.#announcer = new Announcer(database, changeChannel(schema), timers);
    this.#durability = durability;
    if (listen === null) return;
    const listener = new NotifyListener({
      listen,
      notify: (channel) => database.notify(channel),
      changeChannel: changeChannel(schema),
      outboxChannel: outboxChannel(schema),
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
   * Connections are made to a server that takes writes only: one that is a standby is refused, and with several hosts the
   * next one is asked. When a server has become a standby, all connections to it are given up.
   *
   * @param url The address: `postgres://user:password@host:5432/database`, or with several hosts `postgres://user@first,second/database`.
   * @throws {TypeError} The address or an option is not valid.
   * @throws {StoreError} The server is a standby, may lose what it has acknowledged and `durability` is `full`, or it is not PostgreSQL.
   */
  static async open(url: string | URL, options: PostgresStoreOptions = {}): Promise<PostgresStore> {
    checkStoreOptions(options, "PostgresStore.open()");
    if (typeof url !== "string" && !(url instanceof URL)) {
      throw new TypeError(`PostgresStore.open() needs the address of a database, not ${kindOf(url)}`);
    }
    const store = new PostgresStore(await openPool(String(url)), listenOf(options, url), String(url), options);
    try {
      await checkServer(store.#database, store.#durability);
    } catch (error) {
      if (!(error instanceof StoreError && error.code === "unavailable") || isOfStandby(error)) {
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
    return new PostgresStore(lendClient(client), listenOf(options, null), client, options);
  }

  /** Creates or updates the tables; safe in several processes at once. */
  migrate(): Promise<void> {
    return migrateTables(this.#database, this.#durability);
  }

  /**
   * This database as a data source, for `step.transaction()` and `engine.transaction()`: what they write to your tables and
   * what the store has to write are one commit.
   *
   * @param pool A pool of npm:pg or npm:postgres that leads to the database of the store, or the PGlite of the store. It is
   * not the pool that the store uses: renewals of leases would wait for transactions. Without one, the data source opens
   * ten connections of npm:pg at the address of the store, and the store closes them.
   * @throws {TypeError} It is no such pool, or there is none and the store was not opened by an address.
   */
  dataSource<Client = PostgresTransactionClient, Db = undefined>(
    pool?: PostgresPool,
    options: JoinedDataSourceOptions<Client, Db> = {},
  ): PostgresDataSource<Client, Db> {
    const place = { store: this, database: this.#database, schema: this.#schema, client: this.#client };
    const { deps, source } = joinedDataSource(place, pool, options);
    this.#sources.set(source, deps);
    return source;
  }

  /** See `Store.transact()`. */
  async transact(
    source: DataSource,
    step: StepPlace | null,
    work: (tx: object, findWait: FindWait, findRun: FindRun) => StoreWrites | Promise<StoreWrites>,
    limits: TransactionLimits = NO_LIMITS,
  ): Promise<StoreAnswers> {
    const deps = this.#sources.get(source as PostgresDataSource<unknown, unknown>);
    if (deps === undefined) throw new TypeError("The data source is not that of this store");
    const answers = await transact(deps, step, work, limits);
    this.#announcer.announce();
    return answers;
  }

  /** Completes pending calls, and closes the connections if the store has opened them. Safe to call twice. */
  async close(): Promise<void> {
    await Promise.all([...this.#sources.keys()].map((source) => source[Symbol.asyncDispose]()));
    await Promise.all([this.#writes.close(), this.#logs.close(), this.#listener?.close()]);
    await this.#announcer.close();
    await this.#database.close();
  }

  /** The same as {@linkcode PostgresStore.close}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
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

  /** Reads the histories of claimed runs, and renews their leases while that takes long. */
  #readHistories(heads: readonly ClaimedHead[], leaseMs: number, sentAt: number): Promise<ClaimedRow[]> {
    const renewals = heads.map((head) => ({ ...toLeaseParameter(toLease(head)), reports: [] }));
    let renewedAt = sentAt;
    return readHistories(this.#database, heads, async () => {
      const now = this.#monotonic();
      if (now - renewedAt < leaseMs / 3) return;
      await this.#write("renew", { renewals, leaseMs }, { isUrgent: true, isSilent: true });
      renewedAt = now;
    });
  }

  static {
    const onDatabase = <Calls extends DatabaseCalls>(calls: Calls) =>
      Object.fromEntries(
        Object.entries(calls).map(([name, call]) => [
          name,
          (store: PostgresStore, ...given: never[]) =>
            (call as (database: PostgresDatabase, ...given: never[]) => unknown)(store.#database, ...given),
        ]),
      ) as { [Name in keyof Calls & keyof StoreCalls<PostgresStore>]: StoreCalls<PostgresStore>[Name] };
    addCalls<PostgresStore>(PostgresStore.prototype, {
      ...onDatabase(READS),
      ...onDatabase(OPERATOR_READS),
      enqueue: async (store, runs) => {
        const rows = await store.#write<EnqueuedRow[]>("enqueue", { runs: runs.map(toNewRunParameter) });
        return rows.map(toEnqueued);
      },
      claim: async (store, request) => {
        await store.#versions.look();
        const parameter = toClaimParameter(request);
        const sentAt = store.#monotonic();
        const answer = await store.#database.write<BoundedClaimAnswer>("bounded_claim", parameter, "leases");
        const { failed, cancelled } = answer;
        // A claim that finds nothing changes nothing: idle processes would wake each other over and over.
        const claimed = answer.heads ?? answer.claims;
        if (claimed.length + failed.length + cancelled.length > 0) store.#announcer.announce();
        if (answer.heads === null) return toClaimResult(answer);
        const claims = await store.#readHistories(answer.heads, request.leaseMs, sentAt);
        return toClaimResult({ ...answer, claims });
      },
      renew: (store, renewals, leaseMs) =>
        store.#write("renew", {
          renewals: renewals.map(({ lease, reports }) => ({
            ...toLeaseParameter(lease),
            reports: toReportParameters(reports),
          })),
          leaseMs,
        }, { isUrgent: true, isSilent: renewals.every(({ reports }) => reports.length === 0) }),
      release: (store, lease, reports) =>
        store.#write("release", { ...toLeaseParameter(lease), reports: toReportParameters(reports) }),
      hold: async (store, lease, hold, reports) => {
        await store.#writeUnder(lease, "hold", {
          ...hold,
          details: JSON.stringify(hold.details),
          reports: toReportParameters(reports),
        });
      },
      resumeHeld: async (store, runId, continues, by = null) =>
        orNull(
          await store.#write<RunRow | null>("resume_held", { runId, continues, actor: withActor("", by) }),
          toRunText,
        ),
      saveInput: async (store, lease, schemaPrint, input) => {
        const stored = await store.#writeUnder<{ input: JsonText | null }>(lease, "save_input", { schemaPrint, input });
        return stored.input;
      },
      revoke: async (store, leases) => {
        await store.#write("revoke", {
          leases: leases.map((lease) => ({ ...toLeaseParameter(lease), expiresAt: lease.expiresAt })),
        });
      },
      forgetWorker: (store, workerId) => store.#write("forget_worker", { workerId }),
      noteStopping: (store, workerId) => store.#database.write("note_stopping", { workerId }),
      addStats: (store, statistics) => store.#database.write("add_stats", { statistics }),
      pauseJob: async (store, jobName, { by, note }) =>
        toJobPause(await store.#write<JobPauseRow>("pause_job", { jobName, by, note })),
      resumeJob: (store, jobName) => store.#write("resume_job", { jobName }),
      setSchedule: async (store, schedule, version) => {
        const row = await store.#database.write<ScheduleRow | null>("set_schedule", { ...schedule, version });
        store.#announcer.announce();
        return orNull(row, toSchedule);
      },
      deleteSchedule: async (store, name) => {
        const isDeleted = await store.#database.write<boolean>("delete_schedule", { name });
        store.#announcer.announce();
        return isDeleted;
      },
      fireSchedule: async (store, { schedule: { name, version }, run, ...firing }) => {
        const parameter = { name, version, run: run === null ? null : toNewRunParameter(run), ...firing };
        return orNull(await store.#write<FiringAnswer | null>("fire_schedule", parameter), toFiringResult);
      },
      saveStep: async (store, lease, step, reports) => {
        const parameter = { ...toStepParameter(step, reports), reports: toReportParameters(reports) };
        const { recordedNo, retryAt, now } = await store.#writeUnder<
          { recordedNo: number; retryAt: number | null; now: number }
        >(lease, "save_step", parameter);
        return { recordedNo, retry: retryAt === null ? null : retryTime(retryAt, now) };
      },
      appendItems: (store, writes) =>
        store.#write("append_items", {
          writes: writes.map(({ lease, chunks }) => ({ ...toLeaseParameter(lease), chunks })),
        }),
      pause: async (store, lease, request) => {
        if (request.park && request.pauses.length === 0 && request.retryAt === null) {
          throw new TypeError("A run cannot wait for nothing");
        }
        return toPauseResult(await store.#writeUnder<PauseAnswer>(lease, "pause", toPauseParameter(request)));
      },
      finish: async (store, lease, ending, reports) => {
        await store.#writeUnder(lease, "finish", {
          ...toEndingParameter(ending),
          reports: toReportParameters(reports),
        });
      },
      signal: async (store, waitId, signal, trace = null) => {
        const payload = JSON.stringify(signal.payload);
        const answer = await store.#write<SignalAnswer>("signal", {
          waitId,
          signalId: signal.signalId,
          payload,
          trace,
        });
        return toSignalOutcome(answer, waitId, signal);
      },
      send: async (store, request) =>
        toSendOutcome(await store.#write<SendAnswer>("send", toSendParameter(request)), request),
      cancel: async (store, runId, requestId, execution) => {
        const row = await store.#write<RunRow | null>("cancel", {
          runId,
          requestId,
          execution: execution === null ? null : toExecutionParameter(execution),
        });
        return orNull(row, toRunText);
      },
      delete: async (store, runId, by = null) =>
        orNull(await store.#write<IdentityRow | null>("delete", { runId, actor: withActor("", by) }), toRunIdentity),
      purge: async (store, retention, limit) => {
        // Those who purge find nothing most of the time.
        const rows = await store.#write<IdentityRow[]>("purge", { retention, limit }, { isSilent: true });
        if (rows.length > 0) store.#announcer.announce();
        return rows.map(toRunIdentity);
      },
      appendLogs: (store, entries) => store.#logs.append(entries),
    });
  }
}

/** See {@linkcode PostgresStore}. */
export interface PostgresStore extends Store {}

function orNull<Row, T>(row: Row | null, read: (row: Row) => T): T | null {
  return row === null ? null : read(row);
}

const NO_LIMITS: TransactionLimits = { isolation: undefined, timeoutMs: 60_000, abortSignal: null };

interface WriteOptions {
  /** Whether it waits for no other write. */
  isUrgent?: boolean;
  /** Whether nobody else needs to know. */
  isSilent?: boolean;
}
