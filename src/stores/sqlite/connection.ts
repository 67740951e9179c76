import { StoreError } from "../../model/error.ts";
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
 * @throws {StoreError} The file cannot be opened or made, or the runtime has no `node:sqlite`.
 */
export async function openConnection(name: string, refusal: string): Promise<Connection> {
  const { DatabaseSync } = await import("node:sqlite").catch((cause) => {
    const runtimes = "Node 22.13, Deno 2.2.15 or Bun 1.4, or a later version";
    throw new StoreError(
      `${refusal}: this runtime has no node:sqlite. It needs ${runtimes}, or SqliteStore.from() with another library`,
      { cause },
    );
  });
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
