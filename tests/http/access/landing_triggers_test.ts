import assert from "node:assert/strict";
import type { TriggerOptions } from "../../../src/engine/triggers/new_run.ts";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { COALESCE_MODES, type Labels } from "../../../src/model/run.ts";
import { EventReader } from "../../support/http/event_reader.ts";
import { forEachStore, recordEvents, type StoreTest } from "../../support/stores/for_each_store.ts";
import { aRequest } from "../../support/http/http.ts";
import {
  anotherWorld,
  aRefusal,
  aTenantRun,
  aTenantService,
  contentsOf,
  STATUSES,
  type TenantStatus,
} from "../../support/http/tenants.ts";
import { CONTEXTS, type Way, WAYS } from "../../support/http/tenant_hooks.ts";
import { getRun } from "../../../src/store/reads.ts";

forEachStore(
  "POST /trigger makes a run if the one that it may join is gone when the hook has decided",
  async (context) => {
    const { promise: decided, resolve: decide } = Promise.withResolvers<void>();
    await using service = aTenantService({
      auth: { authenticate: () => {}, onRunAccess: () => decided, scopeRuns: (_context, filter) => filter },
    }, context);
    const { engine } = service;
    const { id } = await engine.trigger("order", {}, { labels: { org: "a" }, idempotencyKey: "once" });
    const events = recordEvents(engine);

    const asked = service.ask("POST", "/trigger", { body: { jobName: "order", input: {}, idempotencyKey: "once" } });
    await context.host.settle();
    await engine.cancel(id);
    await engine.deleteRun(id);
    decide();
    const { status, body } = await asked;

    assert.deepEqual([status, body.disposition, body.status], [200, "created", "pending"]);
    assert.notEqual(body.runId, id);
    assert.equal((await engine.getRun(body.runId))!.status, "pending");
    assert.deepEqual(events.map(({ type }) => type), ["run:cancel", "run:delete", "run:trigger"]);
  },
);

/** How a trigger can land on a run that exists: in which status that run is, and what the trigger asks for. */
const LANDINGS: { status: TenantStatus; asks: TriggerOptions }[] = [
  ...STATUSES.map((status) => ({ status, asks: { idempotencyKey: "once" } })),
  ...COALESCE_MODES.map((coalesce) => ({ status: "pending" as const, asks: { concurrencyKey: "line", coalesce } })),
  ...(["running", "waiting"] as const).map((status) => ({
    status,
    asks: { concurrencyKey: "line", coalesce: "active" as const },
  })),
  { status: "pending", asks: { idempotencyKey: "once", concurrencyKey: "line", coalesce: "skip" } },
];

/** The labels of B's trigger. Some are those of A's run. */
const LANDING_LABELS: readonly (Labels | undefined)[] = [
  undefined,
  { org: "a" },
  {},
  { org: "b" },
  { org: "A" },
  { org: "a", team: "" },
  { team: "a" },
];

/** A run of A on which B's trigger lands, with all who listen. */
async function aLanding(world: StoreTest, landing: typeof LANDINGS[number], auth: HandlerAuth<unknown>) {
  const service = aTenantService({ auth }, world);
  const { coalesce: _, ...keys } = landing.asks;
  const { runId } = await aTenantRun(service, world.store, "a", landing.status, keys);
  const streams = [`/subscribe?runId=${runId}`, "/runs/subscribe"].map(async (path) =>
    new EventReader(await service.handler.fetch(aRequest("GET", path, { headers: { "x-org": "a" } })))
  );
  const readers = await Promise.all(streams);
  await world.host.settle();
  const events = recordEvents(service.engine);
  const heardBefore = readers.map(({ events }) => [...events]);
  return {
    service,
    runId,
    run: (await getRun(world.store, runId))!,
    before: await contentsOf(world.store),
    which: `${landing.status} ${JSON.stringify(landing.asks)}`,
    trigger: (way: Way, labels?: Labels): Promise<Response> => {
      const body = { jobName: "order", input: { skipped: 1 }, ...landing.asks, ...(labels && { labels }) };
      const request = aRequest("POST", "/trigger", { headers: { "x-org": "b" }, body });
      return way === "by its path" ? service.handler.fetch(request) : service.handler.trigger(request);
    },
    /** The types of what was told since: in this process, on the stream of the run, on that of all runs. */
    told: async (): Promise<string[][]> => {
      await world.host.settle();
      const ofReaders = readers.map(({ types }, at) => types.slice(heardBefore[at]!.length));
      return [events.map(({ type }) => type), ...ofReaders];
    },
    [Symbol.asyncDispose]: async () => {
      await Promise.all(readers.map((reader) => reader.leave()));
      await service.engine.stop();
    },
  };
}

/** Makes a world of its own for each landing. */
async function eachLanding(
  world: StoreTest,
  auth: HandlerAuth<unknown>,
  body: (
    landing: Awaited<ReturnType<typeof aLanding>>,
    store: StoreTest["store"],
    isCoalesced: boolean,
  ) => Promise<void>,
): Promise<void> {
  for (const landing of LANDINGS) {
    const own = await anotherWorld(world);
    await using store = own.store;
    await using prepared = await aLanding(own, landing, auth);
    await body(prepared, store, landing.asks.idempotencyKey === undefined);
  }
}

forEachStore("POST /trigger answers key_in_use if it lands on a run that onRunAccess() refuses", async (world) => {
  let context: unknown;
  let asked: unknown[][] = [];
  let isGuarded = false;
  const auth: HandlerAuth<unknown> = {
    authenticate: () => context,
    onRunAccess: (...given) => {
      if (!isGuarded) return;
      asked.push(given);
      throw aRefusal();
    },
  };

  await eachLanding(world, auth, async ({ trigger, run, before, told, which }, store) => {
    isGuarded = true;
    for (const way of WAYS) {
      for (const [at, returned] of CONTEXTS.entries()) {
        context = returned;
        const labels = LANDING_LABELS[at % LANDING_LABELS.length];
        asked = [];

        const response = await trigger(way, labels);

        const text = await response.text();
        assert.equal(response.status, 409, which);
        assert.equal(text, '{"error":"The key is in use","code":"key_in_use"}', which);
        assert.deepEqual([...response.headers], [
          ["cache-control", "no-store"],
          ["content-type", "application/json"],
          ["cross-origin-resource-policy", "same-origin"],
          ["x-content-type-options", "nosniff"],
        ], which);
        assert.deepEqual(asked, [[context, run, { operation: "read" }]], which);
        assert.ok(Object.is(asked[0]![0], context), which);
      }
    }
    assert.equal(await contentsOf(store), before, which);
    assert.deepEqual(await told(), [[], [], []], which);
    isGuarded = false;
  });
});

forEachStore(
  "POST /trigger tells of a run that onRunAccess() allows, whatever its labels, and everybody hears",
  async (world) => {
    const asked: unknown[] = [];
    const auth: HandlerAuth<unknown> = {
      authenticate: (request) => request.method,
      onRunAccess: (method, { id }, { operation }) => {
        if (method === "POST") asked.push([id, operation]);
      },
    };

    await eachLanding(world, auth, async ({ trigger, run, before, told, which }, store, isCoalesced) => {
      const orgs = ["a", "b"];
      for (const org of orgs) {
        const response = await trigger("by its path", { org });

        const disposition = isCoalesced ? "coalesced" : "idempotent";
        assert.deepEqual(await response.json(), { runId: run.id, disposition, status: run.status }, which);
        assert.deepEqual(asked.splice(0), [[run.id, "read"]], which);
      }
      assert.equal(await contentsOf(store), before, which);
      assert.deepEqual(await told(), Array(3).fill(isCoalesced ? orgs.map(() => "run:coalesced") : []), which);
    });
  },
);

forEachStore("POST /trigger answers any run on which it lands without onRunAccess()", async (world) => {
  await eachLanding(world, { authenticate: () => undefined }, async ({ trigger, run, which }, _store, isCoalesced) => {
    const response = await trigger("by its function", { org: "b" });

    const disposition = isCoalesced ? "coalesced" : "idempotent";
    assert.deepEqual(await response.json(), { runId: run.id, disposition, status: run.status }, which);
  });
});
