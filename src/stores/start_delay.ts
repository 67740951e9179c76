/** What tells how long a claimed run was due before its first claim. */
export interface StartedRow {
  /** 1 under the first lease. */
  lease_generation: number;
  /** When it was triggered. */
  created_at: number;
  /** When its delay ended; `null`: it had none. */
  start_at: number | null;
  /** When it was claimed first. */
  started_at: number;
}

/** How long a run was due before its first claim, in milliseconds; `null` if this is a later one. */
export function startDelay({ lease_generation, created_at, start_at, started_at }: StartedRow): number | null {
  return lease_generation > 1 ? null : Math.max(0, started_at - Math.max(created_at, start_at ?? created_at));
}
