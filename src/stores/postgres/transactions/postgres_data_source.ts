import { type DataSource, type DataSourceOptions, readKeepEffects } from "../../../model/data_source.ts";
import type { AsyncTransactionCalls } from "../../../model/transaction.ts";
import { checkOptionNames } from "../../../values/option_names.ts";
import { errorMessage, kindOf } from "../../../values/unknown_values.ts";
import { INSUFFICIENT_PRIVILEGE, openDriver, type PostgresClient, sqlState } from "../database/client.ts";
import { refuseStandby } from "../database/servers.ts";
import { checkSchema } from "../sql/names.ts";
import {
  beginOn,
  type BeginOptions,
  connect,
  driverOf,
  isEmbedded,
  type OpenTransaction,
  type PostgresPool,
  type SqlDriver,
} from "./drivers.ts";
import { PostgresEffects } from "./effects.ts";
import { StoreError } from "../../../model/error.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";
import type { TransactDeps } from "./transact.ts";

/**
 * What the function of a transaction on PostgreSQL is given. It ends with the function. A call that is refused, and that
 * the function neither awaits nor catches, rolls everything back, and its refusal is thrown.
 */
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

/** Options of `PostgresStore.dataSource()`. */
export interface JoinedDataSourceOptions<Client, Db> extends DataSourceOptions {
  /** Makes `tx.db` of the client of a transaction: `(client) => drizzle(client)`. */
  wrap?: (client: Client) => Db;
}

/** Options of {@linkcode postgresDataSource}. */
export interface PostgresDataSourceOptions<Client, Db> extends JoinedDataSourceOptions<Client, Db> {
  /** The schema of the tables `effects` and `outbox`, which is made if it does not exist. Default `holdfast`. */
  schema?: string;
}

/** A PostgreSQL database as a data source. {@linkcode postgresDataSource} and `PostgresStore.dataSource()` make one. */
export interface PostgresDataSource<Client, Db> extends DataSource<PostgresTransaction<Client, Db>>, AsyncDisposable {
  /** Closes the connections that it has opened itself. */
  close(): Promise<void>;
}

const JOINED_OPTIONS: Record<keyof JoinedDataSourceOptions<never, never>, true> = { wrap: true, keepEffects: true };
const MAX_CONNECTIONS = 10;

const SUBJECT = "postgresDataSource()";

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
  checkOptionNames(options, { ...JOINED_OPTIONS, schema: true }, SUBJECT);
  const { schema = "holdfast" } = options;
  checkSchema(schema, SUBJECT);
  return makeDataSource(accessTo(pool, SUBJECT), null, { ...options, schema }, SUBJECT).source;
}

/** What executes the transactions of a data source, and how it is closed. */
interface Access {
  driver: SqlDriver;
  close: () => Promise<void>;
}

/** Takes a pool as it is, or opens one at an address. */
function accessTo(pool: PostgresPool | string | URL, subject: string): Access {
  if (typeof pool !== "string" && !(pool instanceof URL)) {
    return { driver: driverOf(pool, subject), close: async () => {} };
  }
  const driver = new OpenedPool(String(pool));
  return { driver, close: () => driver.close() };
}

/** Makes a data source. `store`: that of its database; `null`: another one. */
function makeDataSource<Client, Db>(
  { driver, close }: Access,
  store: object | null,
  options: PostgresDataSourceOptions<Client, Db> & { schema: string },
  subject: string,
): { source: PostgresDataSource<Client, Db>; toTx: (client: unknown) => object } {
  const { schema, wrap } = options;
  if (wrap !== undefined && typeof wrap !== "function") {
    throw new TypeError(`wrap of ${subject} must be a function, not ${kindOf(wrap)}`);
  }
  const toTx = (client: unknown) => ({ client, db: wrap?.(client as Client) });
  const source: PostgresDataSource<Client, Db> = {
    kind: "postgres",
    store,
    effects: new PostgresEffects(driver, { schema, keepMs: readKeepEffects(options), toTx }),
    close,
    [Symbol.asyncDispose]: close,
  };
  return { source, toTx };
}

/** A pool of npm:pg that is opened when it is first used, of the server that takes writes. */
class OpenedPool implements SqlDriver {
  readonly #url: string;
  #pool: Promise<{ connect: Parameters<typeof beginOn>[0]; end(): Promise<void> }> | null = null;

  constructor(url: string) {
    this.#url = url;
  }

  async begin(options: BeginOptions): Promise<OpenTransaction> {
    this.#pool ??= this.#open();
    return await beginOn((await this.#pool).connect, options);
  }

  async close(): Promise<void> {
    if (this.#pool !== null) await (await this.#pool).end();
  }

  async #open() {
    const { servers, newPool } = await openDriver(this.#url);
    const pool = newPool({ max: MAX_CONNECTIONS });
    const checked = new WeakSet<object>();
    const connectChecked = async () => {
      const connection = await connect(pool);
      const client = connection.client as { host: string; port: number; query(sql: string): Promise<never> };
      if (!checked.has(client)) {
        await refuseStandby(client).catch((error) => {
          connection.release(true);
          throw error;
        });
        checked.add(client);
      }
      return connection;
    };
    let ended: Promise<void> | null = null; // a data source of a store is closed by the store, too
    return { connect: () => servers.connect(connectChecked), end: () => ended ??= pool.end() };
  }
}

const JOINED = "PostgresStore.dataSource()";

/**
 * Makes a data source of the database of a store, and what the store executes its transactions with. `client` is the address
 * of the store, or the client that it uses.
 */
export function joinedDataSource<Client, Db>(
  { store, database, schema, client }: {
    store: object;
    database: PostgresDatabase;
    schema: string;
    client: string | PostgresClient;
  },
  pool: PostgresPool | undefined,
  options: JoinedDataSourceOptions<Client, Db>,
): { source: PostgresDataSource<Client, Db>; deps: TransactDeps } {
  checkOptionNames(options, JOINED_OPTIONS, JOINED);
  const used = pool ?? (typeof client === "string" || isEmbedded(client) ? client : undefined);
  if (used === undefined) throw new TypeError(`${JOINED} needs a pool of yours: the store was given a client`);
  if (used === client && typeof client !== "string" && !isEmbedded(client)) {
    throw new TypeError(`${JOINED} cannot use the pool of the store: renewals of leases would wait for transactions`);
  }
  const access = accessTo(used, JOINED);
  const driver = used === client ? access.driver : new CheckedDriver(access.driver, database);
  const { source, toTx } = makeDataSource({ ...access, driver }, store, { ...options, schema }, JOINED);
  return { source, deps: { database, driver, toTx } };
}

/** Checks before the first transaction that a pool leads to the database of the store. */
class CheckedDriver implements SqlDriver {
  readonly #driver: SqlDriver;
  readonly #database: PostgresDatabase;
  #check: Promise<void> | null = null;

  constructor(driver: SqlDriver, database: PostgresDatabase) {
    this.#driver = driver;
    this.#database = database;
  }

  async begin(...given: Parameters<SqlDriver["begin"]>) {
    await (this.#check ??= this.#compare().catch((error) => {
      this.#check = null; // the next transaction tries again
      throw error;
    }));
    return await this.#driver.begin(...given);
  }

  async #compare(): Promise<void> {
    const { statement, id } = await this.#database.readId();
    const open = await this.#driver.begin({});
    let failure: unknown = null;
    const [found] = await open.query(statement, []).catch((error) => {
      failure = error;
      return [];
    });
    await open.rollback();
    if (failure !== null && sqlState(failure) === null) throw failure; // the connection is lost
    if (sqlState(failure) === INSUFFICIENT_PRIVILEGE) {
      throw new StoreError(
        `The role of the pool of the data source lacks a right: ${errorMessage(failure)}. Grant it what the store ` +
          'needs: see "Roles" in docs/guides/postgres.md',
        { code: "internal", cause: failure },
      );
    }
    if (found?.strings === "off") {
      throw new StoreError(
        "The pool of the data source has standard_conforming_strings off, with which the functions of the store do not " +
          "work. Turn it on for its role and its database",
        { code: "internal" },
      );
    }
    if (found?.r === id) return;
    throw new StoreError("The pool of the data source is connected to another database than the store", {
      code: "internal",
    });
  }
}
