import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { StoreError } from "../../../src/error.ts";
import { createHandler } from "../../../src/http/handler.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import { defineJob } from "../../../src/job.ts";
import type { RunState, Store } from "../../../src/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { withCalls } from "../../support/with_calls.ts";
import { EventReader } from "../../support/event_reader.ts";
import { anything, claimOne, forEachStore, pass, recordEvents, type StoreTest } from "../../support/for_each_store.ts";
import { aRequest, aService, type Service } from "../../support/http.ts";
import { aPause } from "../../support/fixtures.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aScript } from "../../support/jobs.ts";

/** A service with one scripted job, whose run is being executed. */
async function aPlay(context: StoreTest, options: HandlerOptions = {}) {
  const script = aScript();
  const service = aService(options, context, { script: script.job });
  const { id } = await service.engine.trigger("script", null, { labels: { org: "acme" } });
  const idle = service.engine.runUntilIdle();
  const step = await script.begun;
  const end = async () => {
    script.end(null);
    await idle;
    await context.host.settle();
  };
  return { ...script, service, id, step, idle, end };
}

async function follow({ handler }: Pick<Service, "handler">, runId: string): Promise<EventReader> {
  return new EventReader(await handler.fetch(aRequest("GET", `/subscribe?runId=${runId}`)));
}

async function followList({ handler }: Pick<Service, "handler">, query = ""): Promise<EventReader> {
  return new EventReader(await handler.fetch(aRequest("GET", `/runs/subscribe${query}`)));
}

/** What a reader was told of progress. */
function progressOf({ events }: EventReader): number[] {
  return events.flatMap((event) => event.type === "run:progress" ? [event.progress.current] : []);
}

// After so long what a job reports is in the store, in milliseconds.
const REPORTED_MS = 20;
// How long it takes at most to hear of what another engine does: the polling interval, and a look.
const ELSEWHERE_MS = 1_200;

forEachStore("GET /subscribe answers 404 for an unknown run, and 400 without a run", async (context) => {
  await using service = aService({}, context);

  const answers = [
    await service.ask("GET", "/subscribe?runId=unknown"),
    await service.ask("GET", "/subscribe"),
    await service.ask("GET", "/subscribe?runId="),
    await service.ask("GET", "/subscribe?runId=a&runId=b"),
  ];

  assert.deepEqual(answers.map(({ status, body }) => [status, body.code]), [
    [404, "not_found"],
    [400, "invalid_request"],
    [400, "invalid_request"],
    [400, "invalid_request"],
  ]);
  assert.equal(context.host.timerCount, 0);
});

forEachStore(
  "GET /subscribe and GET /runs/subscribe answer with an event stream that nobody may cache",
  async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("echo", 1);

    for (const path of [`/subscribe?runId=${id}`, "/runs/subscribe"]) {
      const response = await service.handler.fetch(aRequest("GET", path));
      await response.body!.cancel();

      assert.equal(response.status, 200);
      assert.equal(response.headers.get("content-type"), "text/event-stream");
      assert.equal(response.headers.get("cache-control"), "no-cache, no-transform");
    }
  },
);

forEachStore(
  "GET /subscribe tells nothing of a pending run, then all that happens to it, and ends",
  async (context) => {
    const { job, begun, end } = aScript();
    await using service = aService({}, context, { script: job });
    const { id } = await service.engine.trigger("script", { secret: 1 }, { labels: { org: "acme" } });
    const other = await service.engine.trigger("echo", 1);
    await using reader = await follow(service, id);
    await context.host.settle();
    const atFirst = [...reader.types];

    const idle = service.engine.runUntilIdle();
    const step = await begun;
    step.progress(1, 2, "half");
    step.log.info("hello", { n: 1 });
    await step.run("read", () => "rows");
    end("out");
    await idle;
    await reader.ended;

    assert.deepEqual(atFirst, []);
    assert.deepEqual(reader.types, [
      "run:leased",
      "run:start",
      "run:progress",
      "log:write",
      "step:start",
      "step:complete",
      "run:complete",
    ]);
    assert.partialDeepStrictEqual(reader.events.slice(2), [
      { progress: { current: 1, total: 2, message: "half" } },
      { stepName: null, level: "info", message: "hello", data: { n: 1 } },
      { stepName: "read", stepIndex: 0, attempt: 1 },
      { stepName: "read", stepIndex: 0, output: "rows", duration: 0 },
      { output: "out", duration: 0 },
    ]);
    const sequences = reader.events.map(({ sequence }) => sequence);
    assert.deepEqual(sequences, sequences.toSorted((left, right) => left - right));
    for (const { runId, jobName, labels, timestamp } of reader.events) {
      assert.deepEqual([runId, jobName, labels], [id, "script", { org: "acme" }]);
      assert.equal(timestamp, new Date(timestamp).toISOString());
    }
    assert.notEqual(other.id, id);
  },
);

forEachStore("GET /subscribe begins with a running run as it stands, with its latest progress", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  const { lease } = await claimOne(context.store, "echo");
  await context.store.renew(
    [{ lease, reports: [{ kind: "progress", no: 1, at: 0, progress: { current: 1 } }] }],
    30_000,
  );
  await context.store.renew([{
    lease,
    reports: [{ kind: "progress", no: 2, at: 0, progress: { current: 2, total: 3 } }],
  }], 30_000);

  await using reader = await follow(service, id);
  await context.host.settle();

  assert.deepEqual(reader.types, ["run:leased", "run:start", "run:progress"]);
  assert.partialDeepStrictEqual(reader.events, [
    { leaseOwner: "dead-worker" },
    { execution: 1 },
    { progress: { current: 2, total: 3 } },
  ]);
});

forEachStore("GET /subscribe begins with a leased run as it stands", async ({ store, host }) => {
  const getRunState = async (runId: string): Promise<RunState | null> => {
    const state = await store.getRunState(runId);
    return state && { ...state, run: { ...state.run, status: "leased" } };
  };
  const leasing: Store = withCalls(store, { getRunState });
  await using service = aService({}, { store: leasing, host });
  const { id } = await service.engine.trigger("echo", 1);
  await claimOne(store, "echo");

  await using reader = await follow(service, id);
  await host.settle();

  assert.deepEqual(reader.types, ["run:leased"]);
});

forEachStore("GET /subscribe begins with a waiting run as it stands", async (context) => {
  const nap = defineJob({ name: "nap", input: anything, run: (step) => step.sleep("rest", 5_000) });
  const retry = defineJob({
    name: "retry",
    input: anything,
    run: (step) =>
      step.run("send", () => {
        throw new Error("not now");
      }, { retry: { maxAttempts: 2, delay: 60_000 } }),
  });
  await using service = aService({}, context, { nap, retry });
  const runs = [];
  for (const name of ["approval", "nap", "retry"]) runs.push(await service.engine.trigger(name, 1));
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(runs[0]!.id);

  const readers = await Promise.all(runs.map(({ id }) => follow(service, id)));
  await context.host.settle();

  assert.deepEqual(readers.map(({ types }) => types), Array(3).fill(["run:waiting"]));
  assert.partialDeepStrictEqual(readers.map(({ events }) => events[0]), [
    { waitId: wait!.id, waitName: "review", deadlineAt: wait!.deadlineAt },
    { waitId: null, waitName: "rest" },
    { waitId: null, waitName: "send" },
  ]);
  for (const reader of readers) await reader.leave();
});

forEachStore("GET /subscribe tells the last event alone of a run that has ended, and ends", async (context) => {
  await using service = aService({}, context);
  const { id: completed } = await service.engine.trigger("echo", { n: 1 });
  const { id: failed } = await service.engine.trigger("fail", 1);
  await service.engine.runUntilIdle();
  const { id: cancelled } = await service.engine.trigger("echo", 1);
  await service.engine.cancel(cancelled);

  const readers = await Promise.all([completed, failed, cancelled].map((id) => follow(service, id)));
  await Promise.all(readers.map(({ ended }) => ended));

  assert.partialDeepStrictEqual(readers.map(({ events }) => events), [
    [{ type: "run:complete", output: { n: 1 }, duration: 0 }],
    [{ type: "run:fail", error: "broken", failedStepName: null }],
    [{ type: "run:cancel" }],
  ]);
  assert.deepEqual(readers.map(({ events }) => events.length), [1, 1, 1]);
  assert.equal(context.host.timerCount, 0);
});

forEachStore("event streams never carry what was thrown itself", async (context) => {
  const thrown = Object.assign(new Error("no such file", { cause: new Error("secret") }), { toJSON: () => "secret" });
  const failing = defineJob({
    name: "failing",
    input: anything,
    run: (step) => step.run("read", () => Promise.reject(thrown)),
  });
  await using service = aService({}, context, { failing });
  const { id } = await service.engine.trigger("failing", 1);
  const readers = [await follow(service, id), await followList(service)];

  await service.engine.runUntilIdle();
  await context.host.settle();

  const failures = readers.flatMap(({ events }) => events.filter(({ type }) => type.endsWith(":fail")));
  assert.deepEqual(failures.map(({ type }) => type), ["step:fail", "run:fail", "run:fail"]);
  assert.partialDeepStrictEqual(failures, Array(3).fill({ error: "no such file" }));
  assert.ok(failures.every((event) => !("thrown" in event)));
  assert.ok(!JSON.stringify(failures).includes("secret"));
  await readers[1]!.leave();
});

const ENDINGS: Record<string, (service: Service, id: string, store: Store) => Promise<unknown>> = {
  "run:complete": ({ engine }) => engine.runUntilIdle(),
  "run:fail": ({ engine }) => engine.runUntilIdle(),
  "run:cancel": ({ ask }, id) => ask("POST", `/cancel?runId=${id}`),
  "run:delete": async ({ ask }, id, store) => {
    // It has ended elsewhere, which nobody here has noticed.
    await store.cancel(id, "elsewhere", null);
    await ask("DELETE", `/run?runId=${id}`);
  },
};

for (const [type, bringAbout] of Object.entries(ENDINGS)) {
  forEachStore(`GET /subscribe ends after ${type}`, async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger(type === "run:fail" ? "fail" : "echo", 1);
    await using reader = await follow(service, id);
    await context.host.settle();

    await bringAbout(service, id, context.store);
    await reader.ended;

    assert.deepEqual(reader.types.filter((told) => told !== "run:leased" && told !== "run:start"), [type]);
    assert.equal(context.host.timerCount, 0);
  });
}

forEachStore("GET /subscribe reaches a reader with an output that is large", async (context) => {
  await using service = aService({}, context);
  const output = "x".repeat(1_000_000);
  const { id } = await service.engine.trigger("echo", output);
  await service.engine.runUntilIdle();

  const reader = await follow(service, id);
  await reader.ended;

  assert.partialDeepStrictEqual(reader.events, [{ type: "run:complete", output }]);
});

forEachStore("GET /subscribe tells a reader who comes later how the run stands, once", async (context) => {
  const { service, id, step, end } = await aPlay(context, { sseThrottleMs: 100 });
  await using early = await follow(service, id);
  await context.host.settle();
  step.progress(1);
  step.progress(2); // held back
  await step.run("read", () => 1);

  await using late = await follow(service, id);
  await context.host.settle();
  const snapshot = [...late.types];
  const held = progressOf(early);
  await pass(context.host, 200);
  await step.run("write", () => 1);
  await end();

  assert.deepEqual(snapshot, ["run:leased", "run:start", "run:progress"]);
  assert.deepEqual(late.types.slice(3), ["step:start", "step:complete", "run:complete"]);
  assert.deepEqual([progressOf(late), held, progressOf(early)], [[2], [1], [1, 2]]);
  assert.deepEqual(early.types.filter((type) => type === "run:leased").length, 1);
  await service.engine.stop();
});

forEachStore("GET /subscribe tells readers who come at once the same", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);

  const readers = await Promise.all(Array.from({ length: 5 }, () => follow(service, id)));
  await service.engine.runUntilIdle();
  await service.engine.cancel(id);
  await Promise.all(readers.map(({ ended }) => ended));

  assert.deepEqual(readers[0]!.types, ["run:leased", "run:start", "run:waiting", "run:cancel"]);
  for (const { events } of readers) assert.deepEqual(events, readers[0]!.events);
});

forEachStore("event streams tell neither lease renewals nor what goes wrong in the worker", async ({ store, host }) => {
  const claims = { failing: 0 };
  const failing: Store = withCalls(store, {
    claim: (request) => claims.failing-- > 0 ? Promise.reject(new StoreError("busy")) : store.claim(request),
  });
  const { job, begun, end } = aScript();
  await using service = aService({}, { store: failing, host }, { script: job });
  const all = recordEvents(service.engine);
  const { id } = await service.engine.trigger("script", 1);
  await using reader = await follow(service, id);
  await using list = await followList(service);
  await service.engine.start();
  await begun;

  claims.failing = 2;
  await pass(host, 12_000, 200);
  end(1);
  await reader.ended;

  assert.ok(all.some(({ type }) => type === "run:lease-renewed") && all.some(({ type }) => type === "worker:error"));
  assert.deepEqual(reader.types, ["run:leased", "run:start", "run:complete"]);
  assert.deepEqual(list.types, ["run:leased", "run:start", "run:complete"]);
});

forEachStore(
  "GET /runs/subscribe tells all run: events of all runs, without what they were triggered with",
  async (context) => {
    await using service = aService({}, context);
    await using reader = await followList(service);
    await context.host.settle();
    const { ask, engine } = service;
    const trigger = async (body: Record<string, unknown>): Promise<string> =>
      (await ask("POST", "/trigger", { body })).body.runId;
    const keys = { concurrencyKey: "line", coalesce: "active", labels: { org: "acme" } };

    const approval = await trigger({ jobName: "approval", input: { secret: "swordfish" }, ...keys });
    await trigger({ jobName: "approval", input: { secret: "swordfish" }, ...keys, labels: { secret: "swordfish" } });
    await engine.runUntilIdle();
    await ask("POST", `/cancel?runId=${approval}`);
    await ask("POST", `/retrigger?runId=${approval}`);
    await context.host.settle(); // of a run that is gone only its end would be shown
    await ask("DELETE", `/run?runId=${approval}`);
    const failed = await trigger({ jobName: "fail", input: {} });
    await engine.runUntilIdle();
    await context.host.settle();

    assert.deepEqual(reader.events.filter(({ runId }) => runId === approval).map(({ type }) => type), [
      "run:trigger",
      "run:coalesced",
      "run:leased",
      "run:start",
      "run:waiting",
      "run:cancel",
      "run:retry",
      "run:delete",
    ]);
    assert.deepEqual(reader.events.filter(({ runId }) => runId === failed).map(({ type }) => type), [
      "run:trigger",
      "run:leased",
      "run:start",
      "run:fail",
    ]);
    const [triggered, coalesced] = reader.events;
    assert.deepEqual(Object.keys(triggered!).sort(), ["jobName", "labels", "runId", "sequence", "timestamp", "type"]);
    assert.partialDeepStrictEqual(coalesced, { status: "pending", labels: { org: "acme" } });
    assert.ok(!JSON.stringify(reader.events).includes("swordfish"));
  },
);

forEachStore("GET /runs/subscribe tells no steps and no log lines, but progress", async (context) => {
  const { service, id, step, end } = await aPlay(context);
  await using reader = await followList(service);
  await context.host.settle();

  step.log.info("hello");
  step.progress(1);
  await step.run("read", () => 1);
  await end();

  assert.deepEqual(reader.types, ["run:progress", "run:complete"]);
  assert.ok(reader.events.every(({ runId }) => runId === id));
  await service.engine.stop();
});

forEachStore("GET /runs/subscribe begins with nothing, whatever runs there are", async (context) => {
  await using service = aService({}, context);
  for (const name of ["echo", "approval", "fail"]) await service.engine.trigger(name, 1);
  await service.engine.runUntilIdle();
  await service.engine.trigger("echo", 2);
  await service.engine.trigger("echo", 3);
  await claimOne(context.store, "echo");

  await using reader = await followList(service);
  await pass(context.host, 10_000, 200);

  assert.deepEqual(reader.types, []);
});

const FILTERS: [query: string, told: string[]][] = [
  ["", ["echo acme eu", "echo acme us", "fail acme eu", "approval other eu"]],
  ["?jobName=echo", ["echo acme eu", "echo acme us"]],
  ["?jobName=echo&jobName=fail", ["echo acme eu", "echo acme us", "fail acme eu"]],
  ["?jobName=unknown", []],
  ["?label.org=acme", ["echo acme eu", "echo acme us", "fail acme eu"]],
  ["?label.org=acme&label.region=eu", ["echo acme eu", "fail acme eu"]],
  ["?label.org=acme&label.region=eu&jobName=echo", ["echo acme eu"]],
  ["?label.org=acme&label.org=other", []],
  ["?label.org=acme&label.org=acme", ["echo acme eu", "echo acme us", "fail acme eu"]],
  ["?label.toString=x", []],
  ["?label.__proto__=x", []],
];

for (const [query, told] of FILTERS) {
  forEachStore(`GET /runs/subscribe${query} tells what matches, and nothing else`, async (context) => {
    await using service = aService({}, context);
    await using reader = await followList(service, query);

    for (const run of ["echo acme eu", "echo acme us", "fail acme eu", "approval other eu"]) {
      const [jobName, org, region] = run.split(" ") as [string, string, string];
      await service.engine.trigger(jobName, run, { labels: { org, region } });
    }
    await context.host.settle();

    const shown = reader.events.map(({ jobName, labels }) => `${jobName} ${labels.org} ${labels.region}`);
    assert.deepEqual(shown, told);
  });
}

for (const [which, open] of [["/subscribe", follow], ["/runs/subscribe", followList]] as const) {
  forEachStore(`GET ${which} tells the first progress at once and the latest after sseThrottleMs`, async (context) => {
    const { service, id, step, end } = await aPlay(context, { sseThrottleMs: 100 });
    await using reader = await open(service, which === "/subscribe" ? id : "");
    await context.host.settle();
    const told: number[][] = [];
    const note = async () => {
      await context.host.settle();
      told.push(progressOf(reader));
    };

    for (const n of [1, 2, 3]) step.progress(n);
    await pass(context.host, REPORTED_MS);
    await note();
    await pass(context.host, 90, 10);
    await note();
    await pass(context.host, 10);
    await note();
    for (const n of [4, 5]) step.progress(n);
    await pass(context.host, 100, 10);
    await note();

    assert.deepEqual(told, [[1], [1], [1, 3], [1, 3, 5]]);
    await end();
    await service.engine.stop();
  });

  forEachStore(`GET ${which} tells the latest progress right before the run's next event`, async (context) => {
    const { service, id, step, end } = await aPlay(context, { sseThrottleMs: 60_000 });
    await using reader = await open(service, which === "/subscribe" ? id : "");
    await context.host.settle();
    for (const n of [1, 2, 3]) step.progress(n);

    await end();

    assert.deepEqual(progressOf(reader), [1, 3]);
    assert.deepEqual(reader.types.slice(-2), ["run:progress", "run:complete"]);
    await service.engine.stop();
  });

  forEachStore(`GET ${which} tells all progress if sseThrottleMs is 0`, async (context) => {
    const { service, id, step, end } = await aPlay(context, { sseThrottleMs: 0 });
    await using reader = await open(service, which === "/subscribe" ? id : "");
    await context.host.settle();

    for (const n of [1, 2, 2, 3]) {
      step.progress(n);
      await context.host.settle(1);
    }
    await end();

    assert.deepEqual(progressOf(reader), [1, 2, 2, 3]);
    await service.engine.stop();
  });
}

forEachStore("GET /runs/subscribe holds back the progress of each run by itself", async (context) => {
  const [first, second] = [aScript("first"), aScript("second")];
  await using service = aService({}, context, { first: first.job, second: second.job });
  for (const name of ["first", "second"]) await service.engine.trigger(name, 1);
  const idle = service.engine.runUntilIdle();
  const steps = [await first.begun, await second.begun];
  await using reader = await followList(service);
  await context.host.settle();

  for (const n of [1, 2]) steps[0]!.progress(n);
  for (const n of [11, 12]) steps[1]!.progress(n);
  await pass(context.host, REPORTED_MS);
  const atOnce = progressOf(reader);
  first.end(1);
  await context.host.settle();
  const afterTheFirst = progressOf(reader);
  second.end(1);
  await idle;
  await context.host.settle();

  assert.deepEqual([atOnce, afterTheFirst, progressOf(reader)], [[1, 11], [1, 11, 2], [1, 11, 2, 12]]);
});

forEachStore("event streams show every 15 s that they live", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  const readers = [await follow(service, id), await followList(service)];
  await context.host.settle();

  await pass(context.host, 14_990, 1_000);
  const before = readers.map(({ comments }) => comments.length);
  await pass(context.host, 10);
  const after = readers.map(({ comments }) => comments.length);
  await pass(context.host, 30_000, 1_000);

  assert.deepEqual([before, after], [[0, 0], [1, 1]]);
  assert.deepEqual(readers.map(({ comments, types }) => [comments.length, types]), [[3, []], [3, []]]);
  for (const reader of readers) await reader.leave();
});

forEachStore(
  "limits.maxStreams bounds how many streams are open, and a reader who leaves makes room",
  async (context) => {
    await using service = aService({ limits: { maxStreams: 2 } }, context);
    const { id } = await service.engine.trigger("echo", 1);
    const readers = [await follow(service, id), await followList(service)];

    const refused = [
      await service.ask("GET", `/subscribe?runId=${id}`),
      await service.ask("GET", "/runs/subscribe"),
      await service.ask("GET", "/subscribe?runId=unknown"),
    ];
    await readers[1]!.leave();
    readers.push(await follow(service, id));
    const again = await service.ask("GET", "/runs/subscribe");
    await service.engine.runUntilIdle();
    await Promise.all([readers[0]!.ended, readers[2]!.ended]);
    readers.push(await followList(service), await followList(service));

    assert.deepEqual(refused.map(({ status, body }) => [status, body.code]), [
      [503, "unavailable"],
      [503, "unavailable"],
      [404, "not_found"],
    ]);
    assert.match(refused[0]!.headers.get("retry-after")!, /^[1-9]\d*$/);
    assert.equal(again.status, 503);
    for (const reader of readers) await reader.leave();
  },
);

forEachStore("event streams leave nothing behind when their readers go away", async (context) => {
  const { host } = context;
  const { service, id, step, end } = await aPlay(context);
  await context.host.settle();
  const timers = host.timerCount;
  const readers = [await follow(service, id), await follow(service, id), await followList(service)];
  await host.settle();
  for (const n of [1, 2]) step.progress(n); // the second one is held back
  const whileOpen = host.timerCount;

  for (const reader of readers) await reader.leave();
  step.progress(3);
  await pass(host, 300, 50); // until the worker has kept it

  assert.ok(whileOpen > timers);
  assert.equal(host.timerCount, timers);
  await end();
  await service.engine.stop();
  assert.equal(host.timerCount, 0);
});

forEachStore(
  "event streams leave nothing behind when their readers go away before they were told anything",
  async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("echo", 1);

    for (const path of [`/subscribe?runId=${id}`, "/runs/subscribe"]) {
      const response = await service.handler.fetch(aRequest("GET", path));
      await response.body!.cancel();
    }
    await pass(context.host, 1_000, 50);

    assert.equal(context.host.timerCount, 0);
  },
);

forEachStore(
  "event streams end when the engine stops, and can be opened again when it starts again",
  async (context) => {
    const { host } = context;
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("approval", 1);
    await service.engine.start();
    const before = [await follow(service, id), await followList(service)];
    await host.settle();

    await service.engine.stop();
    await Promise.all(before.map(({ ended }) => ended));
    const timers = host.timerCount;
    await service.engine.start();
    const after = [await follow(service, id), await followList(service)];
    await host.settle();
    await service.engine.cancel(id);
    await after[0]!.ended;
    await service.engine.stop();
    await after[1]!.ended;

    assert.equal(timers, 0);
    assert.deepEqual(after.map(({ types }) => types.at(-1)), ["run:cancel", "run:cancel"]);
    assert.equal(host.timerCount, 0);
  },
);

forEachStore("event streams opened after others were ended unread are streams like any other", async (context) => {
  await using service = aService({}, context);
  const unread = await service.handler.fetch(aRequest("GET", "/runs/subscribe"));
  await service.engine.stop();
  await service.engine.start();
  await using reader = await followList(service);
  await context.host.settle();

  await unread.body!.cancel();
  await using other = await followList(service);
  await service.engine.trigger("approval", 1);
  await context.host.settle();

  assert.deepEqual([reader.types[0], other.types], ["run:trigger", reader.types]);
});

forEachStore("event streams of an engine that has stopped ask the client to come back, and end", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);
  await service.engine.stop();

  const readers = [await follow(service, id), await followList(service)];
  await Promise.all(readers.map(({ ended }) => ended));
  const inProcess = await Array.fromAsync(service.engine.subscribe(id));

  assert.deepEqual(readers.map(({ events, retries }) => [events, retries]), [[[], [1_000]], [[], [1_000]]]);
  assert.deepEqual(inProcess, []);
  assert.equal(context.host.timerCount, 0);
});

forEachStore("stop() closes streams whose readers have not read the end of their run", async (context) => {
  const service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.runUntilIdle();
  const unread = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`));
  await context.host.settle();

  await service.engine.stop();

  assert.equal(service.handler.closeStreams(() => true), 0);
  assert.equal(context.host.timerCount, 0);
  await unread.body!.cancel();
});

forEachStore("event streams that a keep-alive has closed leave no timer behind", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.runUntilIdle();
  const unread = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`));

  await pass(context.host, 60_000, 5_000);

  assert.equal(context.host.timerCount, 0);
  await unread.body!.cancel();
});

forEachStore("GET /runs/subscribe numbers events as the journal does: the same for each reader", async (context) => {
  await using service = aService({}, context);
  const readers = [await followList(service), await followList(service, "?label.org=b")];
  await context.host.settle();

  for (const org of ["a", "b", "b", "b", "a"]) await service.engine.trigger("approval", 1, { labels: { org } });
  await context.host.settle();

  const [all, ofB] = readers.map(({ events }) => events.map(({ sequence }) => sequence));
  assert.deepEqual([all, ofB], [[2, 4, 6, 8, 10], [4, 6, 8]]);
  for (const reader of readers) await reader.leave();
});

forEachStore(
  "GET /subscribe shows progress that was reported a moment before",
  async (context) => {
    const { service, id, step, end } = await aPlay(context);
    step.progress(7);
    await pass(context.host, REPORTED_MS);

    const reader = await follow(service, id);
    await context.host.settle();

    assert.deepEqual(reader.events.flatMap((event) => "progress" in event ? [event.progress] : []), [{ current: 7 }]);
    await end();
    await reader.ended;
    await service.engine.stop();
  },
);

forEachStore("event streams encode an event once, whatever the number of their readers", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", "needle");
  const readers = [];
  for (let n = 0; n < 10; n++) readers.push(await follow(service, id), await followList(service));
  await context.host.settle();
  const { encode } = TextEncoder.prototype;
  const encoded: string[] = [];
  TextEncoder.prototype.encode = function (text) {
    encoded.push(text ?? "");
    return encode.call(this, text);
  };

  try {
    await service.engine.runUntilIdle();
    await context.host.settle();
  } finally {
    TextEncoder.prototype.encode = encode;
  }

  assert.ok(readers.every(({ types }) => types.at(-1) === "run:complete"));
  // Once for those who watch the run, once for those who watch lists.
  assert.equal(encoded.filter((text) => text.includes("needle")).length, 2);
  for (const reader of readers) await reader.leave();
});

forEachStore("GET /subscribe shows all that happens to a run that another engine executes", async (context) => {
  const { host } = context;
  await using here = aService({}, context);
  const there = await aPlay(context);
  await using reader = await follow(here, there.id);
  await pass(host, ELSEWHERE_MS, 50);

  there.step.progress(1);
  there.step.log.info("not persisted");
  await there.step.run("read", () => "rows");
  await pass(host, ELSEWHERE_MS, 50);
  await there.step.run("write", () => "done");
  await pass(host, ELSEWHERE_MS, 50);
  await there.end();
  await pass(host, ELSEWHERE_MS, 50);

  assert.deepEqual(reader.types, [
    "run:leased",
    "run:start",
    "run:progress",
    "log:write",
    "step:start",
    "step:complete",
    "step:start",
    "step:complete",
    "run:complete",
  ]);
  assert.partialDeepStrictEqual(reader.events.slice(2, 8), [
    { progress: { current: 1 } },
    { message: "not persisted", level: "info", data: null },
    { stepName: "read", stepIndex: 0, attempt: 1 },
    { stepName: "read", stepIndex: 0, output: "rows", duration: 0 },
    { stepName: "write", stepIndex: 1, attempt: 1 },
    { stepName: "write", stepIndex: 1, output: "done", duration: 0 },
  ]);
  assert.ok(reader.isEnded);
  await there.service.engine.stop();
});

forEachStore("GET /subscribe shows each pause of a run that another engine executes", async (context) => {
  const { host } = context;
  const twice = defineJob({
    name: "twice",
    input: anything,
    run: async (step) => {
      await step.wait("first");
      await step.wait("second");
    },
  });
  await using here = aService({}, context);
  await using there = aService({}, context, { twice });
  const { id } = await there.engine.trigger("twice", 1);
  await using reader = await follow(here, id);
  await host.settle();

  for (let n = 0; n < 2; n++) {
    await there.engine.runUntilIdle();
    await pass(host, ELSEWHERE_MS, 50);
    await there.engine.signal((await there.engine.getWaits(id))[n]!.id, { signalId: "s", payload: n });
  }
  await there.engine.runUntilIdle();
  await pass(host, ELSEWHERE_MS, 50);

  const execution = ["run:leased", "run:start"];
  assert.deepEqual(reader.types, [
    ...[...execution, "run:waiting"],
    ...[...execution, "run:waiting"],
    ...[...execution, "run:complete"],
  ]);
  const waits = reader.events.filter(({ type }) => type === "run:waiting");
  assert.partialDeepStrictEqual(waits, [{ waitName: "first" }, { waitName: "second" }]);
});

forEachStore("GET /subscribe ends when another engine cancels the run, or deletes it", async (context) => {
  const { host } = context;
  await using here = aService({}, context);
  await using there = aService({}, context);
  const [cancelled, deleted] = [await here.engine.trigger("approval", 1), await here.engine.trigger("approval", 2)];
  await here.engine.runUntilIdle();
  const readers = [await follow(here, cancelled.id), await follow(here, deleted.id)];
  await host.settle();

  await there.engine.cancel(cancelled.id);
  await there.engine.cancel(deleted.id);
  await there.engine.deleteRun(deleted.id);
  await pass(host, ELSEWHERE_MS, 50);

  assert.deepEqual(readers.map(({ types, isEnded }) => [types, isEnded]), [
    [["run:waiting", "run:cancel"], true],
    // Of a run that is gone only that it was deleted.
    [["run:waiting", "run:delete"], true],
  ]);
});

forEachStore(
  "GET /runs/subscribe shows what another engine triggers, executes, cancels and pauses",
  async (context) => {
    const { host } = context;
    await using here = aService({}, context);
    await using there = aService({}, context);
    await using reader = await followList(here, "?label.org=acme");
    await host.settle();
    const labels = { labels: { org: "acme" } };

    await there.engine.trigger("echo", 0);
    const { id } = await there.engine.trigger("approval", 1, labels);
    await pass(host, ELSEWHERE_MS, 50);
    const triggered = [...reader.types];
    await there.engine.runUntilIdle();
    await pass(host, ELSEWHERE_MS, 50);
    const paused = [...reader.types];
    await there.engine.cancel(id);
    const { id: failed } = await there.engine.trigger("fail", 2, labels);
    await there.engine.runUntilIdle();
    await pass(host, 20_000, 200);

    assert.deepEqual(triggered, ["run:trigger"]);
    assert.deepEqual(paused.slice(1), ["run:leased", "run:start", "run:waiting"]);
    assert.deepEqual(reader.types.slice(4), ["run:cancel", "run:trigger", "run:leased", "run:start", "run:fail"]);
    assert.deepEqual(reader.events.map(({ runId }) => runId), [...Array(5).fill(id), ...Array(4).fill(failed)]);
    assert.ok(reader.events.every((event) => !("input" in event)));
  },
);

forEachStore(
  "GET /runs/subscribe tells nothing twice that is triggered here and executed elsewhere",
  async (context) => {
    const { host } = context;
    await using here = aService({}, context);
    await using there = aService({}, context);
    const readers = [await followList(here), await followList(there)];
    await host.settle();

    const { id } = await here.engine.trigger("approval", 1);
    await pass(host, ELSEWHERE_MS, 50);
    await there.engine.runUntilIdle();
    await pass(host, ELSEWHERE_MS, 50);
    await here.engine.cancel(id);
    await pass(host, ELSEWHERE_MS, 50);
    await here.engine.deleteRun(id);
    await pass(host, 20_000, 200);

    const types = ["run:trigger", "run:leased", "run:start", "run:waiting", "run:cancel", "run:delete"];
    assert.deepEqual(readers[0]!.types, types);
    assert.deepEqual(readers[1]!.events, readers[0]!.events);
    for (const reader of readers) await reader.leave();
  },
);

forEachStore("event streams tell nothing twice while both engines trigger and work", async (context) => {
  const { host } = context;
  const services = [aService({}, context), aService({}, context)];
  const lists = await Promise.all(services.map((service) => followList(service)));
  for (const { engine } of services) await engine.start();
  const ids: string[] = [];

  for (let n = 0; n < 30; n++) {
    const { id } = await services[n % 2]!.engine.trigger("echo", n);
    ids.push(id);
    if (n % 5 === 0) await pass(host, 30, 10);
  }
  const single = await Promise.all(services.map((service) => follow(service, ids.at(-1)!)));
  await pass(host, 20_000, 100);

  for (const { events } of lists) {
    const told = events.map(({ type, runId }) => `${runId} ${type}`);
    assert.equal(new Set(told).size, told.length);
    for (const id of ids) assert.ok(told.includes(`${id} run:complete`));
  }
  for (const reader of single) {
    assert.equal(new Set(reader.types).size, reader.types.length);
    assert.ok(reader.isEnded);
  }
  for (const { engine } of services) await engine.stop();
  await Promise.all(lists.map(({ ended }) => ended));
});

forEachStore("event streams of an engine that was never started show what others do", async (context) => {
  const { store, host } = context;
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);
  await using reader = await follow(service, id);
  await using list = await followList(service);
  await host.settle();

  const { lease } = await claimOne(store, "approval");
  await pass(host, ELSEWHERE_MS, 50);
  await store.pause(lease, { pauses: [aPause()], retryAt: null, park: true, reports: [] });
  await pass(host, ELSEWHERE_MS, 50);

  assert.deepEqual(reader.types, ["run:leased", "run:start", "run:waiting"]);
  assert.deepEqual(list.types, ["run:leased", "run:start", "run:waiting"]);
});

/** A server on a real socket. */
function aServer(options: HandlerOptions = {}) {
  const script = aScript();
  const engine = createEngine({ store: new MemoryStore(), jobs: { script: script.job } });
  const handler = createHandler(engine, options);
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  const { port } = server.addr;
  return { ...script, engine, server, port, url: `http://127.0.0.1:${port}` };
}

/** Opens a stream as soon as there is room for it. */
async function openWhenFree(url: string): Promise<Response> {
  while (true) {
    const response = await fetch(url);
    if (response.status === 200) return response;
    await response.body!.cancel();
  }
}

Deno.test("Deno.serve() closes the stream of a client that disconnects", async () => {
  const { engine, server, url } = aServer({ limits: { maxStreams: 1 } });
  const { id } = await engine.trigger("script", 1);

  for (let n = 0; n < 3; n++) {
    const away = new AbortController();
    const response = await fetch(`${url}/subscribe?runId=${id}`, { signal: away.signal });
    assert.equal(response.status, 200);
    away.abort();
    await response.body!.cancel().catch(() => {});
    const next = await openWhenFree(`${url}/runs/subscribe`);
    await next.body!.cancel();
    await openWhenFree(`${url}/runs/subscribe`).then(({ body }) => body!.cancel());
  }

  await engine.stop();
  await server.shutdown();
});

Deno.test("Deno.serve() shuts down after engine.stop(), although clients follow runs", async () => {
  const { engine, server, url, begun, end } = aServer();
  const { id } = await engine.trigger("script", 1);
  await engine.start();
  const step = await begun;
  const readers = [];
  for (const path of [`/subscribe?runId=${id}`, `/subscribe?runId=${id}`, "/runs/subscribe"]) {
    readers.push(new EventReader(await fetch(url + path)));
  }
  step.progress(1);

  const stopping = engine.stop();
  end(1);
  await stopping;
  await server.shutdown();

  await Promise.all(readers.map(({ ended }) => ended));
});

/** A client that asks for a stream, and reads nothing of it until it begins to listen. */
interface Deaf extends AsyncDisposable {
  /** Reads all that was sent: how much it was, and the end of it. */
  listen(): Promise<{ bytes: number; last: string }>;
}

async function connectDeaf(port: number, path: string): Promise<Deaf> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
  await connection.write(new TextEncoder().encode(request));
  return {
    async listen() {
      let bytes = 0;
      let last = "";
      for await (const chunk of connection.readable.pipeThrough(new TextDecoderStream())) {
        bytes += chunk.length;
        last = (last + chunk).slice(-10_000);
      }
      return { bytes, last };
    },
    [Symbol.asyncDispose]() {
      try {
        connection.close();
      } catch {
        // It was read to its end.
      }
      return Promise.resolve();
    },
  };
}

Deno.test("Deno.serve() leaves out progress that a client does not read in time", async () => {
  const { engine, server, url, port, begun, end } = aServer({ sseThrottleMs: 0 });
  const { id } = await engine.trigger("script", 1);
  const idle = engine.runUntilIdle();
  const step = await begun;
  await using deaf = await connectDeaf(port, `/subscribe?runId=${id}`);
  const reader = new EventReader(await fetch(`${url}/subscribe?runId=${id}`));
  const message = "x".repeat(900);

  for (let n = 1; n <= 20_000; n++) {
    step.progress(n, 20_000, message);
    if (n % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  end("done");
  await idle;
  await reader.ended;
  const { bytes, last } = await deaf.listen();

  // All of it would be 20 MB. Some of that is in the buffers of the sockets.
  assert.ok(bytes < 12_000_000, `${bytes} bytes`);
  assert.match(last, /"current":20000,.*"type":"run:complete"/s);
  assert.equal(progressOf(reader).at(-1), 20_000);
  await engine.stop();
  await server.shutdown();
});

Deno.test("Deno.serve() closes the stream of a client that never reads what cannot be left out", async () => {
  const { engine, server, url, port, begun, end } = aServer({ limits: { maxStreams: 1 } });
  const { id } = await engine.trigger("script", 1);
  const idle = engine.runUntilIdle();
  const step = await begun;
  const deaf = await connectDeaf(port, `/subscribe?runId=${id}`);
  for (let status = 200; status === 200;) { // until the stream is open
    const response = await fetch(`${url}/runs/subscribe`);
    ({ status } = response);
    await response.body!.cancel();
  }
  const message = "x".repeat(10_000);

  let open: Response | null = null;
  while (open === null) {
    for (let n = 0; n < 100; n++) step.log.info(message);
    const response = await fetch(`${url}/runs/subscribe`);
    if (response.status === 200) open = response;
    else await response.body!.cancel();
  }

  await open.body!.cancel();
  end("done");
  await idle;
  await engine.stop();
  await deaf[Symbol.asyncDispose](); // what its socket has not taken would keep the server from shutting down
  await server.shutdown();
});

forEachStore("numbers rise in a stream although progress was held back", async (context) => {
  const { service, id, step, end } = await aPlay(context, { sseThrottleMs: 1_000 });
  const readers = [await follow(service, id), await followList(service)];
  await context.host.settle();

  for (let n = 1; n <= 6; n++) {
    step.progress(n);
    await step.run(`step ${n}`, () => n);
    await pass(context.host, 400, 50);
  }
  await end();

  for (const { events } of readers) {
    const numbers = events.map(({ sequence }) => sequence);
    assert.deepEqual(numbers, [...new Set(numbers)].toSorted((left, right) => left - right));
  }
  assert.deepEqual(progressOf(readers[0]!), [1, 3, 5, 6]);
  assert.ok(readers[0]!.types.lastIndexOf("run:progress") > readers[0]!.types.lastIndexOf("step:complete"));
  await readers[1]!.leave();
  await service.engine.stop();
});
