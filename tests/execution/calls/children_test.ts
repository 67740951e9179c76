import assert from "node:assert/strict";
import { z } from "zod";
import { LeaseLostError, RunCancelledError, RunFailedError, ValidationError } from "../../../src/model/error.ts";
import type { RunEvent } from "../../../src/model/event.ts";
import type { Job, StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ChildOutcome } from "../../../src/model/job/step_calls.ts";
import type { Store } from "../../../src/store/store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { claimOne, forEachStore, forever, LEASE_MS, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { failing, first } from "../../support/stores/failing_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aGate, aGatedJob, aJob, echo, fail } from "../../support/jobs.ts";
import { outputOf, signal, waitings } from "../../support/pauses.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { getRuns } from "../../../src/store/reads.ts";

forEachStore("invoke() returns what a child run returns", async ({ store, host }) => {
  const calls: unknown[] = [];
  const child = aJob((_step, input) => calls.push(input), "child");
  const parent = aJob(async (step) => [await step.invoke("one", child, "a"), await step.invoke("one", child, "b")]);
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), [1, 2]);
  assert.deepEqual(calls, ["a", "b"]);
  const { runs } = await engine.getRuns({ parentRunId: id });
  assert.deepEqual(runs.map(({ jobName, payload }) => [jobName, payload]), [["child", "b"], ["child", "a"]]);
});

forEachStore("invoke() parks the run: it holds no slot, lease and key meanwhile", async ({ store, host }) => {
  const { job: child, reached, letGo } = aGatedJob("child");
  const parent = aJob((step) => step.invoke("one", child, null, { concurrencyKey: "k" }));
  await using engine = createEngine({ store, host, jobs: { parent, child }, worker: { concurrency: 1 } });
  const { id } = await engine.trigger(parent, null, { concurrencyKey: "k" });

  const idle = engine.runUntilIdle();
  await reached;
  const during = (await engine.getRun(id))!;
  letGo("done");
  await idle;

  assert.deepEqual([during.status, during.leaseOwner], ["waiting", null]);
  assert.equal(await outputOf(engine, id), "done");
});

forEachStore("invoke() does not deadlock with one slot, five levels deep", async ({ store, host }) => {
  const nested: Job<number, unknown> = aJob<unknown, number>(
    (step, left) => left === 0 ? "bottom" : step.invoke("next", nested, left - 1),
    "nested",
  );
  await using engine = createEngine({ store, host, jobs: { nested }, worker: { concurrency: 1 } });
  const { id } = await engine.trigger(nested, 5, { concurrencyKey: "k" });

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "bottom");
  assert.equal((await engine.getRuns()).total, 6);
});

forEachStore("invoke() throws a RangeError at a depth of 32 parents", async ({ store, host }) => {
  const nested: Job<number, unknown> = aJob<unknown, number>(
    (step, depth) => step.invoke("next", nested, depth + 1).catch((error) => `${depth}: ${error.name}`),
    "nested",
  );
  await using engine = createEngine({ store, host, jobs: { nested } });
  const { id } = await engine.trigger(nested, 0);

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "32: RangeError");
});

forEachStore("invoke() names the first and the last run of a chain that failed", async ({ store, host }) => {
  const nested: Job<number, unknown> = aJob<unknown, number>(
    (step, depth) => step.invoke("next", nested, depth + 1),
    'a "nested" job',
  );
  await using engine = createEngine({ store, host, jobs: { nested } });
  const { id } = await engine.trigger(nested, 0);

  await engine.runUntilIdle();

  const { runs } = await engine.getRuns({ limit: 50 });
  const [deepest, child] = [runs[0]!, runs.at(-2)!];
  assert.equal(runs.length, 33);
  assert.equal(
    (await engine.getRun(id))!.error,
    `Run "${child.id}" of job "a "nested" job" failed: Run "${deepest.id}" of job "a "nested" job" failed: step.invoke() of "next" cannot start a child run: run "${deepest.id}" has 32 parents above it already`,
  );
});

const UNREGISTERED = aJob(() => null, "other");
for (
  const [call, start, isStep] of [
    ["invoke", (step, job) => step.invoke("one", job, null), false],
    ["invokeAll", (step, job) => step.invokeAll("one", job, [{ input: null }]), false],
    ["trigger", (step, job) => step.trigger("one", job, null), true],
  ] as [keyof StepContext, (step: StepContext, job: Job) => Promise<unknown>, boolean][]
) {
  forEachStore(
    `${call}() throws a TypeError without a job, and for one that the engine does not have`,
    async (context) => {
      const { store, host } = context;
      const jobs = [undefined, null, "parent", {}, UNREGISTERED] as Job[];
      const parent = aJob<unknown, number>((step, index) => start(step, jobs[index]!), "parent");
      await using engine = createEngine({ store, host, jobs: { parent } });
      const runs = await engine.jobs.parent.batchTrigger(jobs.map((_, input) => ({ input })));

      await engine.runUntilIdle();

      const failures = await Promise.all(runs.map(async ({ id }) => (await engine.getRun(id))!.failure!));
      const needs = (kind: string) => `step.${call}() of "one" needs a job: what defineJob() makes, not ${kind}`;
      assert.deepEqual(failures.map(({ name, message }) => `${name}: ${message}`), [
        ...["undefined", "null", "a string", "an object"].map((kind) => `TypeError: ${needs(kind)}`),
        `TypeError: step.${call}() of "one" cannot start a run of job "other": the engine that executes it has no such job`,
      ]);
      assert.equal((await engine.getSteps(runs[4]!.id)).length, isStep ? 1 : 0);
    },
  );
}

forEachStore("invoke() refuses labels that are not an object of strings", async ({ store, host }) => {
  const all = [5, ["a"], "a", { a: 1 }, null] as never[];
  const parent = aJob(
    (step) =>
      Promise.all(
        all.map((labels, index) => step.invoke(`child ${index}`, echo, {}, { labels }).catch((error) => error.name)),
      ),
    "parent",
  );
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const { id } = await engine.jobs.parent.trigger(null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), Array(all.length).fill("ValidationError"));
});

forEachStore("invoke() throws how the child failed, the same on a replay", async ({ store, host }) => {
  const seen: unknown[] = [];
  const child = aJob(
    (step) => step.run("breaks", () => Promise.reject(new TypeError("no", { cause: "why" }))),
    "child",
  );
  const parent = aJob(async (step) => {
    const error = await step.invoke("one", child, null).catch((error) => error);
    assert.ok(error instanceof RunFailedError);
    seen.push([error.message, error.runId, error.jobName, error.stepName, (error.cause as Error).name]);
    await step.sleep("nap", 5_000);
    throw error;
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();
  host.advance(5_000);
  await engine.runUntilIdle();

  const { runs: [run] } = await engine.getRuns({ parentRunId: id });
  const message = `Run "${run!.id}" of job "child" failed in step "breaks": no`;
  assert.deepEqual(seen, Array(2).fill([message, run!.id, "child", "breaks", "TypeError"]));
  assert.partialDeepStrictEqual(await engine.getRun(id), { status: "failed", error: message, failedStepName: null });
});

forEachStore("invoke() throws that the child was cancelled, the same on a replay", async ({ store, host }) => {
  const seen: unknown[] = [];
  const child = aJob((step) => step.wait("never"), "child");
  const parent = aJob(async (step) => {
    const error = await step.invoke("one", child, null).catch((error) => error);
    assert.ok(error instanceof RunCancelledError);
    seen.push(error.runId);
    await step.sleep("nap", 5_000);
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  const { runs: [run] } = await engine.getRuns({ parentRunId: id });

  await engine.cancel(run!.id);
  await engine.runUntilIdle();
  host.advance(5_000);
  await engine.runUntilIdle();

  assert.deepEqual(seen, [run!.id, run!.id]);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("cancel() of a child wakes the worker for its parent", async ({ store, host }) => {
  const child = aJob((step) => step.wait("never"), "child");
  const parent = aJob((step) => step.invoke("one", child, null).catch(() => "cancelled"));
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  await engine.start();
  const { id } = await engine.trigger(parent, null);
  await host.settle(60);
  const { runs: [run] } = await engine.getRuns({ parentRunId: id });

  await engine.cancel(run!.id);
  await host.settle(60);

  assert.equal(await outputOf(engine, id), "cancelled");
});

forEachStore("a started worker executes parent and children without polling", async ({ store, host }) => {
  const parent = aJob((step) => step.invokeAll("all", echo, [{ input: 1 }, { input: 2 }]));
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  await engine.start();
  await host.settle();

  const { id } = await engine.trigger(parent, null);
  await host.settle(100);

  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("invokeAll() returns how the children ended, in the order of the items", async ({ store, host }) => {
  const child = aJob<unknown>((step, input) => {
    if (input === "fail") throw new Error("broken");
    return input === "wait" ? step.wait("never") : { input };
  }, "child");
  const parent = aJob(async (step) => {
    const inputs = ["a", "fail", "wait", undefined];
    const results = await step.invokeAll("all", child, inputs.map((input) => ({ input })));
    return results satisfies ChildOutcome[];
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  const ids = (await engine.getRuns({ parentRunId: id })).runs.map(({ id }) => id).reverse();

  const before = (await engine.getRun(id))!.status;
  await engine.cancel(ids[2]!);
  await engine.runUntilIdle();

  assert.equal(before, "waiting");
  assert.deepEqual(await outputOf(engine, id), [
    { runId: ids[0], status: "completed", output: { input: "a" } },
    { runId: ids[1], status: "failed", error: "broken" },
    { runId: ids[2], status: "cancelled", error: `Run "${ids[2]}" was cancelled` },
    { runId: ids[3], status: "completed", output: {} },
  ]);
});

forEachStore("invokeAll() makes no child if an input is wrong, however late in the list", async ({ store, host }) => {
  const child = defineJob({ name: "child", input: z.number(), run: () => null });
  const parent = aJob((step) => {
    const items = Array.from({ length: 150 }, (_, at) => ({ input: at }));
    return step.invokeAll("all", child, [...items, { input: "no number" as unknown as number }]);
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.match((await engine.getRun(id))!.error!, /input/i);
  assert.equal((await engine.getRuns({ parentRunId: id })).total, 0);
});

forEachStore("invokeAll() of nothing returns nothing, and does not pause", async ({ store, host }) => {
  const parent = aJob((step) => step.invokeAll("all", echo, []));
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), []);
  assert.deepEqual(waitings(events), []);
});

forEachStore(
  "invokeAll() adds many children in slices of 100, and takes options with each",
  async ({ store, host }) => {
    const slices: number[] = [];
    const counting = withCalls(store, {
      pause: (lease, request) => {
        for (const { children } of request.pauses) if (children !== null) slices.push(children.runs.length);
        return store.pause(lease, request);
      },
    });
    const items = Array.from({ length: 250 }, (_, n) => ({ input: n, priority: n % 3, labels: { n: String(n) } }));
    const parent = aJob((step) => step.invokeAll("all", echo, items));
    await using engine = createEngine({ store: counting, host, jobs: { parent, echo } });
    const { id } = await engine.trigger(parent, null);

    await engine.runUntilIdle();

    const results = await outputOf(engine, id) as { output: unknown; runId: string }[];
    assert.deepEqual(results.map(({ output }) => output), items.map(({ input }) => input));
    assert.deepEqual(slices, [100, 100, 50]);
    const run = (await engine.getRun(results[5]!.runId))!;
    assert.deepEqual([run.priority, run.labels], [2, { n: "5" }]);
  },
);

forEachStore("invokeAll() goes on with the next slice after a crash", async ({ store, host }) => {
  let slices = 0;
  const dying = withCalls(store, {
    pause: (lease, request) => slices++ < 2 ? store.pause(lease, request) : forever(),
  });
  const items = Array.from({ length: 250 }, (_, n) => ({ input: n }));
  const parent = aJob(async (step) => (await step.invokeAll("all", echo, items)).length);
  const jobs = { parent, echo };
  await using engine = createEngine({ store, host, jobs });
  const { id } = await engine.trigger(parent, null);
  createEngine({ store: dying, host: new FakeHost(), jobs }).runUntilIdle({ maxRuns: 1 }).catch(() => {});
  while (slices < 3) await host.settle();
  const before = (await getRuns(store, { parentRunId: id })).total;
  await pass(host, LEASE_MS + 1_000, LEASE_MS + 1_000);

  await engine.runUntilIdle();

  assert.equal(before, 200);
  assert.equal(await outputOf(engine, id), 250);
  assert.equal((await getRuns(store, { parentRunId: id })).total, 250);
});

forEachStore("step.trigger() starts a run, and goes on at once", async ({ store, host }) => {
  const child = aJob((step) => step.wait("review"), "child");
  const parent = aJob(async (step) => [await step.trigger("one", child, 1), await step.trigger("one", child, 2)]);
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  const started = await outputOf(engine, id) as { runId: string; disposition: string }[];
  const runs = await Promise.all(started.map(({ runId }) => engine.getRun(runId)));
  assert.deepEqual(started.map(({ disposition }) => disposition), ["created", "created"]);
  assert.deepEqual(runs.map((run) => [run!.status, run!.payload, run!.parentRunId]), [
    ["waiting", 1, null],
    ["waiting", 2, null],
  ]);
  assert.ok(
    started.every(({ runId }) => /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(runId)),
  );
  assert.deepEqual((await engine.getSteps(id)).map(({ name, status }) => [name, status]), [
    ["one", "completed"],
    ["one#2", "completed"],
  ]);
  assert.equal(events.filter(({ type }) => type === "run:trigger").length, 3);
});

forEachStore(
  "step.trigger() makes one run, even if the process dies before the step is recorded",
  async ({ store, host }) => {
    const parent = aJob((step) => step.trigger("one", echo, 1));
    const jobs = { parent, echo };
    const deaf = withCalls(store, { saveStep: () => forever() });
    const { id } = await createEngine({ store, host, jobs }).trigger(parent, null);
    createEngine({ store: deaf, host: new FakeHost(), jobs }).runUntilIdle({ maxRuns: 1 }).catch(() => {});
    await host.settle(60);
    const before = (await getRuns(store, { jobName: "echo" })).runs.map(({ id }) => id);
    await pass(host, LEASE_MS + 1_000, LEASE_MS + 1_000);

    await using engine = createEngine({ store, host, jobs });
    await engine.runUntilIdle();

    const { runId, disposition } = await outputOf(engine, id) as { runId: string; disposition: string };
    assert.deepEqual([before, disposition], [[runId], "created"]);
    assert.equal((await getRuns(store, { jobName: "echo" })).total, 1);
  },
);

for (const when of ["before", "after"] as const) {
  forEachStore(
    `step.trigger() makes one run if the answer of the store fails ${when} the commit`,
    async ({ store, host }) => {
      const parent = aJob((step) => step.trigger("one", echo, 1));
      const { id } = await createEngine({ store, host, jobs: { parent, echo } }).trigger(parent, null);
      await using engine = createEngine({
        store: failing(store, first(2, "enqueue", when)),
        host,
        jobs: { parent, echo },
      });
      const idle = engine.runUntilIdle();
      await host.settle();
      await pass(host, 10_000);
      await idle;

      assert.equal((await engine.getRun(id))!.status, "completed");
      assert.equal((await getRuns(store, { jobName: "echo" })).total, 1);
    },
  );
}

forEachStore("step.trigger() can find or join a run instead", async ({ store, host }) => {
  const parent = aJob(async (step) => [
    await step.trigger("first", echo, 1, { idempotencyKey: "once" }),
    await step.trigger("second", echo, 2, { idempotencyKey: "once" }),
    await step.trigger("third", echo, 3, { concurrencyKey: "k" }),
    await step.trigger("fourth", echo, 4, { concurrencyKey: "k", coalesce: "skip" }),
  ]);
  await using engine = createEngine({ store, host, jobs: { parent, echo }, worker: { concurrency: 1 } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  const [one, two, three, four] = await outputOf(engine, id) as { runId: string; disposition: string }[];
  assert.deepEqual([two!.runId, two!.disposition], [one!.runId, "idempotent"]);
  assert.deepEqual([four!.runId, four!.disposition], [three!.runId, "coalesced"]);
});

forEachStore("a run that a step has triggered goes on when its parent has ended", async ({ store, host }) => {
  const parent = aJob(async (step) => {
    await step.trigger("one", echo, 1);
    throw new Error("broken");
  });
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.deepEqual((await engine.getRuns({ jobName: "echo" })).runs.map(({ status }) => status), ["completed"]);
});

forEachStore("a child inherits labels, priority and fairness key, not the concurrency key", async ({ store, host }) => {
  const parent = aJob(async (step) => {
    await step.invoke("same", echo, null);
    await step.invoke("own", echo, null, { labels: { b: "own", c: "3" }, priority: 7, concurrencyKey: "mine" });
    await step.trigger("loose", echo, null, { labels: { c: "4" } });
  });
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const options = { labels: { a: "1", b: "2" }, priority: 5, fairnessKey: "acme", concurrencyKey: "k" };
  await engine.trigger(parent, null, options);

  await engine.runUntilIdle();

  const { runs } = await engine.getRuns({ jobName: "echo" });
  const seen = runs.reverse().map((run) => [run.labels, run.priority, run.fairnessKey, run.concurrencyKey]);
  assert.deepEqual(seen, [
    [{ a: "1", b: "2" }, 5, "acme", null],
    [{ a: "1", b: "own", c: "3" }, 7, "acme", "mine"],
    [{ a: "1", b: "2", c: "4" }, 5, "acme", null],
  ]);
});

forEachStore("a child can be delayed, and can have deadlines", async ({ store, host }) => {
  const parent = aJob((step) => step.invoke("one", echo, null, { delay: 5_000, finishWithin: 1_000 }));
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  const { runs: [child] } = await engine.getRuns({ parentRunId: id });
  const before = (await engine.getRun(id))!.status;

  host.advance(5_000);
  await engine.runUntilIdle();

  assert.deepEqual([before, child!.status], ["waiting", "pending"]);
  assert.ok(child!.startAt !== null);
  const [, trigger] = events.filter(({ type }) => type === "run:trigger");
  assert.partialDeepStrictEqual(trigger, { runId: child!.id, startAt: child!.startAt, parentRunId: id });
  assert.equal((await engine.getRun(id))!.status, "completed");
});

for (const ending of ["completes", "fails", "is cancelled"] as const) {
  forEachStore(`the children of a run that ${ending} are cancelled, and theirs in turn`, async ({ store, host }) => {
    const { job: grandchild, reached, letGo } = aGatedJob("grandchild");
    const child = aJob((step) => step.invoke("one", grandchild, null), "child");
    const parent = aJob(async (step) => {
      step.invoke("left", child, null);
      await step.wait("go");
      if (ending === "fails") throw new Error("broken");
    });
    await using engine = createEngine({ store, host, jobs: { parent, child, grandchild } });
    const events = recordEvents(engine);
    await engine.start();
    const { id } = await engine.trigger(parent, null);
    await host.settle(100);
    const aborted = await reached;

    if (ending === "is cancelled") await engine.cancel(id);
    else await signal(engine, id, "go");
    await host.settle(200);

    const { runs } = await engine.getRuns({ jobName: ["child", "grandchild"] });
    assert.deepEqual(runs.map(({ status }) => status), ["cancelled", "cancelled"]);
    assert.ok(aborted.aborted);
    const cancels = events.filter((event) => event.type === "run:cancel") as RunEvent[];
    const expected = runs.map(({ id }) => id).concat(ending === "is cancelled" ? [id] : []);
    assert.deepEqual(cancels.map(({ runId }) => runId).sort(), expected.sort());
    letGo(null);
  });
}

forEachStore(
  "the children of a run that ended in another process are cancelled, 100 of them soon",
  async ({ store, host }) => {
    const parent = aJob((step) => step.invokeAll("all", echo, Array.from({ length: 100 }, () => ({ input: 1 }))));
    const { id } = await createEngine({ store, host, jobs: { parent } }).trigger(parent, null);
    await using another = createEngine({ store, host, jobs: { parent, unused: echo } });
    await another.runUntilIdle({ maxRuns: 1 });
    await store.cancel(id, "request", null);

    await using engine = createEngine({ store, host, jobs: { echo } });
    const { executed } = await engine.runUntilIdle();

    assert.equal(executed, 0);
    assert.equal((await engine.getRuns({ status: "cancelled", parentRunId: id })).total, 100);
  },
);

forEachStore("a worker without a free slot cancels the children of a run that has ended", async ({ store, host }) => {
  const { job: busy, reached, letGo } = aGatedJob("busy");
  const parent = aJob((step) => step.invokeAll("all", echo, Array.from({ length: 100 }, () => ({ input: 1 }))));
  await using engine = createEngine({ store, host, jobs: { parent, echo, busy }, worker: { concurrency: 1 } });
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle({ maxRuns: 1 });
  await engine.trigger(busy, null, { priority: 1 });
  await engine.start();
  await host.settle(60);
  await reached;

  await store.cancel(id, "request", null);
  await pass(host, 1_500);

  assert.equal((await engine.getRuns({ status: "cancelled", parentRunId: id })).total, 100);
  letGo(null);
});

forEachStore("a child that ends while its parent is about to park resumes it", async ({ store, host }) => {
  const gate = aGate();
  const parent = aJob(async (step) => {
    const [result] = await Promise.all([step.invoke("one", echo, 1), step.run("slow", gate.work)]);
    return result;
  });
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  await engine.start();
  const { id } = await engine.trigger(parent, null);
  await pass(host, 2_000);

  const { runs: [child] } = await engine.getRuns({ parentRunId: id });
  const during = (await engine.getRun(id))!.status;
  gate.open();
  await host.settle(60);

  assert.deepEqual([child!.status, during], ["completed", "running"]);
  assert.equal(await outputOf(engine, id), 1);
});

forEachStore("Promise.all() over 50 invokes returns all results", async ({ store, host }) => {
  const parent = aJob((step) =>
    Promise.all(Array.from({ length: 50 }, (_, n) => step.invoke(`child ${n}`, echo, { n })))
  );
  await using engine = createEngine({ store, host, jobs: { parent, echo }, worker: { concurrency: 7 } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), Array.from({ length: 50 }, (_, n) => ({ n })));
  assert.equal((await engine.getRuns({ parentRunId: id })).total, 50);
});

forEachStore("Promise.all() over invokes fails fast: the other children are cancelled", async ({ store, host }) => {
  const slow = aJob((step) => step.wait("never"), "slow");
  const parent = aJob((step) => Promise.all([step.invoke("slow", slow, null), step.invoke("fails", fail, null)]));
  await using engine = createEngine({ store, host, jobs: { parent, slow, fail } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "failed");
  assert.deepEqual((await engine.getRuns({ jobName: "slow" })).runs.map(({ status }) => status), ["cancelled"]);
});

forEachStore("Promise.race() over invokes has the same winner on a replay", async ({ store, host }) => {
  const winners: unknown[] = [];
  const late = aJob((step, input) => step.sleep("nap", 1_000).then(() => input), "late");
  const parent = aJob(async (step) => {
    const both = [step.invoke("late", late, "late"), step.invoke("early", echo, "early")];
    winners.push(await Promise.race(both));
    await Promise.all(both);
    await step.sleep("nap", 1_000);
  });
  await using engine = createEngine({ store, host, jobs: { parent, late, echo } });
  await engine.trigger(parent, null);
  await engine.runUntilIdle();
  for (let n = 0; n < 2; n++) {
    host.advance(1_000);
    await engine.runUntilIdle();
  }

  assert.deepEqual(winners, ["early", "early", "early"]);
});

forEachStore(
  "invokeAll() delivers its results in their turn, however long they take to read",
  async ({ store, host }) => {
    const orders: string[][] = [];
    const slow = withCalls(store, {
      readChildren: async (...args) => {
        await host.settle(5);
        return await store.readChildren(...args);
      },
    });
    const parent = aJob(async (step) => {
      const order: string[] = [];
      orders.push(order);
      await Promise.all([
        step.invokeAll("all", echo, [{ input: 1 }, { input: 2 }]).then(() => order.push("all")),
        step.sleep("nap", 1_000).then(() => order.push("nap")),
      ]);
      await step.sleep("again", 1_000);
    });
    await using engine = createEngine({ store: slow, host, jobs: { parent, echo } });
    await engine.trigger(parent, null);
    await engine.runUntilIdle();
    for (let n = 0; n < 2; n++) {
      host.advance(1_000);
      await engine.runUntilIdle();
    }

    assert.deepEqual(orders.slice(-2), [["all", "nap"], ["all", "nap"]]);
  },
);

forEachStore("an invoke publishes that the run waits, without the id of a wait", async ({ store, host }) => {
  const parent = aJob((step) => step.invoke("one", echo, { n: 1 }), "parent");
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(parent, null, { labels: { a: "b" } });
  const stream = engine.subscribe(id);

  await engine.runUntilIdle();

  const { runs: [child] } = await engine.getRuns({ parentRunId: id });
  assert.partialDeepStrictEqual(waitings(events), [{ runId: id, waitId: null, waitName: "one", deadlineAt: null }]);
  const [, trigger] = events.filter(({ type }) => type === "run:trigger");
  assert.partialDeepStrictEqual(trigger, { runId: child!.id, parentRunId: id, input: { n: 1 }, labels: { a: "b" } });
  const ofParent = await Array.fromAsync(stream);
  assert.ok(ofParent.some((event) => event.type === "run:complete"));
});

forEachStore("a retrigger right after a cancel keeps the steps of all children", async ({ store, host }) => {
  const keys: string[] = [];
  let isStuck = true;
  const child = aJob<number, number>(async (step, n) => {
    await step.run("charge", ({ idempotencyKey }) => void keys.push(idempotencyKey));
    if (isStuck) await step.wait("never");
    return n;
  }, "child");
  const parent = aJob(async (step) => {
    return (await step.invokeAll("all", child, Array.from({ length: 150 }, (_, n) => ({ input: n })))).length;
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  const events = recordEvents(engine);
  isStuck = false;

  await engine.cancel(id);
  const retry = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, retry.id), 150);
  assert.equal(keys.length, 150);
  const cancelled = events.filter(({ type }) => type === "run:cancel").map((event) => (event as RunEvent).runId);
  assert.equal(new Set(cancelled).size, 151);
  assert.equal(cancelled.length, 151);
});

forEachStore("a retry of a retry that ended between two slices keeps all children that completed", async (context) => {
  const calls: number[] = [];
  let [isBroken, isInterrupted] = [true, false];
  const child = aJob<number, number>((_step, n) => {
    calls.push(n);
    if (n === 0 && isBroken) throw new Error("broken");
    return n;
  }, "child");
  const parent = aJob(async (step) => {
    const results = await step.invokeAll("all", child, Array.from({ length: 250 }, (_, n) => ({ input: n })));
    if (results.some(({ status }) => status !== "completed")) throw new Error("a child failed");
    return results.length;
  }, "parent");
  let slices = 0;
  const { host } = context;
  const store: Store = withCalls(context.store, {
    pause: async (lease, request) => {
      const hasChildren = request.pauses.some(({ children }) => children !== null);
      if (isInterrupted && hasChildren && ++slices === 2) await context.store.cancel(lease.runId, "c1", null);
      return await context.store.pause(lease, request);
    },
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const old = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  isInterrupted = true;
  const cancelled = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();
  [isBroken, isInterrupted, calls.length] = [false, false, 0];

  const retry = await engine.retrigger(cancelled.id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(cancelled.id))!.status, "cancelled");
  assert.equal(await outputOf(engine, retry.id), 250);
  assert.deepEqual(calls, [0]);
});

forEachStore("a retrigger from the failure costs only what failed", async ({ store, host }) => {
  const calls: number[] = [];
  let isBroken = true;
  const child = aJob<number, number>(async (step, n) => {
    const doubled = await step.run("double", () => {
      calls.push(n);
      return 2 * n;
    });
    if (n % 4 === 3 && isBroken) throw new Error("broken");
    return doubled;
  }, "child");
  const parent = aJob(async (step) => {
    const before = await step.invoke("before", child, 0);
    const results = await step.invokeAll("all", child, Array.from({ length: 10 }, (_, n) => ({ input: n })));
    const failed = results.filter(({ status }) => status !== "completed");
    if (failed.length > 0) throw new Error(`${failed.length} failed`);
    return [before, results.map((result) => result.status === "completed" ? result.output : null)];
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const old = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  const events = recordEvents(engine);
  isBroken = false;

  const run = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(old.id))!.error, "2 failed");
  assert.deepEqual(await outputOf(engine, run.id), [0, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]]);
  assert.equal(calls.length, 11, "no step was executed twice");
  const { runs } = await engine.getRuns({ parentRunId: run.id });
  assert.deepEqual(runs.map(({ payload }) => payload), [7, 3]);
  assert.ok(runs.every(({ retriggerOf }) => retriggerOf !== null));
  const retries = events.filter((event) => event.type === "run:retry") as RunEvent[];
  assert.deepEqual(retries.map(({ runId }) => runId).slice(1), runs.map(({ retriggerOf }) => retriggerOf).reverse());
});

forEachStore("a retrigger from the failure keeps results that the run has used", async ({ store, host }) => {
  const calls: unknown[] = [];
  const child = aJob((_step, input) => calls.push(input), "child");
  const parent = aJob(async (step) => {
    const { runId } = await step.trigger("loose", child, "loose");
    const one = await step.invoke("one", child, "one");
    await step.run("breaks", () => {
      if (calls.length < 3) throw new Error("broken");
    });
    return [runId, one];
  });
  await using engine = createEngine({ store, host, jobs: { parent, child } });
  const old = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  calls.push("mended");

  const run = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await outputOf(engine, run.id) as unknown[]).length, 2);
  assert.deepEqual(calls.filter((call) => call !== "mended").length, 2);
});

const strict = defineJob({ name: "strict", input: z.object({ n: z.number() }), run: (_step, { n }) => n });

const REFUSALS: [string, (step: StepContext) => Promise<unknown>, RegExp][] = [
  ["an input that does not fit", (step) => step.invoke("one", strict, { n: "x" } as never), /does not fit its schema/],
  [
    "an item that does not fit",
    (step) => step.invokeAll("one", strict, [{ input: { n: 1 } }, { input: {} as never }]),
    /does not fit its schema/,
  ],
  ["an unknown option", (step) => step.invoke("one", echo, 1, { prio: 1 } as never), /no option "prio"/],
  [
    "an unknown option of an item",
    (step) => step.invokeAll("one", echo, [{ inputs: 1 } as never]),
    /no option "inputs"/,
  ],
  ["an unknown option of a trigger", (step) => step.trigger("one", echo, 1, { prio: 1 } as never), /no option "prio"/],
  ["an idempotency key", (step) => step.invoke("one", echo, 1, { idempotencyKey: "k" } as never), /no option/],
  ["a priority out of range", (step) => step.invoke("one", echo, 1, { priority: 1_001 }), /priority/],
  ["labels that are not valid", (step) => step.invoke("one", echo, 1, { labels: { "": "a" } }), /label/],
  ["no name", (step) => step.invoke("", echo, 1), /name of a child run/],
  ["an unknown job", (step) => step.invoke("one", aJob(() => 1, "unknown"), 1), /unknown/],
  ["no list", (step) => step.invokeAll("one", echo, {} as never), /takes an array/],
  [
    "too many items",
    (step) => step.invokeAll("one", echo, Array.from({ length: 10_001 }, () => ({ input: 1 }))),
    /at most 10000 items/,
  ],
  [
    "a name that is in use",
    (step) => Promise.all([step.invoke("one", strict, { n: 1 }), step.invokeAll("one", strict, [{ input: { n: 1 } }])]),
    /in use by a child run/,
  ],
  [
    "a call inside a step",
    (step) => step.run("outer", () => step.invoke("one", echo, 1)),
    /inside the function of step/,
  ],
];

for (const [what, call, message] of REFUSALS) {
  forEachStore(`the calls for child runs refuse ${what}`, async ({ store, host }) => {
    const parent = aJob((step) => call(step));
    await using engine = createEngine({ store, host, jobs: { parent, strict, echo } });
    const { id } = await engine.trigger(parent, null);

    await engine.runUntilIdle();

    const run = (await engine.getRun(id))!;
    assert.equal(run.status, "failed");
    assert.match(run.error!, message);
    const { runs } = await engine.getRuns({ jobName: ["strict", "echo"] });
    assert.deepEqual(runs.filter(({ status }) => status !== "cancelled"), []);
  });
}

forEachStore(
  "invoke() throws a ValidationError that the job can catch, the same on a replay",
  async ({ store, host }) => {
    const seen: boolean[] = [];
    const parent = aJob(async (step) => {
      const error = await step.invoke("one", strict, { n: "x" } as never).catch((error) => error);
      seen.push(error instanceof ValidationError);
      await step.sleep("nap", 1_000);
      return await step.invoke("one", strict, { n: 1 });
    });
    await using engine = createEngine({ store, host, jobs: { parent, strict } });
    const { id } = await engine.trigger(parent, null);
    await engine.runUntilIdle();
    host.advance(1_000);
    await engine.runUntilIdle();

    assert.deepEqual(seen, [true, true, true]);
    assert.equal(await outputOf(engine, id), 1);
  },
);

for (const items of [0, 50, 100, 200, 300]) {
  forEachStore(`invokeAll() refuses ${items} items, if it was interrupted at 100 of 250`, async ({ store, host }) => {
    let [count, slices] = [250, 0];
    const interrupting = withCalls(store, {
      pause: (lease, request) => {
        const hasChildren = request.pauses.some(({ children }) => children !== null);
        if (!hasChildren || ++slices !== 2) return store.pause(lease, request);
        count = items;
        return Promise.reject(new LeaseLostError(lease));
      },
    });
    const parent = aJob((step) => step.invokeAll("all", echo, Array.from({ length: count }, () => ({ input: 1 }))));
    await using engine = createEngine({ store: interrupting, host, jobs: { parent, echo } });
    const { id } = await engine.trigger(parent, null);

    await engine.runUntilIdle();

    assert.partialDeepStrictEqual(await engine.getRun(id), {
      status: "failed",
      error: `step.invokeAll() of "all" has ${items} items, but had 250 when it was first called`,
    });
    assert.equal((await engine.getRuns({ parentRunId: id })).total, 100);
  });
}

forEachStore("invokeAll() refuses another number of items than before", async ({ store, host }) => {
  let count = 2;
  const parent = aJob(async (step) => {
    await step.invokeAll("all", echo, Array.from({ length: count }, () => ({ input: 1 })));
    await step.sleep("nap", 1_000);
  });
  await using engine = createEngine({ onDivergence: "continue", store, host, jobs: { parent, echo } });
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle();
  count = 3;
  host.advance(1_000);

  await engine.runUntilIdle();

  assert.match((await engine.getRun(id))!.error!, /has 3 items, but had 2 when it was first called/);
});

forEachStore("invokeAll() refuses results of more than 64 MiB together", async ({ store, host }) => {
  const large = aJob(() => "x".repeat(1_000_000), "large");
  const parent = aJob(async (step) => {
    const items = Array.from({ length: 70 }, () => ({ input: null }));
    return await step.invokeAll("all", large, items).catch((error) => `${error.name}: ${error.message}`);
  });
  await using engine = createEngine({ store, host, jobs: { parent, large } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.match(await outputOf(engine, id) as string, /^RangeError: The results .* take more than 64 MiB together/);
});

forEachStore("a parent whose worker died resumes with the children that it has", async ({ store, host }) => {
  const parent = aJob((step) => step.invoke("one", echo, 1), "parent");
  await using engine = createEngine({ store, host, jobs: { parent, echo } });
  const { id } = await engine.trigger(parent, null);
  await engine.runUntilIdle({ maxRuns: 1 });
  await engine.runUntilIdle({ maxRuns: 1 });
  await claimOne(store, "parent");
  await pass(host, LEASE_MS + 1_000, LEASE_MS + 1_000);

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), 1);
  assert.equal((await engine.getRuns({ parentRunId: id })).total, 1);
});

/** The largest number of pauses that one claim of the parent has returned, and the number of its claims. */
function countingPauses(store: Store): { store: Store; most: () => number } {
  let most = 0;
  return {
    store: withCalls(store, {
      claim: async (request) => {
        const result = await store.claim(request);
        for (const { pauses } of result.claims) most = Math.max(most, pauses.length);
        return result;
      },
    }),
    most: () => most,
  };
}

forEachStore("the claim of a parent of 1,000 children returns one pause", async (context) => {
  const { store, most } = countingPauses(context.store);
  const parent = aJob(async (step) => {
    const results = await step.invokeAll("all", echo, Array.from({ length: 1_000 }, (_, n) => ({ input: n })));
    return results.length;
  });
  await using engine = createEngine({ store, host: context.host, jobs: { parent, echo }, worker: { concurrency: 40 } });
  const { id } = await engine.trigger(parent, null);

  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), 1_000);
  assert.equal(most(), 1);
});

forEachStore("a retry from the failure takes over the children of a call that was renamed", async ({ store, host }) => {
  let isDown = true;
  const failIf = (isSo: boolean) => {
    if (isSo) throw new Error("down");
  };
  const child = aJob((_step, n) => failIf(n === 2 && isDown), "child");
  const calling = (name: string, renamed = {}) =>
    defineJob({
      name: "parent",
      input: z.null(),
      changes: { renamed },
      async run(step) {
        const results = await step.invokeAll(name, child, [{ input: 1 }, { input: 2 }]);
        failIf(results.some(({ status }) => status === "failed"));
        return results.length;
      },
    });
  const before = createEngine({ store, host, jobs: { parent: calling("calls"), child } });
  const { id } = await before.trigger("parent", null);
  await before.runUntilIdle();
  await before.stop();
  isDown = false;
  await using engine = createEngine({
    store,
    host,
    jobs: { parent: calling("children", { calls: "children" }), child },
  });

  const retry = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, retry.id), 2);
  const { runs } = await engine.getRuns({ jobName: "child" });
  assert.deepEqual(runs.map(({ payload, retriggerOf }) => [payload, retriggerOf !== null]), [
    [2, true],
    [2, false],
    [1, false],
  ]);
});
