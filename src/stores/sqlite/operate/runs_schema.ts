// `leased_at` is when the newest lease of a run was given. `limits` of a worker has the limits of its jobs, as JSON.
//
// `holdfast_attempts` has the attempts at steps that needed more than one; `retry_at` and `failure` are NULL for one that
// completed. `holdfast_interruptions` has the executions that lost their lease without an end: `kind` is `lost` (it
// expired, or was revoked), `released` or `held`.

/** The tables for what is shown of runs. */
export const TIMELINE_TABLES = `
ALTER TABLE holdfast_runs ADD COLUMN leased_at INTEGER;
ALTER TABLE holdfast_workers ADD COLUMN limits TEXT NOT NULL DEFAULT '[]';
ALTER TABLE holdfast_pauses ADD COLUMN payload_schema TEXT;
CREATE INDEX holdfast_pauses_open_waits ON holdfast_pauses (ifnull(deadline_at, 9e15), seq)
  WHERE kind = 'wait' AND status = 'pending';

CREATE TABLE holdfast_attempts (
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  step_name TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  retry_at INTEGER,
  failure TEXT,
  PRIMARY KEY (run_seq, step_name, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_interruptions (
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  generation INTEGER NOT NULL,
  kind TEXT NOT NULL,
  worker TEXT,
  leased_at INTEGER,
  ended_at INTEGER NOT NULL,
  PRIMARY KEY (run_seq, generation)
) STRICT, WITHOUT ROWID;
`;
