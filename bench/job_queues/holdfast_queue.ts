import { createEngine, defineJob } from "@holdfast/jobs";
import { PostgresStore } from "@holdfast/jobs/postgres";
import { z } from "zod";
import { PACKAGE_VERSION } from "../../src/model/version.ts";
import { VERSION } from "../../src/stores/postgres/sql/names.ts";
import type { JobInput, Queue, QueueOptions } from "./queue.ts";
import manifest from "./adapter.json" with { type: "json" };

const jobInput: z.ZodType<JobInput> = z.object({ seq: z.number(), enqueuedAtMs: z.number(), padding: z.string() });

/**
 * Ours: each job is a run without steps, added by `batchTrigger()`.
 *
 * A run that a killed worker had begun is claimed by another one after `staleThreshold`. The default of 30 seconds suits
 * jobs that take minutes. Here a job takes a millisecond and the benchmark looks for one minute after a kill, so a user
 * with such jobs would choose a shorter time. After 5 seconds, which is no less than three missed renewals, a worker
 * counts as dead.
 */
export async function openHoldfast({ url, workers, work, onEnd }: QueueOptions): Promise<Queue> {
  const store = await PostgresStore.open(url);
  const job = defineJob({
    name: "long_horizon_bench",
    input: jobInput,
    run: (_step, input) => work([input]),
  });
  const engine = createEngine({
    store,
    jobs: { job },
    worker: { concurrency: workers, staleThreshold: "5s", heartbeatInterval: "1.5s" },
  });
  engine.on("run:complete", () => onEnd(1));
  await engine.migrate();
  return {
    about: {
      version: `holdfast@${PACKAGE_VERSION}`,
      schemaVersion: String(VERSION),
      eventTables: manifest.event_tables,
    },
    start: () => engine.start(),
    insert: async (jobs) => void await engine.jobs.job.batchTrigger(jobs.map((input) => ({ input }))),
    readDepth: async () => (await engine.jobs.job.getRuns({ status: "pending", limit: 0 })).total,
    async stop() {
      await engine.stop({ timeout: 1_000 });
      await store.close();
    },
  };
}
