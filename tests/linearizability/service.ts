// Executes runs and serves them over HTTP on a free port of 127.0.0.1, until it is killed or nobody is left to tell it
// anything. Arguments: a file, ":memory:" or the address of a PostgreSQL database; the file for what it sees of leases;
// what is examined: there are schedules only if "slots" is among it.

import { createEngine, createHandler, defineJob, MemoryStore, SqliteStore } from "../../mod.ts";
import { PostgresStore } from "../../src/stores/postgres/mod.ts";
import { anything } from "../processes/anything.ts";
import { heardLines, say } from "../processes/parent.ts";
import { LedgerWriter } from "../torture/ledger.ts";
import { examinedJobs, examinedSchedules } from "./examined_jobs.ts";
import type { Fact } from "./facts.ts";
import { witnessedStore } from "./witnessed_store.ts";

const [database, ledgerPath, ...examined] = Deno.args as [string, string, ...string[]];
const ledger = new LedgerWriter<Fact>(ledgerPath);
const write = (fact: Fact) => ledger.write(fact);

const order = defineJob({
  name: "order",
  input: anything(),
  async run(step) {
    await step.wait("answer");
    await step.run("take", () => "taken");
  },
});

const engine = createEngine({
  store: witnessedStore(await open(), write),
  jobs: { order, ...examinedJobs(write) },
  schedules: examined.includes("slots") ? examinedSchedules() : {},
  worker: {
    staleThreshold: 1_000,
    heartbeatInterval: 250,
    pollingInterval: 50,
    concurrency: 50,
    maxAbandonments: 1_000,
  },
  logger: null,
});
await engine.start();
const { fetch } = createHandler(engine, { onError: (error) => say({ type: "hidden", told: String(error) }) });
Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: ({ port }) => say({ type: "serving", port }) }, fetch);
for await (const _ of heardLines());
Deno.exit();

async function open() {
  if (database === ":memory:") return new MemoryStore();
  return database.startsWith("postgres:") ? await PostgresStore.open(database) : await SqliteStore.open(database);
}
