import assert from "node:assert/strict";
import { z } from "zod";
import type { Engine } from "../../../src/engine/engine.ts";
import {
  type HoldfastError,
  NotFoundError,
  RunCancelledError,
  RunFailedError,
  SerializationError,
  TimeoutError,
  ValidationError,
} from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { FAKE_START } from "../../support/fake_host.ts";
import { claimOne, forEachStore, LEASE_MS, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { anEngine, typesOf } from "../../support/engines.ts";
import { aGatedJob, aJob, echo } from "../../support/jobs.ts";

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
    input: { n: 1 },
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
    startAt: null,
    priority: 0,
    fairnessKey: null,
    startBy: null,
    finishBy: null,
    failureKind: null,
    parentRunId: null,
    scheduleName: null,
    slotAt: null,
    version: 1,
    held: null,
    endOf: null,
    endRunId: null,
    retriggerOf: null,
    retriggeredAs: null,
    triggeredBy: null,
    cancelledBy: null,
    completedAs: null,
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
  "coalesce with a key that is null": { coalesce: "skip", concurrencyKey: null },
  "an unknown coalesce": { coalesce: "sometimes", concurrencyKey: "k" },
  "a coalesce that is no text": { coalesce: {}, concurrencyKey: "k" },
  "labels that are a list": { labels: ["a"] },
  "labels that are a string": { labels: "a" },
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
  const { job, reached, letGo } = aGatedJob("gated");
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
  letGo(1);
  assert.partialDeepStrictEqual(await idle, { executed: 2 });
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

forEachStore("triggerAndWait() and waitForRun() inside a step are refused, and name step.invoke()", async (context) => {
  const refusals: unknown[] = [];
  const note = (error: unknown) => void refusals.push(error);
  const outer = aJob((step) =>
    step.run("inner", async () => {
      await engine.jobs.echo.triggerAndWait(7).catch(note);
      await engine.waitForRun(step.runId).catch(note);
    }), "outer");
  const engine: Engine<{ echo: typeof echo; outer: typeof outer }> = createEngine({
    ...context,
    jobs: { echo, outer },
  });

  await engine.jobs.outer.trigger(null);
  await engine.runUntilIdle();

  assert.deepEqual(
    refusals.map(String),
    ["triggerAndWait()", "waitForRun()"].map((call) =>
      `TypeError: ${call} cannot wait for a run inside the function of step "inner": call step.invoke() outside of it`
    ),
  );
  assert.equal((await engine.getRuns({ jobName: "echo" })).total, 0);
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
