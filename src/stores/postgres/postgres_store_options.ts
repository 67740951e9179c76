import type { Host } from "../../model/host.ts";
import { kindOf } from "../../values/unknown_values.ts";
import { checkOptionNames, namesOf } from "../../values/option_names.ts";
import { type Listen, listenAt, listenWith, type PostgresListen } from "./notify/listener.ts";
import { checkSchema } from "./sql/names.ts";

/** Options of a {@linkcode PostgresStore}. */
export interface PostgresStoreOptions {
  /**
   * The schema of its tables and functions (default `holdfast`): 1 to 50 lower-case letters, digits and underscores,
   * and no digit first. Services that share a database and not their runs have a schema each.
   */
  schema?: string;
  /**
   * `full` (default): what was acknowledged survives a crash of the server, so `migrate()` refuses a server or a role with
   * `synchronous_commit` or `fsync` off. With an asynchronous standby, a failover can still lose the last moments.
   * `relaxed`: the settings of the server decide what survives.
   */
  durability?: "full" | "relaxed";
  /**
   * The address at which the store listens for the commits of other processes, on a connection of its own: it must lead to
   * the server directly, not through a pooler in transaction mode. Default: for {@linkcode PostgresStore.open} its own
   * address, for {@linkcode PostgresStore.from} none. `null`: the store does not listen. While it does not, the engine
   * polls every 20 ms.
   */
  listenUrl?: string | URL | null;
  /** Listens instead of a connection to `listenUrl`, by means of a client that you have opened. */
  listen?: PostgresListen;
  /**
   * Time, timers, randomness and ids. Default: those of the system, and the clock of the database. A host that is given
   * tells the time instead of the database: only tests do that.
   */
  host?: Host;
}

const STORE_OPTIONS = namesOf<keyof PostgresStoreOptions>()("schema durability listenUrl listen host");

/**
 * Checks the options of a store.
 *
 * @param subject The call, for messages: `PostgresStore.open()`.
 * @throws {TypeError} An option is unknown or not valid.
 */
export function checkStoreOptions(options: PostgresStoreOptions, subject: string): void {
  checkOptionNames(options, STORE_OPTIONS, subject);
  const { schema, durability = "full", listenUrl = null, listen } = options;
  if (schema !== undefined) checkSchema(schema, subject);
  if (durability !== "full" && durability !== "relaxed") {
    throw new TypeError(`durability of ${subject} must be "full" or "relaxed", not "${durability}"`);
  }
  if (listenUrl !== null && typeof listenUrl !== "string" && !(listenUrl instanceof URL)) {
    throw new TypeError(`listenUrl of ${subject} must be an address or null, not ${kindOf(listenUrl)}`);
  }
  if (listen !== undefined && typeof listen !== "function") {
    throw new TypeError(`listen of ${subject} must be a function, not ${kindOf(listen)}`);
  }
}

/**
 * How a store listens; `null`: not at all.
 *
 * @param own The address of the store itself; `null`: not known.
 */
export function listenOf({ listen, ...options }: PostgresStoreOptions, own: string | URL | null): Listen | null {
  const { listenUrl = own } = options;
  if (listen !== undefined) return listenWith(listen);
  return listenUrl === null ? null : listenAt(String(listenUrl));
}
