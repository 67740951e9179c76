import assert from "node:assert/strict";
import { createEngine } from "../../../src/engine/create_engine.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { PostgresStore } from "../../../src/stores/postgres/postgres_store.ts";
import { anything } from "../../support/stores/for_each_store.ts";
import { startServer } from "./server.ts";

const server = startServer();

const child = defineJob({
  name: "child",
  input: anything,
  run: (step, n: number) => step.run("double", () => 2 * n),
});

const parent = defineJob({
  name: "parent",
  input: anything,
  retry: { maxAttempts: 2, delay: 1 },
  run: async (step, n: number) => {
    const [first, second] = await Promise.all([1, 2].map((of) => step.invoke(`child-${of}`, child, n * of)));
    await step.sleep("nap", 5);
    let attempts = 0;
    const last = await step.run("flaky", () => {
      if (++attempts === 1) throw new Error("not yet");
      return 1;
    });
    return first! + second! + last; // there are two children
  },
});

Deno.test({
  name: "two engines share a PostgresStore's schema: parents, children, sleeps and retries complete",
  ignore: server === null,
  fn: async () => {
    const schema = `engines_${Deno.pid}`;
    const stores = await Promise.all(
      [1, 2].map(() => PostgresStore.open(server!.url, { schema, durability: "relaxed" })),
    ); // ignored without one
    const engines = stores.map((store) => createEngine({ store, jobs: { child, parent } }));
    for (const engine of engines) {
      await engine.migrate();
      await engine.start();
    }

    const outputs = await Promise.all(
      Array.from({ length: 20 }, (_, n) => engines[n % 2]!.jobs.parent.triggerAndWait(n)),
    );

    assert.deepEqual(outputs.map(({ output }) => output), Array.from({ length: 20 }, (_, n) => 6 * n + 1));
    for (const engine of engines) await engine.stop();
    for (const store of stores) await store.close();
  },
});
