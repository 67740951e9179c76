// Executes runs of "zod", "valibot" and "arktype", which wait for a signal. The defaults of their inputs are random, of
// this instant and of the environment, and their schemas refuse every input unless the variable REGION is "first".
// With the word "trigger" it triggers a run of each.
// Arguments: the database, then nothing or "trigger".

import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { createEngine, defineJob, SqliteStore, type StepContext } from "../../mod.ts";
import { say } from "./parent.ts";

const [path, word] = Deno.args as [string, string?];

const region = Deno.env.get("REGION")!;
const id = () => crypto.randomUUID();
const startedAt = Date.now();
const isFirst = () => region === "first";

async function run<Input>(step: StepContext, input: Input) {
  await step.run("note", () => input);
  await step.wait("answer");
  return { input, pid: Deno.pid };
}

const jobs = {
  zod: defineJob({
    name: "zod",
    input: z.object({
      id: z.string().default(id),
      at: z.number().default(startedAt),
      now: z.number().default(Date.now),
      region: z.string().default(region),
    }).refine(isFirst),
    run,
  }),
  valibot: defineJob({
    name: "valibot",
    input: v.pipe(
      v.object({
        id: v.optional(v.string(), id),
        at: v.optional(v.number(), startedAt),
        now: v.optional(v.number(), Date.now),
        region: v.optional(v.string(), region),
      }),
      v.check(isFirst),
    ),
    run,
  }),
  arktype: defineJob({
    name: "arktype",
    input: type({
      id: ["string", "=", id],
      at: ["number", "=", startedAt],
      now: ["number", "=", () => Date.now()],
      region: ["string", "=", region],
    }).narrow(isFirst),
    run,
  }),
};

const store = await SqliteStore.open(path);
const engine = createEngine({ store, jobs, worker: { pollingInterval: 100 } });
engine.on("run:waiting", ({ runId, jobName }) => say({ type: "waiting", runId, jobName }));
engine.on("run:hold", ({ jobName, message }) => say({ type: "ended", jobName, message }));
engine.on("run:complete", ({ jobName, output }) => say({ type: "ended", jobName, output }));
await engine.start();
if (word === "trigger") {
  for (const job of Object.values(jobs)) await engine.trigger(job.name, {});
}
