import type { Lease } from "../../../model/lease.ts";
import { sql, type SqlPart } from "../statement.ts";

/** The entry of a run under a lease. */
export interface LeasedRun {
  /** The generation of the lease. */
  generation: number;
  /** The claim that gave it. */
  claimId: string;
  /** The number of the row of the run. */
  seq: number;
  /** Its job. */
  job: string;
  /** Its record counter. Out of date if a signal or a timeout was recorded meanwhile. */
  recorded: number;
  /** The number of the last report that was stored under the lease. */
  lastReportNo: number;
  /** Whether it has no pauses, messages, parent and end run, and is no retry. Out of date if another process has sent a message. */
  isPlain: boolean;
}

/**
 * Caches what writes need of the runs that were claimed through a connection: reading the row each time costs more than
 * the write. The condition of the write detects that an entry is out of date.
 */
export class LeaseCache {
  readonly #runs = new Map<string, LeasedRun>();

  /** Caches a run that was claimed, or written to. */
  note(runId: string, run: LeasedRun): void {
    this.#runs.set(runId, run);
  }

  /** Finds the entry of a run under this lease. */
  find({ runId, generation, claimId, recorded }: Lease): LeasedRun | undefined {
    const run = this.#runs.get(runId);
    return run?.generation === generation && run.claimId === claimId && run.recorded >= recorded ? run : undefined;
  }

  /** Notes that a run has a pause or a message now. */
  notePause(runId: string): void {
    const run = this.#runs.get(runId);
    if (run !== undefined) run.isPlain = false;
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

/** The condition that a lease is the current one of a row of `holdfast_runs`. */
export function underLease({ runId, generation, claimId, recorded }: Lease): SqlPart {
  return sql`id = ${runId} AND lease_generation = ${generation} AND lease_claim = ${claimId} AND recorded >= ${recorded}
    AND status = 'running'`;
}
