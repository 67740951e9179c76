import assert from "node:assert/strict";
import { z } from "zod";
import type { HandlerAuth, RequestedTrigger, RunOperation } from "../../../src/http/access/auth_hooks.ts";
import { createHandler } from "../../../src/http/handler.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ListFilter, Run, RunFilter } from "../../../src/model/run.ts";
import type { Signal, Wait } from "../../../src/model/wait.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { aRequest, aService, aWaitingRun } from "../../support/http/http.ts";

/** What the hooks are shown of a run. */
const SHOWN = { input: { nested: { list: [1] } }, labels: { org: "a" } };

/** Whether a value and everything in it is frozen. */
function isFrozenThrough(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  return Object.isFrozen(value) && Object.values(value).every(isFrozenThrough);
}

Deno.test("authenticate is given the request, and every other hook what it returned", async () => {
  const contexts: unknown[] = [];
  const requests: Request[] = [];
  const user = { name: "ada" };
  const note = (context: unknown) => void contexts.push(context);
  await using service = aService({
    auth: {
      authenticate: (request) => {
        requests.push(request);
        return user;
      },
      onTrigger: note,
      onRunAccess: note,
      onSignal: note,
      scopeRuns: (context, filter) => (note(context), filter),
      scopeRunsSubscribe: (context, filter) => (note(context), filter),
    },
  });
  const { query } = await aWaitingRun(service, SHOWN);
  const request = aRequest("GET", "/runs");

  await service.handler.fetch(request);
  await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } });
  await service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });
  await (await service.handler.fetch(aRequest("GET", "/runs/subscribe"))).body!.cancel();

  assert.equal(requests[0], request);
  assert.equal(contexts.length, 5);
  for (const context of contexts) assert.equal(context, user);
});

Deno.test("onTrigger sees what is about to be stored, frozen, with the keys that were given", async () => {
  const seen: RequestedTrigger[] = [];
  await using service = aService({
    auth: { authenticate: () => {}, onTrigger: (_user, trigger) => void seen.push(trigger) },
  });
  const keys = { idempotencyKey: "once", concurrencyKey: "line", coalesce: "skip" };
  const plain = { jobName: "echo", input: { a: [{ b: null }], date: "2026" } };

  await service.ask("POST", "/trigger", { body: plain });
  await service.ask("POST", "/trigger", { body: { ...plain, ...keys, labels: { org: "a" }, unknown: 1 } });

  const parsed = plain.input;
  assert.deepEqual(seen, [{ ...plain, parsed, labels: {} }, { ...plain, parsed, ...keys, labels: { org: "a" } }]);
  assert.ok(seen.flat().every(isFrozenThrough));
});

Deno.test("onTrigger sees what the job will receive beside what was given", async () => {
  const seen: RequestedTrigger[] = [];
  const received: unknown[] = [];
  const schema = z.object({ amount: z.coerce.number(), limit: z.object({ of: z.number() }).default({ of: 9 }) });
  const pay = defineJob({ name: "pay", input: schema, run: (_step, input) => void received.push(input) });
  const auth: HandlerAuth<void> = { authenticate: () => {}, onTrigger: (_user, trigger) => void seen.push(trigger) };
  await using service = aService({ auth }, undefined, { pay });

  await service.ask("POST", "/trigger", { body: { jobName: "pay", input: { amount: "7", unknown: 1 } } });
  await service.engine.runUntilIdle();

  assert.deepEqual(seen.map(({ input, parsed }) => ({ input, parsed })), [
    { input: { amount: "7", unknown: 1 }, parsed: { amount: 7, limit: { of: 9 } } },
  ]);
  assert.deepEqual(received, [seen[0]!.parsed]);
  assert.ok(isFrozenThrough(seen[0]));
});

Deno.test("onTrigger refuses before anything is stored or told", async () => {
  await using service = aService({
    auth: {
      authenticate: () => {},
      onTrigger: () => {
        throw new Response("no", { status: 403 });
      },
    },
  });
  const events: unknown[] = [];
  service.engine.on("*", (event) => void events.push(event));

  const response = await service.handler.fetch(
    aRequest("POST", "/trigger", { body: { jobName: "echo", input: {} } }),
  );

  assert.deepEqual([response.status, await response.text()], [403, "no"]);
  assert.equal((await service.engine.getRuns()).total, 0);
  assert.deepEqual(events, []);
});

forEachStore("onRunAccess sees the run as it is stored, frozen, and what is asked for", async (context) => {
  const seen: [Readonly<Run>, RunOperation][] = [];
  await using service = aService({
    auth: { authenticate: () => {}, onRunAccess: (_user, run, { operation }) => void seen.push([run, operation]) },
  }, context);
  const { runId, query } = await aWaitingRun(service, SHOWN);
  const stored = await service.engine.getRun(runId);

  await service.ask("GET", `/run?runId=${runId}`);
  await service.ask("GET", `/logs?runId=${runId}`);
  await service.ask("GET", `/steps?runId=${runId}`);
  await service.ask("GET", `/waits?runId=${runId}`);
  await service.ask("GET", `/wait?${query}`);
  await (await service.handler.fetch(aRequest("GET", `/subscribe?runId=${runId}`))).body!.cancel();
  await service.ask("POST", `/retrigger?runId=${runId}`);
  await service.ask("POST", `/retry?runId=${runId}`);
  await service.ask("DELETE", `/run?runId=${runId}`);
  await service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });
  await service.ask("POST", `/cancel?runId=${runId}`);

  assert.deepEqual(seen.map(([, operation]) => operation), [
    ...["read", "read", "steps", "waits", "waits", "subscribe"],
    ...["retrigger", "retrigger", "delete", "signal", "cancel"],
  ]);
  assert.deepEqual(seen[0]![0], stored);
  assert.ok(seen.flat().every(isFrozenThrough));
});

forEachStore(
  "onSignal sees the run, the wait and the signal, frozen, unless it was accepted before",
  async (context) => {
    const seen: [Readonly<Run>, Readonly<Wait>, Readonly<Signal>][] = [];
    await using service = aService({
      auth: {
        authenticate: () => {},
        onRunAccess: () => {},
        onSignal: (_user, ...rest) => void seen.push(rest),
      },
    }, context);
    const { runId, query } = await aWaitingRun(service, SHOWN);
    const [wait] = await service.engine.getWaits(runId);
    const signal = (signalId: string, payload: unknown) =>
      service.ask("POST", `/signal?${query}`, { body: { signalId, payload } });

    const accepted = await signal("s", { a: [1], b: 2 });
    const duplicate = await signal("s", { b: 2, a: [1] });
    const other = await signal("s", { a: [1] });

    assert.deepEqual([accepted.body.disposition, duplicate.body.disposition, other.status], [
      "accepted",
      "duplicate",
      409,
    ]);
    assert.equal(seen.length, 2);
    assert.deepEqual([seen[0]![0].id, seen[0]![1], seen[0]![2]], [runId, wait, {
      signalId: "s",
      payload: { a: [1], b: 2 },
    }]);
    assert.ok(seen.flat().every(isFrozenThrough));
  },
);

forEachStore("onSignal refuses before the signal is stored, and a later one is accepted", async (context) => {
  let isRefused = true;
  await using service = aService({
    auth: {
      authenticate: () => {},
      onRunAccess: () => {},
      onSignal: () => {
        if (isRefused) throw Response.json({ error: "not like this" }, { status: 400 });
      },
    },
  }, context);
  const { runId, query } = await aWaitingRun(service, SHOWN);
  const signal = () => service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });

  const refused = await signal();
  const [wait] = await service.engine.getWaits(runId);
  isRefused = false;
  const accepted = await signal();

  assert.deepEqual([refused.status, refused.body, wait!.status], [400, { error: "not like this" }, "pending"]);
  assert.deepEqual([accepted.status, accepted.body.disposition], [200, "accepted"]);
});

forEachStore("a signal to an old address is for the retry: the hooks are asked for both runs", async (context) => {
  const asked: string[] = [];
  const seen: string[] = [];
  let refused = "";
  await using service = aService({
    auth: {
      authenticate: () => {},
      onRunAccess: (_user, run) => {
        asked.push(run.id);
        if (run.id === refused) throw new Response(null, { status: 404 });
      },
      onSignal: (_user, run, wait) => void seen.push(run.id, wait.runId),
    },
  }, context);
  const { runId, query } = await aWaitingRun(service, SHOWN);
  await service.engine.cancel(runId);
  const { id } = await service.engine.retrigger(runId, { from: "failure" });
  await service.engine.runUntilIdle();
  const signal = () => service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });

  refused = id;
  const notAllowed = await signal();
  refused = "";
  asked.splice(0);
  const accepted = await signal();

  assert.deepEqual([notAllowed.status, accepted.status], [404, 200]);
  assert.deepEqual([accepted.body.wait.runId, accepted.body.disposition], [id, "accepted"]);
  assert.deepEqual([asked, seen], [[runId, id], [id, id]]);
});

Deno.test("scopeRuns and scopeRunsSubscribe see what the client asks for", async () => {
  const lists: RunFilter[] = [];
  const streams: ListFilter[] = [];
  await using service = aService({
    auth: {
      authenticate: () => {},
      scopeRuns: (_user, filter) => (lists.push(filter), filter),
      scopeRunsSubscribe: (_user, filter) => (streams.push(filter), filter),
    },
  });
  const query = "jobName=a&jobName=b&status=failed&label.org=b&limit=5&offset=6";

  for (const asked of ["", query, "label.org=a&label.org=b"]) {
    await service.ask("GET", `/runs?${asked}`);
    await (await service.handler.fetch(aRequest("GET", `/runs/subscribe?${asked}`))).body!.cancel();
  }

  const labels = { org: "b" };
  assert.deepEqual(lists, [
    {},
    { jobName: ["a", "b"], status: "failed", labels, limit: 5, offset: 6 },
    { jobName: [], labels },
  ]);
  assert.deepEqual(streams, [{}, { jobName: ["a", "b"], labels }, { jobName: [], labels }]);
});

forEachStore("scopeRuns narrows what is listed and counted, whatever the client asks for", async (context) => {
  await using service = aService({
    auth: {
      authenticate: () => {},
      scopeRuns: () => ({ labels: { org: "a" }, status: ["pending", "failed"], limit: 2 }),
    },
  }, context);
  for (const org of ["a", "b", "a", "a"]) await service.engine.trigger("fail", {}, { labels: { org, of: org } });
  await service.engine.trigger("echo", {});
  const list = async (query: string) => {
    const { status, body } = await service.ask("GET", `/runs?${query}`);
    return [status, body.runs.length, body.total, body.hasMore];
  };

  assert.deepEqual(await list(""), [200, 2, 3, true]);
  assert.deepEqual(await list("offset=2"), [200, 1, 3, false]);
  assert.deepEqual(await list("limit=1"), [200, 1, 3, true]);
  assert.deepEqual(await list("limit=1000"), [200, 2, 3, true]);
  assert.deepEqual(await list("label.of=a"), [200, 2, 3, true]);
  assert.deepEqual(await list("label.org=b"), [200, 0, 0, false]);
  assert.deepEqual(await list("jobName=echo"), [200, 0, 0, false]);
  assert.deepEqual(await list("status=completed"), [200, 0, 0, false]);
  assert.deepEqual(await list("status=failed&status=pending"), [200, 2, 3, true]);
});

Deno.test("GET /runs/subscribe falls back to scopeRuns, as far as jobs and labels go", async () => {
  await using service = aService({
    auth: {
      authenticate: () => {},
      scopeRuns: (_user, filter) => ({ ...filter, labels: { org: "a" }, status: "completed", limit: 0 }),
    },
  });
  const response = await service.handler.fetch(aRequest("GET", "/runs/subscribe"));
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();

  await service.engine.trigger("echo", {}, { labels: { org: "b" } });
  await service.engine.trigger("echo", {}, { labels: { org: "a" } });
  const { value } = await reader.read();
  await reader.cancel();

  assert.equal(value!.match(/"run:trigger"/g)!.length, 1);
  assert.match(value!, /"labels":\{"org":"a"\}/);
});

for (const path of ["/waits", "/wait", "/signal"]) {
  Deno.test(`${path} is refused if nothing says who may access a run, whether there is one or not`, async () => {
    await using service = aService({ auth: { authenticate: () => {}, scopeRuns: (_user, filter) => filter } });
    const { query } = await aWaitingRun(service, SHOWN);
    const method = path === "/signal" ? "POST" : "GET";
    const body = method === "POST" ? { body: { signalId: "s", payload: 1 } } : {};

    for (const asked of [query, "runId=none&waitId=none"]) {
      const answer = await service.ask(method, `${path}?${asked}`, body);
      assert.deepEqual([answer.status, answer.body.code], [403, "forbidden"]);
    }
  });
}

const FORGOTTEN = { "a Response": new Response("no"), "an Error": new Error("no"), "false": false };
for (const [what, returned] of Object.entries(FORGOTTEN)) {
  Deno.test(`hooks that return ${what} have forgotten to throw it, and let nobody pass`, async () => {
    const heard: unknown[] = [];
    let wrong = "";
    // deno-lint-ignore no-explicit-any -- the types would refuse it
    const hook = (name: string, right?: unknown): any => () => name === wrong ? returned : right;
    await using service = aService({
      auth: {
        authenticate: hook("authenticate"),
        onTrigger: hook("onTrigger"),
        onRunAccess: hook("onRunAccess"),
        onSignal: hook("onSignal"),
        scopeRuns: hook("scopeRuns", {}),
        scopeRunsSubscribe: hook("scopeRunsSubscribe", {}),
      },
      onError: (error) => void heard.push(error),
    });
    const { runId, query } = await aWaitingRun(service, SHOWN);
    const asked: Record<string, () => Promise<{ status: number }>> = {
      authenticate: () => service.ask("GET", "/nowhere"),
      onTrigger: () => service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } }),
      onRunAccess: () => service.ask("POST", `/cancel?runId=${runId}`),
      onSignal: () => service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } }),
      scopeRuns: () => service.ask("GET", "/runs"),
      scopeRunsSubscribe: () => service.ask("GET", "/runs/subscribe"),
    };

    for (const [name, ask] of Object.entries(asked)) {
      wrong = name;
      assert.equal((await ask()).status, 500, name);
    }

    assert.equal(heard.length, Object.keys(asked).length);
    for (const error of heard) assert.match((error as Error).message, /^auth\.\w+ returned .*throw/);
    assert.equal((await service.engine.getRuns()).total, 1);
    assert.equal((await service.engine.getRun(runId))!.status, "waiting");
  });
}

/** What is printed as a warning while something is done. */
function warningsOf(act: () => void): string[] {
  const warnings: string[] = [];
  const { warn } = console;
  console.warn = (...parts: unknown[]) => void warnings.push(parts.join(" "));
  try {
    act();
  } finally {
    console.warn = warn;
  }
  return warnings;
}

const authenticate = () => {};
const onRunAccess = () => {};
const scopeRuns = (_user: unknown, filter: RunFilter) => filter;
const WARNED: [auth: HandlerAuth<void>, named: string[]][] = [
  [{ authenticate }, ["onRunAccess", "scopeRuns", "onTrigger"]],
  [{ authenticate, onRunAccess, onTrigger: () => {} }, ["scopeRuns"]],
  [{ authenticate, scopeRuns, onTrigger: () => {} }, ["onRunAccess"]],
  [{ authenticate, onRunAccess, scopeRunsSubscribe: scopeRuns, onTrigger: () => {} }, ["scopeRuns"]],
  [{ authenticate, onRunAccess, scopeRuns }, ["onTrigger"]],
];

for (const [auth, named] of WARNED) {
  Deno.test(`createHandler() warns once that ${Object.keys(auth)} leave something open`, async () => {
    await using service = aService();

    const warnings = warningsOf(() => createHandler(service.engine, { auth }));

    assert.equal(warnings.length, 1);
    const names = ["onRunAccess", "scopeRuns", "onTrigger"].filter((name) => warnings[0]!.includes(`${name} (`));
    assert.deepEqual(names, named);
  });
}

Deno.test("createHandler() does not warn without auth, nor when triggers, runs and lists are guarded", async () => {
  await using service = aService();

  const warnings = warningsOf(() => {
    createHandler(service.engine);
    createHandler(service.engine, { auth: { authenticate, onTrigger: () => {}, onRunAccess, scopeRuns } });
  });

  assert.deepEqual(warnings, []);
});

Deno.test("createHandler() calls hooks on the object that has them, as it was when it was made", async () => {
  class Door {
    #isOpen = false;
    authenticate(): void {
      if (!this.#isOpen) throw new Response(null, { status: 401 });
    }
    onRunAccess(): void {
      this.authenticate();
    }
  }
  const door: { authenticate: () => void; onRunAccess?: () => void } = new Door();
  await using service = aService({ auth: door });
  door.authenticate = () => {};

  const response = await service.handler.fetch(aRequest("GET", "/runs"));

  assert.equal(response.status, 401);
});

Deno.test("createHandler() infers in every hook what authenticate returns", async () => {
  await using service = aService();
  interface User {
    org: string;
  }
  const is = (_user: User) => {};

  createHandler(service.engine, {
    auth: {
      authenticate: async (request): Promise<User> => ({ org: await Promise.resolve(request.url) }),
      onTrigger: (user, { labels }) => is(user) ?? labels.org,
      onRunAccess: (user, run, { operation }) => is(user) ?? [run.labels.org, operation],
      onSignal: (user, _run, wait, { payload }) => is(user) ?? [wait.metadata, payload],
      scopeRuns: (user, filter) => ({ ...filter, labels: { ...filter.labels, org: user.org } }),
      scopeRunsSubscribe: (user, filter) => ({ ...filter, labels: { ...filter.labels, org: user.org } }),
    },
  });
  createHandler(service.engine, {
    auth: {
      authenticate: () => ({ org: "a", admin: true }),
      onRunAccess: ({ org, admin }, { labels }) => {
        if (!admin && labels.org !== org.trim()) throw new Response(null, { status: 404 });
      },
      // @ts-expect-error: there is no such field
      onTrigger: ({ team }) => team,
      // @ts-expect-error: a scope is a filter
      scopeRuns: () => "a",
    },
  });
});

Deno.test("the body of a Response that a hook throws can be cancelled: nobody reads a copy of it", async () => {
  await using service = aService({ onRequest: () => Promise.reject(new Response("no", { status: 401 })) });

  const { body } = await service.handler.fetch(aRequest("GET", "/runs"));

  await body!.cancel();
});

Deno.test("a Response without a body that a hook throws again is sent again", async () => {
  const thrown = new Response(null, { status: 304 });
  await using service = aService({ onRequest: () => Promise.reject(thrown) });

  const statuses = [];
  for (const _ of [1, 2, 3]) statuses.push((await service.handler.fetch(aRequest("GET", "/runs"))).status);

  assert.deepEqual(statuses, [304, 304, 304]);
});
