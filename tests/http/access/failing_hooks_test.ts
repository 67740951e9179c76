import assert from "node:assert/strict";
import { inspect } from "node:util";
import { TimeoutError } from "../../../src/model/error.ts";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { forEachStore, forever } from "../../support/stores/for_each_store.ts";
import { aRefusal, aTenantRun, aTenantService, contentsOf } from "../../support/http/tenants.ts";
import { WAYS } from "../../support/http/tenant_hooks.ts";
import { askRoute, aWorldOfA, CASES, NEEDED_BY, NOBODY, type RouteName } from "../../support/http/tenant_routes.ts";

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

/** What is no name of somebody who acts. */
const NO_ACTORS = NO_TENANTS.filter((answer) => answer !== null);

/** What hooks must not return. */
const WRONG_ANSWERS: { readonly [Hook in keyof typeof NEEDED_BY]?: readonly unknown[] } = {
  scopeRuns: NO_SCOPES,
  scopeRunsSubscribe: NO_SCOPES,
  tenant: NO_TENANTS,
  actor: NO_ACTORS,
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
      ...(hook === "actor" ? { onOperate: () => {} } : {}),
      [hook]: failing,
    } as HandlerAuth<unknown> & { onRequest: () => unknown };
    const onError = (error: unknown) => heard.push(error);
    await using service = aTenantService({ auth: hooks, onRequest, onError }, world);
    const { runs, assertQuiet, assertUntouched } = await aWorldOfA(service, world);
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
      assertQuiet(which);
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
        await assertUntouched(`${name} ${way}`);
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
