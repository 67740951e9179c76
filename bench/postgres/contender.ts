import { loadOther } from "../load_other.ts";

/** An engine on PostgreSQL, as the workloads use it. */
export interface PostgresEngine {
  /** Adds so many runs of five steps. */
  add(count: number): Promise<void>;
  /** Starts to execute runs. */
  start(): Promise<void>;
  /** Stops, and closes the connections. */
  close(): Promise<void>;
}

/** What can be measured on PostgreSQL. */
export interface PostgresContender {
  /** Opens it on an empty database, or on one that has been opened before, with its tables made. */
  open(options: PostgresOptions): Promise<PostgresEngine>;
  /** A statement that returns a row while not all runs have completed. */
  readonly unfinished: string;
}

/** How an engine is opened. */
export interface PostgresOptions {
  /** The address of a database of its own. */
  url: string;
  /** How many runs it executes at once. */
  concurrency: number;
}

/** How many steps a run has. */
export const STEPS = 5;

/** What the modules of other engines export. */
type Other = Record<"dbos" | "durably" | "openworkflow" | "pgBoss", PostgresContender>;

/** Loads a contender. */
export const POSTGRES_CONTENDERS = {
  raw: async () => (await import("./raw.ts")).raw,
  holdfast: async () => (await import("./holdfast.ts")).holdfast,
  dbos: async () => (await loadOther<Other>("postgres/dbos.ts")).dbos,
  durably: async () => (await loadOther<Other>("postgres/durably.ts")).durably,
  openworkflow: async () => (await loadOther<Other>("postgres/openworkflow.ts")).openworkflow,
  "pg-boss": async () => (await loadOther<Other>("postgres/pg_boss.ts")).pgBoss,
} as const satisfies Record<string, () => Promise<PostgresContender>>;

/** The name of a contender. */
export type PostgresName = keyof typeof POSTGRES_CONTENDERS;
