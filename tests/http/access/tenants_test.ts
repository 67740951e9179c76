import assert from "node:assert/strict";
import { inspect } from "node:util";
import { TimeoutError } from "../../../src/error.ts";
import type { HandlerAuth, RunOperation } from "../../../src/http/access/auth_hooks.ts";
import type { Handler } from "../../../src/http/handler.ts";
import type { RouteFunctions } from "../../../src/http/route.ts";
import { routes } from "../../../src/http/routes.ts";
import { defineJob } from "../../../src/job.ts";
import type { Run } from "../../../src/run.ts";
import { forEachStore, forever, recordEvents, type StoreTest } from "../../support/for_each_store.ts";
import { aRequest, type Asked, type Service } from "../../support/http.ts";
import {
  aRefusal,
  aTenantRun,
  aTenantService,
  contentsOf,
  sightOf,
  STATUSES,
  type TenantRun,
  tenantRuns,
  type TenantStatus,
  UNKNOWN,
} from "../../support/tenants.ts";
import { CAREFUL, CONTEXTS, type Way, WAYS } from "../../support/tenant_hooks.ts";

type RouteName = keyof RouteFunctions;
type HookName = Exclude<keyof HandlerAuth<unknown>, "authenticate" | "open">;

/** Which hook guards a route, and what it takes to be let do what the route does. */
type RouteCase =
  | { hook: "onRunAccess"; operation: RunOperation; works: TenantStatus; body?: Record<string, unknown> }
  | { hook: "onOperate"; query?: string; body?: Record<string, unknown> }
  | { hook: "onTrigger" | "scopeRuns" | "scopeRunsSubscribe"; query?: string; body?: Record<string, unknown> };

const CASES: { readonly [Name in RouteName]: RouteCase } = {
  trigger: { hook: "onTrigger", body: { jobName: "echo", input: {}, labels: { org: "b" } } },
  subscribe: { hook: "onRunAccess", operation: "subscribe", works: "completed" },
  runs: { hook: "scopeRuns" },
  run: { hook: "onRunAccess", operation: "read", works: "failed" },
  steps: { hook: "onRunAccess", operation: "steps", works: "completed" },
  waits: { hook: "onRunAccess", operation: "waits", works: "waiting" },
  wait: { hook: "onRunAccess", operation: "waits", works: "waiting" },
  signal: { hook: "onRunAccess", operation: "signal", works: "waiting", body: { signalId: "s", payload: 1 } },
  logs: { hook: "onRunAccess", operation: "read", works: "completed" },
  runsSubscribe: { hook: "scopeRunsSubscribe" },
  retrigger: { hook: "onRunAccess", operation: "retrigger", works: "completed" },
  retry: { hook: "onRunAccess", operation: "retrigger", works: "failed" },
  cancel: { hook: "onRunAccess", operation: "cancel", works: "pending" },
  resume: { hook: "onRunAccess", operation: "resume", works: "held" },
  delete: { hook: "onRunAccess", operation: "delete", works: "cancelled" },
  explain: { hook: "onRunAccess", operation: "read", works: "completed" },
  timeline: { hook: "onRunAccess", operation: "steps", works: "failed" },
  failure: { hook: "onOperate", query: `?runId=${UNKNOWN}` },
  waitsOpen: { hook: "scopeRuns" },
  failures: { hook: "scopeRuns" },
  find: { hook: "scopeRuns", query: "?q=org%3Da" },
  runsCancel: { hook: "onOperate", body: { filter: { jobName: "echo" } } },
  runsRetrigger: { hook: "onOperate", body: { filter: { jobName: "echo" } } },
  runsDelete: { hook: "onOperate", body: { filter: { jobName: "echo" } } },
  stats: { hook: "onOperate" },
  series: { hook: "onOperate", query: "?window=1h&jobName=echo" },
  jobs: { hook: "onOperate" },
  jobsPause: { hook: "onOperate", query: "?jobName=echo", body: { note: "stop" } },
  jobsResume: { hook: "onOperate", query: "?jobName=echo" },
  workers: { hook: "onOperate" },
  health: { hook: "onOperate" },
  healthLive: { hook: "onOperate" },
  metrics: { hook: "onOperate" },
  schedules: { hook: "onOperate" },
  schedulesPause: { hook: "onOperate", query: "?name=nightly" },
  schedulesResume: { hook: "onOperate", query: "?name=nightly" },
  schedulesTrigger: { hook: "onOperate", query: "?name=nightly" },
  openapi: { hook: "onOperate" },
};

// From `routes`, so that none is left out.
const NAMES = Object.keys(routes) as RouteName[];
const RUN_ROUTES = NAMES.flatMap((name) => {
  const route = CASES[name];
  return route.hook === "onRunAccess" ? [{ name, ...route }] : [];
});

const NOBODY: TenantRun = { runId: UNKNOWN, waitId: UNKNOWN };

/** Asks for a route: by its path, or the function of the handler. */
function askRoute(handler: Handler, name: RouteName, way: Way, run = NOBODY, headers = {}): Promise<Response> {
  const { method, path } = routes[name];
  const route = CASES[name];
  const { body } = route;
  const query = route.hook === "onRunAccess" ? `?runId=${run.runId}&waitId=${run.waitId}` : route.query ?? "";
  const asked: Asked = body === undefined ? { headers } : { headers, body };
  return way === "by its path"
    ? handler.fetch(aRequest(method, `${path}${query}`, asked))
    : handler[name](aRequest(method, `/anywhere${query}`, asked));
}

/** Each of some routes, asked for in each way under each context, with a text that says which it is. */
function* eachWay<Route extends { name: RouteName }>(routesToAsk: readonly Route[]) {
  for (const context of CONTEXTS) {
    for (const route of routesToAsk) {
      for (const way of WAYS) yield { context, route, way, which: `${route.name} ${way}, ${inspect(context)}` };
    }
  }
}

/** What every one of these tests starts from: A has a run in each status, and nothing more must happen. */
async function aWorldOfA(service: Service, { store, host }: StoreTest) {
  const runs = await tenantRuns(service, store, "a");
  const events = recordEvents(service.engine);
  const before = await contentsOf(store);
  const timersBefore = host.timerCount;
  return {
    runs,
    async assertUntouched(which: string): Promise<void> {
      assert.equal(await contentsOf(store), before, which);
      assert.deepEqual(events, [], which);
      assert.equal(host.timerCount, timersBefore, `${which}: a stream is open`);
    },
  };
}

forEachStore("onRunAccess() answers for a run that it refuses, and nothing happens to the run", async (world) => {
  let context: unknown;
  let refusal: Response | null = null;
  let asked: [context: unknown, run: Run, operation: RunOperation][] = [];
  let isSync = false;
  await using service = aTenantService({
    auth: {
      authenticate: () => context,
      onRunAccess: (context, run, { operation }) => {
        asked.push([context, run, operation]);
        refusal = aRefusal();
        isSync = !isSync;
        if (isSync) throw refusal;
        return Promise.reject(refusal);
      },
    },
  }, world);
  const { runs, assertUntouched } = await aWorldOfA(service, world);
  const expected = await sightOf(aRefusal());

  for (const { context: returned, route: { name, operation }, way, which } of eachWay(RUN_ROUTES)) {
    context = returned;
    for (const status of STATUSES) {
      asked = [];

      const response = await askRoute(service.handler, name, way, runs[status]);

      const at = `${which}, ${status}`;
      assert.ok(response === refusal, at);
      assert.deepEqual(await sightOf(response), expected, at);
      assert.equal(asked.length, 1, at);
      assert.ok(Object.is(asked[0]![0], context), at);
      assert.deepEqual(asked[0]!.slice(1), [await world.store.getRun(runs[status].runId), operation], at);
    }
    await assertUntouched(which);
  }
});

forEachStore("onRunAccess() lets everybody do with his own runs what the routes do", async (world) => {
  let context: unknown;
  let asked: unknown[] = [];
  await using service = aTenantService({
    auth: {
      authenticate: () => Promise.resolve(context),
      onRunAccess: (...given) => {
        asked.push(given[0], given[2].operation);
        if (given[1].labels.org !== "b") throw aRefusal();
      },
    },
  }, world);
  await aTenantRun(service, world.store, "a", "waiting");

  for (const { context: returned, route: { name, operation, works }, way, which } of eachWay(RUN_ROUTES)) {
    context = returned;
    const run = await aTenantRun(service, world.store, "b", works);
    asked = [];

    const response = await askRoute(service.handler, name, way, run);

    assert.equal(response.status, 200, which);
    assert.deepEqual(asked, [context, operation], which);
    assert.notEqual((await response.text()).length, 0, which);
  }
});

forEachStore("onRunAccess() is not asked about a run that is missing: 404, the same to everybody", async (world) => {
  let context: unknown;
  let calls = 0;
  await using service = aTenantService({
    auth: {
      authenticate: () => context,
      onRunAccess: () => {
        calls++;
        throw aRefusal();
      },
    },
  }, world);
  const { assertUntouched } = await aWorldOfA(service, world);
  const expected = { error: "There is no such run", code: "not_found" };

  for (const { context: returned, route: { name }, way, which } of eachWay(RUN_ROUTES)) {
    const views = [];
    for (context of [returned, { org: "a" }]) {
      const response = await askRoute(service.handler, name, way);
      assert.deepEqual([response.status, await response.clone().json()], [404, expected], which);
      views.push(await sightOf(response));
    }
    assert.deepEqual(views[0], views[1], which);
  }
  assert.equal(calls, 0);
  await assertUntouched("missing");
});

forEachStore("without onRunAccess() waits are refused, whether or not there is such a run", async (world) => {
  let context: unknown;
  await using service = aTenantService({ auth: { authenticate: () => context } }, world);
  const { runs, assertUntouched } = await aWorldOfA(service, world);
  const waitRoutes = RUN_ROUTES.filter(({ operation }) => operation === "waits" || operation === "signal");

  const views = [];
  for (const { context: returned, route: { name }, way } of eachWay(waitRoutes)) {
    context = returned;
    for (const run of [NOBODY, ...Object.values(runs)]) {
      views.push(await sightOf(await askRoute(service.handler, name, way, run)));
    }
  }
  context = null;
  const { status, body } = await service.ask("GET", `/waits?runId=${UNKNOWN}`);

  assert.equal(views.length, CONTEXTS.length * 3 * WAYS.length * (STATUSES.length + 1));
  for (const sight of views) assert.deepEqual(sight, views[0]);
  assert.deepEqual([status, body.code], [403, "forbidden"]);
  await assertUntouched("waits");
});

forEachStore("without onRunAccess() the other routes serve whoever was authenticated", async (world) => {
  let context: unknown;
  await using service = aTenantService({ auth: { authenticate: () => context } }, world);
  const others = RUN_ROUTES.filter(({ operation }) => operation !== "waits" && operation !== "signal");

  for (const { context: returned, route: { name, works }, way, which } of eachWay(others)) {
    context = returned;
    const foreign = await askRoute(service.handler, name, way, await aTenantRun(service, world.store, "a", works));
    const missing = await askRoute(service.handler, name, way);

    assert.deepEqual([foreign.status, missing.status], [200, 404], which);
    await Promise.all([foreign.text(), missing.text()]);
  }
});

forEachStore("a wait of somebody else cannot be told from no wait", async (world) => {
  await using service = aTenantService({ auth: CAREFUL }, world);
  const a = await aTenantRun(service, world.store, "a", "waiting");
  const b = await aTenantRun(service, world.store, "b", "waiting");
  const before = await contentsOf(world.store);
  const refusal = await sightOf(aRefusal());

  for (const name of ["wait", "signal"] as const) {
    for (const way of WAYS) {
      const ask = (run: TenantRun) => askRoute(service.handler, name, way, run, { "x-org": "b" });
      const which = `${name} ${way}`;
      const ofA = await ask({ runId: b.runId, waitId: a.waitId });
      const ofNobody = await ask({ runId: b.runId, waitId: UNKNOWN });
      const inRunOfA = await Promise.all(
        [a.waitId, b.waitId, UNKNOWN].map((waitId) => ask({ runId: a.runId, waitId })),
      );

      assert.equal(ofA.status, 404, which);
      assert.equal(await ofA.text(), (await ofNobody.text()).replace(UNKNOWN, a.waitId), which);
      assert.deepEqual([ofA.status, ...ofA.headers], [ofNobody.status, ...ofNobody.headers], which);
      for (const response of inRunOfA) assert.deepEqual(await sightOf(response), refusal, which);
    }
  }
  assert.equal(await contentsOf(world.store), before);
});

forEachStore(
  "every hook is given exactly what authenticate() returns, and its Response is the answer",
  async (world) => {
    let context: unknown;
    let refusing: keyof HandlerAuth<unknown> | null = null;
    let refusal: Response | null = null;
    let heard: unknown[] = [];
    const hook = (name: keyof HandlerAuth<unknown>) => (given: unknown) => {
      if (name !== "authenticate") heard.push(given);
      if (name !== refusing) return name === "authenticate" ? context : {};
      refusal = aRefusal();
      throw refusal;
    };
    const auth = {
      authenticate: hook("authenticate"),
      onTrigger: hook("onTrigger"),
      onRunAccess: hook("onRunAccess"),
      onOperate: hook("onOperate"),
      onSignal: hook("onSignal"),
      scopeRuns: hook("scopeRuns") as () => object,
      scopeRunsSubscribe: hook("scopeRunsSubscribe") as () => object,
      tenant: hook("tenant") as () => string,
    };
    await using service = aTenantService({ auth }, world);
    await using withFallback = aTenantService({ auth: { ...auth, scopeRunsSubscribe: undefined } }, world);
    const { runs, assertUntouched } = await aWorldOfA(service, world);
    const expected = await sightOf(aRefusal());
    const refuse = async (name: keyof typeof auth, which: string, ask: () => Promise<Response>) => {
      refusing = name;
      heard = [];

      const response = await ask();

      assert.ok(response === refusal, `${name} refuses ${which}`);
      assert.deepEqual(await sightOf(response), expected, which);
      const contexts = name === "authenticate" ? 0 : name === "onSignal" || name === "tenant" ? 2 : 1;
      assert.equal(heard.length, contexts, `${name} refuses ${which}`);
      for (const given of heard) assert.ok(Object.is(given, context), `${name} refuses ${which}`);
    };

    for (const { context: returned, route: { name }, way, which } of eachWay(NAMES.map((name) => ({ name })))) {
      context = returned;
      const ask = () => askRoute(service.handler, name, way, runs.waiting);
      await refuse("authenticate", which, ask);
      await refuse(CASES[name].hook, which, ask);
      if (name === "signal") await refuse("onSignal", which, ask);
      if (NEEDED_BY.tenant.includes(name)) await refuse("tenant", which, ask);
      if (name === "runsSubscribe") {
        await refuse("scopeRuns", which, () => askRoute(withFallback.handler, name, way));
      }
      await assertUntouched(which);
    }
  },
);

const SECRET = new Error("password=hunter2");

/** How a hook can fail, with what onError hears. */
const FAILURES: Record<string, { fail: () => unknown; heard: unknown }> = {};
for (const thrown of [SECRET, "password=hunter2", undefined, null]) {
  FAILURES[`throws ${thrown}`] = {
    fail: () => {
      throw thrown;
    },
    heard: thrown,
  };
  FAILURES[`rejects with ${thrown}`] = { fail: () => Promise.reject(thrown), heard: thrown };
}

/** What is no answer of a hook that scopes lists. */
const NO_SCOPES: readonly unknown[] = [
  undefined,
  null,
  "label.org=b",
  [],
  [{ labels: { org: "b" } }],
  { labels: { org: undefined } },
  { status: "done" },
  { limit: -1 },
];

/** Each hook that can fail, with the routes that need it. */
const NEEDED_BY: { readonly [Hook in HookName | "authenticate" | "onRequest"]: readonly RouteName[] } = {
  authenticate: NAMES,
  onRequest: NAMES,
  onTrigger: ["trigger"],
  onRunAccess: RUN_ROUTES.map(({ name }) => name),
  onOperate: NAMES.filter((name) => CASES[name].hook === "onOperate"),
  onSignal: ["signal"],
  scopeRuns: ["runs", "runsSubscribe", "waitsOpen", "failures", "find"],
  scopeRunsSubscribe: ["runsSubscribe"],
  tenant: ["trigger", "subscribe", "runsSubscribe", "find"],
};

/** What is no name of a tenant. */
const NO_TENANTS: readonly unknown[] = [
  undefined,
  null,
  7,
  {},
  ["a"],
  "",
  "a\n",
  "\ud800",
  "x".repeat(256),
  "x".repeat(10_000_000),
];

/** What hooks must not return. */
const WRONG_ANSWERS: { readonly [Hook in keyof typeof NEEDED_BY]?: readonly unknown[] } = {
  scopeRuns: NO_SCOPES,
  scopeRunsSubscribe: NO_SCOPES,
  tenant: NO_TENANTS,
};

for (const [hook, needing] of Object.entries(NEEDED_BY)) {
  forEachStore(`${hook}() that fails opens nothing: 500, and only onError hears why`, async (world) => {
    let heard: unknown[] = [];
    let called = Promise.withResolvers<void>();
    let fail: () => unknown = () => undefined;
    const failing = () => {
      called.resolve();
      return fail();
    };
    const { onRequest, ...hooks } = {
      authenticate: () => undefined,
      onRunAccess: () => {},
      onRequest: () => {},
      [hook]: failing,
    } as HandlerAuth<unknown> & { onRequest: () => unknown };
    const onError = (error: unknown) => heard.push(error);
    await using service = aTenantService({ auth: hooks, onRequest, onError }, world);
    const { runs, assertUntouched } = await aWorldOfA(service, world);
    const works = (name: RouteName) => {
      const route = CASES[name];
      return route.hook === "onRunAccess" ? runs[route.works] : NOBODY;
    };
    const expectHidden = async (asked: Promise<Response>, isHeard: (error: unknown) => boolean, which: string) => {
      const response = await asked;
      assert.equal(response.status, 500, which);
      assert.equal(await response.text(), '{"error":"Internal error","code":"internal"}', which);
      assert.ok(heard.length === 1 && isHeard(heard[0]), which);
      heard = [];
      await assertUntouched(which);
    };

    for (const name of needing) {
      for (const way of WAYS) {
        const ask = () => askRoute(service.handler, name, way, works(name));
        for (const [failure, { fail: failsSo, heard }] of Object.entries(FAILURES)) {
          fail = failsSo;
          await expectHidden(ask(), (error) => error === heard, `${name} ${way}: ${hook}() ${failure}`);
        }

        fail = forever;
        called = Promise.withResolvers();
        const asked = ask();
        await called.promise;
        world.host.advance(29_999);
        assert.equal(await Promise.race([asked, world.host.settle()]), undefined, `${name}: ${hook}() has 30 seconds`);
        world.host.advance(1);
        await expectHidden(asked, (error) => error instanceof TimeoutError, `${name} ${way}: ${hook}() never settles`);

        for (const answer of WRONG_ANSWERS[hook as keyof typeof NEEDED_BY] ?? []) {
          for (const answered of [answer, Promise.resolve(answer)]) {
            fail = () => answered;
            const which = `${name} ${way}: ${hook}() returns ${inspect(answer).slice(0, 50)}`;
            await expectHidden(ask(), (error) => error instanceof Error && error.message.length < 200, which);
          }
        }
        for (const answered of hook === "authenticate" ? [aRefusal(), Promise.resolve(aRefusal())] : []) {
          fail = () => answered;
          const which = `${name} ${way}: ${hook}() returns a Response`;
          await expectHidden(ask(), (error) => error instanceof TypeError, which);
        }
      }
    }
  });
}

forEachStore("onRunAccess() that fails opens nothing to a trigger that lands on a run, either", async (world) => {
  let heard: unknown[] = [];
  let fail: (() => unknown) | null = null;
  const onError = (error: unknown) => heard.push(error);
  const auth = { authenticate: () => undefined, onRunAccess: () => fail?.() };
  await using service = aTenantService({ auth, onError }, world);
  await aTenantRun(service, world.store, "a", "pending", { idempotencyKey: "once" });
  const before = await contentsOf(world.store);

  for (const [failure, failing] of Object.entries(FAILURES)) {
    fail = failing.fail;
    heard = [];
    const body = { jobName: "order", input: {}, idempotencyKey: "once" };

    const answer = await service.ask("POST", "/trigger", { body });

    assert.deepEqual([answer.status, answer.body], [500, { error: "Internal error", code: "internal" }], failure);
    assert.ok(heard.length === 1 && heard[0] === failing.heard, failure);
  }
  assert.equal(await contentsOf(world.store), before);
});

/** A request in which several things are wrong, and what is found first. */
type Wrong = [
  what: string,
  asks: string,
  asked: Asked,
  /** What is asked and lets the request pass, in this order. Every other hook refuses. */
  passed: string,
  /** What is asked then, and refuses. */
  refusedBy: string,
  answer: string,
];

const HOOKS = "authenticate onRequest onTrigger onRunAccess onSignal scopeRuns scopeRunsSubscribe tenant".split(" ");

/** The requests, for a run that waits and one that has ended; a run of the job `strict` has the key `once`. */
function wrongRequests({ runId, waitId }: TenantRun, ended: TenantRun): Wrong[] {
  const elsewhere = { headers: { "sec-fetch-site": "cross-site" } };
  const trigger = (body: Record<string, unknown>) => ({ body: { jobName: "strict", input: {}, ...body } });
  const landing = trigger({ input: { fits: true }, idempotencyKey: "once" });
  const signal = { body: { signalId: "s", payload: 1 } };
  const badSignal = { body: { signalId: "" } };
  const nowhere = `runId=${UNKNOWN}&waitId=${UNKNOWN}`;
  const wait = `runId=${runId}&waitId=${waitId}`;
  const noWait = `runId=${runId}&waitId=${UNKNOWN}`;
  const begun = "authenticate onRequest";
  const asked = `${begun} onRunAccess`;
  return [
    ["caller, site, path", "POST /nowhere", elsewhere, "", "authenticate", "451"],
    ["site, path", "POST /nowhere", elsewhere, "authenticate", "", "403 cross_origin"],
    ["site, body", "POST /trigger", { ...elsewhere, body: "{" }, "authenticate", "", "403 cross_origin"],
    ["onRequest, path", "GET /nowhere", {}, "authenticate", "onRequest", "451"],
    ["onRequest, method", "POST /run", {}, "authenticate", "onRequest", "451"],
    ["path", "GET /nowhere", {}, begun, "", "404 not_found"],
    ["method, parameter", "POST /run", {}, begun, "", "405 method_not_allowed"],
    ["parameter", "GET /run", {}, begun, "", "400 invalid_request"],
    ["run", `GET /run?${nowhere}`, {}, begun, "", "404 not_found"],
    ["access", `GET /run?${wait}`, {}, begun, "onRunAccess", "451"],
    ["page, scope", "GET /runs?limit=-1", {}, begun, "", "400 invalid_request"],
    ["scope", "GET /runs", {}, begun, "scopeRuns", "451"],
    ["filter, scope of the stream", "GET /runs/subscribe?jobName=", {}, begun, "", "400 invalid_request"],
    ["scope of the stream", "GET /runs/subscribe", {}, begun, "scopeRunsSubscribe", "451"],
    ["scope, tenant", "GET /runs/subscribe", {}, `${begun} scopeRunsSubscribe`, "tenant", "451"],
    ["access, tenant", `GET /subscribe?${wait}`, {}, `${begun} onRunAccess`, "tenant", "451"],
    ["body, job", "POST /trigger", trigger({ jobName: "unknown", labels: 1 }), begun, "", "400 invalid_request"],
    ["key, job", "POST /trigger", trigger({ jobName: "unknown", coalesce: "skip" }), begun, "", "400 invalid_request"],
    ["job, input", "POST /trigger", trigger({ jobName: "unknown" }), begun, "", "404 not_found"],
    [
      "input, trigger",
      "POST /trigger",
      trigger({ idempotencyKey: "once" }),
      `${begun} schema`,
      "",
      "400 invalid_input",
    ],
    ["trigger, tenant", "POST /trigger", landing, `${begun} schema`, "onTrigger", "451"],
    ["tenant, access", "POST /trigger", landing, `${begun} schema onTrigger`, "tenant", "451"],
    [
      "access to what was found",
      "POST /trigger",
      landing,
      `${begun} schema onTrigger tenant`,
      "onRunAccess",
      "409 key_in_use",
    ],
    ["signal, access", `POST /signal?${wait}`, badSignal, begun, "", "400 invalid_request"],
    ["signal, run", `POST /signal?${nowhere}`, badSignal, begun, "", "400 invalid_request"],
    ["parameter, access", `POST /signal?runId=${runId}`, signal, begun, "", "400 invalid_request"],
    ["run, signal hook", `POST /signal?${nowhere}`, signal, begun, "", "404 not_found"],
    ["access, wait", `POST /signal?${noWait}`, signal, begun, "onRunAccess", "451"],
    ["wait, signal hook", `POST /signal?${noWait}`, signal, asked, "", "404 not_found"],
    ["signal hook", `POST /signal?${wait}`, signal, asked, "onSignal", "451"],
    ["access, wait to read", `GET /wait?${noWait}`, {}, begun, "onRunAccess", "451"],
    ["wait to read", `GET /wait?${noWait}`, {}, asked, "", "404 not_found"],
    ["place, access", `POST /retrigger?runId=${runId}&from=middle`, {}, begun, "", "400 invalid_request"],
    ["access, state", `POST /cancel?runId=${ended.runId}`, {}, begun, "onRunAccess", "451"],
    ["state", `POST /cancel?runId=${ended.runId}`, {}, asked, "", "409 conflict"],
    ["state, trigger", `POST /retrigger?runId=${runId}`, {}, asked, "", "409 conflict"],
  ];
}

forEachStore("fetch() asks in the order of the contract, and nobody after the first refusal", async (world) => {
  let calls: string[] = [];
  let passing: string[] = [];
  const call = (name: string) => {
    calls.push(name);
    if (!passing.includes(name)) throw aRefusal();
    return name === "tenant" ? "a" : {};
  };
  const validate = (value: unknown) => {
    calls.push("schema");
    return (value as { fits?: boolean }).fits ? { value } : { issues: [{ message: "does not fit" }] };
  };
  const strict = defineJob({
    name: "strict",
    input: { "~standard": { version: 1, vendor: "test", validate } },
    run: () => {},
  });
  const hooks = Object.fromEntries(HOOKS.map((name) => [name, () => call(name)]));
  const { onRequest, ...auth } = hooks as unknown as HandlerAuth<unknown> & { onRequest: () => unknown };
  await using service = aTenantService({ auth, onRequest }, world, { strict });
  const waiting = await aTenantRun(service, world.store, "a", "waiting");
  const ended = await aTenantRun(service, world.store, "a", "completed");
  await service.engine.trigger("strict", { fits: true }, { labels: { org: "a" }, idempotencyKey: "a/once" });
  const events = recordEvents(service.engine);
  const before = await contentsOf(world.store);

  for (const [what, asks, asked, passed, refusedBy, expected] of wrongRequests(waiting, ended)) {
    const [method, path] = asks.split(" ");
    passing = passed.split(" ");
    calls = [];

    const response = await service.handler.fetch(aRequest(method!, path!, asked));

    assert.equal(calls.join(" "), `${passed} ${refusedBy}`.trim(), what);
    if (expected === "451") assert.deepEqual(await sightOf(response), await sightOf(aRefusal()), what);
    else assert.equal(`${response.status} ${(await response.json()).code}`, expected, what);
  }
  assert.equal(await contentsOf(world.store), before);
  assert.deepEqual(events, []);
});

forEachStore("POST /signal asks onRunAccess() of a signal that came before, but not onSignal()", async (world) => {
  let calls: string[] = [];
  let refusing: string | null = null;
  const hook = (name: string) => () => {
    calls.push(name);
    if (name === refusing) throw aRefusal();
  };
  await using service = aTenantService({
    auth: { authenticate: hook("authenticate"), onRunAccess: hook("onRunAccess"), onSignal: hook("onSignal") },
  }, world);
  const run = await aTenantRun(service, world.store, "a", "waiting");
  const signal = async (refuses: string | null, payload: unknown) => {
    refusing = refuses;
    calls = [];
    const path = `/signal?runId=${run.runId}&waitId=${run.waitId}`;
    const response = await service.handler.fetch(aRequest("POST", path, { body: { signalId: "s", payload } }));
    const text = await response.text();
    return [
      response.status,
      text.startsWith("{") ? JSON.parse(text).disposition ?? JSON.parse(text).code : null,
      calls,
    ];
  };

  const answers = {
    first: await signal(null, 1),
    again: await signal("onSignal", 1),
    againRefused: await signal("onRunAccess", 1),
    other: await signal(null, 2),
    otherRefused: await signal("onSignal", 2),
  };

  const access = ["authenticate", "onRunAccess"];
  assert.deepEqual(answers, {
    first: [200, "accepted", [...access, "onSignal"]],
    again: [200, "duplicate", access],
    againRefused: [451, null, access],
    other: [409, "conflict", [...access, "onSignal"]],
    otherRefused: [451, null, [...access, "onSignal"]],
  });
});
