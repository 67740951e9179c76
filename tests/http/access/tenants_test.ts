import assert from "node:assert/strict";
import type { HandlerAuth, RunOperation } from "../../../src/http/access/auth_hooks.ts";
import { routes } from "../../../src/http/routes.ts";
import type { Run } from "../../../src/model/run.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import {
  aRefusal,
  aTenantRun,
  aTenantService,
  contentsOf,
  sightOf,
  STATUSES,
  type TenantRun,
  UNKNOWN,
} from "../../support/http/tenants.ts";
import { CAREFUL, CONTEXTS, WAYS } from "../../support/http/tenant_hooks.ts";
import {
  askRoute,
  aWorldOfA,
  CASES,
  eachWay,
  NAMES,
  NEEDED_BY,
  NOBODY,
  RUN_ROUTES,
} from "../../support/http/tenant_routes.ts";
import { getRun } from "../../../src/store/reads.ts";

Deno.test("each route has the guard that asks its hook", () => {
  for (const name of NAMES) {
    const { guard } = routes[name];
    const { hook, ...expected } = CASES[name];

    assert.equal(guard.hook, hook, name);
    if ("operation" in expected) assert.equal("operation" in guard && guard.operation, expected.operation, name);
  }
});

/** The operations that are refused without the hook. */
const NEED_ACCESS = new Set<RunOperation>(["waits", "signal", "messages", "send"]);

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
      assert.deepEqual(asked[0]!.slice(1), [await getRun(world.store, runs[status].runId), operation], at);
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

forEachStore("without onRunAccess() the other routes serve everybody who was authenticated", async (world) => {
  let context: unknown;
  await using service = aTenantService({ auth: { authenticate: () => context } }, world);
  const others = RUN_ROUTES.filter(({ operation }) => !NEED_ACCESS.has(operation));

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
