import { createEngine, defineJob } from "@holdfast/jobs";
import { PostgresStore } from "@holdfast/jobs/postgres";
import { benchInput } from "../engines/holdfast.ts";
import { type PostgresContender, STEPS } from "./contender.ts";

const steps = defineJob({
  name: "steps",
  input: benchInput,
  async run(step) {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
  },
});

/** Ours, with default settings apart from the concurrency. */
export const holdfast: PostgresContender = {
  unfinished: "select 1 from holdfast.runs where status <> 'completed' limit 1",
  async open({ url, concurrency }) {
    const store = await PostgresStore.open(url);
    const engine = createEngine({ store, jobs: { steps }, worker: { concurrency } });
    await engine.migrate();
    return {
      add: async (count) => {
        const inputs = Array.from({ length: count }, (_, n) => ({ input: { n } }));
        for (let from = 0; from < count; from += 500) {
          await engine.jobs.steps.batchTrigger(inputs.slice(from, from + 500));
        }
      },
      start: () => engine.start(),
      async close() {
        await engine.stop({ timeout: 0 });
        await store.close();
      },
    };
  },
};
