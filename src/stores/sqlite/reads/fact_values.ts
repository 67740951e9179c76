import type { FactValue, FactValueRef } from "../../../model/fact.ts";
import type { RunIdentity } from "../../../model/run.ts";
import { PartBuilder } from "../../part_builder.ts";
import type { SqliteDatabase } from "../sqlite_database.ts";
import { isAmong } from "../statement.ts";
import { type FactValueRow, type IdentityRow, toFactValue, toRunIdentity } from "../../rows.ts";

/** The identities of runs, by their row numbers. See `Store.getRunIdentities()`. */
export function readIdentities(db: SqliteDatabase, runs: readonly number[]): (RunIdentity | null)[] {
  const rows = db.all<IdentityRow & { seq: number }>`
    SELECT seq, id, job, labels FROM holdfast_runs WHERE ${isAmong("seq", runs)}`;
  const identities = new Map(rows.map((row) => [row.seq, toRunIdentity(row)]));
  return runs.map((run) => identities.get(run) ?? null);
}

/**
 * Reads values that facts leave out, one by one, so that only returned values are read. See
 * `Store.readFactValues()`.
 */
export function readFactValues(
  db: SqliteDatabase,
  values: readonly FactValueRef[],
  maxLength: number,
): (FactValue | null)[] {
  const part = new PartBuilder<FactValue | null>(maxLength);
  part.add(values, (ref) => {
    const row = findValue(db, ref);
    return row === undefined ? null : toFactValue(row);
  });
  return part.items;
}

function findValue(db: SqliteDatabase, ref: FactValueRef): FactValueRow | undefined {
  switch (ref.of) {
    case "payload":
      return db.get<FactValueRow>`SELECT payload AS json FROM holdfast_inputs WHERE run_seq = ${ref.run}`;
    case "output":
      return db.get<FactValueRow>`SELECT output AS json FROM holdfast_runs WHERE seq = ${ref.run}`;
    case "failure":
      return db.get<FactValueRow>`SELECT error, failed_step FROM holdfast_runs WHERE seq = ${ref.run}`;
    case "step":
      return db.get<FactValueRow>`
        SELECT output AS json, failure FROM holdfast_steps WHERE run_seq = ${ref.run} AND name = ${ref.stepName}`;
  }
}
