// Executes transfers between accounts, and dies on purpose: around commits, where a transfer could be made twice.
// Argument: a `BankPlace` as JSON.

import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import {
  createEngine,
  type DataSource,
  defineJob,
  sqliteDataSource,
  type SqliteDriver,
  SqliteStore,
  type SqliteTransaction,
  type StepContext,
} from "../../../mod.ts";
import { postgresDataSource, PostgresStore, type PostgresTransaction } from "../../../src/stores/postgres/mod.ts";
import { anything } from "../../processes/anything.ts";
import type { BankPlace, Transfer } from "./bank.ts";

const { way, jobs, bank: place, isolation, deaths } = JSON.parse(Deno.args[0]!) as BankPlace;
const isPostgres = place.startsWith("postgres:");

function perhapsDie(): void {
  if (Math.random() < deaths) Deno.kill(Deno.pid, "SIGKILL");
}

const file = isPostgres ? null : new DatabaseSync(place);
file?.exec("PRAGMA busy_timeout = 10000");
const pool = isPostgres ? new pg.Pool({ connectionString: place, max: 5, application_name: "bank" }) : null;
pool?.on("error", () => {}); // a backend was terminated while it was idle
// A data source has to bear it without this.
if (way === "own commit") pool?.on("connect", (client) => void client.on("error", () => {}));
const store = jobs.startsWith("postgres:")
  ? await PostgresStore.open(jobs)
  : way === "joined"
  ? await SqliteStore.from(file as unknown as SqliteDriver)
  : await SqliteStore.open(jobs);
const app = await openSource();

// deno-lint-ignore no-explicit-any -- what its transactions are given depends on the way
async function openSource(): Promise<DataSource<any>> {
  if (way === "joined") {
    return store instanceof SqliteStore
      ? store.dataSource()
      : (store as unknown as { dataSource(pool: pg.Pool): DataSource }).dataSource(pool!);
  }
  return pool === null ? await sqliteDataSource(place) : postgresDataSource(pool);
}

// Between a commit of the bank and the record, or before the only commit.
const saveStep = store.saveStep.bind(store);
store.saveStep = (...given) => {
  perhapsDie();
  return saveStep(...given);
};

const DEBIT = "UPDATE accounts SET cents = cents - $1 WHERE id = $2";
const CREDIT = "UPDATE accounts SET cents = cents + $1 WHERE id = $2";
const NOTE = "INSERT INTO transfers (run_id) VALUES ($1)";
const onSqlite = (sql: string) => sql.replaceAll(/\$\d/g, "?");

const transfer = defineJob({
  name: "transfer",
  input: anything<Transfer>(),
  retry: { maxAttempts: 1_000, delay: 20, maxDelay: 500 }, // a terminated backend fails an attempt
  run: async (step, input) => {
    if (way === "own commit") await step.run("move", () => moveAlone(step, input));
    else if (isPostgres) await moveOnPostgres(step, input);
    else await moveOnSqlite(step, input);
    await step.run("tell", () => console.log(JSON.stringify({ type: "moved" })));
  },
});

async function moveOnSqlite(step: StepContext, { from, to, cents }: Transfer): Promise<void> {
  await step.transaction("move", app as DataSource<SqliteTransaction>, (tx) => {
    tx.run(onSqlite(DEBIT), cents, from);
    perhapsDie();
    tx.run(onSqlite(CREDIT), cents, to);
    tx.run(onSqlite(NOTE), step.runId);
    perhapsDie();
  });
}

async function moveOnPostgres(step: StepContext, { from, to, cents }: Transfer): Promise<void> {
  await step.transaction("move", app as DataSource<PostgresTransaction>, async ({ client }) => {
    await client.query(DEBIT, [cents, from]);
    perhapsDie();
    await client.query(CREDIT, [cents, to]);
    await client.query(NOTE, [step.runId]);
    perhapsDie();
    // The process dies while the last statements are under way, too.
    if (Math.random() < deaths) setTimeout(() => Deno.kill(Deno.pid, "SIGKILL"), Math.random() * 8);
  }, isolation === null ? {} : { isolation });
}

async function moveAlone(step: StepContext, { from, to, cents }: Transfer): Promise<void> {
  if (file !== null) {
    file.exec("BEGIN IMMEDIATE");
    file.prepare(onSqlite(DEBIT)).run(cents, from);
    file.prepare(onSqlite(CREDIT)).run(cents, to);
    file.prepare(onSqlite(NOTE)).run(step.runId);
    file.exec("COMMIT");
  } else {
    const client = await pool!.connect();
    try {
      await client.query("BEGIN");
      await client.query(DEBIT, [cents, from]);
      await client.query(CREDIT, [cents, to]);
      await client.query(NOTE, [step.runId]);
      await client.query("COMMIT");
      client.release();
    } catch (error) {
      client.release(true);
      throw error;
    }
  }
  perhapsDie();
}

const engine = createEngine({
  store,
  jobs: { transfer },
  dataSources: { app },
  worker: { staleThreshold: 400, heartbeatInterval: 100, pollingInterval: 100, maxAbandonments: 100_000 },
});
while (true) {
  try {
    await engine.start();
    break;
  } catch (error) {
    if (!isPostgres) throw error;
    await new Promise((resolve) => setTimeout(resolve, 50)); // the server restarts
  }
}
