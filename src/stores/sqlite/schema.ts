import { StoreError } from "../../model/error.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";

// All names begin with `holdfast_`, so that the tables can be in a file of the host application.
//
// A run has one row. `job` is the queue of the version of its job (`queueName()`), and never changes. `queue` is the one
// from which it is claimed: the same, or, for a held run, that of the print to which it is offered, or, for one that is
// claimed alone, that of those (`aloneQueue()`). `position` is its place in the order of claims (`positionOf()`); see
// flow/concurrency_keys.ts. `queue_state` says whether it can be claimed: R (ready), B (blocked by its concurrency key),
// NULL (not due).
// `timer_at` is when a waiting run becomes due without a signal, `due_at` when a delayed one does. `deadline_at` is the
// deadline that applies: `start_by` until the run has begun, then `finish_by`; NULL under a lease and after the end. All
// are NULL for most runs, and their indexes are partial: runs that are finished, asleep or blocked cost a claim nothing.
// Columns that most runs do not use come last: a row is read up to the columns that are needed.
//
// `origin_id` is the id of the first run of a chain of retries from the failure; NULL for a run that is no such retry.
// `last_report_no` is the number of the last report that was stored under the current lease. `leased_at` is when the newest
// lease was given, and `lease_claim` the id of the claim that gave it: it stays after the end of the lease, so that a
// repeated call is known. `abandonments_alone` counts only while `abandonments` is not 0. `slot_at` is NULL if a schedule
// was triggered without a slot; `slot` is what the engine has stored of a slot, as JSON. `parent_pause` is the pause of the
// parent that waits for the run. `trace` of a run is the origin of its trigger, and of a wait that of its signal:
// see `OriginText`. `ended_by` is the request that cancelled the run, and who sent it.
//
// `holdfast_messages` has the messages of each run, numbered by `no` from 1; `input` is NULL if it is the payload, and
// `pause_seq` is the receive that took the message. `receive` of such a pause is JSON: a `Receive`, or `"closed"` once it has
// closed the inbox. A run that has pauses or messages has 1 in `has_pauses`.
//
// Runs, steps and facts share one sequence of numbers, in the order of the commits: see journal/journal.ts. A row of
// the journal has the facts of one commit. `position` is the number of its last fact, `size` the bytes of all facts
// that the journal ever had, up to and with this row. `fact_in_row` says which fact the row of a step is: that the step
// began and ended (1), that it ended (2), or none (0): then the journal has one.
//
// A row of `holdfast_run_times` says when the runs up to `last_seq` were added, from that of the row before: the times of
// the first and the last of them. The newest runs are in no row yet.
//
// A row of `holdfast_chunks` has items of a stream (`Chunk`). `generation` is NULL if it is permanent, and with it all that
// it follows; `items` is NULL if it is void. The rows have numbers of their own: so chunks of many runs that are stored in
// one commit share pages.
const RUN_TABLES = `
CREATE TABLE holdfast_runs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  job TEXT NOT NULL,
  queue TEXT NOT NULL,
  position INTEGER NOT NULL,
  status TEXT NOT NULL,
  labels TEXT NOT NULL,
  idempotency_key TEXT,
  concurrency_key TEXT,
  queue_state TEXT CHECK (queue_state IN ('R', 'B')),
  timer_at INTEGER,
  lease_owner TEXT,
  lease_claim TEXT,
  lease_expires_at INTEGER,
  lease_generation INTEGER NOT NULL DEFAULT 0,
  last_report_no INTEGER NOT NULL DEFAULT 0,
  recorded INTEGER NOT NULL DEFAULT 0,
  has_pauses INTEGER NOT NULL DEFAULT 0,
  interruptions INTEGER NOT NULL DEFAULT 0,
  abandonments INTEGER NOT NULL DEFAULT 0,
  abandonments_alone INTEGER NOT NULL DEFAULT 0,
  ended_by TEXT,
  retrigger_of TEXT,
  retriggered_as TEXT,
  completed_as TEXT,
  origin_id TEXT,
  progress TEXT,
  output TEXT,
  error TEXT,
  failure TEXT,
  failed_step TEXT,
  updated_at INTEGER NOT NULL,
  started_at INTEGER,
  leased_at INTEGER,
  completed_at INTEGER,
  trace TEXT,
  fairness_key TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  key_concurrency INTEGER NOT NULL DEFAULT 1,
  key_rate_limit INTEGER,
  key_rate_period INTEGER,
  start_at INTEGER,
  due_at INTEGER,
  start_within INTEGER,
  start_by INTEGER,
  finish_within INTEGER,
  finish_by INTEGER,
  deadline_at INTEGER,
  schedule_name TEXT,
  slot_at INTEGER,
  slot TEXT,
  parent_id TEXT,
  parent_seq INTEGER,
  parent_pause INTEGER,
  depth INTEGER NOT NULL DEFAULT 0,
  former_key TEXT,
  parked_no INTEGER NOT NULL DEFAULT 0,
  on_end TEXT,
  end_of TEXT
) STRICT;
CREATE UNIQUE INDEX holdfast_runs_idempotency ON holdfast_runs (job, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX holdfast_runs_by_ended ON holdfast_runs (end_of) WHERE end_of IS NOT NULL;
CREATE INDEX holdfast_runs_former_keys ON holdfast_runs (former_key) WHERE former_key IS NOT NULL;
CREATE INDEX holdfast_runs_ready ON holdfast_runs (queue, fairness_key, position) WHERE queue_state = 'R';
CREATE INDEX holdfast_runs_ready_begun ON holdfast_runs (queue, fairness_key, position)
  WHERE started_at IS NOT NULL AND queue_state = 'R';
CREATE INDEX holdfast_runs_special ON holdfast_runs (queue) WHERE queue_state IS NOT NULL AND queue <> job;
CREATE INDEX holdfast_runs_queued_by_key ON holdfast_runs (concurrency_key, queue, position)
  WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL;
CREATE INDEX holdfast_runs_keyed_pending ON holdfast_runs (concurrency_key, job, seq)
  WHERE concurrency_key IS NOT NULL AND status = 'pending';
CREATE INDEX holdfast_runs_keyed_waiting ON holdfast_runs (concurrency_key, job, seq)
  WHERE concurrency_key IS NOT NULL AND status = 'waiting';
CREATE INDEX holdfast_runs_timers ON holdfast_runs (timer_at) WHERE timer_at IS NOT NULL;
CREATE INDEX holdfast_runs_leases ON holdfast_runs (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX holdfast_runs_delayed ON holdfast_runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_runs_deadlines ON holdfast_runs (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX holdfast_runs_by_job ON holdfast_runs (job, seq);
CREATE INDEX holdfast_runs_by_status ON holdfast_runs (status, seq, job);
CREATE INDEX holdfast_runs_ended ON holdfast_runs (status, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX holdfast_runs_by_schedule ON holdfast_runs (schedule_name, seq) WHERE schedule_name IS NOT NULL;
CREATE INDEX holdfast_runs_by_parent ON holdfast_runs (parent_id, seq, status) WHERE parent_id IS NOT NULL;
CREATE INDEX holdfast_runs_open_children ON holdfast_runs (parent_seq, seq)
  WHERE parent_seq IS NOT NULL AND completed_at IS NULL;

CREATE INDEX holdfast_runs_by_failure ON holdfast_runs (failure ->> '$.kind', seq) WHERE failure IS NOT NULL;
CREATE INDEX holdfast_runs_retried ON holdfast_runs (seq) WHERE completed_as IS NOT NULL;
CREATE INDEX holdfast_runs_by_origin ON holdfast_runs (origin_id, completed_at) WHERE origin_id IS NOT NULL;

CREATE TABLE holdfast_run_times (
  last_seq INTEGER PRIMARY KEY,
  first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL
) STRICT;

CREATE TABLE holdfast_counts (
  status TEXT NOT NULL,
  job TEXT NOT NULL,
  runs INTEGER NOT NULL,
  PRIMARY KEY (status, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_counts_by_job ON holdfast_counts (job);

CREATE TABLE holdfast_inputs (
  run_seq INTEGER PRIMARY KEY REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  payload TEXT,
  input TEXT,
  schema_print TEXT
) STRICT;

CREATE TABLE holdfast_labels (
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  PRIMARY KEY (key, value, run_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_labels_by_run ON holdfast_labels (run_seq);

CREATE TABLE holdfast_steps (
  seq INTEGER PRIMARY KEY,
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  name TEXT NOT NULL,
  position INTEGER NOT NULL,
  status TEXT NOT NULL,
  fact_in_row INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL,
  retry_at INTEGER,
  recorded_no INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  completed_at INTEGER,
  output TEXT,
  failure TEXT,
  UNIQUE (run_seq, name)
) STRICT;
CREATE INDEX holdfast_steps_by_position ON holdfast_steps (run_seq, position);
CREATE INDEX holdfast_steps_retrying ON holdfast_steps (run_seq, position) WHERE status = 'retrying';

CREATE TABLE holdfast_pauses (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  metadata TEXT,
  status TEXT NOT NULL,
  awaited INTEGER NOT NULL,
  outcome TEXT,
  payload TEXT,
  signal_id TEXT,
  prepared_no INTEGER,
  recorded_no INTEGER,
  created_at INTEGER NOT NULL,
  deadline_at INTEGER,
  suspended_at INTEGER,
  resolved_at INTEGER,
  first_resumed_at INTEGER,
  total INTEGER,
  added INTEGER,
  unfinished INTEGER,
  payload_schema TEXT,
  trace TEXT,
  receive TEXT,
  UNIQUE (run_seq, kind, name)
) STRICT;
CREATE INDEX holdfast_pauses_by_kind ON holdfast_pauses (run_seq, kind);
CREATE INDEX holdfast_pauses_open_waits ON holdfast_pauses (ifnull(deadline_at, 9e15), seq)
  WHERE kind = 'wait' AND status = 'pending';
CREATE INDEX holdfast_pauses_open_receives ON holdfast_pauses (run_seq, seq)
  WHERE kind = 'receive' AND status = 'pending';
CREATE INDEX holdfast_pauses_closed_inbox ON holdfast_pauses (run_seq) WHERE receive = '"closed"';

CREATE TABLE holdfast_messages (
  seq INTEGER PRIMARY KEY,
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  no INTEGER NOT NULL,
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  payload TEXT NOT NULL,
  input TEXT,
  trace TEXT,
  accepted_at INTEGER NOT NULL,
  pause_seq INTEGER,
  UNIQUE (run_seq, id)
) STRICT;
CREATE INDEX holdfast_messages_by_no ON holdfast_messages (run_seq, no);
CREATE INDEX holdfast_messages_unread ON holdfast_messages (run_seq, no) WHERE pause_seq IS NULL;
CREATE INDEX holdfast_messages_taken ON holdfast_messages (pause_seq) WHERE pause_seq IS NOT NULL;

CREATE TABLE holdfast_logs (
  id TEXT PRIMARY KEY,
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  no INTEGER NOT NULL,
  step_name TEXT,
  level TEXT NOT NULL,
  message TEXT NOT NULL,
  data TEXT,
  written_at INTEGER NOT NULL,
  UNIQUE (run_seq, no)
) STRICT;

CREATE TABLE holdfast_chunks (
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  stream TEXT NOT NULL,
  position INTEGER NOT NULL,
  follows INTEGER NOT NULL,
  first INTEGER NOT NULL,
  count INTEGER NOT NULL,
  size INTEGER NOT NULL,
  at INTEGER NOT NULL,
  generation INTEGER,
  items TEXT,
  UNIQUE (run_seq, stream, position)
) STRICT;
CREATE INDEX holdfast_chunks_permanent ON holdfast_chunks (run_seq, stream, position) WHERE generation IS NULL;

CREATE TABLE holdfast_deleted (
  id TEXT PRIMARY KEY,
  deleted_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_deleted_by_time ON holdfast_deleted (deleted_at);

CREATE TABLE holdfast_journal (
  position INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  size INTEGER NOT NULL,
  facts TEXT NOT NULL
) STRICT;
`;

// A holder of a key is a run that is executed, waits for a retry, or was cancelled under a lease (a ghost).
// `holdfast_starts` has the first claims under a rate, numbered in each scope. `holdfast_openings` says when the rate of
// a key opens for the first run of a queue, if nothing else is in its way. `is_open` is 1 once the run has
// passed the rate: if the clock is set back, the rate is closed again.
//
// `holdfast_heads` has the first claimable run of each queue and fairness key, and its turn. `next_turn` of a fairness key
// is the first turn that it has not had. `turn` of `holdfast_serving` is the turn being served, `keyless` the next turn
// of the runs without a fairness key. All runs of a schedule before `open_from` have ended.
const FLOW_TABLES = `
CREATE TABLE holdfast_holders (
  concurrency_key TEXT NOT NULL,
  run_id TEXT NOT NULL,
  generation INTEGER NOT NULL,
  PRIMARY KEY (concurrency_key, run_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_ghosts (
  run_id TEXT PRIMARY KEY,
  generation INTEGER NOT NULL,
  lease_claim TEXT,
  job TEXT NOT NULL,
  concurrency_key TEXT,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_ghosts_expiring ON holdfast_ghosts (expires_at);
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
  queue TEXT NOT NULL,
  opens_at INTEGER NOT NULL,
  period INTEGER NOT NULL,
  is_open INTEGER NOT NULL,
  PRIMARY KEY (concurrency_key, queue)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_openings_by_time ON holdfast_openings (is_open, opens_at);
CREATE INDEX holdfast_openings_by_queue ON holdfast_openings (queue, is_open, opens_at);

CREATE TABLE holdfast_heads (
  queue TEXT NOT NULL,
  fairness_key TEXT NOT NULL,
  turn INTEGER NOT NULL,
  position INTEGER NOT NULL,
  run_seq INTEGER NOT NULL,
  PRIMARY KEY (queue, fairness_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_heads_by_turn ON holdfast_heads (queue, turn, position);
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

CREATE TABLE holdfast_schedules (
  name TEXT PRIMARY KEY,
  job TEXT NOT NULL,
  options TEXT NOT NULL,
  declared TEXT,
  paused_at INTEGER,
  paused_by TEXT,
  next_at INTEGER,
  last_slot_at INTEGER,
  last_run_id TEXT,
  skipped INTEGER NOT NULL,
  error TEXT,
  version INTEGER NOT NULL,
  open_from INTEGER NOT NULL DEFAULT 0
) STRICT;
`;

// `holdfast_children` has the children of each pause, in a retry of a parent also those that were taken over. `run_seq`
// stays when the child is deleted. Its result and its input are then kept in `result` and `payload`, if the run of the
// pause has not ended; otherwise they are lost. Of a pause on children, `total` is their number, `added` how many there
// are, `unfinished` how many have not ended.
//
// `holdfast_orphans` has the runs that ended while their children had not. Row numbers of runs are never reused.
const CHILD_TABLES = `
CREATE TABLE holdfast_children (
  pause_seq INTEGER NOT NULL REFERENCES holdfast_pauses (seq) ON DELETE CASCADE,
  no INTEGER NOT NULL,
  run_seq INTEGER NOT NULL,
  result TEXT,
  payload TEXT,
  PRIMARY KEY (pause_seq, no)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_children_by_run ON holdfast_children (run_seq);

CREATE TABLE holdfast_orphans (
  parent_seq INTEGER PRIMARY KEY
) STRICT;
`;

// A held run is in no queue until it is offered to the code with a print: then it is in the queue of that print,
// `offered_in`. A row of `holdfast_holds` stays when the run is claimed, or resumed: `since` is NULL unless the run is
// held. `prints` are those that have tried it since its last record (see `addTry()`); `recorded` was its record counter
// when it was held, and `generation` that of the lease that ended then; after a claim that of the lease which the claim
// gave. A row of `holdfast_copies` belongs to a retry from the failure.
//
// Holds and copies have no foreign key, since most deleted runs have none: `deleteHold()` removes them.
const EVOLUTION_TABLES = `
CREATE TABLE holdfast_holds (
  run_seq INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  code TEXT NOT NULL,
  message TEXT NOT NULL,
  details TEXT NOT NULL,
  since INTEGER,
  generation INTEGER NOT NULL,
  recorded INTEGER NOT NULL,
  prints TEXT NOT NULL,
  offered_in TEXT NOT NULL DEFAULT '',
  continues INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX holdfast_holds_by_queue ON holdfast_holds (queue, offered_in, prints, run_seq) WHERE since IS NOT NULL;
CREATE INDEX holdfast_holds_by_run ON holdfast_holds (run_seq, code, queue) WHERE since IS NOT NULL;
CREATE INDEX holdfast_holds_offered ON holdfast_holds (offered_in) WHERE offered_in > '';

CREATE TABLE holdfast_other_inputs (
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  schema_print TEXT NOT NULL,
  input TEXT,
  PRIMARY KEY (run_seq, schema_print)
) STRICT;

CREATE TABLE holdfast_copies (
  run_seq INTEGER PRIMARY KEY,
  copied_up_to INTEGER NOT NULL,
  unfinished TEXT NOT NULL,
  undone TEXT
) STRICT;
`;

// `details` of a worker is JSON (`WorkerDetails`). `limits` has the limits of its jobs, as JSON. `sole_claim` is the last
// claim by which it took a run, if that was the only run that it held then.
//
// `holdfast_attempts` has the attempts at steps that needed more than one; `retry_at` and `failure` are NULL for one that
// completed. `holdfast_interruptions` has the executions that lost their lease without an end: `kind` is `lost` (it
// expired, or was revoked), `released` or `held`.
//
// A row of `holdfast_stats` has what was counted in one slot of time, of `span` milliseconds, for one job, or for all
// together (''). `latencies` is JSON (`LatencyCounts`). The other columns of the row for all jobs are sums of samples.
const OPERATE_TABLES = `
CREATE TABLE holdfast_workers (
  id TEXT PRIMARY KEY,
  jobs TEXT NOT NULL,
  seen_at INTEGER NOT NULL,
  lease_ms INTEGER NOT NULL,
  claim_id TEXT NOT NULL,
  claimed TEXT NOT NULL,
  details TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  stopping INTEGER NOT NULL DEFAULT 0,
  limits TEXT NOT NULL DEFAULT '[]',
  sole_claim TEXT
) STRICT, WITHOUT ROWID;

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

/** The statements that lead from each version of the tables to the next. They never change once they are released. */
export const MIGRATIONS: readonly string[] = [
  RUN_TABLES + FLOW_TABLES + CHILD_TABLES + EVOLUTION_TABLES + OPERATE_TABLES,
];

/**
 * Creates or updates the tables. It is called inside a transaction that holds the write lock: of several processes one
 * makes the change, and the others find it made.
 *
 * @throws {StoreError} The tables were made by a newer version than this one.
 */
export function migrateTables(database: SqliteDatabase, migrations: readonly string[] = MIGRATIONS): void {
  const version = readVersion(database);
  if (version > migrations.length) {
    throw new StoreError(
      `The database has tables of version ${version}; this version of Holdfast knows them up to ${migrations.length}`,
      { code: "internal" },
    );
  }
  if (version === migrations.length) return;
  for (const migration of migrations.slice(version)) database.exec(migration);
  database.exec(`
    CREATE TABLE IF NOT EXISTS holdfast_schema (version INTEGER NOT NULL, id TEXT NOT NULL) STRICT;
    INSERT INTO holdfast_schema SELECT 0, lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM holdfast_schema);
    UPDATE holdfast_schema SET version = ${migrations.length};
  `);
}

/** The version of the tables; 0: there are none. */
export function readVersion(database: SqliteDatabase): number {
  const table = database.get`SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_schema'`;
  if (table === undefined) return 0;
  return database.get<{ version: number }>`SELECT version FROM holdfast_schema`?.version ?? 0;
}
