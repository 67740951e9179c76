// Executes transfers between accounts, and dies on purpose: around commits, where a transfer could be made twice.
// Arguments: the way (`joined`, `apart` or `own commit`), the file of the store, the file of the bank.

import { DatabaseSync } from "node:sqlite";
import { createEngine, defineJob, sqliteDataSource, type SqliteDriver, SqliteStore } from "../../../mod.ts";
import { anything } from "../../processes/anything.ts";

const [way, jobsFile, bankFile] = Deno.args as [string, string, string];
const DEATHS = 0.03;

function perhapsDie(): void {
  if (Math.random() < DEATHS) Deno.kill(Deno.pid, "SIGKILL");
}

const bank = new DatabaseSync(bankFile);
bank.exec("PRAGMA busy_timeout = 10000");
const joined = way === "joined" ? await SqliteStore.from(bank as unknown as SqliteDriver) : null;
const store = joined ?? await SqliteStore.open(jobsFile);
const app = joined?.dataSource() ?? await sqliteDataSource(bankFile);

// Between a commit of the bank and the record, or before the only commit.
const saveStep = store.saveStep.bind(store);
store.saveStep = (...given) => {
  perhapsDie();
  return saveStep(...given);
};

const DEBIT = "UPDATE accounts SET cents = cents - ? WHERE id = ?";
const CREDIT = "UPDATE accounts SET cents = cents + ? WHERE id = ?";
const NOTE = "INSERT INTO transfers (run_id) VALUES (?)";

const transfer = defineJob({
  name: "transfer",
  input: anything<{ from: number; to: number; cents: number }>(),
  async run(step, { from, to, cents }) {
    if (way === "own commit") {
      await step.run("move", () => {
        bank.exec("BEGIN IMMEDIATE");
        bank.prepare(DEBIT).run(cents, from);
        bank.prepare(CREDIT).run(cents, to);
        bank.prepare(NOTE).run(step.runId);
        bank.exec("COMMIT");
        perhapsDie();
      });
    } else {
      await step.transaction("move", app, (tx) => {
        tx.run(DEBIT, cents, from);
        perhapsDie();
        tx.run(CREDIT, cents, to);
        tx.run(NOTE, step.runId);
        perhapsDie();
      });
    }
    await step.run("tell", () => console.log(JSON.stringify({ type: "moved" })));
  },
});

const engine = createEngine({
  store,
  jobs: { transfer },
  dataSources: { app },
  worker: { staleThreshold: 400, heartbeatInterval: 100, pollingInterval: 100, maxAbandonments: 1_000 },
});
await engine.start();
