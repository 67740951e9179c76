import assert from "node:assert/strict";
import { StoreError } from "../../../src/model/error.ts";
import type { Store } from "../../../src/store/store.ts";
import type { RunState } from "../../../src/store/run_query.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../../support/fake_host.ts";
import { withCalls } from "../../support/stores/with_calls.ts";
import { claimOne, forEachStore, pass, recordEvents } from "../../support/stores/for_each_store.ts";
import { aRequest, aService, type Service } from "../../support/http/http.ts";
import { aJob, aScript } from "../../support/jobs.ts";
import { aPlay, follow, followList, progressOf, recordEncoded, REPORTED_MS } from "../../support/http/streams.ts";

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

forEachStore("GET /subscribe begins with the state of a running run, with its latest progress", async (context) => {
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

forEachStore("GET /subscribe begins with the state of a leased run", async ({ store, host }) => {
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

forEachStore("GET /subscribe begins with the state of a waiting run", async (context) => {
  const nap = aJob((step) => step.sleep("rest", 5_000), "nap");
  const retry = aJob((step) =>
    step.run("send", () => {
      throw new Error("not now");
    }, { retry: { maxAttempts: 2, delay: 60_000 } }), "retry");
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
  const failing = aJob((step) => step.run("read", () => Promise.reject(thrown)), "failing");
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
    assert.deepEqual(Object.keys(triggered!).sort(), [
      "by",
      "jobName",
      "labels",
      "parentRunId",
      "runId",
      "scheduleName",
      "sequence",
      "slotAt",
      "startAt",
      "timestamp",
      "type",
    ]);
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

Deno.test("GET /runs/subscribe answers when it knows from where on it tells", async () => {
  const host = new FakeHost();
  const known = Promise.withResolvers<void>();
  const memory = new MemoryStore({ host });
  const store = withCalls(memory, {
    findCursor: async (cursor) => {
      await known.promise; // as a database on another machine
      return await memory.findCursor(cursor);
    },
  });
  await using service = aService({}, { store, host });
  let isAnswered = false;
  const following = followList(service).finally(() => isAnswered = true);
  await host.settle();

  const before = isAnswered;
  known.resolve();
  await using reader = await following;
  await service.engine.trigger("echo", 1);
  await host.settle();

  assert.equal(before, false);
  assert.deepEqual(reader.types, ["run:trigger"]);
});

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

forEachStore("GET /runs/subscribe numbers events as the journal does: the same for each reader", async (context) => {
  await using service = aService({}, context);
  const readers = [await followList(service), await followList(service, "?label.org=b")];
  await context.host.settle();

  for (const org of ["a", "b", "b", "b", "a"]) await service.engine.trigger("approval", 1, { labels: { org } });
  await context.host.settle();

  const [all, ofB] = readers.map(({ events }) => events.map(({ sequence }) => sequence));
  assert.equal(all!.length, 5);
  assert.deepEqual(all, all!.toSorted((a, b) => a - b));
  assert.deepEqual(ofB, all!.slice(1, 4));
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

  const encoded = await recordEncoded(async () => {
    await service.engine.runUntilIdle();
    await context.host.settle();
  });

  assert.ok(readers.every(({ types }) => types.at(-1) === "run:complete"));
  // Once for those who watch the run, once for those who watch lists.
  assert.equal(encoded.filter((text) => text.includes("needle")).length, 2);
  for (const reader of readers) await reader.leave();
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
