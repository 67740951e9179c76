import { kindOf, propertyOf } from "../../../values/unknown_values.ts";
import { refuseRenaming } from "../database/client.ts";
import { ENDED } from "./ended_transaction.ts";

/** A row of an answer. */
type SqlRow = { [column: string]: unknown };

/** Begins transactions with the client of a user. */
export interface SqlDriver {
  /** Begins one, on a connection of its own. */
  begin(options: BeginOptions): Promise<OpenTransaction>;
}

/** How a transaction begins. */
export interface BeginOptions {
  /** Its isolation level, in the words of SQL; `undefined`: that of the database. */
  isolation?: string | undefined;
  /** Columns of the query that goes with BEGIN in one message. */
  columns?: string;
}

/** A transaction with the client of a user. */
export interface OpenTransaction {
  /** What the driver gives for it, for the function. */
  readonly client: unknown;
  /** The row of the columns that it has begun with. */
  readonly first: SqlRow;
  /** A condition: the transaction that is open is still this one. No statement has ended it, not even AND CHAIN. */
  readonly isSame: string;
  /** Called when the function has ended: `client` refuses further statements. */
  endWork(): void;
  /** Executes one statement. */
  query(sql: string, parameters: readonly (string | number | null)[]): Promise<SqlRow[]>;
  /**
   * Commits, in one message with a query of an expression, and returns its value. The query fails if the transaction has
   * failed before, or was ended by one of its statements (`isEnded()`). Then it is to be rolled back.
   */
  commit(last?: string): Promise<unknown>;
  /**
   * Rolls back. With `destroy` it does not wait for the server: the connection is closed where the driver can.
   *
   * @returns Whether the server has answered. If it has not, the connection is lost.
   */
  rollback(options?: { destroy?: boolean }): Promise<boolean>;
}

/** A pool of npm:pg or npm:postgres, or a PGlite. It is recognized by its shape. */
export type PostgresPool = { connect: unknown } | { reserve: unknown } | { transaction: unknown };

// What `now()` is, differs between two transactions, since each begins with a message of its own.
const BEGAN = "extract(epoch from pg_catalog.now())::text";

/**
 * What is executed before COMMIT, which alone succeeds after an error that the function has caught, although it rolls back.
 *
 * Only a cast fails in a query without a function of ours. The instant keeps the planner from trying it.
 */
function lastQuery(isSame: string, last = "''"): string {
  return `select case when ${isSame} then ${last} else ('${ENDED} at ' || pg_catalog.now())::int::text end as r`;
}

/**
 * The driver for a pool.
 *
 * @param subject The call, for messages: `postgresDataSource()`.
 * @throws {TypeError} It is none.
 */
export function driverOf(pool: unknown, subject: string): SqlDriver {
  const has = (name: string) => typeof propertyOf(pool, name) === "function";
  if (has("reserve")) {
    refuseRenaming(pool, subject);
    return { begin: (options) => beginOn(() => connectReserved(pool as ReservingPool), options) };
  }
  if (isEmbedded(pool)) return { begin: (options) => beginEmbedded(pool, options) };
  // A `Client` of npm:pg: it connects once, and a connection of a pool never again.
  if (has("connect") && has("getTypeParser")) {
    throw new TypeError(
      `${subject} needs a pool, not one connection of npm:pg: each transaction has one of its own`,
    );
  }
  if (has("connect")) return { begin: (options) => beginOn(() => connect(pool as ConnectingPool), options) };
  throw new TypeError(
    `${subject} needs a pool of npm:pg or npm:postgres, a PGlite, or an address, not ${kindOf(pool)}`,
  );
}

/** What is executed with BEGIN. `mark` tells the transaction from others. */
function firstQuery(mark: string, columns: string | undefined): string {
  return `select ${mark} as mark${columns === undefined ? "" : `, ${columns}`}`;
}

/** A connection of a pool. */
interface PooledConnection {
  client: object;
  /** The methods of `client` that send statements. */
  methods: readonly string[];
  /** Executes statements without parameters, in one message. Returns the rows of the last one that has some. */
  execute(sql: string): Promise<SqlRow[]>;
  query: OpenTransaction["query"];
  /** Gives it back to the pool, or closes it. */
  release(destroy: boolean): void;
}

/** Begins a transaction on a new connection of a pool. */
export async function beginOn(
  connect: () => Promise<PooledConnection>,
  { isolation, columns }: BeginOptions,
): Promise<OpenTransaction> {
  const connection = await connect();
  const { client, methods, execute, query } = connection;
  let isReleased = false;
  let hasEnded = false;
  const release = (destroy: boolean) => {
    if (!isReleased) connection.release(destroy);
    isReleased = true;
  };
  const rollback = async ({ destroy = false } = {}) => {
    const rolledBack = destroy ? false : await execute("ROLLBACK").then(() => true, () => false);
    release(!rolledBack);
    return rolledBack;
  };
  const begin = isolation === undefined ? "BEGIN" : `BEGIN ISOLATION LEVEL ${isolation}`;
  const [first] = await execute(`${begin}; ${firstQuery(BEGAN, columns)}`).catch(async (error) => {
    await rollback();
    throw error;
  });
  const isSame = `${BEGAN} = '${first!.mark}'`;
  return {
    client: guard(client, methods, () => hasEnded),
    endWork: () => void (hasEnded = true),
    first: first!,
    isSame,
    query,
    commit: async (last) => {
      const [row] = await execute(`${lastQuery(isSame, last)}; COMMIT`);
      release(false);
      return row!.r;
    },
    rollback,
  };
}

/** A client whose statements are refused after the function that was given it has ended: others use its connection. */
function guard(client: object, methods: readonly string[], hasEnded: () => boolean): object {
  return new Proxy(client, {
    get: (target, name) => {
      const member = Reflect.get(target, name);
      if (name === "release") return () => {}; // an ORM may call it; the transaction has the connection until it ends
      if (!methods.includes(String(name)) || typeof member !== "function") return member;
      return (...given: unknown[]) => hasEnded() ? refuse(given) : member.apply(target, given);
    },
    // The client of npm:postgres is itself a function.
    apply: (target, self, given) => {
      if (hasEnded()) throw new TypeError(HAS_ENDED);
      return Reflect.apply(target as () => unknown, self, given);
    },
  });
}

const HAS_ENDED = "The transaction has ended";

function refuse(given: unknown[]): Promise<never> {
  const error = new TypeError(HAS_ENDED);
  // Neither a callback nor a cursor would learn of a promise.
  const isPromised = given.every((one) => typeof one !== "function" && typeof propertyOf(one, "submit") !== "function");
  if (isPromised) return Promise.reject(error);
  throw error;
}

type Parameters = readonly (string | number | null)[];

/** A client of npm:pg that belongs to a pool. */
export interface ConnectedClient {
  /** Executes a statement, or several without parameters. */
  query(sql: string, parameters?: (string | number | null)[]): Promise<unknown>;
  /** Gives it back to the pool, or closes it. */
  release(destroy?: boolean): void;
  /** Adds a listener. */
  on?(event: "error", listener: () => void): unknown;
  /** Removes a listener. */
  off?(event: "error", listener: () => void): unknown;
}

/** `Pool` of npm:pg. */
interface ConnectingPool {
  connect(callback: (error: unknown, client: ConnectedClient) => void): PromiseLike<ConnectedClient> | void;
}

// A connection that breaks between two statements would end the process: the next statement fails.
const ignore = () => {};

/** Takes a client. Its connection can break before a promise would have been resolved. */
function take(pool: ConnectingPool): Promise<ConnectedClient> {
  return new Promise((resolve, reject) => {
    const use = (client: ConnectedClient) => {
      client.on?.("error", ignore);
      resolve(client);
    };
    pool.connect((error, client) => error ? reject(error) : use(client))?.then(use, reject);
  });
}

/** Takes a client out of a pool of npm:pg. */
export async function connect(pool: ConnectingPool): Promise<PooledConnection> {
  const client = await take(pool);
  return {
    client,
    methods: ["query"],
    execute: async (sql) => {
      const results = [await client.query(sql)].flat() as { rows: SqlRow[] }[]; // one for each statement
      return results.findLast(({ rows }) => rows.length > 0)?.rows ?? [];
    },
    query: async (sql, parameters: Parameters) => (await client.query(sql, [...parameters]) as { rows: SqlRow[] }).rows,
    release: (destroy) => {
      client.release(destroy);
      client.off?.("error", ignore);
    },
  };
}

/** `Sql` of npm:postgres. */
interface ReservingPool {
  reserve(): Promise<{
    unsafe(sql: string, parameters?: (string | number | null)[]): PromiseLike<unknown>;
    release(): void;
  }>;
}

async function connectReserved(pool: ReservingPool): Promise<PooledConnection> {
  const client = await pool.reserve();
  return {
    client,
    methods: ["unsafe", "file", "notify"],
    // Of several statements it returns a list of results, unless only one has rows.
    execute: async (sql) => (await client.unsafe(sql) as (SqlRow | SqlRow[])[]).flat(),
    query: async (sql, parameters: Parameters) => [...await client.unsafe(sql, [...parameters]) as SqlRow[]],
    release: (destroy) => {
      // The driver cannot close one connection: it is given back when the server has answered.
      if (destroy) Promise.resolve(client.unsafe("ROLLBACK")).catch(() => {}).finally(() => client.release());
      else client.release();
    },
  };
}

/** A PGlite: it has one connection, and hands it out for a transaction. */
interface Embedded {
  transaction(work: (tx: EmbeddedTransaction) => Promise<void>): Promise<unknown>;
}

interface EmbeddedTransaction {
  /** Whether it was rolled back by `rollback()`. */
  readonly closed: boolean;
  query(sql: string, parameters?: (string | number | null)[]): Promise<{ rows: SqlRow[] }>;
}

/** Whether a client is a PGlite, which has one connection for everything. */
export function isEmbedded(pool: unknown): pool is Embedded {
  return typeof propertyOf(pool, "transaction") === "function";
}

// `now()` of a PGlite has milliseconds. A setting of the transaction is lost at its end.
const SETTING = "'holdfast.transaction'";
const SET_MARK = `pg_catalog.set_config(${SETTING}, pg_catalog.gen_random_uuid()::text, true)`;

async function beginEmbedded(database: Embedded, { isolation, columns }: BeginOptions): Promise<OpenTransaction> {
  const begun = Promise.withResolvers<EmbeddedTransaction>();
  const ending = Promise.withResolvers<void>();
  const ended = database.transaction(async (tx) => {
    begun.resolve(tx);
    await ending.promise;
  });
  ended.catch((error) => begun.reject(error));
  const tx = await begun.promise;
  const query = async (sql: string, parameters: Parameters = []) => {
    if (tx.closed) throw new Error(ENDED);
    return (await tx.query(sql, [...parameters])).rows;
  };
  const rollback = async () => {
    ending.reject(new Error("The transaction is rolled back"));
    await ended.catch(() => {});
    return true;
  };
  try {
    if (isolation !== undefined) await query(`SET TRANSACTION ISOLATION LEVEL ${isolation}`);
    const [first] = await query(firstQuery(SET_MARK, columns));
    const isSame = `pg_catalog.current_setting(${SETTING}, true) = '${first!.mark}'`;
    return {
      client: tx,
      endWork: () => {}, // it refuses statements after the commit
      first: first!,
      isSame,
      query,
      commit: async (last) => {
        const [row] = await query(lastQuery(isSame, last));
        ending.resolve();
        await ended;
        return row!.r;
      },
      rollback,
    };
  } catch (error) {
    await rollback();
    throw error;
  }
}
