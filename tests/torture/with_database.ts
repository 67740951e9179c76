import { DatabaseSync } from "node:sqlite";

/** Calls a function with the database of a file, and closes it afterwards. */
export function withDatabase<T>(path: string, work: (database: DatabaseSync) => T): T {
  using database = new DatabaseSync(path, { timeout: 10_000 });
  return work(database);
}
