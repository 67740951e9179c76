import { StoreError } from "../../../model/error.ts";
import { StoreClosedError } from "../../../model/store_closed_error.ts";
import type { StoreCalls } from "../../store_calls.ts";
import { toSql, VERSION } from "../sql/names.ts";
import type { WriteList } from "../writes/write_group.ts";
import { type Connection, isTransient, type Lane, sqlState, storeError } from "./client.ts";
import { readAnswer, writeParameter } from "./portable_text.ts";

// How often a statement is tried that the server refuses because of others that run beside it.
const MAX_TRIES = 5;
// A procedure commits inside a transaction.
const CANNOT_COMMIT = "2D000";
const INSIDE = "Holdfast was called inside a transaction of yours, and would hold up all others until it ends: use " +
  "engine.transaction() or engine.inTransaction()";
// A function, a table, a column or a schema does not exist.
const UNDEFINED = /^(42883|42P01|42703|3F000)$/;

/** Some calls of a store that need no more than its database. */
export type DatabaseCalls = Partial<StoreCalls<PostgresDatabase>>;

/** Calls the functions of one schema. Each call is one statement: JSON in, JSON out. */
export class PostgresDatabase {
  readonly #connection: Connection;
  readonly #schema: string;
  readonly #clock: () => number | null;
  #isClosed = false;

  /** @param clock The instant to pass to the functions; `null`: they read the clock of the server. */
  constructor(connection: Connection, schema: string, clock: () => number | null) {
    this.#connection = connection;
    this.#schema = schema;
    this.#clock = clock;
  }

  /** Calls a function that reads. */
  read<T>(name: string, parameters: unknown = {}, lane: Lane = "reads"): Promise<T> {
    return this.#call<T>(name, writeParameter(parameters), { writes: false, lane });
  }

  /** Calls a function that reads what one thing has, and converts that; `null` if there is none. */
  async find<Row, T>(name: string, parameters: unknown, read: (row: Row) => T): Promise<T | null> {
    const row = await this.read<Row | null>(name, parameters);
    return row === null ? null : read(row);
  }

  /** Calls a function that writes. */
  write<T>(name: string, parameters: unknown, lane: Lane = "writes"): Promise<T> {
    return this.#call<T>(name, writeParameter(parameters), { writes: true, lane });
  }

  /** Performs a group of writes in one transaction. Returns the answers of each list. */
  apply(group: string, lane: Lane): Promise<Record<WriteList, unknown[]>> {
    const { isLent } = this.#connection;
    return this.#call(isLent ? "apply_outside" : "apply", group, { writes: true, lane, isProcedure: isLent });
  }

  /** Sends a notification, in a transaction of its own. */
  async notify(channel: string): Promise<void> {
    this.#check();
    await this.#connection.query("select pg_catalog.pg_notify($1, '')::text as r", [channel], "leases");
  }

  /** Executes statements without parameters, as one transaction. */
  async execute(sql: string): Promise<void> {
    this.#check();
    try {
      await this.#connection.query(toSql(sql, this.#schema));
    } catch (error) {
      throw storeError(error, { writes: true });
    }
  }

  /** Asks a statement without parameters for one value, its column `r`. An empty string: it has returned none. */
  async ask(sql: string): Promise<string> {
    this.#check();
    try {
      const [row] = await this.#connection.query(toSql(sql, this.#schema), []);
      return row?.r ?? "";
    } catch (error) {
      throw storeError(error, { writes: false });
    }
  }

  /** A call of a function as an expression without parameters, for a statement on another connection. */
  toCall(name: string, parameters: unknown): string {
    this.#check();
    const text = writeParameter(parameters);
    const quote = `$hf_${crypto.randomUUID().replaceAll("-", "")}$`; // no value of a user can have it
    return `${toSql(`fn.${name}`, this.#schema)}(${quote}${text}${quote}::text::jsonb, ${this.#clock()}::bigint)::text`;
  }

  /** Closes the connections, if the store has opened them. Safe to call again. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#connection.close();
  }

  async #call<T>(
    name: string,
    parameters: string,
    { writes, lane, isProcedure = false }: { writes: boolean; lane: Lane; isProcedure?: boolean },
  ): Promise<T> {
    const given = `fn.${name}($1::text::jsonb, $2::text::bigint`;
    const sql = toSql(isProcedure ? `call ${given}, null)` : `select ${given})::text as r`, this.#schema);
    const now = this.#clock();
    const values = [parameters, now === null ? null : String(now)];
    for (let tries = 1;; tries++) {
      this.#check();
      try {
        const [row] = await this.#connection.query(sql, values, lane);
        // The functions return JSON, and NULL for `null`; their type is known to the caller.
        return (row === undefined || row.r === null ? null : readAnswer(row.r)) as T;
      } catch (error) {
        if (isProcedure && sqlState(error) === CANNOT_COMMIT) {
          throw new StoreError(INSIDE, { code: "internal", cause: error });
        }
        if (UNDEFINED.test(sqlState(error) ?? "")) await this.#explain(error);
        if (!isTransient(error) || tries === MAX_TRIES) throw storeError(error, { writes });
      }
    }
  }

  /** The id of the store, and the statement that asks another session for it, and how that reads strings. */
  async readId(): Promise<{ statement: string; id: string }> {
    const strings = "pg_catalog.current_setting('standard_conforming_strings')";
    const statement = toSql(`select id as r, ${strings} as strings from {schema}.schema_version`, this.#schema);
    return { statement, id: await this.ask(statement) };
  }

  /** The version of the tables. */
  async readVersion(): Promise<number> {
    return Number(await this.ask("select version::text as r from {schema}.schema_version"));
  }

  /** Throws why a function or a table is missing, if a newer version of this package has dropped it. */
  async #explain(error: unknown): Promise<void> {
    const version = await this.readVersion().catch(() => 0);
    if (version > VERSION) throw newerTablesError(version, error);
  }

  #check(): void {
    if (this.#isClosed) throw new StoreClosedError();
  }
}

/** The error of a call that finds tables of a newer version than this one. */
export function newerTablesError(found: number, cause?: unknown): StoreError {
  return new StoreError(
    `The database has tables of version ${found}; this version of Holdfast knows them up to ${VERSION}`,
    { code: "internal", cause },
  );
}
