import assert from "node:assert/strict";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { aRun } from "../../support/fixtures.ts";
import { claimOne, forEachStore } from "../../support/stores/for_each_store.ts";
import { aService, type Asked } from "../../support/http/http.ts";
import { aJob } from "../../support/jobs.ts";
import { CAREFUL, type Org } from "../../support/http/tenant_hooks.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aRefusal, aTenantRun, aTenantService, order, UNKNOWN } from "../../support/http/tenants.ts";
import { withCalls } from "../../support/stores/with_calls.ts";

const OF_B: Asked = { headers: { "x-org": "b" } };

/** Careful hooks that let everybody debug. */
const DEBUGGING: HandlerAuth<Org> = { ...CAREFUL, onOperate: () => {} };
/** Careful hooks that let nobody debug. */
const REFUSING: HandlerAuth<Org> = {
  ...CAREFUL,
  onOperate: () => {
    throw aRefusal();
  },
};

forEachStore("GET /explain says what explain() does", async (world) => {
  await using service = aService({}, world);
  const { id } = await service.engine.trigger("echo", {});

  const { status, body } = await service.ask("GET", `/explain?runId=${id}`);

  assert.deepEqual([status, body], [200, await service.engine.explain(id)]);
});

forEachStore("GET /explain names neither the run of another tenant nor a worker", async (world) => {
  for (const auth of [CAREFUL, REFUSING, DEBUGGING]) {
    await using service = aTenantService({ auth }, world);
    const key = { concurrencyKey: `disk ${Math.random()}` };
    const holder = await aTenantRun(service, world.store, "a", "running", key);
    const { runId } = await aTenantRun(service, world.store, "b", "pending", key);

    const { body } = await service.ask("GET", `/explain?runId=${runId}`, OF_B);

    const text = JSON.stringify(body);
    assert.equal(body.reasons[0].kind, "key", text);
    assert.deepEqual(body.reasons[0].holder, { runId: null, jobName: null, status: null, since: null });
    assert.equal(body.message, `Behind another run for the key ${key.concurrencyKey}; no run is ahead of it`);
    assert.ok(!text.includes(holder.runId) && !text.includes("dead-worker"), text);
  }
});

forEachStore("GET /explain does not count runs of other tenants, unless the caller sees statistics", async (world) => {
  const seen = [];
  for (const auth of [CAREFUL, REFUSING, DEBUGGING]) {
    await using service = aTenantService({ auth }, world);
    const key = { concurrencyKey: `disk ${Math.random()}` };
    await aTenantRun(service, world.store, "a", "running", key);
    await aTenantRun(service, world.store, "a", "pending", key);
    const { runId } = await aTenantRun(service, world.store, "b", "pending", key);

    const { body } = await service.ask("GET", `/explain?runId=${runId}`, OF_B);

    seen.push([body.message.split("; ").at(-1), body.reasons[0].ahead]);
  }
  const hidden = ["others are ahead of it", null];
  assert.deepEqual(seen, [hidden, hidden, ["1 run is ahead of it", 1]]);
});

forEachStore("GET /explain counts the runs of a key that is the tenant's own", async (world) => {
  const auth: HandlerAuth<Org> = { ...CAREFUL, tenant: ({ org }) => org };
  await using service = aTenantService({ auth }, world);
  const runs = [];
  for (let n = 0; n < 3; n++) {
    const body = { jobName: "order", input: {}, labels: { org: "b" }, concurrencyKey: "disk" };
    runs.push((await service.ask("POST", "/trigger", { ...OF_B, body })).body.runId);
    if (n === 0) await claimOne(world.store, "order");
  }

  const { body } = await service.ask("GET", `/explain?runId=${runs[2]}`, OF_B);

  assert.deepEqual([body.reasons[0].kind, body.reasons[0].ahead], ["key", 1], JSON.stringify(body));
});

forEachStore("GET /explain says nothing of a child that the caller may not read", async (world) => {
  const child = aJob((step) => step.wait("review"), "child");
  const parent = aJob(async (step) => {
    await step.invoke("call", child, {}, { labels: { org: "a" } });
  }, "parent");
  await using service = aTenantService({ auth: CAREFUL }, world, { child, parent });
  const { id } = await service.engine.trigger("parent", {}, { labels: { org: "b" } });
  await service.engine.runUntilIdle();

  const { body } = await service.ask("GET", `/explain?runId=${id}`, OF_B);

  const message = "Waiting for a child run";
  assert.deepEqual(body.reasons[0], { message, kind: "child", runId: null, jobName: null, status: null, open: 1 });
});

forEachStore("GET /explain names the worker of an own run to those who may debug", async (world) => {
  const messages = [];
  for (const auth of [CAREFUL, REFUSING, DEBUGGING]) {
    await using service = aTenantService({ auth }, world);
    const { runId } = await aTenantRun(service, world.store, "b", "running");

    const { body } = await service.ask("GET", `/explain?runId=${runId}`, OF_B);

    messages.push([body.message, body.reasons[0].worker?.id ?? null]);
  }
  assert.deepEqual(messages, [
    ["Running for 0 ms", null],
    ["Running for 0 ms", null],
    ["Running for 0 ms on dead-worker", "dead-worker"],
  ]);
});

Deno.test("the events of a run name its worker by a random id, which says nothing of the process", async () => {
  const worker = { name: "web-1", deployment: "2026.11.22" };
  await using engine = createEngine({ store: new MemoryStore(), jobs: { order }, worker });
  const owners: string[] = [];
  engine.on("run:leased", ({ leaseOwner }) => void owners.push(leaseOwner));
  await engine.trigger("order", {});

  await engine.runUntilIdle();

  assert.match(owners[0] ?? "", /^[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
});

forEachStore("GET /timeline shows workers to those who may debug", async (world) => {
  const workers = [];
  for (const auth of [CAREFUL, REFUSING, DEBUGGING]) {
    await using service = aTenantService({ auth }, world);
    const { id } = await service.engine.trigger("order", {}, { labels: { org: "b" } });
    const { lease } = await claimOne(world.store, "order");
    await world.store.release(lease, []);

    const { status, body } = await service.ask("GET", `/timeline?runId=${id}&limit=10`, OF_B);

    assert.deepEqual([status, body.rows.length, body.total], [200, 2, 2]);
    workers.push(body.rows[1].workerId);
    await service.engine.cancel(id);
  }
  assert.deepEqual(workers, [undefined, undefined, "dead-worker"]);
});

forEachStore("GET /failure is the only route that shows a stack", async (world) => {
  await using service = aTenantService({ auth: DEBUGGING }, world);
  const own = await aTenantRun(service, world.store, "b", "failed");
  const foreign = await aTenantRun(service, world.store, "a", "failed");

  const shown = await service.ask("GET", `/failure?runId=${own.runId}`, OF_B);
  const refused = await service.handler.fetch(
    new Request(`http://localhost/failure?runId=${foreign.runId}`, { headers: { "x-org": "b" } }),
  );

  assert.match(shown.body.run.stack, /tenants\.ts/);
  assert.deepEqual(shown.body.steps, []);
  assert.equal(refused.status, aRefusal().status);
  await refused.text();
  for (
    const path of [`/run?runId=${own.runId}`, "/runs", `/steps?runId=${own.runId}`, "/failures", "/find?q=org%3Db"]
      .concat([`/explain?runId=${own.runId}`, `/timeline?runId=${own.runId}`])
  ) {
    const { status, body } = await service.ask("GET", path, OF_B);
    assert.equal(status, 200, path);
    assert.doesNotMatch(JSON.stringify(body), /tenants\.ts|"stack"|"failure"/, path);
  }
});

forEachStore("GET /failure shows the failures of each attempt", async (world) => {
  const retry = { maxAttempts: 2, delay: 10, jitter: false };
  let attempts = 0;
  const broken = () => {
    throw new RangeError(`no ${++attempts}`, { cause: new Error("the disk is gone") });
  };
  const job = aJob((step) => step.run("read", broken, { retry }), "reader");
  await using service = aService({ showFailures: true }, world, { job });
  const { id } = await service.engine.trigger("reader", {});
  const idle = service.engine.runUntilIdle();
  await world.host.settle();
  world.host.advance(1_000);
  await idle;
  await service.engine.runUntilIdle();

  const { body } = await service.ask("GET", `/failure?runId=${id}`);

  const briefly = ({ name, message, cause }: { name: string; message: string; cause: { message: string } }) =>
    `${name}: ${message}: ${cause.message}`;
  assert.deepEqual(body.steps.map(({ name, attempt, failure }: never) => [name, attempt, briefly(failure)]), [
    ["read", 1, "RangeError: no 1: the disk is gone"],
    ["read", 2, "RangeError: no 2: the disk is gone"],
  ]);
  assert.equal(briefly(body.run), "RangeError: no 2: the disk is gone");
});

forEachStore("GET /failure is 403 unless somebody has decided who sees stacks", async (world) => {
  const answers = [];
  for (
    const options of [{}, { showFailures: true }, { auth: CAREFUL }, { auth: { ...CAREFUL, onRunAccess: undefined } }]
  ) {
    await using service = aTenantService(options as { auth?: HandlerAuth<Org> }, world);
    const { runId } = await aTenantRun(service, world.store, "b", "failed");

    answers.push((await service.ask("GET", `/failure?runId=${runId}`, OF_B)).status);
  }
  assert.deepEqual(answers, [403, 200, 403, 403]);
});

forEachStore("GET /failure is 403 unless both hooks are there, and admit the caller", async (world) => {
  const { authenticate, onRunAccess } = CAREFUL;
  const onOperate = () => {};
  const answers = [];
  for (const hooks of [{ onOperate }, { onRunAccess }, { onOperate, onRunAccess }]) {
    await using service = aTenantService({ auth: { authenticate, ...hooks } as HandlerAuth<Org> }, world);
    const { runId } = await aTenantRun(service, world.store, "b", "failed");

    const { status, body } = await service.ask("GET", `/failure?runId=${runId}`, OF_B);

    answers.push([status, body.code ?? null]);
  }
  assert.deepEqual(answers, [[403, "forbidden"], [403, "forbidden"], [200, null]]);
});

// More than a search looks at among the runs of all callers.
const MANY = 1_100;

forEachStore("GET /find finds an own run behind any number of others'", async (world) => {
  await using service = aTenantService({ auth: CAREFUL }, world);
  const flags = { env: "production" };
  const runOf = (org: string, n: number) => aRun({ id: `${n}`.padStart(8, "0") + "-end", labels: { org, ...flags } });
  await world.store.enqueue([runOf("b", 0)]);
  await world.store.enqueue(Array.from({ length: MANY }, (_, n) => runOf("a", n + 1)));
  await world.store.enqueue([runOf("b", MANY + 1)]);
  const [first, last] = ["00000000-end", `0000${MANY + 1}-end`];

  const answers = [];
  for (const text of ["0", "-end", "env=production"]) {
    const { body } = await service.ask("GET", `/find?q=${encodeURIComponent(text)}`, OF_B);
    answers.push([text, body.map(({ run, by }: { run: { id: string }; by: string }) => `${by} ${run.id}`).sort()]);
  }

  assert.deepEqual(answers, [
    ["0", [`id ${first}`, `id ${last}`]],
    ["-end", [`id ${first}`, `id ${last}`]],
    ["env=production", [`label ${first}`, `label ${last}`]],
  ]);
});

forEachStore("GET /find finds nothing by a value that no label of the caller's runs can have", async (world) => {
  await using service = aTenantService({ auth: CAREFUL }, world);

  for (const text of [`team=${"x".repeat(256)}`, "team=\x01", "=b", "__proto__=b", "a b=c", "team="]) {
    const { status, body } = await service.ask("GET", `/find?q=${encodeURIComponent(text)}`, OF_B);
    assert.deepEqual([status, body], [200, []], text);
  }
});

forEachStore("GET /find and /failures read no values of others' runs", async (world) => {
  const read: string[] = [];
  const store = withCalls(world.store, {
    readRuns: (runIds, maxLength) => {
      if (maxLength === Infinity) read.push(...runIds);
      return world.store.readRuns(runIds, maxLength);
    },
  });
  await using service = aTenantService({ auth: CAREFUL }, { ...world, store });
  const foreign = await aTenantRun(service, store, "a", "failed", { concurrencyKey: "disk" });
  const own = await aTenantRun(service, store, "b", "failed", { concurrencyKey: "disk" });
  read.length = 0;

  for (const path of [`/find?q=${foreign.runId}`, "/find?q=0", "/find?q=org%3Da", "/failures", "/waits/open"]) {
    await service.ask("GET", path, OF_B);
  }

  assert.deepEqual(read.filter((runId) => runId !== own.runId), []);
});

forEachStore("GET /failures looks for own runs behind those that the hook refuses", async (world) => {
  const { authenticate, onRunAccess } = CAREFUL;
  await using service = aTenantService({ auth: { authenticate, onRunAccess } as HandlerAuth<Org> }, world);
  const own = await aTenantRun(service, world.store, "b", "failed");
  for (let n = 0; n < 210; n++) await service.engine.trigger("fail", {}, { labels: { org: "a" } });
  await service.engine.runUntilIdle();

  const { body } = await service.ask("GET", "/failures", OF_B);

  assert.deepEqual([body.examined, body.groups[0]?.runIds], [1, [own.runId]]);
});

forEachStore("GET /waits/open returns after a while, also if it has found nothing", async (world) => {
  let asked = 0;
  await using service = aTenantService({
    auth: {
      authenticate: CAREFUL.authenticate,
      onRunAccess: ({ org }: Org, { labels }) => {
        world.host.advance(60);
        asked += 1;
        if (labels.org !== org) throw aRefusal();
      },
    },
  }, world);
  for (let n = 0; n < 6; n++) await aTenantRun(service, world.store, "a", "waiting");
  const own = await aTenantRun(service, world.store, "b", "waiting");

  const pages = [];
  let cursor = "";
  do {
    const { body } = await service.ask("GET", `/waits/open${cursor}`, OF_B);
    pages.push(body.waits.map(({ id }: { id: string }) => id));
    cursor = body.next === null ? "" : `?cursor=${body.next}`;
  } while (cursor !== "" && pages.length < 10);

  assert.deepEqual([pages.flat(), pages.length, asked], [[own.waitId], 4, 7]);
});

forEachStore("GET /waits/open, /failures and /find show a tenant its own runs only", async (world) => {
  await using service = aTenantService({ auth: CAREFUL }, world);
  const a = {
    waiting: await aTenantRun(service, world.store, "a", "waiting"),
    failed: await aTenantRun(service, world.store, "a", "failed"),
  };
  const b = {
    waiting: await aTenantRun(service, world.store, "b", "waiting"),
    failed: await aTenantRun(service, world.store, "b", "failed"),
  };

  const waits = await service.ask("GET", "/waits/open", OF_B);
  const failures = await service.ask("GET", "/failures", OF_B);
  const found = await service.ask("GET", "/find?q=org%3Da", OF_B);
  const foundById = await service.ask("GET", `/find?q=${a.waiting.runId}`, OF_B);
  const foundByWait = await service.ask("GET", `/find?q=${a.waiting.waitId}`, OF_B);
  const own = await service.ask("GET", `/find?q=${b.waiting.waitId}`, OF_B);

  assert.deepEqual(waits.body.waits.map(({ id }: { id: string }) => id), [b.waiting.waitId]);
  assert.deepEqual([waits.body.total, waits.body.next], [null, null]);
  assert.deepEqual([failures.body.examined, failures.body.groups[0].runIds], [1, [b.failed.runId]]);
  assert.deepEqual([found.body, foundById.body, foundByWait.body], [[], [], []]);
  assert.deepEqual(own.body.map(({ by, run }: never) => [by, (run as { id: string }).id]), [[
    "waitId",
    b.waiting.runId,
  ]]);
});

forEachStore("GET /waits/open continues without a word of others' waits", async (world) => {
  await using service = aTenantService({ auth: CAREFUL }, world);
  const own = [];
  for (const org of ["a", "b", "a", "b", "a", "b"]) {
    const run = await aTenantRun(service, world.store, org, "waiting");
    if (org === "b") own.push(run.waitId);
  }

  const first = await service.ask("GET", "/waits/open?limit=2", OF_B);
  const second = await service.ask("GET", `/waits/open?limit=2&cursor=${first.body.next}`, OF_B);

  const ids = [...first.body.waits, ...second.body.waits].map(({ id }: { id: string }) => id);
  assert.deepEqual([first.body.waits.length, ids, second.body.next], [2, own, null]);
});

forEachStore("GET /waits/open costs a tenant what it has, and its cursors count no waits of others", async (world) => {
  const read: number[] = [];
  const store = withCalls(world.store, {
    getOpenWaits: async (...asked) => {
      const found = await world.store.getOpenWaits(...asked);
      read.push(found.waits.length);
      return found;
    },
  });
  await using service = aTenantService({ auth: CAREFUL }, { ...world, store });
  const own = [];
  for (let n = 0; n < 40; n++) {
    const run = await aTenantRun(service, world.store, n % 20 === 10 ? "b" : "a", "waiting");
    if (n % 20 === 10) own.push(run.waitId!);
  }

  const first = await service.ask("GET", "/waits/open?limit=1", OF_B);
  await service.engine.signal(own[0]!, { signalId: "1", payload: null }); // the cursor's own wait is not open any more
  world.host.advance(1);
  const second = await service.ask("GET", `/waits/open?limit=1&cursor=${first.body.next}`, OF_B);

  assert.deepEqual(read, [2, 1]);
  assert.ok(first.body.next.endsWith(`.${own[0]}`), first.body.next);
  assert.deepEqual([second.body.waits[0].id, second.body.next], [own[1], null]);
});

forEachStore("GET /find finds a key of the tenant's own", async (world) => {
  const auth = { ...CAREFUL, tenant: ({ org }: Org) => org };
  await using service = aTenantService({ auth }, world);
  const body = { jobName: "order", input: {}, labels: { org: "b" }, idempotencyKey: "order-1" };
  const { body: { runId } } = await service.ask("POST", "/trigger", { ...OF_B, body });

  const found = await service.ask("GET", "/find?q=order-1", OF_B);

  assert.deepEqual(found.body.map(({ by, run }: never) => [by, (run as { id: string }).id]), [[
    "idempotencyKey",
    runId,
  ]]);
});

forEachStore("GET /runs takes before and fields=summary", async (world) => {
  await using service = aTenantService({ auth: CAREFUL }, world);
  const foreign = await aTenantRun(service, world.store, "a", "pending");
  const runs = [];
  for (let count = 0; count < 3; count++) runs.push((await aTenantRun(service, world.store, "b", "completed")).runId);

  const { body } = await service.ask("GET", `/runs?before=${runs[2]}&fields=summary`, OF_B);
  const unknown = await service.ask("GET", `/runs?before=${UNKNOWN}`, OF_B);
  const ofA = await service.handler.fetch(
    new Request(`http://localhost/runs?before=${foreign.runId}`, { headers: { "x-org": "b" } }),
  );
  const wrong = await service.ask("GET", "/runs?fields=all", OF_B);

  assert.deepEqual(body.runs.map(({ id }: { id: string }) => id), [runs[1], runs[0]]);
  assert.deepEqual(["input" in body.runs[0], "output" in body.runs[0]], [false, false]);
  assert.deepEqual([body.runs[0].status, body.runs[0].isTerminal], ["completed", true]);
  assert.deepEqual([unknown.status, wrong.status], [404, 400]);
  assert.equal(ofA.status, aRefusal().status);
  await ofA.text();
});

Deno.test("the routes about runs refuse what is not valid", async () => {
  await using service = aService({ showFailures: true });
  const { id } = await service.engine.trigger("echo", {});
  const wrong = [
    "/explain",
    "/timeline",
    `/timeline?runId=${id}&limit=0`,
    `/timeline?runId=${id}&limit=1001`,
    `/timeline?runId=${id}&limit=x`,
    `/timeline?runId=${id}&from=x`,
    `/timeline?runId=${id}&from=1.1.1&from=1.1.1`,
    "/failure",
    "/waits/open?limit=0",
    "/waits/open?limit=-1",
    "/waits/open?cursor=__proto__",
    "/waits/open?jobName=",
    "/failures?since=yesterday",
    "/failures?since=2040-01-01T00:00:00.000Z&since=2040-01-01T00:00:00.000Z",
    "/failures?jobName=",
    "/find",
    "/find?q=",
    "/find?q=a&q=b",
    "/find?q=%00",
    `/find?q=${"x".repeat(321)}`,
    "/runs?before=",
    "/runs?fields=",
  ];

  for (const path of wrong) {
    const { status, body } = await service.ask("GET", path);
    assert.deepEqual([status, body.code], [400, "invalid_request"], path);
  }
  assert.match((await service.ask("GET", "/failures?since=yesterday")).body.error, /^since must be a date/);
  for (const path of ["/explain", "/timeline", "/failure"]) {
    const { status } = await service.ask("GET", `${path}?runId=${UNKNOWN}`);
    assert.equal(status, 404, path);
  }
});
