import assert from "node:assert/strict";
import type { Engine } from "../../../src/engine/engine.ts";
import type { PurgeOptions } from "../../../src/engine/runs/purge_loop.ts";
import { forEachStore, forever, pass, recordEvents, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aJob, echo, fail } from "../../support/jobs.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { getWaits } from "../../../src/store/reads.ts";

const nap = aJob(async (step) => {
  await step.sleepUntil("nap", new Date(0));
  await step.wait("review");
}, "nap");

function anEngine({ store, host }: StoreTest, retention = {}) {
  return createEngine({ store, host, jobs: { echo, fail, nap }, retention, worker: { concurrency: 4 } });
}

/** Triggers so many runs, and works them off. */
async function complete(engine: Pick<Engine, "trigger" | "runUntilIdle">, count: number, job = "echo") {
  const ids = [];
  for (let n = 0; n < count; n++) ids.push((await engine.trigger(job, n)).id);
  await engine.runUntilIdle();
  return ids;
}

forEachStore("purgeRuns() deletes runs that ended long enough ago, and publishes each", async (context) => {
  const { host } = context;
  await using engine = anEngine(context);
  const old = await complete(engine, 120); // more than a slice
  host.advance(1_000);
  const young = await complete(engine, 1);
  host.advance(500);
  const waiting = await complete(engine, 1, "nap");
  const events = recordEvents(engine);

  const purged = await engine.purgeRuns({ olderThan: 1_500 });

  assert.deepEqual(purged, { deleted: 120 });
  assert.deepEqual((await engine.getRuns()).runs.map(({ id }) => id), [...waiting, ...young]);
  assert.deepEqual(
    events.map((event) => event.type === "run:delete" ? event.runId : event.type).toSorted(),
    old.toSorted(),
  );
});

forEachStore("purgeRuns() deletes the oldest ones up to the limit", async (context) => {
  const { host } = context;
  await using engine = anEngine(context);
  const ids = [];
  for (let n = 0; n < 60; n++) {
    ids.push(...await complete(engine, 1));
    host.advance(1);
  }

  const purged = await engine.purgeRuns({ olderThan: 0, limit: 55 });
  const none = await engine.purgeRuns({ olderThan: 0, limit: 0 });

  assert.deepEqual([purged, none], [{ deleted: 55 }, { deleted: 0 }]);
  assert.deepEqual((await engine.getRuns()).runs.map(({ id }) => id), ids.slice(55).reverse());
});

forEachStore("purgeRuns() deletes runs that ended in one way, or in several", async (context) => {
  await using engine = anEngine(context);
  await complete(engine, 3);
  await complete(engine, 2, "fail");
  await engine.cancel((await engine.trigger("echo", 1)).id);

  const none = await engine.purgeRuns({ olderThan: 0, status: [] });
  const failed = await engine.purgeRuns({ olderThan: 0, status: "failed" });
  const others = await engine.purgeRuns({ olderThan: 0, status: ["cancelled", "completed"] });

  assert.deepEqual([none, failed, others], [{ deleted: 0 }, { deleted: 2 }, { deleted: 4 }]);
});

const WRONG_PURGES: [options: Record<string, unknown>, name: string, message: RegExp][] = [
  [{}, "TypeError", /^olderThan of purgeRuns\(\) must be milliseconds, or a duration such as .*, not undefined$/],
  [
    { olderThan: "30 d." },
    "TypeError",
    /^olderThan of purgeRuns\(\) must be milliseconds, or a duration such as .*, not "30 d\."$/,
  ],
  [{ olderThan: -1 }, "RangeError", /^olderThan of purgeRuns\(\) must be 0 or more milliseconds, not -1$/],
  [
    { olderThan: 1, statuses: [] },
    "TypeError",
    /^purgeRuns\(\) has no option "statuses"; it has olderThan, status, lim/,
  ],
  [{ olderThan: 1, status: "pending" }, "RangeError", /must be one of completed, failed, cancelled, not "pending"/],
  [{ olderThan: 1, status: ["failed", "done"] }, "RangeError", /must be one of completed, .*, not "done"/],
  [{ olderThan: 1, limit: 1.5 }, "RangeError", /^limit of purgeRuns\(\) must be an integer of 0 or more, not 1\.5$/],
  [{ olderThan: 1, limit: -1 }, "RangeError", /^limit of purgeRuns\(\)/],
];

forEachStore("purgeRuns() refuses wrong options, and deletes nothing", async (context) => {
  await using engine = anEngine(context);
  await complete(engine, 1);
  context.host.advance(10);

  for (const [options, name, message] of WRONG_PURGES) {
    await assert.rejects(engine.purgeRuns(options as unknown as PurgeOptions), { name, message });
  }

  assert.equal((await engine.getRuns()).total, 1);
});

forEachStore("runUntilIdle() deletes what retention asks for", async (context) => {
  const { host } = context;
  await using engine = anEngine(context, { completed: 1_000 });
  await complete(engine, 60);
  await complete(engine, 1, "fail");
  host.advance(1_000);
  const events = recordEvents(engine);

  const idle = await engine.runUntilIdle();

  assert.partialDeepStrictEqual(idle, { executed: 0 });
  assert.deepEqual((await engine.getRuns()).runs.map(({ status }) => status), ["failed"]);
  assert.equal(events.filter(({ type }) => type === "run:delete").length, 60);
});

forEachStore("runUntilIdle() claims no more than maxRuns, and leaves the others", async (context) => {
  await using engine = anEngine(context);
  for (let n = 0; n < 10; n++) await engine.trigger("echo", n);
  const events = recordEvents(engine);

  const answers = [
    await engine.runUntilIdle({ maxRuns: 3 }),
    await engine.runUntilIdle({ maxRuns: 6 }),
    await engine.runUntilIdle({ maxRuns: 6 }),
  ];

  assert.partialDeepStrictEqual(answers, [{ executed: 3 }, { executed: 6 }, { executed: 1 }]);
  assert.equal(events.filter(({ type }) => type === "run:leased").length, 10);
});

forEachStore("runUntilIdle() answers only when what it claimed has ended", async ({ store, host }) => {
  const gate = Promise.withResolvers<void>();
  const slow = aJob(() => gate.promise, "slow");
  await using engine = createEngine({ store, host, jobs: { slow } });
  const { id } = await engine.jobs.slow.trigger(1);
  let answer: unknown = null;

  const idle = engine.runUntilIdle({ maxRuns: 1 }).then((executed) => answer = executed);
  await host.settle();
  const before = answer;
  gate.resolve();
  await idle;

  assert.partialDeepStrictEqual([before, answer], [null, { executed: 1 }]);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("runUntilIdle() counts a run that pauses and is claimed again once", async ({ store, host }) => {
  const asks = aJob((step) => step.wait("review"), "asks");
  const answers = aJob(async (_step, runId: string) => {
    const [wait] = await getWaits(store, runId);
    await store.signal(wait!.id, { signalId: "s", payload: 1 });
  }, "answers");
  await using engine = createEngine({ store, host, jobs: { asks, answers }, worker: { concurrency: 1 } });
  const { id } = await engine.jobs.asks.trigger(1);
  await engine.jobs.answers.trigger(id);
  const events = recordEvents(engine);

  const idle = await engine.runUntilIdle();

  assert.partialDeepStrictEqual(idle, { executed: 2 });
  assert.equal(events.filter(({ type }) => type === "run:leased").length, 3);
});

forEachStore("runUntilIdle() claims nothing more after its timeout, and waits for what executes", async (context) => {
  const { store, host } = context;
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = aJob((_step, n: number) => gates[n]!.promise, "slow");
  await using engine = createEngine({
    store,
    host,
    jobs: { slow },
    worker: { concurrency: 1 },
    retention: { completed: 0 },
  });
  for (const n of [0, 1]) await engine.jobs.slow.trigger(n);

  const idle = engine.runUntilIdle({ timeout: 1_000 });
  await host.settle();
  host.advance(1_000);
  await host.settle();
  gates[0]!.resolve();
  const { executed } = await idle;

  const { runs } = await engine.getRuns();
  assert.equal(executed, 1);
  assert.deepEqual(runs.map(({ status }) => status), ["pending", "completed"]); // and nothing was deleted any more
  assert.equal(host.timerCount, 0);
});

for (const options of [{}, { maxRuns: 1 }]) {
  const called = `runUntilIdle(${JSON.stringify(options)})`;
  forEachStore(`${called} does not wait for a body that hangs after a cancel`, async ({ store, host }) => {
    const hangs = aJob((step) => step.run("hang", () => forever()), "hangs");
    const engine = createEngine({ store, host, jobs: { hangs } });
    const { id } = await engine.jobs.hangs.trigger(1);
    const idle = engine.runUntilIdle(options);
    await host.settle();

    await engine.cancel(id);
    await pass(host, 1_000);

    assert.partialDeepStrictEqual(await idle, { executed: 1 });
    const stopping = engine.stop({ timeout: 1 });
    await pass(host, 1_000);
    await stopping;
  });
}

forEachStore("runUntilIdle() leaves no timer behind when it is idle before its timeout", async (context) => {
  await using engine = anEngine(context);

  await engine.runUntilIdle({ timeout: 1_000 });

  assert.equal(context.host.timerCount, 0);
});

forEachStore("runUntilIdle() refuses a wrong maxRuns or timeout", async (context) => {
  await using engine = anEngine(context);

  for (const maxRuns of [0, -1, 1.5, NaN, "3" as unknown as number]) {
    const refusal = {
      name: "RangeError",
      message: `maxRuns of runUntilIdle() must be a positive integer, not ${maxRuns}`,
    };
    await assert.rejects(engine.runUntilIdle({ maxRuns }), refusal);
  }
  await assert.rejects(engine.runUntilIdle({ timeout: "2 fortnights" as never }), TypeError);
  await assert.rejects(engine.runUntilIdle({ timeout: -1 }), RangeError);
});

forEachStore("triggerAndWait() answers its disposition", async (context) => {
  await using engine = anEngine(context);
  await engine.start();
  const options = { idempotencyKey: "once" };

  const first = await engine.jobs.echo.triggerAndWait(1, options);
  const second = await engine.jobs.echo.triggerAndWait(2, options);

  assert.deepEqual([first.disposition, second.disposition], ["created", "idempotent"]);
  assert.deepEqual([second.id, second.output], [first.id, 1]);
});
