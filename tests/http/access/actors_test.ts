import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { aRequest, aService, aWaitingRun, type Service } from "../../support/http/http.ts";
import { forEachStore, type StoreTest } from "../../support/stores/for_each_store.ts";
import { NEEDED_BY, type RouteName } from "../../support/http/tenant_routes.ts";

interface User {
  id: string | null;
}

/** Hooks that let everybody in, and note when they are called. */
function hooksOf(calls: string[]): HandlerAuth<User> {
  const note = (name: string) => void calls.push(name);
  return {
    authenticate: (request) => ({ id: request.headers.get("x-user") }),
    actor: ({ id }) => {
      calls.push("actor");
      return id;
    },
    onTrigger: () => note("onTrigger"),
    onRunAccess: () => note("onRunAccess"),
    onOperate: () => note("onOperate"),
    onSignal: () => note("onSignal"),
    scopeRuns: (_, filter) => filter,
  };
}

/** A handler with these hooks, and a function that asks it as `ada`. */
function aServiceOf(world: StoreTest, calls: string[] = []) {
  const service = aService({ auth: hooksOf(calls) }, world);
  const ask = (method: string, path: string, body?: Record<string, unknown>) =>
    service.ask(method, path, { headers: { "x-user": "ada" }, ...(body === undefined ? {} : { body }) });
  return { service, ask, [Symbol.asyncDispose]: () => service[Symbol.asyncDispose]() };
}

/** The actors in the events of a stream, up to an event. */
async function actsOf({ handler }: Service, act: () => Promise<unknown>, last: string): Promise<string[]> {
  const acts: string[] = [];
  const request = aRequest("GET", "/runs/subscribe", { headers: { "x-user": "eve" } });
  const stream = (await handler.fetch(request)).body!;
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  await act();
  let text = "";
  while (!text.includes(last)) text += (await reader.read()).value ?? "";
  await reader.cancel();
  for (const [, data] of text.matchAll(/^data: (.*)$/gm)) {
    const event = JSON.parse(data!);
    if (event.by !== undefined) acts.push(`${event.type} ${event.by}`);
  }
  return acts;
}

forEachStore("each route that changes something records the actor, once asked", async (world) => {
  const calls: string[] = [];
  await using asking = aServiceOf(world, calls);
  const { service, ask } = asking;
  const { engine } = service;
  await engine.schedules.set("nightly", { job: "echo", input: 1, cron: "0 3 * * *" });
  const once = async (name: RouteName, method: string, path: string, body?: Record<string, unknown>) => {
    calls.length = 0;
    const { status, body: answer } = await ask(method, path, body);
    assert.equal(status, 200, `${name}: ${JSON.stringify(answer)}`);
    assert.deepEqual(calls.filter((call) => call === "actor"), ["actor"], name);
    // What concerns many runs asks for each of them, also for the answer.
    const last = calls.findLast((call) => !/^(runs|jobs)/.test(name) || call !== "onRunAccess");
    assert.equal(last, "actor", `${name}: the other hooks are asked before`);
    asked.add(name);
    return answer;
  };
  const asked = new Set<RouteName>();
  const runOf = async (id: string) => (await ask("GET", `/run?runId=${id}`)).body;

  const triggered = await once("trigger", "POST", "/trigger", { jobName: "echo", input: 1 });
  assert.equal((await runOf(triggered.runId)).triggeredBy, "ada");
  const { waitId, query } = await aWaitingRun(service);
  const signal = { signalId: "s", payload: 1 };
  const { wait } = await once("signal", "POST", `/signal?${query}`, signal);
  assert.deepEqual([wait.id, wait.signalledBy], [waitId, "ada"]);
  const { id } = await engine.trigger("echo", 1);
  await once("cancel", "POST", `/cancel?runId=${id}`);
  assert.equal((await runOf(id)).cancelledBy, "ada");
  const retried = await once("retrigger", "POST", `/retrigger?runId=${id}`);
  assert.equal((await runOf(retried.runId)).triggeredBy, "ada");
  await engine.cancel(retried.runId);
  const again = await once("retry", "POST", `/retry?runId=${retried.runId}`);
  assert.equal((await runOf(again.runId)).triggeredBy, "ada");
  const runIds = [again.runId];
  await once("runsCancel", "POST", "/runs/cancel", { runIds });
  assert.equal((await runOf(again.runId)).cancelledBy, "ada");
  await once("runsRetrigger", "POST", "/runs/retrigger", { runIds });
  const newest = (await runOf(again.runId)).retriggeredAs;
  assert.equal((await runOf(newest)).triggeredBy, "ada");
  await once("runsResume", "POST", "/runs/resume", { runIds });
  await once("runsDelete", "POST", "/runs/delete", { runIds });
  await once("delete", "DELETE", `/run?runId=${id}`);
  const job = await once("jobsPause", "POST", "/jobs/pause?jobName=echo", { note: "why" });
  assert.deepEqual([job.paused.by, job.paused.note], ["ada", "why"]);
  const schedule = await once("schedulesPause", "POST", "/schedules/pause?name=nightly");
  assert.equal(schedule.pausedBy, "ada");
  await once("schedulesResume", "POST", "/schedules/resume?name=nightly");
  const { runId } = await once("schedulesTrigger", "POST", "/schedules/trigger?name=nightly");
  assert.equal((await runOf(runId)).triggeredBy, "ada");
  const held = NEEDED_BY.actor.filter((name) => !asked.has(name));
  assert.deepEqual(held, ["resume"], "a held run is needed for that: see the next test of held runs");
});

forEachStore("streams of events say who acted", async (world) => {
  await using asking = aServiceOf(world);
  const { service, ask } = asking;
  const acts = await actsOf(service, async () => {
    const { body: { runId } } = await ask("POST", "/trigger", { jobName: "echo", input: 1 });
    await ask("POST", `/cancel?runId=${runId}`);
    await ask("POST", `/retrigger?runId=${runId}`);
  }, "run:retry");

  assert.deepEqual(acts, ["run:trigger ada", "run:cancel ada", "run:trigger ada", "run:retry ada"]);
});

forEachStore("an actor that is null is recorded as nobody", async (world) => {
  await using asking = aServiceOf(world);
  const { service } = asking;

  const { body: { runId } } = await service.ask("POST", "/trigger", { body: { jobName: "echo", input: 1 } });

  const { body } = await service.ask("GET", `/run?runId=${runId}`);
  assert.equal("triggeredBy" in body, false);
});

forEachStore("by in a body is refused, with hooks and without", async (world) => {
  await using asking = aServiceOf(world);
  const { service, ask } = asking;
  await using open = aService({}, world);
  const { query } = await aWaitingRun(service);
  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.cancel(id);
  const { id: openId } = await service.engine.trigger("echo", 2);
  const bodies: [string, Record<string, unknown>, method?: string][] = [
    ["/trigger", { jobName: "echo", input: 1 }],
    [`/signal?${query}`, { signalId: "s", payload: 1 }],
    [`/retrigger?runId=${id}`, {}],
    ["/jobs/pause?jobName=echo", {}],
    ["/runs/cancel", { runIds: [id] }],
    ["/runs/retrigger", { runIds: [id] }],
    ["/runs/resume", { runIds: [id] }],
    ["/runs/delete", { runIds: [id] }],
    [`/cancel?runId=${openId}`, {}],
    [`/resume?runId=${openId}`, {}],
    [`/run?runId=${id}`, {}, "DELETE"],
    ["/schedules/pause?name=nightly", {}],
    ["/schedules/resume?name=nightly", {}],
    ["/schedules/trigger?name=nightly", {}],
  ];
  const before = (await service.engine.getRuns()).total;

  for (const [path, body, method = "POST"] of bodies) {
    for (
      const send of [
        ask,
        (method: string, path: string, body: Record<string, unknown>) => open.ask(method, path, { body }),
      ]
    ) {
      const { status, body: answer } = await send(method, path, { ...body, by: "mallory" });
      assert.deepEqual([status, answer.error, answer.code], [400, "by is set by the service", "invalid_request"], path);
    }
  }
  assert.equal((await service.engine.getRuns()).total, before);
});

forEachStore("a route that takes no body does not look at one that authenticate holds", async (world) => {
  const authenticate = (request: Request) => {
    request.body?.getReader(); // it stays locked
    return { id: null };
  };
  await using service = aService({ auth: { ...hooksOf([]), authenticate } }, world);
  const { runId } = await aWaitingRun(service);

  const answer = await service.ask("POST", `/cancel?runId=${runId}`, { body: { by: "eve" } });

  assert.deepEqual([answer.status, (await service.engine.getRun(runId))!.status], [200, "cancelled"]);
});
