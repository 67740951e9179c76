// Serves an engine, executes its runs, and stops when it gets a signal.

import process from "node:process";
import { createEngine, createHandler, defineJob, MemoryStore, shutdownOnSignal } from "../../mod.ts";
import { anything } from "./anything.ts";
import { say } from "./parent.ts";

const [mode = "ends"] = Deno.args;

const job = defineJob({
  name: "job",
  input: anything(),
  run: (step) =>
    step.run("work", async () => {
      say({ type: "working" });
      await new Promise((resolve) => setTimeout(resolve, mode === "hangs" ? 3_600_000 : 100));
    }),
});
const engine = createEngine({ store: new MemoryStore(), jobs: { job } });
engine.on("run:complete", () => say({ type: "completed" }));
await engine.start();
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => say({ type: "signalled" }));

const server = Deno.serve({
  port: 0,
  hostname: "127.0.0.1",
  onListen: ({ port }) => say({ type: "listens", url: `http://127.0.0.1:${port}` }),
}, createHandler(engine).fetch);
await shutdownOnSignal(engine, { server, timeout: 60_000 });
say({ type: "stopped" });
if (mode === "stays") setTimeout(() => {}, 3_600_000);
