// Executes runs of the jobs that it is told, and writes down when each body begins and ends.
// Arguments: the database, the ledger, the names of the jobs.

import { createEngine, defineJob, type Job, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { Ledger } from "./ledger.ts";

const [path, ledgerPath, ...jobNames] = Deno.args as [string, string, ...string[]];
const ledger = new Ledger(ledgerPath);

function keyedJob(name: string): Job<{ key: string }> {
  return defineJob({
    name,
    input: anything<{ key: string }>(),
    async run(step, { key }) {
      ledger.write("begin", step.runId, key, Deno.pid);
      for (const stepName of ["first", "second"]) {
        await step.run(stepName, () => new Promise<void>((resolve) => setTimeout(resolve, Math.random() * 5)));
      }
      ledger.write("end", step.runId, key, Deno.pid);
    },
  });
}

const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: Object.fromEntries(jobNames.map((name) => [name, keyedJob(name)])),
});
await engine.start();
