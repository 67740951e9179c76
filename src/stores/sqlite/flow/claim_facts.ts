import type { SqliteDatabase } from "../sqlite_database.ts";

/** What a claim has to know before it looks for runs; 1: it is so. */
export interface ClaimFacts {
  /** When the next timer of a run expires, or that of a ghost with a concurrency key; `null`: there is none. */
  timerAt: number | null;
  /** When the rate of a key opens next that holds up a run; `null`: none does. */
  openingAt: number | null;
  /**
   * When the rate of a key was opened last, of those keys whose first run has passed it; `null`: no run has passed the
   * rate of its key.
   */
  passedOpeningAt: number | null;
  /** The newest start under a rate; `null`: there is none. */
  newestStart: number | null;
  /** Whether a run with a fairness key can be claimed. */
  hasHeads: 0 | 1;
  /** Whether a run is due that is claimed alone. */
  hasAlone: 0 | 1;
  /** Whether a held run is offered to the code with a print. */
  hasOffers: 0 | 1;
  /** Whether a run is held. */
  hasHeld: 0 | 1;
  /** Whether a job is paused. */
  hasPaused: 0 | 1;
  /** Whether there may be children of runs that have ended. */
  hasOrphans: 0 | 1;
}

/** Reads them in one statement. Conditions such as `timer_at IS NOT NULL` let SQLite use its partial indexes. */
export function readClaimFacts(db: SqliteDatabase): ClaimFacts {
  return db.one<ClaimFacts>`SELECT
    (SELECT min(at) FROM (
      SELECT min(timer_at) AS at FROM holdfast_runs WHERE timer_at IS NOT NULL
      UNION ALL SELECT min(lease_expires_at) FROM holdfast_runs WHERE lease_expires_at IS NOT NULL
      UNION ALL SELECT min(expires_at) FROM holdfast_ghosts
      UNION ALL SELECT min(due_at) FROM holdfast_runs WHERE due_at IS NOT NULL
      UNION ALL SELECT min(deadline_at) FROM holdfast_runs WHERE deadline_at IS NOT NULL)) AS timerAt,
    (SELECT min(opens_at) FROM holdfast_openings WHERE is_open = 0) AS openingAt,
    (SELECT max(opens_at) FROM holdfast_openings WHERE is_open = 1) AS passedOpeningAt,
    (SELECT max(at) FROM holdfast_starts) AS newestStart,
    EXISTS (SELECT 1 FROM holdfast_heads WHERE queue >= '') AS hasHeads,
    EXISTS (SELECT 1 FROM holdfast_holds INDEXED BY holdfast_holds_offered WHERE offered_in > '') AS hasOffers,
    EXISTS (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_special
      WHERE queue_state IS NOT NULL AND queue <> job AND queue >= '' AND substr(queue, -1) = char(9)) AS hasAlone,
    EXISTS (SELECT 1 FROM holdfast_holds INDEXED BY holdfast_holds_by_queue
      WHERE since IS NOT NULL AND queue >= '') AS hasHeld,
    EXISTS (SELECT 1 FROM holdfast_paused_jobs WHERE job >= '') AS hasPaused,
    EXISTS (SELECT 1 FROM holdfast_orphans WHERE parent_seq >= 0) AS hasOrphans`;
}

/** Whether time has something to do, the clock was set back, or there are children to cancel. */
export function hasExpired(facts: ClaimFacts, now: number): boolean {
  const { timerAt, openingAt, passedOpeningAt, newestStart, hasOrphans } = facts;
  if (hasOrphans === 1) return true;
  const at = earliest(timerAt, openingAt);
  if (at !== null && at <= now) return true;
  return (newestStart !== null && newestStart > now) || (passedOpeningAt !== null && passedOpeningAt > now);
}

/** The earlier of two instants. */
export function earliest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? one ?? other : Math.min(one, other);
}
