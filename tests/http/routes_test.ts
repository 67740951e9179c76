import assert from "node:assert/strict";
import { z } from "zod";
import { persistLogs } from "../../src/engine/plugin.ts";
import { isoTime } from "../../src/values/iso_time.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import type { ClientRun } from "../../src/model/client_run.ts";
import { FAKE_START } from "../support/fake_host.ts";
import { aHold } from "../support/fixtures.ts";
import { claimOne, forEachStore, holdRun, pass } from "../support/stores/for_each_store.ts";
import { aRequest, aService, aWaitingRun, type Service } from "../support/http/http.ts";
import { routesOfRuns } from "../support/http/hostile.ts";
import { aJob } from "../support/jobs.ts";
import { UNKNOWN } from "../support/http/tenants.ts";

/** Triggers a run and works off what is due. */
async function aRunOf({ engine }: Service, jobName: string, input: unknown = {}): Promise<string> {
  const { id } = await engine.trigger(jobName, input);
  await engine.runUntilIdle();
  return id;
}

forEachStore("POST /trigger answers the run, its disposition and its status, and nothing else", async (context) => {
  await using service = aService({}, context);

  const answer = await service.ask("POST", "/trigger", {
    body: { jobName: "echo", input: { n: 1 }, labels: { org: "a" }, concurrencyKey: "line", unknown: true },
  });

  const { runs: [run] } = await service.engine.getRuns();
  assert.equal(answer.status, 200);
  assert.deepEqual(answer.body, { runId: run!.id, disposition: "created", status: "pending" });
  assert.deepEqual(
    [run!.jobName, run!.payload, run!.labels, run!.concurrencyKey],
    ["echo", { n: 1 }, { org: "a" }, "line"],
  );
});

forEachStore(
  "POST /trigger finds the run of an idempotency key, whatever its status and the input",
  async (context) => {
    await using service = aService({}, context);
    const body = { jobName: "echo", input: { n: 1 }, idempotencyKey: "once" };

    const first = await service.ask("POST", "/trigger", { body });
    await service.engine.runUntilIdle();
    const second = await service.ask("POST", "/trigger", { body: { ...body, input: { n: 2 } } });

    assert.deepEqual(second.body, { runId: first.body.runId, disposition: "idempotent", status: "completed" });
  },
);

forEachStore("POST /trigger coalesces onto a run that waits", async (context) => {
  await using service = aService({}, context);
  const body = { jobName: "approval", input: {}, concurrencyKey: "line", coalesce: "active" };

  const first = await service.ask("POST", "/trigger", { body });
  await service.engine.runUntilIdle();
  const second = await service.ask("POST", "/trigger", { body });

  assert.deepEqual(second.body, { runId: first.body.runId, disposition: "coalesced", status: "waiting" });
});

forEachStore("POST /trigger refuses a job that nobody knows, however it is called", async (context) => {
  await using service = aService({}, context);
  const ask = (jobName: string) => service.ask("POST", "/trigger", { body: { jobName, input: {} } });

  const answers = await Promise.all(["unknown", "__proto__", "constructor", "toString", "hasOwnProperty"].map(ask));

  for (const { status, body } of answers) assert.deepEqual([status, body.code], [404, "not_found"]);
  assert.equal((await service.engine.getRuns()).total, 0);
});

forEachStore("POST /trigger shows what the schema of a job refused", async (context) => {
  const strict = defineJob({ name: "strict", input: z.object({ n: z.object({ m: z.number() }) }), run: () => {} });
  await using service = aService({}, context, { strict });

  const answer = await service.ask("POST", "/trigger", { body: { jobName: "strict", input: { n: { m: "secret" } } } });

  assert.deepEqual([answer.status, answer.body.code], [400, "invalid_input"]);
  assert.deepEqual(answer.body.issues.map(({ path }: { path: string[] }) => path), [["n", "m"]]);
  assert.doesNotMatch(JSON.stringify(answer.body), /secret/);
});

forEachStore("POST /trigger keeps texts and keys of an input exactly", async (context) => {
  await using service = aService({}, context);
  const input =
    '{"a\\u0000b":"\\u0000 \\ud800 \\u2028","__proto__":{"admin":true},"constructor":1,"prototype":null,"n":9007199254740993}';
  const body = `{"jobName":"echo","input":${input}}`;

  const { body: { runId } } = await service.ask("POST", "/trigger", { body });
  await service.engine.runUntilIdle();

  const run = await service.ask("GET", `/run?runId=${runId}`);
  assert.deepEqual(run.body.input, JSON.parse(input));
  assert.deepEqual(run.body.output, JSON.parse(input));
  assert.ok(Object.hasOwn(run.body.input, "__proto__"));
  assert.equal(({} as { admin?: boolean }).admin, undefined);
});

forEachStore("POST /trigger answers a schema that takes its time", async (context) => {
  const schema = z.object({}).refine(() =>
    new Promise<boolean>((resolve) => context.host.schedule(100, () => resolve(true)))
  );
  const slow = defineJob({ name: "slow", input: schema, run: () => {} });
  await using service = aService({}, context, { slow });

  const asked = service.ask("POST", "/trigger", { body: { jobName: "slow", input: {} } });
  await pass(context.host, 200);

  assert.equal((await asked).status, 200);
});

forEachStore("GET /run shows a run as clients may see it", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", { n: 1 }, {
    labels: { org: "a" },
    idempotencyKey: "once",
    concurrencyKey: "line",
  });
  const at = new Date(FAKE_START).toISOString();

  const pending = await service.ask("GET", `/run?runId=${id}`);
  await service.engine.runUntilIdle();
  const completed = await service.ask("GET", `/run?runId=${id}`);

  assert.equal(pending.status, 200);
  assert.deepEqual(pending.body, {
    id,
    jobName: "echo",
    status: "pending",
    input: { n: 1 },
    output: null,
    labels: { org: "a" },
    createdAt: at,
    isTerminal: false,
    isActive: true,
    isWaiting: false,
  });
  assert.deepEqual(completed.body, {
    ...pending.body,
    status: "completed",
    output: { n: 1 },
    startedAt: at,
    completedAt: at,
    isTerminal: true,
    isActive: false,
  });
});

forEachStore("GET /run shows why a run failed, and how far it came", async (context) => {
  const tells = aJob((step) => {
    step.progress(1, 2, "half");
    throw new Error("broken");
  }, "tells");
  await using service = aService({}, context, { tells });
  const runId = await aRunOf(service, "tells");

  const { body } = await service.ask("GET", `/run?runId=${runId}`);

  assert.deepEqual([body.status, body.error, body.progress], [
    "failed",
    "broken",
    { current: 1, total: 2, message: "half" },
  ]);
});

forEachStore("GET /runs lists the newest first, as clients may see them", async (context) => {
  await using service = aService({}, context);
  const ids = [];
  for (const n of [1, 2, 3]) ids.unshift((await service.engine.trigger("echo", { n }, { idempotencyKey: `${n}` })).id);

  const all = await service.ask("GET", "/runs");
  const page = await service.ask("GET", "/runs?limit=1&offset=1");
  const none = await service.ask("GET", "/runs?limit=0");

  assert.equal(all.status, 200);
  assert.deepEqual(Object.keys(all.body), ["runs", "total", "hasMore"]);
  assert.deepEqual(all.body.runs.map(({ id }: { id: string }) => id), ids);
  assert.deepEqual([all.body.total, all.body.hasMore], [3, false]);
  assert.deepEqual(all.body.runs[0], (await service.ask("GET", `/run?runId=${ids[0]}`)).body);
  assert.deepEqual(page.body.runs.map(({ id }: { id: string }) => id), [ids[1]]);
  assert.deepEqual([page.body.total, page.body.hasMore], [3, true]);
  assert.deepEqual(none.body, { runs: [], total: 3, hasMore: true });
});

forEachStore(
  "GET /runs says that there are at least as many runs as were counted, or does not count",
  async (context) => {
    await using service = aService({}, context);
    for (let n = 0; n < 3; n++) await service.engine.trigger("echo", n, { labels: { org: "acme" } });
    const findRuns = context.store.findRuns.bind(context.store);
    context.store.findRuns = (query) => findRuns({ countUpTo: 2, ...query });

    const most = await service.ask("GET", "/runs?label.org=acme&limit=1");
    const all = await service.ask("GET", "/runs?label.org=acme&limit=3&total=true");
    const uncounted = await service.ask("GET", "/runs?label.org=acme&limit=1&total=false");
    const wrong = await service.ask("GET", "/runs?total=no");

    assert.deepEqual({ ...most.body, runs: 1 }, { runs: 1, total: 2, totalIsAtLeast: true, hasMore: true });
    assert.deepEqual({ ...all.body, runs: 3 }, { runs: 3, total: 3, hasMore: false });
    assert.deepEqual(Object.keys(uncounted.body), ["runs", "hasMore"]);
    assert.deepEqual([wrong.status, wrong.body.code], [400, "invalid_request"]);
  },
);

forEachStore("GET /runs answers 50 runs unless a filter says otherwise", async (context) => {
  await using service = aService({}, context);
  for (let n = 0; n < 51; n++) await service.engine.trigger("echo", n);

  const { body } = await service.ask("GET", "/runs");

  assert.deepEqual([body.runs.length, body.total, body.hasMore], [50, 51, true]);
});

forEachStore("GET /runs filters by job, status and labels", async (context) => {
  await using service = aService({}, context);
  await service.engine.trigger("echo", {}, { labels: { org: "a", team: "x" } });
  await service.engine.trigger("fail", {}, { labels: { org: "a", team: "" } });
  await service.engine.trigger("approval", {}, { labels: JSON.parse('{"org":"b","__proto__":"p","constructor":"c"}') });
  await service.engine.runUntilIdle();
  await service.engine.trigger("echo", {});
  const jobNames = async (query: string) => {
    const { status, body } = await service.ask("GET", `/runs?${query}`);
    assert.equal(status, 200);
    return body.runs.map(({ jobName, status }: { jobName: string; status: string }) => `${jobName} ${status}`);
  };

  const filtered = {
    job: await jobNames("jobName=echo"),
    jobs: await jobNames("jobName=echo&jobName=fail&jobName=unknown"),
    status: await jobNames("status=waiting"),
    statuses: await jobNames("status=failed&status=completed&status=failed"),
    label: await jobNames("label.org=a"),
    labels: await jobNames("label.org=a&label.team=x"),
    sameLabelTwice: await jobNames("label.org=a&label.org=a"),
    twoValues: await jobNames("label.org=a&label.org=b"),
    emptyValue: await jobNames("label.team="),
    noValue: await jobNames("label.team"),
    proto: await jobNames("label.__proto__=p&label.constructor=c"),
    otherProto: await jobNames("label.__proto__=q"),
    encoded: await jobNames("label%2Eorg=%62"),
    otherJob: await jobNames("jobName=ECHO"),
    unknownParameters: await jobNames("status=waiting&sort=x&token=org&__proto__=1"),
  };

  assert.deepEqual(filtered, {
    job: ["echo pending", "echo completed"],
    jobs: ["echo pending", "fail failed", "echo completed"],
    status: ["approval waiting"],
    statuses: ["fail failed", "echo completed"],
    label: ["fail failed", "echo completed"],
    labels: ["echo completed"],
    sameLabelTwice: ["fail failed", "echo completed"],
    twoValues: [],
    emptyValue: ["fail failed"],
    noValue: ["fail failed"],
    proto: ["approval waiting"],
    otherProto: [],
    encoded: ["approval waiting"],
    otherJob: [],
    unknownParameters: ["approval waiting"],
  });
});

forEachStore("GET /runs counts nothing if one label is asked for with two values", async (context) => {
  await using service = aService({}, context);
  await service.engine.trigger("echo", {}, { labels: { org: "b" } });

  const { status, body } = await service.ask("GET", "/runs?label.org=a&label.org=b");

  assert.deepEqual([status, body], [200, { runs: [], total: 0, hasMore: false }]);
});

for (const path of ["/runs", "/runs/subscribe"]) {
  forEachStore(`GET ${path} takes 50 job names and 16 labels, and refuses more`, async (context) => {
    await using service = aService({}, context);
    const names = Array.from({ length: 50 }, (_, n) => `jobName=job-${n}`);
    const labels = Array.from({ length: 16 }, (_, n) => `label.k${n}=v`);
    const queries = [[...names, ...labels], [...names, "jobName=job-1"], [...labels, "label.k1=v"]];

    const answers = [];
    for (const query of queries) {
      const response = await service.handler.fetch(aRequest("GET", `${path}?${query.join("&")}`));
      if (response.status === 200) await response.body!.cancel();
      answers.push(response.status === 200 ? 200 : [response.status, (await response.json()).error]);
    }

    assert.deepEqual(answers, [
      200,
      [400, "A list takes at most 50 job names, not 51"],
      [400, "A list takes at most 16 labels, not 17"],
    ]);
  });
}

forEachStore("GET /runs counts only the labels of the client, and not those that a scope adds", async (context) => {
  const own = Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`own${n}`, "v"]));
  const jobName = ["echo", ...Array.from({ length: 60 }, (_, n) => `job-${n}`)];
  await using service = aService({
    auth: {
      authenticate: () => {},
      onRunAccess: () => {},
      scopeRuns: (_context, filter) => ({ ...filter, jobName, labels: { ...filter.labels, ...own } }),
    },
  }, context);
  const labels = Object.fromEntries(Array.from({ length: 16 }, (_, n) => [`k${n}`, "v"]));
  await service.engine.trigger("echo", {}, { labels: { ...own, ...labels } });
  await service.engine.trigger("echo", {}, { labels });

  const query = Object.keys(labels).map((key) => `label.${key}=v`).join("&");
  const { status, body } = await service.ask("GET", `/runs?${query}`);

  assert.deepEqual([status, body.total], [200, 1]);
});

forEachStore("no route shows a stack: /run, /runs and /steps tell the message and the step", async (context) => {
  const failing = aJob((step) =>
    step.run("read", () => {
      throw new Error("no such file", { cause: new Error("a hidden cause") });
    }), "failing");
  await using service = aService({}, context, { failing });
  const runId = await aRunOf(service, "failing");
  assert.match((await service.engine.getRun(runId))!.failure!.stack!, /routes_test/);

  const { body: run } = await service.ask("GET", `/run?runId=${runId}`);
  const { body: { runs } } = await service.ask("GET", "/runs");
  const { body: steps } = await service.ask("GET", `/steps?runId=${runId}`);

  assert.deepEqual([run.error, run.failedStepName, steps[0].error], ["no such file", "read", "no such file"]);
  assert.deepEqual(runs, [run]);
  assert.deepEqual(Object.keys(steps[0]).sort(), [
    ...["attempts", "completedAt", "error", "id", "index", "name", "output", "runId", "startedAt", "status"],
  ]);
  assert.ok(!/routes_test|hidden|failure"/.test(JSON.stringify([run, runs, steps])));
});

forEachStore("GET /steps shows the recorded steps in the order of their index", async (context) => {
  const stepping = aJob(async (step) => {
    await step.run("read", () => ["row"]);
    await step.run("nothing", () => undefined);
    await step.run("write", () => {
      throw new Error("disk full");
    });
  }, "stepping");
  await using service = aService({}, context, { stepping });
  const runId = await aRunOf(service, "stepping");

  const { status, body } = await service.ask("GET", `/steps?runId=${runId}`);

  const at = new Date(FAKE_START).toISOString();
  const rest = { runId, attempts: 1, startedAt: at, completedAt: at };
  assert.equal(status, 200);
  assert.deepEqual(body.map(({ id: _, ...step }: { id: string }) => step), [
    { name: "read", index: 0, status: "completed", output: ["row"], error: null, ...rest },
    { name: "nothing", index: 1, status: "completed", output: null, error: null, ...rest },
    { name: "write", index: 2, status: "failed", output: null, error: "disk full", ...rest },
  ]);
  assert.equal(new Set(body.map(({ id }: { id: string }) => id)).size, 3);
  assert.deepEqual(Object.keys(body[0]).sort(), [
    "attempts",
    "completedAt",
    "error",
    "id",
    "index",
    "name",
    "output",
    "runId",
    "startedAt",
    "status",
  ]);
});

forEachStore("GET /waits and GET /wait show the waits of a run", async (context) => {
  await using service = aService({}, context);
  const { runId, waitId, query } = await aWaitingRun(service);

  const waits = await service.ask("GET", `/waits?runId=${runId}`);
  const wait = await service.ask("GET", `/wait?${query}`);

  const at = new Date(FAKE_START).toISOString();
  assert.deepEqual([waits.status, wait.status], [200, 200]);
  assert.deepEqual(waits.body, [{
    id: waitId,
    runId,
    name: "review",
    metadata: { changes: 3 },
    status: "pending",
    outcome: null,
    payload: null,
    signalId: null,
    createdAt: at,
    deadlineAt: new Date(FAKE_START + 60_000).toISOString(),
    suspendedAt: at,
    resolvedAt: null,
    firstResumedAt: null,
  }]);
  assert.deepEqual(wait.body, waits.body[0]);
});

forEachStore("GET /waits lists in the order in which the waits were prepared", async (context) => {
  const several = aJob((step) => Promise.all(["c", "a", "b"].map((name) => step.wait(name))), "several");
  await using service = aService({}, context, { several });
  const runId = await aRunOf(service, "several");

  const { body } = await service.ask("GET", `/waits?runId=${runId}`);

  assert.deepEqual(body.map(({ name }: { name: string }) => name), ["c", "a", "b"]);
});

forEachStore("POST /signal ends a wait, and gives the same receipt again", async (context) => {
  await using service = aService({}, context);
  const { runId, query } = await aWaitingRun(service);
  const signal = (body: Record<string, unknown> | string) => service.ask("POST", `/signal?${query}`, { body });

  const first = await signal({ signalId: "s1", payload: { a: 1, b: 2 }, unknown: true });
  const again = await signal('{"payload":{"b":2.0,"a":1},"signalId":"s1"}');
  await service.engine.runUntilIdle();
  const afterCompletion = await signal({ signalId: "s1", payload: { a: 1, b: 2 } });
  context.host.advance(60_000);
  const afterDeadline = await signal({ signalId: "s1", payload: { a: 1, b: 2 } });

  assert.equal(first.status, 200);
  assert.deepEqual(Object.keys(first.body).sort(), ["disposition", "wait"]);
  assert.equal(first.body.disposition, "accepted");
  assert.deepEqual(
    [first.body.wait.status, first.body.wait.outcome, first.body.wait.payload, first.body.wait.signalId],
    ["resolved", "signal", { a: 1, b: 2 }, "s1"],
  );
  for (const answer of [again, afterCompletion, afterDeadline]) {
    assert.deepEqual([answer.status, answer.body], [200, { ...first.body, disposition: "duplicate" }]);
  }
  assert.equal((await service.engine.getRun(runId))!.status, "completed");
});

forEachStore("POST /signal takes null for a payload", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);

  const { status, body } = await service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: null } });

  assert.deepEqual([status, body.disposition, body.wait.payload], [200, "accepted", null]);
});

forEachStore("POST /signal refuses another signal than the one that came first", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = (signalId: string, payload: unknown) =>
    service.ask("POST", `/signal?${query}`, { body: { signalId, payload } });
  await signal("s1", 1);

  const answers = [await signal("s1", 2), await signal("s2", 1)];
  context.host.advance(60_000);
  answers.push(await signal("s2", 1));

  for (const { status, body } of answers) assert.deepEqual([status, body.code], [409, "conflict"]);
});

forEachStore("POST /signal is told for ever that the deadline has passed", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = () => service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });
  context.host.advance(60_000);

  const before = await signal();
  await service.engine.runUntilIdle();
  const after = await signal();

  for (const { status, body } of [before, after]) assert.deepEqual([status, body.code], [410, "wait_expired"]);
});

forEachStore("POST /signal counts a moment before the deadline", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  context.host.advance(59_999);

  const { status } = await service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });

  assert.equal(status, 200);
});

forEachStore("POST /signal refuses a wait that was cancelled with its run", async (context) => {
  await using service = aService({}, context);
  const { runId, query } = await aWaitingRun(service);
  await service.engine.cancel(runId);

  const { status, body } = await service.ask("POST", `/signal?${query}`, { body: { signalId: "s", payload: 1 } });

  assert.deepEqual([status, body.code], [409, "conflict"]);
  assert.equal((await service.engine.getRun(runId))!.status, "cancelled");
});

forEachStore("POST /signal and GET /wait know no wait of another run", async (context) => {
  await using service = aService({}, context);
  const own = await aWaitingRun(service);
  const foreign = await aWaitingRun(service);
  const body = { signalId: "s", payload: 1 };
  const queries = [
    `runId=${own.runId}&waitId=${foreign.waitId}`,
    `runId=${own.runId}&waitId=${UNKNOWN}`,
    `runId=${UNKNOWN}&waitId=${own.waitId}`,
    `runId=${own.runId}&waitId=__proto__`,
    `runId=__proto__&waitId=${own.waitId}`,
  ];

  const answers = [];
  for (const query of queries) {
    answers.push(await service.ask("GET", `/wait?${query}`), await service.ask("POST", `/signal?${query}`, { body }));
  }

  for (const { status, body } of answers) assert.deepEqual([status, body.code], [404, "not_found"]);
  for (const { runId } of [own, foreign]) assert.equal((await service.engine.getWaits(runId))[0]!.status, "pending");
});

forEachStore("POST /signal lets one of many signals win", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = (n: number) => service.ask("POST", `/signal?${query}`, { body: { signalId: `s${n}`, payload: n } });

  const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => signal(n)));

  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
  assert.equal(answers.filter(({ status }) => status === 409).length, 99);
});

forEachStore("GET /logs shows what was kept of what a run logged", async (context) => {
  const logging = aJob(async (step) => {
    step.log.info("begins", { n: 1 });
    await step.run("read", () => step.log.warn("slow\n\u001b[31m"));
    step.log.error("ends");
  }, "logging");
  await using service = aService({}, context, { logging });
  const unkept = await aRunOf(service, "logging");
  service.engine.use(persistLogs());
  const runId = await aRunOf(service, "logging");

  const without = await service.ask("GET", `/logs?runId=${unkept}`);
  const kept = await service.ask("GET", `/logs?runId=${runId}`);

  const timestamp = new Date(FAKE_START).toISOString();
  assert.deepEqual([without.status, without.body], [200, []]);
  assert.deepEqual(kept.body.map(({ id: _, ...entry }: { id: string }) => entry), [
    { runId, stepName: null, level: "info", message: "begins", data: { n: 1 }, timestamp },
    { runId, stepName: "read", level: "warn", message: "slow\n\u001b[31m", data: null, timestamp },
    { runId, stepName: null, level: "error", message: "ends", data: null, timestamp },
  ]);
});

for (const path of ["/retrigger", "/retry"]) {
  forEachStore(`POST ${path} makes a new run of one that has ended`, async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("fail", { n: 1 }, {
      labels: { org: "a" },
      concurrencyKey: "line",
      idempotencyKey: "once",
    });
    await service.engine.runUntilIdle();

    const { status, body } = await service.ask("POST", `${path}?runId=${id}`);

    const run = (await service.engine.getRun(body.runId))!;
    assert.equal(status, 200);
    assert.deepEqual(body, { success: true, runId: run.id, status: "pending" });
    assert.notEqual(run.id, id);
    assert.deepEqual(
      [run.jobName, run.payload, run.labels, run.concurrencyKey, run.idempotencyKey],
      ["fail", { n: 1 }, { org: "a" }, "line", null],
    );
    assert.equal((await service.engine.getRun(id))!.status, "failed");
  });

  forEachStore(`POST ${path} begins where the run failed, if it is told so`, async (context) => {
    let reads = 0;
    const failing = aJob(async (step) => {
      await step.run("read", () => ++reads);
      throw new Error("broken");
    }, "failing");
    await using service = aService({}, context, { failing });
    const runId = await aRunOf(service, "failing");

    const fromFailure = await service.ask("POST", `${path}?runId=${runId}&from=failure`);
    await service.engine.runUntilIdle();
    const readsFromFailure = reads;
    const fromStart = await service.ask("POST", `${path}?runId=${runId}&from=start`);
    await service.engine.runUntilIdle();

    assert.deepEqual([fromFailure.status, readsFromFailure, fromStart.status, reads], [200, 1, 200, 2]);
  });

  forEachStore(`POST ${path} refuses a from in its body, and ignores any other body`, async (context) => {
    await using service = aService({}, context);
    const runId = await aRunOf(service, "fail");
    const send = (body: BodyInit | Record<string, unknown>) => service.ask("POST", `${path}?runId=${runId}`, { body });

    const refused = [await send({ from: "failure" }), await send({ from: null })];
    const before = (await service.engine.getRuns()).total;
    const taken = [await send({}), await send("from=failure"), await send("null"), await send("[]"), await send("")];

    const error = 'The body has a field "from": give it as a parameter of the URL, such as from=failure';
    for (const { status, body } of refused) {
      assert.deepEqual([status, body], [400, { error, code: "invalid_request" }]);
    }
    assert.equal(before, 1);
    assert.deepEqual(taken.map(({ status }) => status), Array(5).fill(200));
  });

  forEachStore(`POST ${path} twice makes one run, to which the old one is linked`, async (context) => {
    await using service = aService({}, context);
    const old = await aRunOf(service, "fail");

    const answers = await Promise.all([1, 2].map(() => service.ask("POST", `${path}?runId=${old}&from=failure`)));

    const [first, second] = answers.map(({ body }) => body);
    assert.deepEqual(first, { success: true, runId: first.runId, status: "pending" });
    assert.deepEqual(second, first);
    const { body: { runs } } = await service.ask("GET", "/runs");
    const links = runs.map(({ id, retriggerOf, retriggeredAs }: ClientRun) => [id, retriggerOf, retriggeredAs]);
    assert.deepEqual(links, [[first.runId, old, undefined], [old, undefined, first.runId]]);
    const { body: shown } = await service.ask("GET", `/run?runId=${old}`);
    assert.equal(shown.retriggeredAs, first.runId);
  });
}

forEachStore("POST /retrigger takes completed and cancelled runs, too, and no others", async (context) => {
  await using service = aService({}, context);
  const completed = await aRunOf(service, "echo");
  const { runId: cancelled } = await aWaitingRun(service);
  await service.engine.cancel(cancelled);
  const { runId: waiting } = await aWaitingRun(service);
  const retrigger = (runId: string) => service.ask("POST", `/retrigger?runId=${runId}`);

  const answers = [await retrigger(completed), await retrigger(cancelled), await retrigger(waiting)];

  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 409]);
  assert.equal(answers[2]!.body.code, "conflict");
});

forEachStore("POST /retrigger refuses a job that is gone, and an input that no longer fits", async (context) => {
  const before = aJob(() => {}, "changing");
  const after = defineJob({ name: "changing", input: z.object({ path: z.string() }), run: () => {} });
  await using old = aService({}, context, { before });
  const runId = await aRunOf(old, "changing");
  await using without = aService({}, context);
  await using changed = aService({}, context, { after });

  const gone = await without.ask("POST", `/retrigger?runId=${runId}`);
  const unfit = await changed.ask("POST", `/retrigger?runId=${runId}`);

  assert.deepEqual([gone.status, gone.body.code], [404, "not_found"]);
  assert.deepEqual([unfit.status, unfit.body.code], [400, "invalid_input"]);
  assert.deepEqual(unfit.body.issues[0].path, ["path"]);
  assert.equal((await old.engine.getRuns()).total, 1);
});

forEachStore("GET /run and /runs show why a run is held, and POST /resume resumes it", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", {});
  await holdRun(context.store, "echo", id);

  const shown = await service.ask("GET", `/run?runId=${id}`);
  const listed = await service.ask("GET", "/runs");
  const answer = await service.ask("POST", `/resume?runId=${id}`);
  const again = await service.ask("POST", `/resume?runId=${id}`);
  const unknown = await service.ask("POST", `/resume?runId=${UNKNOWN}`);

  const { held, status } = shown.body as ClientRun;
  const { code, message } = aHold();
  assert.deepEqual([status, held], ["pending", { code, message, since: isoTime(FAKE_START) }]);
  assert.deepEqual((listed.body as { runs: ClientRun[] }).runs[0]!.held, held);
  assert.deepEqual([answer.status, answer.body], [200, { success: true }]);
  assert.equal("held" in ((await service.ask("GET", `/run?runId=${id}`)).body as ClientRun), false);
  assert.deepEqual([again.status, again.body], [409, {
    error: `Cannot resume run "${id}": it is not held, but pending`,
    code: "conflict",
  }]);
  assert.equal(unknown.status, 404);
});

forEachStore("POST /cancel cancels a run that has not ended", async (context) => {
  await using service = aService({}, context);
  const { runId: waiting } = await aWaitingRun(service);
  const { id: leased } = await service.engine.trigger("echo", {});
  await claimOne(context.store, "echo");
  const { id: pending } = await service.engine.trigger("echo", {});
  const cancel = (runId: string) => service.ask("POST", `/cancel?runId=${runId}`);

  const answers = [await cancel(waiting), await cancel(leased), await cancel(pending)];
  const again = await cancel(pending);

  for (const { status, body } of answers) assert.deepEqual([status, body], [200, { success: true }]);
  for (const id of [waiting, leased, pending]) {
    assert.equal((await service.engine.getRun(id))!.status, "cancelled");
  }
  assert.deepEqual([again.status, again.body.code], [409, "conflict"]);
});

forEachStore("POST /cancel refuses a run that has ended", async (context) => {
  await using service = aService({}, context);
  const ended = [await aRunOf(service, "echo"), await aRunOf(service, "fail")];

  const answers = await Promise.all(ended.map((runId) => service.ask("POST", `/cancel?runId=${runId}`)));

  assert.deepEqual(answers.map(({ status, body }) => [status, body.code]), [[409, "conflict"], [409, "conflict"]]);
});

forEachStore("DELETE /run removes a run that has ended, with all that belongs to it", async (context) => {
  await using service = aService({}, context);
  const { runId, query } = await aWaitingRun(service);
  await service.engine.cancel(runId);

  const { status, body } = await service.ask("DELETE", `/run?runId=${runId}`);

  assert.deepEqual([status, body], [200, { success: true }]);
  const gone = [`/run?runId=${runId}`, `/steps?runId=${runId}`, `/waits?runId=${runId}`, `/logs?runId=${runId}`];
  for (const path of [...gone, `/wait?${query}`]) assert.equal((await service.ask("GET", path)).status, 404);
  assert.equal((await service.ask("DELETE", `/run?runId=${runId}`)).status, 404);
});

forEachStore("DELETE /run refuses a run that has not ended", async (context) => {
  await using service = aService({}, context);
  const { runId: waiting } = await aWaitingRun(service);
  const { id: pending } = await service.engine.trigger("echo", {});

  const answers = await Promise.all([waiting, pending].map((id) => service.ask("DELETE", `/run?runId=${id}`)));

  assert.deepEqual(answers.map(({ status, body }) => [status, body.code]), [[409, "conflict"], [409, "conflict"]]);
  assert.equal((await service.engine.getRuns()).total, 2);
});

const NEED_A_RUN = routesOfRuns;
const ODD_IDS = [
  UNKNOWN,
  "x".repeat(10_000),
  "' OR 1=1 --",
  "%00",
  "%ff",
  "%F0%9F%92%A9",
  "__proto__",
  "constructor",
  "null",
  "..%2Frun",
];

for (const [name, { method, path }] of NEED_A_RUN) {
  forEachStore(`${method} ${path} (${name}) answers 404 for a run that does not exist`, async (context) => {
    await using service = aService({ showFailures: true }, context);
    const { runId, waitId } = await aWaitingRun(service);
    const bodies: Record<string, Record<string, unknown>> = {
      signal: { signalId: "s", payload: 1 },
      send: { name: "note", payload: 1 },
    };
    const body = bodies[name] === undefined ? {} : { body: bodies[name] };

    const answers = [];
    for (const id of [...ODD_IDS, `${runId}%00`, ` ${runId}`, runId.toUpperCase()]) {
      answers.push(await service.ask(method, `${path}?runId=${id}&waitId=${waitId}&name=tokens`, body));
    }

    for (const { status, body } of answers) assert.deepEqual([status, body.code], [404, "not_found"]);
    assert.equal((await service.engine.getRun(runId))!.status, "waiting");
  });

  forEachStore(`${method} ${path} (${name}) refuses a runId that is missing, empty or given twice`, async (context) => {
    await using service = aService({ showFailures: true }, context);
    const { runId, waitId } = await aWaitingRun(service);
    const bodies: Record<string, Record<string, unknown>> = {
      signal: { signalId: "s", payload: 1 },
      send: { name: "note", payload: 1 },
    };
    const body = bodies[name] === undefined ? {} : { body: bodies[name] };

    const answers = [];
    for (const query of ["", "runId", "runId=", `runid=${runId}`, `runId=${runId}&runId=${runId}`]) {
      answers.push(await service.ask(method, `${path}?${query}&waitId=${waitId}`, body));
    }

    for (const { status, body } of answers) assert.deepEqual([status, body.code], [400, "invalid_request"]);
    assert.equal((await service.engine.getRun(runId))!.status, "waiting");
  });
}
