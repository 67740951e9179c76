// Checked by tsc with what users have: without types of Deno.
import { createEngine, createHandler, defineJob, MemoryStore, type Run, SqliteStore, type Store } from "@holdfast/jobs";
import { durableModel } from "@holdfast/jobs/ai";
import { runCli } from "@holdfast/jobs/cli";
import { createClient } from "@holdfast/jobs/client";
import { runCreate } from "@holdfast/jobs/create";
import { mcp } from "@holdfast/jobs/mcp";
import { otel } from "@holdfast/jobs/otel";
import { PostgresStore } from "@holdfast/jobs/postgres";
import { replay } from "@holdfast/jobs/replay";
import { abandonedFailure } from "@holdfast/jobs/store";
import { createTestEngine } from "@holdfast/jobs/testing";
import { dashboard } from "@holdfast/jobs/ui";
import { githubWebhook, webhookJob } from "@holdfast/jobs/webhooks";
import { z } from "zod";

const double = defineJob({
  name: "double",
  input: z.object({ value: z.number(), at: z.string().default("now") }),
  async run(step, { value, at }) {
    const text: string = at;
    const date = await step.run("date", () => new Date(0));
    // @ts-expect-error -- a date is stored as text
    const wrong: Date = date;
    return { text, wrong, doubled: value * 2 };
  },
});
const jobs = { double };

export async function useEngine(): Promise<number> {
  const stores: Store[] = [
    new MemoryStore(),
    await SqliteStore.open(":memory:"),
    await PostgresStore.open("postgres://localhost/jobs"),
  ];
  await using engine = createEngine({ store: stores[0]!, jobs });
  engine.use(otel());
  const tools = mcp({ name: "types", tools: [{ job: double, description: "Doubles" }] });
  const handler = createHandler(engine, { ui: dashboard(), mcp: tools });
  const response: Response = await handler.fetch(new Request("http://localhost/runs"));
  const run = await engine.jobs.double.triggerAndWait({ value: 21 });
  // @ts-expect-error -- the input has a number
  await engine.jobs.double.trigger({ value: "21" });
  const found: Run | null = await engine.getRun(run.id);
  const doubled: number = run.output.doubled;
  return doubled + response.status + (found === null ? 0 : 1);
}

export async function useClient(): Promise<string> {
  const client = createClient<typeof jobs>({ url: "http://localhost/api/jobs" });
  // @ts-expect-error -- there is no such job
  await client.trigger("triple", { value: 1 });
  const { runId } = await client.trigger("double", { value: 1 });
  return runId;
}

export const deliver = webhookJob({ name: "deliver", endpoint: () => null });
export const receive: (request: Request) => Promise<Response> = githubWebhook({
  secret: "secret",
  receive: ({ id }) => id.toUpperCase(),
});

export const functions = [runCli, runCreate, replay, abandonedFailure, createTestEngine, durableModel];
