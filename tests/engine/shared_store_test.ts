import assert from "node:assert/strict";
import { RunCancelledError } from "../../src/model/error.ts";
import { forEachStore, pass } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { aJob } from "../support/jobs.ts";

const SOON_MS = 200; // a fifth of the polling interval

forEachStore("a cancel reaches waiters, streams and steps of another engine with the same store", async (context) => {
  const { store, host } = context;
  const reached: string[] = [];
  const job = aJob((step) =>
    step.run("work", async ({ abortSignal }) => {
      await new Promise((resolve) => abortSignal.addEventListener("abort", resolve));
      reached.push("step");
    })
  );
  await using here = createEngine({ store, host, jobs: { job } });
  await using there = createEngine({ store, host, jobs: { job } });
  await here.start();
  const { id } = await here.trigger(job, null);
  await pass(host, 5_000);
  const waiting = assert.rejects(here.waitForRun(id), RunCancelledError).then(() => reached.push("waiter"));
  const following = Array.fromAsync(here.subscribe(id)).then(() => reached.push("stream"));
  await pass(host, 1_010);

  await there.cancel(id);
  await pass(host, SOON_MS);

  assert.deepEqual(reached.toSorted(), ["step", "stream", "waiter"]);
  await Promise.all([waiting, following]);
});

forEachStore("a worker claims at once what another engine with the same store has triggered", async (context) => {
  const { store, host } = context;
  let calls = 0;
  const job = aJob(() => calls++);
  await using here = createEngine({ store, host, jobs: { job } });
  await using there = createEngine({ store, host, jobs: { job } });
  await here.start();
  await pass(host, 5_010);

  await there.trigger(job, null);
  await pass(host, SOON_MS);

  assert.equal(calls, 1);
});
