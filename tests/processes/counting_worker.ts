// Executes runs of "count", whose steps answer something else each time they are executed.
// Arguments: the database, the ledger.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { Ledger } from "./ledger.ts";

const [path, ledgerPath] = Deno.args as [string, string];
const ledger = new Ledger(ledgerPath);

const count = defineJob({
  name: "count",
  input: anything<{ steps: number; stepMs: number }>(),
  async run(step, { steps, stepMs }) {
    const values: string[] = [];
    for (let number = 0; number < steps; number++) {
      const name = `step-${number}`;
      values.push(
        await step.run(name, async () => {
          ledger.write("start", step.runId, name, Deno.pid);
          await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 * stepMs));
          return `${name} ${crypto.randomUUID()}`;
        }),
      );
    }
    return values;
  },
});

const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { count },
  worker: { staleThreshold: 400, heartbeatInterval: 100, pollingInterval: 100, maxAbandonments: 1_000 },
});
engine.on("step:complete", ({ runId, stepName }) => ledger.write("ack", runId, stepName));
await engine.start();
