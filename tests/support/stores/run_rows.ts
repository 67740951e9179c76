import type { DatabaseSync } from "node:sqlite";
import { prepared } from "../prepared.ts";
import type { RunRows } from "./compare_stores.ts";

interface RowsOfRun {
  id: string;
  rows: string;
}

let sqliteRows: string | undefined;

/** Reads the rows that a SqliteStore has of each run. */
export function readSqliteRows(database: DatabaseSync): RunRows {
  sqliteRows ??= makeSqliteRows(database);
  const found = prepared(database, sqliteRows).all() as unknown as RowsOfRun[]; // the columns of the statement
  return new Map(found.map(({ id, rows }) => [id, rows]));
}

/** All columns of `holdfast_runs`, and of the rows of all tables that name a run. */
function makeSqliteRows(database: DatabaseSync): string {
  const columns = new Map<string, string[]>();
  const found = database.prepare(`SELECT t.name AS "table", c.name AS "column" FROM sqlite_schema t
    JOIN pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid`).all();
  for (const { table, column } of found as { table: string; column: string }[]) {
    columns.set(table, [...columns.get(table) ?? [], column]);
  }
  const textOf = (table: string) => columns.get(table)!.map((column) => `quote("${column}")`).join(" || ',' || ");
  const ofRun = [...columns.keys()].filter((table) => columns.get(table)!.includes("run_seq")).map((table) =>
    `coalesce((SELECT group_concat(${textOf(table)}) FROM ${table} WHERE run_seq = holdfast_runs.seq), '')`
  );
  return `SELECT id, ${[textOf("holdfast_runs"), ...ofRun].join(" || ';' || ")} AS rows FROM holdfast_runs`;
}

/** A connection of `pg`. */
interface Client {
  query<R>(query: string | { name: string; text: string }): Promise<{ rows: R[] }>;
}

/** Makes a function that reads the rows that a PostgresStore has of each run. */
export async function postgresRows(client: Client, schema: string): Promise<() => Promise<RunRows>> {
  const { rows: tables } = await client.query<{ name: string }>(`
    select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = '${schema}'::regnamespace and c.relkind = 'r' and a.attname = 'run_seq' order by 1`);
  const ofRun = tables.map(({ name }) =>
    `(select string_agg(o::text, '' order by o::text) from ${schema}.${name} o where o.run_seq = r.seq)`
  );
  const text = `select id, concat_ws(';', ${["r::text", ...ofRun].join(", ")}) as rows from ${schema}.runs r`;
  return async () => {
    const { rows } = await client.query<RowsOfRun>({ name: `rows of ${schema}`, text });
    return new Map(rows.map(({ id, rows }) => [id, rows]));
  };
}
