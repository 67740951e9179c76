// Executes runs of "work". One whose input is "poison" kills the process, while the others are in their first step.
// Arguments: the database.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";

const [path] = Deno.args as [string];

const work = defineJob({
  name: "work",
  input: anything<{ kind: string }>(),
  async run(step, { kind }) {
    if (kind === "poison") {
      await new Promise((resolve) => setTimeout(resolve, 50));
      Deno.kill(Deno.pid, "SIGKILL");
    }
    return await step.run("work", () => new Promise<string>((resolve) => setTimeout(resolve, 200, "done")));
  },
});

const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { work },
  worker: {
    staleThreshold: 300,
    heartbeatInterval: 100,
    pollingInterval: 50,
    concurrency: 20,
    maxAbandonments: 8,
  },
});
await engine.start();
