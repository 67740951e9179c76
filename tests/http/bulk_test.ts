import assert from "node:assert/strict";
import type { HandlerAuth, RequestedOperation } from "../../src/http/access/auth_hooks.ts";
import { notFound } from "../../src/http/response.ts";
import { StoreError } from "../../src/model/error.ts";
import type { Store } from "../../src/store/store.ts";
import { forEachStore, holdRun } from "../support/stores/for_each_store.ts";
import { aRequest, type Service } from "../support/http/http.ts";
import { aTenantService, UNKNOWN } from "../support/http/tenants.ts";
import { EventReader } from "../support/http/event_reader.ts";
import { withCalls } from "../support/stores/with_calls.ts";

const PATHS = ["/runs/cancel", "/runs/retrigger", "/runs/resume", "/runs/delete"] as const;
const NOTHING = { matched: 0, done: 0, skipped: [], next: null };

/** Runs of an organization, oldest first: two that have ended, two that are pending. */
async function runsOf(org: string, { engine }: Pick<Service, "engine">) {
  const ids = async () => [
    (await engine.trigger("fail", {}, { labels: { org } })).id,
    (await engine.trigger("echo", {}, { labels: { org } })).id,
  ];
  const ended = await ids();
  await engine.runUntilIdle();
  return { ended, pending: await ids() };
}

/** Hooks of operators of an organization. */
const OPERATORS: HandlerAuth<string> = {
  authenticate: (request) => request.headers.get("x-org")!,
  onTrigger: () => {},
  onOperate: () => {},
  onRunAccess: (org, run) => {
    if (run.labels.org !== org) throw notFound();
  },
  scopeRuns: (org, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
};

forEachStore("POST /runs/retrigger selects failed runs by their error, among those of the tenant", async (world) => {
  await using service = aTenantService({ auth: OPERATORS }, world);
  await runsOf("b", service);
  const { ended: [failed] } = await runsOf("a", service); // executes those of b that were pending
  const { error } = (await service.engine.getRun(failed!))!;
  const retrigger = (filter: object) =>
    service.ask("POST", "/runs/retrigger", { headers: { "x-org": "a" }, body: { filter } });

  const other = await retrigger({ error: `${error}!` });
  const own = await retrigger({ error });
  const empty = await retrigger({ error: "" });

  assert.deepEqual([other.body, own.body], [NOTHING, { ...NOTHING, matched: 1, done: 1 }]);
  assert.equal(empty.status, 400);
});

forEachStore("POST /runs/cancel, /retrigger and /delete change many runs", async (world) => {
  await using service = aTenantService({}, world);
  const { ended, pending } = await runsOf("a", service);
  const filter = { labels: { org: "a" }, jobName: ["echo", "fail"] };

  const dry = await service.ask("POST", "/runs/cancel", { body: { filter, dryRun: true } });
  const page = await service.ask("POST", "/runs/cancel", { body: { filter, limit: 1 } });
  const rest = await service.ask("POST", "/runs/cancel", { body: { filter, cursor: page.body.next } });
  const retriggered = await service.ask("POST", "/runs/retrigger", {
    body: { filter: { status: "failed" }, from: "failure" },
  });
  const deleted = await service.ask("POST", "/runs/delete", { body: { runIds: [...ended, UNKNOWN] } });

  assert.deepEqual([dry.status, dry.body], [200, { ...NOTHING, matched: 2 }]);
  assert.deepEqual([page.body.done, typeof page.body.next], [1, "string"]);
  assert.deepEqual(rest.body, { matched: 1, done: 1, skipped: [], next: null });
  assert.equal(retriggered.body.done, 1);
  assert.deepEqual(deleted.body, {
    matched: 3,
    done: 2,
    skipped: [{ runId: UNKNOWN, code: "not_found" }],
    next: null,
  });
  const { runs } = await service.engine.getRuns();
  assert.deepEqual(runs.slice(1).map(({ id, status }) => [id, status]), [[pending[1], "cancelled"], [
    pending[0],
    "cancelled",
  ]]);
  assert.equal(runs[0]!.retriggerOf, ended[0]);
});

const WRONG_BODIES: unknown[] = [
  {},
  { filter: {} },
  { filter: { labels: {} } },
  { filter: { jobName: "echo", limit: 5 } },
  { filter: { jobname: "echo" } },
  { filter: { jobName: 5 } },
  { filter: { jobName: Array(51).fill("echo") } },
  { filter: { status: "done" } },
  { filter: { createdBefore: "yesterday" } },
  { filter: { labels: { org: 1 } } },
  { filter: null },
  { filter: "all" },
  { runIds: "all" },
  { runIds: [1] },
  { runIds: Array(1_001).fill("a") },
  { runIds: [], filter: { jobName: "echo" } },
  { filter: { jobName: "echo" }, dryrun: true },
  { filter: { jobName: "echo" }, dryRun: "true" },
  { filter: { jobName: "echo" }, limit: 0 },
  { filter: { jobName: "echo" }, limit: 1_001 },
  { filter: { jobName: "echo" }, limit: 1.5 },
  { filter: { jobName: "echo" }, cursor: 5 },
  { filter: { jobName: "echo" }, cursor: "i5" },
  { filter: { jobName: "echo" }, cursor: "r-1" },
  { filter: { jobName: "echo" }, from: "end" },
  [],
  "all",
  null,
];

/** A store that fails from its n-th call on, as one does whose process is killed. */
function failingFrom(store: Store, name: "enqueue" | "cancel" | "delete", n: number): Store {
  let calls = 0;
  const call = store[name] as (...parameters: unknown[]) => unknown;
  return withCalls(store, {
    [name]: (...parameters: unknown[]) => {
      calls += 1;
      return calls < n ? call.apply(store, parameters) : Promise.reject(new StoreError("The process is gone"));
    },
  });
}

const STOPPED = [
  { path: "/runs/cancel", call: "cancel", from: "pending", event: "run:cancel" },
  { path: "/runs/retrigger", call: "enqueue", from: "ended", event: "run:retry" },
  { path: "/runs/delete", call: "delete", from: "ended", event: "run:delete" },
] as const;

for (const { path, call, from, event } of STOPPED) {
  forEachStore(`POST ${path} that is stopped half-way and repeated does each operation once`, async (world) => {
    const COUNT = 120; // more than are performed at once
    await using here = aTenantService({}, world);
    for (let count = 0; count < COUNT; count++) await here.engine.trigger("echo", {}, { labels: { org: "a" } });
    if (from === "ended") await here.engine.runUntilIdle();
    const events = new EventReader(await here.handler.fetch(aRequest("GET", "/runs/subscribe")));
    await world.host.settle();
    await using there = aTenantService({ onError: () => {} }, { ...world, store: failingFrom(world.store, call, 70) });
    const body = { filter: { jobName: "echo", labels: { org: "a" } } };

    const stopped = await there.ask("POST", path, { body });
    let cursor: string | undefined;
    let done = 0;
    do {
      const { status, body: answer } = await here.ask("POST", path, { body: { ...body, ...(cursor && { cursor }) } });
      assert.equal(status, 200);
      done += answer.done;
      cursor = answer.next ?? undefined;
    } while (cursor !== undefined);
    await world.host.settle();

    const happened = events.events.filter(({ type }) => type === event).map(({ runId }) => runId);
    assert.ok(stopped.status >= 500, String(stopped.status));
    assert.ok(done > 0 && done < COUNT, String(done));
    assert.deepEqual([happened.length, new Set(happened).size], [COUNT, COUNT]);
    const after = await here.engine.getRuns();
    assert.equal(after.total, path === "/runs/delete" ? 0 : path === "/runs/retrigger" ? 2 * COUNT : COUNT);
    await events.leave();
  });
}

for (const path of PATHS) {
  forEachStore(`POST ${path} refuses a wrong body, and changes nothing`, async (world) => {
    await using service = aTenantService({}, world);
    await runsOf("a", service);
    const before = await service.engine.getRuns();

    for (const body of WRONG_BODIES) {
      const { status, body: answer } = await service.ask("POST", path, { body: JSON.stringify(body) });
      assert.deepEqual([status, answer.code], [400, "invalid_request"], JSON.stringify(body).slice(0, 80));
    }

    assert.deepEqual(await service.engine.getRuns(), before);
  });

  forEachStore(`POST ${path} is refused without onOperate()`, async (world) => {
    const { onOperate: _, ...auth } = OPERATORS;
    await using service = aTenantService({ auth }, world);
    const { ended, pending } = await runsOf("a", service);
    const before = await service.engine.getRuns();

    for (const selection of [{ runIds: [...ended, ...pending] }, { filter: { labels: { org: "a" } } }]) {
      for (const dryRun of [true, false]) {
        const asked = { body: { ...selection, dryRun }, headers: { "x-org": "a" } };
        const { status, body } = await service.ask("POST", path, asked);
        assert.deepEqual([status, body.code], [403, "forbidden"]);
      }
    }

    assert.deepEqual(await service.engine.getRuns(), before);
  });

  forEachStore(`POST ${path} refuses a page of another site`, async (world) => {
    await using service = aTenantService({}, world);
    const { ended, pending } = await runsOf("a", service);
    const before = await service.engine.getRuns();

    const body = { runIds: [...ended, ...pending] };
    const { status } = await service.ask("POST", path, { body, headers: { "sec-fetch-site": "cross-site" } });

    assert.equal(status, 403);
    assert.deepEqual(await service.engine.getRuns(), before);
  });

  forEachStore(`POST ${path} never reaches a run of another tenant`, async (world) => {
    await using service = aTenantService({ auth: OPERATORS }, world);
    const { engine } = service;
    const foreign = await runsOf("b", service);
    await runsOf("a", service); // executes those of b that were pending
    const headers = { "x-org": "a" };
    const foreignIds = [...foreign.ended, ...foreign.pending];
    if (path === "/runs/cancel") foreignIds.push((await engine.trigger("echo", {}, { labels: { org: "b" } })).id);

    for (const org of path === "/runs/resume" ? ["a", "b"] : []) {
      const { id } = await engine.trigger("echo", {}, { labels: { org } });
      await holdRun(world.store, "echo", id);
      if (org === "b") foreignIds.push(id);
    }

    const before = await Promise.all(foreignIds.map((id) => engine.getRun(id)));

    const byLabel = await service.ask("POST", path, { headers, body: { filter: { labels: { org: "b" } } } });
    const byIds = await service.ask("POST", path, { headers, body: { runIds: [...foreignIds, UNKNOWN] } });
    const counted = await service.ask("POST", path, { headers, body: { filter: { jobName: "echo" }, dryRun: true } });
    const named = await service.ask("POST", path, { headers, body: { runIds: foreignIds, dryRun: true } });
    const byJob = await service.ask("POST", path, { headers, body: { filter: { jobName: "echo" } } });

    const hidden = (ids: string[]) => ids.map((runId) => ({ runId, code: "not_found" }));
    assert.deepEqual(byLabel.body, NOTHING);
    assert.deepEqual(byIds.body, {
      ...NOTHING,
      matched: foreignIds.length + 1,
      skipped: hidden([...foreignIds, UNKNOWN]),
    });
    assert.ok(counted.body.matched > 0 && counted.body.done === 0);
    assert.deepEqual(named.body.skipped, hidden(foreignIds));
    assert.equal(byJob.body.done, counted.body.matched);
    assert.deepEqual(await Promise.all(before.map((run) => engine.getRun(run!.id))), before);
  });
}

forEachStore("onRunAccess() decides for each run, with the operation; a refused run is not found", async (world) => {
  const asked: [string, string][] = [];
  const auth: HandlerAuth<string> = {
    ...OPERATORS,
    onRunAccess: (_org, { id, jobName }, { operation }) => {
      asked.push([id, operation]);
      if (jobName === "fail") throw Response.json({ error: "no" }, { status: 403 });
    },
  };
  await using service = aTenantService({ auth }, world);
  const { ended: [failed, echoed] } = await runsOf("a", service);
  const filter = { status: ["failed", "completed"] };

  const retriggered = await service.ask("POST", "/runs/retrigger", { body: { filter }, headers: { "x-org": "a" } });
  const deleted = await service.ask("POST", "/runs/delete", { body: { filter }, headers: { "x-org": "a" } });

  for (const { body } of [retriggered, deleted]) {
    assert.deepEqual(body, { matched: 2, done: 1, skipped: [{ runId: failed, code: "not_found" }], next: null });
  }
  assert.deepEqual(asked, [[echoed, "retrigger"], [failed, "retrigger"], [echoed, "delete"], [failed, "delete"]]);
});

forEachStore("onRunAccess() that fails ends a bulk operation: 500", async (world) => {
  const auth: HandlerAuth<string> = {
    ...OPERATORS,
    onRunAccess: () => {
      throw new Error("broken");
    },
  };
  await using service = aTenantService({ auth, onError: () => {} }, world);
  const { ended } = await runsOf("a", service);

  const answer = await service.ask("POST", "/runs/delete", { body: { runIds: ended }, headers: { "x-org": "a" } });

  assert.deepEqual([answer.status, answer.body.code], [500, "internal"]);
  assert.equal((await service.engine.getRuns()).total, 4);
});

forEachStore("onOperate() is asked with the operation and the filter, and its refusal is sent", async (world) => {
  const asked: RequestedOperation[] = [];
  const auth: HandlerAuth<string> = {
    ...OPERATORS,
    onOperate: (_org, access) => {
      asked.push(access);
      throw Response.json({ error: "operators only" }, { status: 403 });
    },
  };
  await using service = aTenantService({ auth }, world);
  const { pending } = await runsOf("a", service);
  const headers = { "x-org": "a" };

  const filtered = await service.ask("POST", "/runs/cancel", { body: { filter: { jobName: "echo" } }, headers });
  const named = await service.ask("POST", "/runs/delete", { body: { runIds: pending }, headers });

  for (const { status, body } of [filtered, named]) {
    assert.deepEqual([status, body], [403, { error: "operators only" }]);
  }
  assert.deepEqual(asked, [
    { operation: "bulk", runOperation: "cancel", filter: { jobName: "echo" } },
    { operation: "bulk", runOperation: "delete" },
  ]);
  assert.ok(Object.isFrozen(asked[0]!.filter));
  assert.equal((await service.engine.getRun(pending[0]!))!.status, "pending");
});

forEachStore("a scope that lists nothing selects nothing", async (world) => {
  for (const scope of [{ limit: 0 }, { jobName: [] }, { labels: { org: "b" } }]) {
    const auth: HandlerAuth<string> = { ...OPERATORS, scopeRuns: () => scope };
    await using service = aTenantService({ auth }, world);
    await runsOf("a", service);
    const asked = { body: { filter: { labels: { org: "a" } } }, headers: { "x-org": "a" } };

    const dry = await service.ask("POST", "/runs/delete", { ...asked, body: { ...asked.body, dryRun: true } });
    const deleted = await service.ask("POST", "/runs/delete", asked);

    assert.deepEqual([dry.body, deleted.body], [NOTHING, NOTHING], JSON.stringify(scope));
  }
});

forEachStore("the limit of a scope applies to each call of a bulk operation", async (world) => {
  const scopeRuns = () => ({ labels: { org: "a" }, limit: 1 });
  await using service = aTenantService({ auth: { ...OPERATORS, scopeRuns } }, world);
  const ended = [...(await runsOf("a", service)).ended, ...(await runsOf("a", service)).ended];
  const failed = (await Promise.all(ended.map((id) => service.engine.getRun(id)))).filter((run) => run!.error !== null);
  const remove = (filter: object) =>
    service.ask("POST", "/runs/delete", { headers: { "x-org": "a" }, body: { filter } });

  const byStatus = await remove({ status: "completed" });
  const byError = await remove({ error: failed[0]!.error });

  assert.ok(failed.length > 1);
  for (const { body } of [byStatus, byError]) assert.deepEqual([body.done, body.next === null], [1, false]);
});

forEachStore("the functions of the handler serve bulk operations at any path", async (world) => {
  await using service = aTenantService({}, world);
  const { handler, engine } = service;
  const at = (method: string) =>
    aRequest(method, "/elsewhere", method === "GET" ? {} : { body: { filter: { jobName: "echo" } } });

  const answers = [
    await handler.runsCancel(at("POST")),
    await handler.runsRetrigger(at("POST")),
    await handler.runsDelete(at("POST")),
    await handler.runsDelete(at("GET")),
  ];

  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 405]);
  await Promise.all(answers.map((answer) => answer.text()));
  assert.equal((await engine.getRuns()).total, 0);
});
