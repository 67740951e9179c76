import assert from "node:assert/strict";
import { createEngine } from "../../src/engine/create_engine.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { aClaimRequest } from "../support/fixtures.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { aJob } from "../support/jobs.ts";
import { callCli } from "./call_cli.ts";
import { aFile, type StorePlace } from "./places.ts";

/** Resolves when the engine stops. */
function untilStopped({ abortSignal }: { abortSignal: AbortSignal }): Promise<void> {
  return new Promise((resolve) => abortSignal.addEventListener("abort", () => resolve(), { once: true }));
}

const resize = aJob((step) => step.run("work", untilStopped), "resize");
const declined = () => {
  throw new Error("HTTP 402");
};
const jobs = {
  resize,
  limited: defineJob({
    name: "limited",
    input: anything,
    run: (step) => step.run("work", untilStopped),
    limits: { concurrency: 1 },
  }),
  rated: defineJob({
    name: "rated",
    input: anything,
    run: () => null,
    limits: { rate: { limit: 1, period: 3_600_000 } },
  }),
  parent: aJob((step) => step.invoke("call", resize, null), "parent"),
  approve: aJob((step) => step.wait("review", { timeout: 86_400_000 }), "approve"),
  nap: aJob((step) => step.sleep("night", 86_400_000), "nap"),
  charge: aJob(
    (step) => step.run("card", declined, { retry: { maxAttempts: 2, delay: 600_000, jitter: false } }),
    "charge",
  ),
};

const ID = "[0-9a-f]{8}-[0-9a-f-]{27}";
const INSTANT = String.raw`\d{4}-\d\d-\d\dT[\d:.]+Z \(in [\w ]+\)`;

/** What the command says of a run. */
async function whyOf({ args }: StorePlace, runId: string): Promise<string> {
  const { code, lines } = await callCli(["why", runId, ...args]);
  assert.equal(code, 0);
  return lines.join("\n");
}

Deno.test("holdfast why names what holds up a run, with the blocker, whatever it is", async () => {
  await using file = await aFile();
  const worker = { name: "web-1", concurrency: 3, pollingInterval: 20 };
  await using engine = createEngine({ store: file.store, jobs, logger: null, worker });
  const untilParked = async (count: number) => {
    while ((await engine.getRuns({ status: "waiting" })).total < count) {
      await new Promise((done) => setTimeout(done, 20));
    }
  };
  const untilRunning = async (runId: string) => {
    while ((await engine.getRun(runId))!.status !== "running") await new Promise((done) => setTimeout(done, 20));
  };
  const trigger = async (job: keyof typeof jobs, options = {}) => (await engine.trigger(jobs[job], null, options)).id;
  await engine.start();
  const [wait, sleep, retry] = [await trigger("approve"), await trigger("nap"), await trigger("charge")];
  await untilParked(3);
  const child = await trigger("parent"); // its child takes a slot
  await untilParked(4);
  const holder = await trigger("resize", { concurrencyKey: "acme" });
  await untilRunning(holder);
  await engine.jobs.rated.triggerAndWait(null);
  const running = await trigger("limited");
  await untilRunning(running);
  await engine.pauseJob("nap", { by: "ana", note: "the supplier is down" });

  const said: Record<string, string> = Object.fromEntries(
    await Promise.all(
      Object.entries({
        wait,
        sleep,
        retry,
        child,
        key: await trigger("resize", { concurrencyKey: "acme" }),
        limit: await trigger("limited"),
        rate: await trigger("rated"),
        paused: await trigger("nap"),
        delayed: await trigger("resize", { delay: 7_200_000 }),
        slots: await trigger("resize"),
      }).map(async ([cause, runId]) => [cause, await whyOf(file, runId)]),
    ),
  );
  await engine.stop({ timeout: 0 });

  const expected: Record<string, string> = {
    wait: `Waiting for a signal to "review"; times out at ${INSTANT}`,
    sleep: `Waiting: sleeping in "night" until ${INSTANT}\n  Job nap has been paused by ana .*`,
    retry: `Waiting: step "card" has failed once \\(HTTP 402\\); it is tried again at ${INSTANT}`,
    child: `Waiting for child run ${ID} \\(resize, running\\)`,
    key:
      `Pending: behind run ${holder} \\(resize, running for [\\w ]+ on web-1\\) for the key acme; no run is ahead of it`,
    limit: "Pending: 1 run of the job limited is executed, of 1 at most; no run is ahead of it",
    rate:
      `Pending: 1 run of the job rated has started in 1 h, of 1 at most; no run is ahead of it; the rate opens at ${INSTANT}`,
    paused: "Pending: job nap has been paused by ana for [\\w ]+: the supplier is down",
    delayed: `Pending: starts at ${INSTANT}`,
    slots: "Pending: 3 of 3 slots of the workers that have the job resize are busy; \\d runs? (is|are) ahead of it",
  };
  for (const [cause, text] of Object.entries(expected)) assert.match(said[cause]!, new RegExp(`^${text}`), cause);
});

Deno.test("holdfast why says of a run that has ended which messages it never received", async () => {
  await using file = await aFile();
  const chat = defineJob({ name: "chat", input: anything, messages: { text: anything }, run: () => null });
  await using engine = createEngine({ store: file.store, jobs: { chat }, logger: null });
  const { id } = await engine.trigger("chat", null);
  for (let n = 0; n < 3; n++) await engine.send(id, "text", n);
  await engine.runUntilIdle();

  const said = await whyOf(file, id);

  assert.match(said, /^Completed [\w ]+ ago\n {2}3 messages were never received: "text" \(3\)$/);
});

Deno.test("holdfast why says that no worker is live, and which one was lost", async () => {
  await using file = await aFile();
  await using engine = createEngine({ store: file.store, jobs, logger: null });
  const { id: lost } = await engine.trigger("resize", null);
  await file.store.claim(aClaimRequest({ workerId: "web-9", jobNames: ["resize"], leaseMs: 1 }));
  const { id: waiting } = await engine.trigger("resize", null);
  await new Promise((done) => setTimeout(done, 20));

  const said = [await whyOf(file, lost), await whyOf(file, waiting)];

  const nobody = String.raw`o worker is live; the last one claimed [\w ]+ ago`;
  assert.match(said[0]!, new RegExp(`^Running: n${nobody}\n  Worker web-9 was lost: its lease expired [\\w ]+ ago; `));
  assert.match(said[1]!, new RegExp(`^Pending: n${nobody}$`));
});

Deno.test("holdfast why says of a run that has ended why its clean-up has not", async () => {
  await using file = await aFile();
  let isDown = true;
  const order = defineJob({
    name: "order",
    input: anything,
    run: declined,
    onEnd: { run: (step) => step.run("refund", () => isDown ? declined() : null) },
  });
  await using engine = createEngine({ store: file.store, jobs: { order }, logger: null });
  const { id } = await engine.trigger(order, null);
  await engine.runUntilIdle({ maxRuns: 1 });
  const { endRunId } = (await engine.getRun(id))!;

  const pending = await whyOf(file, id);
  await engine.runUntilIdle();
  const failed = await whyOf(file, id);
  isDown = false;
  await engine.retrigger(endRunId!);
  await engine.runUntilIdle();
  const completed = await whyOf(file, id);

  assert.match(pending, new RegExp(`^Failed .* ago: HTTP 402\n  Its clean-up, run ${endRunId}: Pending: `));
  assert.match(
    failed,
    new RegExp(`^Failed .* ago: HTTP 402\n  Its clean-up, run ${endRunId}: Failed .* ago: HTTP 402$`),
  );
  assert.match(completed, /^Failed .* ago: HTTP 402$/);
});
