import assert from "node:assert/strict";
import { z } from "zod";
import { createEngine, defineJob, type EngineEvent, type JobDefinition, MemoryStore, type StepContext } from "../../mod.ts";

const input = z.object({});
type Options = Partial<Omit<JobDefinition<typeof input, unknown>, "run">>;

/** A version of the code of a job. */
function aCheckout(run: (step: StepContext) => unknown, options: Options = {}) {
  return defineJob({ name: "checkout", input, ...options, run });
}

/** Executes what is due with the given code. */
async function execute(store: MemoryStore, job: ReturnType<typeof aCheckout>): Promise<EngineEvent[]> {
  const engine = createEngine({ store, jobs: { job }, logger: null });
  const events: EngineEvent[] = [];
  engine.on("*", (event) => void events.push(event));
  await engine.runUntilIdle();
  await engine.stop();
  return events;
}

Deno.test("a run whose recorded step was renamed is held, and is freed by code that fits", async () => {
  const store = new MemoryStore();
  const charged: string[] = [];
  const before = aCheckout(async (step) => {
    await step.run("charge", () => void charged.push("charge"));
    await step.wait("review");
  });
  const renamed = (changes: Options["changes"]) =>
    aCheckout(async (step) => {
      await step.run("charge card", () => void charged.push("charge card"));
      await step.wait("review");
      return "done";
    }, { changes });
  const engine = createEngine({ store, jobs: { before }, logger: null });
  const { id } = await engine.jobs.before.trigger({});
  await execute(store, before);
  const [wait] = await engine.getWaits(id);
  await engine.signal(wait!.id, { signalId: "s", payload: null });

  const events = await execute(store, renamed({}));
  const held = await engine.getRun(id);
  await execute(store, renamed({}));
  await execute(store, renamed({ renamed: { charge: "charge card" } }));

  assert.deepEqual(charged, ["charge"]);
  assert.deepEqual(held!.status, "pending");
  assert.deepEqual(held!.held!.code, "diverged");
  console.log(held!.held!.message, events.map(({ type }) => type));
  assert.equal((await engine.getRun(id))!.output, "done");
});
