import assert from "node:assert/strict";
import type { RequestedOperation } from "../../src/http/access/auth_hooks.ts";
import type { HandlerOptions } from "../../src/http/handler_options.ts";
import { createHandler } from "../../src/http/handler.ts";
import { forEachStore, type StoreTest } from "../support/stores/for_each_store.ts";
import { aRequest } from "../support/http/http.ts";
import { echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";

/** A handler of an engine with one schedule, and what it answers. */
async function aService({ store, host }: StoreTest, options: HandlerOptions<unknown> = {}) {
  const engine = createEngine({ store, host, jobs: { echo } });
  await engine.schedules.set("nightly", {
    job: echo,
    input: { n: 1 },
    cron: "30 2 * * *",
    timezone: "Europe/Berlin",
    labels: { org: "a" },
    concurrencyKey: "secret-key",
  });
  const handler = createHandler(engine, { host, ...options });
  const ask = async (method: string, path: string, headers: Record<string, string> = {}) => {
    const response = await handler.fetch(aRequest(method, path, { headers }));
    return { status: response.status, body: await response.json() };
  };
  return { engine, handler, ask };
}

forEachStore("GET /schedules lists the schedules, without their keys", async (context) => {
  const { ask } = await aService(context);

  const { status, body } = await ask("GET", "/schedules");

  assert.equal(status, 200);
  assert.deepEqual(body, [{
    name: "nightly",
    jobName: "echo",
    input: { n: 1 },
    cron: "30 2 * * *",
    timezone: "Europe/Berlin",
    catchUp: "last",
    overlap: "skip",
    labels: { org: "a" },
    declared: false,
    dueSince: null,
    pausedAt: null,
    pausedBy: null,
    nextRuns: [1, 2, 3, 4, 5].map((day) => `2040-01-0${day}T01:30:00.000Z`),
    lastSlotAt: null,
    lastRunId: null,
    skipped: 0,
    error: null,
  }]);
});

forEachStore("POST /schedules/pause and /resume change a schedule, and show it", async (context) => {
  const { ask, engine } = await aService(context);

  const paused = await ask("POST", "/schedules/pause?name=nightly");
  const between = await engine.schedules.get("nightly");
  const resumed = await ask("POST", "/schedules/resume?name=nightly");

  assert.deepEqual([paused.status, paused.body.pausedAt, paused.body.nextRuns], [200, "2040-01-01T00:00:00.000Z", []]);
  assert.equal(between!.pausedAt, "2040-01-01T00:00:00.000Z");
  assert.deepEqual([resumed.status, resumed.body.pausedAt, resumed.body.nextRuns.length], [200, null, 5]);
  assert.equal("concurrencyKey" in paused.body || "concurrencyKey" in resumed.body, false);
});

forEachStore("POST /schedules/trigger makes a run without a slot", async (context) => {
  const { ask, engine } = await aService(context);

  const { status, body } = await ask("POST", "/schedules/trigger?name=nightly");

  const run = (await engine.getRun(body.runId))!;
  assert.deepEqual([status, body], [200, { runId: run.id, disposition: "created", status: "pending" }]);
  assert.deepEqual([run.scheduleName, run.slotAt, run.labels], ["nightly", null, { org: "a" }]);
  assert.equal((await ask("GET", `/run?runId=${run.id}`)).body.scheduleName, "nightly");
});

const CHANGES = ["/schedules/pause", "/schedules/resume", "/schedules/trigger"];

for (const path of CHANGES) {
  forEachStore(`POST ${path} answers 404 for an unknown schedule, and 400 without a name`, async (context) => {
    const { ask } = await aService(context);

    const answers = [];
    for (const query of ["?name=other", "", "?name=", "?name=a&name=b", "?name=%00"]) {
      const { status, body } = await ask("POST", path + query);
      answers.push([status, body.code]);
    }

    assert.deepEqual(answers, [[404, "not_found"], ...Array(4).fill([400, "invalid_request"])]);
  });

  forEachStore(`POST ${path} refuses a page of another site`, async (context) => {
    const { ask, engine } = await aService(context);

    const { status, body } = await ask("POST", `${path}?name=nightly`, { "sec-fetch-site": "cross-site" });

    assert.deepEqual([status, body.code], [403, "cross_origin"]);
    assert.equal((await engine.getRuns()).total, 0);
    assert.equal((await engine.schedules.get("nightly"))!.pausedAt, null);
  });
}

forEachStore("without onOperate() schedules are refused, known or not", async (context) => {
  const { ask, engine } = await aService(context, {
    auth: { authenticate: () => "anyone", onRunAccess: () => {}, onTrigger: () => {}, scopeRuns: () => ({}) },
  });

  const answers = [await ask("GET", "/schedules")];
  for (const path of CHANGES) {
    for (const name of ["nightly", "other"]) answers.push(await ask("POST", `${path}?name=${name}`));
  }

  for (const { status, body } of answers) assert.deepEqual([status, body.code], [403, "forbidden"]);
  assert.equal((await engine.getRuns()).total, 0);
});

forEachStore(
  "onOperate() is asked for each operation before anything is read, and its refusal is sent",
  async (context) => {
    const asked: [unknown, RequestedOperation][] = [];
    const { ask, engine } = await aService(context, {
      auth: {
        authenticate: (request) => request.headers.get("x-role"),
        onOperate: (role, access) => {
          asked.push([role, access]);
          if (role !== "operator") throw Response.json({ error: "operators only" }, { status: 403 });
        },
      },
    });
    const operator = { "x-role": "operator" };

    const refused = [];
    for (const path of CHANGES) refused.push(await ask("POST", `${path}?name=other`, { "x-role": "guest" }));
    const listed = await ask("GET", "/schedules", operator);
    const changed = [];
    for (const path of CHANGES) changed.push((await ask("POST", `${path}?name=nightly`, operator)).status);

    for (const { status, body } of refused) assert.deepEqual([status, body], [403, { error: "operators only" }]);
    assert.deepEqual([listed.status, changed], [200, [200, 200, 200]]);
    assert.deepEqual(asked, [
      ["guest", { operation: "pause", scheduleName: "other" }],
      ["guest", { operation: "resume", scheduleName: "other" }],
      ["guest", { operation: "trigger", scheduleName: "other" }],
      ["operator", { operation: "schedules" }],
      ["operator", { operation: "pause", scheduleName: "nightly" }],
      ["operator", { operation: "resume", scheduleName: "nightly" }],
      ["operator", { operation: "trigger", scheduleName: "nightly" }],
    ]);
    assert.equal((await engine.getRuns()).total, 1);
  },
);

forEachStore("the functions of the handler serve schedules at any path", async (context) => {
  const { handler, engine } = await aService(context);
  const at = (method: string) => aRequest(method, "/elsewhere?name=nightly");

  const answers = await Promise.all([
    handler.schedules(at("GET")),
    handler.schedulesPause(at("POST")),
    handler.schedulesResume(at("POST")),
    handler.schedulesTrigger(at("POST")),
    handler.schedulesPause(at("GET")),
  ]);

  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 200, 405]);
  await Promise.all(answers.map((answer) => answer.text()));
  assert.equal((await engine.getRuns()).total, 1);
});

forEachStore("a client cannot take the key of a slot, whatever its tenant is called", async (context) => {
  const { store, host } = context;
  const key = "schedule/s/2040-01-01T00:01:00.000Z";
  const engine = createEngine({ store, host, jobs: { echo } });
  await engine.schedules.set("s", { job: echo, input: "of the schedule", cron: "* * * * *", overlap: "allow" });
  const trigger = async (tenant: string | null, idempotencyKey: string) => {
    const auth = { authenticate: () => null, onTrigger: () => {}, scopeRuns: () => ({}), onRunAccess: () => {} };
    const handler = createHandler(engine, {
      host,
      auth: tenant === null ? auth : { ...auth, tenant: () => tenant },
    });
    const body = { jobName: "echo", input: {}, idempotencyKey };
    return (await (await handler.fetch(aRequest("POST", "/trigger", { body }))).json());
  };

  const refused = await trigger(null, key);
  const answers = [await trigger("schedule", key.slice("schedule/".length)), await trigger("%schedule", "s/x")];
  host.advance(60_000);
  await engine.runUntilIdle();

  assert.equal(refused.code, "invalid_request");
  assert.deepEqual(answers.map(({ disposition }) => disposition), ["created", "created"]);
  const { runs } = await engine.getRuns();
  assert.deepEqual(runs.map(({ idempotencyKey, output }) => [idempotencyKey, output]), [
    [key, "of the schedule"],
    ["%25schedule/s/x", {}],
    ["%schedule/s/2040-01-01T00:01:00.000Z", {}],
  ]);
});
