// Executes runs of "hold", whose first step can be held until the test says a word. Its leases last so long that no
// test waits for the end of one. SIGTERM stops its engine.
// Arguments: the database, the ledger.

import process from "node:process";
import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { Ledger } from "./ledger.ts";
import { heardLine, say } from "./parent.ts";

const [path, ledgerPath] = Deno.args as [string, string];
const ledger = new Ledger(ledgerPath);
const word = heardLine();

const hold = defineJob({
  name: "hold",
  input: anything<{ holds: boolean; heedsAbort: boolean }>(),
  async run(step, { holds, heedsAbort }) {
    await step.run("hold", async ({ abortSignal }) => {
      ledger.write("begin", step.runId);
      say({ type: "executing", runId: step.runId });
      const aborted = new Promise<void>((resolve) => abortSignal.addEventListener("abort", () => resolve()));
      aborted.then(() => say({ type: "aborted", runId: step.runId }));
      if (holds) await Promise.race(heedsAbort ? [word, aborted] : [word]);
      ledger.write("end", step.runId);
      if (heedsAbort) abortSignal.throwIfAborted();
      return "held";
    });
    await step.run("after", () => ledger.write("after", step.runId));
    return { pid: Deno.pid, execution: step.execution };
  },
});

const store = await SqliteStore.open(path);
const engine = createEngine({
  store,
  jobs: { hold },
  worker: { staleThreshold: 600_000, heartbeatInterval: 100, pollingInterval: 100 },
});
process.on("SIGTERM", async () => {
  await engine.stop({ timeout: 50 });
  await store.close();
  Deno.exit(0);
});
await engine.start();
say({ type: "ready" });
