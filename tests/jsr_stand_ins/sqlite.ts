// Does what the tests in tests/jsr need of jsr:@db/sqlite, over node:sqlite, with its peculiarities: integers are cut off
// at 32 bits unless `int64`, what a JSON function returns is parsed, run() returns a number, and errors have no code.
import { DatabaseSync, type StatementSync } from "node:sqlite";

type Value = null | number | string;
type Row = Record<string, unknown>;

const MAX_INT32 = 2 ** 31;
// SQLite marks what a JSON function returns, and passes the mark on through subqueries and iif(), but not through an
// operator: https://www.sqlite.org/c3ref/value_subtype.html. Here the text of a statement has to tell the columns.
const JSON_COLUMN = /\bjson_(?:array|object|group_array|group_object)\([^()]*\)(?! *\|\|).*?\bAS (\w+)/g;

/** A connection. */
export class Database {
  /** Whether it is open. */
  open = true;
  readonly #database: DatabaseSync;
  readonly #int64: boolean;

  constructor(path: string, { int64 = false }: { int64?: boolean } = {}) {
    this.#database = new DatabaseSync(path);
    this.#int64 = int64;
  }

  /** Runs statements without parameters. */
  exec(sql: string): number {
    withoutCode(() => this.#database.exec(sql));
    return 0;
  }

  /** Compiles one statement. */
  prepare(sql: string): Statement {
    const statement = withoutCode(() => this.#database.prepare(sql));
    return new Statement(statement, new Set([...sql.matchAll(JSON_COLUMN)].map(([, name]) => name!)), this.#int64);
  }

  /** Closes it, with its statements. */
  close(): void {
    if (this.open) this.#database.close();
    this.open = false;
  }
}

/** A compiled statement. */
class Statement {
  readonly #statement: StatementSync;
  readonly #jsonColumns: ReadonlySet<string>;
  readonly #int64: boolean;

  constructor(statement: StatementSync, jsonColumns: ReadonlySet<string>, int64: boolean) {
    this.#statement = statement;
    this.#jsonColumns = jsonColumns;
    this.#int64 = int64;
  }

  /** Runs it and returns how many rows it has changed. */
  run(...parameters: Value[]): number {
    return Number(withoutCode(() => this.#statement.run(...parameters)).changes);
  }

  /** Runs it and returns its first row. */
  get(...parameters: Value[]): Row | undefined {
    const row = withoutCode(() => this.#statement.get(...parameters));
    return row && this.#toRow(row);
  }

  /** Runs it and returns all its rows. */
  all(...parameters: Value[]): Row[] {
    return withoutCode(() => this.#statement.all(...parameters)).map((row) => this.#toRow(row));
  }

  #toRow(row: Row): Row {
    return Object.fromEntries(
      Object.entries(row).map(([name, value]) => {
        if (typeof value === "number" && Number.isInteger(value) && !this.#int64 && Math.abs(value) >= MAX_INT32) {
          return [name, value | 0];
        }
        return [name, typeof value === "string" && this.#jsonColumns.has(name) ? JSON.parse(value) : value];
      }),
    );
  }
}

function withoutCode<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw new Error((error as Error).message);
  }
}
