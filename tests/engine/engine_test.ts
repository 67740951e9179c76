import assert from "node:assert/strict";
import type { Engine } from "../../src/engine/engine.ts";
import { ConflictError, NotFoundError, RunCancelledError } from "../../src/model/error.ts";
import { systemHost } from "../../src/model/host.ts";
import type { Store } from "../../src/store/store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FAKE_START } from "../support/fake_host.ts";
import { forEachStore, forever, nextEvent, pass, recordEvents } from "../support/stores/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { anEngine, stopHard, typesOf } from "../support/engines.ts";
import { aGatedJob, aJob, echo, fail } from "../support/jobs.ts";
import { withCalls } from "../support/stores/with_calls.ts";
import { getRun, getSteps } from "../../src/store/reads.ts";

forEachStore("getRun() answers null for a run that is not there, or that is of another job", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);

  const runs = [
    await engine.getRun("missing"),
    await engine.jobs.fail.getRun(id),
    await engine.jobs.echo.getRun("missing"),
  ];

  assert.deepEqual(runs, [null, null, null]);
  assert.equal((await engine.jobs.echo.getRun(id))!.id, id);
});

forEachStore("getRuns() filters by job, status and labels, newest first", async (context) => {
  await using engine = anEngine(context);
  const first = await engine.trigger("echo", 1, { labels: { tenant: "a", kind: "x" } });
  const second = await engine.trigger("fail", 2, { labels: { tenant: "a" } });
  await engine.runUntilIdle();
  const third = await engine.trigger("echo", 3, { labels: { tenant: "b" } });
  const ids = async (filter: Parameters<typeof engine.getRuns>[0]) =>
    (await engine.getRuns(filter)).runs.map((run) => run.id);

  assert.deepEqual(await ids(undefined), [third.id, second.id, first.id]);
  assert.deepEqual(await ids({ jobName: "echo" }), [third.id, first.id]);
  assert.deepEqual(await ids({ jobName: ["echo", "fail"] }), [third.id, second.id, first.id]);
  assert.deepEqual(await ids({ jobName: "unknown" }), []);
  assert.deepEqual(await ids({ jobName: [] }), []);
  assert.deepEqual(await ids({ status: [] }), []);
  assert.deepEqual(await ids({ status: "completed" }), [first.id]);
  assert.deepEqual(await ids({ status: ["failed", "pending"] }), [third.id, second.id]);
  assert.deepEqual(await ids({ labels: { tenant: "a" } }), [second.id, first.id]);
  assert.deepEqual(await ids({ labels: { tenant: "a", kind: "x" } }), [first.id]);
  assert.deepEqual(await ids({ labels: { tenant: "a" }, jobName: "echo", status: "pending" }), []);
  assert.deepEqual((await engine.jobs.fail.getRuns()).runs.map(({ id }) => id), [second.id]);
  assert.deepEqual((await engine.jobs.echo.getRuns({ status: "pending" })).runs.map(({ id }) => id), [third.id]);
});

forEachStore("getRuns() need not count", async (context) => {
  await using engine = anEngine(context);
  await engine.jobs.echo.batchTrigger([1, 2, 3].map((input) => ({ input })));

  const page = await engine.getRuns({ limit: 2, total: false });
  const ofJob = await engine.jobs.echo.getRuns({ total: false });

  assert.deepEqual([Object.keys(page), page.runs.length, page.hasMore], [["runs", "hasMore"], 2, true]);
  assert.deepEqual([Object.keys(ofJob), ofJob.runs.length, ofJob.hasMore], [["runs", "hasMore"], 3, false]);
  await assert.rejects(engine.getRuns({ total: "no" as never }), /^TypeError: total must be a boolean, not a string$/);
});

forEachStore("getRuns() pages, and tells how many there are", async (context) => {
  await using engine = anEngine(context);
  await engine.jobs.echo.batchTrigger(Array.from({ length: 60 }, (_, input) => ({ input })));

  const pages = [
    await engine.getRuns(),
    await engine.getRuns({ offset: 50 }),
    await engine.getRuns({ limit: 60 }),
    await engine.getRuns({ limit: 0 }),
    await engine.getRuns({ limit: 5, offset: 57 }),
    await engine.getRuns({ offset: 1_000_000 }),
  ];

  assert.deepEqual(
    pages.map(({ runs, total, hasMore }) => [runs.length, runs[0]?.payload, total, hasMore]),
    [
      [50, 59, 60, true],
      [10, 9, 60, false],
      [60, 59, 60, false],
      [0, undefined, 60, true],
      [3, 2, 60, false],
      [0, undefined, 60, false],
    ],
  );
});

forEachStore("getRuns() names a field of the filter that is neither a string nor an array", async (context) => {
  await using engine = anEngine(context);

  for (
    const [filter, message] of [
      [{ jobName: 5 }, "jobName must be a string or an array of strings, not a number"],
      [{ jobName: new Set(["echo"]) }, "jobName must be a string or an array of strings, not a Set"],
      [{ status: null }, "status must be a string or an array of strings, not null"],
    ] as const
  ) {
    await assert.rejects(engine.getRuns(filter as never), { name: "TypeError", message });
  }
});

forEachStore("getRuns() refuses a wrong filter", async (context) => {
  await using engine = anEngine(context);

  for (
    const filter of [
      { jobName: "" },
      { jobName: ["echo", "\n"] },
      { status: "asleep" },
      { status: ["pending", ""] },
      { limit: -1 },
      { limit: 1_001 },
      { limit: 1.5 },
      { limit: NaN },
      { offset: -1 },
      { offset: 1_000_001 },
      { labels: { "a b": "c" } },
      { labels: [] },
      { jobName: Array(51).fill("echo") },
      { labels: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`k${n}`, "v"])) },
    ]
  ) {
    const listing = engine.getRuns(filter as never);
    await assert.rejects(listing, { code: "invalid_request" }, JSON.stringify(filter));
  }
});

forEachStore("getSteps() answers what was recorded, in order", async ({ store, host }) => {
  const job = aJob(async (step) => {
    await step.run("first", () => {
      host.advance(5);
      return { n: 1 };
    });
    await step.run("second", () => undefined);
    await step.run("third", () => Promise.reject(new Error("broken"))).catch(() => {});
  });
  await using engine = createEngine({ store, host, jobs: { job } });

  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const steps = await engine.getSteps(id);

  const [at, later] = [FAKE_START, FAKE_START + 5].map((instant) => new Date(instant).toISOString());
  const common = { runId: id, attempts: 1 };
  assert.deepEqual(steps.map(({ id: _, failure: __, ...step }) => step), [
    {
      ...common,
      name: "first",
      index: 0,
      status: "completed",
      output: { n: 1 },
      error: null,
      startedAt: at,
      completedAt: later,
    },
    {
      ...common,
      name: "second",
      index: 1,
      status: "completed",
      output: null,
      error: null,
      startedAt: later,
      completedAt: later,
    },
    {
      ...common,
      name: "third",
      index: 2,
      status: "failed",
      output: null,
      error: "broken",
      startedAt: later,
      completedAt: later,
    },
  ]);
  assert.equal(new Set(steps.map((step) => step.id)).size, 3);
});

forEachStore("getSteps() and getLogs() refuse a run that is not there", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);

  assert.deepEqual([await engine.getSteps(id), await engine.getLogs(id)], [[], []]);
  await assert.rejects(engine.getSteps("missing"), NotFoundError);
  await assert.rejects(engine.getLogs("missing"), NotFoundError);
});

forEachStore("cancel() ends a pending run, which is then never executed", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);
  const events = recordEvents(engine);

  const run = await engine.cancel(id);

  assert.equal(run.status, "cancelled");
  assert.equal(run.completedAt, new Date(FAKE_START).toISOString());
  assert.partialDeepStrictEqual(await engine.runUntilIdle(), { executed: 0 });
  assert.deepEqual(typesOf(events), ["run:cancel"]);
});

forEachStore("cancel() tells the executing step, and nothing is recorded afterwards", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob("gated");
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  await engine.start();
  const abortSignal = await reached;

  await engine.cancel(id);
  const isAbortedAtOnce = abortSignal.aborted;
  letGo("late");
  await host.settle();

  assert.equal(isAbortedAtOnce, true);
  assert.ok(abortSignal.reason instanceof RunCancelledError);
  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.output, run.leaseOwner, run.leaseExpiresAt], ["cancelled", null, null, null]);
  assert.partialDeepStrictEqual(await engine.getSteps(id), [{ name: "slow", status: "cancelled", output: null }]);
  assert.deepEqual(typesOf(events), [
    "run:trigger",
    "run:leased",
    "run:start",
    "step:start",
    "step:cancel",
    "run:cancel",
  ]);
  assert.partialDeepStrictEqual(events.at(-2), { stepName: "slow", stepIndex: 0 });
});

forEachStore("cancel() of a run that another worker executes is noticed within a heartbeat", async (context) => {
  const { store, host } = context;
  const { job, reached, letGo } = aGatedJob("gated");
  await using working = createEngine({ store, host, jobs: { job }, worker: { heartbeatInterval: 1_000 } });
  await using other = createEngine({ store, host, jobs: {} });
  const { id } = await working.trigger(job, null);
  await working.start();
  const abortSignal = await reached;

  await other.cancel(id);
  await pass(host, 1_000);

  assert.equal(abortSignal.aborted, true);
  letGo("late");
  await host.settle();
  assert.equal((await other.getRun(id))!.status, "cancelled");
});

forEachStore("cancel() refuses a run that has ended or is not there", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  await assert.rejects(engine.cancel(id), (error: ConflictError) => {
    assert.equal(error.code, "conflict");
    assert.match(error.message, /completed/);
    return true;
  });
  await assert.rejects(engine.cancel("missing"), NotFoundError);
  assert.deepEqual(events, []);
});

forEachStore("cancel() twice at the same moment tells one of them that it came second", async (context) => {
  await using engine = anEngine(context);
  const events = recordEvents(engine);
  const { id } = await engine.trigger("echo", 1);

  const results = await Promise.allSettled([engine.cancel(id), engine.cancel(id)]);

  assert.deepEqual(results.map(({ status }) => status).toSorted(), ["fulfilled", "rejected"]);
  assert.deepEqual(typesOf(events), ["run:trigger", "run:cancel"]);
});

forEachStore("deleteRun() removes a run that has ended, with its steps", async ({ store, host }) => {
  const job = aJob((step) => step.run("work", () => 1));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null, { idempotencyKey: "once", labels: { a: "b" } });
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  await engine.deleteRun(id);

  assert.equal(await engine.getRun(id), null);
  assert.deepEqual(await getSteps(store, id), []);
  assert.equal((await engine.getRuns({ labels: { a: "b" } })).total, 0);
  assert.partialDeepStrictEqual(events, [{ type: "run:delete", runId: id, labels: { a: "b" } }]);
  assert.equal((await engine.trigger(job, null, { idempotencyKey: "once" })).disposition, "created");
});

forEachStore("deleteRun() refuses a run that has not ended or is not there", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);

  await assert.rejects(engine.deleteRun(id), ConflictError);
  await assert.rejects(engine.deleteRun("missing"), NotFoundError);
  assert.notEqual(await engine.getRun(id), null);
});

forEachStore("runUntilIdle() works off what is due, also what it brings about", async ({ store, host }) => {
  const parent = aJob((step) => step.run("child", async () => (await engine.trigger("echo", 1)).id), "parent");
  const engine: Engine = createEngine({ store, host, jobs: { echo, parent }, worker: { concurrency: 1 } });
  await engine.trigger("parent", 1);
  await engine.trigger("parent", 2);

  const first = await engine.runUntilIdle();
  const second = await engine.runUntilIdle();

  assert.partialDeepStrictEqual([first, second], [{ executed: 4 }, { executed: 0 }]);
  assert.equal((await engine.getRuns({ status: "completed" })).total, 4);
  await engine.stop();
});

forEachStore("start() works off what was triggered before, and what is triggered after", async (context) => {
  await using engine = anEngine(context);
  const before = await engine.trigger("echo", 1);

  await engine.start();
  const after = await engine.trigger("echo", 2);

  assert.equal((await engine.waitForRun(before.id)).output, 1);
  assert.equal((await engine.waitForRun(after.id)).output, 2);
});

forEachStore("waitForRun() reads a run when it begins to wait and when the run has ended", async ({ store, host }) => {
  let reads = 0;
  const counted = withCalls(store, {
    readRuns: async (...asked) => {
      reads += 1;
      return await store.readRuns(...asked);
    },
  });
  const job = aJob(async (step) => {
    for (let n = 0; n < 50; n++) await step.run(`step ${n}`, () => n);
    return "done";
  });
  await using engine = createEngine({ store: counted, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  const waiting = engine.waitForRun(id);
  await host.settle();
  await engine.runUntilIdle();

  assert.equal((await waiting).output, "done");
  assert.ok(reads <= 5, `the run was read ${reads} times`);
});

forEachStore("start() twice starts one worker", async ({ store, host }) => {
  const { job, reached, letGo } = aGatedJob("gated");
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 1 } });

  await Promise.all([engine.start(), engine.start()]);
  await engine.start();
  const [first, second] = await Promise.all([engine.trigger(job, 1), engine.trigger(job, 2)]);
  await reached;
  await host.settle();

  assert.equal((await engine.getRun(second!.id))!.status, "pending");
  letGo(1);
  await Promise.all([engine.waitForRun(first!.id), engine.waitForRun(second!.id)]);
});

forEachStore("stop() is harmless before start(), twice, and side by side", async (context) => {
  const engine = anEngine(context);

  await engine.stop();
  await engine.start();
  await Promise.all([engine.stop(), engine.stop()]);
  await engine.stop();

  const { id } = await engine.trigger("echo", 1);
  await context.host.settle();
  assert.equal((await engine.getRun(id))!.status, "pending");
});

forEachStore("stop() while start() is under way leaves nothing running", async (context) => {
  const engine = anEngine(context);

  const starting = engine.start();
  await engine.stop();
  await starting;

  const { id } = await engine.trigger("echo", 1);
  await context.host.settle();
  assert.equal((await engine.getRun(id))!.status, "pending");
  await engine.stop();
});

forEachStore("start() after stop() works again", async (context) => {
  await using engine = anEngine(context);
  await engine.start();
  await engine.stop();

  await engine.start();

  assert.equal((await engine.jobs.echo.triggerAndWait(1)).output, 1);
});

forEachStore("stop() is what `await using` calls", async (context) => {
  let kept: Engine;
  {
    await using engine = anEngine(context);
    await engine.start();
    kept = engine;
  }

  const { id } = await kept.trigger("echo", 1);
  await context.host.settle();

  assert.equal((await kept.getRun(id))!.status, "pending");
});

forEachStore("stop() leaves the store open", async (context) => {
  const engine = anEngine(context);
  await engine.start();

  await engine.stop();

  assert.equal(await getRun(context.store, "missing"), null);
});

forEachStore("migrate() is repeated after it has failed", async ({ store, host }) => {
  let calls = 0;
  const failing = new Proxy(store, {
    get: (target, key: keyof Store) => {
      if (key === "migrate" && calls++ === 0) return () => Promise.reject(new Error("cannot migrate"));
      return typeof target[key] === "function" ? target[key].bind(target) : target[key];
    },
  });
  await using engine = createEngine({ store: failing, host, jobs: { echo } });

  await assert.rejects(engine.migrate(), /cannot migrate/);
  await engine.migrate();

  assert.equal((await engine.trigger("echo", 1)).disposition, "created");
});

forEachStore("retention deletes runs that ended long enough ago, and publishes it", async ({ store, host }) => {
  const retention = { completed: 10_000, failed: 60_000 };
  await using engine = createEngine({ store, host, jobs: { echo, fail }, retention });
  const completed = await engine.trigger("echo", 1);
  const failed = await engine.trigger("fail", 1);
  const cancelled = await engine.trigger("echo", 1);
  await engine.cancel(cancelled.id);
  await engine.start();
  await engine.waitForRun(completed.id);
  await host.settle();
  const deleted: string[] = [];
  engine.on("run:delete", ({ runId }) => void deleted.push(runId));

  await pass(host, 9_000, 1_000);
  const early = [...deleted];
  await pass(host, 11_000, 1_000);

  assert.deepEqual([early, deleted], [[], [completed.id]]);
  assert.deepEqual((await engine.getRuns()).runs.map(({ id }) => id), [cancelled.id, failed.id]);
  await pass(host, 80_000, 5_000);
  assert.deepEqual(deleted, [completed.id, failed.id]);
});

forEachStore("retention works off more runs than fit in a slice", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo }, retention: { completed: 1_000 } });
  await engine.jobs.echo.batchTrigger(Array.from({ length: 120 }, (_, input) => ({ input })));
  await engine.runUntilIdle();
  await engine.start();

  await pass(host, 5_000, 500);

  assert.equal((await engine.getRuns()).total, 0);
});

Deno.test("signal() says what it takes", async () => {
  await using store = await SqliteStore.open(":memory:");
  await using engine = createEngine({ store, jobs: {} });

  await assert.rejects(
    engine.signal("wait", undefined as never),
    /^TypeError: A signal is an object with signalId and payload, not undefined$/,
  );
});

Deno.test("createEngine() refuses two jobs of one name", async () => {
  await using store = await SqliteStore.open(":memory:");

  const create = () => createEngine({ store, jobs: { one: aJob(() => 1), two: aJob(() => 2) } });

  assert.throws(create, TypeError);
});

Deno.test("createEngine() refuses worker settings that are out of range", async () => {
  await using store = await SqliteStore.open(":memory:");

  for (
    const worker of [
      { pollingInterval: 0 },
      { concurrency: 0 },
      { concurrency: 1.5 },
      { concurrency: NaN },
      { maxAbandonments: -1 },
      { pollingInterval: Infinity },
      { staleThreshold: 2 ** 31 },
      { heartbeatInterval: 10_001 },
      { heartbeatInterval: 5_000, staleThreshold: 14_999 },
      { heartbeatInterval: "5" as unknown as number },
    ]
  ) assert.throws(() => createEngine({ store, jobs: {}, worker }), RangeError, JSON.stringify(worker));
  createEngine({ store, jobs: {}, worker: { heartbeatInterval: 5_000, staleThreshold: 15_000 } });
});

Deno.test("createEngine() works with the real host", async () => {
  await using store = await SqliteStore.open(":memory:");
  await using engine = createEngine({ store, host: systemHost, jobs: { echo } });
  await engine.start();

  const run = await engine.jobs.echo.triggerAndWait({ n: 1 }, { timeout: 60_000 });

  assert.deepEqual(run.output, { n: 1 });
});

forEachStore("stop() ends in time when a step hangs, and hands its run back", async ({ store, host }) => {
  const reached = Promise.withResolvers<void>();
  const job = aJob((step) =>
    step.run("hangs", () => {
      reached.resolve();
      return forever();
    })
  );
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.start();
  await reached.promise;

  await stopHard(engine, host);

  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.leaseOwner, run.leaseExpiresAt], ["pending", null, null]);
});

forEachStore("use() installs a plugin once", async (context) => {
  await using engine = anEngine(context);
  const installed: string[] = [];
  const plugin = { name: "counter", install: () => void installed.push("installed") };

  const answers = [engine.use(plugin), engine.use({ ...plugin })];

  assert.deepEqual(installed, ["installed"]);
  assert.ok(answers.every((answer) => answer === engine));
});

forEachStore("use() refuses what is no plugin", async (context) => {
  await using engine = anEngine(context);

  for (const odd of [null, 5, {}, { name: "counter" }, { install: () => {} }]) {
    assert.throws(() => engine.use(odd as never), { name: "TypeError", message: /^use\(\) needs a plugin: / });
  }
});

forEachStore("use() tells by worker:error of an asynchronous install() that fails", async (context) => {
  await using engine = createEngine({ ...context, jobs: {} });
  const errors: unknown[] = [];
  engine.on("worker:error", ({ error }) => void errors.push(error));

  engine.use({ name: "late", install: () => Promise.reject(new Error("no answer")) as never });
  await context.host.settle();

  assert.deepEqual(errors.map(String), ["Error: no answer"]);
});

forEachStore("use() tells by worker:error of lines that the store could not take", async ({ store, host }) => {
  const failing = new Proxy(store, {
    get: (target, key: keyof Store) => {
      if (key === "appendLogs") return () => Promise.reject(new Error("no room"));
      return typeof target[key] === "function" ? target[key].bind(target) : target[key];
    },
  });
  await using engine = createEngine({ store: failing, host, jobs: { echo } }).use({
    name: "writer",
    install: ({ on, appendLogs, newId }) => {
      on("run:complete", ({ runId }) =>
        appendLogs([{
          id: newId(),
          runId,
          stepName: null,
          level: "info",
          message: "over",
          data: null,
          writtenAt: FAKE_START,
        }]));
    },
  });
  const told = nextEvent(engine, "worker:error");

  await engine.trigger("echo", 1);
  await engine.runUntilIdle();

  assert.match(String((await told).error), /no room/);
});
