import { StoreError } from "../../model/error.ts";
import { systemHost } from "../../model/host.ts";
import { isSameJson, type Json } from "../../values/json.ts";
import { checkOptionNames } from "../../values/option_names.ts";
import { RUN_STATUSES, type RunStatus } from "../../model/run.ts";
import { openSession } from "../postgres/database/client.ts";
import { PostgresDatabase } from "../postgres/database/postgres_database.ts";
import { PostgresStore } from "../postgres/postgres_store.ts";
import type { PostgresStoreOptions } from "../postgres/postgres_store_options.ts";
import { READS } from "../postgres/reads.ts";
import { readRuns } from "../sqlite/reads/bounded_reads.ts";
import { type CopiedTable, readCopiedTables } from "./copied_tables.ts";
import { PostgresTarget, toPostgresRow } from "./postgres_target.ts";
import { SqliteSource } from "./sqlite_source.ts";

/** Options of {@linkcode copySqliteToPostgres}. */
export interface CopyOptions extends Pick<PostgresStoreOptions, "schema" | "durability" | "host"> {
  /** Is called after each part of a table that was written, with how many rows of it there are so far. */
  onProgress?: (progress: { table: string; rows: number }) => void;
}

/** What was copied. */
export interface CopyReport {
  /** How many runs there are in each status. */
  runs: Record<RunStatus, number>;
  /** How many rows each table has, and their digest, which is that of the source as well. */
  tables: Record<string, RowDigest>;
  /** How long it took, in milliseconds. */
  durationMs: number;
}

// About how many characters of rows one statement adds, and how many runs are compared at once.
const BATCH_LENGTH = 1_000_000;
const COMPARED_RUNS = 50;

/**
 * Copies everything that a `SqliteStore` has kept in a file into an empty schema of a PostgreSQL database: all runs, open
 * and ended, with their ids, their order, their times and deadlines, steps, waits, children, logs and keys; schedules and
 * paused jobs. Only events are not copied: event streams that resume begin with the state of their runs.
 *
 * Stop all engines that use the file first. A run that was being executed when its process died becomes due with the first
 * claim. The file is not changed, and nobody can write to it meanwhile.
 *
 * It is one transaction: the copy is complete, or nothing of it is there and it can be tried again. Before the commit, all
 * rows are read back and compared by a digest, and each run is read through both stores.
 *
 * @param file The path of the file, or a `file:` URL.
 * @param url The address: `postgres://user:password@host:5432/database`. The role is the one that owns the tables.
 * @throws {ConflictError} The file is in use: a worker is live, a run is under a lease, or another process is writing. Or
 * the schema is not empty.
 * @throws {StoreError} The file or the database cannot be read or written, or the copy differs from the file.
 */
export async function copySqliteToPostgres(
  file: string | URL,
  url: string | URL,
  options: CopyOptions = {},
): Promise<CopyReport> {
  checkOptionNames(options, COPY_OPTIONS, "copySqliteToPostgres()");
  // Not `using`, which Node 22 does not know.
  const source = await SqliteSource.open(file, (options.host ?? systemHost).now());
  try {
    return await copyFrom(source, url, options);
  } finally {
    source.close();
  }
}

async function copyFrom(source: SqliteSource, url: string | URL, options: CopyOptions): Promise<CopyReport> {
  const { onProgress = () => {}, ...storeOptions } = options;
  const { schema = "holdfast", host } = storeOptions;
  const startedAt = performance.now();
  const store = await PostgresStore.open(url, storeOptions);
  try {
    await store.migrate();
  } finally {
    await store.close();
  }
  const session = await openSession(String(url));
  try {
    const target = new PostgresTarget(session, schema);
    await target.begin();
    await target.clear();
    const copied = readCopiedTables(source.database);
    const tables: Record<string, RowDigest> = {};
    for (const table of copied) tables[table.name] = await copyTable(table, source, target, onProgress);
    const now = host === undefined ? null : Math.floor(host.now());
    await target.complete(source.lastNumber(), source.storeId(), now);
    for (const table of copied) await checkTable(table, target, tables[table.name]!); // set above
    const runs = await compareRuns(source, new PostgresDatabase(session, schema, () => now));
    await target.commit();
    return { runs, tables, durationMs: Math.round(performance.now() - startedAt) };
  } finally {
    await session.close(); // which rolls back what is not committed
  }
}

const COPY_OPTIONS: Record<keyof CopyOptions, true> = { schema: true, durability: true, host: true, onProgress: true };

async function copyTable(
  table: CopiedTable,
  source: SqliteSource,
  target: PostgresTarget,
  onProgress: NonNullable<CopyOptions["onProgress"]>,
): Promise<RowDigest> {
  const digester = await newDigester(table);
  let batch: string[] = [];
  let length = 0;
  const flush = async () => {
    if (batch.length === 0) return;
    await target.insert(table, `[${batch.join(",")}]`);
    onProgress({ table: table.name, rows: digester.value.rows });
    batch = [];
    length = 0;
  };
  for (const found of source.read(table)) {
    const row = toPostgresRow(table, found);
    digester.add(row);
    const text = JSON.stringify(row);
    batch.push(text);
    length += text.length;
    if (length > BATCH_LENGTH) await flush();
  }
  await flush();
  return digester.value;
}

async function newDigester({ columns }: CopiedTable): Promise<RowDigester> {
  const { createHash } = await import("node:crypto");
  return new RowDigester(Object.keys(columns), (text) => createHash("sha256").update(text).digest("hex"));
}

/** Reads a table back, and compares it with what was to be written. */
async function checkTable(table: CopiedTable, target: PostgresTarget, expected: RowDigest): Promise<void> {
  const digester = await newDigester(table);
  for await (const row of target.read(table)) digester.add(JSON.parse(row));
  const { rows, digest } = digester.value;
  if (rows === expected.rows && digest === expected.digest) return;
  throw new StoreError(
    `The copy of the table "${table.name}" differs: ${expected.rows} rows with the digest ${expected.digest} were written, ` +
      `and ${rows} with ${digest} are there`,
    { code: "internal" },
  );
}

/** Reads each run through both stores, and compares them. Returns how many there are in each status. */
async function compareRuns(source: SqliteSource, database: PostgresDatabase): Promise<Record<RunStatus, number>> {
  const runs = Object.fromEntries(RUN_STATUSES.map((status) => [status, 0])) as Record<RunStatus, number>; // all of them
  let after = 0;
  while (true) {
    const page = source.database.all<{ seq: number; id: string }>(
      `SELECT seq, id FROM holdfast_runs WHERE seq > ? ORDER BY seq LIMIT ${COMPARED_RUNS}`,
      after,
    );
    if (page.length === 0) return runs;
    const ids = page.map(({ id }) => id);
    const [expected, found] = [
      readRuns(source.database, ids, Infinity),
      await READS.readRuns(database, ids, Infinity),
    ];
    for (const [at, run] of expected.entries()) {
      if (!isSameJson(run as Json, found[at] as Json)) { // they consist of JSON
        throw new StoreError(`The copy of run "${ids[at]}" differs from it`, { code: "internal" });
      }
      if (run !== null) runs[run.status] += 1;
    }
    after = page.at(-1)!.seq; // it is not empty
  }
}

/** What the rows of a table are: how many, and a number that says which, whatever their order. */
export interface RowDigest {
  /** How many rows. */
  rows: number;
  /** The sum of the first 16 bytes of the SHA-256 of each row, modulo 2^128, in hexadecimal. */
  digest: string;
}

/** A row: columns by name. */
type Row = Readonly<Record<string, unknown>>;

const MODULUS = 2n ** 128n;

/** Builds the digest of a table, row by row. */
class RowDigester {
  readonly #columns: readonly string[];
  readonly #hash: (text: string) => string;
  #rows = 0;
  #sum = 0n;

  /** @param hash The SHA-256 of a string, in hexadecimal. */
  constructor(columns: readonly string[], hash: (text: string) => string) {
    this.#columns = columns;
    this.#hash = hash;
  }

  /** Adds a row. A column that is left out is `null`, and a boolean is 0 or 1. */
  add(row: Row): void {
    const values = this.#columns.map((column) => row[column] ?? null);
    const text = JSON.stringify(values.map((value) => typeof value === "boolean" ? Number(value) : value));
    this.#sum = (this.#sum + BigInt(`0x${this.#hash(text).slice(0, 32)}`)) % MODULUS;
    this.#rows += 1;
  }

  /** The digest of the rows so far. */
  get value(): RowDigest {
    return { rows: this.#rows, digest: this.#sum.toString(16) };
  }
}
