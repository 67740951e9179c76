import assert from "node:assert/strict";
import { ConflictError, NotFoundError, StoreError, ValidationError } from "../../../src/model/error.ts";
import type { Job, StepContext } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ChangeDefinition } from "../../../src/model/job/job_changes.ts";
import {
  anything,
  forEachStore,
  holdRun,
  pass,
  recordEvents,
  type StoreTest,
} from "../../support/stores/for_each_store.ts";
import { outputOf } from "../../support/pauses.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { getRun } from "../../../src/store/reads.ts";
import { FakeHost } from "../../../src/testing/fake_host.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";

function aCheckout(run: (step: StepContext) => unknown, options: ChangeDefinition & { name?: string } = {}): Job {
  return defineJob({ name: "checkout", input: anything, ...options, run });
}

const old = aCheckout(async (step) => {
  await step.run("charge", () => {});
  await step.sleep("nap", 60_000);
});
const renamed = aCheckout((step) => step.run("pay", () => "paid"));

/** Works off what is due, with the seconds that a guard waits for. */
async function execute({ store, host }: StoreTest, job: Job): Promise<void> {
  await using engine = createEngine({ store, host, jobs: { job } });
  let isIdle = false;
  const idle = engine.runUntilIdle().then(() => isIdle = true);
  while (!isIdle) {
    await host.settle(60);
    if (!isIdle) await pass(host, 1_000);
  }
  await idle;
}

/** Makes runs that changed code holds. */
async function hold(context: StoreTest, count = 1): Promise<string[]> {
  const { store, host } = context;
  await using engine = createEngine({ store, host, jobs: { old } });
  const runs = await engine.jobs.old.batchTrigger(Array.from({ length: count }, () => ({ input: null })));
  await engine.runUntilIdle();
  host.advance(60_000);
  await execute(context, renamed);
  return runs.map(({ id }) => id);
}

forEachStore("resume() lets the same code try again, and publishes it", async (context) => {
  const { store, host } = context;
  const [id] = await hold(context);
  await using engine = createEngine({ store, host, jobs: { renamed } });
  const events = recordEvents(engine);

  const run = await engine.resume(id!);
  const { executed } = await Promise.all([engine.runUntilIdle(), pass(host, 3_000)]).then(([idle]) => idle);

  assert.equal(run.held, null);
  assert.equal(executed, 1);
  assert.deepEqual(events.map(({ type }) => type), ["run:resume", "run:leased", "run:start", "run:hold"]);
});

forEachStore(
  "a run that its job ended early is tried once more by the same code after a minute",
  async ({ store, host }) => {
    let executions = 0;
    let failing = 0;
    const job = aCheckout(async (step) => {
      executions += 1;
      if (executions > 1 && failing-- > 0) throw new Error("the service is down");
      await step.run("charge", () => {});
      await step.sleep("nap", 10_000);
      return "paid";
    });
    await using engine = createEngine({ store, host, jobs: { job } });
    await engine.start();
    const outcomes: unknown[] = [];

    for (const failures of [1, 2]) {
      [executions, failing] = [0, failures];
      const { id } = await engine.jobs.job.trigger(null);
      await pass(host, 20_000, 500);
      const first = await engine.getRun(id);
      await pass(host, 70_000, 500);
      const second = await engine.getRun(id);
      await pass(host, 120_000, 500);
      const last = await engine.getRun(id);
      outcomes.push([first!.held?.code, second!.held?.code, last!.status, executions]);
    }

    assert.deepEqual(outcomes, [
      ["ended_early", undefined, "completed", 3],
      ["ended_early", "ended_early", "pending", 3],
    ]);
  },
);

forEachStore("a worker whose slots are always taken tries held runs, too", async ({ store, host }) => {
  const job = aCheckout(() => "fits");
  const busy = defineJob({
    name: "busy",
    input: anything,
    run: (step) => step.run("work", () => new Promise<void>((resolve) => void host.schedule(1_500, resolve))),
  });
  await using engine = createEngine({ store, host, jobs: { job, busy }, worker: { concurrency: 1 } });
  await engine.jobs.busy.trigger(null);
  await engine.start();
  await host.settle(60);
  const { id } = await engine.jobs.job.trigger(null);
  await holdRun(store, "checkout", id);
  await engine.jobs.busy.batchTrigger(Array.from({ length: 5 }, () => ({ input: null })));

  await pass(host, 5_000, 50);

  assert.equal(await outputOf(engine, id), "fits");
  await pass(host, 5_000, 50);
});

/** Settles until something is so, though no time passes. */
async function untilNow(host: StoreTest["host"], isSo: () => boolean): Promise<void> {
  for (let turns = 0; turns < 100 && !isSo(); turns++) await host.settle(60);
}

const other = defineJob({ name: "other", input: anything, run: () => "done" });

forEachStore("runs that a deploy tries again in vain keep no other run from its start", async (context) => {
  const { store, host } = context;
  const ids = await hold(context, 40);
  const again = aCheckout((step) => step.run("pay again", () => "paid"));
  await using engine = createEngine({ store, host, jobs: { again, other }, worker: { concurrency: 2 } });
  let held = 0;
  engine.on("run:hold", () => void held++);
  let done = 0;
  engine.on("run:complete", () => void done++);

  await engine.start();
  for (const at of [0, 300, 1_000, 1_700]) {
    await pass(host, at, 100);
    const before = done;
    await engine.jobs.other.trigger(null);
    await untilNow(host, () => done > before);
    assert.equal(done, before + 1, `after ${at} ms`);
  }
  await pass(host, 5_000, 100);

  assert.equal(held, ids.length);
});

forEachStore("runs that changed code is to hold keep no other run from its start", async ({ store, host }) => {
  await using before = createEngine({ store, host, jobs: { old } });
  await before.jobs.old.batchTrigger(Array.from({ length: 40 }, () => ({ input: null })));
  await before.runUntilIdle();
  host.advance(60_000);
  await using engine = createEngine({ store, host, jobs: { renamed, other }, worker: { concurrency: 2 } });
  let held = 0;
  engine.on("run:hold", () => void held++);
  let isDone = false;
  engine.on("run:complete", () => void (isDone = true));

  await engine.jobs.other.trigger(null);
  await engine.start();
  await untilNow(host, () => isDone);
  const heldBefore = held;
  await pass(host, 2_000, 100);

  assert.deepEqual([isDone, heldBefore, held], [true, 0, 40]);
});

forEachStore("after a deploy of code that fits, all held runs go on at once", async (context) => {
  const { store, host } = context;
  const ids = await hold(context, 60);
  const mended = aCheckout(async (step) => {
    await step.run("charge", () => {});
    await step.sleep("nap", 60_000);
    return "fits";
  });
  await using engine = createEngine({ store, host, jobs: { mended }, worker: { concurrency: 2 } });
  let done = 0;
  engine.on("run:complete", () => void done++);

  await engine.start();
  await untilNow(host, () => done === ids.length);

  assert.equal(done, ids.length);
});

forEachStore("a run that has waited without a slot begins nothing new before it has one", async ({ store, host }) => {
  const jobs = {
    split: defineJob({
      name: "split",
      input: anything,
      async run(step) {
        // The branch awaits something outside of its steps, so the other one waits until it is quiet.
        const branch = async () => {
          if (step.execution > 1) await new Promise<void>((resolve) => void host.schedule(500, resolve));
          return await step.run("recorded", () => {});
        };
        if (step.execution === 1) await step.run("recorded", () => {});
        if (step.execution === 1) await new Promise<void>(() => {});
        await Promise.all([branch(), step.run("new", () => executing.push("new"))]);
      },
    }),
    long: defineJob({
      name: "long",
      input: anything,
      run: (step) =>
        step.run("long", async () => {
          executing.push("long begins");
          await new Promise<void>((resolve) => void host.schedule(2_000, resolve));
          executing.push("long ends");
        }),
    }),
  };
  const executing: string[] = [];
  const before = createEngine({ store, host, jobs });
  const { id } = await before.jobs.split.trigger(null);
  await before.start();
  await host.settle(60);
  await Promise.all([before.stop({ timeout: 0 }), pass(host, 1_000)]);
  await using engine = createEngine({ store, host, jobs, worker: { concurrency: 1 } });

  await engine.jobs.long.trigger(null);
  await engine.start();
  await pass(host, 1_500, 100);
  const meanwhile = [...executing];
  await pass(host, 2_000, 100);

  assert.deepEqual([meanwhile, executing], [["long begins"], ["long begins", "long ends", "new"]]);
  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("stop() does not wait for a run that waits for a slot", async ({ store, host }) => {
  const ends = Promise.withResolvers<void>();
  const jobs = {
    split: defineJob({
      name: "split",
      input: anything,
      async run(step) {
        if (step.execution === 1) await step.run("recorded", () => {});
        if (step.execution === 1) await new Promise<void>(() => {});
        const branch = async () => {
          await new Promise<void>((resolve) => void host.schedule(500, resolve));
          await step.run("recorded", () => {});
        };
        await Promise.all([branch(), step.run("new", () => {})]);
      },
    }),
    long: defineJob({ name: "long", input: anything, run: (step) => step.run("long", () => ends.promise) }),
  };
  const before = createEngine({ store, host, jobs });
  const { id } = await before.jobs.split.trigger(null);
  await before.start();
  await host.settle(60);
  await Promise.all([before.stop({ timeout: 0 }), pass(host, 1_000)]);
  const engine = createEngine({ store, host, jobs, worker: { concurrency: 1 } });
  await engine.jobs.long.trigger(null);
  await engine.start();
  await pass(host, 700, 100);

  const stopping = engine.stop();
  ends.resolve();
  await host.settle(100);
  await stopping; // no time has passed

  const run = await getRun(store, id);
  assert.equal(run!.status, "pending");
});

forEachStore("resume() with onDivergence continue executes what is new", async (context) => {
  const { store, host } = context;
  const [id] = await hold(context);
  await using engine = createEngine({ store, host, jobs: { renamed } });

  await engine.resume(id!, { onDivergence: "continue" });
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id!), "paid");
});

forEachStore("a stream of a held run begins with its hold, and a wait for it says why", async (context) => {
  const { store, host } = context;
  const [id] = await hold(context);
  await using engine = createEngine({ store, host, jobs: { renamed } });
  const message = (await engine.getRun(id!))!.held!.message;

  const reader = engine.subscribe(id!).getReader();
  const { value } = await reader.read();
  await reader.cancel();
  const waiting = engine.waitForRun(id!, { timeout: 0 });
  const error = await Promise.all([waiting.catch((error) => error), pass(host, 10)]).then(([error]) => error);

  assert.deepEqual(value, { ...value, type: "run:hold", code: "diverged", message });
  assert.equal(error.message, `Run "${id}" has not completed within 0 ms. ${message}`);
});

forEachStore("a hold is logged as a warning", async (context) => {
  const warnings: string[] = [];
  const logger = { info: () => {}, warn: (message: string) => void warnings.push(message), error: () => {} };
  const { store, host } = context;
  const [id] = await hold(context);
  await using engine = createEngine({ store, host, jobs: { renamed }, logger });

  await engine.resume(id!);
  await Promise.all([engine.runUntilIdle(), pass(host, 3_000)]);

  assert.equal(warnings.length, 1);
  assert.match(warnings[0]!, new RegExp(`^Run "${id}" of job "checkout" does not go on. Held: step "pay" is new`));
});

forEachStore("resume() refuses a run that is not held, an unknown one, and unknown options", async (context) => {
  const { store, host } = context;
  await using engine = createEngine({ store, host, jobs: { old } });
  const { id } = await engine.trigger(old, null);

  await assert.rejects(engine.resume(id), {
    name: "ConflictError",
    message: `Cannot resume run "${id}": it is not held, but pending`,
  });
  await assert.rejects(engine.resume("01234567-89ab-7cde-8f01-23456789abcd"), NotFoundError);
  await assert.rejects(engine.resume(id, { onDivergence: "fail" as never }), ValidationError);
  await assert.rejects(engine.resume(id, { force: true } as never), TypeError);
});

forEachStore("resumeAll() resumes the held runs of a job, more than one slice of them", async (context) => {
  const { store, host } = context;
  const ids = await hold(context, 60);
  await using engine = createEngine({ store, host, jobs: { renamed } });

  const message = (await engine.getRun(ids[0]!))!.held!.message;

  const others = await engine.resumeAll({ filter: { jobName: "other" } });
  const otherMessages = await engine.resumeAll({ filter: { error: "something else" } });
  const all = await engine.resumeAll({ filter: { jobName: "checkout", error: message }, onDivergence: "continue" });
  await engine.runUntilIdle();

  assert.deepEqual([others, otherMessages, all], [{ resumed: 0 }, { resumed: 0 }, { resumed: 60 }]);
  for (const id of ids) await outputOf(engine, id);
  await assert.rejects(engine.resumeAll({ filter: { status: "other" as never } }), ValidationError);
  await assert.rejects(engine.resumeAll({ code: "other" as never }), ValidationError);
  await assert.rejects(engine.resumeAll({ job: "checkout" } as never), TypeError);
  await assert.rejects(engine.resume(ids[0]!), ConflictError);
});

forEachStore("resumeAll() takes a job and the code of a hold", async (context) => {
  const { store, host } = context;
  const ids = await hold(context, 60);
  await using engine = createEngine({ store, host, jobs: { renamed } });

  const resumed = [
    await engine.resumeAll({ jobName: "other" }),
    await engine.resumeAll({ jobName: "checkout", code: "input_refused" }),
    await engine.resumeAll({ jobName: ["checkout"], code: "diverged", onDivergence: "continue" }),
    await engine.resumeAll({ jobName: "checkout" }),
  ];
  await engine.runUntilIdle();

  assert.deepEqual(resumed.map((one) => one.resumed), [0, 0, 60, 0]);
  for (const id of ids) await outputOf(engine, id);
  await assert.rejects(engine.resumeAll({ filter: { held: false } }), ValidationError);
  await assert.rejects(engine.resumeAll({ filter: null as never }), TypeError);
  await assert.rejects(engine.resumeAll({ filter: { jobName: "a" }, jobName: "b" }), ValidationError);
  await assert.rejects(
    engine.resumeAll({ jobName: 5 as never, code: "diverged" }),
    (error) => !(error instanceof StoreError),
  );
  await assert.rejects(engine.resumeAll({ code: "diverged", filter: { labels: { a: "b" } } }), ValidationError);
});

Deno.test("resumeAll() goes on where a call has ended because it took too long", async () => {
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  await hold({ store, host } as StoreTest, 120);
  let readings = 0;
  const slow = new Proxy(host, {
    get(target, name) {
      if (name === "monotonic") return () => target.monotonic() + 4 * readings++;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
  await using engine = createEngine({ store, host: slow, jobs: { renamed } });

  assert.deepEqual(await engine.resumeAll({ code: "diverged" }), { resumed: 120 });
});

forEachStore("resumeRuns() resumes the held runs of a selection, each once, and can be repeated", async (context) => {
  const { store, host } = context;
  const ids = await hold(context, 5);
  await using engine = createEngine({ store, host, jobs: { renamed } });
  const { id: pending } = await engine.trigger(renamed, null);
  const events = recordEvents(engine);
  const selection = { filter: { held: true } };

  const dry = await engine.resumeRuns(selection, { dryRun: true });
  const dryIds = await engine.resumeRuns({ runIds: [ids[0]!, pending] }, { dryRun: true });
  const first = await engine.resumeRuns(selection, { limit: 2 });
  const rest = await engine.resumeRuns(selection, { cursor: first.next! });
  const again = await engine.resumeRuns(selection);
  const byId = await engine.resumeRuns({ runIds: [ids[0]!, pending, "none"] });
  const none = await engine.resumeRuns({ filter: { held: false } });

  const nothing = { matched: 0, done: 0, skipped: [], next: null };
  const conflict = (runId: string) => ({ runId, code: "conflict" });
  assert.deepEqual([dry.matched, dry.done, dryIds.skipped], [5, 0, [conflict(pending)]]);
  assert.deepEqual([first.done, rest, again, none], [2, { ...nothing, matched: 3, done: 3 }, nothing, nothing]);
  assert.deepEqual(byId.skipped, [conflict(ids[0]!), conflict(pending), { runId: "none", code: "not_found" }]);
  assert.deepEqual(events.map(({ type }) => type), Array(5).fill("run:resume"));
  assert.equal((await engine.getRuns({ held: true })).total, 0);
  await assert.rejects(engine.resumeRuns({ filter: {} }), ValidationError);
  await assert.rejects(engine.resumeRuns(selection, { onDivergence: "fail" as never }), ValidationError);
  await assert.rejects(engine.resumeRuns(selection, { from: "failure" } as never), TypeError);
});

forEachStore("a started worker with other code tries held runs within a polling interval", async (context) => {
  const { store, host } = context;
  const [id] = await hold(context);
  const fits = aCheckout((step) => step.run("pay", () => "anew"), {
    changes: { renamed: { charge: "pay" }, removed: ["nap"] },
  });
  await using engine = createEngine({ store, host, jobs: { fits } });

  await engine.start();
  await pass(host, 1_500);

  assert.equal((await engine.getRun(id!))!.status, "completed");
});

forEachStore("runUntilIdle() with other code tries all held runs", async (context) => {
  const { store, host } = context;
  const ids = await hold(context, 50);
  const fits = aCheckout((step) => step.run("pay", () => {}), {
    changes: { renamed: { charge: "pay" }, removed: ["nap"] },
  });
  await using engine = createEngine({ store, host, jobs: { fits } });

  const { executed } = await engine.runUntilIdle();

  assert.equal(executed, 50);
  for (const id of ids) assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("a schedule of a former name fires the job that has it as an alias", async (context) => {
  const { store, host } = context;
  const former = aCheckout(() => {}, { name: "check-out" });
  await using before = createEngine({ store, host, jobs: { former } });
  await before.schedules.set("nightly", { job: "check-out", cron: "0 3 * * *", input: null });
  const now = aCheckout(() => "now", { aliases: ["check-out"] });
  await using engine = createEngine({ store, host, jobs: { now } });
  host.advance(86_400_000);

  await engine.runUntilIdle();

  const { runs } = await engine.jobs.now.getRuns();
  assert.deepEqual(runs.map(({ scheduleName, output }) => [scheduleName, output]), [["nightly", "now"]]);
});

forEachStore("pauseJob() pauses a job under all its names", async (context) => {
  const { store, host } = context;
  const former = aCheckout(() => {}, { name: "check-out" });
  await using before = createEngine({ store, host, jobs: { former } });
  const { id } = await before.trigger(former, null);
  const now = aCheckout(() => "now", { aliases: ["check-out"] });
  await using engine = createEngine({ store, host, jobs: { now } });

  const paused = await engine.pauseJob("check-out");
  const whilePaused = [await before.runUntilIdle(), await engine.runUntilIdle()];
  await engine.resumeJob("checkout");
  await engine.runUntilIdle();

  assert.equal(paused.jobName, "checkout");
  assert.partialDeepStrictEqual(whilePaused, [{ executed: 0 }, { executed: 0 }]);
  assert.equal(await outputOf(engine, id), "now");
});

forEachStore("resumeJob() ends a pause that was made under a former name, and publishes it", async (context) => {
  const { store, host } = context;
  const former = aCheckout(() => {}, { name: "check-out" });
  await using before = createEngine({ store, host, jobs: { former } });
  await before.trigger(former, null);
  await before.pauseJob("check-out");
  await using engine = createEngine({ store, host, jobs: { now: aCheckout(() => {}, { aliases: ["check-out"] }) } });
  const events = recordEvents(engine);

  await engine.resumeJob("checkout");

  assert.deepEqual(events.map(({ type }) => type), ["job:resume"]);
  assert.partialDeepStrictEqual(await engine.runUntilIdle(), { executed: 1 });
});

forEachStore("trigger() refuses a definition of a version that the engine does not have", async (context) => {
  const { store, host } = context;
  await using engine = createEngine({
    store,
    host,
    jobs: { job: aCheckout(() => {}, { version: 2, continues: [1] }) },
  });

  await assert.rejects(engine.trigger(old, null), {
    name: "NotFoundError",
    message: 'This engine has no definition of version 1 of job "checkout": name it in previous',
  });
});

forEachStore("a run of a former name is taken under an alias, and keeps its name", async (context) => {
  const { store, host } = context;
  const former = aCheckout(() => "former", { name: "check-out" });
  await using before = createEngine({ store, host, jobs: { former } });
  const { id } = await before.trigger(former, null, { idempotencyKey: "once" });
  const now = aCheckout(() => "now", { aliases: ["check-out"] });
  await using engine = createEngine({ store, host, jobs: { now } });

  const same = await engine.trigger("check-out", null, { idempotencyKey: "once" });
  const other = await engine.trigger("check-out", null);
  await engine.runUntilIdle();

  assert.deepEqual([same.id, same.disposition], [id, "idempotent"]);
  assert.equal(other.jobName, "checkout");
  assert.equal(await outputOf(engine, id), "now");
  const { runs, total } = await engine.jobs.now.getRuns();
  assert.deepEqual([runs.map(({ jobName }) => jobName), total], [["checkout", "check-out"], 2]);
  assert.equal((await engine.getRuns({ jobName: "checkout" })).total, 1);
  assert.equal((await engine.jobs.now.getRun(id))!.jobName, "check-out");
});

forEachStore("each version is executed by its own code; a trigger by name makes the newest", async (context) => {
  const { store, host } = context;
  const first = aCheckout(() => "first");
  const second = aCheckout(() => "second", { version: 2 });
  const newest = aCheckout(() => "newest", { version: 4, continues: [3], previous: [first, second] });
  await using engine = createEngine({ store, host, jobs: { newest } });
  await using third = createEngine({ store, host, jobs: { job: aCheckout(() => "third", { version: 3 }) } });
  const runs = [
    await engine.trigger(first, null),
    await engine.trigger(second, null),
    await third.trigger("checkout", null),
    await engine.trigger("checkout", null),
  ];

  await engine.runUntilIdle();

  const outputs = [];
  for (const { id, version } of runs) outputs.push([version, await outputOf(engine, id)]);
  assert.deepEqual(outputs, [[1, "first"], [2, "second"], [3, "newest"], [4, "newest"]]);
});

forEachStore("a version that a worker does not know waits, and blocks nobody", async (context) => {
  const { store, host } = context;
  await using newer = createEngine({ store, host, jobs: { job: aCheckout(() => {}, { version: 2 }) } });
  const { id } = await newer.trigger("checkout", null, { concurrencyKey: "k" });
  await using engine = createEngine({ store, host, jobs: { old: aCheckout(() => "old") } });
  const other = await engine.trigger("checkout", null, { concurrencyKey: "k" });

  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))!.status, "pending");
  assert.equal(await outputOf(engine, other.id), "old");
});

forEachStore("retrigger() makes a run of the newest version", async (context) => {
  const { store, host } = context;
  const first = aCheckout(() => "first");
  await using before = createEngine({ store, host, jobs: { first } });
  const { id } = await before.trigger(first, null);
  await before.runUntilIdle();
  await using engine = createEngine({ store, host, jobs: { job: aCheckout(() => "second", { version: 2 }) } });

  const retry = await engine.retrigger(id);
  await engine.runUntilIdle();

  assert.deepEqual([retry.version, await outputOf(engine, retry.id)], [2, "second"]);
});

forEachStore("retrigger() from the failure in an old process keeps the version of the run", async ({ store, host }) => {
  const job = (version: number) =>
    defineJob({ name: "checkout", version, input: anything, run: (step) => step.run("charge", fail) });
  const fail = () => Promise.reject(new Error("no"));
  await using newer = createEngine({ store, host, jobs: { checkout: job(2) } });
  await using older = createEngine({ store, host, jobs: { checkout: job(1) } });
  const { id } = await newer.trigger("checkout", null);
  await newer.runUntilIdle();

  const retries = [await older.retrigger(id, { from: "failure" })];
  await newer.runUntilIdle();
  retries.push(await older.retrigger(id, { from: "start" }));

  assert.deepEqual(retries.map(({ version }) => version), [2, 1]);
});

forEachStore("stranded() and worker:stranded tell which runs no live worker knows", async (context) => {
  const { store, host } = context;
  await using before = createEngine({ store, host, jobs: { job: aCheckout(() => {}, { name: "check-out" }) } });
  await before.trigger("check-out", null);
  host.advance(1_000);
  await before.trigger("check-out", null);
  const warnings: string[] = [];
  const logger = { info: () => {}, warn: (message: string) => void warnings.push(message), error: () => {} };
  const warned = createEngine({ store, host, jobs: { renamed }, logger });
  const engine = createEngine({ store, host, jobs: { renamed }, logger });
  const events = recordEvents(engine);

  await warned.start();
  await engine.start();
  await pass(host, 130_000, 1_000);
  const stranded = await engine.stranded();
  await warned.stop();
  await engine.stop();

  const oldestAt = "2040-01-01T00:00:00.000Z";
  const jobs = [{ jobName: "check-out", version: 1, runs: 2, oldestAt }];
  assert.deepEqual(stranded, jobs);
  assert.deepEqual(events.filter((event) => event.type === "worker:stranded").map(({ jobs }) => jobs), [
    jobs,
    jobs,
    jobs,
  ]);
  assert.deepEqual(warnings, [
    `2 runs of job "check-out" version 1 wait for a worker that knows it; the oldest since ${oldestAt}`,
  ]);
});
