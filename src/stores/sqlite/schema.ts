import { StoreError } from "../../model/error.ts";
import { CHILD_TABLES } from "./children/schema.ts";
import { EVOLUTION_TABLES } from "./evolution/schema.ts";
import { FLOW_TABLES } from "./flow/schema.ts";
import { TIMELINE_TABLES } from "./operate/runs_schema.ts";
import { OPERATE_TABLES } from "./operate/schema.ts";
import { TRACING_TABLES } from "./tracing/schema.ts";
import type { SqliteDatabase } from "./sqlite_database.ts";

// All names begin with `holdfast_`, so that the tables can be in a file of the host application.
//
// `queue_state` says whether a run can be claimed: 'R' (ready), 'B' (blocked by its concurrency key), NULL (not due).
// `timer_at` is when a waiting run becomes due without a signal. Both are NULL for most runs, and their indexes are
// partial: runs that are finished, asleep or blocked cost a claim nothing.
// `origin_id` is the id of the first run of a chain of retries from the failure; NULL for a run that is no such retry.
// `last_report_no` is the number of the last report that was stored under the current lease.
// `no` counts the log lines of a run, from 1.
//
// Runs, steps and facts share one sequence of numbers, in the order of the commits: see journal/journal.ts. A row of
// the journal has the facts of one commit. `position` is the number of its last fact, `size` the bytes of all facts
// that the journal ever had, up to and with this row. `fact_in_row` says which fact the row of a step is: that the step
// began and ended (1), that it ended (2), or none (0): then the journal has one.
const FIRST_VERSION = `
CREATE TABLE holdfast_runs (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  job TEXT NOT NULL,
  status TEXT NOT NULL,
  labels TEXT NOT NULL,
  idempotency_key TEXT,
  concurrency_key TEXT,
  queue_state TEXT CHECK (queue_state IN ('R', 'B')),
  timer_at INTEGER,
  lease_owner TEXT,
  lease_expires_at INTEGER,
  lease_generation INTEGER NOT NULL DEFAULT 0,
  last_report_no INTEGER NOT NULL DEFAULT 0,
  recorded INTEGER NOT NULL DEFAULT 0,
  has_pauses INTEGER NOT NULL DEFAULT 0,
  interruptions INTEGER NOT NULL DEFAULT 0,
  abandonments INTEGER NOT NULL DEFAULT 0,
  ended_by TEXT,
  retrigger_of TEXT,
  retriggered_as TEXT,
  origin_id TEXT,
  progress TEXT,
  output TEXT,
  error TEXT,
  failure TEXT,
  failed_step TEXT,
  updated_at INTEGER NOT NULL,
  started_at INTEGER,
  completed_at INTEGER
) STRICT;
CREATE UNIQUE INDEX holdfast_runs_idempotency ON holdfast_runs (job, idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX holdfast_runs_ready ON holdfast_runs (job, seq) WHERE queue_state = 'R';
CREATE INDEX holdfast_runs_ready_by_key ON holdfast_runs (concurrency_key, job, seq)
  WHERE concurrency_key IS NOT NULL AND queue_state = 'R';
CREATE INDEX holdfast_runs_queued_by_key ON holdfast_runs (concurrency_key, job, seq)
  WHERE concurrency_key IS NOT NULL AND queue_state IS NOT NULL;
CREATE INDEX holdfast_runs_keyed_waiting ON holdfast_runs (concurrency_key, job, seq)
  WHERE concurrency_key IS NOT NULL AND status = 'waiting';
CREATE INDEX holdfast_runs_timers ON holdfast_runs (timer_at) WHERE timer_at IS NOT NULL;
CREATE INDEX holdfast_runs_leases ON holdfast_runs (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX holdfast_runs_by_job ON holdfast_runs (job, seq);
CREATE INDEX holdfast_runs_by_status ON holdfast_runs (status, seq, job);
CREATE INDEX holdfast_runs_ended ON holdfast_runs (status, completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE holdfast_counts (
  status TEXT NOT NULL,
  job TEXT NOT NULL,
  runs INTEGER NOT NULL,
  PRIMARY KEY (status, job)
) STRICT, WITHOUT ROWID;

CREATE TABLE holdfast_inputs (
  run_seq INTEGER PRIMARY KEY REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  payload TEXT,
  input TEXT
) STRICT;

CREATE TABLE holdfast_labels (
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  run_seq INTEGER NOT NULL REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  PRIMARY KEY (key, value, run_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_labels_by_run ON holdfast_labels (run_seq);

CREATE TABLE holdfast_keys (
  concurrency_key TEXT PRIMARY KEY,
  run_id TEXT NOT NULL,
  generation INTEGER NOT NULL,
  expires_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX holdfast_keys_expiring ON holdfast_keys (expires_at) WHERE expires_at IS NOT NULL;

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
  UNIQUE (run_seq, kind, name)
) STRICT;
CREATE INDEX holdfast_pauses_by_kind ON holdfast_pauses (run_seq, kind);

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

CREATE TABLE holdfast_workers (
  id TEXT PRIMARY KEY,
  jobs TEXT NOT NULL,
  seen_at INTEGER NOT NULL,
  lease_ms INTEGER NOT NULL,
  claim_id TEXT NOT NULL,
  claimed TEXT NOT NULL
) STRICT, WITHOUT ROWID;
`;

// `scheduled_runs` has the runs that schedules have made; `slot_at` is NULL if a schedule was triggered without a slot.
// All runs of a schedule before `open_from` have ended.
const SCHEDULE_TABLES = `
CREATE TABLE holdfast_schedules (
  name TEXT PRIMARY KEY,
  job TEXT NOT NULL,
  options TEXT NOT NULL,
  declared TEXT,
  paused_at INTEGER,
  next_at INTEGER,
  last_slot_at INTEGER,
  last_run_id TEXT,
  skipped INTEGER NOT NULL,
  error TEXT,
  version INTEGER NOT NULL,
  open_from INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE holdfast_scheduled_runs (
  run_seq INTEGER PRIMARY KEY REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  schedule_name TEXT NOT NULL,
  slot_at INTEGER
) STRICT;
CREATE INDEX holdfast_scheduled_runs_by_name ON holdfast_scheduled_runs (schedule_name, run_seq);
`;

// `lease_claim` is the id of the claim that gave the lease. It stays after the end of the lease, so that a repeated call
// is known.
const LEASE_CLAIMS = `
ALTER TABLE holdfast_runs ADD COLUMN lease_claim TEXT;
ALTER TABLE holdfast_ghosts ADD COLUMN lease_claim TEXT;
`;

// `abandonments_alone` counts only while `abandonments` is not 0. `sole_claim` of a worker is the last claim by which
// it took a run, if that was the only run that it held then. Runs that are claimed alone have a queue of their own: see `aloneQueue()`.
const ABANDONMENTS = `
ALTER TABLE holdfast_runs ADD COLUMN abandonments_alone INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_workers ADD COLUMN sole_claim TEXT;
CREATE INDEX holdfast_flow_alone ON holdfast_flow (job) WHERE queue_state IS NOT NULL AND substr(job, -1) = char(9);
`;

// `slot` is what the engine has stored of a slot, as JSON.
const SLOTS = `
ALTER TABLE holdfast_scheduled_runs ADD COLUMN slot TEXT;
`;

/** The statements that lead from each version of the tables to the next. They never change once they are released. */
export const MIGRATIONS: readonly string[] = [
  FIRST_VERSION,
  FLOW_TABLES + CHILD_TABLES + SCHEDULE_TABLES,
  EVOLUTION_TABLES,
  LEASE_CLAIMS,
  OPERATE_TABLES,
  TIMELINE_TABLES,
  TRACING_TABLES,
  ABANDONMENTS,
  SLOTS,
];

/**
 * Creates or updates the tables. It is called inside a transaction that holds the write lock: of several processes one
 * makes the change, and the others find it made.
 *
 * @throws {StoreError} The tables were made by a newer version than this one.
 */
export function migrateTables(database: SqliteDatabase): void {
  const version = readVersion(database);
  if (version > MIGRATIONS.length) {
    throw new StoreError(
      `The database has tables of version ${version}; this version of Holdfast knows them up to ${MIGRATIONS.length}`,
      { code: "internal" },
    );
  }
  if (version === MIGRATIONS.length) return;
  for (const migration of MIGRATIONS.slice(version)) database.exec(migration);
  database.exec(`
    CREATE TABLE IF NOT EXISTS holdfast_schema (version INTEGER NOT NULL) STRICT;
    DELETE FROM holdfast_schema;
    INSERT INTO holdfast_schema VALUES (${MIGRATIONS.length});
  `);
}

/** The version of the tables; 0: there are none. */
export function readVersion(database: SqliteDatabase): number {
  const table = database.get("SELECT 1 FROM sqlite_schema WHERE name = 'holdfast_schema'");
  if (table === undefined) return 0;
  return database.get<{ version: number }>("SELECT version FROM holdfast_schema")?.version ?? 0;
}
