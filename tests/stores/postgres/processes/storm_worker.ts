// Executes runs of the storm until it is killed, and writes down what the store has acknowledged.
// Arguments: the address of the database, the schema, the ledger, and a `WorkerKind` as JSON.

import { createEngine } from "../../../../mod.ts";
import { systemHost } from "../../../../src/model/host.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { Ledger } from "../../../processes/ledger.ts";
import { say } from "../../../processes/parent.ts";
import { stormJobs, TICKS } from "./storm_jobs.ts";
import type { WorkerKind } from "./worker_kinds.ts";

const [url, schema, path, kindText] = Deno.args as [string, string, string, string];
const { version, clockOffsetMs, jobs: names }: WorkerKind = JSON.parse(kindText);
const ledger = new Ledger(path);
const host = { ...systemHost, now: () => systemHost.now() + clockOffsetMs };
const all = stormJobs(version, (...words) => ledger.write(...words));
const jobs = names === null ? all : Object.fromEntries(Object.entries(all).filter(([name]) => names.includes(name)));

const engine = createEngine({
  store: await PostgresStore.open(url, { schema }),
  host,
  jobs,
  schedules: "tick" in jobs ? { ticks: { job: "tick", input: { n: 0, stepMs: 20 }, ...TICKS } } : {},
  worker: {
    concurrency: 10,
    staleThreshold: 1_200,
    heartbeatInterval: 250,
    pollingInterval: 100,
    maxAbandonments: 1_000,
  },
  retention: { cancelled: 5_000 },
  logger: null,
});
// An event is published after the commit: from now on the run has ended.
engine.on("run:complete", ({ runId }) => ledger.write("end", runId));
while (true) {
  try {
    await engine.start();
    break;
  } catch {
    // The database cannot answer yet.
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
say({ type: "ready" });
