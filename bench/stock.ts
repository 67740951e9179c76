import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { SqliteStore } from "@holdfast/jobs";
import type { KnownJob } from "@holdfast/jobs/store";
import { RawDatabase } from "./raw_database.ts";
import type { Setting } from "./setting.ts";

/**
 * What a database is full of.
 *
 * - `finished`: completed runs without steps, each with two labels: `tenant`, t0 to t9, and `batch`, b0, b1, ... of 50
 *   runs each
 * - `waiting`: runs that wait for a signal until tomorrow
 * - `behind`: runs behind one concurrency key that another worker holds
 * - `queued`: runs of one concurrency key, which is free
 * - `limited`: pending runs of `LIMITED_JOB`, one of which another worker executes: all that its limit allows
 * - `delayed`: runs that start tomorrow
 */
export type Stock = "finished" | "waiting" | "behind" | "queued" | "limited" | "delayed";

/** The job whose runs they are, but for the limited ones. */
export const STOCK_JOB = "stocked";

/** The job of the limited runs, as a worker knows it. */
export const LIMITED_JOB: KnownJob = {
  name: "limited",
  names: ["limited"],
  version: 1,
  print: "print-1",
  concurrency: 1,
  rate: null,
};

/**
 * Makes a database of ours with so many runs in it, once for each command: by SQL, since a million triggers would take
 * minutes. It writes to the tables as `store.migrate()` makes them; when these change, this has to follow.
 *
 * @returns The path of the file.
 */
export function stock(setting: Setting, what: Stock, count: number): Promise<string> {
  return mixedStock(setting, [[what, count]]);
}

/** The same with several kinds of runs, one kind after another. */
export async function mixedStock(
  setting: Setting,
  contents: readonly (readonly [what: Stock, count: number])[],
): Promise<string> {
  const name = contents.map(([what, count]) => `${what.replace(" ", "_")}_${count}`).join("_");
  const path = `${setting.shared}/${name}.db`;
  if (existsSync(path)) return path;
  await using store = await SqliteStore.open(path);
  await store.migrate();
  let before = 0;
  for (const [what, count] of contents) {
    setting.say(`making ${count.toLocaleString("en")} ${what} runs`);
    fill(path, `${COUNT_TO}${RUNS[what]}${what === "finished" ? LABELS : ""}${REST[what]}`, count, before);
    before += count;
  }
  fill(path, INPUTS + COUNTS, before);
  return path;
}

/** The same for raw SQLite: finished runs with their labels and how many there are, which our lists have to tell. */
export function stockRaw(setting: Setting, count: number): string {
  const path = `${setting.shared}/raw_finished_${count}.db`;
  if (existsSync(path)) return path;
  setting.say(`making ${count.toLocaleString("en")} raw runs`);
  using raw = new RawDatabase(path);
  raw.connection.exec(`
    CREATE INDEX runs_by_job ON runs (job, seq);
    CREATE INDEX runs_by_status ON runs (status, seq);
    CREATE TABLE counts (job TEXT, status TEXT, n INTEGER, PRIMARY KEY (job, status)) WITHOUT ROWID;
    CREATE TABLE labels (key TEXT, value TEXT, run_seq INTEGER, PRIMARY KEY (key, value, run_seq)) WITHOUT ROWID;
    CREATE INDEX labels_by_run ON labels (run_seq);
  `);
  fill(path, `${COUNT_TO}${RAW}`, count);
  return path;
}

/** Runs statements as fast as it can be done, and puts all into the main file. */
function fill(path: string, sql: string, count: number, before = 0): void {
  using db = new DatabaseSync(path);
  db.exec("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000; PRAGMA temp_store = MEMORY; BEGIN");
  const values = { ":count": count, ":before": before, ":now": Date.now() };
  db.exec(Object.entries(values).reduce((text, [name, value]) => text.replaceAll(name, String(value)), sql));
  db.exec("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)");
}

const COUNT_TO = `
  CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY);
  INSERT INTO numbers
    WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < :count) SELECT :before + n FROM up;
`;
// In the shape of a UUIDv7, and rising as one.
const ID = "printf('%08x-%04x-7000-8000-%012x', 25000000 + n / 65536, n % 65536, n)";
const DAY_MS = 86_400_000;

const RUNS: Record<Stock, string> = {
  finished: `
    INSERT INTO holdfast_runs (id, job, queue, position, status, labels, lease_generation, output, created_at, updated_at, started_at,
      completed_at)
    SELECT ${ID}, '${STOCK_JOB}', '${STOCK_JOB}', n, 'completed', json_object('tenant', 't' || (n % 10), 'batch', 'b' || (n / 50)), 1, '1',
      :now - 60000, :now - 59000, :now - 60000, :now - 59000 FROM numbers;
  `,
  waiting: `
    INSERT INTO holdfast_runs (id, job, queue, position, status, labels, timer_at, lease_generation, recorded, has_pauses, created_at,
      updated_at, started_at)
    SELECT ${ID}, '${STOCK_JOB}', '${STOCK_JOB}', n, 'waiting', '{}', :now + ${DAY_MS} + n, 1, 1, 1, :now - 60000, :now - 59000,
      :now - 60000 FROM numbers;
  `,
  behind: `
    INSERT INTO holdfast_runs (id, job, queue, position, status, labels, concurrency_key, queue_state, created_at, updated_at)
    SELECT ${ID}, '${STOCK_JOB}', '${STOCK_JOB}', n, 'pending', '{}', 'busy', 'B', :now - 60000, :now - 60000 FROM numbers;
  `,
  queued: `
    INSERT INTO holdfast_runs (id, job, queue, position, status, labels, concurrency_key, queue_state, created_at, updated_at)
    SELECT ${ID}, '${STOCK_JOB}', '${STOCK_JOB}', n, 'pending', '{}', 'free', iif(n = 1, 'R', 'B'), :now - 60000, :now - 60000
    FROM numbers;
  `,
  limited: `
    INSERT INTO holdfast_runs (id, job, queue, position, status, labels, queue_state, created_at, updated_at)
    SELECT ${ID}, '${LIMITED_JOB.name}', '${LIMITED_JOB.name}', n, 'pending', '{}', 'R', :now - 60000, :now - 60000 FROM numbers;
  `,
  delayed: `
    INSERT INTO holdfast_runs (id, job, queue, position, status, labels, start_at, due_at, created_at, updated_at)
    SELECT ${ID}, '${STOCK_JOB}', '${STOCK_JOB}', n, 'pending', '{}', :now + ${DAY_MS} + n, :now + ${DAY_MS} + n, :now - 60000, :now - 60000 FROM numbers;
  `,
};

const LABELS = `
  INSERT INTO holdfast_labels (key, value, run_seq)
    SELECT 'batch' AS key, 'b' || (n / 50) AS value, n FROM numbers
    UNION ALL SELECT 'tenant', 't' || (n % 10), n FROM numbers ORDER BY key, value, n;
`;

const INPUTS = "INSERT INTO holdfast_inputs (run_seq, payload) SELECT seq, '{\"n\":1}' FROM holdfast_runs;";

const COUNTS = "INSERT INTO holdfast_counts SELECT status, job, count(*) FROM holdfast_runs GROUP BY 1, 2;";

// The first run is executed elsewhere.
const EXECUTED = `
  UPDATE holdfast_runs SET status = 'running', queue_state = NULL, lease_owner = 'elsewhere', lease_generation = 1,
    lease_expires_at = :now + ${DAY_MS}, started_at = :now WHERE seq = :before + 1;
`;

const REST: Record<Stock, string> = {
  finished: "",
  waiting: `
    INSERT INTO holdfast_pauses (id, run_seq, kind, name, status, awaited, prepared_no, created_at, deadline_at,
      suspended_at)
    SELECT 'w' || id, seq, 'wait', 'answer', 'pending', 1, 1, :now - 60000, timer_at, :now - 59000
    FROM numbers JOIN holdfast_runs ON seq = n;
  `,
  behind: `${EXECUTED}
    INSERT INTO holdfast_holders (concurrency_key, run_id, generation)
    SELECT concurrency_key, id, lease_generation FROM holdfast_runs WHERE seq = :before + 1;
  `,
  queued: "",
  limited: EXECUTED,
  delayed: "",
};

const RAW = `
  INSERT INTO runs (id, job, status, input, output, lease_generation, created_at, updated_at, completed_at)
  SELECT ${ID}, '${STOCK_JOB}', 'completed', '{"n":1}', '1', 1, :now - 60000, :now - 59000, :now - 59000 FROM numbers;
  INSERT INTO counts VALUES ('${STOCK_JOB}', 'completed', :count);
  INSERT INTO labels
    SELECT 'batch' AS key, 'b' || (n / 50) AS value, n FROM numbers
    UNION ALL SELECT 'tenant', 't' || (n % 10), n FROM numbers ORDER BY key, value, n;
`;
