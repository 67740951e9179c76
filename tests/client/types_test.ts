import { createClient, type RunId } from "../../src/client/mod.ts";
import type { jobs } from "./a_service.ts";

const client = createClient<typeof jobs>({ url: "http://127.0.0.1:1" });

/** Fails to compile unless a value has exactly a type. */
function has<T>(): <U>(value: U & ([T, U] extends [U, T] ? unknown : never)) => void {
  return () => {};
}

// Only compiled: nothing of it is executed.
export async function check(runId: string, greetId: RunId<"greet">): Promise<void> {
  await client.trigger("greet", { name: "Ada" });
  // @ts-expect-error: there is no such job; "greeting" is its key in the object, not its name
  await client.trigger("greeting", { name: "Ada" });
  // @ts-expect-error: the input lacks a name
  await client.trigger("greet", {});
  // @ts-expect-error: there is no such option
  await client.trigger("greet", { name: "Ada" }, { key: "a" });

  const { runId: id } = await client.trigger("greet", { name: "Ada" });
  has<{ text: string }>()((await client.waitForRun(id)).output);
  has<{ text: string } | null>()((await client.run(greetId)).output);
  const { runId: retry } = await client.retrigger(greetId);
  has<{ text: string }>()((await client.waitForRun(retry)).output);

  const { runId: approval } = await client.trigger("approve", {});
  has<{ isApproved: boolean; at: string }>()((await client.waitForRun(approval)).output);

  // A plain string may be a run of any job: `jobName` tells them apart.
  const run = await client.run(runId);
  if (run.jobName === "greet") has<{ text: string } | null>()(run.output);
  // @ts-expect-error: there is no such job
  if (run.jobName === "greeting") return;

  for await (const { output } of client.runs({ jobName: "greet" })) has<{ text: string } | null>()(output);
  // @ts-expect-error: there is no such job
  await client.page({ jobName: "greeting" });
  // @ts-expect-error: there is no such status
  await client.page({ status: "done" });

  for await (const event of client.watch(greetId)) {
    if (event.type === "snapshot") has<{ text: string } | null>()(event.run.output);
    else if (event.type === "run:fail") has<string>()(event.error);
    else if (event.type === "run:complete") has<{ text: string }>()(event.output);
  }
  for await (const event of client.watchRuns()) {
    if (event.type === "run:complete" && event.jobName === "greet") has<{ text: string }>()(event.output);
  }

  await client.trigger("greet", { name: "Ada" }, { concurrencyKey: "ada", coalesce: "active" });
  // @ts-expect-error: there is no such mode
  await client.trigger("greet", { name: "Ada" }, { concurrencyKey: "ada", coalesce: "join" });
  const instant = "2030-01-01T00:00:00Z";
  await client.page({ parentRunId: runId, failureKind: "timeout", createdAfter: instant, createdBefore: instant });
  await client.page({ completedAfter: instant, completedBefore: instant });
  // @ts-expect-error: there is no such reason
  await client.page({ failureKind: "bored" });
}

Deno.test("names, inputs and outputs have the types of the server's jobs", () => {
  // `deno check` has compiled what is above.
});
