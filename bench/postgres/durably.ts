// bench/deno.json names the packages of other engines: they are loaded with `--peers` alone.
import { createDurably, defineJob } from "@coji/durably";
import { PostgresDialect } from "kysely";
import pg from "pg";
import { benchInput } from "../engines/holdfast.ts";
import { type PostgresContender, STEPS } from "./contender.ts";

// It adds a batch as one statement for each run, in one transaction.
const BATCH = 100;

const steps = defineJob({
  name: "steps",
  input: benchInput,
  run: async (step) => {
    for (let n = 0; n < STEPS; n++) await step.run(`step ${n}`, () => n);
  },
});

/** durably, with default settings apart from the concurrency. Its statements share a pool of 10 connections. */
export const durably: PostgresContender = {
  unfinished: "select 1 from durably_runs where status <> 'completed' limit 1",
  async open({ url, concurrency }) {
    const engine = createDurably({
      dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: url }) }),
      maxConcurrentRuns: concurrency,
      jobs: { steps },
    });
    await engine.migrate();
    return {
      async add(count) {
        const inputs = Array.from({ length: count }, (_, n) => ({ input: { n } }));
        for (let from = 0; from < count; from += BATCH) {
          await engine.jobs.steps.batchTrigger(inputs.slice(from, from + BATCH));
        }
      },
      start: () => Promise.resolve(engine.start()),
      async close() {
        await engine.stop();
        await engine.db.destroy();
      },
    };
  },
};
