/** A check of the tables of a store. */
export interface TableCheck {
  /** What has to be true. */
  name: string;
  /** A statement whose rows are what is wrong: one column `r`, a sentence. */
  sql: string;
  /** A statement that returns a row if the table exists, for one that may be missing. */
  ifAny?: string;
}

/** Checks of tables that are always there: what has to be true, each with the statement that finds what is wrong. */
export function checksOf(statements: Readonly<Record<string, string>>): TableCheck[] {
  return Object.entries(statements).map(([name, sql]) => ({ name, sql }));
}

/** The columns that hold JSON, by their tables; the names of tables have no prefix here. Empty is no value. */
export const JSON_COLUMNS = {
  runs: ["labels", "progress", "output", "failure", "on_end"],
  inputs: ["payload", "input"],
  steps: ["output", "failure"],
  pauses: ["metadata", "payload", "payload_schema", "receive"],
  messages: ["payload", "input"],
  chunks: ["items"],
} as const;

/** What is wrong with a value of a run that is no JSON. */
export function notJson(runId: string, table: string, column: string): string {
  return `Run ${runId} has no JSON as "${column}" in the table of ${table}`;
}
