// deno run examples/hello.ts

import { createEngine, defineJob, MemoryStore } from "@holdfast/jobs";
import { z } from "zod";

const greet = defineJob({
  name: "greet",
  input: z.object({ name: z.string() }),
  async run(step, input) {
    // Each step's result is recorded: a run that was interrupted goes on after the last of them.
    const text = await step.run("compose", () => `Hello, ${input.name}!`);
    await step.run("deliver", () => console.log(text));
    return { length: text.length };
  },
});

await using store = new MemoryStore(); // or: await SqliteStore.open("jobs.db")
await using engine = createEngine({ store, jobs: { greet } });
await engine.start();

const run = await engine.jobs.greet.triggerAndWait({ name: "world" });
console.log(`Run ${run.id} has ${run.status}; its output is`, run.output);
