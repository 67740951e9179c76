import assert from "node:assert/strict";
import { engineOfStoredRuns } from "../../../src/cli/service/database_service.ts";
import { createEngine } from "../../../src/engine/create_engine.ts";
import { ConflictError, StoreError, ValidationError } from "../../../src/model/error.ts";
import type { EndContext } from "../../../src/model/end.ts";
import { defineJob, type EndDefinition } from "../../../src/model/job/define_job.ts";
import { replay } from "../../../src/replay/mod.ts";
import type { Store } from "../../../src/store/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { anything, forEachStore, type StoreTest } from "../../support/stores/for_each_store.ts";

/** A payment service and a warehouse, as a ledger: what was done with which key. */
function aWorld() {
  const ledger: string[] = [];
  const ends: Omit<EndContext, "result" | "undo">[] = [];
  let failsAt = "";
  const act = (what: string, key: string) => {
    ledger.push(`${what} ${key.slice(key.indexOf("/") + 1)}`);
    if (failsAt === what) throw new Error(`${what} is down`);
    return `${what} done`;
  };
  const order = defineJob({
    name: "order",
    input: anything,
    onEnd: {
      statuses: ["failed", "cancelled"],
      async run(step, end) {
        const { result: _, undo: __, ...others } = end;
        ends.push(others);
        await end.undo("charge", (result, { stepKey }) => act(`refund ${result}`, stepKey));
        await end.undo("reserve", (result, { stepKey }) => act(`release ${result}`, stepKey), { always: true });
        if (end.status === "failed") await step.run("tell", () => act("tell", `/${end.error}`));
        return end.completed;
      },
    },
    async run(step) {
      await step.run("reserve", ({ idempotencyKey }) => act("reserve", idempotencyKey));
      await step.run("charge", ({ idempotencyKey }) => act("charge", idempotencyKey));
      await step.wait("paid", { timeout: "1h" });
      return await step.run("ship", ({ idempotencyKey }) => act("ship", idempotencyKey));
    },
  });
  return { order, ledger, ends, failAt: (what: string) => void (failsAt = what) };
}

const engineOf = ({ store, host }: StoreTest, jobs: object) =>
  createEngine({ store, host, jobs: jobs as { order: ReturnType<typeof aWorld>["order"] }, logger: null });

forEachStore(
  "a run that fails is cleaned up after by another run, in reverse, with the keys of its steps",
  async (context) => {
    const { order, ledger, ends, failAt } = aWorld();
    await using engine = engineOf(context, { order });
    failAt("charge");
    const { id } = await engine.jobs.order.trigger({ id: 42 });
    await engine.runUntilIdle();

    const run = (await engine.getRun(id))!;
    const end = (await engine.getRun(run.endRunId!))!;
    assert.deepEqual([run.status, end.status, end.jobName, end.endOf], ["failed", "completed", "order:end", id]);
    assert.deepEqual(end.output, ["reserve"]);
    assert.deepEqual(ledger, ["reserve reserve", "charge charge", "release reserve done reserve", "tell " + run.error]);
    assert.deepEqual(ends, [{
      runId: id,
      status: "failed",
      input: { id: 42 },
      output: undefined,
      error: run.error,
      failureKind: "error",
      completed: ["reserve"],
    }]);
  },
);

forEachStore(
  "a run that is cancelled is cleaned up after; one that completes is not, unless it asks for that",
  async (context) => {
    const { order, ledger } = aWorld();
    await using engine = engineOf(context, { order });
    const first = await engine.jobs.order.trigger(1);
    const second = await engine.jobs.order.trigger(2);
    await engine.runUntilIdle();
    await engine.cancel(first.id);
    const [wait] = await engine.getWaits(second.id);
    await engine.signal(wait!.id, { signalId: "s", payload: 1 });
    await engine.runUntilIdle();

    assert.deepEqual(ledger.slice(4).sort(), [
      "refund charge done charge",
      "release reserve done reserve",
      "ship ship",
    ]);
    assert.equal((await engine.getRun(second.id))!.endRunId, null);
  },
);

forEachStore("what was not begun is undone with always alone", async (context) => {
  const { order, ledger } = aWorld();
  await using engine = engineOf(context, { order });
  const { id } = await engine.jobs.order.trigger(1, { delay: "1h" });
  await engine.cancel(id);
  await engine.runUntilIdle();

  assert.deepEqual(ledger, ["release undefined reserve"]);
});

forEachStore("a retry that the command line has added to a database is cleaned up after", async (context) => {
  const { order, ledger, failAt } = aWorld();
  await using engine = engineOf(context, { order });
  failAt("charge");
  const { id } = await engine.jobs.order.trigger(1);
  await engine.runUntilIdle();
  const before = ledger.length;

  const retry = await engineOfStoredRuns(context.store, context.host).retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  assert.deepEqual(ledger.slice(before + 2, -1), ["release reserve done reserve"]);
  const run = (await engine.getRun(retry.id))!;
  assert.equal((await engine.getRun(run.endRunId!))?.status, "completed");
});

forEachStore("undo() and result() know a step that was renamed by its new name", async (context) => {
  const ledger: string[] = [];
  const payment = (name: string, renamed = {}) =>
    defineJob({
      name: "order",
      input: anything,
      changes: { renamed },
      onEnd: {
        async run(step, end) {
          await end.undo(name, (result, { stepKey }) => void ledger.push(`refund ${result} ${stepKey.slice(37)}`));
          return await step.run("tell", () => end.result(name));
        },
      },
      run: (step) => step.run(name, ({ idempotencyKey }) => idempotencyKey.slice(37)).then(() => step.wait("paid")),
    });
  const before = engineOf(context, { order: payment("charge") });
  const { id } = await before.jobs.order.trigger(1);
  await before.runUntilIdle();
  await before.stop();
  await using engine = engineOf(context, { order: payment("charge card", { charge: "charge card" }) });
  await engine.cancel(id);
  await engine.runUntilIdle();

  assert.deepEqual(ledger, ["refund charge charge"]);
  assert.equal((await engine.getRun((await engine.getRun(id))!.endRunId!))!.output, "charge");
  const retry = await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();
  await engine.cancel(retry.id);
  await engine.runUntilIdle();
  assert.deepEqual(ledger.slice(1), ["refund charge charge"], "it was executed again under its former name");
});

forEachStore("a step with the name of a member of every object has a key like any other", async (context) => {
  const keys: string[] = [];
  const order = defineJob({
    name: "order",
    input: anything,
    onEnd: { run: (_, end) => end.undo("constructor", (_, { stepKey }) => void keys.push(stepKey)) },
    run: (step) => step.run("constructor", ({ idempotencyKey }) => void keys.push(idempotencyKey)),
  });
  await using engine = engineOf(context, { order });
  const { id } = await engine.jobs.order.trigger(1);

  await engine.runUntilIdle();

  assert.deepEqual(keys, [`${id}/constructor`, `${id}/constructor`]);
});

forEachStore(
  "a retry from the failure does again what was undone, with other keys, and the rest not",
  async (context) => {
    const { order, ledger, failAt } = aWorld();
    await using engine = engineOf(context, { order });
    failAt("charge");
    const { id } = await engine.jobs.order.trigger(1);
    await engine.runUntilIdle();
    failAt("");
    const keys: string[] = [];
    const keep = defineJob({
      name: "order",
      input: anything,
      async run(step) {
        await step.run("reserve", ({ idempotencyKey }) => void keys.push(idempotencyKey));
        await step.run("charge", ({ idempotencyKey }) => void keys.push(idempotencyKey));
      },
    });
    await using other = engineOf(context, { order: keep });
    const retry = await other.retrigger(id, { from: "failure" });
    await other.runUntilIdle();

    const { endRunId } = (await other.getRun(id))!;
    assert.equal((await other.getRun(retry.id))!.status, "completed");
    assert.deepEqual(keys, [`${endRunId}/reserve`, `${id}/charge`]);
    assert.equal(ledger.filter((line) => line.startsWith("reserve")).length, 1);
  },
);

/** Kills a step, undoes it, and retries the run from its failure: what the step, the undoing and the retry were given. */
async function keysOfKilledStep(context: StoreTest, name: string) {
  const keys: string[] = [];
  const begun = Promise.withResolvers<void>();
  const order = defineJob({
    name: "order",
    input: anything,
    onEnd: { run: (_, end) => end.undo(name, (_, { stepKey }) => void keys.push(stepKey), { always: true }) },
    run: (step) =>
      step.run(name, ({ idempotencyKey }) => {
        keys.push(idempotencyKey);
        begun.resolve();
        return keys.length > 1 ? null : new Promise(() => {}); // it never ends: the process dies
      }),
  });
  let isDead = false;
  let claimed: Promise<unknown> = Promise.resolve();
  const { store } = context;
  const claim: Store["claim"] = (request) => {
    if (isDead) return new Promise(() => {});
    const answer = store.claim(request);
    claimed = answer;
    return answer;
  };
  const dead = engineOf({ ...context, store: withCalls(store, { claim }) }, { order });
  const { id } = await dead.jobs.order.trigger(1);
  dead.runUntilIdle().catch(() => {});
  await begun.promise;
  isDead = true; // otherwise it might clean up, while the other engine is idle
  await claimed;
  await using engine = engineOf(context, { order });
  await engine.cancel(id);
  context.host.advance(60_000);
  await engine.runUntilIdle();

  await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();

  const { endRunId } = (await engine.getRun(id))!;
  return { keys: keys.slice(0, 3), id, endRunId };
}

forEachStore("a step that was killed and undone has another key in a retry", async (context) => {
  const { keys, id, endRunId } = await keysOfKilledStep(context, "charge");

  assert.deepEqual(keys, [`${id}/charge`, `${id}/charge`, `${endRunId}/charge`]);
});

for (const name of ["x".repeat(250), "x".repeat(251), "é".repeat(255), `${"𝒳".repeat(127)}y`]) {
  forEachStore(`so has one with a name of ${name.length} characters, ${name.slice(-1)}`, async (context) => {
    const { keys, id, endRunId } = await keysOfKilledStep(context, name);

    assert.deepEqual(keys, [`${id}/${name}`, `${id}/${name}`, `${endRunId}/${name}`]);
  });
}

forEachStore(
  "a run is neither retried nor deleted while it is cleaned up; cancelling the clean-up gives it up",
  async (context) => {
    const { order } = aWorld();
    await using engine = engineOf(context, { order });
    await engine.pauseJob("order:end");
    const { id } = await engine.jobs.order.trigger(1);
    await engine.cancel(id);
    await engine.runUntilIdle();
    const { endRunId } = (await engine.getRun(id))!;
    const message = `Run "${id}" is being cleaned up: run "${endRunId}" (pending)`;

    await assert.rejects(engine.retrigger(id), { name: ConflictError.name, message });
    await assert.rejects(engine.deleteRun(id), { name: ConflictError.name, message });
    const { done, skipped } = await engine.deleteRuns({ runIds: [id] });
    assert.deepEqual([done, skipped], [0, [{ runId: id, code: "conflict" }]]);
    await engine.cancel(endRunId!);
    const retry = await engine.retrigger(id);
    await assert.rejects(engine.retrigger(endRunId!), /after which it cleaned up, was retried or deleted/);
    assert.equal((await engine.getRun(retry.id))!.status, "pending");
  },
);

forEachStore("a clean-up that fails is a failed run, and is retried", async (context) => {
  const { order, ledger, failAt } = aWorld();
  await using engine = engineOf(context, { order });
  const { id } = await engine.jobs.order.trigger(1);
  await engine.runUntilIdle();
  failAt("release reserve done");
  await engine.cancel(id);
  await engine.runUntilIdle();
  const { endRunId } = (await engine.getRun(id))!;
  const failed = (await engine.getRun(endRunId!))!;
  failAt("");
  const retry = await engine.retrigger(endRunId!, { from: "failure" });
  await engine.runUntilIdle();

  assert.deepEqual([failed.status, failed.failedStepName], ["failed", "undo reserve"]);
  const again = (await engine.getRun(retry.id))!;
  assert.deepEqual([again.status, again.endOf], ["completed", id]);
  assert.deepEqual(ledger.slice(2), [
    "refund charge done charge",
    "release reserve done reserve",
    "release reserve done reserve",
  ]);
});

forEachStore(
  "a clean-up begins when no function of the run executes any more, also after a cancel",
  async ({ store, host }) => {
    const events: string[] = [];
    const reached = Promise.withResolvers<void>();
    const leave = Promise.withResolvers<void>();
    const order = defineJob({
      name: "order",
      input: anything,
      onEnd: { run: (_step, end) => end.undo("reserve", () => void events.push("released"), { always: true }) },
      run: (step) =>
        step.run("reserve", async () => {
          reached.resolve();
          await leave.promise; // it ignores its abortSignal
          events.push("reserved");
        }),
    });
    await using engine = createEngine({ store, host, jobs: { order } });
    const { id } = await engine.jobs.order.trigger(null);
    await engine.start();
    await reached.promise;
    await engine.cancel(id);
    const { endRunId } = (await engine.getRun(id))!;
    const hasSlept = async () => (await engine.getSteps(endRunId!)).length > 0;
    while (!await hasSlept()) {
      host.advance(100);
      await host.settle();
    }
    events.push("looked");
    leave.resolve();
    while ((await engine.getRun(endRunId!))!.status !== "completed") {
      host.advance(100);
      await host.settle();
    }

    assert.deepEqual(events, ["looked", "reserved", "released"]);
  },
);

forEachStore(
  "a clean-up that cannot read whether its run is still executed asks the store again",
  async ({ store, host }) => {
    const { order } = aWorld();
    let faults = 0;
    const faulty = new Proxy(store, {
      get: (target, name) => {
        const method = target[name as keyof typeof store] as (...parameters: unknown[]) => unknown;
        if (name !== "getLeases") return method?.bind(target);
        return () => faults++ < 2 ? Promise.reject(new StoreError("The store is busy")) : target.getLeases();
      },
    });
    await using engine = engineOf({ store: faulty, host }, { order });
    const { id } = await engine.jobs.order.trigger(1, { delay: "1h" });
    await engine.cancel(id);
    const { endRunId } = (await engine.getRun(id))!;
    await engine.start();
    while ((await engine.getRun(endRunId!))!.completedAt === null) {
      host.advance(100);
      await host.settle();
    }

    assert.deepEqual([(await engine.getRun(endRunId!))!.status, faults], ["completed", 3]);
  },
);

forEachStore(
  "a late run whose function goes on keeps its key, and is cleaned up after that",
  async ({ store, host }) => {
    const events: string[] = [];
    const reached = Promise.withResolvers<void>();
    const leave = Promise.withResolvers<void>();
    const order = defineJob({
      name: "order",
      input: anything,
      finishWithin: "1s",
      onEnd: {
        run: (_step, end) =>
          end.undo("reserve", () => void events.push(`released ${end.failureKind}`), { always: true }),
      },
      run: (step) =>
        step.run("reserve", async () => {
          reached.resolve();
          await leave.promise;
          events.push("reserved");
        }),
    });
    const rival = defineJob({ name: "rival", input: anything, run: () => void events.push("rival") });
    await using engine = createEngine({ store, host, jobs: { order, rival } });
    const { id } = await engine.jobs.order.trigger(null, { concurrencyKey: "line" });
    await engine.start();
    await reached.promise;
    const other = await engine.jobs.rival.trigger(null, { concurrencyKey: "line" });
    for (let i = 0; i < 30; i++) {
      host.advance(100);
      await host.settle();
    }
    const late = (await engine.getRun(id))!;
    assert.deepEqual([late.status, late.failureKind, events], ["failed", "timeout", []]);
    leave.resolve();
    while ((await engine.getRun(other.id))!.status !== "completed") {
      host.advance(100);
      await host.settle();
    }

    assert.deepEqual(events, ["reserved", "released timeout", "rival"]);
  },
);

forEachStore(
  "an engine publishes the trigger of an end run, and lists find end runs or leave them out",
  async (context) => {
    const { order } = aWorld();
    await using engine = engineOf(context, { order });
    const triggered: string[] = [];
    engine.on("run:trigger", ({ jobName }) => void triggered.push(jobName));
    const { id } = await engine.jobs.order.trigger(1);
    await engine.cancel(id);
    await engine.runUntilIdle();

    assert.deepEqual(triggered, ["order", "order:end"]);
    const ids = async (filter: object) => (await engine.getRuns(filter)).runs.map((run) => run.id);
    const { endRunId } = (await engine.getRun(id))!;
    assert.deepEqual([await ids({ endOf: id }), await ids({ endRun: true }), await ids({ endRun: false })], [
      [endRunId],
      [endRunId],
      [id],
    ]);
  },
);

forEachStore("a run whose job had no onEnd at its trigger has no end run", async (context) => {
  const plain = defineJob({ name: "order", input: anything, run: (step) => step.wait("paid") });
  await using before = engineOf(context, { order: plain });
  const { id } = await before.trigger("order", 1);
  await before.runUntilIdle();
  const { order } = aWorld();
  await using engine = engineOf(context, { order });
  await engine.cancel(id);

  assert.equal((await engine.getRun(id))!.endRunId, null);
});

forEachStore("the job of end runs is not triggered, and is known by the aliases of its job", async (context) => {
  const { order } = aWorld();
  await using engine = engineOf(context, { order });
  await assert.rejects(engine.trigger("order:end", 1), ValidationError);
  await engine.pauseJob("order:end");
  const { id } = await engine.jobs.order.trigger(1);
  await engine.cancel(id);
  await engine.resumeJob("order:end");
  const renamed = defineJob({
    name: "purchase",
    aliases: ["order"],
    input: anything,
    onEnd: { run: (_step, end) => end.status },
    run: () => 1,
  });
  await using later = createEngine({ store: context.store, host: context.host, jobs: { renamed } });
  await later.runUntilIdle();

  const end = (await later.getRun((await later.getRun(id))!.endRunId!))!;
  assert.deepEqual([end.status, end.output], ["completed", "cancelled"]);
});

for (
  const [what, onEnd, message] of [
    [
      "a status that is none",
      { statuses: ["waiting"], run: () => 1 },
      /onEnd.statuses of job "order" must be a list of/,
    ],
    ["no function", {}, /onEnd of job "order" needs a function run/],
    ["an unknown option", { retry: 1, run: () => 1 }, /onEnd of job "order" has no option "retry"/],
  ] as const
) {
  Deno.test(`defineJob() refuses an onEnd with ${what}`, () => {
    const define = () =>
      defineJob({ name: "order", input: anything, onEnd: onEnd as unknown as EndDefinition, run: () => 1 });
    assert.throws(define, message);
  });
}

Deno.test("createEngine() refuses a job with the name of what cleans up after another", () => {
  const { order } = aWorld();
  const own = defineJob({ name: "order:end", input: anything, run: () => 1 });
  assert.throws(() => createEngine({ store: new MemoryStore(), jobs: { order, own } }), /There is a job "order:end"/);
});

forEachStore("an exported clean-up is replayed without its run", async (context) => {
  const { order, ledger } = aWorld();
  await using engine = engineOf(context, { order });
  const { id } = await engine.jobs.order.trigger(1);
  await engine.runUntilIdle();
  await engine.cancel(id);
  await engine.runUntilIdle();
  const done = ledger.length;
  const history = (await engine.exportHistory((await engine.getRun(id))!.endRunId!))!;

  const report = await replay(history, order);

  assert.deepEqual([report.outcome, ledger.length], ["ends the same", done]);
});

forEachStore("statuses may be empty: then no run cleans up", async (context) => {
  const order = defineJob({ name: "order", input: anything, onEnd: { statuses: [], run: () => {} }, run: () => 1 });
  await using engine = createEngine({ ...context, jobs: { order }, logger: null });
  const { id } = await engine.jobs.order.trigger(null);
  await engine.runUntilIdle();

  const { status, endRunId } = (await engine.getRun(id))!;
  assert.deepEqual([status, endRunId, (await engine.getRuns({})).total], ["completed", null, 1]);
});
