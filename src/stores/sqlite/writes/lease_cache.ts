import type { Lease } from "../../../lease.ts";

/** What is known of a run under a lease. */
export interface HeldRun {
  /** Of the lease. */
  generation: number;
  /** The place of the run. */
  seq: number;
  /** Its job. */
  job: string;
  /** How much is recorded in it, if nobody else has recorded something meanwhile: a signal, or a timeout. */
  recorded: number;
  /** The number of the last report that was kept under the lease. */
  lastReportNo: number;
}

/**
 * What is known of the runs that were claimed through a connection. Whoever writes to them need not have it answered
 * each time, which costs more than the write; what has changed meanwhile is asked for in the condition of the write.
 */
export class LeaseCache {
  readonly #runs = new Map<string, HeldRun>();

  /** Takes note of a run that was claimed, or written to. */
  note(runId: string, run: HeldRun): void {
    this.#runs.set(runId, run);
  }

  /** What is known of a run under this lease. */
  find({ runId, generation }: Lease): HeldRun | undefined {
    const run = this.#runs.get(runId);
    return run?.generation === generation ? run : undefined;
  }

  /** Forgets all runs: what was noted in a transaction that is rolled back is not so. */
  clear(): void {
    this.#runs.clear();
  }

  /** Forgets a run that is not held any more, or of which something else is true. */
  forget(runId: string): void {
    this.#runs.delete(runId);
  }
}
