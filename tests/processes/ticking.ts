// Told to, ticks for some seconds: an engine that is never started executes what is due, again and again, and writes down
// each slot of its schedule and each run. Then it says how much it has executed.
// Arguments: the database, the ledger, for how many milliseconds.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { Ledger } from "./ledger.ts";
import { heardLine, say } from "./parent.ts";

const [path, ledgerPath, ms] = Deno.args as [string, string, string];
const ledger = new Ledger(ledgerPath);
const second = defineJob({
  name: "second",
  input: anything(),
  run: (step) => step.run("note", () => ledger.write("slot", step.slot!.at)),
});
const count = defineJob({
  name: "count",
  input: anything(),
  async run(step, n) {
    await step.run("note", () => ledger.write("run", Number(n)));
    await step.sleep("a moment", 300);
  },
});

await using store = await SqliteStore.open(path);
const engine = createEngine({
  store,
  jobs: { second, count },
  schedules: { second: { job: second, input: null, cron: "* * * * * *", catchUp: "all" } },
});
await engine.runUntilIdle();
say({ type: "ready" });
await heardLine();
const until = Date.now() + Number(ms);
let executed = 0;
for (let n = 0; Date.now() < until; n++) {
  await engine.jobs.count.trigger(n, { idempotencyKey: `${n}` }); // the other one triggers the same
  executed += (await engine.runUntilIdle({ timeout: 1_000 })).executed;
}
say({ type: "ticked", executed });
