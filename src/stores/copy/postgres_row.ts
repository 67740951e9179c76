import type { ChildResult } from "../../model/wait.ts";
import { toPortable, writeParameter } from "../postgres/database/portable_text.ts";
import type { SqliteRow } from "../sqlite/sqlite_database.ts";
import type { SqliteValue } from "../sqlite/statement.ts";
import type { CopiedTable } from "./copied_tables.ts";

/** JSON that the functions of PostgreSQL parse: so the strings in it are escaped, and not its text. */
const PARSED: Readonly<Record<string, (value: unknown) => unknown>> = {
  "children.result": (value) => toChildRow(value as ChildResult), // as `SqliteStore` keeps it
  "holds.prints": (value) => value,
  "copies.unfinished": (value) => value,
};

/** A row as PostgreSQL keeps it. Columns that are NULL are left out. */
export function toPostgresRow(table: CopiedTable, row: SqliteRow): SqliteRow {
  return Object.fromEntries(
    Object.entries(row).filter(([, value]) => value !== null)
      .map(([name, value]) => [name, toPostgresValue(`${table.name}.${name}`, value)]),
  );
}

function toPostgresValue(column: string, value: SqliteValue): SqliteValue {
  if (typeof value !== "string") return value;
  const convert = PARSED[column];
  return convert === undefined ? toPortable(value) : writeParameter(convert(JSON.parse(value)));
}

/** The result of a child that was deleted has other names in PostgreSQL. */
function toChildRow({ run, status, output, failure, failedStepName }: ChildResult): object {
  return {
    id: run.id,
    job: run.jobName,
    labels: JSON.stringify(run.labels),
    status,
    output,
    failure: failure === null ? null : JSON.stringify(failure),
    failed_step: failedStepName,
  };
}
