import type { Schema } from "../../../src/model/schema.ts";
import assert from "node:assert/strict";
import { z } from "zod";
import type { Job } from "../../../src/model/job.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Store } from "../../../src/store/store.ts";
import { isoTime } from "../../../src/values/iso_time.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import {
  anything,
  claimOne,
  forEachStore,
  forever,
  LEASE_MS,
  pass,
  recordEvents,
} from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aGate, aJob, allOf } from "../../support/jobs.ts";
import { outputOf, signal, waitings, waitNamed } from "../../support/pauses.ts";
import { getRun, getWaits } from "../../../src/store/reads.ts";

/** Claims runs in a process whose clock never advances: as good as dead. */
function workElsewhere(store: Store, job: Job<unknown>): void {
  createEngine({ store, host: new FakeHost(), jobs: { job } }).runUntilIdle().catch(() => {});
}

forEachStore("parallel steps settle before the run parks", async ({ store, host }) => {
  const gate = aGate<string>();
  const job = aJob((step) => Promise.all([step.wait("review"), step.run("slow", gate.work)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await pass(host, 5_000, 500);

  const during = (await engine.getRun(id))!.status;
  const { suspendedAt } = await waitNamed(engine, id, "review");
  gate.open("done");
  await idle;

  assert.equal(during, "running");
  assert.equal(suspendedAt, null);
  assert.equal((await engine.getRun(id))!.status, "waiting");
  const types = events.map(({ type }) => type);
  assert.ok(types.indexOf("step:complete") < types.indexOf("run:waiting"));
  assert.deepEqual((await engine.getSteps(id)).map(({ name, status }) => [name, status]), [["slow", "completed"]]);
});

forEachStore("a signal is delivered while a parallel step is still executed", async ({ store, host }) => {
  const gate = aGate();
  const delivered = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    allOf([step.wait("review").then((result) => delivered.resolve(result)), step.run("slow", gate.work)])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await signal(engine, id, "review", "now");
  const result = await delivered.promise;
  const steps = await engine.getSteps(id);
  gate.open();
  await idle;

  assert.partialDeepStrictEqual(result, { outcome: "signal", payload: "now" });
  assert.deepEqual(steps, []);
  assert.equal((await engine.getRun(id))!.status, "completed");
  assert.deepEqual(waitings(events), []);
});

forEachStore("a signal that another process takes is delivered while a step is executed", async ({ store, host }) => {
  const gate = aGate();
  const delivered = Promise.withResolvers<unknown>();
  const job = aJob((step) =>
    allOf([step.wait("review").then((result) => delivered.resolve(result)), step.run("slow", gate.work)])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  await using other = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await signal(other, id, "review", "now");
  await pass(host, 2_000);
  const result = await delivered.promise;
  gate.open();
  await idle;

  assert.partialDeepStrictEqual(result, { outcome: "signal", payload: "now" });
});

forEachStore("a deadline and a sleep end on time while a parallel step is executed", async ({ store, host }) => {
  const gate = aGate();
  const times: Record<string, number> = {};
  const job = aJob((step) => {
    const note = (name: string) => () => void (times[name] = host.now() - FAKE_START);
    return allOf([
      step.wait("review", { timeout: 2_500 }).then(note("review")),
      step.sleep("nap", 300).then(note("nap")),
      step.run("slow", gate.work),
    ]);
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await pass(host, 4_000, 50);
  gate.open();
  await idle;

  await outputOf(engine, id);
  assert.deepEqual(times, { nap: 300, review: 2_500 });
});

forEachStore("a pause does not ask the store without end while a step is executed beside it", async (context) => {
  const { host } = context;
  let calls = 0;
  const store = new Proxy(context.store, {
    get(target, key) {
      const member = Reflect.get(target, key);
      if (typeof member !== "function") return member;
      if (key === "pause") calls += 1;
      return member.bind(target);
    },
  });
  const gate = aGate();
  const job = aJob((step) => Promise.all([step.wait("review"), step.run("slow", gate.work)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;

  await host.settle(100);
  const callsDuring = calls;
  gate.open();
  await idle;

  assert.ok(callsDuring <= 2, `${callsDuring} calls`);
  assert.ok(calls <= 4, `${calls} calls`);
});

forEachStore("no code of the job runs when it parks: no catch, no finally, no using", async ({ store, host }) => {
  const ran: string[] = [];
  const job = aJob(async (step) => {
    using _resource = { [Symbol.dispose]: () => void ran.push("dispose") };
    try {
      await step.wait("review");
      ran.push("after");
    } catch {
      ran.push("catch");
    } finally {
      ran.push("finally");
    }
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  await host.settle();
  const whileParked = [...ran];
  await signal(engine, id, "review");
  await engine.runUntilIdle();

  assert.deepEqual(whileParked, []);
  assert.deepEqual(ran, ["after", "finally", "dispose"]);
});

forEachStore("no code of a job that was parked runs when its run is cancelled or stopped", async ({ store, host }) => {
  const ran: string[] = [];
  const job = aJob(async (step) => {
    try {
      await step.wait("review");
    } catch {
      ran.push("catch");
    } finally {
      ran.push("finally");
    }
  });
  const engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  await engine.cancel(id);
  await engine.stop();
  await host.settle();

  assert.deepEqual(ran, []);
});

forEachStore("a pause survives a crash with its id and its deadline", async ({ store, host }) => {
  const executions: number[] = [];
  const reached = Promise.withResolvers<void>();
  const job = aJob(async (step) => {
    executions.push(step.execution);
    const prepared = step.prepareWait("review", { timeout: 120_000 });
    const [wait] = await Promise.all([prepared, step.sleep("short", 10)]);
    await step.run("crash", () => {
      if (step.execution > 1) return;
      reached.resolve();
      return forever();
    });
    return [wait.id, (await step.waitFor(wait)).outcome];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(10);
  workElsewhere(store, job);
  await reached.promise;
  const before = await waitNamed(engine, id, "review");

  await host.settle(); // until the other process does nothing more
  host.advance(LEASE_MS);
  await engine.runUntilIdle();
  const after = await waitNamed(engine, id, "review");
  host.advance(120_000 - LEASE_MS - 10);
  await engine.runUntilIdle();

  assert.deepEqual(executions, [1, 1, 2, 2]);
  assert.deepEqual([after.id, after.deadlineAt], [before.id, isoTime(FAKE_START + 120_000)]);
  assert.deepEqual(await outputOf(engine, id), [before.id, "timeout"]);
});

forEachStore("a crash after the resumption does not lose what ended the pause", async ({ store, host }) => {
  const job = aJob(async (step) => {
    const result = await step.wait("review", { timeout: 5 * LEASE_MS });
    return [result.outcome, step.execution];
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  await signal(engine, id, "review", "kept");
  await claimOne(store, "job");

  host.advance(10 * LEASE_MS);
  await engine.runUntilIdle();

  assert.deepEqual(await outputOf(engine, id), ["signal", 2]);
});

forEachStore("a lost lease keeps a pause from being made", async ({ store, host }) => {
  const gate = aGate();
  const job = aJob(async (step) => {
    if (step.execution > 1) return "taken over";
    await step.run("slow", gate.work);
    await step.prepareWait("too late");
    return "never";
  });
  await using stale = createEngine({ store, host: new FakeHost(), jobs: { job } });
  const { id } = await stale.trigger(job, null);
  const idle = stale.runUntilIdle();
  await gate.reached;
  await host.settle(); // until the other process does nothing more
  host.advance(LEASE_MS);
  const { lease } = await claimOne(store, "job");

  gate.open();
  await idle;
  await store.release(lease, []);
  await using engine = createEngine({ store, host, jobs: { job } });
  await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "taken over");
  assert.deepEqual(await engine.getWaits(id), []);
});

for (const kind of ["prepareWait", "wait", "sleep"] as const) {
  forEachStore(`${kind}() that finds the lease lost ends the execution, and tells nothing`, async (context) => {
    const { store, host } = context;
    const gate = Promise.withResolvers<void>();
    const reached = Promise.withResolvers<AbortSignal>();
    const job = aJob(async (step) => {
      reached.resolve(step.abortSignal);
      await gate.promise;
      if (kind === "prepareWait") await step.prepareWait("review");
      else if (kind === "wait") await step.wait("review");
      else await step.sleep("nap", 1_000);
    });
    await using stale = createEngine({ store, host: new FakeHost(), jobs: { job } });
    const events = recordEvents(stale);
    const { id } = await stale.trigger(job, null);
    const idle = stale.runUntilIdle();
    const abortSignal = await reached.promise;
    await host.settle(); // until the other process does nothing more
    host.advance(LEASE_MS);
    const { lease } = await claimOne(store, "job");

    gate.resolve();
    await idle;

    assert.equal(abortSignal.aborted, true);
    assert.equal(abortSignal.reason.name, "LeaseLostError");
    assert.deepEqual(events.map(({ type }) => type), ["run:trigger", "run:leased", "run:start"]);
    assert.partialDeepStrictEqual(await getRun(store, id), { status: "running", leaseGeneration: lease.generation });
    assert.deepEqual(await getWaits(store, id), []);
  });
}

forEachStore("a job that returns while a pause is outstanding completes, and its wait is closed", async (context) => {
  const { store, host } = context;
  const job = aJob((step) =>
    Promise.race([
      step.wait("review", { timeout: 60_000 }),
      step.sleep("nap", 1_000),
      step.run("fast", () => host.settle().then(() => "fast")),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);

  await engine.runUntilIdle();
  host.advance(60_000);
  const later = await engine.runUntilIdle();

  assert.equal(await outputOf(engine, id), "fast");
  assert.equal(later.executed, 0);
  const waits = await engine.getWaits(id);
  assert.deepEqual(waits.map(({ status, outcome, resolvedAt }) => [status, outcome, resolvedAt]), [
    ["closed", null, null],
  ]);
  assert.deepEqual(waitings(events), []);
});

forEachStore("a job that fails while a pause is outstanding fails, and its wait is closed", async (context) => {
  const { store, host } = context;
  const gate = aGate();
  const job = aJob((step) =>
    Promise.all([
      step.wait("review"),
      step.run("breaks", async () => {
        await gate.work();
        throw new Error("broken");
      }),
    ])
  );
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  gate.open();
  await idle;

  const run = (await engine.getRun(id))!;
  assert.deepEqual([run.status, run.error], ["failed", "broken"]);
  assert.equal((await waitNamed(engine, id, "review")).status, "closed");
  assert.deepEqual(waitings(events), []);
});

forEachStore("cancel() of a run that waits cancels its waits", async ({ store, host }) => {
  const job = aJob((step) => Promise.all([step.wait("review", { timeout: 60_000 }), step.sleep("nap", 1_000)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  const events = recordEvents(engine);
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();

  const cancelled = await engine.cancel(id);
  host.advance(120_000);
  const { executed } = await engine.runUntilIdle();

  assert.equal(cancelled.status, "cancelled");
  assert.equal(executed, 0);
  assert.equal((await engine.getRun(id))!.status, "cancelled");
  const { status, outcome, resolvedAt } = await waitNamed(engine, id, "review");
  assert.deepEqual([status, outcome, resolvedAt], ["cancelled", null, null]);
  assert.equal(events.at(-1)!.type, "run:cancel");
});

forEachStore("cancel() ends a pause beside a step that is executed", async ({ store, host }) => {
  const gate = aGate();
  const job = aJob((step) => Promise.all([step.wait("review"), step.run("slow", gate.work)]));
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  const idle = engine.runUntilIdle();
  await gate.reached;
  await host.settle();

  await engine.cancel(id);
  gate.open();
  await idle;

  assert.equal((await engine.getRun(id))!.status, "cancelled");
  assert.equal((await waitNamed(engine, id, "review")).status, "cancelled");
});

forEachStore("stop() leaves a run that waits as it is, and another engine goes on with it", async (context) => {
  const { store, host } = context;
  const job = aJob(async (step) => [(await step.wait("review", { timeout: 60_000 })).outcome, step.execution]);
  const first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  await first.start();
  await host.settle();
  await first.stop();
  const stopped = (await first.getRun(id))!;

  await using second = createEngine({ store, host, jobs: { job } });
  await signal(second, id, "review");
  await second.runUntilIdle();

  assert.equal(stopped.status, "waiting");
  assert.deepEqual(await outputOf(second, id), ["signal", 1]);
});

forEachStore("stop() while a step is executed beside a pause strands neither", async ({ store, host }) => {
  const gate = aGate<string>();
  const job = aJob((step) =>
    Promise.all([step.wait("review").then(({ outcome }) => outcome), step.run("s", gate.work)])
  );
  const first = createEngine({ store, host, jobs: { job } });
  const { id } = await first.trigger(job, null);
  await first.start();
  await gate.reached;
  await host.settle();
  const stopping = first.stop();
  await host.settle();
  gate.open("recorded");
  await stopping;
  const { status, leaseOwner } = (await first.getRun(id))!;

  await using second = createEngine({ store, host, jobs: { job } });
  await second.runUntilIdle();
  await signal(second, id, "review");
  await second.runUntilIdle();

  assert.ok(status === "waiting" || status === "pending", status);
  assert.equal(leaseOwner, null);
  assert.deepEqual(await outputOf(second, id), ["signal", "recorded"]);
});

forEachStore("a replay of steps and waits asks the store once, however many there are", async ({ store, host }) => {
  const calls: string[] = [];
  const counting = new Proxy(store, {
    get(target, name) {
      const member = target[name as keyof typeof target] as unknown;
      if (typeof member !== "function") return member;
      return (...parameters: unknown[]) => {
        calls.push(String(name));
        return member.apply(target, parameters);
      };
    },
  });
  const job = aJob(async (step) => {
    for (let i = 0; i < 200; i++) await step.run("step", () => i);
    for (let i = 0; i < 20; i++) await step.prepareWait("wait");
    await step.sleep("end", 60_000);
  });
  await using engine = createEngine({ store: counting, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);
  await engine.runUntilIdle();
  host.advance(60_000);
  calls.length = 0;

  await engine.runUntilIdle();

  assert.equal((await getRun(store, id))!.status, "completed");
  assert.deepEqual(calls.filter((name) => !["claim", "getSchedules", "addStats"].includes(name)), ["finish"]);
});

forEachStore("a run does not park while a schema checks its output", async ({ store, host }) => {
  const checked = Promise.withResolvers<void>();
  const output: Schema<unknown, unknown> = {
    "~standard": { version: 1, vendor: "test", validate: (value) => checked.promise.then(() => ({ value })) },
  };
  const job = defineJob({
    name: "job",
    input: z.null(),
    output,
    run: (step) => Promise.race([step.wait("never"), step.run("fast", () => "fast")]),
  });
  await using engine = createEngine({ store, host, jobs: { job } });
  const { id } = await engine.trigger(job, null);

  const idle = engine.runUntilIdle();
  await host.settle();
  checked.resolve();
  await idle;

  assert.equal((await engine.getRun(id))!.status, "completed");
});

forEachStore("log and progress are silent on a replay beside a wait that is still open", async ({ store, host }) => {
  const job = defineJob({
    name: "import",
    input: anything,
    async run(step) {
      await Promise.all([step.wait("review", { timeout: 60_000 }), work()]);

      async function work() {
        for (let part = 0; part < 3; part++) {
          await step.run("read", () => part);
          step.log.info(`read ${part}`);
          step.progress(part);
          await step.sleep("rest", 5_000);
        }
      }
    },
  });
  await using engine = createEngine({ store, jobs: { job }, host });
  const events = recordEvents(engine);
  await engine.start();
  await engine.jobs.job.trigger({});

  await pass(host, 30_000, 500);

  const told = events.flatMap((event): unknown[] =>
    event.type === "log:write" ? [event.message] : event.type === "run:progress" ? [event.progress.current] : []
  );
  assert.deepEqual(told, ["read 0", 0, "read 1", 1, "read 2", 2]);
});

forEachStore("a log line in a step is written though another branch still replays", async ({ store, host }) => {
  let executions = 0;
  const job = defineJob({
    name: "import",
    input: anything,
    async run(step) {
      executions += 1;
      await step.run("first", () => 1);
      if (executions > 1) {
        const fresh = step.run("fresh", () => step.log.info("inside"));
        await Promise.all([fresh, step.sleep("rest", 1_000)]);
      } else await step.sleep("rest", 1_000);
    },
  });
  await using engine = createEngine({ store, jobs: { job }, host });
  const events = recordEvents(engine);
  await engine.start();
  await engine.jobs.job.trigger({});

  await pass(host, 3_000, 100);

  assert.deepEqual(events.filter(({ type }) => type === "log:write").length, 1);
});

forEachStore("a run parks at once though a signal was recorded right after its last step", async ({ store, host }) => {
  const lastStep = Promise.withResolvers<void>();
  const signalling = new Proxy(store, {
    get: (_, name: keyof Store) => {
      const method = store[name] as (...parameters: unknown[]) => Promise<unknown>;
      if (name !== "saveStep") return method?.bind(store);
      return async (...parameters: unknown[]) => {
        const recordedNo = await method.apply(store, parameters);
        const [wait] = await getWaits(store, id);
        await store.signal(wait!.id, { signalId: "1", payload: null });
        return recordedNo;
      };
    },
  });
  const job = aJob(async (step) =>
    void await Promise.all([
      step.sleep("long", 3_600_000),
      step.wait("review"),
      step.run("last", () => lastStep.promise),
    ]), "import");
  await using engine = createEngine({ store: signalling, jobs: { job }, host });
  await engine.start();
  const { id } = await engine.jobs.job.trigger({});
  await pass(host, 100);

  lastStep.resolve();
  await host.settle(100); // no time passes

  assert.equal((await getRun(store, id))!.status, "waiting");
});
