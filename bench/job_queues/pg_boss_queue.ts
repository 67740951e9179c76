// bench/deno.json names the packages of other engines: they are loaded when they are measured alone.
import { PgBoss } from "pg-boss";
import pgBoss from "pg-boss/package.json" with { type: "json" };
import type { JobInput, Queue, QueueOptions } from "./queue.ts";

const QUEUE = "long_horizon_bench";
const MAX_FETCHED = 64;

/**
 * pg-boss with the settings that the benchmark gives it: a table of its own for the queue, as many polling loops as there
 * are workers, and up to 64 jobs in each fetch.
 */
export async function openPgBoss({ url, workers, rate, work, onEnd }: QueueOptions): Promise<Queue> {
  const boss = new PgBoss({ connectionString: url, schedule: false });
  boss.on("error", (error) => console.error(error.message));
  await boss.start();
  if (await boss.getQueue(QUEUE) === null) await boss.createQueue(QUEUE, { partition: true });
  const table = `pgboss.${(await boss.getQueue(QUEUE))!.table}`; // it was made
  return {
    about: {
      version: `pg-boss@${pgBoss.version}`,
      schemaVersion: String(await boss.schemaVersion()),
      eventTables: [table, "pgboss.queue"],
    },
    async start() {
      const options = {
        pollingIntervalSeconds: 0.5,
        localConcurrency: workers,
        batchSize: fetchedAtOnce(rate, workers),
      };
      await boss.work<JobInput>(QUEUE, options, async (jobs) => {
        await work(jobs.map(({ data }) => data));
        onEnd(jobs.length);
      });
    },
    insert: async (jobs) => void await boss.insert(QUEUE, jobs.map((data) => ({ data }))),
    // getQueueStats() answers from a cache, which can be an hour old.
    async readDepth() {
      const { rows } = await boss.getDb().executeSql(`select count(*) from ${table} where state < 'active'`, []);
      return Number(rows[0].count);
    },
    stop: () => boss.stop({ graceful: true, timeout: 2_000 }),
  };
}

/** As the benchmark computes it: a quarter more than what has to be fetched with two fetches a second. */
function fetchedAtOnce(rate: number, workers: number): number {
  return Math.max(1, Math.min(MAX_FETCHED, Math.ceil(rate * 1.25 / (workers * 2))));
}
