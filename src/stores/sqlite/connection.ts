import { createDatabaseFile, DatabaseFileGuard } from "./database_file_guard.ts";
import { type SqliteDriver, storeError } from "./sqlite_database.ts";

/** The connection of a {@linkcode SqliteStore}. */
export interface Connection {
  /** The open connection. */
  driver: SqliteDriver;
  /** Closes it, if the store has opened it. */
  close(): void;
  /** The file behind it, if it is watched. */
  file: DatabaseFileGuard | null;
}

const MEMORY = ":memory:";

/**
 * Opens a file with `node:sqlite`, or creates it.
 *
 * @param name The path of the file, or `":memory:"`.
 * @param refusal What cannot be done if it cannot be opened: the beginning of the message.
 * @throws {StoreError} The file cannot be opened or made.
 */
export async function openConnection(name: string, refusal: string): Promise<Connection> {
  const { DatabaseSync } = await import("node:sqlite");
  if (name !== MEMORY) await createDatabaseFile(name, refusal);
  let driver: InstanceType<typeof DatabaseSync>;
  try {
    driver = new DatabaseSync(name);
  } catch (error) {
    throw storeError(error, { refusal });
  }
  return {
    driver: driver as unknown as SqliteDriver, // `SqliteValue` leaves out the types that the store does not use
    close: () => driver.close(),
    file: name === MEMORY ? null : await DatabaseFileGuard.watch(name),
  };
}
