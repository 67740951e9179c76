import { StoreError, WorkError } from "../../../model/error.ts";
import { type DataSource, type DataSourceOptions, readKeepEffects } from "../../../model/data_source.ts";
import type {
  EffectRequest,
  Effects,
  NewEffect,
  NewOutboxRow,
  OutboxRequest,
  OutboxRow,
  SourceWrites,
  StoredEffect,
} from "../../../model/effects.ts";
import type { AsyncTransactionCalls } from "../../../model/transaction.ts";
import { checkOptionNames } from "../../../values/option_names.ts";
import { checkDatabaseUrl, loadDriver, sqlState } from "../database/client.ts";
import { checkSchema } from "../sql/names.ts";
import { driverOf, type OpenTransaction, type PostgresPool, type SqlDriver } from "./drivers.ts";

/** What the function of a transaction on PostgreSQL is given. It ends with the function. */
export interface PostgresTransaction<Client = PostgresTransactionClient, Db = undefined> extends AsyncTransactionCalls {
  /** The client of the driver, in the transaction. */
  readonly client: Client;
  /** What `wrap` has made of it. */
  readonly db: Db;
}

/** The client of npm:pg and of PGlite, as far as both agree. */
export interface PostgresTransactionClient {
  /** Executes a statement. */
  // deno-lint-ignore no-explicit-any -- the rows have the columns of the statement
  query(sql: string, parameters?: any[]): Promise<{ rows: any[] }>;
}

/** Options of {@linkcode postgresDataSource}. */
export interface PostgresDataSourceOptions<Client, Db> extends DataSourceOptions {
  /** Makes `tx.db` of the client of a transaction: `(client) => drizzle(client)`. */
  wrap?: (client: Client) => Db;
  /** The schema of the table `effects`, which is made if it does not exist. Default `holdfast`. */
  schema?: string;
}

/** A PostgreSQL database as a data source, that {@linkcode postgresDataSource} has made. */
export interface PostgresDataSource<Client, Db> extends DataSource<PostgresTransaction<Client, Db>>, AsyncDisposable {
  /** Closes the connections that it has opened itself. */
  close(): Promise<void>;
}

const OPTIONS: Record<keyof PostgresDataSourceOptions<never, never>, true> = {
  wrap: true,
  schema: true,
  keepEffects: true,
};
const MAX_CONNECTIONS = 10;
const MAX_REPEATS = 10;
// How long the rows that an engine has taken are not relayed by another one.
const TAKEN_MS = 5_000;
const MAX_PAUSE_MS = 50;
// Serialization failure, deadlock, lock not available: another try may succeed.
const REPEATED = /^(40001|40P01|55P03)$/;
const UNIQUE_VIOLATION = "23505";

/**
 * Another PostgreSQL database than that of the store as a data source, in which steps leave effects.
 *
 * @param pool A pool of npm:pg or npm:postgres, a PGlite, or an address, at which it opens ten connections of npm:pg. It
 * must not be the pool of the store.
 * @throws {TypeError} It is none of these, or an option is not valid.
 */
export function postgresDataSource<Client = PostgresTransactionClient, Db = undefined>(
  pool: PostgresPool | string | URL,
  options: PostgresDataSourceOptions<Client, Db> = {},
): PostgresDataSource<Client, Db> {
  checkOptionNames(options, OPTIONS, "postgresDataSource()");
  const { schema = "holdfast", wrap } = options;
  checkSchema(schema, "postgresDataSource()");
  const opened = typeof pool === "string" || pool instanceof URL ? new OpenedPool(String(pool)) : null;
  const close = async () => await opened?.close();
  const driver = opened ?? driverOf(pool);
  return {
    kind: "postgres",
    store: null,
    effects: new PostgresEffects(driver, {
      schema,
      keepMs: readKeepEffects(options),
      toTx: (client) => ({ client, db: wrap?.(client as Client) }),
    }),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** A pool of npm:pg that is opened when it is first used. */
class OpenedPool implements SqlDriver {
  readonly #url: string;
  #pool: Promise<{ driver: SqlDriver; end(): Promise<void> }> | null = null;

  constructor(url: string) {
    this.#url = url;
  }

  async begin(begin: string): Promise<OpenTransaction> {
    this.#pool ??= this.#open();
    return await (await this.#pool).driver.begin(begin);
  }

  async close(): Promise<void> {
    if (this.#pool !== null) await (await this.#pool).end();
  }

  async #open() {
    await checkDatabaseUrl(this.#url);
    const pg = await loadDriver();
    const pool = new pg.Pool({ connectionString: this.#url, max: MAX_CONNECTIONS, application_name: "holdfast" });
    pool.on("error", () => {}); // a connection that breaks while it is idle would end the process
    return { driver: driverOf(pool), end: () => pool.end() };
  }
}

interface PostgresEffectsOptions {
  schema: string;
  keepMs: number;
  toTx: (client: unknown) => object;
}

/** A statement of ours has failed, and not the function. */
class OwnError extends Error {}

class PostgresEffects implements Effects {
  readonly keepMs: number;
  readonly #driver: SqlDriver;
  readonly #schema: string;
  readonly #toTx: (client: unknown) => object;

  constructor(driver: SqlDriver, { schema, keepMs, toTx }: PostgresEffectsOptions) {
    this.#driver = driver;
    this.#schema = `"${schema}"`;
    this.keepMs = keepMs;
    this.#toTx = toTx;
  }

  async migrate(): Promise<void> {
    const statements = [
      `CREATE SCHEMA IF NOT EXISTS ${this.#schema}`,
      `CREATE TABLE IF NOT EXISTS ${this.#schema}.effects (step_key text PRIMARY KEY, store_id text NOT NULL,
  run_id text NOT NULL, output text, at bigint NOT NULL)`,
      `CREATE TABLE IF NOT EXISTS ${this.#schema}.outbox (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  id text NOT NULL DEFAULT pg_catalog.gen_random_uuid()::text,
  kind text NOT NULL CHECK (kind IN ('trigger', 'signal')), name text NOT NULL, value text, options text,
  store_id text, at bigint NOT NULL DEFAULT floor(extract(epoch from pg_catalog.clock_timestamp()) * 1000),
  taken_until bigint, error text)`,
      `CREATE OR REPLACE FUNCTION ${this.#schema}.trigger(job text, input jsonb DEFAULT 'null',
  idempotency_key text DEFAULT NULL, labels jsonb DEFAULT NULL, options jsonb DEFAULT '{}') RETURNS text
  LANGUAGE sql AS $function$
    INSERT INTO ${this.#schema}.outbox (kind, name, value, options) VALUES ('trigger', job, input::text,
      (options || pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('idempotencyKey', idempotency_key, 'labels', labels)))::text)
    RETURNING id
  $function$`,
    ];
    const find = `SELECT pg_catalog.to_regclass($1)::text AS found`;
    try {
      const [row] = await this.#execute([[find, [`${this.#schema}.outbox`]]]);
      if (row?.found != null) return;
      // Two processes can make them at the same moment: one of them fails, and finds them.
      await this.#execute([
        ["SELECT pg_catalog.pg_advisory_xact_lock(4850421)", []],
        ...statements.map((sql) => [sql, []] as const),
      ]);
    } catch (error) {
      const sql = statements.map((statement) => `${statement};`).join("\n");
      throw new StoreError(
        `The tables of a data source cannot be made: ${messageOf(error)}. Execute it yourself:\n${sql}`,
        {
          cause: error,
          code: "internal",
        },
      );
    }
  }

  async transact(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }> {
    for (let repeats = 0;; repeats++) {
      try {
        return await this.#transactOnce(request);
      } catch (error) {
        const cause = error instanceof OwnError || error instanceof WorkError ? error.cause : error;
        const mayRepeat = !request.abortSignal?.aborted && repeats < MAX_REPEATS;
        const isUnknown = error instanceof OwnError && /^(57P0|08|$)/.test(sqlState(cause) ?? "");
        if (isUnknown && request.keys.length === 0) throw unknownOutcome(cause);
        // After an unknown outcome, the first statement finds the effect.
        const isRepeated = REPEATED.test(sqlState(cause) ?? "") || isUnknown ||
          (error instanceof OwnError && sqlState(cause) === UNIQUE_VIOLATION);
        if (!mayRepeat || !isRepeated) throw error instanceof WorkError ? error : new WorkError(cause);
        await new Promise((resolve) => setTimeout(resolve, Math.random() * MAX_PAUSE_MS));
      }
    }
  }

  async #transactOnce(request: EffectRequest): Promise<{ found: NewEffect["output"] } | { committed: true }> {
    const { keys, work, abortSignal } = request;
    const open = await this.#begin(request);
    try {
      if (keys.length > 0) {
        const places = keys.map((_, at) => `$${at + 1}`).join(", ");
        const sql = `SELECT output FROM ${this.#schema}.effects WHERE step_key IN (${places})`;
        const [row] = await open.query(sql, keys);
        if (row !== undefined) {
          await open.rollback();
          return { found: row.output as string | null };
        }
      }
      const { effect, rows } = await untilAborted(callWork(work, this.#toTx(open.client)), abortSignal);
      for (const row of rows) {
        const { sql, parameters } = this.insertion(row);
        await open.query(sql, parameters).catch(own);
      }
      if (effect !== null) await this.#insert(open, effect).catch(own);
      await open.commit().catch(own);
      return { committed: true };
    } catch (error) {
      // A statement of the function may still be under way.
      await open.rollback({ destroy: abortSignal?.aborted ?? false });
      throw error;
    }
  }

  #begin({ isolation }: Pick<EffectRequest, "isolation">): Promise<OpenTransaction> {
    return this.#driver.begin(isolation === undefined ? "BEGIN" : `BEGIN ISOLATION LEVEL ${levelOf(isolation)};`);
  }

  async #insert(open: OpenTransaction, { key, storeId, runId, output, at }: NewEffect): Promise<void> {
    await open.query(
      `INSERT INTO ${this.#schema}.effects (step_key, store_id, run_id, output, at) VALUES ($1, $2, $3, $4, $5)`,
      [key, storeId, runId, output, at],
    );
  }

  async findOlder(storeId: string, at: number, after: string, limit: number): Promise<StoredEffect[]> {
    const rows = await this.#execute([[
      `SELECT step_key, run_id, at::text AS at FROM ${this.#schema}.effects
       WHERE step_key COLLATE "C" > $1 AND store_id = $2 AND at < $3 ORDER BY step_key COLLATE "C" LIMIT $4`,
      [after, storeId, Math.floor(at), limit],
    ]]);
    return rows.map(({ step_key: key, run_id: runId, at }) => ({
      key: String(key),
      runId: String(runId),
      at: Number(at),
    }));
  }

  async forget(keys: readonly string[]): Promise<void> {
    const sql = `DELETE FROM ${this.#schema}.effects WHERE step_key IN
      (SELECT pg_catalog.jsonb_array_elements_text($1::text::jsonb))`;
    await this.#execute([[sql, [JSON.stringify(keys)]]]);
  }

  insertion({ id, kind, name, value, options, storeId, at }: NewOutboxRow) {
    const sql = `INSERT INTO ${this.#schema}.outbox (id, kind, name, value, options, store_id, at)
      VALUES ($1, $2, $3, $4, $5, $6, $7)`;
    return { sql, parameters: [id, kind, name, value, options, storeId, at] };
  }

  async takeRows({ storeId, jobs, now, limit }: OutboxRequest): Promise<OutboxRow[]> {
    const mine = `error IS NULL AND (store_id IS NULL OR store_id = $1) AND (kind = 'signal' OR name IN
      (SELECT pg_catalog.jsonb_array_elements_text($2::text::jsonb)))`;
    const parameters = [storeId, JSON.stringify(jobs)];
    const found = await this.#execute([[`SELECT 1 FROM ${this.#schema}.outbox WHERE ${mine} LIMIT 1`, parameters]]);
    if (found.length === 0) return [];
    // Two transactions: what other engines see of the first is committed before the second.
    const taken = await this.#execute([[
      `UPDATE ${this.#schema}.outbox SET taken_until = $4 WHERE no = (SELECT min(no) FROM ${this.#schema}.outbox
         WHERE ${mine}) AND (taken_until IS NULL OR taken_until <= $3) RETURNING no`,
      [...parameters, Math.floor(now), Math.floor(now) + TAKEN_MS],
    ]]);
    if (taken.length === 0) return [];
    const rows = await this.#execute([[
      `SELECT no::text AS no, id, kind, name, value, options FROM ${this.#schema}.outbox WHERE ${mine} ORDER BY no LIMIT $3`,
      [...parameters, limit],
    ]]);
    // The columns of the statement.
    return rows.map((row) => ({ ...row as unknown as OutboxRow, no: Number(row.no) }));
  }

  async deleteRows(nos: readonly number[]): Promise<void> {
    const sql = `DELETE FROM ${this.#schema}.outbox WHERE no IN
      (SELECT pg_catalog.jsonb_array_elements_text($1::text::jsonb)::bigint)`;
    await this.#execute([[sql, [JSON.stringify(nos)]]]);
  }

  async countRefused(): Promise<number> {
    const [row] = await this.#execute([[
      `SELECT count(*)::text AS rows FROM ${this.#schema}.outbox WHERE error IS NOT NULL`,
      [],
    ]]);
    return Number(row!.rows);
  }

  async refuseRow(no: number, error: string): Promise<void> {
    await this.#execute([[`UPDATE ${this.#schema}.outbox SET error = $1 WHERE no = $2`, [error, no]]]);
  }

  /** Executes statements in one transaction, and returns the rows of the last one. */
  async #execute(statements: readonly (readonly [sql: string, parameters: readonly (string | number | null)[]])[]) {
    const open = await this.#begin({ isolation: undefined });
    try {
      let rows: { [column: string]: unknown }[] = [];
      for (const [sql, parameters] of statements) rows = await open.query(sql, parameters);
      await open.commit();
      return rows;
    } catch (error) {
      await open.rollback();
      throw error;
    }
  }
}

async function callWork(work: EffectRequest["work"], tx: object): Promise<SourceWrites> {
  try {
    return await work(tx);
  } catch (error) {
    throw new WorkError(error);
  }
}

/** Does not wait any longer when the signal fires, and throws its reason as that of the function. */
async function untilAborted<T>(work: Promise<T>, abortSignal: AbortSignal | null): Promise<T> {
  if (abortSignal === null) return await work;
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = () => reject(new WorkError(abortSignal.reason));
  abortSignal.addEventListener("abort", abort, { once: true });
  work.catch(() => {}); // it may fail when nobody waits for it any more
  try {
    if (abortSignal.aborted) abort();
    return await Promise.race([work, aborted]);
  } finally {
    abortSignal.removeEventListener("abort", abort);
  }
}

function own(cause: unknown): never {
  throw new OwnError("A statement of Holdfast has failed", { cause });
}

const LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

function levelOf(isolation: string): string {
  const level = String(isolation).toUpperCase();
  if (LEVELS.includes(level)) return level;
  throw new TypeError(`isolation must be one of ${LEVELS.join(", ").toLowerCase()}, not "${isolation}"`);
}

function unknownOutcome(cause: unknown): StoreError {
  return new StoreError(`Nobody knows whether the transaction was committed: ${messageOf(cause)}`, {
    cause,
    outcomeUnknown: true,
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
