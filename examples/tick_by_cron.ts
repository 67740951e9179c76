// deno run -A --unstable-cron examples/tick_by_cron.ts [jobs.db]
//
// A program whose host starts it for a request and stops it when it is idle: the engine is never started. `Deno.cron`
// executes once a minute what is due, and `POST /` triggers a run and executes it before the response.

import { createEngine, defineJob, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";

const [path = ":memory:"] = Deno.args; // where several instances have no common disk: PostgresStore

const digest = defineJob({
  name: "digest",
  input: z.object({}),
  run: (step) => step.run("mail", () => console.log(`Mailed the digest of ${step.slot?.at}`)),
});
const welcome = defineJob({
  name: "welcome",
  input: z.object({ who: z.string() }),
  async run(step, { who }) {
    await step.run("mail", () => console.log(`Welcome, ${who}`));
    await step.sleep("a while", "1s");
    await step.run("ask", () => console.log(`How is it going, ${who}?`));
  },
});
const engine = createEngine({
  store: await SqliteStore.open(path),
  jobs: { digest, welcome },
  schedules: { digest: { job: digest, input: {}, cron: "* * * * *" } },
});

// What stands at the top level is found by the host. A minute with nothing to do costs some reads.
Deno.cron("jobs", "* * * * *", async () => {
  const { executed, nextDueAt } = await engine.runUntilIdle({ timeout: 50_000 });
  console.log(`The cron executed ${executed} runs; something is due again at ${nextDueAt}`);
});

Deno.serve(
  { port: 0, hostname: "127.0.0.1", onListen: ({ port }) => console.log(`http://localhost:${port}/`) },
  async () => {
    const { id } = await engine.jobs.welcome.trigger({ who: "Ada" });
    await engine.runUntilIdle({ timeout: 5_000 }); // else it waits for the next minute
    return Response.json({ runId: id });
  },
);
