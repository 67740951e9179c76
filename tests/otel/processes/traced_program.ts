// An engine whose spans Deno exports. Arguments: the database, then "serve" (HTTP, no worker) or "work" (a worker).

import { createEngine, createHandler, defineJob, SqliteStore } from "../../../mod.ts";
import { otel } from "../../../src/otel/mod.ts";
import { anything } from "../../processes/anything.ts";
import { say } from "../../processes/parent.ts";

const [path, role] = Deno.args as [string, "serve" | "work"];

const ship = defineJob({ name: "ship", input: anything(), run: (step) => step.run("pack", () => "packed") });
const order = defineJob({
  name: "order",
  input: anything(),
  async run(step) {
    await step.run("charge", ({ attempt }) => {
      if (attempt === 1) throw new RangeError("declined");
    }, { retry: { maxAttempts: 2, delay: 10 } });
    await step.wait("review");
    await step.sleep("nap", 10);
    await step.run("slow", async () => {
      if (step.execution > 1) return;
      say({ type: "slow" });
      await new Promise(() => {}); // until it is killed
    });
    return await step.invoke("ship", ship, {});
  },
});

const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { order, ship },
  worker: { staleThreshold: 600, heartbeatInterval: 200, pollingInterval: 50 },
});
engine.use(otel());
if (role === "work") {
  await engine.start();
  say({ type: "ready" });
} else {
  const handler = createHandler(engine);
  Deno.serve({ port: 0, hostname: "127.0.0.1", onListen: ({ port }) => say({ type: "ready", port }) }, handler.fetch);
}
