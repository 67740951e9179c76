// A run that is a child has a row in `holdfast_child_runs`, and `has_pauses` 1: its end is looked at more closely.
// `parent_seq` and `pause_seq` are its parent and the pause; `is_open` is 1 until it has ended.
//
// `holdfast_children` has the children of each pause, in a retry of a parent also those that were taken over. `run_seq`
// stays when the child is deleted. Its result and its input are then kept in `result` and `payload`, if the run of the
// pause has not ended; otherwise they are lost.
//
// `holdfast_orphans` has the runs that ended while their children had not. Row numbers of runs are never reused.
//
// Of a pause on children, `total` is their number, `added` how many there are, `unfinished` how many have not ended.
/** The tables of child runs, a part of the second version of the tables. */
export const CHILD_TABLES = `
ALTER TABLE holdfast_pauses ADD COLUMN total INTEGER;
ALTER TABLE holdfast_pauses ADD COLUMN added INTEGER;
ALTER TABLE holdfast_pauses ADD COLUMN unfinished INTEGER;

CREATE TABLE holdfast_child_runs (
  run_seq INTEGER PRIMARY KEY REFERENCES holdfast_runs (seq) ON DELETE CASCADE,
  parent_id TEXT NOT NULL,
  parent_seq INTEGER NOT NULL,
  pause_seq INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  is_open INTEGER NOT NULL
) STRICT;
CREATE INDEX holdfast_child_runs_by_parent ON holdfast_child_runs (parent_id, run_seq);
CREATE INDEX holdfast_child_runs_open ON holdfast_child_runs (parent_seq, run_seq) WHERE is_open = 1;

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
