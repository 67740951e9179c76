import { StoreError } from "../../../error.ts";
import type { PostgresDatabase } from "./postgres_database.ts";

const OTHER_ENGINES = [
  {
    name: "CockroachDB",
    pattern: /CockroachDB/,
    reason: "it has neither advisory locks nor LISTEN, and may skip rows that are due",
  },
  {
    name: "YugabyteDB",
    pattern: /-YB-/,
    reason: "its sequences and snapshots work differently, so that readers of events would miss some",
  },
];

/** What a store asks of the server: see `PostgresStoreOptions.durability`. */
export type Durability = "full" | "relaxed";

/**
 * Refuses engines that speak the protocol of PostgreSQL but do not keep what the store relies on, and with `full` a server
 * or a role whose commits do not wait for the disk.
 *
 * @throws {StoreError} It is such a server, or it does not answer (`unavailable`).
 */
export async function checkServer(database: PostgresDatabase, durability: Durability): Promise<void> {
  const version = await database.ask("select pg_catalog.version() as r");
  const engine = OTHER_ENGINES.find(({ pattern }) => pattern.test(version));
  if (engine !== undefined) {
    throw new StoreError(`PostgresStore does not support ${engine.name}: ${engine.reason}. Use PostgreSQL`, {
      code: "internal",
    });
  }
  if (durability === "relaxed" || await database.ask(IS_LOSSY) !== "true") return;
  throw new StoreError(
    "The server may lose what it has acknowledged: synchronous_commit or fsync is off. Change that, or open the store " +
      'with durability: "relaxed"',
    { code: "internal" },
  );
}

const IS_LOSSY =
  "select ('off' in (pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('fsync')))::text as r";
