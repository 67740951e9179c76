import assert from "node:assert/strict";
import { z } from "zod";
import type { Engine } from "../../src/engine/engine.ts";
import {
  ConflictError,
  type HoldfastError,
  NotFoundError,
  RunCancelledError,
  RunFailedError,
  SerializationError,
  TimeoutError,
  ValidationError,
} from "../../src/error.ts";
import type { EngineEvent, RunEvent } from "../../src/event.ts";
import { systemHost } from "../../src/host.ts";
import { defineJob, type StepContext } from "../../src/job.ts";
import type { Store } from "../../src/store.ts";
import { SqliteStore } from "../../src/stores/sqlite/sqlite_store.ts";
import { FAKE_START, type FakeHost } from "../support/fake_host.ts";
import {
  anything,
  claimOne,
  forEachStore,
  forever,
  LEASE_MS,
  nextEvent,
  pass,
  recordEvents,
  type StoreTest,
} from "../support/for_each_store.ts";
import { createEngine } from "../support/quiet_engine.ts";

function aJob<Output = unknown>(run: (step: StepContext, input: unknown) => Output | Promise<Output>, name = "job") {
  return defineJob({ name, input: anything, run });
}

const echo = aJob((_step, input) => input, "echo");
const fail = aJob(() => {
  throw new Error("broken");
}, "fail");

function anEngine({ store, host }: StoreTest) {
  return createEngine({ store, host, jobs: { echo, fail } });
}

/** A job whose one step begins, tells so, and returns when it is let go. */
function aGate() {
  const reached = Promise.withResolvers<AbortSignal>();
  const gate = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    step.run("slow", ({ abortSignal }) => {
      reached.resolve(abortSignal);
      return gate.promise;
    }), "gated");
  return { job, reached: reached.promise, releaseKey: gate.resolve };
}

/** Stops an engine whose steps hang. */
async function stopHard(engine: Engine, host: FakeHost): Promise<void> {
  const stopping = engine.stop({ timeout: 1 });
  await pass(host, 1_000);
  await stopping;
}

async function readAll(stream: ReadableStream<RunEvent>): Promise<RunEvent[]> {
  return await Array.fromAsync(stream);
}

function typesOf(events: readonly EngineEvent[]): string[] {
  return events.map(({ type }) => type);
}

forEachStore("trigger() makes a pending run with all that it was asked for", async (context) => {
  await using engine = anEngine(context);

  const run = await engine.trigger("echo", { n: 1 }, {
    idempotencyKey: "once",
    concurrencyKey: "line",
    labels: { tenant: "a", __proto__x: "b" },
  });

  const at = new Date(FAKE_START).toISOString();
  const { id, ...rest } = run;
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.deepEqual(rest, {
    jobName: "echo",
    status: "pending",
    payload: { n: 1 },
    output: null,
    error: null,
    failedStepName: null,
    failure: null,
    progress: null,
    labels: { tenant: "a", __proto__x: "b" },
    idempotencyKey: "once",
    concurrencyKey: "line",
    leaseOwner: null,
    leaseExpiresAt: null,
    leaseGeneration: 0,
    createdAt: at,
    updatedAt: at,
    startedAt: null,
    completedAt: null,
    retriggerOf: null,
    retriggeredAs: null,
    disposition: "created",
  });
  const { disposition: _, ...stored } = run;
  assert.deepEqual(await engine.getRun(id), stored);
});

forEachStore("trigger() takes a handle, a definition or a name", async (context) => {
  await using engine = anEngine(context);

  const runs = [
    await engine.jobs.echo.trigger(1),
    await engine.trigger(echo, 2),
    await engine.trigger("echo", 3),
  ];

  assert.deepEqual(runs.map(({ jobName, payload }) => [jobName, payload]), [["echo", 1], ["echo", 2], ["echo", 3]]);
});

forEachStore("trigger() refuses a job that the engine does not know", async (context) => {
  await using engine = anEngine(context);

  const byName = engine.trigger("unknown", 1);
  const byDefinition = engine.trigger(aJob(() => 1, "other"), 1);

  await assert.rejects(byName, { code: "not_found", message: /"unknown"/ });
  await assert.rejects(byDefinition, NotFoundError);
  assert.equal((await engine.getRuns()).total, 0);
});

const WRONG_OPTIONS: Record<string, Record<string, unknown>> = {
  "an empty idempotencyKey": { idempotencyKey: "" },
  "a long idempotencyKey": { idempotencyKey: "x".repeat(256) },
  "an idempotencyKey with a control character": { idempotencyKey: "a\u0000b" },
  "an ill-formed idempotencyKey": { idempotencyKey: "x\ud800" },
  "an idempotencyKey that is no text": { idempotencyKey: 7 },
  "an empty concurrencyKey": { concurrencyKey: "" },
  "a concurrencyKey with a line break": { concurrencyKey: "a\nb" },
  "coalesce without a key": { coalesce: "skip" },
  "an unknown coalesce": { coalesce: "sometimes", concurrencyKey: "k" },
  "a coalesce that is no text": { coalesce: {}, concurrencyKey: "k" },
  "labels that are a list": { labels: ["a"] },
  "labels that are a text": { labels: "a" },
  "a label that is no text": { labels: { a: 1 } },
  "a label without a key": { labels: { "": "a" } },
  "a label's key with a space": { labels: { "a b": "c" } },
  "a label's long key": { labels: { ["k".repeat(64)]: "a" } },
  "a label's long value": { labels: { a: "v".repeat(256) } },
  "a label with a control character": { labels: { a: "\u0007" } },
  "65 labels": { labels: Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`k${n}`, "v"])) },
};

for (const [description, options] of Object.entries(WRONG_OPTIONS)) {
  forEachStore(`trigger() refuses ${description}`, async (context) => {
    await using engine = anEngine(context);

    const trigger = engine.trigger("echo", null, options);

    await assert.rejects(trigger, (error: HoldfastError) => {
      assert.ok(error instanceof ValidationError);
      assert.equal(error.code, "invalid_request");
      return true;
    });
    assert.equal((await engine.getRuns()).total, 0);
  });
}

forEachStore(
  "trigger() accepts the longest keys and labels, and labels named like members of objects",
  async (context) => {
    await using engine = anEngine(context);
    const labels = Object.fromEntries([["__proto__", "a"], ["constructor", "b"], ["k".repeat(63), "v".repeat(255)], [
      "empty",
      "",
    ]]);

    const run = await engine.trigger("echo", null, { idempotencyKey: "x".repeat(255), labels });

    assert.deepEqual(Object.entries(run.labels).toSorted(), Object.entries(labels).toSorted());
    assert.equal((await engine.getRuns({ labels })).total, 1);
    assert.equal(({} as Record<string, unknown>).a, undefined);
  },
);

forEachStore("trigger() answers the run of its idempotency key, whatever it has come to", async (context) => {
  await using engine = anEngine(context);
  const options = { idempotencyKey: "once" };
  const first = await engine.trigger("echo", 1, options);
  const events = recordEvents(engine);

  const second = await engine.trigger("echo", 2, options);
  await engine.runUntilIdle();
  const third = await engine.trigger("echo", 3, { ...options, concurrencyKey: "k", coalesce: "skip" });
  const other = await engine.trigger("fail", 4, options);

  assert.deepEqual([second.id, third.id], [first.id, first.id]);
  assert.deepEqual([second, third].map(({ disposition }) => disposition), ["idempotent", "idempotent"]);
  assert.deepEqual([third.status, third.payload], ["completed", 1]);
  assert.equal(other.disposition, "created");
  assert.equal(typesOf(events).filter((type) => type === "run:trigger").length, 1);
});

forEachStore("trigger() at the same instant with one idempotency key makes one run", async (context) => {
  await using engine = anEngine(context);

  const results = await Promise.all(
    Array.from({ length: 20 }, (_, n) => engine.trigger("echo", n, { idempotencyKey: "once" })),
  );

  assert.equal(new Set(results.map(({ id }) => id)).size, 1);
  assert.equal(results.filter(({ disposition }) => disposition === "created").length, 1);
});

for (const coalesce of ["skip", "queue", "active"] as const) {
  forEachStore(`trigger() with coalesce "${coalesce}" joins a pending run of its job and key`, async (context) => {
    await using engine = anEngine(context);
    const options = { concurrencyKey: "line", coalesce };
    const first = await engine.trigger("echo", 1, { ...options, labels: { of: "first" } });
    const events = recordEvents(engine);

    const second = await engine.trigger("echo", 2, { ...options, labels: { of: "second" } });
    const otherJob = await engine.trigger("fail", 3, options);
    const otherKey = await engine.trigger("echo", 4, { ...options, concurrencyKey: "other" });

    assert.deepEqual([second.id, second.disposition, second.payload], [first.id, "coalesced", 1]);
    assert.deepEqual([otherJob.disposition, otherKey.disposition], ["created", "created"]);
    assert.partialDeepStrictEqual(events[0], {
      type: "run:coalesced",
      runId: first.id,
      status: "pending",
      skippedInput: 2,
      skippedLabels: { of: "second" },
      labels: { of: "first" },
    });
  });
}

forEachStore("trigger() joins a run that executes only with coalesce active", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  await using engine = createEngine({ store, host, jobs: { job } });
  const first = await engine.trigger(job, 1, { concurrencyKey: "line" });
  const idle = engine.runUntilIdle();
  await reached;

  const active = await engine.trigger(job, 2, { concurrencyKey: "line", coalesce: "active" });
  const queued = await engine.trigger(job, 3, { concurrencyKey: "line", coalesce: "queue" });
  const skipped = await engine.trigger(job, 4, { concurrencyKey: "line", coalesce: "skip" });

  assert.deepEqual([active.id, active.disposition, active.status], [first.id, "coalesced", "running"]);
  assert.equal(queued.disposition, "created");
  assert.deepEqual([skipped.id, skipped.disposition], [queued.id, "coalesced"]);
  releaseKey(1);
  assert.deepEqual(await idle, { executed: 2 });
});

forEachStore(
  "trigger() stores the input as given, and runs with what the schema made of it",
  async ({ store, host }) => {
    let parses = 0;
    const job = defineJob({
      name: "job",
      input: z.object({ name: z.string(), size: z.number().default(3), day: z.iso.date().optional() })
        .transform((value) => ({ ...value, parses: ++parses, when: new Date(0) })),
      run: (_step, input) => input,
    });
    await using engine = createEngine({ store, host, jobs: { job } });

    const { id } = await engine.jobs.job.trigger({ name: "Ada" });
    await claimOne(store, "job");
    host.advance(LEASE_MS);
    await engine.runUntilIdle();

    const run = (await engine.getRun(id))!;
    assert.deepEqual(run.payload, { name: "Ada" });
    assert.deepEqual(run.output, { name: "Ada", size: 3, parses: 1, when: "1970-01-01T00:00:00.000Z" });
  },
);

forEachStore("trigger() refuses an input that does not fit, and tells what is wrong", async ({ store, host }) => {
  const job = defineJob({ name: "job", input: z.object({ rows: z.array(z.number()) }), run: () => 1 });
  await using engine = createEngine({ store, host, jobs: { job } });

  const trigger = engine.trigger("job", { rows: [1, "two"] });

  await assert.rejects(trigger, (error: ValidationError) => {
    assert.equal(error.code, "invalid_input");
    assert.deepEqual(error.issues.map(({ path }) => path), [["rows", 1]]);
    return true;
  });
  assert.equal((await engine.getRuns()).total, 0);
});

forEachStore("trigger() tells by its cause what a broken schema threw", async ({ store, host }) => {
  const broken = new Error("broken schema");
  const input = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: () => {
        throw broken;
      },
    },
  } as const;
  const job = defineJob({ name: "job", input, run: () => 1 });
  await using engine = createEngine({ store, host, jobs: { job } });

  const trigger = engine.trigger("job", 1);

  await assert.rejects(trigger, (error: ValidationError) => {
    assert.equal(error.code, "invalid_input");
    assert.equal(error.cause, broken);
    return true;
  });
});

forEachStore("trigger() refuses an input that JSON would lose or that is too large", async ({ store, host }) => {
  await using engine = createEngine({ store, host, jobs: { echo }, maxValueBytes: 100 });

  const lost = engine.trigger("echo", { at: new Map() });
  const large = engine.trigger("echo", "x".repeat(99));

  await assert.rejects(lost, SerializationError);
  await assert.rejects(large, /too large/);
  assert.equal((await engine.trigger("echo", "x".repeat(98))).disposition, "created");
});

forEachStore("batchTrigger() makes all runs, in order", async (context) => {
  await using engine = anEngine(context);
  const events = recordEvents(engine);

  const runs = await engine.jobs.echo.batchTrigger([
    { input: 1 },
    { input: 2, labels: { a: "b" }, idempotencyKey: "once" },
    { input: 3, idempotencyKey: "once" },
  ]);

  assert.deepEqual(runs.map(({ payload }) => payload), [1, 2, 2]);
  assert.deepEqual(runs.map(({ disposition }) => disposition), ["created", "created", "idempotent"]);
  assert.deepEqual(typesOf(events), ["run:trigger", "run:trigger"]);
  assert.deepEqual(await engine.jobs.echo.batchTrigger([]), []);
});

forEachStore("batchTrigger() makes no run if one of them is refused", async ({ store, host }) => {
  const job = defineJob({ name: "job", input: z.number(), run: () => 1 });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const wrongInput = engine.jobs.job.batchTrigger([{ input: 1 }, { input: "two" as unknown as number }]);
  const wrongOption = engine.jobs.job.batchTrigger([{ input: 1 }, { input: 2, idempotencyKey: "" }]);

  await assert.rejects(wrongInput, ValidationError);
  await assert.rejects(wrongOption, ValidationError);
  assert.equal((await engine.getRuns()).total, 0);
  assert.deepEqual(events, []);
});

forEachStore("triggerAndWait() answers the completed run", async (context) => {
  await using engine = anEngine(context);
  await engine.start();

  const run = await engine.jobs.echo.triggerAndWait({ n: 1 }, { labels: { a: "b" } });

  assert.deepEqual([run.status, run.output, run.labels], ["completed", { n: 1 }, { a: "b" }]);
});

forEachStore("triggerAndWait() inside a step waits for a run of the same engine", async ({ store, host }) => {
  const outer = aJob(
    (step) => step.run("inner", async () => (await engine.jobs.echo.triggerAndWait(7)).output),
    "outer",
  );
  const engine: Engine<{ echo: typeof echo; outer: typeof outer }> = createEngine({
    store,
    host,
    jobs: { echo, outer },
  });
  await engine.start();

  const run = await engine.jobs.outer.triggerAndWait(null);

  assert.equal(run.output, 7);
  await engine.stop();
});

forEachStore("waitForRun() throws what became of the run", async (context) => {
  await using engine = anEngine(context);
  const failed = await engine.trigger("fail", 1);
  const cancelled = await engine.trigger("echo", 1);
  await engine.cancel(cancelled.id);

  const failing = engine.waitForRun(failed.id);
  const cancelling = engine.waitForRun(cancelled.id);
  const missing = engine.waitForRun("missing");

  await Promise.all([
    assert.rejects(failing, (error: RunFailedError) => {
      assert.ok(error instanceof RunFailedError);
      const { runId, jobName, stepName, code, message } = error;
      assert.deepEqual([runId, jobName, stepName, code], [failed.id, "fail", null, "run_failed"]);
      assert.equal(message, `Run "${failed.id}" of job "fail" failed: broken`);
      return true;
    }),
    assert.rejects(cancelling, RunCancelledError),
    assert.rejects(missing, NotFoundError),
    engine.runUntilIdle(),
  ]);
});

forEachStore("waitForRun() refuses a run as soon as it is deleted", async (context) => {
  const { store, host } = context;
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);
  const waiting = assert.rejects(engine.waitForRun(id), NotFoundError);
  await host.settle();

  await store.cancel(id, "request", null);
  await engine.deleteRun(id);

  await waiting;
});

forEachStore("waitForRun() gives up after its timeout, and leaves the run alone", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);

  const waiting = engine.waitForRun(id, { timeout: 1_000 });
  const refused = assert.rejects(waiting, (error: TimeoutError) => {
    assert.ok(error instanceof TimeoutError);
    assert.equal(error.code, "timeout");
    return true;
  });
  await pass(context.host, 1_000);
  await refused;

  assert.equal((await engine.getRun(id))!.status, "pending");
});

forEachStore("waitForRun() ends when another engine on the same store finishes the run", async (context) => {
  const { host } = context;
  await using waiting = anEngine(context);
  await using working = anEngine(context);
  const { id } = await waiting.trigger("echo", 7);
  let output: unknown;
  const waited = waiting.waitForRun(id).then((run) => void (output = run.output));
  await pass(host, 200, 20);

  await working.runUntilIdle();
  await pass(host, 2_000, 20);

  assert.equal(output, 7);
  await waited;
});

Deno.test("waitForRun() ends when another process on the same file finishes the run", async () => {
  const path = await Deno.makeTempFile({ suffix: ".db" });
  try {
    await using here = await SqliteStore.open(path);
    await using there = await SqliteStore.open(path);
    await using waiting = createEngine({ store: here, jobs: { echo } });
    await using working = createEngine({ store: there, jobs: { echo } });
    const { id } = await waiting.trigger("echo", 7);
    const waited = waiting.waitForRun(id);

    await working.runUntilIdle();

    assert.equal((await waited).output, 7);
  } finally {
    for (const suffix of ["", "-wal", "-shm"]) await Deno.remove(path + suffix).catch(() => {});
  }
});

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
  assert.deepEqual(await engine.runUntilIdle(), { executed: 0 });
  assert.deepEqual(typesOf(events), ["run:cancel"]);
});

forEachStore("cancel() tells the executing step, and nothing is recorded afterwards", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  await engine.start();
  const abortSignal = await reached;

  await engine.cancel(id);
  const isAbortedAtOnce = abortSignal.aborted;
  releaseKey("late");
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
  const { job, reached, releaseKey } = aGate();
  await using working = createEngine({ store, host, jobs: { job }, worker: { heartbeatInterval: 1_000 } });
  await using other = createEngine({ store, host, jobs: {} });
  const { id } = await working.trigger(job, null);
  await working.start();
  const abortSignal = await reached;

  await other.cancel(id);
  await pass(host, 1_000);

  assert.equal(abortSignal.aborted, true);
  releaseKey("late");
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
  assert.deepEqual(await store.getSteps(id), []);
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

forEachStore("on() tells the events of a run in order, with what the contract says they carry", async (context) => {
  const { store, host } = context;
  const job = aJob(async (step) => {
    step.progress(1, 2);
    await step.run("work", () => {
      host.advance(7);
      return { n: 1 };
    });
    step.log.warn("done", { n: 2 });
    return "out";
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);

  const { id } = await engine.trigger(job, { in: 1 }, { labels: { a: "b" } });
  await engine.runUntilIdle();

  const [at, later] = [FAKE_START, FAKE_START + 7].map((instant) => new Date(instant).toISOString());
  const base = { runId: id, jobName: "job", labels: { a: "b" } };
  const leased = events[1] as EngineEvent & { leaseOwner: string };
  assert.equal(typeof leased.leaseOwner, "string");
  assert.deepEqual(events.map(({ sequence: _, ...event }) => event), [
    { type: "run:trigger", input: { in: 1 }, ...base, timestamp: at },
    {
      type: "run:leased",
      leaseOwner: leased.leaseOwner,
      leaseExpiresAt: new Date(FAKE_START + 30_000).toISOString(),
      ...base,
      timestamp: at,
    },
    { type: "run:start", execution: 1, ...base, timestamp: at },
    { type: "run:progress", progress: { current: 1, total: 2 }, ...base, timestamp: at },
    { type: "step:start", stepName: "work", stepIndex: 0, attempt: 1, ...base, timestamp: at },
    { type: "step:complete", stepName: "work", stepIndex: 0, output: { n: 1 }, duration: 7, ...base, timestamp: later },
    { type: "log:write", stepName: null, level: "warn", message: "done", data: { n: 2 }, ...base, timestamp: later },
    { type: "run:complete", output: "out", duration: 7, ...base, timestamp: later },
  ]);
  const sequences = events.map(({ sequence }) => sequence);
  assert.deepEqual(sequences, sequences.toSorted((left, right) => left - right));
  assert.equal(new Set(sequences).size, events.length);
});

forEachStore("on() tells of a write only after it can be read", async ({ store, host }) => {
  const job = aJob((step) => step.run("work", () => 1));
  await using engine = createEngine({ store, host, jobs: { job } });
  const seen: Promise<unknown>[] = [];
  engine.on("run:trigger", ({ runId }) => void seen.push(store.getRun(runId).then((run) => run !== null)));
  engine.on("step:complete", ({ runId }) => void seen.push(store.getSteps(runId).then(([step]) => step?.status)));
  engine.on("run:complete", ({ runId }) => void seen.push(store.getRun(runId).then((run) => run?.status)));

  await engine.trigger(job, null);
  await engine.runUntilIdle();

  assert.deepEqual(await Promise.all(seen), [true, "completed", "completed"]);
});

forEachStore("on() stops telling once its answer is called", async (context) => {
  await using engine = anEngine(context);
  const heard: string[] = [];
  const listener = ({ type }: EngineEvent) => void heard.push(type);
  const stopFirst = engine.on("run:trigger", listener);
  const stopSecond = engine.on("run:trigger", listener);

  await engine.trigger("echo", 1);
  stopFirst();
  stopFirst();
  await engine.trigger("echo", 2);
  stopSecond();
  await engine.trigger("echo", 3);

  assert.equal(heard.length, 3);
});

forEachStore("on() does not let a listener that throws harm anything", async (context) => {
  const { store, host } = context;
  const logged: string[] = [];
  const logger = { info() {}, warn() {}, error: (text: string) => void logged.push(text) };
  await using engine = createEngine({ store, host, jobs: { echo }, logger });
  const heard: string[] = [];
  engine.on("*", () => {
    throw new Error("broken listener");
  });
  engine.on("*", (() => Promise.reject(new Error("broken async listener"))) as () => void);
  engine.on("*", ({ type }) => void heard.push(type));

  const { id } = await engine.trigger("echo", 1);
  await engine.runUntilIdle();
  await host.settle();

  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(heard, ["run:trigger", "run:leased", "run:start", "run:complete"]);
  assert.equal(logged.length, 8);
});

forEachStore("subscribe() follows a pending run to its end", async ({ store, host }) => {
  const job = aJob(async (step) => {
    step.progress(1);
    await step.run("work", () => 1);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const other = await engine.trigger(job, null);
  const reading = readAll(engine.subscribe(id));
  await host.settle();

  await engine.runUntilIdle();
  const events = await reading;

  assert.notEqual(other.id, id);
  assert.ok(events.every(({ runId }) => runId === id));
  assert.deepEqual(typesOf(events), [
    "run:leased",
    "run:start",
    "run:progress",
    "step:start",
    "step:complete",
    "run:complete",
  ]);
});

forEachStore("subscribe() begins with a running run as it stands", async ({ store, host }) => {
  const { promise, resolve } = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    step.progress(1);
    await step.run("first", () => 1);
    await step.run("second", () => {
      reached.resolve();
      return promise;
    });
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await reached.promise;

  const reading = readAll(engine.subscribe(id));
  await host.settle();
  resolve();
  await idle;
  const events = await reading;

  assert.deepEqual(typesOf(events), [
    "run:leased",
    "run:start",
    "run:progress",
    "step:start",
    "step:complete",
    "run:complete",
  ]);
  assert.partialDeepStrictEqual(events[2], { progress: { current: 1 } });
  assert.partialDeepStrictEqual(events[1], { execution: 1 });
});

forEachStore("subscribe() tells the last event alone of a run that has ended", async (context) => {
  await using engine = anEngine(context);
  const completed = await engine.trigger("echo", { n: 1 });
  const failed = await engine.trigger("fail", 1);
  await engine.runUntilIdle();
  const cancelled = await engine.trigger("echo", 1);
  await engine.cancel(cancelled.id);

  const streams = await Promise.all([completed, failed, cancelled].map(({ id }) => readAll(engine.subscribe(id))));

  assert.deepEqual(streams.map(typesOf), [["run:complete"], ["run:fail"], ["run:cancel"]]);
  assert.partialDeepStrictEqual(streams[0]![0], { output: { n: 1 }, duration: 0 });
  assert.partialDeepStrictEqual(streams[1]![0], { error: "broken", failedStepName: null });
});

forEachStore("subscribe() fails for a run that is not there", async (context) => {
  await using engine = anEngine(context);

  const reading = readAll(engine.subscribe("missing"));

  await assert.rejects(reading, NotFoundError);
});

forEachStore("subscribe() closes when the run is cancelled, and when the engine stops", async (context) => {
  const engine = anEngine(context);
  const cancelled = await engine.trigger("echo", 1);
  const untouched = await engine.trigger("echo", 1);
  const readings = [cancelled, untouched].map(({ id }) => readAll(engine.subscribe(id)));
  await context.host.settle();

  await engine.cancel(cancelled.id);
  await engine.stop();

  assert.deepEqual((await Promise.all(readings)).map(typesOf), [["run:cancel"], []]);
});

forEachStore("subscribe() leaves nothing behind when its reader goes away", async (context) => {
  await using engine = anEngine(context);
  const { id } = await engine.trigger("echo", 1);
  const reader = engine.subscribe(id).getReader();
  await context.host.settle();

  await reader.cancel();

  assert.deepEqual(await engine.runUntilIdle(), { executed: 1 });
});

forEachStore("subscribe() of a run that another engine executes shows all that happens to it", async (context) => {
  const { host } = context;
  await using following = anEngine(context);
  await using working = anEngine(context);
  const { id } = await working.trigger("echo", 1);
  let types: string[] | undefined;
  const reading = readAll(following.subscribe(id)).then((events) => void (types = typesOf(events)));
  await pass(host, 200, 20);

  await working.runUntilIdle();
  await pass(host, 2_000, 20);

  assert.deepEqual(types, ["run:leased", "run:start", "run:complete"]);
  await reading;
});

Deno.test("subscribe() of a run that another process executes shows its progress, its steps and its end", async () => {
  const path = await Deno.makeTempFile({ suffix: ".db" });
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const job = aJob(async (step) => {
    await step.run("first", () => gates[0]!.promise);
    step.progress(1);
    await step.run("second", () => gates[1]!.promise);
    return "out";
  });
  try {
    await using here = await SqliteStore.open(path);
    await using there = await SqliteStore.open(path);
    await using following = createEngine({ store: here, jobs: { job } });
    await using working = createEngine({ store: there, jobs: { job } });
    const { id } = await following.trigger(job, null);
    const reader = following.subscribe(id).getReader();
    const read = async () => (await reader.read()).value;

    const idle = working.runUntilIdle();
    const types = [];
    for (let event = await read(); event !== undefined; event = await read()) {
      types.push(event.type);
      // Each step goes on when its beginning has been shown.
      if (event.type === "step:start") gates[event.stepIndex]!.resolve();
    }
    await idle;

    assert.deepEqual(types, [
      "run:leased",
      "run:start",
      "step:start",
      "step:complete",
      "run:progress",
      "step:start",
      "step:complete",
      "run:complete",
    ]);
  } finally {
    for (const suffix of ["", "-wal", "-shm"]) await Deno.remove(path + suffix).catch(() => {});
  }
});

forEachStore("runUntilIdle() works off what is due, also what it brings about", async ({ store, host }) => {
  const parent = aJob((step) => step.run("child", async () => (await engine.trigger("echo", 1)).id), "parent");
  const engine: Engine = createEngine({ store, host, jobs: { echo, parent }, worker: { concurrency: 1 } });
  await engine.trigger("parent", 1);
  await engine.trigger("parent", 2);

  const first = await engine.runUntilIdle();
  const second = await engine.runUntilIdle();

  assert.deepEqual([first, second], [{ executed: 4 }, { executed: 0 }]);
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

forEachStore("start() twice starts one worker", async ({ store, host }) => {
  const { job, reached, releaseKey } = aGate();
  await using engine = createEngine({ store, host, jobs: { job }, worker: { concurrency: 1 } });

  await Promise.all([engine.start(), engine.start()]);
  await engine.start();
  const [first, second] = await Promise.all([engine.trigger(job, 1), engine.trigger(job, 2)]);
  await reached;
  await host.settle();

  assert.equal((await engine.getRun(second!.id))!.status, "pending");
  releaseKey(1);
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

  assert.equal(await context.store.getRun("missing"), null);
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

forEachStore("retention deletes runs that ended long enough ago, and tells of it", async ({ store, host }) => {
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
