// Executes runs of "block". In its first execution a run blocks the event loop between two steps, until another
// process has recorded the second one.
// Arguments: the database, the ledger.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { Ledger } from "./ledger.ts";
import { say } from "./parent.ts";

const [path, ledgerPath] = Deno.args as [string, string];
const ledger = new Ledger(ledgerPath);

const block = defineJob({
  name: "block",
  input: anything(),
  async run(step) {
    await step.run("first", () => ledger.write("start", step.runId, "first", Deno.pid));
    if (step.execution === 1) {
      say({ type: "blocked" });
      const isRecorded = () => ledger.read().some(([word, , name]) => word === "ack" && name === "second");
      while (!isRecorded()) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    }
    if (step.execution === 1) setTimeout(() => say({ type: "unblocked" }), 300); // time enough to begin, if it would
    await step.run("second", () => ledger.write("start", step.runId, "second", Deno.pid));
    return Deno.pid;
  },
});

const engine = createEngine({
  logger: null,
  store: await SqliteStore.open(path),
  jobs: { block },
  worker: { staleThreshold: 400, heartbeatInterval: 100, pollingInterval: 100 },
});
engine.on("step:complete", ({ runId, stepName }) => ledger.write("ack", runId, stepName));
await engine.start();
