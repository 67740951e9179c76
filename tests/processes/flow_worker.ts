// Executes batches whose children are limited, and fires a schedule every second.
// Argument: the database.

import { createEngine, defineJob, SqliteStore } from "../../mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";

const [path] = Deno.args as [string];

/** What the test checks. */
const part = defineJob({
  name: "part",
  input: anything<{ n: number }>(),
  limits: { concurrency: 3, rate: { limit: 20, period: 1_000 } },
  run: (step, { n }) =>
    step.run("work", async () => {
      await new Promise((resolve) => setTimeout(resolve, 20 + Math.random() * 150));
      return `${n} ${crypto.randomUUID()}`; // another value whenever it is executed
    }),
});

const batch = defineJob({
  name: "batch",
  input: anything<{ parts: number }>(),
  run: (step, { parts }) => step.invokeAll("parts", part, Array.from({ length: parts }, (_, n) => ({ input: { n } }))),
});

const tick = defineJob({ name: "tick", input: anything(), run: (step) => step.run("tick", () => step.slotAt) });

const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { batch, part, tick },
  schedules: { ticks: { job: tick, input: {}, cron: "* * * * * *", catchUp: "all", overlap: "allow" } },
  worker: { staleThreshold: 600, heartbeatInterval: 100, pollingInterval: 100, maxAbandonments: 1_000 },
});
await engine.start();
say({ type: "ready" });
