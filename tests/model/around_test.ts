import assert from "node:assert/strict";
import type { Around, ExecutionInfo, StepInfo, TriggerInfo } from "../../src/model/around.ts";
import { NonRetryableError } from "../../src/model/error.ts";
import type { Plugin } from "../../src/engine/plugin.ts";
import { forEachStore } from "../support/stores/for_each_store.ts";
import { aJob, echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

/** A plugin that does something around the work of the engine. */
function aPlugin(around: Around, name = "test"): Plugin {
  return { name, install: (context) => context.around(around) };
}

const TRACE = { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", tracestate: "vendor=a" };

/** Does the same around anything. */
type AroundAll = <T>(info: unknown, next: () => Promise<T>) => Promise<T>;

const broken: Record<string, AroundAll> = {
  "throws at once": () => {
    throw new Error("plugin");
  },
  "rejects before it calls next": () => Promise.reject(new Error("plugin")),
  "rejects after it has called next": async (_info, next) => {
    await next();
    throw new Error("plugin");
  },
};

for (const [title, around] of Object.entries(broken)) {
  forEachStore(`a plugin that ${title} changes nothing, and its error is published`, async ({ store, host }) => {
    let calls = 0;
    const errors: unknown[] = [];
    const job = aJob(async (step) => {
      await step.run("read", () => calls++);
      return (await step.wait("review")).outcome;
    });
    const engine = createEngine({ store, host, jobs: { job } });
    engine.use(aPlugin({ trigger: around, execution: around, step: around, signal: around }));
    engine.on("worker:error", ({ error }) => errors.push(error));

    const { id, disposition } = await engine.trigger(job, {});
    await engine.runUntilIdle();
    const [wait] = await engine.getWaits(id);
    const receipt = await engine.signal(wait!.id, { signalId: "s", payload: null });
    await engine.runUntilIdle();

    assert.equal(disposition, "created");
    assert.equal(receipt.disposition, "accepted");
    assert.equal((await engine.getRun(id))?.output, "signal");
    assert.equal(calls, 1);
    // Trigger, two executions, step and signal.
    assert.deepEqual(errors.map((error) => (error as Error).message), Array(5).fill("plugin"));
    await engine.stop();
  });
}

forEachStore("a plugin that never calls next, and never settles, changes nothing", async ({ store, host }) => {
  const never = () => new Promise<never>(() => {});
  const engine = createEngine({ store, host, jobs: { echo } });
  engine.use(aPlugin({ trigger: never, execution: never, step: never, signal: never }));

  const { id } = await engine.trigger(echo, 1);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))?.output, 1);
  await engine.stop();
});

forEachStore("a plugin that calls next twice gets one outcome, and nothing happens twice", async ({ store, host }) => {
  let calls = 0;
  const outcomes: unknown[] = [];
  const twice = async <T>(_info: unknown, next: () => Promise<T>): Promise<T> => {
    const [first, second] = [next(), next()];
    outcomes.push(first === second, (await first as { kind: string }).kind);
    return await second;
  };
  const job = aJob((step) => step.run("count", () => ++calls));
  const engine = createEngine({ store, host, jobs: { job } });
  engine.use(aPlugin({ trigger: twice, execution: twice, step: twice }));

  await engine.trigger(job, {});
  await engine.runUntilIdle();

  assert.equal(calls, 1);
  assert.equal((await engine.getRuns()).total, 1);
  assert.deepEqual(outcomes, [true, "triggered", true, "completed", true, "completed"]);
  await engine.stop();
});

forEachStore(
  "plugins are called from the first to the last, with what happened and how it ended",
  async ({ store, host }) => {
    const seen: string[] = [];
    const noting = (name: string): Around => ({
      step: async ({ stepName, attempt, execution }: StepInfo, next) => {
        seen.push(`${name} begins ${stepName} ${attempt} of execution ${execution.execution}`);
        const outcome = await next();
        seen.push(`${name}: ${outcome.kind}`);
        return outcome;
      },
    });
    const job = aJob(async (step) => {
      await step.run("once", ({ attempt }) => {
        if (attempt === 1) throw new Error("again");
      }, { retry: { maxAttempts: 2, delay: 0 } });
      await step.run("never", () => {
        throw new NonRetryableError("no");
      });
    });
    const engine = createEngine({ store, host, jobs: { job } });
    engine.use(aPlugin(noting("outer"), "outer")).use(aPlugin(noting("inner"), "inner"));

    await engine.trigger(job, {});
    await engine.runUntilIdle();

    assert.deepEqual(
      seen.map((line) => line.replace("of execution 1", "")).filter((line) => line.startsWith("outer")),
      [
        "outer begins once 1 ",
        "outer: retried",
        "outer begins once 2 ",
        "outer: completed",
        "outer begins never 1 ",
        "outer: failed",
      ],
    );
    assert.deepEqual(seen.slice(0, 2), ["outer begins once 1 of execution 1", "inner begins once 1 of execution 1"]);
    await engine.stop();
  },
);

forEachStore(
  "an execution learns the trace of its trigger, its child that of its own, and what it resumed from",
  async ({ store, host }) => {
    const triggers: TriggerInfo[] = [];
    const executions: ExecutionInfo[] = [];
    const child = aJob(() => "done", "child");
    const parent = aJob(async (step) => {
      await step.wait("review");
      host.advance(10);
      await step.invoke("child", child, {});
    }, "parent");
    const engine = createEngine({ store, host, jobs: { parent, child } });
    engine.use(aPlugin({
      trigger: (info, next) => {
        triggers.push(info);
        info.trace = { ...TRACE, tracestate: `n=${triggers.length}` };
        return next();
      },
      signal: (info, next) => {
        info.trace = { ...TRACE, tracestate: "signal" };
        return next();
      },
      execution: (info, next) => {
        executions.push(info);
        return next();
      },
    }));

    const { id } = await engine.trigger(parent, {});
    await engine.runUntilIdle();
    const [wait] = await engine.getWaits(id);
    host.advance(5_000);
    await engine.signal(wait!.id, { signalId: "s", payload: null });
    host.advance(10);
    await engine.runUntilIdle();

    assert.deepEqual(triggers.map(({ jobName, parentRunId }) => [jobName, parentRunId]), [["parent", null], [
      "child",
      id,
    ]]);
    assert.deepEqual(
      executions.map(({ jobName, trace, resumedFrom }) => [jobName, trace?.tracestate, resumedFrom.length]),
      [
        ["parent", "n=1", 0],
        ["parent", "n=1", 1],
        ["child", "n=2", 0],
        ["parent", "n=1", 1],
      ],
    );
    const { suspendedAt, resolvedAt, ...pause } = executions[1]!.resumedFrom[0]!;
    assert.deepEqual(pause, {
      kind: "wait",
      name: "review",
      id: wait!.id,
      outcome: "signal",
      trace: { ...TRACE, tracestate: "signal" },
    });
    assert.ok(resolvedAt - suspendedAt >= 5_000);
    assert.equal(executions[3]!.resumedFrom[0]!.kind, "children");
    await engine.stop();
  },
);

forEachStore("a trace that is not valid is not stored, and a long tracestate is left out", async ({ store, host }) => {
  const traces = [
    { traceparent: "nonsense", tracestate: null },
    { traceparent: TRACE.traceparent, tracestate: "a".repeat(513) },
    { traceparent: TRACE.traceparent, tracestate: "a=\u{0}" },
  ];
  const seen: ExecutionInfo["trace"][] = [];
  const engine = createEngine({ store, host, jobs: { echo } });
  engine.use(aPlugin({
    trigger: (info, next) => {
      info.trace = traces.shift()!;
      return next();
    },
    execution: ({ trace }, next) => {
      seen.push(trace);
      return next();
    },
  }));

  for (let n = 0; n < 3; n++) await engine.trigger(echo, n);
  await engine.runUntilIdle();

  const bare = { traceparent: TRACE.traceparent, tracestate: null };
  assert.deepEqual(seen, [null, bare, bare]);
  await engine.stop();
});

Deno.test("around() refuses unknown names and what is no function", () => {
  const use = (around: object) => () => createEngine({ store: {} as never, jobs: {} }).use(aPlugin(around));

  assert.throws(use({ steps: () => {} }), TypeError);
  assert.throws(use({ step: "no" }), TypeError);
});
