// Most runs use no flow: for these only `flow` of `holdfast_runs` is new, and it is NULL. A run that uses any of it has
// `flow` 1 and a row in `holdfast_flow`, with which it stands in line: its own `queue_state` stays NULL.
//
// `position` is the place in the order of claims (`positionOf`). `begun` says whether the run was claimed before.
// `due_at` is the start of a run that is still delayed. `deadline_at` is the deadline that applies: `start_by` until the
// run has begun, then `finish_by`; NULL under a lease and after the end.
//
// A holder of a key is a run that is executed, waits for a retry, or was cancelled under a lease (a ghost).
// `holdfast_starts` has the first claims under a rate, numbered in each scope. `holdfast_openings` says when the rate of
// a key opens for the first run of a job in its line, if nothing else is in its way. `is_open` is 1 once the run has
// passed the rate: if the clock is set back, the rate is closed again.
//
// `holdfast_heads` has the first claimable run of each job and fairness key, and its turn. `next_turn` of a fairness key
// is the first turn that it has not had. `turn` of `holdfast_serving` is the turn being served, `keyless` the next turn
// of the runs without a fairness key.

/** The tables of flow control, the second version of the tables. */
export const FLOW_TABLES = `
ALTER TABLE holdfast_runs ADD COLUMN flow INTEGER;
CREATE INDEX holdfast_runs_ready_begun ON holdfast_runs (job, seq)
  WHERE queue_state = 'R' AND started_at IS NOT NULL;

CREATE TABLE holdfast_flow (
  run_seq INTEGER PRIMARY KEY REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  job TEXT NOT NULL,
  concurrency_key TEXT,
  fairness_key TEXT,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL,
  queue_state TEXT CHECK (queue_state IN ('R', 'B')),
  begun INTEGER NOT NULL,
  key_concurrency INTEGER NOT NULL,
  key_rate_limit INTEGER,
  key_rate_period INTEGER,
  start_at INTEGER,
  due_at INTEGER,
  start_within INTEGER,
  start_by INTEGER,
  finish_within INTEGER,
  finish_by INTEGER,
  deadline_at INTEGER
) STRICT;
CREATE INDEX holdfast_flow_ready ON holdfast_flow (job, fairness_key, position) WHERE queue_state = 'R';
CREATE INDEX holdfast_flow_ready_begun ON holdfast_flow (job, fairness_key, position)
  WHERE queue_state = 'R' AND begun = 1;
CREATE INDEX holdfast_flow_ready_by_key ON holdfast_flow (concurrency_key, job)
  WHERE concurrency_key IS NOT NULL AND queue_state = 'R';
CREATE INDEX holdfast_flow_queued_by_key ON holdfast_flow (concurrency_key, job, position)
  WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL;
CREATE INDEX holdfast_flow_queued_by_age ON holdfast_flow (concurrency_key, job, run_seq)
  WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL;
CREATE INDEX holdfast_flow_delayed_by_key ON holdfast_flow (concurrency_key, job, due_at)
  WHERE concurrency_key IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX holdfast_flow_delayed ON holdfast_flow (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_flow_deadlines ON holdfast_flow (deadline_at) WHERE deadline_at IS NOT NULL;

CREATE TABLE holdfast_holders (
  concurrency_key TEXT NOT NULL,
  run_id TEXT NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (concurrency_key, run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_ghosts (
  run_id TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  job TEXT NOT NULL,
  concurrency_key TEXT,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_ghosts_expiring ON holdfast_ghosts (expires_at);
CREATE INDEX holdfast_ghosts_with_key ON holdfast_ghosts (expires_at) WHERE concurrency_key IS NOT NULL;
CREATE INDEX holdfast_ghosts_by_job ON holdfast_ghosts (job, expires_at);

CREATE TABLE holdfast_starts (
  scope TEXT NOT NULL,
  no INTEGER NOT NULL,
  at INTEGER NOT NULL,
  period INTEGER NOT NULL,
  PRIMARY KEY (scope, no)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_starts_by_time ON holdfast_starts (at, period);

CREATE TABLE holdfast_openings (
  concurrency_key TEXT NOT NULL,
  job TEXT NOT NULL,
  opens_at INTEGER NOT NULL,
  period INTEGER NOT NULL,
  is_open INTEGER NOT NULL,
  PRIMARY KEY (concurrency_key, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_openings_by_time ON holdfast_openings (is_open, opens_at);
CREATE INDEX holdfast_openings_by_job ON holdfast_openings (job, is_open, opens_at);

CREATE TABLE holdfast_heads (
  job TEXT NOT NULL,
  fairness_key TEXT NOT NULL,
  turn INTEGER NOT NULL,
  position INTEGER NOT NULL,
  run_seq INTEGER NOT NULL,
  PRIMARY KEY (job, fairness_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_heads_by_turn ON holdfast_heads (job, turn, position);
CREATE INDEX holdfast_heads_by_key ON holdfast_heads (fairness_key);

CREATE TABLE holdfast_fairness_keys (
  fairness_key TEXT PRIMARY KEY,
  next_turn INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_fairness_keys_by_turn ON holdfast_fairness_keys (next_turn);

CREATE TABLE holdfast_serving (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  turn INTEGER NOT NULL,
  keyless INTEGER NOT NULL
) STRICT;
INSERT INTO holdfast_serving VALUES (1, 0, 0);

CREATE TABLE holdfast_paused_jobs (
  job TEXT PRIMARY KEY,
  paused_at INTEGER NOT NULL,
  paused_by TEXT,
  note TEXT
) STRICT, WITHOUT ROWID;

INSERT INTO holdfast_holders SELECT concurrency_key, run_id, generation FROM holdfast_keys;
INSERT INTO holdfast_ghosts
  SELECT k.run_id, k.generation, coalesce(r.job, ''), k.concurrency_key, k.expires_at
  FROM holdfast_keys k LEFT JOIN holdfast_runs r ON r.id = k.run_id WHERE k.expires_at IS NOT NULL;
INSERT INTO holdfast_flow (run_seq, job, concurrency_key, priority, position, queue_state, begun, key_concurrency)
  SELECT r.seq, r.job, r.concurrency_key, 0, r.seq - 4503599627370496, 'R', 1, 1
  FROM holdfast_keys k JOIN holdfast_runs r ON r.id = k.run_id WHERE r.queue_state IS NOT NULL;
UPDATE holdfast_runs SET flow = 1, queue_state = NULL WHERE seq IN (SELECT run_seq FROM holdfast_flow);
DROP TABLE holdfast_keys;
`;
