import type { ClientConfig, PoolClient, PoolConfig } from "pg";
import { StoreError } from "../../../model/error.ts";
import { errorMessage, kindOf, propertyOf } from "../../../values/unknown_values.ts";
import { type ConnectedClient, refuseStandby, Servers, StandbyError } from "./servers.ts";

/**
 * What a statement is for. Each kind has connections of its own in a pool that the store opens, so that none waits for
 * another: `leases` for what must not be late (claims, renewals, and finding out that something has changed), `writes`
 * for all other writes, `reads` for all other reads.
 */
export type Lane = "leases" | "writes" | "reads";

/**
 * Asks one statement. Parameters are strings or `null`, and so is each column `r` of the answer, so that no driver has
 * to convert anything. Without parameters the string may hold several statements, which are one transaction.
 *
 * It rejects with a {@linkcode NotSentError} if the statement was not sent, and otherwise with the driver's own error.
 */
export type PostgresQuery = (
  sql: string,
  parameters?: readonly (string | null)[],
  lane?: Lane,
) => Promise<{ r: string | null }[]>;

/** A connection, or a pool of connections, of `pg`, `postgres`, PGlite or a driver of the same shape. */
export type PostgresClient =
  | {
    query(sql: string, parameters?: (string | null)[]): Promise<{ rows: unknown[] }>;
    /** PGlite takes several statements here alone. */
    exec?(sql: string): Promise<{ rows: unknown[] }[]>;
  }
  | { unsafe(sql: string, parameters?: (string | null)[]): PromiseLike<unknown> }
  | { queryObject(sql: string, parameters?: (string | null)[]): Promise<{ rows: unknown[] }> };

/** The statement was not sent, since there was no connection: nothing has happened. */
export class NotSentError extends Error {
  /**
   * Creates the error.
   *
   * @param cause That of the driver.
   * @param place Where there was no connection to: host, database and user.
   */
  constructor(cause: unknown, place?: string) {
    const message = errorMessage(cause);
    super(place === undefined ? message : `${message} (${place})`, { cause });
    this.name = "NotSentError";
  }
}

/** How a store asks its database. */
export interface Connection {
  /** Asks one statement. */
  query: PostgresQuery;
  /** Whether its client is somebody else's, who may have begun a transaction with it. */
  isLent: boolean;
  /** Closes the connections, if the store has opened them. */
  close(): Promise<void>;
}

// How many connections one store opens at most. A renewal does not wait for a claim, nor log lines for a group of writes.
const MAX_CONNECTIONS: Record<Lane, number> = { leases: 2, writes: 2, reads: 2 };
// A renewal is to have time for another try on a new connection while its lease lasts.
const ANSWER_TIMEOUT_MS: Record<Lane, number> = { leases: 5_000, writes: 10_000, reads: 10_000 };
// A statement with longer parameters, such as a batch of many triggers, may take longer: each try begins from nothing.
const USUAL_LENGTH = 1_000_000;
const MS_PER_CHARACTER = 0.01;
const CONNECT_TIMEOUT_MS = 5_000;
// The routine of the server that notices that the wait of a commit for a synchronous standby was cancelled: the statement
// succeeds, although this server alone may have what it wrote.
const WAITS_FOR_STANDBY = "SyncRepWaitForLSN";

/**
 * Opens pools of connections of `pg`, which it loads. No connection is made before the first statement.
 *
 * @param answerTimeoutMs How long a statement may take, in each lane, unless its parameters are long.
 * @throws {TypeError} The address is not valid.
 */
export async function openPool(
  url: string,
  answerTimeoutMs: Record<Lane, number> = ANSWER_TIMEOUT_MS,
): Promise<Connection> {
  const { place, servers, newPool } = await openDriver(url);
  // When one connection has shown that its server is a standby now, all those that were checked before are given up.
  let generation = 0;
  const generations = new WeakMap<PoolClient, number>();
  const unreplicated = new WeakSet<PoolClient>();
  const open = (lane: Lane) => {
    const pool = newPool({
      max: MAX_CONNECTIONS[lane],
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      query_timeout: answerTimeoutMs[lane],
      idleTimeoutMillis: 0,
    });
    pool.on("connect", (client) => {
      client.on("notice", ({ routine }) => void (routine === WAITS_FOR_STANDBY && unreplicated.add(client)));
    });
    return pool;
  };
  const pools = { leases: open("leases"), writes: open("writes"), reads: open("reads") };
  // The pool can check new connections, too. But it keeps one forever whose caller has given up before the check has ended.
  const check = async (client: PoolClient) => {
    const checkedIn = generation;
    await refuseStandby(client as unknown as ConnectedClient).catch((error: unknown) => {
      client.release(true);
      throw error;
    });
    generations.set(client, checkedIn);
  };
  const acquire = (lane: Lane) =>
    servers.connect(async () => {
      while (true) {
        const client = await pools[lane].connect();
        if (!generations.has(client)) await check(client);
        if (generations.get(client) === generation) return client;
        client.release(true);
      }
    });
  const pending = new Set<Promise<unknown>>();
  const query: PostgresQuery = async (sql, parameters, lane = "writes") => {
    const client = await acquire(lane).catch((error: unknown) => {
      throw new NotSentError(error, place);
    });
    let broken = true;
    try {
      const statement = {
        text: sql,
        values: parameters === undefined ? undefined : [...parameters],
        query_timeout: answerTimeoutMs[lane] + extraTimeMs(parameters),
      };
      const result = await client.query(statement);
      if (unreplicated.has(client)) {
        throw new Error("The commit was cancelled while it waited for a synchronous standby");
      }
      broken = false;
      return result.rows;
    } catch (error) {
      broken = !isServerError(error) || isOfStandby(error);
      if (isOfStandby(error)) {
        generation++;
        servers.leave(servers.url);
      }
      throw error;
    } finally {
      // After a time limit the answer can still arrive: the connection is of no more use.
      client.release(broken);
    }
  };
  return {
    isLent: false,
    query: (...statement) => {
      const answer = query(...statement);
      pending.add(answer);
      const end = () => pending.delete(answer);
      answer.then(end, end);
      return answer;
    },
    close: async () => {
      // A pool never settles a call that waits for a connection when it ends.
      while (pending.size > 0) await Promise.allSettled(pending);
      await Promise.all(Object.values(pools).map((pool) => pool.end()));
    },
  };
}

function extraTimeMs(parameters: readonly (string | null)[] = []): number {
  const length = parameters.reduce((sum, parameter) => sum + (parameter?.length ?? 0), 0);
  return Math.max(0, length - USUAL_LENGTH) * MS_PER_CHARACTER;
}

/**
 * Loads the driver for an address.
 *
 * @returns Where the address leads; its servers; and what makes a pool of connections to the one that takes writes.
 * @throws {TypeError} The address is not valid.
 */
export async function openDriver(url: string) {
  const place = await checkDatabaseUrl(url);
  const pg = await loadDriver();
  const servers = new Servers(url);
  class Client extends pg.Client {
    constructor(config?: ClientConfig) {
      super({ ...config, connectionString: servers.url });
    }
  }
  const newPool = (config: PoolConfig) => {
    const pool = new pg.Pool({ Client, keepAlive: true, application_name: "holdfast", ...config });
    // Without a listener, a connection that breaks while it is idle ends the process. The pool drops it.
    pool.on("error", () => {});
    pool.on("connect", (client) => void client.on("error", () => {})); // the same for one in use: its statement fails, too
    return pool;
  };
  return { place, pg, servers, newPool };
}

/**
 * Opens one connection of `pg`, for a transaction of several statements. None of them has a time limit.
 *
 * @throws {TypeError} The address is not valid.
 */
export async function openSession(url: string): Promise<Connection> {
  const { place, pg, servers } = await openDriver(url);
  const connect = async (connectionString: string) => {
    const client = new pg.Client({
      connectionString,
      connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
      keepAlive: true,
      application_name: "holdfast",
    });
    // Without a listener, a connection that breaks while it is idle ends the process. Its next statement fails.
    client.on("error", () => {});
    await client.connect();
    await refuseStandby(client).catch(async (error: unknown) => {
      await client.end();
      throw error;
    });
    return client;
  };
  const client = await servers.connect(connect).catch((error: unknown) => {
    throw storeError(new NotSentError(error, place), { writes: false });
  });
  return {
    isLent: false,
    query: async (sql, parameters) =>
      (await client.query(sql, parameters === undefined ? undefined : [...parameters])).rows,
    close: () => client.end(),
  };
}

/**
 * Checks the address of a database, as `pg` reads it. Neither the error nor a cause shows the address: it may have a
 * password.
 *
 * @returns Where it leads, without the password: `database "jobs" on db.example:5432 as "app"`.
 * @throws {TypeError} It is not valid.
 */
export async function checkDatabaseUrl(url: string): Promise<string> {
  const { urls } = new Servers(url);
  const pg = await loadDriver();
  try {
    const [first, ...others] = urls.map((connectionString) => new pg.Client({ connectionString })); // they connect later
    const hosts = [first!, ...others].map(({ host, port }) => `${host}:${port}`).join(", ");
    const { database, user } = first!; // without a user, that of the operating system, if it is known
    return `database "${database}" on ${hosts}${user === undefined ? "" : ` as "${user}"`}`;
  } catch {
    throw new TypeError(
      "The address of the database is not valid: it is postgres://user:password@host:5432/database, where encodeURIComponent() writes user and password",
    );
  }
}

/**
 * The package `pg`.
 *
 * @throws {TypeError} It is not installed: on npm it is an optional dependency.
 */
export async function loadDriver(): Promise<typeof import("pg").default> {
  const found = await import("pg").catch((cause) => {
    throw new TypeError('PostgresStore.open() needs the package "pg": npm install pg', { cause });
  });
  return found.default;
}

/** Uses a client that somebody else has opened. It is recognized by its shape, and never closed. */
export function lendClient(client: PostgresClient): Connection {
  if (!["unsafe", "queryObject", "query"].some((method) => typeof propertyOf(client, method) === "function")) {
    throw new TypeError(
      `PostgresStore.from() needs a client of npm:pg, npm:postgres, jsr:@db/postgres or PGlite, not ${kindOf(client)}`,
    );
  }
  refuseRenaming(client, "PostgresStore.from()");
  return { query: queryOf(client), isLent: true, close: () => Promise.resolve() };
}

/**
 * Refuses a client of npm:postgres that renames the columns of the store: `transform: postgres.pascal`. With `camel` and
 * `kebab` they keep their names.
 *
 * @throws {TypeError} It does.
 */
export function refuseRenaming(client: unknown, subject: string): void {
  const { from } = propertyOf(propertyOf(propertyOf(client, "options"), "transform"), "column") as { from?: unknown } ??
    {};
  if (typeof from !== "function" || from("r") === "r") return;
  throw new TypeError(
    `${subject} cannot use a client of npm:postgres whose \`transform\` renames columns of one lower-case word, as ` +
      "postgres.pascal does: open another one without it",
  );
}

function queryOf(client: PostgresClient): PostgresQuery {
  // The rows of a statement have the one column `r`, as a string.
  type Rows = { r: string | null }[];
  const list = (parameters?: readonly (string | null)[]) => parameters === undefined ? undefined : [...parameters];
  if ("unsafe" in client) {
    return async (sql, parameters) => [...await client.unsafe(sql, list(parameters)) as Rows];
  }
  if ("queryObject" in client) {
    return async (sql, parameters) => (await client.queryObject(sql, list(parameters))).rows as Rows;
  }
  return async (sql, parameters) => {
    if (isUnconnected(client)) throw new NotSentError("the client is not connected: await client.connect() first");
    const result = parameters === undefined && "exec" in client
      ? (await client.exec!(sql)).at(-1)
      : await client.query(sql, list(parameters));
    return (result?.rows ?? []) as Rows;
  };
}

/** Whether a client of `pg` keeps its statements until somebody connects it: they would wait for ever. */
function isUnconnected(client: PostgresClient): boolean {
  return propertyOf(client, "_connected") === false && propertyOf(client, "_connecting") === false;
}

/** Whether the server has refused a statement: then nothing has happened, and the connection is in order. */
export function isServerError(error: unknown): boolean {
  const code = sqlState(error);
  return code !== null && !/^(57P0[123]|08)/.test(code);
}

// Serialization failure, deadlock, lock not available: another try may succeed. So it may after a unique violation: then a
// call and its repetition were carried out at the same moment, and the next try finds what the first has written.
const TRANSIENT = /^(40001|40P01|55P03|23505)$/;

/** Whether a statement that the server has refused may succeed when it is tried again at once. */
export function isTransient(error: unknown): boolean {
  return TRANSIENT.test(sqlState(error) ?? "");
}

// Serialization, connections, resources, intervention by an operator, a standby: the server has refused any statement.
const UNAVAILABLE = /^(40001|40P01|55P03|53|25006|57)/;
// Transactions, rights, and what there is in the schema: the same for all calls of a kind.
const OF_ALL_CALLS = /^(25|28|2D|3F|42)/;

/** The code of an error: the role lacks a right. */
export const INSUFFICIENT_PRIVILEGE = "42501";

/** Whether an error, or its cause, says that the server of a connection is a standby. */
export function isOfStandby(error: unknown): boolean {
  if (error instanceof StandbyError || sqlState(error) === "25006") return true;
  return error instanceof Error && error.cause !== undefined && isOfStandby(error.cause);
}

/** Whether the server may have refused a statement because of a value in it, and would not refuse another one. */
export function isOfOneCall(error: unknown): boolean {
  const code = sqlState(error) ?? "";
  return isServerError(error) && !UNAVAILABLE.test(code) && !OF_ALL_CALLS.test(code);
}

/** Converts a driver's error to a `StoreError`. */
export function storeError(error: unknown, { writes }: { writes: boolean }): StoreError {
  if (error instanceof StoreError) return error;
  const message = errorMessage(error);
  const isUnavailable = !isServerError(error) || UNAVAILABLE.test(sqlState(error) ?? "");
  return new StoreError(`The database cannot answer: ${message}`, {
    cause: error,
    code: isUnavailable ? "unavailable" : "internal",
    outcomeUnknown: writes && !isServerError(error) && !(error instanceof NotSentError),
  });
}

/** The code of an error that the server has sent, or `null`. The form alone says nothing: `EPIPE` has it, too. */
export function sqlState(error: unknown): string | null {
  if (typeof error !== "object" || error === null) return null;
  const { code, severity, severity_local, fields }: {
    code?: unknown;
    severity?: unknown;
    severity_local?: unknown;
    fields?: { code?: unknown; severity?: unknown };
  } = error;
  if (typeof fields?.code === "string" && fields.severity !== undefined) return fields.code;
  return typeof code === "string" && (severity !== undefined || severity_local !== undefined) ? code : null;
}
