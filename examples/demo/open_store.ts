import { SqliteStore, type Store } from "@holdfast/jobs";

/** Opens the store of the demo: a SQLite file, or, for an address (`postgres://...`), a PostgreSQL database. */
export async function openStore(database: string): Promise<Store> {
  if (!isAddress(database)) return await SqliteStore.open(database);
  const { PostgresStore } = await import("@holdfast/jobs/postgres");
  return await PostgresStore.open(database, { schema: "holdfast_demo" });
}

/** Whether it is an address of a PostgreSQL database, and not the path of a SQLite file. */
export function isAddress(database: string): boolean {
  return /^postgres(ql)?:\/\//.test(database);
}
