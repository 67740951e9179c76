// deno run -A --no-lock --config examples/deno.json tests/oldest_deno.ts
//
// Uses the package as an app does. The CI executes it on the oldest Deno that the README names, which has neither the test
// options of deno.json nor the form of deno.lock.
import assert from "node:assert/strict";
import { createEngine, createHandler, defineJob, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";

const add = defineJob({
  name: "add",
  input: z.object({ n: z.number() }),
  async run(step, { n }) {
    const doubled = await step.run("double", () => 2 * n);
    await step.sleep("nap", 10);
    const answer = await step.wait("answer", { timeout: 10 });
    return answer.outcome === "timeout" ? doubled + 1 : 0;
  },
});

const folder = await Deno.makeTempDir();
const store = await SqliteStore.open(`${folder}/jobs.db`);
const engine = createEngine({ store, jobs: { add } });
await engine.start();
const run = await engine.jobs.add.triggerAndWait({ n: 4 }, { timeout: 20_000 });
const response = await createHandler(engine).fetch(new Request(`http://localhost/run?runId=${run.id}`));
await engine.stop();
await store.close();
const reopened = await SqliteStore.open(`${folder}/jobs.db`);

assert.equal(run.output, 9);
assert.equal((await response.json()).status, "completed");
assert.equal((await reopened.findRuns({})).total, 1);
await reopened.close();
await Deno.remove(folder, { recursive: true });
console.log(`Deno ${Deno.version.deno} passes`);
