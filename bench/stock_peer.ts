import { existsSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { openPeer } from "./peers.ts";
import type { Setting } from "./setting.ts";
import { STOCK_JOB } from "./stock.ts";

/** Which columns of a copied run are others than those of the run it is copied from: SQL about its number, `n`. */
interface Copying {
  table: string;
  columns: Readonly<Record<string, string>>;
  /** What else is inserted, from a table `numbers`. */
  rest: string;
}

const ID = "printf('%08x-0000-7000-8000-%012x', 25000000, n)";
const CREATED_AT = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 days', '+' || (n / 1000.0) || ' seconds')";
const COPYING: Record<"durably" | "openworkflow", Copying> = {
  durably: {
    table: "durably_runs",
    columns: {
      id: ID,
      created_at: CREATED_AT,
      labels: "json_object('tenant', 't' || (n % 10), 'batch', 'b' || (n / 50))",
    },
    rest: `
      INSERT INTO durably_run_labels (run_id, key, value)
        SELECT ${ID}, 'tenant', 't' || (n % 10) FROM numbers
        UNION ALL SELECT ${ID}, 'batch', 'b' || (n / 50) FROM numbers;`,
  },
  openworkflow: { table: "workflow_runs", columns: { id: ID, created_at: CREATED_AT }, rest: "" },
};

/**
 * Makes a database of a peer with so many finished runs in it, once for each command: it works off one itself, and that
 * one is copied by SQL. Labels as ours have, where the peer knows labels.
 *
 * @returns The path of the file.
 */
export async function stockPeer(name: "durably" | "openworkflow", setting: Setting, count: number): Promise<string> {
  const path = `${setting.shared}/${name}_${count}.db`;
  if (existsSync(path)) return path;
  setting.say(`making ${count.toLocaleString("en")} runs of ${name}`);
  {
    await using engine = await openPeer(name)({ path, jobs: { [STOCK_JOB]: () => {} }, fastest: true });
    await engine.trigger(STOCK_JOB, { n: 1 });
    await engine.start();
    await engine.completed(1);
  }
  using db = new DatabaseSync(path);
  const { table, columns, rest } = COPYING[name];
  const names = db.prepare(`PRAGMA table_info(${table})`).all().map((column) => String(column.name));
  db.exec(`
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -400000;
    BEGIN;
    CREATE TEMP TABLE numbers (n INTEGER PRIMARY KEY);
    INSERT INTO numbers
      WITH RECURSIVE up (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < ${count}) SELECT n FROM up;
    INSERT INTO ${table} (${names.join(", ")})
      SELECT ${names.map((column) => columns[column] ?? `one.${column}`).join(", ")}
      FROM numbers, (SELECT * FROM ${table} LIMIT 1) AS one;
    ${rest}
    COMMIT;
    PRAGMA wal_checkpoint(TRUNCATE);
  `);
  return path;
}
