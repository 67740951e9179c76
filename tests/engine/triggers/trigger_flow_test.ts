import assert from "node:assert/strict";
import { ValidationError } from "../../../src/model/error.ts";
import type { EngineOptions } from "../../../src/engine/engine_options.ts";
import type { Jobs } from "../../../src/engine/job_handle.ts";
import type { TriggerOptions } from "../../../src/engine/triggers/new_run.ts";
import { retryFlow, triggerFlow } from "../../../src/engine/triggers/trigger_flow.ts";
import { type FlowDefinition, PLAIN_FLOW, readJobFlow } from "../../../src/model/flow.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Run, StoredRun } from "../../../src/model/run.ts";
import type { NewRun } from "../../../src/store/new_run.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { FAKE_START, FakeHost } from "../../support/fake_host.ts";
import { anything } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { withCalls } from "../../support/stores/with_calls.ts";

/** An engine with the job `resize`, and what it asks of its store. */
function anEngine(flow: FlowDefinition = {}, options: Partial<Omit<EngineOptions<Jobs>, "schedules">> = {}) {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  const asked: NewRun[] = [];
  const store = withCalls(memory, {
    enqueue: (runs) => {
      asked.push(...runs);
      return memory.enqueue(runs);
    },
  });
  const resize = defineJob({ name: "resize", input: anything, run: () => null, ...flow });
  return { engine: createEngine({ ...options, store, host, jobs: { resize } }), asked, resize };
}

const PER_KEY = { concurrency: 3, rate: { limit: 10, period: 1_000 } };

Deno.test("trigger() without options asks for the plain flow", async () => {
  const { engine, asked, resize } = anEngine();

  await engine.trigger(resize, null);

  assert.deepEqual(asked.map(({ flow }) => flow), [PLAIN_FLOW]);
});

Deno.test("trigger() without options has the defaults of its job, and options replace them", async () => {
  const { engine, asked, resize } = anEngine({ priority: 5, startWithin: 1_000, finishWithin: 2_000 });

  await engine.trigger(resize, null);
  await engine.trigger(resize, null, { priority: -1, startWithin: 3, finishWithin: 4 });

  const flows = asked.map(({ flow: { priority, startWithin, finishWithin } }) => [priority, startWithin, finishWithin]);
  assert.deepEqual(flows, [[5, 1_000, 2_000], [-1, 3, 4]]);
});

Deno.test("startAt is a Date or ISO 8601, delay is a duration, and an instant in the past is passed on", async () => {
  const { engine, asked } = anEngine();
  const trigger = (options: TriggerOptions) => engine.trigger("resize", null, options);

  await trigger({ startAt: new Date(FAKE_START + 5_000) });
  await trigger({ startAt: "2026-11-01T09:00:00+01:00" });
  await trigger({ startAt: "1970-01-01" });
  await trigger({ delay: 0 });
  await trigger({ delay: 60 * 86_400_000 });

  assert.deepEqual(asked.map(({ flow }) => flow.start), [
    { at: FAKE_START + 5_000 },
    { at: Date.UTC(2026, 10, 1, 8) },
    { at: 0 },
    { afterMs: 0 },
    { afterMs: 5_184_000_000 },
  ]);
});

Deno.test("triggerAndWait() and batches take the same options", async () => {
  const { engine, asked } = anEngine();

  const waiting = engine.jobs.resize!.triggerAndWait(null, { priority: 1, timeout: 1_000 });
  await engine.jobs.resize!.batchTrigger([{ input: null, priority: 2 }, { input: null, delay: 5, finishWithin: 6 }]);
  await engine.runUntilIdle();
  await waiting;

  const flows = asked.map(({ flow: { priority, start, finishWithin } }) => ({ priority, start, finishWithin }));
  assert.deepEqual(flows.toSorted((a, b) => b.priority - a.priority), [
    { priority: 2, start: null, finishWithin: null },
    { priority: 1, start: null, finishWithin: null },
    { priority: 0, start: { afterMs: 5 }, finishWithin: 6 },
  ]);
});

Deno.test("limits.perKey goes with each run that has a concurrency key, and with no other", async () => {
  const { engine, asked } = anEngine({ limits: { perKey: PER_KEY } });

  await engine.trigger("resize", null);
  await engine.trigger("resize", null, { concurrencyKey: "user-1" });

  const limits = asked.map(({ flow: { keyConcurrency, keyRate } }) => ({ keyConcurrency, keyRate }));
  assert.deepEqual(limits, [
    { keyConcurrency: 1, keyRate: null },
    { keyConcurrency: 3, keyRate: { limit: 10, period: 1_000 } },
  ]);
});

Deno.test("fairnessKey is the option, else the value of the label fairnessLabel, else none", async () => {
  const { engine, asked } = anEngine({}, { fairnessLabel: "org" });

  await engine.trigger("resize", null, { labels: { org: "acme" }, fairnessKey: "own" });
  await engine.trigger("resize", null, { labels: { org: "acme" } });
  await engine.trigger("resize", null, { labels: { org: "" } });
  await engine.trigger("resize", null, { labels: { team: "acme" } });

  assert.deepEqual(asked.map(({ flow }) => flow.fairnessKey), ["own", "acme", null, null]);
});

const REFUSED: [Record<string, unknown>, RegExp][] = [
  [{ startAt: "2026-11-01T08:00:00Z", delay: 5 }, /^startAt and delay exclude each other$/],
  [{ startAt: "2026-11-01T08:00:00" }, /^startAt must be a date .* in ISO 8601/],
  [{ startAt: "tomorrow" }, /^startAt/],
  [{ startAt: new Date(NaN) }, /^startAt/],
  [{ startAt: 5 }, /^startAt/],
  [{ startAt: null }, /^startAt/],
  [{ delay: -1 }, /^delay must be an integer from 0 to .*, in milliseconds, or a duration such as "30s"/],
  [{ delay: 0.5 }, /^delay/],
  [{ delay: "1 fortnight" }, /^delay/],
  [{ delay: NaN }, /^delay/],
  [{ delay: Infinity }, /^delay/],
  [{ delay: Number.MAX_SAFE_INTEGER }, /^delay/],
  [{ priority: 1_001 }, /^priority must be an integer from -1,000 to 1,000$/],
  [{ priority: -1_001 }, /^priority/],
  [{ priority: 0.5 }, /^priority/],
  [{ priority: "1" }, /^priority/],
  [{ priority: null }, /^priority/],
  [{ fairnessKey: "" }, /^fairnessKey must be a string of 1 to 255 characters/],
  [{ fairnessKey: "a".repeat(256) }, /^fairnessKey/],
  [{ fairnessKey: "a\n" }, /^fairnessKey/],
  [{ fairnessKey: 5 }, /^fairnessKey/],
  [{ startWithin: 0 }, /^startWithin must be an integer from 1 to .*, in milliseconds, or a duration such as "30s"/],
  [{ startWithin: "5" }, /^startWithin/],
  [
    { finishWithin: 1.5 },
    /^finishWithin must be an integer from 1 to .*, in milliseconds, or a duration such as "30s"/,
  ],
  [{ finishWithin: Infinity }, /^finishWithin/],
  [{ concurrencyKey: "k", coalesce: "skip", delay: 5 }, /^coalesce excludes startAt and delay/],
  [{ concurrencyKey: "k", coalesce: "active", startAt: "2026-11-01" }, /^coalesce excludes startAt and delay/],
];

for (const [options, message] of REFUSED) {
  Deno.test(`trigger() refuses ${Deno.inspect(options, { strAbbreviateSize: 40 })}`, async () => {
    const { engine, asked } = anEngine();

    await assert.rejects(
      engine.trigger("resize", null, options),
      (error) => error instanceof ValidationError && message.test(error.message),
    );

    assert.deepEqual(asked, []);
  });
}

Deno.test("a refused item of a batch adds nothing", async () => {
  const { engine, asked } = anEngine();

  const batch = engine.jobs.resize!.batchTrigger([{ input: 1 }, { input: 2, priority: 5_000 }]);

  await assert.rejects(batch, ValidationError);
  assert.deepEqual(asked, []);
});

Deno.test("createEngine() refuses a fairnessLabel that cannot be the key of a label", () => {
  for (const fairnessLabel of ["", "a b", "a".repeat(64), 5, null]) {
    assert.throws(() => anEngine({}, { fairnessLabel: fairnessLabel as string }), {
      name: "TypeError",
      message: "fairnessLabel must be the key of a label: 1 to 63 characters of A-Za-z0-9-_./",
    });
  }
});

Deno.test("retrigger() keeps the priority and the fairness key, and has the key limits of the code", async () => {
  const { engine, asked } = anEngine({ limits: { perKey: PER_KEY } });
  const old = await engine.trigger("resize", null, { priority: 7, fairnessKey: "acme", concurrencyKey: "k" });
  await engine.cancel(old.id);

  await engine.retrigger(old.id);

  assert.deepEqual(asked[1]!.flow, {
    start: null,
    priority: 7,
    fairnessKey: "acme",
    startWithin: null,
    finishWithin: null,
    keyConcurrency: 3,
    keyRate: PER_KEY.rate,
  });
});

const iso = (ms: number) => new Date(FAKE_START + ms).toISOString();
const OLD: Partial<Run> = {
  priority: 0,
  fairnessKey: null,
  createdAt: iso(0),
  startAt: null,
  startBy: null,
  startedAt: null,
  finishBy: null,
};
const RETRIES: [string, Partial<Run>, { startWithin: number | null; finishWithin: number | null }][] = [
  ["without deadlines", { startedAt: iso(5) }, { startWithin: null, finishWithin: null }],
  ["that was due at once", { startBy: iso(500) }, { startWithin: 500, finishWithin: 90 }],
  ["that was delayed", { startAt: iso(1_000), startBy: iso(1_500) }, { startWithin: 500, finishWithin: 90 }],
  ["delayed to an instant in the past", { startAt: iso(-9_000), startBy: iso(500) }, {
    startWithin: 500,
    finishWithin: 90,
  }],
  ["that had started", { startedAt: iso(5), finishBy: iso(65) }, { startWithin: null, finishWithin: 60 }],
];

for (const [name, old, deadlines] of RETRIES) {
  Deno.test(`retryFlow() of a run ${name} has its deadlines; finishWithin of the job if it had not started`, () => {
    const job = readJobFlow({ finishWithin: 90, startWithin: 80 }, "job");

    const flow = retryFlow({ ...OLD, ...old } as StoredRun, { job, hasKey: false });

    assert.deepEqual(flow, { ...PLAIN_FLOW, ...deadlines });
  });
}

Deno.test("triggerFlow() does not take a fairness key from an inherited property", () => {
  const job = readJobFlow({}, "job");

  const flow = triggerFlow({}, { job, labels: {}, hasKey: false, fairnessLabel: "constructor" });

  assert.equal(flow.fairnessKey, null);
});

Deno.test("a claim has the limits of the jobs in the code", async () => {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  const known: unknown[] = [];
  const store = withCalls(memory, {
    claim: (request) => {
      known.push(...request.jobs.map(({ name, concurrency, rate }) => ({ name, concurrency, rate })));
      return memory.claim({ ...request, jobs: [] });
    },
  });
  const rate = { limit: 100, period: 60_000 };
  const define = (name: string, flow: FlowDefinition) => defineJob({ name, input: anything, run: () => null, ...flow });
  const jobs = { resize: define("resize", { limits: { concurrency: 20, rate } }), plain: define("plain", {}) };
  const engine = createEngine({ store, host, jobs });

  const idle = engine.runUntilIdle({ maxRuns: 1 });
  await host.settle();
  host.advance(1_000);
  await idle;

  assert.deepEqual(known.slice(0, 2), [
    { name: "resize", concurrency: 20, rate },
    { name: "plain", concurrency: null, rate: null },
  ]);
});
