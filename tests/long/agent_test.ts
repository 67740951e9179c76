import assert from "node:assert/strict";
import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "../processes/anything.ts";
import { Child } from "../processes/child.ts";
import { inTime } from "../processes/deadline.ts";
import { Ledger } from "../processes/ledger.ts";

Deno.test("an agent that is killed in the middle of a model call goes on, and repeats no call that is recorded", async () => {
  const folder = await Deno.makeTempDir();
  const [database, ledger] = [`${folder}/jobs.db`, `${folder}/ledger`];
  const agent = defineJob({ name: "agent", input: anything(), run: () => {} });
  try {
    await using store = await SqliteStore.open(database);
    const engine = createEngine({ store, jobs: { agent } });
    const { id } = await engine.trigger("agent", null);

    await using killed = new Child("agent_worker.ts", database, ledger, "hang");
    await killed.hear("calling");
    await killed.end("SIGKILL");
    await using _second = new Child("agent_worker.ts", database, ledger);
    const run = await inTime(engine.waitForRun(id), "the second process was to end the run");

    assert.deepEqual([run.status, run.output], ["completed", "Done"]);
    assert.deepEqual(new Ledger(ledger).read().map((words) => words.join(" ")), [
      "model 1",
      "search call-1",
      "model 2", // killed
      "model 2",
      "search call-2",
      "model 3",
    ]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
