import type { SqliteDatabase } from "../sqlite/sqlite_database.ts";

// A table has the same columns in both stores, but for those of `LEFT_OUT`: `tests/stores/copy/copied_tables_test.ts`
// fails when a table or a column is in one store alone and not named there.

/** A table that is copied. */
export interface CopiedTable {
  /** Its name, without the schema of PostgreSQL or the `holdfast_` of SQLite. */
  name: string;
  /** Each column of both stores, with its expression over the table `t` of SQLite. */
  columns: Readonly<Record<string, string>>;
}

/** The names of all tables that are copied. Row numbers stay, and with them the order of runs and all references. */
export const COPIED_TABLES: readonly string[] = `
  runs inputs other_inputs labels steps pauses messages attempts interruptions children orphans holds copies
  logs chunks holders ghosts starts openings heads fairness_keys serving paused_jobs schedules deleted
`.trim().split(/\s+/);

/** What is not a column in SQLite. */
const ADDED: Readonly<Record<string, CopiedTable["columns"]>> = {
  runs: { is_held: "EXISTS (SELECT 1 FROM holdfast_holds h WHERE h.run_seq = t.seq AND h.since IS NOT NULL)" },
};

/** The tables that are copied from a database, with their columns. */
export function readCopiedTables(database: SqliteDatabase): CopiedTable[] {
  return COPIED_TABLES.map((name) => {
    const found = database.all<{ name: string }>(`SELECT name FROM pragma_table_info('holdfast_${name}')`);
    const copied = found.filter((column) => !(`holdfast_${name}.${column.name}` in LEFT_OUT.sqlite));
    return {
      name,
      columns: { ...Object.fromEntries(copied.map((column) => [column.name, `t.${column.name}`])), ...ADDED[name] },
    };
  });
}

/** What is not copied: tables, or columns of tables that are, each with the reason. */
export const LEFT_OUT: {
  readonly sqlite: Readonly<Record<string, string>>;
  readonly postgres: typeof LEFT_OUT.sqlite;
} = {
  sqlite: {
    "holdfast_counts": "counted anew",
    "holdfast_journal": "positions are other ones: event streams continue after a gap",
    "holdfast_workers": "none is live, and each adds itself when it claims",
    "holdfast_stats": "statistics begin anew",
    "holdfast_run_times": "found anew",
    "holdfast_schema": "the version of the tables; its id is copied in the end",
    "holdfast_steps.fact_in_row": "part of the journal",
    "holdfast_serving.id": "always 1",
  },
  postgres: {
    "counts": "counted anew",
    "journal": "begins anew",
    "journal_start": "begins anew",
    "workers": "none is live, and each adds itself when it claims",
    "stats": "statistics begin anew",
    "run_times": "found anew",
    "scan_starts": "found anew",
    "schema_version": "the version of the tables",
    "server": "which start of the server the last claim has seen",
  },
};
