import assert from "node:assert/strict";
import { defineJob } from "../../src/model/job/define_job.ts";
import { anything } from "../support/stores/for_each_store.ts";
import { SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { otel } from "../../src/otel/mod.ts";
import { forEachStore, type StoreTest } from "../support/stores/for_each_store.ts";
import { aJob, echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import type { Jobs } from "../../src/engine/job_handle.ts";
import { idOf, keepSpans, linksOf, msOf } from "./spans.ts";

function tracedEngine<const J extends Jobs>({ store, host }: StoreTest, jobs: J, mode: "trigger" | "run" = "trigger") {
  const kept = keepSpans();
  const engine = createEngine({ store, host, jobs });
  engine.use(otel({ trace: mode }));
  return { engine, ...kept };
}

forEachStore("otel() makes one trace from the caller over the trigger to the steps", async (given) => {
  const job = aJob((step) => step.run("read", (): void => inside()), "import");
  const { engine, one, tracer } = tracedEngine(given, { job });
  const inside = (): void => tracer.startActiveSpan("inside", (span) => span.end());

  const { id } = await tracer.startActiveSpan("request", async (span) => {
    const run = await engine.trigger(job, {});
    span.end();
    return run;
  });
  await engine.runUntilIdle();

  const [request, create, process, step, own] = ["request", "create import", "process import", "step read", "inside"]
    .map(one) as [Span, Span, Span, Span, Span];
  assert.deepEqual([create, process, step, own].map((span) => span.parentSpanContext?.spanId), [
    idOf(request),
    idOf(create),
    idOf(process),
    idOf(step),
  ]);
  const messaging = {
    "messaging.system": "holdfast",
    "messaging.destination.name": "import",
    "messaging.message.id": id,
  };
  assert.equal(new Set([request, create, process, step].map((span) => span.spanContext().traceId)).size, 1);
  assert.deepEqual([create.kind, process.kind, step.kind], [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.INTERNAL]);
  assert.deepEqual(create.attributes, {
    ...messaging,
    "messaging.operation.type": "create",
    "holdfast.disposition": "created",
  });
  const { "holdfast.worker.id": workerId, ...attributes } = process.attributes;
  assert.equal(typeof workerId, "string");
  assert.deepEqual(attributes, {
    ...messaging,
    "messaging.operation.type": "process",
    "holdfast.run.execution": 1,
    "holdfast.outcome": "completed",
  });
  assert.deepEqual(step.attributes, { ...messaging, "holdfast.step.name": "read", "holdfast.step.attempt": 1 });
  await engine.stop();
});

type Span = ReturnType<ReturnType<typeof keepSpans>["one"]>;

forEachStore("otel() shows each attempt at a step, with what it threw", async (given) => {
  const job = aJob(async (step) => {
    for (let n = 0; n < 2; n++) {
      await step.run("send", ({ attempt }) => {
        if (attempt === 1) throw new RangeError("too far");
      }, { retry: { maxAttempts: 2, delay: 0 } });
    }
    throw new TypeError("broken");
  });
  const { engine, named, one } = tracedEngine(given, { job });

  await engine.trigger(job, {});
  await engine.runUntilIdle();

  const sends = named("step send");
  assert.deepEqual(
    sends.map(({ attributes, status }) => [
      attributes["holdfast.step.name"],
      attributes["holdfast.step.attempt"],
      attributes["error.type"],
      status.code,
    ]),
    [
      ["send", 1, "RangeError", SpanStatusCode.ERROR],
      ["send", 2, undefined, SpanStatusCode.UNSET],
      ["send#2", 1, "RangeError", SpanStatusCode.ERROR],
      ["send#2", 2, undefined, SpanStatusCode.UNSET],
    ],
  );
  const [event] = sends[0]!.events;
  assert.equal(event?.name, "exception");
  assert.equal(event?.attributes?.["exception.message"], "too far");
  const process = one("process job");
  assert.deepEqual([process.attributes["holdfast.outcome"], process.attributes["error.type"]], ["failed", "TypeError"]);
  assert.equal(process.status.message, "broken");
  await engine.stop();
});

forEachStore("otel() keeps the trace over a wait, and shows pauses once, with their times", async (given) => {
  const { host } = given;
  const job = aJob(async (step) => {
    await step.sleep("nap", 60_000);
    host.advance(1);
    await step.wait("review", { timeout: 1_000_000 });
    await step.run("write", () => {});
    await step.wait("late", { timeout: 1_000 });
  });
  const { engine, named, one, tracer } = tracedEngine(given, { job });

  const { id } = await engine.trigger(job, {});
  const parkedAt = host.now();
  await engine.runUntilIdle();
  host.advance(70_000);
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(id);
  await tracer.startActiveSpan("click", async (span) => {
    await engine.signal(wait!.id, { signalId: "s", payload: null });
    await engine.signal(wait!.id, { signalId: "s", payload: null });
    span.end();
  });
  await engine.runUntilIdle();
  host.advance(2_000);
  await engine.runUntilIdle();

  const create = one("create job");
  const [first, second, third, fourth] = named("process job");
  for (const span of [first, second, third, fourth]) assert.equal(span!.parentSpanContext?.spanId, idOf(create));
  assert.deepEqual(
    [first, second, third, fourth].map((span) => span!.attributes["holdfast.outcome"]),
    ["waiting", "waiting", "waiting", "completed"],
  );
  const [signal, again] = named("signal review");
  assert.equal(signal!.parentSpanContext?.spanId, idOf(one("click")));
  assert.equal(signal!.kind, SpanKind.PRODUCER);
  assert.deepEqual([signal!.attributes["holdfast.wait.id"], signal!.attributes["messaging.message.id"]], [
    wait!.id,
    id,
  ]);
  assert.equal(again!.attributes["holdfast.disposition"], "duplicate");
  assert.deepEqual([first, second, third, fourth].map((span) => linksOf(span!)), [[], [], [idOf(signal!)], []]);
  const nap = one("sleep nap");
  assert.deepEqual([msOf(nap.startTime), msOf(nap.endTime)], [parkedAt, parkedAt + 60_000]);
  assert.deepEqual(
    [nap, one("wait review"), one("wait late")].map((span) => [
      span.attributes["holdfast.wait.outcome"],
      span.parentSpanContext?.spanId,
    ]),
    [["timeout", idOf(create)], ["signal", idOf(create)], ["timeout", idOf(create)]],
  );
  await engine.stop();
});

forEachStore("otel() makes a span of a message, which its run belongs to if it is started for it", async (given) => {
  const job = defineJob({
    name: "chat",
    input: anything,
    messages: { text: anything },
    run: async (step) => {
      await step.receive("first", { names: ["text"] });
      await step.receive("second", { names: ["text"] });
    },
  });
  const { engine, named, one, tracer } = tracedEngine(given, { job });
  const to = { job: "chat", key: "room" };

  await tracer.startActiveSpan("webhook", async (span) => {
    await engine.send(to, "text", 1, { id: "m1", start: { input: {} } });
    span.end();
  });
  await engine.runUntilIdle();
  const { runId } = await engine.send(to, "text", 2, { id: "m2", by: "ada" });
  await engine.send(to, "text", 2, { id: "m2" });
  await engine.runUntilIdle();
  await assert.rejects(engine.send(runId, "text", 3, { id: "m3" }));

  const [start, second, again, refused] = named("send text");
  assert.equal(start!.parentSpanContext?.spanId, idOf(one("webhook")));
  const told = [start, second, again, refused].map((span) => [
    span!.kind,
    span!.attributes["holdfast.message.id"],
    span!.attributes["messaging.message.id"],
    span!.attributes["holdfast.disposition"],
    span!.attributes["holdfast.message.started"],
    span!.attributes["error.type"],
  ]);
  assert.deepEqual(told, [
    [SpanKind.PRODUCER, "m1", runId, "accepted", true, undefined],
    [SpanKind.PRODUCER, "m2", runId, "accepted", false, undefined],
    [SpanKind.PRODUCER, "m2", runId, "duplicate", false, undefined],
    [SpanKind.PRODUCER, "m3", undefined, undefined, undefined, "ConflictError"],
  ]);
  const executions = named("process chat");
  assert.deepEqual(executions.map((span) => span.parentSpanContext?.spanId), [idOf(start!), idOf(start!)]);
  assert.deepEqual(executions.map((span) => linksOf(span)), [[], [idOf(second!)]]);
  assert.deepEqual((await engine.getMessages(runId)).map(({ sentBy }) => sentBy), [null, "ada"]);
  await engine.stop();
});

forEachStore("otel() makes children spans of what makes them, and has a span for a batch", async (given) => {
  const parent = aJob(async (step) => {
    await step.invoke("one", echo, 1);
    await step.invokeAll("all", echo, [{ input: 2 }, { input: 3 }]);
    await step.run("tell", () => step.runId);
    await step.trigger("free", echo, 4);
  }, "parent");
  const { engine, named, one } = tracedEngine(given, { parent, echo });

  await engine.jobs.parent.batchTrigger([{ input: 1 }]);
  await engine.runUntilIdle();

  const root = one("create parent");
  const creates = named("create echo");
  const executions = named("process parent").map(idOf);
  assert.equal(new Set([root, ...creates, ...named("process echo")].map((span) => span.spanContext().traceId)).size, 1);
  assert.deepEqual(
    creates.map(({ attributes }) => attributes["messaging.batch.message_count"]),
    [undefined, 2, undefined],
  );
  const [invoked, batch, free] = creates;
  assert.ok(executions.includes(invoked!.parentSpanContext!.spanId));
  assert.equal(free!.parentSpanContext?.spanId, idOf(one("step free")));
  assert.deepEqual(
    named("process echo").map((span) => span.parentSpanContext?.spanId),
    [invoked, batch, batch, free].map((span) => idOf(span!)),
  );
  await engine.stop();
});

forEachStore("otel() links a retrigger, and a trigger that joins a run, to the run", async (given) => {
  const job = aJob((step) => step.run("fail", () => Promise.reject(new Error("no"))));
  const { engine, named } = tracedEngine(given, { job });

  const { id } = await engine.trigger(job, {}, { idempotencyKey: "once" });
  await engine.trigger(job, {}, { idempotencyKey: "once" });
  await engine.runUntilIdle();
  await engine.retrigger(id, { from: "failure" });
  await engine.runUntilIdle();
  const { runs: [retry] } = await engine.getRuns();
  await engine.retriggerRuns({ runIds: [retry!.id] });

  const [first, second, third, fourth] = named("create job");
  assert.deepEqual([first, second, third, fourth].map((span) => linksOf(span!)), [
    [],
    [idOf(first!)],
    [idOf(first!)],
    [idOf(third!)],
  ]);
  assert.deepEqual([first, second].map((span) => span!.attributes["holdfast.disposition"]), ["created", "idempotent"]);
  assert.equal(named("process job")[1]!.parentSpanContext?.spanId, idOf(third!));
  assert.notEqual(first!.spanContext().traceId, third!.spanContext().traceId);
  await engine.stop();
});

forEachStore(
  "otel() gives a run of a schedule a trace, which is not that of the code that called the engine",
  async (given) => {
    const { engine, one, tracer } = tracedEngine(given, { echo });
    await engine.schedules.set("daily", { job: echo, input: 1, cron: "@daily", timezone: "UTC" });
    given.host.advance(24 * 3_600_000);

    await tracer.startActiveSpan("start", async (span) => {
      await engine.runUntilIdle();
      span.end();
    });

    const create = one("create echo");
    assert.equal(create.parentSpanContext, undefined);
    assert.equal(one("process echo").parentSpanContext?.spanId, idOf(create));
    await engine.stop();
  },
);

forEachStore(
  'otel({ trace: "run" }) gives each run a trace whose id is its own, with a link to the trigger',
  async (given) => {
    const job = aJob(async (step) => {
      await step.sleep("nap", 1_000);
      await step.run("read", () => {});
    });
    const { engine, named, one } = tracedEngine(given, { job }, "run");

    const { id } = await engine.trigger(job, {});
    await engine.runUntilIdle();
    given.host.advance(2_000);
    await engine.runUntilIdle();

    const create = one("create job");
    const traceId = id.replaceAll("-", "");
    const spans = [...named("process job"), one("sleep nap"), one("step read")];
    assert.deepEqual(spans.map((span) => span.spanContext().traceId), Array(4).fill(traceId));
    assert.notEqual(create.spanContext().traceId, traceId);
    assert.deepEqual(named("process job").map(linksOf), [[idOf(create)], [idOf(create)]]);
    await engine.stop();
  },
);

forEachStore("otel() shows a refused trigger and a refused signal as errors", async (given) => {
  const { store } = given;
  const { engine, one } = tracedEngine(given, { echo });
  await engine.migrate();
  store.enqueue = () => Promise.reject(new RangeError("full"));

  await assert.rejects(engine.trigger(echo, 1), RangeError);
  await assert.rejects(engine.signal("none", { signalId: "s", payload: null }));

  assert.deepEqual([one("create echo").attributes["error.type"], one("signal").attributes["error.type"]], [
    "RangeError",
    "NotFoundError",
  ]);
  await engine.stop();
});

Deno.test("otel() refuses options that it does not know", () => {
  assert.throws(() => otel({ traces: "run" } as never), TypeError);
  assert.throws(() => otel({ trace: "all" } as never), TypeError);
});

forEachStore("otel() without an SDK changes nothing", async ({ store, host }) => {
  trace.disable();
  const engine = createEngine({ store, host, jobs: { echo } });
  engine.use(otel());

  const { id } = await engine.trigger(echo, 7);
  await engine.runUntilIdle();

  assert.equal((await engine.getRun(id))?.output, 7);
  assert.equal((await store.getRunState(id))?.trace, null);
  await engine.stop();
});
