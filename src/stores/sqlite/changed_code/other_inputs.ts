import { LeaseLostError } from "../../../model/error.ts";
import type { JsonText } from "../../../values/json.ts";
import type { Lease } from "../../../model/lease.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { underLease } from "../writes/under_lease.ts";

/** The input of a run as parsed by another schema. See `Store.getInput()`. */
export function readInput(db: SqliteDatabase, runId: string, schemaPrint: string): { input: JsonText | null } | null {
  const row = db.get<{ input: JsonText | null }>`
    SELECT o.input FROM holdfast_runs r JOIN holdfast_other_inputs o ON o.run_seq = r.seq
    WHERE r.id = ${runId} AND o.schema_print = ${schemaPrint}`;
  return row === undefined ? null : { input: row.input };
}

/** Stores the input of a run as parsed by another schema. See `Store.saveInput()`. */
export function writeInput(
  db: SqliteDatabase,
  lease: Lease,
  schemaPrint: string,
  input: JsonText | null,
  now: number,
): JsonText | null {
  const run = db.get<{ seq: number }>`SELECT seq FROM holdfast_runs WHERE ${underLease(lease)}`;
  if (run === undefined) throw new LeaseLostError(lease);
  const added = db.run`
    INSERT INTO holdfast_other_inputs (run_seq, schema_print, input) VALUES (${run.seq}, ${schemaPrint}, ${input})
      ON CONFLICT DO NOTHING`;
  if (added > 0) db.run`UPDATE holdfast_runs SET updated_at = ${now} WHERE seq = ${run.seq}`;
  return db.one<{ input: JsonText | null }>`
    SELECT input FROM holdfast_other_inputs WHERE run_seq = ${run.seq} AND schema_print = ${schemaPrint}`.input;
}
