// Executes runs of the storm until it is killed, and writes down what the store has acknowledged.
// Arguments: the address of the database, the schema, the ledger, the version of its jobs, and by how many milliseconds
// its clock is off.

import { createEngine } from "../../../../mod.ts";
import { systemHost } from "../../../../src/host.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { Ledger } from "../../../processes/ledger.ts";
import { say } from "../../../processes/parent.ts";
import { stormJobs } from "./storm_jobs.ts";

const [url, schema, path, version, offset] = Deno.args as [string, string, string, string, string];
const ledger = new Ledger(path);
const host = { ...systemHost, now: () => systemHost.now() + Number(offset) };

const engine = createEngine({
  store: await PostgresStore.open(url, { schema }),
  host,
  jobs: stormJobs(Number(version), (...words) => ledger.write(...words)),
  worker: {
    concurrency: 10,
    staleThreshold: 2_000,
    heartbeatInterval: 300,
    pollingInterval: 100,
    maxAbandonments: 1_000,
  },
  logger: null,
});
// An event is published after the commit: from now on the store has to know it.
engine.on(
  "step:complete",
  ({ runId, stepName, output }) => ledger.write("step", runId, stepName.replace(" ", "-"), String(output)),
);
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
