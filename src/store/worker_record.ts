/** What a worker says of itself with each claim. */
export interface WorkerDetails {
  /** Its name in the options; `null`: it has none. */
  name: string | null;
  /** The name of its machine; `null`: the process may not read it. */
  hostname: string | null;
  /** The id of its process; `null`: the runtime does not say it. */
  pid: number | null;
  /** The runtime and its version, such as `deno 2.9.6`. */
  runtime: string;
  /** The version of this package. */
  version: string;
  /** What identifies the deployed code, such as a commit; `null`: the options do not say it. */
  deployment: string | null;
  /** How many runs it executes at the same time at most. */
  concurrency: number;
}

/** A worker as a store knows it. Instants are milliseconds by the store's clock. */
export interface WorkerRecord {
  /** Its id. */
  id: string;
  /** What it said of itself with its last claim. */
  details: WorkerDetails;
  /** The names of the jobs that it knows, aliases included, sorted. */
  jobNames: string[];
  /** When it claimed first. */
  startedAt: number;
  /** When it claimed last, as far as that was stored. */
  seenAt: number;
  /** Whether it has said that it claims nothing more. */
  isStopping: boolean;
  /** How many runs are under its leases. */
  leases: number;
  /** How long its leases last unless renewed, in milliseconds. */
  leaseMs: number;
}

/** The workers of a store. */
export interface WorkerList {
  /** The workers that claimed within the last 100 lengths of their leases, by their first claims. */
  workers: WorkerRecord[];
  /** The current instant of the store's clock. */
  now: number;
}
