import assert from "node:assert/strict";
import { createEngine } from "../../../../src/engine/create_engine.ts";
import { StoreError } from "../../../../src/model/error.ts";
import { defineJob } from "../../../../src/model/job/define_job.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import { inTime, until } from "../../../processes/deadline.ts";
import { anything } from "../../../support/stores/for_each_store.ts";
import { hasServer, startPair } from "./standby.ts";

const STEPS = 3;
const CLIENTS = 4;
// So many runs complete between two failovers.
const RUNS = 60;
// Longer than a failover takes, as the guide says.
const LEASE_MS = 60_000;

Deno.test({
  name:
    "two failovers to a synchronous standby under load, where the old primary comes back as standby, lose nothing and " +
    "execute nothing twice",
  ignore: !hasServer,
  async fn() {
    await using pair = await startPair();
    const hosts = [pair.url, pair.standbyUrl].map((url) => new URL(url).host).join(",");
    const address = `postgres://holdfast@${hosts}/postgres?target_session_attrs=read-write`;
    const executed = new Map<string, number>();
    const job = defineJob({
      name: "count",
      input: anything,
      async run(step, n: number) {
        for (let at = 0; at < STEPS; at++) {
          await step.run(`step ${at}`, () => {
            const name = `${n}, step ${at}`;
            executed.set(name, (executed.get(name) ?? 0) + 1);
          });
        }
        return n;
      },
    });
    await using first = await PostgresStore.open(address);
    await using second = await PostgresStore.open(address);
    const engines = [first, second].map((store) =>
      createEngine({ store, jobs: { job }, worker: { staleThreshold: LEASE_MS } })
    );
    await engines[0]!.migrate();
    await pair.waitForStandby("*");
    for (const engine of engines) await engine.start();

    let [next, completed, isOver, isGone] = [0, 0, false, false];
    using _ = { [Symbol.dispose]: () => void (isGone = true) }; // the clients of a test that fails ask no more
    const lost: number[] = [];
    const clients = Array.from({ length: CLIENTS }, async (_, at) => {
      const { job } = engines[at % 2]!.jobs; // there are two
      while (!isOver) {
        const n = next++;
        const idempotencyKey = `run ${n}`;
        const { id } = await repeat(() => job.trigger(n, { idempotencyKey }), () => isGone);
        // A trigger that was lost would make another run.
        const ended = await repeat(() => job.triggerAndWait(n, { idempotencyKey }), () => isGone);
        if (ended.id !== id || ended.output !== n) lost.push(n);
        completed += 1;
      }
    });
    for (let at = 0; at < 2; at++) {
      const before = completed;
      await until(() => completed >= before + RUNS, "runs complete");
      await pair.failOver();
      await until(() => completed >= before + 2 * RUNS, "runs complete after the failover");
      await pair.rejoin();
      await pair.waitForStandby("*");
    }
    isOver = true;
    await inTime(Promise.all(clients), "all runs complete");

    const { total } = await first.findRuns({ jobName: "count", status: "completed" });
    for (const engine of engines) await engine.stop();
    assert.deepEqual(lost, []);
    assert.equal(total, next);
    assert.deepEqual([...executed].filter(([, times]) => times > 1), []);
    assert.equal(executed.size, next * STEPS);
  },
});

/** Asks again while the server is not there, as a client does. Once the test is over, it never resolves. */
async function repeat<T>(ask: () => Promise<T>, isGone: () => boolean): Promise<T> {
  while (true) {
    try {
      return await ask();
    } catch (error) {
      if (isGone()) return await new Promise(() => {});
      if (!(error instanceof StoreError) || error.code !== "unavailable") throw error;
    }
  }
}
