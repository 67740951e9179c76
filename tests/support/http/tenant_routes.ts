import assert from "node:assert/strict";
import { inspect } from "node:util";
import type { HandlerAuth, RunOperation } from "../../../src/http/access/auth_hooks.ts";
import type { Handler } from "../../../src/http/handler.ts";
import { type RouteFunctions, routes } from "../../../src/http/routes.ts";
import { recordEvents, type StoreTest } from "../stores/for_each_store.ts";
import { aRequest, type Asked, type Service } from "./http.ts";
import { contentsOf, type TenantRun, tenantRuns, type TenantStatus, UNKNOWN } from "./tenants.ts";
import { CONTEXTS, type Way, WAYS } from "./tenant_hooks.ts";

/** The name of a route. */
export type RouteName = keyof RouteFunctions;
/** A hook of `auth` that concerns what a request does. */
export type HookName = Exclude<keyof HandlerAuth<unknown>, "authenticate" | "open">;

/** Which hook guards a route, and what it takes to be let do what the route does. */
export type RouteCase =
  | { hook: "onRunAccess"; operation: RunOperation; works: TenantStatus; body?: Record<string, unknown> }
  | { hook: "onOperate"; query?: string; body?: Record<string, unknown> }
  | { hook: "onTrigger" | "scopeRuns" | "scopeRunsSubscribe"; query?: string; body?: Record<string, unknown> };

/** What each route needs. */
export const CASES: { readonly [Name in RouteName]: RouteCase } = {
  trigger: { hook: "onTrigger", body: { jobName: "echo", input: {}, labels: { org: "b" } } },
  subscribe: { hook: "onRunAccess", operation: "subscribe", works: "completed" },
  stream: { hook: "onRunAccess", operation: "read", works: "completed" },
  streams: { hook: "onRunAccess", operation: "read", works: "failed" },
  runs: { hook: "scopeRuns" },
  run: { hook: "onRunAccess", operation: "read", works: "failed" },
  steps: { hook: "onRunAccess", operation: "steps", works: "completed" },
  waits: { hook: "onRunAccess", operation: "waits", works: "waiting" },
  wait: { hook: "onRunAccess", operation: "waits", works: "waiting" },
  signal: { hook: "onRunAccess", operation: "signal", works: "waiting", body: { signalId: "s", payload: 1 } },
  messages: { hook: "onRunAccess", operation: "messages", works: "completed" },
  send: { hook: "onRunAccess", operation: "send", works: "waiting", body: { name: "note", payload: 1 } },
  logs: { hook: "onRunAccess", operation: "read", works: "completed" },
  runsSubscribe: { hook: "scopeRunsSubscribe" },
  retrigger: { hook: "onRunAccess", operation: "retrigger", works: "completed" },
  retry: { hook: "onRunAccess", operation: "retrigger", works: "failed" },
  cancel: { hook: "onRunAccess", operation: "cancel", works: "pending" },
  resume: { hook: "onRunAccess", operation: "resume", works: "held" },
  delete: { hook: "onRunAccess", operation: "delete", works: "cancelled" },
  explain: { hook: "onRunAccess", operation: "read", works: "completed" },
  children: { hook: "onRunAccess", operation: "read", works: "completed" },
  timeline: { hook: "onRunAccess", operation: "steps", works: "failed" },
  failure: { hook: "onOperate", query: `?runId=${UNKNOWN}` },
  waitsOpen: { hook: "scopeRuns" },
  failures: { hook: "scopeRuns" },
  held: { hook: "scopeRuns" },
  find: { hook: "scopeRuns", query: "?q=org%3Da" },
  runsCancel: { hook: "onOperate", body: { filter: { jobName: "echo" } } },
  runsRetrigger: { hook: "onOperate", body: { filter: { jobName: "echo" } } },
  runsResume: { hook: "onOperate", body: { filter: { jobName: "echo" } } },
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
  openapi: { hook: "onOperate" },
  tick: { hook: "onOperate", query: "?timeout=1000" },
  schedules: { hook: "onOperate" },
  schedulesPause: { hook: "onOperate", query: "?name=nightly" },
  schedulesResume: { hook: "onOperate", query: "?name=nightly" },
  schedulesTrigger: { hook: "onOperate", query: "?name=nightly" },
};

/** All routes: from `routes`, so that none is left out. */
export const NAMES = Object.keys(routes) as RouteName[];
/** The routes that concern one run. */
export const RUN_ROUTES = NAMES.flatMap((name) => {
  const route = CASES[name];
  return route.hook === "onRunAccess" ? [{ name, ...route }] : [];
});

/** A run that does not exist. */
export const NOBODY: TenantRun = { runId: UNKNOWN, waitId: UNKNOWN };

/** Asks for a route: by its path, or the function of the handler. */
export function askRoute(handler: Handler, name: RouteName, way: Way, run = NOBODY, headers = {}): Promise<Response> {
  const { method, path } = routes[name];
  const route = CASES[name];
  const { body } = route;
  const query = route.hook === "onRunAccess"
    ? `?runId=${run.runId}&waitId=${run.waitId}&name=tokens`
    : route.query ?? "";
  const asked: Asked = body === undefined ? { headers } : { headers, body };
  return way === "by its path"
    ? handler.fetch(aRequest(method, `${path}${query}`, asked))
    : handler[name](aRequest(method, `/anywhere${query}`, asked));
}

/** Each of some routes, asked for in each way under each context, with a text that says which it is. */
export function* eachWay<Route extends { name: RouteName }>(routesToAsk: readonly Route[]) {
  for (const context of CONTEXTS) {
    for (const route of routesToAsk) {
      for (const way of WAYS) yield { context, route, way, which: `${route.name} ${way}, ${inspect(context)}` };
    }
  }
}

/** What every one of these tests starts from: A has a run in each status, and nothing more must happen. */
export async function aWorldOfA(service: Service, { store, host }: StoreTest) {
  const runs = await tenantRuns(service, store, "a");
  const events = recordEvents(service.engine);
  const before = await contentsOf(store);
  const timersBefore = host.timerCount;
  /** No event is sent, and no stream is open. */
  const assertQuiet = (which: string) => {
    assert.deepEqual(events, [], which);
    assert.equal(host.timerCount, timersBefore, `${which}: a stream is open`);
  };
  return {
    runs,
    assertQuiet,
    /** The same, and nothing is written: that takes much longer, and stays so. */
    async assertUntouched(which: string): Promise<void> {
      assert.equal(await contentsOf(store), before, which);
      assertQuiet(which);
    },
  };
}

/** Each hook that can fail, with the routes that need it. */
export const NEEDED_BY: { readonly [Hook in HookName | "authenticate" | "onRequest"]: readonly RouteName[] } = {
  authenticate: NAMES,
  onRequest: NAMES.filter((name) => routes[name].isProbe !== true),
  onTrigger: ["trigger"],
  onRunAccess: RUN_ROUTES.map(({ name }) => name),
  onOperate: NAMES.filter((name) => CASES[name].hook === "onOperate"),
  onSignal: ["signal"],
  onSend: ["send"],
  scopeRuns: ["runs", "runsSubscribe", "waitsOpen", "failures", "held", "find"],
  scopeRunsSubscribe: ["runsSubscribe"],
  tenant: ["trigger", "subscribe", "runsSubscribe", "find"],
  onLink: [], // nobody is authenticated for a link: links/answer_link_test.ts
  actor: [
    "trigger",
    "signal",
    "retrigger",
    "retry",
    "cancel",
    "resume",
    "delete",
    "runsCancel",
    "runsRetrigger",
    "runsResume",
    "runsDelete",
    "jobsPause",
    "schedulesPause",
    "schedulesResume",
    "schedulesTrigger",
  ],
};
