import type { SqliteDatabase } from "../sqlite_database.ts";

/** What a claim has to know before it looks for runs. */
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
  hasHeads: boolean;
  /** Whether a run is due that is claimed alone. */
  hasAlone: boolean;
  /** Whether a held run is offered to the code with a print. */
  hasOffers: boolean;
  /** Whether a run is held. */
  hasHeld: boolean;
  /** Whether a job is paused. */
  hasPaused: boolean;
  /** Whether there may be children of runs that have ended. */
  hasOrphans: boolean;
}

interface FactsRow {
  timer_at: number | null;
  opening_at: number | null;
  passed_opening_at: number | null;
  newest_start: number | null;
  has_heads: number;
  has_offers: number;
  has_alone: number;
  has_held: number;
  has_paused: number;
  has_orphans: number;
}

/** Reads them in one statement. Conditions such as `timer_at IS NOT NULL` let SQLite use its partial indexes. */
export function readClaimFacts(db: SqliteDatabase): ClaimFacts {
  const row = db.one<FactsRow>`SELECT
    (SELECT min(at) FROM (
      SELECT min(timer_at) AS at FROM holdfast_runs WHERE timer_at IS NOT NULL
      UNION ALL SELECT min(lease_expires_at) FROM holdfast_runs WHERE lease_expires_at IS NOT NULL
      UNION ALL SELECT min(expires_at) FROM holdfast_ghosts
      UNION ALL SELECT min(due_at) FROM holdfast_runs WHERE due_at IS NOT NULL
      UNION ALL SELECT min(deadline_at) FROM holdfast_runs WHERE deadline_at IS NOT NULL)) AS timer_at,
    (SELECT min(opens_at) FROM holdfast_openings WHERE is_open = 0) AS opening_at,
    (SELECT max(opens_at) FROM holdfast_openings WHERE is_open = 1) AS passed_opening_at,
    (SELECT max(at) FROM holdfast_starts) AS newest_start,
    EXISTS (SELECT 1 FROM holdfast_heads WHERE queue >= '') AS has_heads,
    EXISTS (SELECT 1 FROM holdfast_holds INDEXED BY holdfast_holds_offered WHERE offered_in > '') AS has_offers,
    EXISTS (SELECT 1 FROM holdfast_runs INDEXED BY holdfast_runs_special
      WHERE queue_state IS NOT NULL AND queue <> job AND queue >= '' AND substr(queue, -1) = char(9)) AS has_alone,
    EXISTS (SELECT 1 FROM holdfast_holds INDEXED BY holdfast_holds_by_queue
      WHERE since IS NOT NULL AND queue >= '') AS has_held,
    EXISTS (SELECT 1 FROM holdfast_paused_jobs WHERE job >= '') AS has_paused,
    EXISTS (SELECT 1 FROM holdfast_orphans WHERE parent_seq >= 0) AS has_orphans`;
  return {
    timerAt: row.timer_at,
    openingAt: row.opening_at,
    passedOpeningAt: row.passed_opening_at,
    newestStart: row.newest_start,
    hasHeads: row.has_heads === 1,
    hasOffers: row.has_offers === 1,
    hasAlone: row.has_alone === 1,
    hasHeld: row.has_held === 1,
    hasPaused: row.has_paused === 1,
    hasOrphans: row.has_orphans === 1,
  };
}

/** Whether time has something to do, the clock was set back, or there are children to cancel. */
export function hasExpired(facts: ClaimFacts, now: number): boolean {
  const { timerAt, openingAt, passedOpeningAt, newestStart, hasOrphans } = facts;
  if (hasOrphans) return true;
  const at = earliest(timerAt, openingAt);
  if (at !== null && at <= now) return true;
  return (newestStart !== null && newestStart > now) || (passedOpeningAt !== null && passedOpeningAt > now);
}

/** The earlier of two instants. */
export function earliest(one: number | null, other: number | null): number | null {
  return one === null || other === null ? one ?? other : Math.min(one, other);
}
