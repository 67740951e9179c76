import assert from "node:assert/strict";
import type { StepTools } from "../../../src/model/job/step_calls.ts";
import type { Store } from "../../../src/store/store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aJob } from "../../support/jobs.ts";
import { forEachStore, type StoreTest } from "../../support/stores/for_each_store.ts";

const STEPS = 5;

/** Executes a run of five steps. Returns the calls to the store: their names, and what they were given. */
async function callsOf({ store, host }: StoreTest, act: (tools: StepTools) => Promise<unknown>) {
  const calls: { name: string; parameters: unknown[] }[] = [];
  const counted = new Proxy(store, {
    get: (target, name) => {
      const member = target[name as keyof Store] as unknown;
      if (typeof member !== "function") return member;
      return (...parameters: unknown[]) => {
        calls.push({ name: String(name), parameters });
        return member.apply(target, parameters);
      };
    },
  });
  const job = aJob(async (step) => {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, act);
  });
  await using engine = createEngine({ store: counted, host, jobs: { job } });
  await engine.trigger("job", null);
  await engine.runUntilIdle();
  return calls;
}

forEachStore("a run that streams nothing calls the store as if there were no streams", async (context) => {
  const calls = await callsOf(context, () => Promise.resolve(1));
  const streaming = await callsOf(context, ({ stream }) => stream("tokens").write("a"));

  const names = calls.map(({ name }) => name);
  const others = ["claim", "getSchedules", "migrate", "addStats", "forgetWorker"];
  assert.deepEqual(names.filter((name) => !others.includes(name)), [
    "enqueue",
    ...Array.from({ length: STEPS }, () => "saveStep"),
    "finish",
  ]);
  // Its records have not one byte more.
  const records = calls.filter(({ name }) => name === "saveStep").map(({ parameters: [, step] }) =>
    JSON.stringify(step)
  );
  assert.deepEqual(
    records,
    Array.from({ length: STEPS }, (_, n) =>
      JSON.stringify({
        name: `step ${n}`,
        index: n,
        attempts: 1,
        startedAgoMs: 0,
        result: { status: "completed", output: "1" },
      })),
  );
  assert.doesNotMatch(JSON.stringify(calls), /chunks|streams/);
  assert.match(JSON.stringify(streaming), /chunks/);
});
