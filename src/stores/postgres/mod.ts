/**
 * A store for `@holdfast/jobs` that keeps everything in a PostgreSQL database.
 *
 * ```ts ignore
 * import { createEngine } from "@holdfast/jobs";
 * import { PostgresStore } from "@holdfast/jobs/postgres";
 *
 * const store = await PostgresStore.open("postgres://user:password@localhost:5432/app");
 * const engine = createEngine({ store, jobs });
 * ```
 *
 * @module
 */

export { PostgresStore, type PostgresStoreOptions } from "./postgres_store.ts";
export type { PostgresClient } from "./database/client.ts";
export type { PostgresListen } from "./notify/listen.ts";
export type { PostgresWarning } from "./reads/warnings.ts";
export { type CopyOptions, type CopyReport, copySqliteToPostgres } from "../copy/copy_sqlite_to_postgres.ts";
export type { RowDigest } from "../copy/row_digest.ts";
