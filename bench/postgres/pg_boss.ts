// bench/deno.json names the packages of other engines: they are loaded with `--peers` alone.
import { PgBoss } from "pg-boss";
import { type PostgresContender, STEPS } from "./contender.ts";

const QUEUE = "steps";

/**
 * pg-boss, which is a queue and has no steps: of a run it keeps that it has begun and ended, and nothing in between. It
 * fetches so many jobs at once, and looks for more every half second, which is the least that it takes.
 */
export const pgBoss: PostgresContender = {
  unfinished: "select 1 from pgboss.job where name = 'steps' and state <> 'completed' limit 1",
  async open({ url, concurrency }) {
    const boss = new PgBoss({ connectionString: url });
    boss.on("error", () => {});
    await boss.start();
    await boss.createQueue(QUEUE);
    return {
      add: async (count) => {
        await boss.insert(QUEUE, Array.from({ length: count }, (_, n) => ({ data: { n } })));
      },
      async start() {
        await boss.work(QUEUE, { batchSize: concurrency, pollingIntervalSeconds: 0.5 }, async (jobs) => {
          await Promise.all(jobs.map(async () => {
            for (let n = 0; n < STEPS; n++) await Promise.resolve(n);
          }));
        });
      },
      close: () => boss.stop({ graceful: false }),
    };
  },
};
