// bench/deno.json names the packages of other engines: they are loaded with `--peers` alone.
import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk";
import { type PostgresContender, STEPS } from "./contender.ts";

const QUEUE = "steps";

/** DBOS, whose workflows are started through a queue with so many at once for each process. */
export const dbos: PostgresContender = {
  unfinished: "select 1 from dbos.workflow_status where status not in ('SUCCESS') limit 1",
  open({ url, concurrency }) {
    DBOS.setConfig({ name: "bench", systemDatabaseUrl: url, logLevel: "error", runAdminServer: false });
    DBOS.registerWorkflow(async (_n: number) => {
      for (let n = 0; n < STEPS; n++) await DBOS.runStep(() => Promise.resolve(n), { name: `step ${n}` });
    }, { name: "steps" });
    const launch = async () => {
      await DBOS.launch();
      await DBOS.registerQueue(QUEUE, { workerConcurrency: concurrency });
    };
    return Promise.resolve({
      async add(count) {
        // Makes the tables. What adds is a client, so that nothing is executed yet.
        await DBOS.launch();
        await DBOS.shutdown();
        const client = await DBOSClient.create({ systemDatabaseUrl: url });
        for (let n = 0; n < count; n++) {
          await client.enqueue({ workflowName: "steps", queueName: QUEUE }, n);
        }
        await client.destroy();
      },
      start: launch,
      close: () => DBOS.shutdown(),
    });
  },
};
