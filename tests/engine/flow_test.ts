import assert from "node:assert/strict";
import { RunFailedError, ValidationError } from "../../src/model/error.ts";
import type { EngineOptions } from "../../src/engine/engine_options.ts";
import type { Jobs } from "../../src/engine/job_handle.ts";
import type { FlowDefinition } from "../../src/model/flow.ts";
import type { StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { RunFilter } from "../../src/model/run.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { stopHard } from "../support/engines.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import { anything, forever, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { aGate } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

/** An engine whose job `job` notes its inputs in the order of the executions. */
function anEngine(
  flow: FlowDefinition = {},
  options: Partial<EngineOptions<Jobs>> = {},
  run: (step: StepContext) => unknown = () => null,
) {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const order: unknown[] = [];
  const job = defineJob({
    name: "job",
    input: anything,
    run: (step, input) => {
      order.push(input);
      return run(step);
    },
    ...flow,
  });
  const engine = createEngine({ worker: { concurrency: 1 }, ...options, store, host, jobs: { job } });
  return { host, store, engine, order, events: recordEvents(engine), handle: engine.jobs.job! };
}

const iso = (ms: number) => new Date(FAKE_START + ms).toISOString();

/** Works off what is due, while time passes that the worker waits for. */
async function work({ engine, host }: Pick<ReturnType<typeof anEngine>, "engine" | "host">): Promise<number> {
  const idle = engine.runUntilIdle();
  await host.settle();
  return (await idle).executed;
}

Deno.test("a delayed run starts at its time, and not before", async () => {
  const { host, engine, order, events, handle } = anEngine();
  const run = await handle.trigger("later", { delay: 60_000 });
  await handle.trigger("now");
  await engine.start();

  await pass(host, 59_000);
  const before = [...order];
  await pass(host, 1_000);

  assert.deepEqual([run.status, run.startAt], ["pending", iso(60_000)]);
  assert.deepEqual([before, order], [["now"], ["now", "later"]]);
  const triggers = events.flatMap((event) => event.type === "run:trigger" ? [event.startAt] : []);
  assert.deepEqual(triggers, [iso(60_000), null]);
  await engine.stop();
});

Deno.test("runUntilIdle() executes what is due, and leaves what starts later", async () => {
  const { host, engine, order, handle } = anEngine();
  await handle.trigger("due");
  await handle.trigger("later", { startAt: iso(60_000) });

  const first = await work({ engine, host });
  host.advance(60_000);
  const second = await work({ engine, host });

  assert.deepEqual([first, second, order], [1, 1, ["due", "later"]]);
});

Deno.test("runUntilIdle() leaves what its rate holds back, and the runs of a paused job", async () => {
  const { host, engine, order, handle } = anEngine({ limits: { rate: { limit: 2, period: 60_000 } } });
  await handle.batchTrigger([1, 2, 3].map((input) => ({ input })));

  const rated = await work({ engine, host });
  await engine.pauseJob("job");
  host.advance(60_000);
  const paused = await work({ engine, host });
  await engine.resumeJob("job");
  const resumed = await work({ engine, host });

  assert.deepEqual([rated, paused, resumed, order], [2, 0, 1, [1, 2, 3]]);
});

Deno.test("runs of a higher priority are executed first, then the older ones", async () => {
  const { host, engine, order, handle } = anEngine({ priority: 1 });
  await handle.trigger("first");
  await handle.trigger("low", { priority: 0 });
  await handle.trigger("urgent", { priority: 5 });
  await handle.trigger("second");

  await work({ engine, host });

  assert.deepEqual(order, ["urgent", "first", "second", "low"]);
});

Deno.test("fairness keys take turns", async () => {
  const { host, engine, order, handle } = anEngine({}, { fairnessLabel: "org" });
  const trigger = (input: string, org?: string) => handle.trigger(input, org === undefined ? {} : { labels: { org } });
  for (const n of [1, 2, 3]) await trigger(`a${n}`, "a");
  await trigger("b1", "b");
  await trigger("none");

  await work({ engine, host });

  assert.deepEqual(order.slice(0, 3).toSorted(), ["a1", "b1", "none"]);
  assert.deepEqual(order.slice(3), ["a2", "a3"]);
});

Deno.test("at most limits.concurrency runs of a job are executed at once, and perKey.concurrency of a key", async () => {
  for (
    const [limits, expected] of [[{ concurrency: 2 }, 2], [{ perKey: { concurrency: 3 } }, 3], [{}, 1]] as const
  ) {
    const { host, engine, order, handle } = anEngine({ limits }, { worker: { concurrency: 10 } }, () => forever());
    await handle.batchTrigger([1, 2, 3, 4].map((input) => ({ input, concurrencyKey: "k" })));
    const isOfJob = "concurrency" in limits;
    if (isOfJob) await handle.batchTrigger([5, 6, 7].map((input) => ({ input })));

    await engine.start();
    await host.settle();

    assert.equal(order.length, expected);
    await stopHard(engine, host);
  }
});

Deno.test("a run that does not start in time fails as expired, and its event says so", async () => {
  const { host, engine, order, events, handle } = anEngine();
  const { id } = await handle.trigger("late", { startWithin: 1_000 });
  host.advance(1_001);

  const executed = await work({ engine, host });

  const error = "The run did not start within 1000 ms after it was due (startWithin)";
  const run = await engine.getRun(id);
  assert.partialDeepStrictEqual(run, {
    status: "failed",
    error,
    failureKind: "expired",
    startBy: iso(1_000),
    startedAt: null,
  });
  const { type, ...failed } = events.at(-1)!;
  assert.equal(type, "run:fail");
  assert.partialDeepStrictEqual(failed, { runId: id, error, failedStepName: null, failureKind: "expired" });
  assert.deepEqual([executed, order], [0, []]);
});

Deno.test("a run that hangs fails as timeout at its finishBy", async () => {
  const { host, engine, handle } = anEngine({}, {}, (step) => step.run("hangs", forever));
  const { id } = await handle.trigger(null, { finishWithin: 5_000 });
  await engine.start();
  await host.settle();
  const waiting = handle.getRun(id);

  const before = await waiting;
  await pass(host, 5_000);

  const error = "The run did not end within 5000 ms after its start (finishWithin)";
  assert.deepEqual([before!.status, before!.finishBy], ["running", iso(5_000)]);
  assert.partialDeepStrictEqual(await engine.getRun(id), { failureKind: "timeout", error, completedAt: iso(5_000) });
  await assert.rejects(engine.waitForRun(id), RunFailedError);
  const { value: shown } = await engine.subscribe(id).getReader().read();
  assert.partialDeepStrictEqual(shown, { type: "run:fail", error, failedStepName: null, failureKind: "timeout" });
  await stopHard(engine, host);
});

Deno.test("a run that waits for too long fails as timeout, and pauses count", async () => {
  const { host, engine, events, handle } = anEngine({ finishWithin: 5_000 }, {}, async (step) => {
    await step.sleep("rest", 3_000);
    await step.wait("review");
  });
  const { id } = await handle.trigger(null);
  await engine.start();

  await pass(host, 6_000);

  assert.partialDeepStrictEqual(await engine.getRun(id), { status: "failed", failureKind: "timeout" });
  assert.equal((await engine.getWaits(id))[0]!.status, "closed");
  assert.partialDeepStrictEqual(events.at(-1), { type: "run:fail", failureKind: "timeout" });
  await engine.stop();
});

Deno.test("a run that resumes has what is left of its finishWithin, and the failure names the whole", async () => {
  const { host, engine, handle } = anEngine({ finishWithin: 5_000 }, {}, async (step) => {
    await step.sleep("rest", 3_000);
    await step.run("hangs", forever);
  });
  const { id } = await handle.trigger(null);
  await engine.start();
  await host.settle();

  await pass(host, 4_900, 100);
  const before = await engine.getRun(id);
  await pass(host, 100, 1);

  assert.equal(before!.status, "running");
  assert.partialDeepStrictEqual(await engine.getRun(id), {
    failureKind: "timeout",
    error: "The run did not end within 5000 ms after its start (finishWithin)",
    completedAt: iso(5_000),
  });
  await stopHard(engine, host);
});

Deno.test("a run that fails otherwise is of the kind error, and its event says so", async () => {
  const { host, engine, events, handle } = anEngine({ finishWithin: 5_000 }, {}, () => {
    throw new Error("broken");
  });
  const { id } = await handle.trigger(null);

  await work({ engine, host });

  assert.equal((await engine.getRun(id))!.failureKind, "error");
  assert.partialDeepStrictEqual(events.at(-1), { type: "run:fail", error: "broken", failureKind: "error" });
});

Deno.test("no run of a paused job is claimed, what is executed goes on, and resumeJob() starts the next", async () => {
  const gate = aGate();
  const { host, engine, order, handle } = anEngine({}, {}, (step) => step.run("gate", gate.work));
  const { id } = await handle.trigger(1);
  await handle.trigger(2);
  await engine.start();
  await gate.reached;

  await engine.pauseJob("job");
  gate.open();
  await pass(host, 5_000);
  const during = [...order];
  await engine.resumeJob("job");
  await host.settle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual([during, order], [[1], [1, 2]]);
  await engine.stop();
});

Deno.test("a retry has the priority, the fairness key and the deadlines of the old run, and starts at once", async () => {
  const { host, engine, handle } = anEngine({ finishWithin: 9 }, {}, () => {
    throw new Error("broken");
  });
  const options = { delay: 1_000, priority: 7, fairnessKey: "acme", startWithin: 2_000, finishWithin: 3_000 };
  const old = await handle.trigger(null, options);
  host.advance(1_000);
  await work({ engine, host });

  const retry = await engine.retrigger(old.id, { from: "failure" });
  await work({ engine, host });

  assert.partialDeepStrictEqual(await engine.getRun(retry.id), {
    priority: 7,
    fairnessKey: "acme",
    startAt: null,
    startBy: iso(3_000),
    finishBy: iso(4_000),
  });
});

Deno.test("getRuns() filters by failureKind, and by when runs were triggered and ended", async () => {
  const { host, engine, handle } = anEngine();
  const expired = await handle.trigger(1, { startWithin: 10 });
  host.advance(1_000);
  const done = await handle.trigger(2);
  await work({ engine, host });
  host.advance(1_000);
  const open = await handle.trigger(3);
  const listed = async (filter: RunFilter) => (await engine.getRuns(filter)).runs.map(({ id }) => id);

  assert.deepEqual(await listed({ failureKind: "expired" }), [expired.id]);
  assert.deepEqual(await listed({ createdAfter: iso(1_000) }), [open.id, done.id]);
  assert.deepEqual(await listed({ createdAfter: iso(1_000), createdBefore: iso(2_000) }), [done.id]);
  assert.deepEqual(await listed({ completedAfter: iso(1_000) }), [done.id, expired.id]);
  assert.deepEqual(await listed({ completedBefore: iso(1_000) }), []);
  assert.deepEqual(await listed({ createdBefore: "2040-01-01T01:00:00.001+01:00" }), [expired.id]);
  assert.deepEqual(await listed({ parentRunId: done.id }), []);
});

Deno.test("getRuns() refuses wrong kinds of failures, parents and instants", async () => {
  const { engine } = anEngine();
  const wild: [Record<string, unknown>, RegExp][] = [
    [{ failureKind: "late" }, /^failureKind must be one of error, timeout, expired, abandoned$/],
    [{ failureKind: null }, /^failureKind/],
    [{ parentRunId: "" }, /^parentRunId must be a string of 1 to 255 characters/],
    [{ completedAfter: "yesterday" }, /^completedAfter must be a date .* in ISO 8601/],
    [{ completedBefore: 5 }, /^completedBefore/],
    [{ createdAfter: "2040-01-01T00:00:00" }, /^createdAfter/],
    [{ createdBefore: "2040-02-31" }, /^createdBefore/],
  ];

  for (const [filter, message] of wild) {
    await assert.rejects(
      engine.getRuns(filter),
      (error) => error instanceof ValidationError && message.test(error.message),
    );
  }
});
