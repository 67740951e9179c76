import { DatabaseSync } from "node:sqlite";
import os from "node:os";

/** Where numbers were measured. */
export interface Machine {
  /** How many cores it has. */
  cores: number;
  /** Which they are. */
  processor: string;
  /** How many processes wanted a core before anything was measured, over the last minute. */
  load: number;
  /** The version of Deno. */
  deno: string;
  /** The version of SQLite. */
  sqlite: string;
  /** Where the databases are. */
  folder: string;
}

/** Describes the machine. */
export function describeMachine(folder: string): Machine {
  using db = new DatabaseSync(":memory:");
  return {
    cores: os.cpus().length,
    processor: os.cpus()[0]?.model ?? "unknown",
    load: Deno.loadavg()[0]!,
    deno: Deno.version.deno,
    sqlite: String(db.prepare("SELECT sqlite_version() AS version").get()!.version),
    folder,
  };
}
