/** What a worker of the storm is like. */
export interface WorkerKind {
  /** The version of its job `plain`. */
  version: number;
  /** By how many milliseconds its clock is off. */
  clockOffsetMs: number;
  /** The jobs that it knows; `null`: all. */
  jobs: string[] | null;
}

/** The workers of the storm. */
export const WORKER_KINDS: readonly WorkerKind[] = [
  { version: 1, clockOffsetMs: 0, jobs: null },
  { version: 2, clockOffsetMs: -60_000, jobs: null },
  { version: 1, clockOffsetMs: 60_000, jobs: ["keyed", "limited", "child"] },
];
