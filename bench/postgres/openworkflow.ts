// The driver of openworkflow.
import "postgres";
import { OpenWorkflow } from "openworkflow";
import { BackendPostgres } from "openworkflow/postgres";
import { type PostgresContender, STEPS } from "./contender.ts";

/** openworkflow, with default settings apart from the concurrency. How often it polls cannot be set. */
export const openworkflow: PostgresContender = {
  unfinished: "select 1 from openworkflow.workflow_runs where status <> 'completed' limit 1",
  async open({ url, concurrency }) {
    const backend = await BackendPostgres.connect(url);
    const client = new OpenWorkflow({ backend });
    const steps = client.defineWorkflow<{ n: number }, void>({ name: "steps" }, async ({ step }) => {
      for (let n = 0; n < STEPS; n++) await step.run({ name: `step ${n}` }, () => n);
    });
    const worker = client.newWorker({ concurrency });
    return {
      async add(count) {
        for (let n = 0; n < count; n++) await steps.run({ n });
      },
      start: () => worker.start(),
      async close() {
        await worker.stop();
        await backend.stop();
      },
    };
  },
};
