import { ConflictError } from "../../model/error.ts";
import type { JsonText } from "../../values/json.ts";
import { type Connection, storeError } from "../postgres/database/client.ts";
import { SEARCH_PATH } from "../postgres/sql/basics.ts";
import { FACTS_PER_ROW, toSql } from "../postgres/sql/names.ts";
import { COPIED_TABLES, type CopiedTable } from "./copied_tables.ts";
import type { ChildResult } from "../../model/wait.ts";
import { toPortable, writeParameter } from "../postgres/database/portable_text.ts";
import type { SqliteRow } from "../sqlite/sqlite_database.ts";
import type { SqliteValue } from "../sqlite/statement.ts";

// How many rows are read at once.
const PAGE = 200;

/** The schema that is copied into, in one transaction. Nobody else can write to it meanwhile. */
export class PostgresTarget {
  readonly #connection: Connection;
  readonly #schema: string;

  /** Uses a connection that has no other use. The tables exist. */
  constructor(connection: Connection, schema: string) {
    this.#connection = connection;
    this.#schema = schema;
  }

  /**
   * Begins the transaction.
   *
   * @throws {ConflictError} The schema is not empty.
   */
  async begin(): Promise<void> {
    await this.#execute("begin");
    await this.#execute(`set local ${SEARCH_PATH}`);
    await this.#execute("set local statement_timeout = 0");
    await this.#execute("set local idle_in_transaction_session_timeout = 0");
    await this.#execute("select fn.lock_all()::text as r");
    const tables = ["journal", ...COPIED_TABLES].filter((table) => table !== "serving");
    const found = tables.map((table) => `select '${table}' as r where exists (select from {schema}.${table})`);
    const used = await this.#execute(found.join(" union all "));
    if (used.length === 0) return;
    const names = used.map(({ r }) => r).join(", ");
    throw new ConflictError(`Cannot copy into the schema "${this.#schema}": it is not empty (${names})`);
  }

  /** Removes the rows that the tables have from their making. */
  async clear(): Promise<void> {
    await this.#execute("delete from {schema}.serving");
  }

  /** Adds rows to a table: a JSON array of objects. */
  async insert({ name, columns }: CopiedTable, rows: JsonText): Promise<void> {
    const names = Object.keys(columns).join(", ");
    await this.#execute(
      `insert into {schema}.${name} (${names}) overriding system value
       select ${names} from json_populate_recordset(null::{schema}.${name}, $1::text::json)`,
      [rows],
    );
  }

  /** All rows of a table, as JSON objects. */
  async *read({ name, columns }: CopiedTable): AsyncGenerator<JsonText> {
    const names = Object.keys(columns).map((column) => `o.${column}`).join(", ");
    await this.#execute(
      `declare copied no scroll cursor for
       select row_to_json(q)::text as r from (select ${names} from {schema}.${name} o) q`,
    );
    while (true) {
      const rows = await this.#execute(`fetch ${PAGE} from copied`);
      for (const { r } of rows) yield r!; // a row is not NULL
      if (rows.length < PAGE) break;
    }
    await this.#execute("close copied");
  }

  /**
   * Writes what follows from the rows: the numbers of runs, the next row numbers, and the begin of the journal, behind all
   * positions of the source: a cursor of the source is valid for none of its rows.
   *
   * @param lastNumber The greatest number that a run, a step or a fact of the source has had.
   * @param storeId The id of the store.
   * @param now The instant of the journal's first row; `null`: that of the server.
   */
  async complete(lastNumber: number, storeId: string, now: number | null): Promise<void> {
    const place = (Math.floor(lastNumber / FACTS_PER_ROW) + 2) * FACTS_PER_ROW;
    for (
      const sql of [
        "insert into {schema}.counts (status, job, runs) select status, job, count(*) from {schema}.runs group by 1, 2",
        `insert into {schema}.journal (position, at, facts) overriding system value
         values (${place}, fn.clock(${now}), '')`,
        `update {schema}.schema_version set id = '${storeId.replaceAll("'", "''")}'`,
        `update {schema}.journal_start set trimmed_to = ${place - FACTS_PER_ROW}`,
        `select setval('{schema}.journal_position_seq', ${place})`,
        `select setval('{schema}.runs_seq_seq', ${Math.max(1, lastNumber)})`,
        `select setval('{schema}.steps_seq_seq', ${Math.max(1, lastNumber)})`,
        `select setval('{schema}.pauses_seq_seq', greatest(1, (select max(seq) from {schema}.pauses),
           (select max(parent_pause) from {schema}.runs)))`,
      ]
    ) await this.#execute(sql);
  }

  /** Makes the copy visible, and tells the planner of it. */
  async commit(): Promise<void> {
    await this.#execute("commit");
    // The copy is complete. What autovacuum would do later is no reason to fail.
    await this.#analyze().catch(() => {});
  }

  async #analyze(): Promise<void> {
    for (const name of COPIED_TABLES) await this.#execute(`analyze {schema}.${name}`);
  }

  async #execute(sql: string, parameters?: readonly string[]): Promise<{ r: string | null }[]> {
    try {
      return await this.#connection.query(toSql(sql, this.#schema), parameters);
    } catch (error) {
      throw storeError(error, { writes: sql === "commit" });
    }
  }
}

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
