import type { Host } from "../../model/host.ts";
import { checkOptionNames } from "../../values/option_names.ts";

/** Options of a {@linkcode SqliteStore}. */
export interface SqliteStoreOptions {
  /**
   * `full` (default): what was acknowledged survives a power cut. `normal`: a power cut can lose the last moments,
   * a crash of the process cannot.
   */
  synchronous?: "full" | "normal";
  /**
   * Whether what was deleted is overwritten in the file and in the log beside it within a second (default `false`). If
   * another process reads an older state, that happens as soon as it has finished. Set it in each process that writes
   * to the file; what was deleted without it stays until its space is used again.
   *
   * The facts of a deleted run are erased from the journal within that second, too: an event stream that resumes later
   * does not show the delete.
   *
   * This is not complete: when SQLite moves rows between pages, it can leave parts of them in unused bytes of a page.
   * Only `VACUUM` removes those. If runs of all sizes are deleted at random, up to one value in a hundred stays.
   */
  secureDelete?: boolean;
  /** Time, timers, randomness and ids. Default: those of the system. */
  host?: Host;
}

const STORE_OPTIONS: Record<keyof SqliteStoreOptions, true> = { synchronous: true, secureDelete: true, host: true };

/**
 * Checks the options of a store.
 *
 * @param subject The call, for messages: `SqliteStore.open()`.
 * @throws {TypeError} An option is unknown or not valid.
 */
export function checkStoreOptions(options: SqliteStoreOptions, subject: string): void {
  checkOptionNames(options, STORE_OPTIONS, subject);
  const { synchronous = "full" } = options;
  if (synchronous !== "full" && synchronous !== "normal") {
    throw new TypeError(`synchronous of ${subject} must be "full" or "normal", not "${synchronous}"`);
  }
}
