// The column `job` of runs, flow and counts is the queue of a run: see `queueName()`. A held run is in no queue until it
// is offered to the code with a print: then its row of `holdfast_flow` is in the queue of that print, `offered_in`. The
// column of `holdfast_runs` never changes.
//
// A row of `holdfast_holds` stays when the run is claimed, or resumed: `since` is NULL unless the run is held. `prints`
// are those that have tried it since its last record (see `addTry()`); `recorded` was its record counter when it was held,
// and `generation` that of the lease that ended then; after a claim that of the lease which the claim gave.
//
// A row of `holdfast_copies` belongs to a retry from the failure. For retries of earlier versions, the records that had
// ended before they were added are the copies.
//
// Holds and copies have no foreign key, since most deleted runs have none: `deleteHold()` removes them.

/** The tables for changes of the code, the third version of the tables. */
export const EVOLUTION_TABLES = `
ALTER TABLE holdfast_inputs ADD COLUMN schema_print TEXT;
CREATE INDEX holdfast_counts_by_job ON holdfast_counts (job);

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
  unfinished TEXT NOT NULL
) STRICT;
INSERT INTO holdfast_copies
  SELECT r.seq, max(
    coalesce((SELECT max(s.recorded_no) FROM holdfast_steps s
      WHERE s.run_seq = r.seq AND s.completed_at <= r.created_at), 0),
    coalesce((SELECT max(p.recorded_no) FROM holdfast_pauses p
      WHERE p.run_seq = r.seq AND p.resolved_at <= r.created_at), 0)), '[]'
  FROM holdfast_runs r WHERE r.status IN ('pending', 'running', 'waiting') AND r.origin_id IS NOT NULL;
`;
