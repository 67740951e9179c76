import { StoreError } from "../../model/error.ts";
import { POSTGRES_CHECKS, POSTGRES_RECOUNT, POSTGRES_STUCK_CHECKS } from "../../stores/postgres/checks.ts";
import { JSON_COLUMNS, notJson } from "../../stores/table_check.ts";
import { type Connection, openPool, sqlState, storeError } from "../../stores/postgres/database/client.ts";
import { PostgresStore } from "../../stores/postgres/postgres_store.ts";
import { checkSchema, toSql, VERSION } from "../../stores/postgres/sql/names.ts";
import { UsageError } from "../command.ts";
import { checkVersion, type Database, type Service } from "./service.ts";
import { databaseService } from "./database_service.ts";

// A check reads whole tables.
const MAX_ANSWER_MS = 600_000;
const ANSWER_TIMEOUT_MS = { leases: MAX_ANSWER_MS, writes: MAX_ANSWER_MS, reads: MAX_ANSWER_MS };

/**
 * Opens a Postgres database.
 *
 * @throws {StoreError} It cannot be reached, or has no tables of this version.
 * @throws {UsageError} The address or the name of the schema is not valid.
 */
export async function openPostgresService(
  url: string,
  schema: string,
  migrate: boolean,
  by?: string,
): Promise<Service> {
  try {
    checkSchema(schema, "the command");
  } catch (error) {
    throw new UsageError("--schema must have 1 to 50 lower-case letters, digits and underscores", { cause: error });
  }
  const connection = await openPool(url, ANSWER_TIMEOUT_MS).catch((error: unknown) => {
    throw error instanceof TypeError ? new UsageError(error.message, { cause: error }) : error;
  });
  const store = await PostgresStore.open(url, { schema, durability: "relaxed" });
  const ask = async (sql: string) => {
    try {
      return await connection.query(toSql(sql, schema));
    } catch (error) {
      throw storeError(error, { writes: false });
    }
  };
  const prepare = async () => {
    if (migrate) await store.migrate();
    else checkVersion(await readVersion(ask), VERSION, `The schema "${schema}" of the database`);
  };
  const close = () => Promise.all([store.close(), connection.close()]);
  return await databaseService("postgres", store, databaseOf(ask), { by, prepare, close });
}

type Ask = (sql: string) => ReturnType<Connection["query"]>;

async function readVersion(ask: Ask): Promise<number> {
  const [table] = await ask(
    "select 1::text as r from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace " +
      "where n.nspname = {literal} and c.relname = 'schema_version'",
  );
  if (table === undefined) return 0;
  const [row] = await ask("select version::text as r from {schema}.schema_version");
  if (row === undefined) throw new StoreError("The table of the version is empty", { code: "internal" });
  return Number(row.r);
}

function databaseOf(ask: Ask): Database {
  return {
    checks: POSTGRES_CHECKS,
    stuckChecks: POSTGRES_STUCK_CHECKS,
    select: async (sql, limit) => (await ask(`select r from (${sql}) q limit ${limit}`)).map(({ r }) => String(r)),
    findBrokenValues: (limit) => findBrokenValues(ask, limit),
    recount: async () => {
      await ask(POSTGRES_RECOUNT);
    },
    backup: null,
  };
}

async function findBrokenValues(ask: Ask, limit: number): Promise<string[]> {
  const found: string[] = [];
  const [last] = await ask("select coalesce(max(seq), 0)::text as r from {schema}.runs");
  for (const [table, columns] of Object.entries(JSON_COLUMNS)) {
    for (const column of columns) {
      // The server parses all of them. It does not say which one is broken: that is found by halves.
      const search = async (from: number, to: number): Promise<void> => {
        if (found.length === limit || await areJson(ask, table, column, from, to)) return;
        if (from === to) {
          const [run] = await ask(`select id as r from {schema}.runs where seq = ${from}`);
          if (run !== undefined) found.push(notJson(String(run.r), table, column));
          return;
        }
        const middle = Math.floor((from + to) / 2);
        await search(from, middle);
        await search(middle + 1, to);
      };
      await search(0, Number(last?.r ?? 0));
    }
  }
  return found;
}

const INVALID_TEXT = "22P02";

async function areJson(ask: Ask, table: string, column: string, from: number, to: number): Promise<boolean> {
  const run = table === "runs" ? "seq" : "run_seq";
  try {
    await ask(
      `select count(${column}::json)::text as r from {schema}.${table}
       where ${run} between ${from} and ${to} and ${column} <> ''`,
    );
    return true;
  } catch (error) {
    if (error instanceof StoreError && sqlState(error.cause) === INVALID_TEXT) return false;
    throw error;
  }
}
