import type { Lease } from "../../../lease.ts";

/** What is known of a run under a lease. */
export interface HeldRun {
  /** Of the lease. */
  generation: number;
  /** The number of the row of the run. */
  seq: number;
  /** Its job. */
  job: string;
  /** How much is recorded in it, if nobody else has recorded something meanwhile: a signal, or a timeout. */
  recorded: number;
  /** The number of the last report that was kept under the lease. */
  lastReportNo: number;
}

/**
 * What is known of the runs that were claimed through a connection. Writes use it instead of reading the row each
 * time, which costs more than the write; the condition of the write detects changes.
 */
export class LeaseCache {
  readonly #runs = new Map<string, HeldRun>();

  /** Caches a run that was claimed, or written to. */
  note(runId: string, run: HeldRun): void {
    this.#runs.set(runId, run);
  }

  /** What is known of a run under this lease. */
  find({ runId, generation }: Lease): HeldRun | undefined {
    const run = this.#runs.get(runId);
    return run?.generation === generation ? run : undefined;
  }

  /** Clears the cache: entries of a transaction that is rolled back are wrong. */
  clear(): void {
    this.#runs.clear();
  }

  /** Removes a run that is no longer held, or whose entry is out of date. */
  forget(runId: string): void {
    this.#runs.delete(runId);
  }
}
