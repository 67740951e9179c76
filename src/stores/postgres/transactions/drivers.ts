import { kindOf } from "../../../values/kind_of.ts";
import { propertyOf } from "../../../values/property_of.ts";

/** A row of an answer. */
export type SqlRow = { [column: string]: unknown };

/** Begins transactions with the client of a user. */
export interface SqlDriver {
  /** Begins one, on a connection of its own. `begin` is the statement that begins it. */
  begin(begin: string): Promise<OpenTransaction>;
}

/** A transaction with the client of a user. */
export interface OpenTransaction {
  /** What the driver gives for it. */
  readonly client: unknown;
  /** Executes one statement. */
  query(sql: string, parameters: readonly (string | number | null)[]): Promise<SqlRow[]>;
  /** Commits, in one message with a statement that fails if the transaction has failed before. */
  commit(): Promise<void>;
  /** Rolls back. With `destroy` it does not wait for the server: the connection is closed where the driver can. */
  rollback(options?: { destroy?: boolean }): Promise<void>;
}

/** A pool of npm:pg or npm:postgres, or a PGlite. It is recognized by its shape. */
export type PostgresPool = { connect: unknown } | { reserve: unknown } | { transaction: unknown };

// COMMIT alone succeeds after an error that the function has caught, although it rolls back.
const COMMIT = "SELECT 1; COMMIT";

/**
 * The driver for a pool.
 *
 * @throws {TypeError} It is none.
 */
export function driverOf(pool: unknown): SqlDriver {
  const has = (name: string) => typeof propertyOf(pool, name) === "function";
  if (has("reserve")) return { begin: (begin) => beginReserved(pool as ReservingPool, begin) };
  if (has("transaction")) return { begin: (begin) => beginEmbedded(pool as Embedded, begin) };
  if (has("connect")) return { begin: (begin) => beginConnected(pool as ConnectingPool, begin) };
  throw new TypeError(
    `postgresDataSource() needs a pool of npm:pg or npm:postgres, a PGlite, or an address, not ${kindOf(pool)}`,
  );
}

type Parameters = readonly (string | number | null)[];

/** `Pool` of npm:pg. */
interface ConnectingPool {
  connect(): Promise<{
    query(sql: string, parameters?: (string | number | null)[]): Promise<{ rows: SqlRow[] }>;
    release(destroy?: boolean): void;
  }>;
}

async function beginConnected(pool: ConnectingPool, begin: string): Promise<OpenTransaction> {
  const client = await pool.connect();
  let isReleased = false;
  const release = (destroy: boolean) => {
    if (!isReleased) client.release(destroy);
    isReleased = true;
  };
  const execute = async (sql: string) => {
    try {
      await client.query(sql);
      release(false);
    } catch (error) {
      release(true); // its state is unknown
      throw error;
    }
  };
  await client.query(begin).catch((error) => {
    release(true);
    throw error;
  });
  return {
    client,
    query: async (sql, parameters: Parameters) => (await client.query(sql, [...parameters])).rows,
    commit: () => execute(COMMIT),
    rollback: async ({ destroy = false } = {}) => destroy ? release(true) : await execute("ROLLBACK").catch(() => {}),
  };
}

/** `Sql` of npm:postgres. */
interface ReservingPool {
  reserve(): Promise<{
    unsafe(sql: string, parameters?: (string | number | null)[]): PromiseLike<unknown>;
    release(): void;
  }>;
}

async function beginReserved(pool: ReservingPool, begin: string): Promise<OpenTransaction> {
  const client = await pool.reserve();
  const execute = async (sql: string) => {
    try {
      await client.unsafe(sql);
    } finally {
      client.release();
    }
  };
  await client.unsafe(begin);
  return {
    client,
    query: async (sql, parameters: Parameters) => [...await client.unsafe(sql, [...parameters]) as SqlRow[]],
    commit: () => execute(COMMIT),
    // The driver cannot close one connection: it is given back when the server has answered.
    rollback: async ({ destroy = false } = {}) => {
      const rolledBack = execute("ROLLBACK").catch(() => {});
      if (!destroy) await rolledBack;
    },
  };
}

/** A PGlite: it has one connection, and hands it out for a transaction. */
interface Embedded {
  transaction(work: (tx: EmbeddedTransaction) => Promise<void>): Promise<unknown>;
}

interface EmbeddedTransaction {
  query(sql: string, parameters?: (string | number | null)[]): Promise<{ rows: SqlRow[] }>;
}

async function beginEmbedded(database: Embedded, begin: string): Promise<OpenTransaction> {
  const begun = Promise.withResolvers<EmbeddedTransaction>();
  const ending = Promise.withResolvers<void>();
  const ended = database.transaction(async (tx) => {
    begun.resolve(tx);
    await ending.promise;
  });
  ended.catch((error) => begun.reject(error));
  const tx = await begun.promise;
  const rollback = async () => {
    ending.reject(new Error("The transaction is rolled back"));
    await ended.catch(() => {});
  };
  const [, isolation] = /ISOLATION LEVEL ([A-Z ]+);/.exec(begin) ?? [];
  if (isolation !== undefined) await tx.query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`);
  return {
    client: tx,
    query: async (sql, parameters: Parameters) => (await tx.query(sql, [...parameters])).rows,
    commit: async () => {
      await tx.query("SELECT 1").catch(async (error) => {
        await rollback();
        throw error;
      });
      ending.resolve();
      await ended;
    },
    rollback,
  };
}
