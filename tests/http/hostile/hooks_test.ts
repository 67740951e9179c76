import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import type { Run } from "../../../src/model/run.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aGuardedService, aStreamedRequest, bytesOf, provoke, SIGNAL } from "../../support/http/hostile.ts";
import { type Asked, aWaitingRun } from "../../support/http/http.ts";

for (const what of ["reads the body", "takes the body for itself"]) {
  Deno.test(`fetch() answers 500, and does nothing, if authenticate ${what}`, async () => {
    await using service = aGuardedService({
      authenticate: what === "reads the body" ? (request) => request.text() : (request) => request.body?.getReader(),
    });
    const { waitId, query } = await aWaitingRun(service);

    const answers = [
      await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } }),
      await service.ask("POST", `/signal?${query}`, { body: SIGNAL }),
    ];
    const read = await service.ask("GET", `/run?${query}`);
    const cancelled = await service.ask("POST", `/cancel?${query}`, { body: "unread" });

    for (const { status, body } of answers) {
      assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
    }
    assert.deepEqual([read.status, cancelled.status, service.heard.length], [200, 200, 2]);
    assert.equal((await service.engine.getWait(waitId))!.status, "cancelled");
    assert.equal((await service.engine.getRuns()).total, 1);
  });
}

Deno.test("authenticate may read a copy of the request, and the handler still reads the body", async () => {
  const seen: string[] = [];
  await using service = aGuardedService(
    {
      authenticate: async (request) => {
        if (request.method === "POST") seen.push(await request.clone().text());
      },
    },
    undefined,
    {},
    { limits: { maxBodyBytes: 100 } },
  );
  const { query } = await aWaitingRun(service);
  const fits = '{"jobName":"echo","input":{"n":1}}';
  const tooLarge = `{"jobName":"echo","input":{"n":"${"x".repeat(100)}"}}`;

  const answers = [
    await provoke(service, "POST", "/trigger", { body: fits }),
    await provoke(service, "POST", `/signal?${query}`, { body: SIGNAL }),
    await provoke(service, "POST", "/trigger", { body: tooLarge }),
    await provoke(service, "POST", "/trigger", { body: "{" }),
  ];

  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 413, 400]);
  assert.deepEqual(seen, [fits, SIGNAL, tooLarge, "{"]);
});

Deno.test("a client who leaves while authenticate reads a copy of the body harms nobody", async () => {
  await using service = aGuardedService({ authenticate: (request) => request.clone().text() });
  const broken = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(bytesOf("{")),
    pull: (controller) => controller.error(new TypeError("connection reset")),
  });

  const response = await service.handler.fetch(aStreamedRequest("/trigger", broken));
  const text = await response.text();
  await service.host.settle();

  assert.deepEqual(Object.keys(JSON.parse(text)), ["error", "code"]);
  assert.doesNotMatch(text, /reset/);
  assert.equal((await service.engine.getRuns()).total, 0);
});

const MEDDLING: Record<string, Partial<HandlerAuth<unknown>>> = {
  "onTrigger adds to the input": { onTrigger: (_context, { input }) => ((input as { n: number }).n = 2) },
  "onTrigger changes what is deep in the input": {
    onTrigger: (_context, { input }) => ((input as { list: unknown[] }).list.push("more")),
  },
  "onTrigger changes a label": {
    onTrigger: (_context, { labels }) => ((labels as Record<string, string>).org = "b"),
  },
  "onTrigger names another job": {
    onTrigger: (_context, trigger) => ((trigger as { jobName: string }).jobName = "fail"),
  },
  "onRunAccess changes the status": { onRunAccess: (_context, run) => ((run as Run).status = "completed") },
  "onRunAccess changes the input": {
    onRunAccess: (_context, run) => ((run.payload as { n: number }).n = 2),
  },
  "onRunAccess changes the operation": {
    onRunAccess: (_context, _run, access) => ((access as { operation: string }).operation = "delete"),
  },
  "onSignal changes the payload": {
    onSignal: (_context, _run, _wait, { payload }) => ((payload as { n: number }).n = 2),
  },
  "onSignal changes the wait": {
    onSignal: (_context, _run, wait) => ((wait as { status: string }).status = "resolved"),
  },
};

for (const [what, given] of Object.entries(MEDDLING)) {
  forEachStore(`fetch() answers 500, and changes nothing, if ${what}`, async (context) => {
    await using service = aGuardedService(given, context);
    const { id } = await service.engine.trigger("approval", { n: 1 }, { labels: { org: "a" } });
    await service.engine.runUntilIdle();
    const [wait] = await service.engine.getWaits(id);
    const before = await service.engine.getRun(id);
    const [hook] = Object.keys(given);
    const asked: Record<string, [method: string, path: string, asked?: Asked]> = {
      onTrigger: ["POST", "/trigger", {
        body: { jobName: "echo", input: { n: 1, list: [{}] }, labels: { org: "a" } },
      }],
      onRunAccess: ["POST", `/cancel?runId=${id}`],
      onSignal: ["POST", `/signal?runId=${id}&waitId=${wait!.id}`, { body: { signalId: "s", payload: { n: 1 } } }],
    };

    const { status, body } = await service.ask(...asked[hook!]!);

    assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
    assert.ok(service.heard[0] instanceof TypeError);
    assert.deepEqual(await service.engine.getRun(id), before);
    assert.equal((await service.engine.getWait(wait!.id))!.status, "pending");
    assert.equal((await service.engine.getRuns()).total, 1);
  });
}

Deno.test("what is stored is what was asked for, though a hook meddles in silence, at once or later", async () => {
  const meddle = (value: unknown) => {
    for (const key of ["n", "org", "jobName", "payload", "input", "labels"]) Reflect.set(value as object, key, "evil");
  };
  const given: unknown[] = [];
  const keep = (...values: unknown[]) => {
    given.push(...values);
    values.forEach(meddle);
  };
  await using service = aGuardedService({
    onTrigger: (_context, trigger) => keep(trigger, trigger.input, trigger.labels),
    onSignal: (_context, run, wait, signal) => keep(run, run.labels, wait, signal, signal.payload),
  });
  const { waitId, query } = await aWaitingRun(service);

  const { body } = await provoke(service, "POST", "/trigger", {
    body: { jobName: "echo", input: { n: 1 }, labels: { org: "a" } },
  });
  await provoke(service, "POST", `/signal?${query}`, { body: { signalId: "s", payload: { n: 1 } } });
  given.forEach(meddle);
  await service.engine.runUntilIdle();

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual([run.jobName, run.payload, run.output, run.labels], ["echo", { n: 1 }, { n: 1 }, { org: "a" }]);
  assert.deepEqual((await service.engine.getWait(waitId))!.payload, { n: 1 });
});

/** Responses that cannot be sent, made anew: each can be used up once. */
const UNSENDABLE: Record<string, () => Promise<Response>> = {
  "was read": async () => {
    const response = new Response("once");
    await response.text();
    return response;
  },
  "is being read": () => {
    const response = new Response("once");
    response.body!.getReader();
    return Promise.resolve(response);
  },
  "is an error": () => Promise.resolve(Response.error()),
};

for (
  const hook of ["authenticate", "onTrigger", "onRunAccess", "onSignal", "scopeRuns", "scopeRunsSubscribe"] as const
) {
  for (const [what, make] of Object.entries(UNSENDABLE)) {
    Deno.test(`fetch() answers 500 if ${hook} throws a Response that ${what}`, async () => {
      const thrown = await make();
      await using service = aGuardedService({ [hook]: () => Promise.reject(thrown) });
      const { query } = await aWaitingRun(service);
      const asked: Record<typeof hook, [method: string, path: string, asked?: Asked]> = {
        authenticate: ["GET", "/nowhere"],
        onTrigger: ["POST", "/trigger", { body: { jobName: "echo", input: {} } }],
        onRunAccess: ["GET", `/steps?${query}`],
        onSignal: ["POST", `/signal?${query}`, { body: SIGNAL }],
        scopeRuns: ["GET", "/runs"],
        scopeRunsSubscribe: ["GET", "/runs/subscribe"],
      };

      const { status, body } = await service.ask(...asked[hook]);

      assert.deepEqual([status, body.code], [500, "internal"]);
      assert.match(String(service.heard[0]), /cannot be sent/);
      assert.equal((await service.engine.getRuns()).total, 1);
    });
  }
}

const CONTEXTS: Record<string, unknown> = {
  "a proxy that throws": new Proxy({}, {
    get: (_target, name) => {
      if (name === "then") return undefined;
      throw new Error("trap");
    },
    getPrototypeOf: () => {
      throw new Error("trap");
    },
  }),
  "an object without a prototype": Object.create(null),
  "a function": () => {},
  "a symbol": Symbol("context"),
};

for (const [what, context] of Object.entries(CONTEXTS)) {
  Deno.test(`authenticate may answer ${what}, and every hook is given it`, async () => {
    const seen: unknown[] = [];
    await using service = aGuardedService({
      authenticate: () => context,
      onRunAccess: (given) => seen.push(given),
      scopeRuns: (given, filter) => {
        seen.push(given);
        return filter;
      },
    });
    const { id } = await service.engine.trigger("echo", {});

    const answers = [await provoke(service, "GET", `/run?runId=${id}`), await provoke(service, "GET", "/runs")];

    assert.deepEqual(answers.map(({ status }) => status), [200, 200]);
    assert.ok(seen.length === 2 && seen.every((given) => given === context));
  });
}
