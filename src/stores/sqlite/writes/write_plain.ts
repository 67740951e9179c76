import type { SqliteDatabase } from "../sqlite_database.ts";

/** A row is not what the lease cache knows: the batch is rolled back, and repeated with a statement for each write. */
class StaleRow extends Error {
  constructor() {
    super("A run has changed since it was claimed");
  }
}

/**
 * Writes what was put off ({@linkcode PlainWrites}), several rows with one statement: half of what such a row costs alone
 * is the call. Each statement has the fence of a lease for all its rows, as the lease cache knows them.
 */
export function writePlain(db: SqliteDatabase): void {
  const { plain } = db;
  for (const { seqs, known } of plain.recorded()) {
    const { generation, recorded, lastReportNo, newRecorded, newLastReportNo, now } = known;
    const values = [newRecorded, now, newLastReportNo, JSON.stringify(seqs), generation, recorded, lastReportNo];
    if (db.run(RECORD, ...values) !== seqs.length) throw new StaleRow();
  }
  let from = 0;
  for (const [rows, sql] of INSERTS) {
    const length = rows * STEP_COLUMNS.length;
    for (; from + length <= plain.steps.length; from += length) db.run(sql, ...plain.steps.slice(from, from + length));
  }
  for (const { output, seqs, known: { generation, lastReportNo, newLastReportNo, now } } of plain.ended()) {
    const values = [output, newLastReportNo, now, now, JSON.stringify(seqs), generation, lastReportNo];
    if (db.run(END, ...values) !== seqs.length) throw new StaleRow();
  }
  plain.clear();
}

// In the order of the values of `PlainWrites.steps`.
const STEP_COLUMNS =
  "seq, fact_in_row, run_seq, name, position, output, attempts, recorded_no, started_at, completed_at".split(", ");
// How many rows a statement has: as many as it can, each of these in turn.
const INSERTS = [16, 4, 1].map((rows): [number, string] => [rows, insertSteps(rows)]);

// A step that is recorded already is an error: then the batch is repeated.
function insertSteps(rows: number): string {
  const row = `('completed', ${STEP_COLUMNS.map(() => "?").join(", ")})`;
  return `INSERT INTO holdfast_steps (status, ${STEP_COLUMNS.join(", ")}) VALUES ${Array(rows).fill(row).join(", ")}`;
}

// Without `NOT INDEXED` and `+` the planner may take the index of another column, and read all runs for each of the list.
const LEASED = "seq IN (SELECT value FROM json_each(?)) AND +status = 'running' AND lease_generation = ?";
const RECORD = `UPDATE holdfast_runs NOT INDEXED SET recorded = ?, abandonments = 0, updated_at = ?, last_report_no = ?
  WHERE ${LEASED} AND recorded = ? AND last_report_no = ?`;
const END = `UPDATE holdfast_runs NOT INDEXED SET status = 'completed', output = ?, last_report_no = ?,
    lease_owner = NULL, lease_expires_at = NULL, updated_at = ?, completed_at = ?
  WHERE ${LEASED} AND last_report_no = ? AND has_pauses = 0 AND parent_seq IS NULL AND retrigger_of IS NULL AND on_end IS NULL`;
