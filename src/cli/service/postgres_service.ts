import { StoreError } from "../../error.ts";
import { POSTGRES_CHECKS, POSTGRES_RECOUNT, POSTGRES_STUCK_CHECKS } from "../../stores/postgres/checks.ts";
import { type Connection, openPool, storeError } from "../../stores/postgres/database/client.ts";
import { PostgresStore } from "../../stores/postgres/postgres_store.ts";
import { checkSchema, toSql, VERSION } from "../../stores/postgres/sql/names.ts";
import { UsageError } from "../usage_error.ts";
import type { Database } from "./database.ts";
import { databaseService } from "./database_service.ts";
import type { Service } from "./service.ts";
import { checkVersion } from "./table_version.ts";

// A check reads whole tables.
const MAX_ANSWER_MS = 600_000;
const ANSWER_TIMEOUT_MS = { leases: MAX_ANSWER_MS, writes: MAX_ANSWER_MS, reads: MAX_ANSWER_MS };

/**
 * Opens a Postgres database.
 *
 * @throws {StoreError} It cannot be reached, or has no tables of this version.
 * @throws {UsageError} The address or the name of the schema is not valid.
 */
export async function openPostgresService(url: string, schema: string, migrate: boolean): Promise<Service> {
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
  try {
    if (migrate) await store.migrate();
    else checkVersion(await readVersion(ask), VERSION, `The schema "${schema}" of the database`);
  } catch (error) {
    await Promise.all([store.close(), connection.close()]);
    throw error;
  }
  const service = databaseService("postgres", store, databaseOf(ask));
  return { ...service, close: () => Promise.all([service.close(), connection.close()]).then(() => {}) };
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
    recount: async () => {
      await ask(POSTGRES_RECOUNT);
    },
    backup: null,
  };
}
