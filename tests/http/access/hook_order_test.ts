import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { forEachStore, recordEvents } from "../../support/stores/for_each_store.ts";
import { aRequest, type Asked } from "../../support/http/http.ts";
import {
  aRefusal,
  aTenantRun,
  aTenantService,
  contentsOf,
  sightOf,
  type TenantRun,
  UNKNOWN,
} from "../../support/http/tenants.ts";

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
