import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { createEngine } from "../../src/engine/create_engine.ts";
import type { Engine } from "../../src/engine/engine.ts";
import { createHandler } from "../../src/http/handler.ts";
import type { JobInput, JobOutput, StepContext } from "../../src/model/job.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { ChildOutcome, StepTriggerResult } from "../../src/model/job/step_calls.ts";
import type { NoMessages } from "../../src/model/job/job_messages.ts";
import type { Json, Jsonify, NotJson } from "../../src/values/json.ts";
import type { Run } from "../../src/model/run.ts";
import type { WaitResult } from "../../src/model/wait.ts";
import type { SchemaInput, SchemaOutput } from "../../src/model/schema.ts";
import type { TestEngine } from "../../src/testing/test_engine.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";

// What is said here is checked by the compiler: `deno check` fails where a type is not as it should be.

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;

/** Checks that a value has exactly this type. */
function typeOf<Actual>(
  _value: Actual,
): { is: <Expected>(...same: Same<Actual, Expected> extends true ? [] : [never]) => void } {
  return { is: () => {} };
}

/** Code that is only checked, and never executed. */
function compiles(_code: (...given: never[]) => unknown): void {}

Deno.test("Jsonify tells what JSON leaves of a type", () => {
  compiles((value: {
    date: Jsonify<Date>;
    object: Jsonify<{ at: Date; list: (Date | undefined)[]; optional?: Date; readonly fixed: 1 }>;
    nothing: Jsonify<undefined>;
    voids: Jsonify<void>;
    union: Jsonify<Date | number | null | undefined>;
    tuple: Jsonify<readonly [Date, null, 1]>;
    counter: Jsonify<{ n: number; count(): number }>;
    response: Jsonify<Response>;
    hook: Jsonify<{ hook?: () => void }>;
    map: Jsonify<Map<string, number>>;
    bigint: Jsonify<bigint>;
    work: Jsonify<() => void>;
    json: Jsonify<Json>;
    open: Jsonify<unknown>;
    // deno-lint-ignore no-explicit-any -- `any` is what is asked about
    any: Jsonify<any>;
    custom: Jsonify<{ toJSON(): { at: Date } }>;
  }) => {
    typeOf(value.date).is<string>();
    typeOf(value.object).is<
      {
        at: string;
        list: (string | NotJson<"undefined in an array: store null">)[];
        optional?: string;
        readonly fixed: 1;
      }
    >();
    typeOf(value.nothing).is<undefined>();
    typeOf(value.voids).is<void>();
    typeOf(value.union).is<string | number | null | undefined>();
    typeOf(value.tuple).is<[string, null, 1]>();
    typeOf(value.map).is<NotJson<"a Map: store [...map], or Object.fromEntries(map)">>();
    typeOf(value.bigint).is<NotJson<"a bigint: store it as a string">>();
    typeOf(value.work).is<NotJson<"a function">>();
    typeOf(value.counter).is<NotJson<"an object with the method count(): store its data">>();
    typeOf(value.response.cannotBeStoredAsJson).is<Jsonify<Response>["cannotBeStoredAsJson"]>();
    typeOf(value.hook).is<{ hook?: NotJson<"a function"> }>();
    typeOf(value.json).is<Json>();
    typeOf(value.open).is<unknown>();
    // deno-lint-ignore no-explicit-any -- as above
    typeOf(value.any).is<any>();
    typeOf(value.custom).is<{ at: string }>();
  });
});

const withZod = defineJob({
  name: "with-zod",
  input: z.object({ size: z.coerce.number<string>(), day: z.string().transform((text) => new Date(text)).optional() }),
  run(step, input) {
    typeOf(step).is<StepContext<Record<never, never>, NoMessages>>();
    typeOf(input.size).is<number>();
    typeOf(input.day).is<string | undefined>();
    return { at: new Date(input.size), rows: 1 };
  },
});

const withValibot = defineJob({
  name: "with-valibot",
  input: v.object({ size: v.pipe(v.string(), v.transform(Number)), note: v.optional(v.string(), "none") }),
  async run(step, input) {
    typeOf(input).is<{ size: number; note: string }>();
    return await step.run("size", () => input.size);
  },
});

const withArktype = defineJob({
  name: "with-arktype",
  input: type({ size: "string.numeric.parse", "note?": "string" }),
  run: (_step, input) => {
    typeOf(input.size).is<number>();
    typeOf(input.note).is<string | undefined>();
    return input.note;
  },
});

const withOutput = defineJob({
  name: "with-output",
  input: z.void(),
  output: z.object({ rows: z.number() }),
  run: () => ({ rows: 1 }),
});

const jobs = { withZod, withValibot, withArktype, withOutput };

function anEngine(): Engine<typeof jobs> {
  return createEngine({ store: new MemoryStore(), jobs });
}

Deno.test("SchemaInput and SchemaOutput tell both sides of a schema", () => {
  const schema = z.object({ size: z.string().transform(Number) });

  compiles((given: SchemaInput<typeof schema>, made: SchemaOutput<typeof schema>) => {
    typeOf(given).is<{ size: string }>();
    typeOf(made).is<{ size: number }>();
  });
});

Deno.test("trigger() takes what the schema of a job takes", () => {
  compiles(() => {
    const engine = anEngine();
    engine.jobs.withZod.trigger({ size: "1" });
    engine.jobs.withZod.trigger({ size: "1", day: "2026-01-01" });
    engine.jobs.withValibot.trigger({ size: "1" });
    engine.jobs.withArktype.trigger({ size: "1" });
    engine.jobs.withOutput.trigger(undefined);
    engine.trigger(withZod, { size: "1" });
    engine.trigger(withArktype, { size: "1", note: "n" });
    engine.trigger("with-zod", { whatever: 1 });
    engine.jobs.withZod.batchTrigger([{ input: { size: "1" }, labels: { a: "b" } }]);

    // @ts-expect-error the schema takes a text
    engine.jobs.withZod.trigger({ size: 1 });
    // @ts-expect-error the schema takes a text
    engine.jobs.withValibot.trigger({ size: 1 });
    // @ts-expect-error the schema takes a text
    engine.jobs.withArktype.trigger({ size: 1 });
    // @ts-expect-error the schema takes a text
    engine.trigger(withZod, { size: 1 });
    // @ts-expect-error something is missing
    engine.trigger(withValibot, {});
    // @ts-expect-error an input has to be given
    engine.jobs.withZod.trigger();
    // @ts-expect-error the schema takes a text
    engine.jobs.withZod.batchTrigger([{ input: { size: 1 } }]);
    // @ts-expect-error there is no such handle
    engine.jobs.unknown;
    // @ts-expect-error there is no such way to coalesce
    engine.jobs.withZod.trigger({ size: "1" }, { coalesce: "sometimes" });
    // @ts-expect-error labels are texts
    engine.jobs.withZod.trigger({ size: "1" }, { labels: { a: 1 } });
  });
});

Deno.test("triggers, jobs and the engine take what says when runs are executed", () => {
  compiles(async (date: Date) => {
    const engine = anEngine();
    const { withZod } = engine.jobs;
    const input = { size: "1" };
    const within = { startWithin: 1, finishWithin: 2 };

    const run = await withZod.trigger(input, { startAt: date, priority: 1, fairnessKey: "acme", ...within });
    withZod.triggerAndWait(input, { startAt: "2026-11-01", timeout: 1, ...within });
    withZod.batchTrigger([{ input, delay: 1, priority: 1 }]);
    engine.trigger("with-zod", input, { delay: 1 });
    typeOf(run.startAt).is<string | null>();
    typeOf(run.priority).is<number>();
    typeOf(run.failureKind).is<"error" | "timeout" | "expired" | "abandoned" | null>();
    typeOf((await engine.pauseJob("with-zod", { by: "ada", note: "why" })).paused?.since).is<string | undefined>();
    typeOf((await engine.resumeJob("with-zod")).isKnownHere).is<boolean>();
    engine.on("job:pause", (event) => typeOf(event.by).is<string | null>());
    engine.on("run:trigger", (event) => typeOf(event.startAt).is<string | null>());
    engine.on("run:fail", (event) => typeOf(event.failureKind).is<"error" | "timeout" | "expired" | "abandoned">());
    engine.getRuns({ failureKind: "timeout", parentRunId: "id", createdAfter: "2026-11-01" });

    // @ts-expect-error a number is not an instant
    withZod.trigger(input, { startAt: 5 });
    // @ts-expect-error there is no such unit
    withZod.trigger(input, { delay: "1 fortnight" });
    // @ts-expect-error a priority is a number
    withZod.trigger(input, { priority: "high" });
    // @ts-expect-error there is no such kind
    engine.getRuns({ failureKind: "late" });
    // @ts-expect-error there is no such option
    engine.pauseJob("with-zod", { why: "x" });
  });
  compiles(() => {
    const plain = { name: "job", input: z.object({}), run: () => 1 };

    defineJob({ ...plain, priority: 1, startWithin: 1, finishWithin: 2, limits: { concurrency: 1 } });
    defineJob({ ...plain, limits: { rate: { limit: 1, period: 1 }, perKey: { rate: { limit: 1, period: 1 } } } });
    // @ts-expect-error a rate has a period
    defineJob({ ...plain, limits: { rate: { limit: 1 } } });
    // @ts-expect-error there is no such limit
    defineJob({ ...plain, limits: { concurency: 1 } });
    // @ts-expect-error a label has a name
    createEngine({ store: new MemoryStore(), jobs, fairnessLabel: 5 });
  });
});

Deno.test("triggerAndWait() answers the output as JSON leaves it", () => {
  compiles(async () => {
    const engine = anEngine();

    typeOf((await engine.jobs.withZod.triggerAndWait({ size: "1" })).output).is<{ at: string; rows: number }>();
    typeOf((await engine.jobs.withValibot.triggerAndWait({ size: "1" })).output).is<number>();
    typeOf((await engine.jobs.withArktype.triggerAndWait({ size: "1" })).output).is<string | undefined>();
    typeOf((await engine.jobs.withOutput.triggerAndWait(undefined)).output).is<{ rows: number }>();
    typeOf(await engine.jobs.withZod.getRun("id")).is<Run | null>();
  });
});

Deno.test("step.run() answers its value as JSON leaves it", () => {
  compiles(async (step: StepContext) => {
    typeOf(await step.run("date", () => new Date())).is<string>();
    typeOf(await step.run("async", () => Promise.resolve({ at: new Date() }))).is<{ at: string }>();
    typeOf(await step.run("nothing", () => {})).is<void>();
    typeOf(await step.run("maybe", () => undefined as Date | undefined)).is<string | undefined>();
    typeOf(await step.run("list", () => [new Date()])).is<string[]>();
    typeOf(await step.run("tools", (tools) => tools.attempt)).is<number>();
    typeOf(await step.run("map", () => new Map<string, number>())).is<Jsonify<Map<string, number>>>();

    const date = await step.run("date", () => new Date());
    // @ts-expect-error a date is text by now
    date.getTime();
  });
});

Deno.test("defineJob() refuses what does not fit together", () => {
  compiles(() => {
    const input = z.object({ size: z.number() });
    const output = z.object({ rows: z.number() });

    defineJob({ name: "fits", input, output, run: (_step, { size }) => ({ rows: size }) });
    // @ts-expect-error the function answers something else than the output schema takes
    defineJob({ name: "misfits", input, output, run: () => ({ rows: "1" }) });
    // @ts-expect-error the input has no such member
    defineJob({ name: "misfits", input, run: (_step, { missing }) => missing });
    // @ts-expect-error a schema is needed
    defineJob({ name: "misfits", run: () => 1 });
    // @ts-expect-error what is no schema is refused
    defineJob({ name: "misfits", input: {}, run: () => 1 });
  });
});

Deno.test("createEngine() takes jobs of different types", () => {
  const engine = anEngine();

  typeOf(Object.keys(engine.jobs)).is<string[]>();
  compiles(() => {
    // @ts-expect-error what is no job is refused
    createEngine({ store: new MemoryStore(), jobs: { one: { name: "one" } } });
    const general: Engine = createEngine({ store: new MemoryStore(), jobs: {} });
    return general;
  });
});

Deno.test("createEngine() types the labels of triggers by its schema", () => {
  const labels = z.object({ org: z.string(), tier: z.enum(["free", "paid"]).optional() });
  const engine = createEngine({ store: new MemoryStore(), jobs, labels });

  compiles(() => {
    engine.jobs.withZod.trigger({ size: "1" }, { labels: { org: "acme" } });
    engine.jobs.withZod.triggerAndWait({ size: "1" }, { labels: { org: "acme", tier: "free" }, timeout: 1 });
    engine.jobs.withZod.batchTrigger([{ input: { size: "1" }, labels: { org: "acme" } }]);
    engine.trigger(withZod, { size: "1" }, { labels: { org: "acme" } });
    engine.trigger("with-zod", { size: "1" }, { labels: { org: "acme" } });
    const general: Engine = engine;
    const typed: Engine<typeof jobs, { org: string; tier?: "free" | "paid" | undefined }> = engine;
    createHandler(engine);

    // @ts-expect-error a label is missing
    engine.jobs.withZod.trigger({ size: "1" }, { labels: {} });
    // @ts-expect-error there is no such label
    engine.jobs.withZod.trigger({ size: "1" }, { labels: { org: "acme", team: "x" } });
    // @ts-expect-error there is no such tier
    engine.jobs.withZod.triggerAndWait({ size: "1" }, { labels: { org: "acme", tier: "gold" } });
    // @ts-expect-error a label is missing
    engine.jobs.withZod.batchTrigger([{ input: { size: "1" }, labels: { tier: "free" } }]);
    // @ts-expect-error a label is missing
    engine.trigger("with-zod", { size: "1" }, { labels: { tier: "free" } });
    // @ts-expect-error labels are strings
    createEngine({ store: new MemoryStore(), jobs, labels: z.object({ size: z.number() }) });
    return [general, typed];
  });
});

Deno.test("createEngine() takes labels of any library, by what their schema takes", () => {
  const withArktype = createEngine({ store: new MemoryStore(), jobs, labels: type({ org: "string" }) });
  const withValibot = createEngine({
    store: new MemoryStore(),
    jobs,
    labels: v.object({ org: v.pipe(v.number(), v.transform(String)) }),
  });

  compiles(() => {
    withArktype.jobs.withZod.trigger({ size: "1" }, { labels: { org: "acme" } });
    withValibot.jobs.withZod.trigger({ size: "1" }, { labels: { org: 7 } });
    // @ts-expect-error the schema takes a number
    withValibot.jobs.withZod.trigger({ size: "1" }, { labels: { org: "7" } });
  });
});

const child = defineJob({
  name: "child",
  input: z.object({ size: z.string().transform(Number) }),
  run: (_step, { size }) => ({ at: new Date(size) }),
});

const parent = defineJob({
  name: "parent",
  input: z.object({ sizes: z.array(z.string()) }),
  async run(step, { sizes }) {
    const one = await step.invoke("one", child, { size: "1" }, { delay: "5m", finishWithin: "2 hours" });
    typeOf(one).is<{ at: string }>();
    const all = await step.invokeAll("all", child, sizes.map((size) => ({ input: { size } })));
    typeOf(all).is<ChildOutcome<{ at: string }>[]>();
    return all.map((result) => result.status === "completed" ? result.output.at : result.error);
  },
});

// A job that invokes itself names the type of its result: TypeScript cannot infer it from itself.
const countDown = defineJob({
  name: "count-down",
  input: z.object({ from: z.number() }),
  async run(step, { from }): Promise<number> {
    return from === 0 ? 0 : 1 + await step.invoke("next", countDown, { from: from - 1 });
  },
});

const ping = defineJob({
  name: "ping",
  input: z.number(),
  async run(step, left): Promise<string> {
    return left === 0 ? "ping" : await step.invoke("pong", pong, { left: left - 1 });
  },
});

const pong = defineJob({
  name: "pong",
  input: z.object({ left: z.number() }),
  run: (step, { left }) => step.invoke("ping", ping, left),
});

Deno.test("invoke() and invokeAll() infer input and output, also of a job that invokes itself", () => {
  compiles(async (step: StepContext) => {
    const engine = createEngine({ store: new MemoryStore(), jobs: { child, parent, countDown, ping, pong } });
    typeOf((await engine.jobs.parent.triggerAndWait({ sizes: [] })).output).is<string[]>();
    typeOf((await engine.jobs.countDown.triggerAndWait({ from: 3 })).output).is<number>();
    typeOf((await engine.jobs.pong.triggerAndWait({ left: 3 })).output).is<string>();
    typeOf(await step.invoke("size", withValibot, { size: "1" }, { priority: 1, labels: { a: "b" } })).is<number>();
    typeOf(await step.invoke("note", withArktype, { size: "1" })).is<string | undefined>();
    typeOf(await step.trigger("one", child, { size: "1" }, { idempotencyKey: "k" })).is<StepTriggerResult>();

    // @ts-expect-error the schema takes a text
    step.invoke("one", child, { size: 1 });
    // @ts-expect-error an input has to be given
    step.invoke("one", child);
    // @ts-expect-error the schema takes a text
    step.invokeAll("all", child, [{ input: { size: 1 } }]);
    // @ts-expect-error the schema takes a text
    step.trigger("one", child, { size: 1 });
    // @ts-expect-error a child run has no idempotency key
    step.invoke("one", child, { size: "1" }, { idempotencyKey: "k" });
    // @ts-expect-error a child run does not coalesce
    step.invokeAll("all", child, [{ input: { size: "1" }, coalesce: "skip" }]);
  });
});

Deno.test("waits of a job give their types to wait(), prepareWait() and waitFor()", () => {
  const job = defineJob({
    name: "with-waits",
    input: z.object({ id: z.string() }),
    waits: { approve: z.object({ at: z.coerce.date(), approved: z.boolean() }), sign: type("string") },
    async run(step, { id }) {
      typeOf(id).is<string>();
      typeOf(await step.wait("approve", { timeout: 1 })).is<WaitResult<{ at: Date; approved: boolean }>>();
      typeOf(await step.wait("sign")).is<WaitResult<string>>();
      typeOf(await step.wait("other")).is<WaitResult<Json>>();
      typeOf(await step.wait("approve", { schema: z.number() })).is<WaitResult<number>>();
      const prepared = await step.prepareWait("approve");
      typeOf(await step.waitFor(prepared)).is<WaitResult<{ at: Date; approved: boolean }>>();
      const own = await step.prepareWait("own", { schema: z.number() });
      typeOf(await step.waitFor(own)).is<WaitResult<number>>();
      typeOf(await step.waitFor({ id: own.id })).is<WaitResult<Json>>();
      typeOf(await step.waitFor(own, { schema: z.string() })).is<WaitResult<string>>();
      await helper(step);
      return id.length;
    },
  });
  async function helper(step: StepContext): Promise<void> {
    typeOf(await step.wait("approve")).is<WaitResult<Json>>();
  }
  compiles((output: JobOutput<typeof job>) => {
    typeOf(output).is<number>();
    // @ts-expect-error a schema is needed
    defineJob({ name: "wrong", input: z.string(), waits: { approve: 7 }, run: () => 1 });
  });
});

Deno.test("JobInput and JobOutput are the types of a job", () => {
  compiles((input: JobInput<typeof withZod>, output: JobOutput<typeof withZod>) => {
    typeOf(input).is<{ size: string; day?: string | undefined }>();
    typeOf(output).is<{ at: string; rows: number }>();
  });
});

Deno.test("fake() knows the input of the job", () => {
  compiles((t: TestEngine) => {
    t.fake(withZod, "read").does(({ input }) => {
      typeOf(input).is<JobInput<typeof withZod>>();
    });
  });
});
