import assert from "node:assert/strict";
import type { RequestedTrigger } from "../../src/http/access/auth_hooks.ts";
import type { HandlerOptions } from "../../src/http/handler_options.ts";
import { createHandler } from "../../src/http/handler.ts";
import type { NewRun } from "../../src/store/new_run.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FAKE_START, FakeHost } from "../support/fake_host.ts";
import { aService, askFunction } from "../support/http/http.ts";
import { echo } from "../support/jobs.ts";
import { createEngine } from "../support/quiet_engine.ts";
import { withCalls } from "../support/stores/with_calls.ts";

const A_TRIGGER = { jobName: "echo", input: {} };
const iso = (ms: number) => new Date(FAKE_START + ms).toISOString();

/** A service, and what it asks of its store. */
function aRecorded<Context>(options: HandlerOptions<Context> = {}) {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  const asked: NewRun[] = [];
  const store = withCalls(memory, {
    enqueue: (runs) => {
      asked.push(...runs);
      return memory.enqueue(runs);
    },
  });
  return { ...aService(options, { store, host }), asked, store, host };
}

Deno.test("POST /trigger takes startAt, priority, startWithin and finishWithin, and /run and /runs show them", async () => {
  const { ask, host, engine } = aRecorded();

  const body = { ...A_TRIGGER, startAt: iso(1_000), priority: 5, startWithin: 60_000, finishWithin: 90_000 };
  const { status, body: { runId } } = await ask("POST", "/trigger", { body });
  const pending = await ask("GET", `/run?runId=${runId}`);
  host.advance(2_000);
  await engine.runUntilIdle();
  const { body: { runs: [listed] } } = await ask("GET", "/runs");

  assert.equal(status, 200);
  const shown = { startAt: iso(1_000), priority: 5, startBy: iso(61_000) };
  assert.partialDeepStrictEqual(pending.body, shown);
  assert.ok(!("finishBy" in pending.body));
  assert.partialDeepStrictEqual(listed, { ...shown, status: "completed", finishBy: iso(92_000) });
});

Deno.test("POST /trigger takes delay", async () => {
  const { ask, asked } = aRecorded();

  const { status } = await ask("POST", "/trigger", { body: { ...A_TRIGGER, delay: 5_000 } });

  assert.deepEqual([status, asked[0]!.flow.start], [200, { afterMs: 5_000 }]);
});

Deno.test("/run leaves out what a plain run does not have", async () => {
  const { ask } = aRecorded();
  const { body: { runId } } = await ask("POST", "/trigger", { body: A_TRIGGER });

  const { body } = await ask("GET", `/run?runId=${runId}`);

  for (const name of ["startAt", "priority", "fairnessKey", "startBy", "finishBy", "failureKind"]) {
    assert.ok(!(name in body), name);
  }
});

Deno.test("POST /trigger refuses fairnessKey, and says why", async () => {
  const { ask, asked } = aRecorded();

  for (const fairnessKey of ["own", null, 5]) {
    const { status, body } = await ask("POST", "/trigger", { body: { ...A_TRIGGER, fairnessKey } });

    assert.equal(status, 400);
    assert.deepEqual(body.issues, [{
      path: ["fairnessKey"],
      message: "cannot be given over HTTP: a client with a key for each run would pass all others",
    }]);
  }
  assert.deepEqual(asked, []);
});

const REFUSED: [Record<string, unknown>, string, RegExp][] = [
  [{ startAt: iso(0), delay: 5 }, "delay", /^excludes startAt$/],
  [{ startAt: "2040-01-01T00:00:00" }, "startAt", /^must be a date .* in ISO 8601/],
  [{ startAt: 5 }, "startAt", /ISO 8601/],
  [{ startAt: null }, "startAt", /ISO 8601/],
  [{ delay: -1 }, "delay", /^must be an integer from 0 to /],
  [{ delay: 1.5 }, "delay", /integer/],
  [{ delay: "5" }, "delay", /integer/],
  [{ priority: 1_001 }, "priority", /^must be an integer from -1,000 to 1,000$/],
  [{ priority: "5" }, "priority", /integer/],
  [{ priority: null }, "priority", /integer/],
  [{ startWithin: 0 }, "startWithin", /^must be an integer from 1 to /],
  [{ finishWithin: 1e15 }, "finishWithin", /^must be an integer from 1 to /],
  [{ finishWithin: {} }, "finishWithin", /integer/],
  [{ concurrencyKey: "k", coalesce: "skip", delay: 5 }, "coalesce", /^excludes startAt and delay$/],
  [{ concurrencyKey: "k", coalesce: "active", startAt: iso(0) }, "coalesce", /^excludes startAt and delay$/],
];

for (const [fields, path, message] of REFUSED) {
  Deno.test(`POST /trigger answers 400 to ${JSON.stringify(fields)}, and names ${path}`, async () => {
    const { ask, asked } = aRecorded();

    const { status, body } = await ask("POST", "/trigger", { body: { ...A_TRIGGER, ...fields } });

    assert.deepEqual([status, body.code, body.issues[0].path, asked], [400, "invalid_request", [path], []]);
    assert.match(body.issues[0].message, message);
  });
}

Deno.test("POST /trigger answers 400 to a misspelled field", async () => {
  const { ask } = aRecorded();

  for (const name of ["start_at", "startat", "Priority", "finish_within"]) {
    const { status } = await ask("POST", "/trigger", { body: { ...A_TRIGGER, [name]: 5 } });
    assert.equal(status, 400, name);
  }
});

Deno.test("onTrigger sees what the client asked for, durations in milliseconds, and may refuse it", async () => {
  const seen: RequestedTrigger[] = [];
  const { ask, asked } = aRecorded({
    auth: {
      authenticate: () => ({}),
      onTrigger: (_context, trigger) => {
        seen.push(trigger);
        if ((trigger.priority ?? 0) > 0) throw Response.json({ code: "no" }, { status: 403 });
      },
      onRunAccess: () => {},
      scopeRuns: (_context, filter) => filter,
    },
  });

  const flow = { startAt: "2040-01-01T01:00:00+01:00", priority: -5, startWithin: 1, finishWithin: 2 };
  const allowed = await ask("POST", "/trigger", { body: { ...A_TRIGGER, ...flow } });
  const delayed = await ask("POST", "/trigger", { body: { ...A_TRIGGER, delay: "7m" } });
  const refused = await ask("POST", "/trigger", { body: { ...A_TRIGGER, priority: 1 } });

  assert.deepEqual([allowed.status, delayed.status, refused.status, asked.length], [200, 200, 403, 2]);
  const plain = { jobName: "echo", input: {}, parsed: {}, labels: {} };
  assert.deepEqual(seen, [{ ...plain, ...flow }, { ...plain, delay: 420_000 }, { ...plain, priority: 1 }]);
});

Deno.test("tenants take turns, unless the label fairnessLabel says whose turn it is", async () => {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  const keys: (string | null)[] = [];
  const store = withCalls(memory, {
    enqueue: (runs) => {
      keys.push(...runs.map(({ flow }) => flow.fairnessKey));
      return memory.enqueue(runs);
    },
  });
  const engine = createEngine({ store, host, jobs: { echo }, fairnessLabel: "org" });
  const auth = {
    authenticate: () => ({}),
    tenant: () => "acme",
    onTrigger: () => {},
    onRunAccess: () => {},
    scopeRuns: (_context: unknown, filter: object) => filter,
  };
  const { fetch } = createHandler(engine, { host, auth });

  await askFunction(fetch, "POST", "/trigger", { body: A_TRIGGER });
  await askFunction(fetch, "POST", "/trigger", { body: { ...A_TRIGGER, labels: { org: "sub-1" } } });
  await engine.trigger("echo", {});

  assert.deepEqual(keys, ["acme", "sub-1", null]);
});

Deno.test("GET /runs filters by failureKind, parentRunId and times", async () => {
  const { ask, host, engine } = aRecorded();
  const expired = await engine.trigger("echo", {}, { startWithin: 10 });
  host.advance(1_000);
  const done = await engine.trigger("echo", {});
  await engine.runUntilIdle();
  const listed = async (query: string) => {
    const { body } = await ask("GET", `/runs?${query}`);
    return body.runs.map(({ id }: { id: string }) => id);
  };

  assert.deepEqual(await listed("failureKind=expired"), [expired.id]);
  assert.deepEqual(await listed(`createdAfter=${iso(1_000)}`), [done.id]);
  assert.deepEqual(await listed(`createdBefore=${encodeURIComponent("2040-01-01T01:00:01+01:00")}`), [expired.id]);
  assert.deepEqual(await listed(`completedAfter=${iso(1_000)}&completedBefore=${iso(1_001)}`), [done.id, expired.id]);
  assert.deepEqual(await listed(`parentRunId=${done.id}`), []);
});

Deno.test("GET /runs answers 400 to wrong filters", async () => {
  const { ask } = aRecorded();
  const wild = [
    "failureKind=late",
    "failureKind=",
    "failureKind=error&failureKind=timeout",
    "parentRunId=",
    "createdAfter=yesterday",
    "createdBefore=",
    "completedAfter=2040-01-01T01:00:00+01:00", // an unescaped + is a space
    "completedBefore=2040-02-30",
    "completedBefore=2040-01-01&completedBefore=2041-01-01",
    "held=",
    "held=yes",
    "held=true&held=true",
  ];

  for (const query of wild) {
    const { status, body } = await ask("GET", `/runs?${query}`);
    assert.deepEqual([status, body.code], [400, "invalid_request"], query);
  }
});

Deno.test("scopeRuns may add the new filters: the client's and the hook's both apply", async () => {
  let scope = {};
  const { ask, host, engine } = aRecorded({
    auth: {
      authenticate: () => ({}),
      onTrigger: () => {},
      onRunAccess: () => {},
      scopeRuns: (_context, filter) => ({ ...filter, ...scope }),
    },
  });
  const old = await engine.trigger("echo", {}, { startWithin: 10 });
  host.advance(1_000);
  const young = await engine.trigger("echo", {});
  await engine.runUntilIdle();
  const listed = async (query: string, added: object) => {
    scope = added;
    const { body } = await ask("GET", `/runs?${query}`);
    return body.runs.map(({ id }: { id: string }) => id);
  };

  assert.deepEqual(await listed("", { createdAfter: iso(1_000) }), [young.id]);
  assert.deepEqual(await listed(`createdAfter=${iso(0)}`, { createdAfter: iso(1_000) }), [young.id]);
  assert.deepEqual(await listed(`createdAfter=${iso(1_000)}`, { createdAfter: iso(0) }), [young.id]);
  assert.deepEqual(await listed(`createdBefore=${iso(2_000)}`, { createdBefore: iso(1_000) }), [old.id]);
  assert.deepEqual(await listed("failureKind=expired", {}), [old.id]);
  assert.deepEqual(await listed("failureKind=expired", { failureKind: "error" }), []);
  assert.deepEqual(await listed("", { failureKind: "expired" }), [old.id]);
});
