import assert from "node:assert/strict";
import type { HandlerOptions } from "../../src/http/handler_options.ts";
import { type RouteFunctions, routes } from "../../src/http/routes.ts";
import { forEachStore, recordEvents } from "../support/stores/for_each_store.ts";
import { aRequest, aService, askFunction } from "../support/http/http.ts";

const all = Object.entries(routes) as [keyof RouteFunctions, typeof routes["run"]][];

Deno.test("createHandler() has a function for each route, the two that route, and closeStreams()", async () => {
  await using service = aService();

  assert.deepEqual(
    Object.keys(service.handler).sort(),
    [
      ...["trigger", "subscribe", "stream", "streams", "runs", "run", "steps", "waits", "wait", "signal", "logs"],
      ...["send", "messages", "tick"],
      ...["runsCancel", "runsRetrigger", "runsResume", "runsDelete"],
      ...["stats", "series", "jobs", "jobsPause", "jobsResume", "workers", "health", "healthLive", "metrics"],
      ...["explain", "timeline", "children", "failure", "waitsOpen", "failures", "held", "find"],
      "openapi",
      ...["schedules", "schedulesPause", "schedulesResume", "schedulesTrigger"],
      ...["runsSubscribe", "retrigger", "retry", "cancel", "resume", "delete", "fetch", "handle", "closeStreams"],
    ].sort(),
  );
});

Deno.test("fetch() needs no `this`, and ignores what else a server hands it", async () => {
  await using service = aService();
  const fetch: (request: Request, info: unknown) => Promise<Response> = service.handler.fetch;

  const response = await fetch(aRequest("GET", "/runs"), { remoteAddr: {} });

  assert.equal(response.status, 200);
  assert.deepEqual(await response.json(), { runs: [], total: 0, hasMore: false });
});

Deno.test("handle() takes the prefix with the request", async () => {
  await using service = aService({ basePath: "/elsewhere" });

  const here = await service.handler.handle(aRequest("GET", "/mount/runs"), "/mount");
  const elsewhere = await service.handler.handle(aRequest("GET", "/elsewhere/runs"), "/mount");

  assert.deepEqual([here.status, elsewhere.status], [200, 404]);
});

const MATCHING: [basePath: string, path: string][] = [
  ["", "/runs"],
  ["/", "/runs"],
  ["/api", "/api/runs"],
  ["/api/", "/api/runs"],
  ["/api/v1/jobs", "/api/v1/jobs/runs"],
  ["/my jobs/büro", "/my%20jobs/b%C3%BCro/runs"],
  ["/runs", "/runs/runs"],
  ["/api", "/x/../api/runs"],
  ["/api", "/api\\runs"],
  ["/api", "/api/runs?limit=1#/nowhere"],
];

for (const [basePath, path] of MATCHING) {
  Deno.test(`fetch() under "${basePath}" serves ${path}`, async () => {
    await using service = aService({ basePath });

    assert.equal((await service.ask("GET", path)).status, 200);
  });
}

const NOT_MATCHING: [basePath: string, path: string][] = [
  ["", "/"],
  ["", "/nowhere"],
  ["", "/runs/"],
  ["", "//runs"],
  ["", "/RUNS"],
  ["", "/%72uns"],
  ["", "/runs%00"],
  ["", "/runs%2Fsubscribe"],
  ["", "/runs/subscribe/"],
  ["", "/__proto__"],
  ["", "/constructor"],
  ["", "/delete"],
  ["/api", "/"],
  ["/api", "/api"],
  ["/api", "/api/"],
  ["/api", "/runs"],
  ["/api", "/apix/runs"],
  ["/api", "/apiruns"],
  ["/api", "/runs/api"],
  ["/api", "/r/apiuns"],
  ["/api", "/x/api/runs"],
  ["/api", "/api/api/runs"],
  ["/api", "/API/runs"],
  ["/api", "/api//runs"],
  ["/api", "/api/runs/"],
  ["/api", "/api/../runs"],
  ["/api", "/api%2Fruns"],
  ["/api", "//evil/api/runs"],
];

for (const [basePath, path] of NOT_MATCHING) {
  Deno.test(`fetch() under "${basePath}" knows no ${path}`, async () => {
    await using service = aService({ basePath });

    const { status, body } = await service.ask("GET", path);

    assert.deepEqual([status, body.code], [404, "not_found"]);
  });
}

Deno.test("fetch() trusts no host that a request names", async () => {
  await using service = aService({ basePath: "/api" });

  const response = await service.handler.fetch(new Request("http://evil.example/api/runs"));
  await response.body!.cancel();

  assert.equal(response.status, 200);
});

for (const [name, { method, path, part, hasHead }] of all) {
  // Load balancers ask with HEAD for what a host can open, and readers of a stream for its end.
  const methods = part === undefined && hasHead !== true ? [method] : [method, "HEAD"];
  const allowed = [
    ...all.filter(([, route]) => route.path === path).map(([, route]) => route.method),
    ...methods.slice(1),
  ];
  const others = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"];

  Deno.test(`fetch() answers 405 and what is allowed to other methods of ${path} than ${allowed}`, async () => {
    await using service = aService();
    const wrong = others.filter((other) => !allowed.includes(other));

    const answers = await Promise.all(wrong.map((other) => service.ask(other, path)));

    for (const { status, headers, body } of answers) {
      assert.deepEqual([status, headers.get("allow"), body.code], [405, allowed.join(", "), "method_not_allowed"]);
    }
  });

  Deno.test(`${name}() answers 405 to other methods than ${methods}, whatever the path`, async () => {
    await using service = aService();
    const wrong = others.filter((other) => !methods.includes(other));

    const answers = await Promise.all(wrong.map((other) => askFunction(service.handler[name], other, "/anything")));

    for (const { status, headers } of answers) {
      assert.deepEqual([status, headers.get("allow")], [405, methods.join(", ")]);
    }
  });
}

forEachStore("the functions of a handler ignore the path, and do what their routes do", async (context) => {
  await using service = aService({ basePath: "/api" }, context);
  const { trigger, run, runs, steps, waits, wait, signal, logs, retrigger, retry, cancel, delete: remove } =
    service.handler;
  const get = (respond: typeof run, query: string) => askFunction(respond, "GET", `/elsewhere?${query}`);
  const post = (respond: typeof run, query: string, body?: Record<string, unknown>) =>
    askFunction(respond, "POST", `/?${query}`, body === undefined ? {} : { body });

  const triggered = await post(trigger, "", { jobName: "approval", input: {} });
  await service.engine.runUntilIdle();
  const runId = `runId=${triggered.body.runId}`;
  const waiting = await get(waits, runId);
  const both = `${runId}&waitId=${waiting.body[0].id}`;
  const answers = [
    await get(run, runId),
    await get(runs, ""),
    await get(steps, runId),
    await get(wait, both),
    await get(logs, runId),
    await post(signal, both, { signalId: "s", payload: 1 }),
    await post(cancel, runId),
    await post(retrigger, runId),
    await post(retry, runId),
    await askFunction(remove, "DELETE", `/?${runId}`),
  ];

  assert.deepEqual(answers.map(({ status }) => status), Array(10).fill(200));
  assert.equal(answers[1]!.body.total, 1);
  assert.equal(answers[8]!.body.runId, answers[7]!.body.runId);
  assert.equal((await service.engine.getRuns()).total, 1);
});

Deno.test("fetch() looks at the origin, then calls onRequest, then looks at path, method and parameters", async () => {
  let calls = 0;
  await using service = aService({ onRequest: () => ++calls });
  const foreign = { headers: { "sec-fetch-site": "cross-site" } };

  const statuses = [
    (await service.ask("POST", "/nowhere", foreign)).status,
    (await service.ask("POST", "/run", foreign)).status,
  ];
  const callsForForeign = calls;
  statuses.push((await service.ask("GET", "/nowhere")).status);
  statuses.push((await service.ask("POST", "/run")).status);
  statuses.push((await service.ask("GET", "/run")).status);

  assert.deepEqual(statuses, [403, 403, 404, 405, 400]);
  assert.deepEqual([callsForForeign, calls], [0, 3]);
});

Deno.test("fetch() looks at parameters and body, then at the run, the job, the input and the state", async () => {
  await using service = aService();
  const { id } = await service.engine.trigger("approval", {});
  const ask = async (method: string, path: string, body?: Record<string, unknown>) =>
    (await service.ask(method, path, body === undefined ? {} : { body })).status;

  const statuses = {
    body: await ask("POST", "/trigger", { jobName: "unknown", input: {}, labels: { "a b": "c" } }),
    coalesce: await ask("POST", "/trigger", { jobName: "unknown", input: {}, coalesce: "skip" }),
    job: await ask("POST", "/trigger", { jobName: "unknown", input: {} }),
    signalBody: await ask("POST", "/signal?runId=unknown&waitId=unknown", { signalId: "" }),
    signalParameter: await ask("POST", "/signal?runId=unknown", { signalId: "s", payload: 1 }),
    signalRun: await ask("POST", "/signal?runId=unknown&waitId=unknown", { signalId: "s", payload: 1 }),
    waitParameter: await ask("GET", "/wait?runId=unknown"),
    from: await ask("POST", "/retrigger?runId=unknown&from=middle"),
    retrigger: await ask("POST", `/retrigger?runId=${id}`),
  };

  assert.deepEqual(statuses, {
    body: 400,
    coalesce: 400,
    job: 404,
    signalBody: 400,
    signalParameter: 400,
    signalRun: 404,
    waitParameter: 400,
    from: 400,
    retrigger: 409,
  });
});

for (const kind of ["sync", "async"]) {
  Deno.test(`fetch() waits for an onRequest that is ${kind}, before each request`, async () => {
    const told: string[] = [];
    const onRequest = kind === "sync" ? () => void told.push("ready") : async () => {
      await Promise.resolve();
      told.push("ready");
    };
    await using service = aService({ onRequest });

    await service.ask("GET", "/runs");
    await service.ask("GET", "/nowhere");

    assert.deepEqual(told, ["ready", "ready"]);
  });
}

Deno.test("fetch() answers 400 to a URL that cannot be parsed, before any hook could try to", async () => {
  await using service = aService({
    auth: { authenticate: ({ url }) => new URL(url), onRunAccess: () => {}, scopeRuns: (_url, filter) => filter },
  });
  const request = Object.defineProperty(aRequest("GET", "/runs"), "url", { value: "http://a b/runs" });

  const response = await service.handler.fetch(request);

  assert.equal(response.status, 400);
  assert.equal((await response.json()).code, "invalid_request");
});

const THROWN: Record<string, unknown> = {
  "an Error": new Error("password=hunter2"),
  "a text": "password=hunter2",
  "undefined": undefined,
  "null": null,
  "a proxy that throws": new Proxy({}, {
    get: () => {
      throw new Error("trap");
    },
    getPrototypeOf: () => {
      throw new Error("trap");
    },
  }),
};

for (const [what, thrown] of Object.entries(THROWN)) {
  for (const kind of ["throws", "rejects with"]) {
    Deno.test(`fetch() answers 500 and tells onError if onRequest ${kind} ${what}`, async () => {
      const heard: unknown[][] = [];
      await using service = aService({
        onRequest: () => {
          if (kind === "throws") throw thrown;
          return Promise.reject(thrown);
        },
        onError: (...told) => heard.push(told),
      });
      const request = aRequest("POST", "/trigger", { body: { jobName: "echo", input: {} } });

      const response = await service.handler.fetch(request);

      assert.equal(response.status, 500);
      assert.equal(await response.text(), '{"error":"Internal error","code":"internal"}');
      assert.equal(heard.length, 1);
      assert.ok(heard[0]![0] === thrown && heard[0]![1] === request);
      assert.equal((await service.engine.getRuns()).total, 0);
    });
  }
}

const BAD_HEARERS: Record<string, HandlerOptions["onError"]> = {
  throws: () => {
    throw new Error("cannot hear");
  },
  rejects: () => Promise.reject(new Error("cannot hear")),
  "never settles": () => new Promise(() => {}),
};

for (const [what, onError] of Object.entries(BAD_HEARERS)) {
  Deno.test(`fetch() answers all the same if onError ${what}`, async () => {
    await using service = aService({ onError, onRequest: () => Promise.reject(new Error("broken")) });
    using _quiet = silence();

    const { status, body } = await service.ask("GET", "/runs");

    assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
  });
}

Deno.test("fetch() prints what it hides if nobody else wants to hear it", async () => {
  await using service = aService({ onRequest: () => Promise.reject(new Error("broken")) });
  using quiet = silence();

  await service.ask("GET", "/runs");

  assert.match(quiet.lines.join(), /A request failed:.*broken/);
});

Deno.test("fetch() answers 500 to whatever else goes wrong", async () => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => heard.push(error) });
  const { fetch } = service.handler as unknown as { fetch: (request: unknown) => Promise<Response> };

  const responses = await Promise.all([undefined, null, {}, 1].map((request) => fetch(request)));

  assert.deepEqual(responses.map(({ status }) => status), [500, 500, 400, 400]);
  assert.equal(heard.length, 2);
});

forEachStore("fetch() serves an engine that changes nothing but what it is asked for", async (context) => {
  await using service = aService({}, context);
  const events = recordEvents(service.engine);

  for (const [, { path }] of all) {
    if (!path.endsWith("/subscribe")) await service.ask("GET", path);
  }

  assert.deepEqual(events, []);
});

/** Keeps what is printed as an error. */
function silence(): { lines: string[] } & Disposable {
  const lines: string[] = [];
  const { error } = console;
  console.error = (...words) => void lines.push(words.map(String).join(" "));
  return { lines, [Symbol.dispose]: () => void (console.error = error) };
}
