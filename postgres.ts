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

export { PostgresStore, type PostgresStoreOptions } from "./src/stores/postgres/postgres_store.ts";
export type { PostgresClient } from "./src/stores/postgres/client.ts";
export type { PostgresWarning } from "./src/stores/postgres/reads/warnings.ts";
