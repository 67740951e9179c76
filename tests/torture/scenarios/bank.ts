import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { createEngine, type DataSource, defineJob, type Engine, sqliteDataSource, SqliteStore } from "../../../mod.ts";
import { postgresDataSource, PostgresStore } from "../../../src/stores/postgres/mod.ts";
import { anything } from "../../processes/anything.ts";
import { Child } from "../../processes/child.ts";
import { inTime } from "../../processes/deadline.ts";
import { nap } from "../nap.ts";
import type { Scenario } from "../scenario.ts";
import type { Patience } from "./patience.ts";

const ACCOUNTS = 20;
const CENTS = 10_000;
const WORKERS = 2;
const LOOK_EVERY_MS = 10;
const SLICE = 60;
const DEATHS = 0.03;
const PROOF_MS = 60_000;

/** How the rows of a transfer and its record are written. */
export type BankWay = "joined" | "apart" | "own commit";

/** Where a bank and its jobs are: paths of files, or addresses of PostgreSQL. */
export interface BankPlace {
  way: BankWay;
  jobs: string;
  bank: string;
  isolation: "repeatable read" | null;
  /** How probable it is that a worker dies at each of the places where it may. */
  deaths: number;
}

/** An order of a client. */
export interface Transfer {
  no: number;
  from: number;
  to: number;
  cents: number;
}

/** What came of a bank. */
export interface BankResult {
  /** The run of each transfer that was made. */
  made: string[];
  orders: number;
  deaths: number;
  looks: number;
}

/**
 * Transfers between accounts by workers that die around each commit. With `step.transaction()` each is made once, in the
 * file of the store or in another one, and the total is the same at every look. The control, a commit of its own in a
 * step, has to make some twice: otherwise the deaths prove nothing.
 */
export const bank: Scenario = {
  name: "a bank whose workers are killed around commits",

  async run({ isBrief, ms, patience }) {
    const told: string[] = [];
    const counts = { "transfers": 0, "kills": 0, "looks at the total": 0, "made twice by the control": 0 };
    for (const way of ["joined", "apart", "own commit"] as const) {
      const folder = await Deno.makeTempDir({ prefix: "bank-" });
      const [file, jobsFile] = [join(folder, "bank.db"), join(folder, "jobs.db")];
      try {
        const place = { way, jobs: way === "joined" ? file : jobsFile, bank: file, isolation: null, deaths: DEATHS };
        const result = await executeBank(place, openFile(file), { ms: isBrief ? 0 : ms, patience });
        told.push(describeBank(way, checkBank(way, result)));
        counts.kills += result.deaths;
        counts["looks at the total"] += result.looks;
        if (way === "own commit") counts["made twice by the control"] += result.made.length - result.orders;
        else counts.transfers += result.orders;
      } finally {
        await Deno.remove(folder, { recursive: true });
      }
    }
    return { outcome: "held", told: told.join("; "), counts };
  },
};

/** Throws unless each transfer was made once; the control has to make some twice. */
export function checkBank(way: BankWay, result: BankResult): BankResult {
  const { made, orders, deaths, looks } = result;
  const twice = made.length - new Set(made).size;
  assert.equal(new Set(made).size, orders, `${way}: transfers are missing`);
  if (way === "own commit") assert.ok(twice > 0, `the control made no transfer twice in ${deaths} deaths: too mild`);
  else assert.equal(twice, 0, `${way}: transfers were made twice`);
  assert.ok(deaths > 0 && looks > 0, `${way}: ${deaths} deaths, ${looks} looks`);
  return result;
}

/** What came of a bank, in a line. */
export function describeBank(name: string, { made, orders, deaths, looks }: BankResult): string {
  return `${name}: ${made.length} transfers for ${orders} orders, ${deaths} deaths, ${looks} looks`;
}

/** The tables of a bank, by the connection of the test. */
export interface BankTables {
  total(): Promise<number> | number;
  /** The runs of the transfers that were made. */
  made(): Promise<string[]> | string[];
  /** The run of each order. */
  orders(): Promise<string[]> | string[];
  /** Adds an order and its trigger, in a transaction of the client. */
  order(engine: Engine, app: DataSource, transfer: Transfer): Promise<void>;
  close(): Promise<void> | void;
}

/**
 * Lets clients order transfers for so long, and workers make them, until all are made. Goes on for up to a minute more
 * if no worker has died by then, or the control has made no transfer twice.
 *
 * @param options.faults What else goes wrong, until the signal fires.
 */
export async function executeBank(
  place: BankPlace,
  tables: BankTables,
  { ms, patience, faults }: { ms: number; patience: Patience; faults?: (signal: AbortSignal) => Promise<void> },
): Promise<BankResult> {
  await using store = place.jobs.startsWith("postgres:")
    ? await PostgresStore.open(place.jobs)
    : await SqliteStore.open(place.jobs);
  await using app = await openSource(place, store);
  const transfer = defineJob({ name: "transfer", input: anything(), run: () => {} });
  await using engine = createEngine({ store, jobs: { transfer }, dataSources: { app }, logger: null });
  await engine.migrate();
  const isOver = new AbortController();
  const seen = { deaths: 0, looks: 0 };
  const watching = watchTotal(tables, seen, isOver.signal);
  const failing = faults?.(isOver.signal) ?? Promise.resolve();
  const keeping = Array.from({ length: WORKERS }, () => keepAlive(place, seen, isOver.signal));
  const until = performance.now() + ms;
  const giveUpAt = until + PROOF_MS;
  let orders = 0;
  // Chance kills the workers: a bank in which nobody has died yet would show nothing.
  const isProof = async () => {
    if (place.way !== "own commit") return seen.deaths > 0 && seen.looks > 0;
    const made = await repeated(() => tables.made());
    return made.length > new Set(made).size;
  };
  try {
    do {
      for (const _ of Array(SLICE)) {
        await repeated(() => order(place, tables, engine, app, aTransfer(orders)), () => orders++);
      }
      for (const id of (await repeated(() => tables.orders())).slice(-SLICE)) {
        patience.check();
        // A worker relays the trigger.
        while (await repeated(() => engine.getRun(id)) === null) await patience.pause(LOOK_EVERY_MS);
        await inTime(repeated(() => engine.waitForRun(id)), `transfer ${id} was to end`);
      }
    } while (performance.now() < until || performance.now() < giveUpAt && !await isProof());
  } finally {
    isOver.abort();
    await failing;
  }
  await Promise.all([...keeping, watching]);
  const runs = await repeated(() => engine.getRuns({ limit: 1 }));
  const ordered = await repeated(() => tables.orders());
  if (!runs.totalIsAtLeast) assert.equal(runs.total, ordered.length, "orders and runs are not the same number");
  const result = { made: await repeated(() => tables.made()), orders: ordered.length, ...seen };
  await tables.close();
  return result;
}

// deno-lint-ignore no-explicit-any -- what its transactions are given depends on the place
type AnySource = DataSource<any> & AsyncDisposable;

async function openSource({ way, bank }: BankPlace, store: SqliteStore | PostgresStore): Promise<AnySource> {
  if (way === "joined") return (store as unknown as { dataSource(): AnySource }).dataSource();
  return bank.startsWith("postgres:") ? postgresDataSource(bank) : await sqliteDataSource(bank);
}

/** Orders come by `engine.transaction()`, and by transactions of clients. */
async function order(
  { bank }: BankPlace,
  tables: BankTables,
  engine: Engine,
  app: AnySource,
  transfer: Transfer,
): Promise<void> {
  if (transfer.no % 2 === 1) return await tables.order(engine, app, transfer);
  const key = { idempotencyKey: `order ${transfer.no}` };
  await engine.transaction(app, (tx) => {
    if (!bank.startsWith("postgres:")) {
      if (tx.get("SELECT 1 FROM orders WHERE no = ?", transfer.no) !== undefined) return;
      const { runId } = tx.trigger("transfer", transfer, key);
      return void tx.run("INSERT INTO orders VALUES (?, ?)", transfer.no, runId);
    }
    return (async () => {
      const { runId } = await tx.trigger("transfer", transfer, key);
      // A repetition after an unknown outcome fails at the primary key.
      await tx.client.query("INSERT INTO orders VALUES ($1, $2)", [transfer.no, runId]);
    })();
  });
}

/** Repeats what fails while the server is away; an order that is there already is one. */
async function repeated<T>(work: () => Promise<T> | T, done: () => unknown = () => {}): Promise<T> {
  const giveUpAt = performance.now() + 60_000;
  while (true) {
    try {
      const value = await work();
      done();
      return value;
    } catch (error) {
      if ((error as { code?: string }).code === "23505") return done() as T;
      if (performance.now() > giveUpAt || error instanceof assert.AssertionError) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

function openFile(file: string): BankTables {
  const accounts = new DatabaseSync(file);
  accounts.exec(`PRAGMA busy_timeout = 10000; PRAGMA journal_mode = WAL;
    CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE transfers (run_id TEXT NOT NULL);
    CREATE TABLE orders (no INTEGER PRIMARY KEY, run_id TEXT NOT NULL)`);
  for (let id = 0; id < ACCOUNTS; id++) accounts.prepare("INSERT INTO accounts VALUES (?, ?)").run(id, CENTS);
  const runs = (sql: string) => accounts.prepare(sql).all().map(({ run_id }) => String(run_id));
  return {
    total: () => Number(accounts.prepare("SELECT sum(cents) AS cents FROM accounts").get()!.cents),
    made: () => runs("SELECT run_id FROM transfers"),
    orders: () => runs("SELECT run_id FROM orders ORDER BY no"),
    order: async (engine, app, transfer) => {
      accounts.exec("BEGIN IMMEDIATE");
      const triggering = engine.inTransaction(app, accounts).trigger("transfer", transfer);
      accounts.exec(
        `INSERT INTO orders SELECT ${transfer.no}, id FROM holdfast_outbox ORDER BY no DESC LIMIT 1; COMMIT`,
      );
      await triggering;
    },
    close: () => accounts.close(),
  };
}

/** Makes the tables of a bank on PostgreSQL. */
export async function openPostgresBank(url: string): Promise<BankTables> {
  const pool = new pg.Pool({ connectionString: url, max: 3 });
  pool.on("error", () => {});
  await pool.query(`DROP TABLE IF EXISTS accounts, transfers, orders;
    CREATE TABLE accounts (id int PRIMARY KEY, cents int NOT NULL); CREATE TABLE transfers (run_id text NOT NULL);
    CREATE TABLE orders (no int PRIMARY KEY, run_id text NOT NULL);
    INSERT INTO accounts SELECT id, ${CENTS} FROM generate_series(0, ${ACCOUNTS - 1}) id`);
  const runs = async (sql: string) => (await pool.query(sql)).rows.map(({ run_id }) => String(run_id));
  return {
    total: async () => Number((await pool.query("SELECT sum(cents) AS cents FROM accounts")).rows[0].cents),
    made: () => runs("SELECT run_id FROM transfers"),
    orders: () => runs("SELECT run_id FROM orders ORDER BY no"),
    order: async (_engine, _app, { no, ...transfer }) => {
      const given = JSON.stringify({ no, ...transfer });
      // As psql or a trigger of a table would.
      await pool.query("INSERT INTO orders SELECT $1, holdfast.trigger('transfer', $2::jsonb)", [no, given]);
    },
    close: () => pool.end(),
  };
}

function aTransfer(no: number): Transfer {
  const [from, step, cents] = [ACCOUNTS, ACCOUNTS - 1, 100].map((most) => Math.floor(Math.random() * most));
  return { no, from: from!, to: (from! + 1 + step!) % ACCOUNTS, cents: cents! };
}

/** Looks at the total until the signal fires, and counts how often. */
async function watchTotal(tables: BankTables, seen: { looks: number }, signal: AbortSignal): Promise<void> {
  do {
    assert.equal(await repeated(() => tables.total()), ACCOUNTS * CENTS, "the total of the accounts has changed");
    seen.looks += 1;
    await nap(LOOK_EVERY_MS, signal);
  } while (!signal.aborted);
}

/** Keeps a worker alive, which dies now and then, until the signal fires. Counts how often it has died. */
async function keepAlive(place: BankPlace, seen: { deaths: number }, signal: AbortSignal): Promise<void> {
  while (true) {
    await using worker = new Child({ file: new URL("bank_worker.ts", import.meta.url).href }, JSON.stringify(place));
    const { promise: over, resolve } = Promise.withResolvers<"over">();
    const end = () => resolve("over");
    signal.addEventListener("abort", end, { once: true });
    if (signal.aborted) end();
    const how = await Promise.race([worker.ended, over]);
    signal.removeEventListener("abort", end);
    if (how === "over") return;
    assert.equal(how.signal, "SIGKILL", "a worker has ended otherwise than by its own kill");
    seen.deaths += 1;
  }
}
