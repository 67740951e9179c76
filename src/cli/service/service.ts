import type { Engine } from "../../engine/engine.ts";
import type { Database } from "./database.ts";

/** What the commands ask: a service over HTTP, or a handler of this process over a database. */
export interface Service {
  /** What it is. */
  readonly kind: "sqlite" | "postgres" | "http";
  /**
   * Asks a route.
   *
   * @param path The path after the base, with its query.
   * @throws {StoreError} It cannot be reached.
   */
  ask(path: string, init: RequestInit): Promise<Response>;
  /** The database behind it; `null`: it is not reached from here. */
  readonly database: Database | null;
  /** An engine on that database, without jobs: it retriggers runs without their code. `null`: there is no database. */
  readonly engine: Engine | null;
  /** Closes it. */
  close(): Promise<void>;
}
