/**
 * An engine as the workloads use it: the same calls for ours and for the peers', so that all are measured by the same
 * code.
 */
export interface BenchEngine extends AsyncDisposable {
  /** Asks for a run. Resolves when it is stored. */
  trigger(job: string, input: BenchInput): Promise<unknown>;
  /** Asks for several runs in one call; `null` if the engine cannot. */
  readonly batchTrigger: ((job: string, inputs: readonly BenchInput[]) => Promise<unknown>) | null;
  /** Asks for a run and resolves when it has completed. */
  triggerAndWait(job: string, input: BenchInput): Promise<unknown>;
  /** Starts the worker. */
  start(): Promise<void>;
  /** Resolves when so many runs have completed since the engine was opened, and that is stored. */
  completed(count: number): Promise<void>;
  /** Reads the newest 50 runs that match and answers how many it got; `undefined` if the engine has no such filter. */
  list?(filter: BenchFilter): Promise<number> | undefined;
  /** When the last claim that brought a run began, as `performance.now()` tells it; `null` if it cannot be seen. */
  readonly claimedAt: number | null;
}

/** What a run is given. */
export type BenchInput = {
  /** Any number. */
  n: number;
};

/** Which runs to list. */
export interface BenchFilter {
  /** Of which job. */
  jobName?: string;
  /** How they stand. */
  status?: "completed";
  /** With which labels. */
  labels?: Record<string, string>;
}

/** What a job does. */
export type BenchJob = (tools: BenchTools, input: BenchInput) => Promise<void> | void;

/** What a job works with. */
export interface BenchTools {
  /** Does something and records what it returns. */
  step<T>(name: string, work: () => T): Promise<unknown>;
  /** Pauses for so many milliseconds without holding the worker; not every engine can. */
  sleep?(name: string, ms: number): Promise<void>;
  /**
   * Makes the engine execute the job once more from the beginning, as soon as it can: this call does not return the
   * first time, and at once in the next execution.
   */
  replay(): Promise<void>;
}

/** How an engine is opened. */
export interface OpenOptions {
  /** Where its database is, or will be. */
  path: string;
  /** Its jobs by name. */
  jobs: Readonly<Record<string, BenchJob>>;
  /** How many runs it executes at once. Default: what the engine does by default. */
  concurrency?: number;
  /** Whether it polls as often as it can be told to, instead of by default. Ours is never told. */
  fastest?: boolean;
}

/** Opens an engine, with its tables made and the worker not yet started. */
export type OpenEngine = (options: OpenOptions) => Promise<BenchEngine>;
