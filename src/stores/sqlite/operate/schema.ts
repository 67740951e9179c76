// A row of `holdfast_stats` has what was counted in one slot of time, of `span` milliseconds, for one job, or for all
// together (''). `latencies` is JSON (`LatencyCounts`). The other columns of the row for all jobs are sums of samples.
//
// `details` of a worker is JSON (`WorkerDetails`), or `{}` for one of an earlier version.

/** The tables for operators, the fourth version of the tables. */
export const OPERATE_TABLES = `
ALTER TABLE holdfast_workers ADD COLUMN details TEXT NOT NULL DEFAULT '{}';
ALTER TABLE holdfast_workers ADD COLUMN started_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_workers ADD COLUMN stopping INTEGER NOT NULL DEFAULT 0;
UPDATE holdfast_workers SET started_at = seen_at;

CREATE TABLE holdfast_stats (
  span INTEGER NOT NULL,
  job TEXT NOT NULL,
  at INTEGER NOT NULL,
  triggered INTEGER NOT NULL,
  started INTEGER NOT NULL,
  completed INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  cancelled INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  step_failures INTEGER NOT NULL,
  latencies TEXT NOT NULL,
  samples INTEGER NOT NULL,
  pending INTEGER NOT NULL,
  running INTEGER NOT NULL,
  waiting INTEGER NOT NULL,
  busy INTEGER NOT NULL,
  PRIMARY KEY (span, job, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_stats_by_time ON holdfast_stats (span, at, job);
`;
