import assert from "node:assert/strict";
import { z } from "zod";
import { type ConflictError, NotFoundError } from "../../../src/model/error.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { forEachStore, recordEvents } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { anEngine } from "../../support/engines.ts";
import { aJob, echo, fail } from "../../support/jobs.ts";
import { signal } from "../../support/pauses.ts";

forEachStore("retrigger() makes a new run of the same job, input, labels and concurrency key", async (context) => {
  await using engine = anEngine(context);
  const old = await engine.trigger("echo", { n: 1 }, {
    idempotencyKey: "once",
    concurrencyKey: "line",
    labels: { a: "b" },
  });
  await engine.runUntilIdle();
  const events = recordEvents(engine);

  const run = await engine.retrigger(old.id);

  assert.notEqual(run.id, old.id);
  assert.partialDeepStrictEqual(run, {
    jobName: "echo",
    status: "pending",
    payload: { n: 1 },
    concurrencyKey: "line",
    idempotencyKey: null,
    labels: { a: "b" },
    disposition: "created",
  });
  assert.partialDeepStrictEqual(events, [
    { type: "run:trigger", runId: run.id, input: { n: 1 } },
    { type: "run:retry", runId: old.id, newRunId: run.id },
  ]);
});

for (const from of ["start", "failure"] as const) {
  forEachStore(`retrigger() from ${from} executes what it is to`, async ({ store, host }) => {
    const calls: string[] = [];
    const job = aJob(async (step) => {
      const first = await step.run("first", () => calls.push("first"));
      await step.run("breaks", () => {
        calls.push("breaks");
        if (calls.length < 3) throw new Error("broken");
      });
      return first;
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const old = await engine.trigger(job, null);
    await engine.runUntilIdle();

    const run = await engine.retrigger(old.id, { from });
    await engine.runUntilIdle();

    const again = from === "start" ? ["first", "breaks"] : ["breaks"];
    assert.deepEqual(calls, ["first", "breaks", ...again]);
    assert.equal((await engine.getRun(run.id))!.status, "completed");
    const steps = (await engine.getSteps(run.id)).map(({ name, index, status }) => [name, index, status]);
    assert.deepEqual(steps, [["first", 0, "completed"], ["breaks", 1, "completed"]]);
    assert.equal((await engine.getRun(old.id))!.status, "failed");
  });
}

forEachStore("retrigger() takes a cancelled run, also from its failure", async ({ store, host }) => {
  const reached = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<string>();
  const job = aJob((step) =>
    step.run("slow", () => {
      reached.resolve();
      return gate.promise;
    })
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await reached.promise;
  await engine.cancel(old.id);
  gate.resolve("late");
  await idle;

  const run = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(run.id))!.status, "completed");
  assert.equal((await engine.getRun(old.id))!.status, "cancelled");
});

forEachStore("retrigger() takes a run that was triggered without an input", async ({ store, host }) => {
  const job = defineJob({ name: "job", input: z.string().optional(), run: (_step, input) => input ?? "nothing" });
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.jobs.job.trigger(undefined);
  await engine.runUntilIdle();

  const run = await engine.retrigger(old.id);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(run.id))!.output, "nothing");
});

forEachStore("retrigger() from the failure asks no question that was answered, and sleeps no more", async (context) => {
  const { store, host } = context;
  let isBroken = true;
  const seen: unknown[] = [];
  const job = aJob(async (step) => {
    const answer = await step.wait("review");
    await step.sleep("nap", 1_000);
    seen.push(answer);
    await step.run("write", () => {
      if (isBroken) throw new Error("broken");
    });
    return answer;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.trigger(job, null);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(old.id);
  const signal = { signalId: "s-1", payload: { ok: true } };
  await engine.signal(wait!.id, signal);
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(old.id))!.status, "failed");
  isBroken = false;
  const events = recordEvents(engine);

  const run = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();

  const answer = { outcome: "signal", ...signal };
  const ended = (await engine.getRun(run.id))!;
  assert.deepEqual([ended.status, ended.output], ["completed", answer]);
  assert.deepEqual(seen, [answer, answer]);
  assert.ok(!events.some(({ type }) => type === "run:waiting"));
  const [copy] = await engine.getWaits(run.id);
  assert.notEqual(copy!.id, wait!.id);
  const again = await engine.signal(copy!.id, signal);
  assert.deepEqual([again.disposition, again.wait.id], ["duplicate", copy!.id]);
});

forEachStore("retrigger() from the failure asks again for a wait that timed out", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const { outcome } = await step.wait("review", { timeout: 1_000 });
    if (outcome === "timeout") throw new Error("nobody reviewed it");
    return outcome;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(old.id))!.error, "nobody reviewed it");

  const { id } = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await engine.signal(wait!.id, { signalId: "s-1", payload: null });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, "signal");
});

forEachStore("retrigger() from the failure asks again for the answer of which the run failed", async (context) => {
  const { store, host } = context;
  const job = aJob(async (step) => {
    const first = await step.wait("draft");
    const review = await step.wait("review");
    if (review.outcome === "signal" && review.payload === "stop") throw new Error("a person has stopped it");
    return [first.outcome, review.outcome];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.trigger(job, null);
  await engine.runUntilIdle();
  await signal(engine, old.id, "draft", "a draft");
  await engine.runUntilIdle();
  await signal(engine, old.id, "review", "stop");
  await engine.runUntilIdle();
  assert.equal((await engine.getRun(old.id))!.error, "a person has stopped it");

  const { id } = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();
  const waits = await engine.getWaits(id);
  await signal(engine, id, "review", "go on");
  await engine.runUntilIdle();

  assert.deepEqual(waits.map(({ name, status }) => [name, status]), [["draft", "resolved"], ["review", "pending"]]);
  assert.deepEqual((await engine.getRun(id))!.output, ["signal", "signal"]);
});

forEachStore("retrigger() from the failure goes on after a wait whose timeout the job has handled", async (context) => {
  const { store, host } = context;
  let isBroken = true;
  const job = aJob(async (step) => {
    const { outcome } = await step.wait("review", { timeout: 1_000 });
    await step.run(`after ${outcome}`, () => {
      if (isBroken) throw new Error("broken");
    });
    return outcome;
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const old = await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(1_000);
  await engine.runUntilIdle();
  isBroken = false;

  const { id } = await engine.retrigger(old.id, { from: "failure" });
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.output, "timeout");
});

forEachStore(
  "retrigger() from the failure keeps the idempotencyKey of each step, from the start it does not",
  async (context) => {
    const { store, host } = context;
    const keys: string[] = [];
    const job = aJob(async (step) => {
      await step.run("pay", ({ idempotencyKey }) => {
        keys.push(idempotencyKey);
        throw new Error("broken");
      });
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    const first = await engine.trigger(job, null);
    await engine.runUntilIdle();
    const again = async (runId: string, from: "start" | "failure") => {
      const { id } = await engine.retrigger(runId, { from });
      await engine.runUntilIdle();
      return id;
    };

    const second = await again(first.id, "failure");
    const third = await again(second, "failure");
    const anew = await again(third, "start");
    await again(anew, "failure");

    assert.deepEqual(keys, [...Array(3).fill(`${first.id}/pay`), ...Array(2).fill(`${anew}/pay`)]);
  },
);

forEachStore("retrigger() twice at once makes one run, and says so once", async (context) => {
  await using engine = anEngine(context);
  await using other = anEngine(context);
  const old = await engine.trigger("fail", 1);
  await engine.runUntilIdle();
  const events = [...[engine, other].map(recordEvents)];

  const runs = await Promise.all([
    engine.retrigger(old.id, { from: "failure" }),
    other.retrigger(old.id, { from: "start" }),
    engine.retrigger(old.id),
  ]);

  assert.equal(new Set(runs.map(({ id }) => id)).size, 1);
  assert.deepEqual(runs.map(({ disposition }) => disposition).sort(), ["created", "idempotent", "idempotent"]);
  assert.deepEqual(events.flat().map(({ type }) => type), ["run:trigger", "run:retry"]);
  assert.equal((await engine.getRuns()).total, 2);
  const { id } = runs[0];
  assert.partialDeepStrictEqual(await engine.getRun(old.id), { retriggerOf: null, retriggeredAs: id });
  assert.partialDeepStrictEqual(await engine.getRun(id), { retriggerOf: old.id, retriggeredAs: null });
});

forEachStore("retrigger() makes another run when the newest retry has ended, or is deleted", async (context) => {
  await using engine = anEngine(context);
  const old = await engine.trigger("fail", 1);
  await engine.runUntilIdle();
  const first = await engine.retrigger(old.id);
  await engine.runUntilIdle();

  const second = await engine.retrigger(old.id);
  await engine.runUntilIdle();
  await engine.deleteRun(second.id);
  const third = await engine.retrigger(old.id);

  assert.deepEqual([second.disposition, third.disposition], ["created", "created"]);
  assert.equal(new Set([first.id, second.id, third.id]).size, 3);
  assert.equal((await engine.getRun(old.id))!.retriggeredAs, third.id);
});

forEachStore("retrigger() refuses a run that has not ended, is not there, or fits no longer", async (context) => {
  const { store, host } = context;
  await using before = createEngine({ store, host, jobs: { echo, fail } });
  const pending = await before.trigger("echo", 1);
  const ended = await before.trigger("echo", 1);
  const ofOldJob = await before.trigger("fail", 1);
  await before.cancel(ended.id);
  await before.cancel(ofOldJob.id);
  const strict = defineJob({ name: "echo", input: z.string(), run: () => 1 });
  await using engine = createEngine({ store, host, jobs: { strict } });

  await assert.rejects(engine.retrigger(pending.id), (error: ConflictError) => {
    assert.equal(error.code, "conflict");
    assert.match(error.message, /pending/);
    return true;
  });
  await assert.rejects(engine.retrigger("missing"), NotFoundError);
  await assert.rejects(engine.retrigger(ofOldJob.id), NotFoundError);
  await assert.rejects(engine.retrigger(ended.id), { code: "invalid_input" });
  assert.equal((await engine.getRuns()).total, 3);
});
