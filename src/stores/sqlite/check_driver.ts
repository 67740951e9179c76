import { isOpen, type SqliteDriver } from "./sqlite_database.ts";
import { kindOf } from "../../values/kind_of.ts";
import { propertyOf } from "../../values/property_of.ts";

// It has octet_length(): https://www.sqlite.org/releaselog/3_43_0.html
const OLDEST_SQLITE = [3, 43] as const;
const MORE_THAN_32_BITS = 1_700_000_000_000;

/**
 * Checks that an open database can be used by a `SqliteStore`.
 *
 * @throws {TypeError} It is no database, is closed, cuts integers off at 32 bits, returns every integer as a bigint, or is of a SQLite
 * before 3.43.
 */
export function checkDriver(database: SqliteDriver): void {
  if (["exec", "prepare"].some((method) => typeof propertyOf(database, method) !== "function")) {
    throw new TypeError(
      `SqliteStore.from() takes an open database, with exec() and prepare(), not ${kindOf(database)}`,
    );
  }
  if (!isOpen(database)) throw new TypeError("SqliteStore.from() takes an open database, and this one is closed");
  const { value, version } = database.prepare(`SELECT ${MORE_THAN_32_BITS} AS value, sqlite_version() AS version`)
    .get() as { value: unknown; version?: unknown }; // every driver returns a row as an object of the column names
  if (typeof value === "bigint") {
    throw new TypeError("The database returns every integer as a bigint; open it without that option");
  }
  if (value !== MORE_THAN_32_BITS) {
    throw new TypeError("The database cuts integers off at 32 bits; open it with `int64: true`");
  }
  if (isTooOld(String(version))) {
    throw new TypeError(
      `SqliteStore needs SQLite ${OLDEST_SQLITE.join(".")} or later, and the database has ${version}`,
    );
  }
}

function isTooOld(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldestMajor, oldestMinor] = OLDEST_SQLITE;
  return major < oldestMajor || (major === oldestMajor && minor < oldestMinor);
}
