/** Where the published figures are from. */
export const SOURCE = {
  repository: "https://github.com/hardbyte/postgresql-job-queue-benchmarking",
  commit: "93677cab92dad89ee9eccb0d6e113893de43cbe6",
  file: "results/2026-05-09-full-sweep/SUMMARY.md",
} as const;

/** The queues of the published table, in its order. */
export const PUBLISHED_SYSTEMS = [
  "awa",
  "absurd",
  "oban",
  "pg-boss",
  "procrastinate",
  "river",
  "pgque",
  "pgmq",
] as const;

/**
 * What was published: of chaos the completion rate after the stress, of bloat that during the stress, in percent of that
 * before it. `null`: the cell has not ended as it should.
 */
export const PUBLISHED: { readonly [cell: string]: readonly (number | null)[] } = {
  chaos_postgres_restart: [100, 0, 0, null, 0, 101, 100, 0],
  chaos_pg_backend_kill: [100, 0, 100, null, 0, 101, 100, 0],
  chaos_pool_exhaustion: [100, 87, 86, 96, 99, 100, 100, 100],
  chaos_crash_recovery: [98, 103, 98, 117, 73, 121, 98, 74],
  chaos_repeated_kills: [99, 112, 88, 99, 18, 109, 72, 26],
  idle_in_tx: [75, null, 96, null, null, null, 100, null],
  sustained_high_load: [73, 71, 102, 136, 94, 140, 100, 150],
  active_readers: [71, 74, 98, 101, 63, 100, 100, 39],
  event_burst: [80, null, 100, null, null, null, 100, null],
};
