/**
 * A store for `@holdfast/jobs` that keeps everything in a PostgreSQL database.
 *
 * @example
 * ```ts
 * import { createEngine, type Jobs } from "@holdfast/jobs";
 * import { PostgresStore } from "@holdfast/jobs/postgres";
 *
 * export async function work(url: string, jobs: Jobs) {
 *   await using store = await PostgresStore.open(url); // postgres://user:password@localhost:5432/app
 *   await using engine = createEngine({ store, jobs });
 *   await engine.start();
 *   await engine.trigger("import-csv", { path: "data.csv" });
 * }
 * ```
 *
 * @module
 */

export { PostgresStore } from "./postgres_store.ts";
export type { PostgresStoreOptions } from "./postgres_store_options.ts";
export type { PostgresClient } from "./database/client.ts";
export type { PostgresListen } from "./notify/listener.ts";
export {
  type JoinedDataSourceOptions,
  type PostgresDataSource,
  postgresDataSource,
  type PostgresDataSourceOptions,
  type PostgresTransaction,
  type PostgresTransactionClient,
} from "./transactions/postgres_data_source.ts";
export type { PostgresPool } from "./transactions/drivers.ts";
export type { PostgresWarning } from "./operator_reads.ts";
export {
  type CopyOptions,
  type CopyReport,
  copySqliteToPostgres,
  type RowDigest,
} from "../copy/copy_sqlite_to_postgres.ts";
