// Executes runs whose steps hang: every second one ignores its `abortSignal`.
// Argument: the database.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";

const [path] = Deno.args as [string];

const hang = defineJob({
  name: "hang",
  input: anything<{ isDeaf: boolean }>(),
  run: (step, { isDeaf }) =>
    step.run("hangs", ({ abortSignal }) =>
      new Promise((_, reject) => {
        if (!isDeaf) abortSignal.addEventListener("abort", () => reject(abortSignal.reason));
      })),
});

const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { hang },
  logger: null,
  worker: { concurrency: 20 },
});
await engine.start();
say({ type: "ready" });
