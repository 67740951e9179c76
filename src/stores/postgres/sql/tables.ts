import { FACTS_PER_ROW, failureKind } from "./names.ts";

// Differences to the tables of SqliteStore: a run has one row, with its flow, its schedule and its parent, so it stands
// in one queue; facts have rows of their own, and no other row is a fact; what is counted is appended.
//
// `queue` is the queue from which a run is claimed (`queueName()`): that of the version of its job, or, for a held run,
// that of the print to which it is offered, or, for one that is claimed alone, that of those (`aloneQueue()`). `job` is
// always the first of these. `abandonments_alone` counts only while `abandonments` is not 0. `sole_claim` of a worker
// is the last claim by which it took a run, if that was the only run that it held then.
// `position` is the place in the order of claims (`positionOf()`). A run that kept its key over a retry delay comes
// 2^52 before its position.
// `queue_state` is R (it has passed its key and can be claimed), B (blocked by its key) or NULL (it is not due).
// `lease_claim` is the claim that gave the newest lease. It stays when a run parks, ends or is held, so that a repeated
// call is known.
// runs_ready_by_key and runs_keyed_fair have an expression, so that a look into them is never planned as a read of the whole
// queue of a key.
// `timer_at` is when a waiting run becomes due without a signal, `due_at` when a delayed one does. `deadline_at` is the
// deadline that applies: `start_by` until the run has begun, then `finish_by`; NULL under a lease and after the end.
//
// Nothing that a step changes is in an index: `recorded`, `updated_at`, `progress`. A renewal changes `lease_expires_at`,
// which is: so a claim finds the next lease to expire without a look at all runs under a lease, and most runs end before
// their first renewal. Values are `text`: `jsonb` keeps neither their text nor all
// characters. Names are compared byte by byte, so that no index breaks when a collation changes.
//
// `orphans` has the runs that ended while their children had not. `heads` has the first claimable run of each queue and
// fairness key, with its turn. `counts` has changes: a number of runs is a sum of its rows.
// `leased_at` is when the newest lease was given. `limits` of a worker has those of its jobs. `attempts` has the
// attempts at steps that needed more than one, `interruptions` the executions that lost their lease without an end: `kind` is
// lost (it expired), released or held.
// A row of `run_times` says when the runs up to `last_seq` were added, from that of the row before: the times of the first and
// the last of them. The newest runs are in no row yet.
// All rows of the journal up to `trimmed_to` were removed.
// `chunks` has the items of streams (`Chunk`): `generation` is NULL if a chunk is permanent, `items` if it is void.

// A row of the journal has facts of one transaction: JSON, with commas and without the brackets around them.

// A row of `stats` has what was counted in one slot of time, of `span` milliseconds, for one job, or for all together
// (''). `latencies` is `LatencyCounts`. The columns after it are sums of samples, in the rows of all jobs together.

/** The first version of the tables. */
export const TABLES = `
create table {schema}.runs (
  seq bigint generated always as identity primary key,
  created_at bigint not null,
  completed_at bigint,
  id text collate "C" not null,
  job text collate "C" not null,
  status text collate "C" not null,
  queue text collate "C" not null,
  position bigint not null,
  queue_state "char",
  labels text not null,
  idempotency_key text collate "C",
  concurrency_key text collate "C",
  fairness_key text collate "C",
  timer_at bigint,
  due_at bigint,
  deadline_at bigint,
  lease_owner text collate "C",
  lease_claim text collate "C",
  lease_expires_at bigint,
  leased_at bigint,
  lease_generation int not null default 0,
  last_report_no bigint not null default 0,
  recorded int not null default 0,
  has_pauses boolean not null default false,
  is_held boolean not null default false,
  interruptions int not null default 0,
  abandonments int not null default 0,
  abandonments_alone int not null default 0,
  priority int not null default 0,
  key_concurrency bigint not null default 1,
  key_rate_limit bigint,
  key_rate_period bigint,
  start_at bigint,
  start_within bigint,
  start_by bigint,
  finish_within bigint,
  finish_by bigint,
  schedule_name text collate "C",
  slot_at bigint,
  slot text,
  parent_id text collate "C",
  parent_seq bigint,
  parent_pause bigint,
  depth int not null default 0,
  retrigger_of text collate "C",
  retriggered_as text collate "C",
  completed_as text collate "C",
  origin_id text collate "C",
  ended_by text collate "C",
  progress text,
  output text,
  error text,
  failure text,
  failed_step text,
  trace text,
  updated_at bigint not null,
  started_at bigint,
  former_key text collate "C",
  parked_no int not null default 0,
  on_end text,
  end_of text collate "C"
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02,
  autovacuum_vacuum_cost_delay = 0);
create unique index runs_id on {schema}.runs (id);
create unique index runs_idempotency on {schema}.runs (job, idempotency_key) where idempotency_key is not null;
create index runs_by_ended on {schema}.runs (end_of) where end_of is not null;
create index runs_former_keys on {schema}.runs (former_key) where former_key is not null;
create index runs_ready on {schema}.runs (queue, position, seq) where queue_state = 'R' and fairness_key is null;
create index runs_ready_begun on {schema}.runs (queue, position, seq)
  where queue_state = 'R' and fairness_key is null and started_at is not null;
create index runs_ready_fair on {schema}.runs (queue, fairness_key, position, seq)
  where queue_state = 'R' and fairness_key is not null;
create index runs_ready_fair_begun on {schema}.runs (queue, fairness_key, position, seq)
  where queue_state = 'R' and fairness_key is not null and started_at is not null;
create index runs_ready_by_key on {schema}.runs ((concurrency_key || ''), queue, position, seq)
  where concurrency_key is not null and queue_state = 'R';
create index runs_queued_by_key on {schema}.runs (concurrency_key, queue, position, seq)
  where concurrency_key is not null and queue_state is not null;
create index runs_keyed_fair on {schema}.runs ((concurrency_key || ''))
  where concurrency_key is not null and fairness_key is not null and queue_state is not null;
create index runs_keyed_pending on {schema}.runs (concurrency_key, job, seq)
  where concurrency_key is not null and status = 'pending';
create index runs_keyed_waiting on {schema}.runs (concurrency_key, job, seq)
  where concurrency_key is not null and status = 'waiting';
create index runs_leases on {schema}.runs (lease_expires_at) where status = 'running';
create index runs_timers on {schema}.runs (timer_at) where timer_at is not null;
create index runs_alone on {schema}.runs (queue) where queue_state is not null and right(queue, 1) = E'\\t';
create index runs_delayed on {schema}.runs (due_at) where due_at is not null;
create index runs_deadlines on {schema}.runs (deadline_at) where deadline_at is not null;
create index runs_by_job on {schema}.runs (job, seq);
create index runs_by_status on {schema}.runs (status, seq, job);
create index runs_ended on {schema}.runs (status, completed_at, seq) where completed_at is not null;
create index runs_by_schedule on {schema}.runs (schedule_name, seq) where schedule_name is not null;
create index runs_by_parent on {schema}.runs (parent_id, seq) where parent_id is not null;
create index runs_by_failure on {schema}.runs (${failureKind("failure")}, seq) where failure is not null;
create index runs_retried on {schema}.runs (seq) where completed_as is not null;
create index runs_by_origin on {schema}.runs (origin_id, completed_at) where origin_id is not null;
create index runs_open_children on {schema}.runs (parent_seq, seq) where parent_seq is not null and completed_at is null;

create table {schema}.run_times (
  last_seq bigint primary key,
  first_at bigint not null,
  last_at bigint not null
);

create table {schema}.inputs (
  run_seq bigint primary key,
  payload text,
  input text,
  schema_print text
);

create table {schema}.other_inputs (
  run_seq bigint not null,
  schema_print text collate "C" not null,
  input text,
  primary key (run_seq, schema_print)
);

create table {schema}.labels (
  key text collate "C" not null,
  value text collate "C" not null,
  run_seq bigint not null,
  primary key (key, value, run_seq)
);
create index labels_by_run on {schema}.labels (run_seq);

create table {schema}.counts (
  status text collate "C" not null,
  job text collate "C" not null,
  runs bigint not null
);
create index counts_by_job on {schema}.counts (job, status) include (runs);

create table {schema}.holders (
  concurrency_key text collate "C" not null,
  run_id text collate "C" not null,
  generation int not null,
  primary key (concurrency_key, run_id)
);

create table {schema}.ghosts (
  run_id text collate "C" primary key,
  generation int not null,
  lease_claim text collate "C",
  job text collate "C" not null,
  concurrency_key text collate "C",
  expires_at bigint not null
);
create index ghosts_expiring on {schema}.ghosts (expires_at);
create index ghosts_by_job on {schema}.ghosts (job, expires_at);

create table {schema}.starts (
  scope text collate "C" not null,
  no bigint not null,
  at bigint not null,
  period bigint not null,
  primary key (scope, no)
);
create index starts_by_time on {schema}.starts (at, period);

create table {schema}.openings (
  concurrency_key text collate "C" not null,
  queue text collate "C" not null,
  opens_at bigint not null,
  period bigint not null,
  is_open boolean not null,
  primary key (concurrency_key, queue)
);
create index openings_by_time on {schema}.openings (is_open, opens_at);
create index openings_by_queue on {schema}.openings (queue, is_open, opens_at);

create table {schema}.heads (
  queue text collate "C" not null,
  fairness_key text collate "C" not null,
  turn bigint not null,
  position bigint not null,
  run_seq bigint not null,
  primary key (queue, fairness_key)
);
create index heads_by_turn on {schema}.heads (queue, turn, position);
create index heads_by_key on {schema}.heads (fairness_key);

create table {schema}.fairness_keys (
  fairness_key text collate "C" primary key,
  next_turn bigint not null
);
create index fairness_keys_by_turn on {schema}.fairness_keys (next_turn);

create table {schema}.serving (
  turn bigint not null,
  keyless bigint not null
);
insert into {schema}.serving values (0, 0);

create table {schema}.scan_starts (
  scope text collate "C" not null,
  position bigint not null,
  noted_at bigint not null
);
create index scan_starts_by_scope on {schema}.scan_starts (scope, position);

create table {schema}.paused_jobs (
  job text collate "C" primary key,
  paused_at bigint not null,
  paused_by text,
  note text
);

create table {schema}.steps (
  seq bigint generated always as identity,
  run_seq bigint not null,
  name text collate "C" not null,
  position int not null,
  status text collate "C" not null,
  attempts int not null,
  retry_at bigint,
  recorded_no int not null,
  started_at bigint not null,
  completed_at bigint,
  output text,
  failure text,
  primary key (run_seq, name)
);

create table {schema}.pauses (
  seq bigint generated always as identity primary key,
  id text collate "C" not null unique,
  run_seq bigint not null,
  kind text collate "C" not null,
  name text collate "C" not null,
  metadata text,
  status text collate "C" not null,
  awaited boolean not null default false,
  outcome text collate "C",
  payload text,
  signal_id text collate "C",
  trace text,
  prepared_no int,
  recorded_no int,
  created_at bigint not null,
  payload_schema text,
  deadline_at bigint,
  suspended_at bigint,
  resolved_at bigint,
  first_resumed_at bigint,
  total int,
  added int,
  unfinished int,
  receive text,
  unique (run_seq, kind, name)
);

create index pauses_open_waits on {schema}.pauses (coalesce(deadline_at, 9000000000000000), seq)
  where kind = 'wait' and status = 'pending';
create index pauses_open_receives on {schema}.pauses (run_seq, seq) where kind = 'receive' and status = 'pending';
create index pauses_closed_inbox on {schema}.pauses (run_seq) where receive = '"closed"';

create table {schema}.messages (
  seq bigint generated always as identity primary key,
  run_seq bigint not null,
  no int not null,
  id text collate "C" not null,
  name text collate "C" not null,
  payload text not null,
  input text,
  trace text,
  accepted_at bigint not null,
  pause_seq bigint,
  unique (run_seq, id)
);
create index messages_by_no on {schema}.messages (run_seq, no);
create index messages_unread on {schema}.messages (run_seq, no) where pause_seq is null;
create index messages_taken on {schema}.messages (pause_seq) where pause_seq is not null;

create table {schema}.attempts (
  run_seq bigint not null,
  step_name text collate "C" not null,
  attempt int not null,
  started_at bigint not null,
  ended_at bigint not null,
  retry_at bigint,
  failure text,
  primary key (run_seq, step_name, attempt)
);

create table {schema}.interruptions (
  run_seq bigint not null,
  generation int not null,
  kind text collate "C" not null,
  worker text collate "C",
  leased_at bigint,
  ended_at bigint not null,
  primary key (run_seq, generation)
);

create table {schema}.children (
  pause_seq bigint not null,
  no int not null,
  run_seq bigint not null,
  result text,
  payload text,
  primary key (pause_seq, no)
);
create index children_by_run on {schema}.children (run_seq);

create table {schema}.orphans (
  parent_seq bigint primary key
);

create table {schema}.holds (
  run_seq bigint primary key,
  queue text collate "C" not null,
  code text collate "C" not null,
  message text not null,
  details text not null,
  since bigint,
  generation int not null,
  recorded int not null,
  prints text collate "C" not null,
  offered_in text collate "C" not null default '',
  continues boolean not null default false
);
create index holds_by_queue on {schema}.holds (queue, offered_in, prints, run_seq) where since is not null;
create index holds_by_run on {schema}.holds (run_seq, code, queue) where since is not null;

create table {schema}.copies (
  run_seq bigint primary key,
  copied_up_to int not null,
  unfinished text not null,
  undone text
);

create table {schema}.logs (
  id text collate "C" not null unique,
  run_seq bigint not null,
  no bigint not null,
  step_name text,
  level text not null,
  message text not null,
  data text,
  written_at bigint not null,
  primary key (run_seq, no)
);

create table {schema}.chunks (
  run_seq bigint not null,
  stream text collate "C" not null,
  position bigint not null,
  follows bigint not null,
  first bigint not null,
  count int not null,
  size bigint not null,
  at bigint not null,
  generation int,
  items text,
  primary key (run_seq, stream, position)
);
create index chunks_permanent on {schema}.chunks (run_seq, stream, position) where generation is null;

create table {schema}.schedules (
  name text collate "C" primary key,
  job text collate "C" not null,
  options text not null,
  declared text,
  paused_at bigint,
  paused_by text,
  next_at bigint,
  last_slot_at bigint,
  last_run_id text collate "C",
  skipped bigint not null,
  error text,
  version bigint not null,
  open_from bigint not null default 0
);

create table {schema}.deleted (
  id text collate "C" primary key,
  deleted_at bigint not null
);
create index deleted_by_time on {schema}.deleted (deleted_at);

create table {schema}.journal (
  position bigint generated always as identity (start with ${FACTS_PER_ROW} increment by ${FACTS_PER_ROW}) primary key,
  at bigint not null,
  facts text not null
);
create table {schema}.journal_start (
  trimmed_to bigint not null
);
insert into {schema}.journal_start values (0);

create unlogged table {schema}.server (
  started_at timestamptz not null
);
insert into {schema}.server values (pg_postmaster_start_time());

create table {schema}.workers (
  id text collate "C" primary key,
  queues text[] collate "C" not null,
  seen_at bigint not null,
  lease_ms bigint not null,
  claim_id text collate "C" not null,
  limits jsonb not null default '[]',
  details text not null,
  started_at bigint not null,
  stopping boolean not null default false,
  sole_claim text collate "C"
) with (fillfactor = 50);

create table {schema}.stats (
  span int not null,
  job text collate "C" not null,
  at bigint not null,
  triggered bigint not null,
  started bigint not null,
  completed bigint not null,
  failed bigint not null,
  cancelled bigint not null,
  steps bigint not null,
  step_failures bigint not null,
  latencies jsonb not null,
  samples bigint not null,
  pending bigint not null,
  running bigint not null,
  waiting bigint not null,
  busy bigint not null,
  primary key (span, job, at)
) with (fillfactor = 70);
create index stats_by_time on {schema}.stats (span, at, job);`;
