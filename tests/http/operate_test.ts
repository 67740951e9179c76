import assert from "node:assert/strict";
import type { RequestedOperation } from "../../src/http/access/auth_hooks.ts";
import type { HandlerOptions } from "../../src/http/handler_options.ts";
import { pause } from "../../src/model/host.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { PACKAGE_VERSION } from "../../src/model/version.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aClaimRequest } from "../support/fixtures.ts";
import { anything, forEachStore } from "../support/stores/for_each_store.ts";
import { aRequest, aService } from "../support/http/http.ts";
import { aJob } from "../support/jobs.ts";
import { withCalls } from "../support/stores/with_calls.ts";
import { aRefusal } from "../support/http/tenants.ts";
import { getPausedJobs } from "../../src/store/reads.ts";

const SHOWN = ["/stats", "/series?window=1h", "/jobs", "/workers", "/health", "/health/live", "/metrics"];
const CHANGING = ["/jobs/pause?jobName=echo", "/jobs/resume?jobName=echo"];

forEachStore("GET /stats, /series, /jobs and /workers answer what the engine does", async (world) => {
  await using service = aService({}, world);
  await service.engine.trigger("echo", { n: 1 });
  await service.engine.runUntilIdle();
  world.host.advance(1_000);

  const answers = [];
  for (const path of ["/stats", "/series?window=24h&jobName=echo", "/jobs", "/workers"]) {
    answers.push(await service.ask("GET", path));
  }

  const { engine } = service;
  const expected = [
    await engine.getStats(),
    await engine.getSeries({ window: "24h", jobName: "echo" }),
    await engine.getJobs(),
    await engine.getWorkers(),
  ];
  assert.deepEqual(answers.map(({ status, body }) => [status, body]), expected.map((body) => [200, body]));
  assert.equal(answers[0]!.body.byStatus.completed, 1);
  assert.equal(answers[0]!.body.windows["5m"].completed, 1);
});

forEachStore("POST /jobs/pause and /jobs/resume change a job, and show it", async (world) => {
  await using service = aService({}, world);

  const paused = await service.ask("POST", "/jobs/pause?jobName=echo", { body: { note: "the disk is full" } });
  const again = await service.ask("POST", "/jobs/pause?jobName=echo");
  const between = await getPausedJobs(world.store);
  const resumed = await service.ask("POST", "/jobs/resume?jobName=echo");

  const since = "2040-01-01T00:00:00.000Z";
  assert.deepEqual([paused.status, paused.body.paused], [200, { since, by: null, note: "the disk is full" }]);
  assert.deepEqual([again.status, again.body.paused], [200, paused.body.paused]);
  assert.deepEqual(between.map(({ jobName }) => jobName), ["echo"]);
  assert.deepEqual([resumed.status, resumed.body.paused, resumed.body.jobName], [200, null, "echo"]);
  assert.deepEqual(await getPausedJobs(world.store), []);
});

Deno.test("POST /jobs/pause and GET /series refuse what is not valid, and nothing happens", async () => {
  await using service = aService();
  const wrong: [method: string, path: string, body?: string | Record<string, unknown>][] = [
    ["POST", "/jobs/pause"],
    ["POST", "/jobs/pause?jobName="],
    ["POST", "/jobs/pause?jobName=echo&jobName=fail"],
    ["POST", "/jobs/pause?jobName=echo", "{"],
    ["POST", "/jobs/pause?jobName=echo", "[]"],
    ["POST", "/jobs/pause?jobName=echo", { note: 5 }],
    ["POST", "/jobs/pause?jobName=echo", { note: "x".repeat(1_001) }],
    ["POST", "/jobs/pause?jobName=echo", { Note: "x" }],
    ["POST", "/jobs/pause?jobName=a%00"],
    ["POST", "/jobs/resume"],
    ["GET", "/series"],
    ["GET", "/series?window=1y"],
    ["GET", "/series?window=1h&window=1h"],
    ["GET", "/series?window=__proto__"],
    ["GET", "/series?window=1h&jobName="],
  ];

  for (const [method, path, body] of wrong) {
    const { status, body: answer } = await service.ask(method, path, body === undefined ? {} : { body });
    assert.deepEqual([status, answer.code], [400, "invalid_request"], `${path} ${JSON.stringify(body)}`);
  }
  for (const path of ["/jobs/pause", "/jobs/resume"]) {
    const { status, body } = await service.ask("POST", `${path}?jobName=nobody`);
    assert.deepEqual([status, body.code], [404, "not_found"]);
  }
  assert.deepEqual((await service.engine.getJobs()).flatMap(({ paused }) => paused ?? []), []);
});

Deno.test("POST /jobs/pause and /jobs/resume refuse pages of another site", async () => {
  await using service = aService();
  for (const path of CHANGING) {
    const { status, body } = await service.ask("POST", path, { headers: { "sec-fetch-site": "cross-site" } });
    assert.deepEqual([status, body.code], [403, "cross_origin"]);
  }
});

Deno.test("routes of operators are forbidden with auth and without onOperate, whatever the runs may do", async () => {
  await using service = aService({ auth: { authenticate: () => "ada", onRunAccess: () => {} } });

  for (const path of [...SHOWN, ...CHANGING]) {
    const { status, body } = await service.ask(CHANGING.includes(path) ? "POST" : "GET", path);
    assert.deepEqual([status, body.code], [403, "forbidden"], path);
    assert.match(body.error, /not served: the handler has no onOperate hook$/);
  }
});

Deno.test("onOperate gets what is asked for, and decides", async () => {
  const asked: RequestedOperation[] = [];
  let refuses = false;
  await using service = aService({
    auth: {
      authenticate: () => "ada",
      onOperate: (_user, access) => {
        assert.ok(Object.isFrozen(access));
        asked.push(access);
        if (refuses) throw aRefusal();
      },
    },
  });
  const ask = async () => {
    const statuses = [];
    for (const path of [...SHOWN, ...CHANGING]) {
      statuses.push((await service.ask(CHANGING.includes(path) ? "POST" : "GET", path)).status);
    }
    return statuses;
  };
  await service.engine.migrate();

  const admitted = await ask();
  refuses = true;
  const refused = await ask();

  assert.ok(admitted.every((status) => status === 200), `${admitted}`);
  assert.ok(refused.every((status) => status === aRefusal().status), `${refused}`);
  assert.deepEqual(asked.slice(0, 9), [
    { operation: "stats" },
    { operation: "stats" },
    { operation: "jobs" },
    { operation: "workers" },
    { operation: "health" },
    { operation: "health" },
    { operation: "metrics" },
    { operation: "pause", jobName: "echo" },
    { operation: "resume", jobName: "echo" },
  ]);
});

Deno.test("auth.open shows the status of the process to everybody, and nothing else", async () => {
  const refuse = () => {
    throw aRefusal();
  };
  await using closed = aService({ auth: { authenticate: refuse, onOperate: () => {} } });
  await using open = aService({ auth: { authenticate: refuse, onOperate: refuse, open: ["health"] } });
  await open.engine.migrate();

  for (const path of [...SHOWN, "/runs", "/nothing"]) {
    const { status, body } = await open.ask("GET", path);
    const isHealth = path.startsWith("/health");
    assert.equal(status, isHealth ? 200 : aRefusal().status, path);
    if (isHealth) assert.deepEqual(body, { status: "ok" });
    assert.equal((await closed.ask("GET", path)).status, aRefusal().status, path);
  }
  assert.equal((await open.ask("POST", "/health")).status, aRefusal().status);
  const direct = await open.handler.health(aRequest("GET", "/anywhere"));
  assert.deepEqual([direct.status, await direct.json()], [200, { status: "ok" }]);
});

Deno.test("HEAD asks for the health without a body, as load balancers do", async () => {
  const refuse = () => {
    throw aRefusal();
  };
  await using service = aService({ auth: { authenticate: refuse, open: ["health"] } });
  await service.engine.migrate();

  for (const path of ["/health", "/health/live"]) {
    const response = await service.handler.fetch(aRequest("HEAD", path));
    const { status, headers, body } = response;
    assert.deepEqual([status, headers.get("content-type"), body], [200, "application/json", null], path);
  }
  assert.equal((await service.ask("HEAD", "/runs")).status, aRefusal().status);
});

Deno.test("GET /health/live waits for no onRequest, which may wait for the store", async () => {
  let called = 0;
  await using service = aService({
    onRequest: () => (called += 1, Promise.reject(new Error("locked"))),
    onError: () => {},
  });

  const live = await service.ask("GET", "/health/live");
  const calledForLive = called;
  const ready = await service.ask("GET", "/health");

  assert.deepEqual([live.body.live, calledForLive], [true, 0]);
  assert.deepEqual([ready.status, called], [500, 1]);
});

Deno.test("auth.open takes health and ui, and nothing else", () => {
  const authenticate = () => "ada";
  for (const open of [["stats"], "health", [1], {}]) {
    const options = { auth: { authenticate, open } } as unknown as HandlerOptions;
    assert.throws(() => aService(options), TypeError);
  }
  aService({
    auth: {
      authenticate,
      onRunAccess: () => {},
      scopeRuns: (_, filter) => filter,
      onTrigger: () => {},
      open: ["ui", "health"],
    },
  });
});

Deno.test("GET /health is 503 when the store cannot answer, and /health/live asks no store", async () => {
  const host = new FakeHost();
  const memory = new MemoryStore({ host });
  let hangs = false;
  let calls = 0;
  const store = withCalls(memory, {
    getJobs: (rates) => (calls += 1, hangs ? new Promise(() => {}) : memory.getJobs(rates)),
  });
  await using service = aService({}, { store, host });
  const fine = await service.ask("GET", "/health");
  hangs = true;
  host.advance(1_000);
  const callsBefore = calls;
  const live = await service.ask("GET", "/health/live");
  const callsForLive = calls - callsBefore;
  const asking = service.ask("GET", "/health");
  await host.settle();
  host.advance(1_000);
  const late = await asking;

  assert.deepEqual([fine.status, fine.body.status, fine.body.live, fine.body.ready], [200, "ok", true, true]);
  assert.deepEqual([live.status, live.body.live, callsForLive], [200, true, 0]);
  assert.deepEqual([late.status, late.body.status, late.body.live, late.body.ready], [503, "failing", true, false]);
  assert.deepEqual(late.body.checks, [
    { name: "store", status: "failing", message: "The store has not answered for 1000 ms" },
  ]);
});

/** The lines of a metric, without comments. */
function linesOf(text: string, name: string): string[] {
  return text.split("\n").filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
}

forEachStore("GET /metrics shows the store, and what this process has counted", async (world) => {
  const { store, host } = world;
  await using service = aService({}, world);
  const { engine } = service;
  await store.claim(aClaimRequest({ workerId: "lost", leaseMs: 1_000 }));
  await engine.trigger("echo", { n: 1 }, { idempotencyKey: "once" });
  await engine.trigger("echo", { n: 1 }, { idempotencyKey: "once" });
  await engine.trigger("fail", {});
  await engine.runUntilIdle();
  await engine.trigger("echo", { n: 2 });
  await engine.pauseJob("fail");
  const stream = await service.handler.fetch(aRequest("GET", "/runs/subscribe"));
  host.advance(2_500);

  const response = await service.handler.fetch(aRequest("GET", "/metrics"));
  const text = await response.text();
  await stream.body!.cancel();

  assert.equal(response.headers.get("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  const expected: [name: string, line: string][] = [
    ["holdfast_runs", 'holdfast_runs{job="echo",status="completed"} 1'],
    ["holdfast_runs", 'holdfast_runs{job="echo",status="pending"} 1'],
    ["holdfast_runs", 'holdfast_runs{job="fail",status="failed"} 1'],
    ["holdfast_oldest_due_seconds", 'holdfast_oldest_due_seconds{job="echo"} 2.5'],
    ["holdfast_job_paused", 'holdfast_job_paused{job="fail"} 1'],
    ["holdfast_workers", 'holdfast_workers{state="lost"} 1'],
    ["holdfast_worker_slots", 'holdfast_worker_slots{state="free"} 10'],
    ["holdfast_streams", 'holdfast_streams{kind="list"} 1'],
    ["holdfast_triggers_total", 'holdfast_triggers_total{job="echo",disposition="created"} 2'],
    ["holdfast_triggers_total", 'holdfast_triggers_total{job="echo",disposition="idempotent"} 1'],
    ["holdfast_runs_ended_total", 'holdfast_runs_ended_total{job="fail",status="failed"} 1'],
    ["holdfast_executions_total", 'holdfast_executions_total{job="echo",outcome="completed"} 1'],
    ["holdfast_leases_lost_total", "holdfast_leases_lost_total 0"],
    ["holdfast_start_delay_seconds_count", 'holdfast_start_delay_seconds_count{job="echo"} 1'],
    ["holdfast_run_duration_seconds_bucket", 'holdfast_run_duration_seconds_bucket{job="echo",le="+Inf"} 1'],
    ["holdfast_store_call_seconds_count", 'holdfast_store_call_seconds_count{call="finish"} 2'],
  ];
  for (const [name, line] of expected) assert.ok(linesOf(text, name).includes(line), `${line}\n${text}`);
  assert.match(
    text,
    new RegExp(`^holdfast_info\\{version="${PACKAGE_VERSION}",runtime="(deno|node) [^"]+",store="\\w+"\\} 1$`, "m"),
  );
});

forEachStore(
  "GET /metrics counts each wait once, however it ended and in whichever process it is replayed",
  async (world) => {
    const job = aJob(async (step) => {
      await step.wait("first", { timeout: 1_000 });
      await step.sleep("nap", 500);
      const [wait] = await Promise.all([
        step.wait("second", { timeout: 100 }),
        step.run("busy", () => pause(world.host, 300)),
      ]);
      await step.sleep("again", 500);
      return wait.outcome;
    }, "waits");
    await using service = aService({}, world, { job });
    const { engine, host } = service;
    await engine.start();
    const { id } = await engine.trigger("waits", {});
    const { runId } = await engine.trigger("approval", {}).then(({ id }) => ({ runId: id }));
    await host.settle();
    const [wait] = await engine.getWaits(runId);
    await engine.signal(wait!.id, { signalId: "once", payload: null });
    await engine.signal(wait!.id, { signalId: "once", payload: null });
    for (let tick = 0; tick < 80; tick++) {
      host.advance(100);
      await host.settle();
    }

    const text = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();

    assert.equal((await engine.getRun(id))!.output, "timeout");
    assert.deepEqual(linesOf(text, "holdfast_waits_resolved_total").sort(), [
      'holdfast_waits_resolved_total{job="approval",outcome="signal"} 1',
      'holdfast_waits_resolved_total{job="waits",outcome="timeout"} 2',
    ]);
  },
);

forEachStore("GET /metrics counts the items of streams, by job", async (world) => {
  const chat = aJob((step) => step.run("say", ({ stream }) => stream("tokens").pipe(ReadableStream.from(["a", "bc"]))));
  await using service = aService({}, world, { chat });
  await service.engine.trigger("job", null);
  await service.engine.runUntilIdle();

  const text = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();

  assert.deepEqual(linesOf(text, "holdfast_stream_items_total"), ['holdfast_stream_items_total{job="job"} 2']);
  assert.deepEqual(linesOf(text, "holdfast_stream_bytes_total"), ['holdfast_stream_bytes_total{job="job"} 7']);
});

forEachStore("GET /metrics shows how many messages runs have not received, by job", async (world) => {
  const messages = { text: anything };
  const chat = defineJob({ name: "chat", input: anything, messages, run: (step) => step.receive("text") });
  await using service = aService({}, world, { chat });
  const { engine } = service;
  const { id } = await engine.trigger("chat", null);
  for (let n = 0; n < 3; n++) await engine.send(id, "text", n);

  const sent = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();
  await engine.runUntilIdle();
  world.host.advance(2_000); // what was read is shared for a second
  const ended = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();

  assert.ok(linesOf(sent, "holdfast_messages_unread").includes('holdfast_messages_unread{job="chat"} 3'));
  assert.ok(linesOf(sent, "holdfast_messages_unread").includes('holdfast_messages_unread{job="echo"} 0'));
  assert.ok(linesOf(ended, "holdfast_messages_unread").includes('holdfast_messages_unread{job="chat"} 0'));
});

Deno.test("GET /metrics is text in the format of Prometheus, whatever the names of jobs", async () => {
  const names = ['quote"d', "back\\slash", "line\u2028x", "ünï"];
  const jobs = Object.fromEntries(names.map((name, n) => [`odd${n}`, aJob((step) => step.run("s", () => null), name)]));
  await using service = aService({}, undefined, jobs);
  for (const name of names) await service.engine.trigger(name, {});
  await service.engine.runUntilIdle();
  service.host.advance(1_000);

  const text = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();

  checkFormat(text);
  for (const name of names) {
    const escaped = name.replaceAll("\\", "\\\\").replaceAll('"', '\\"');
    assert.ok(text.includes(`holdfast_runs{job="${escaped}",status="completed"} 1\n`), name);
  }
});

Deno.test("GET /metrics shows 100 jobs of 500 by name, and the others as one", async () => {
  const jobs = Object.fromEntries(Array.from({ length: 497 }, (_, n) => [`job${n}`, aJob(() => null, `job-${n}`)]));
  await using service = aService({}, undefined, jobs);
  for (const { name } of Object.values(jobs)) await service.engine.trigger(name, {});
  await service.engine.runUntilIdle();
  service.host.advance(1_000);
  await using few = aService({ limits: { maxMetricJobs: 2 } });

  const text = await (await service.handler.fetch(aRequest("GET", "/metrics"))).text();
  const short = await (await few.handler.fetch(aRequest("GET", "/metrics"))).text();

  const jobsIn = (
    text: string,
  ) => [...new Set(linesOf(text, "holdfast_runs").map((line) => /job="([^"]*)"/.exec(line)![1]!))];
  assert.deepEqual([jobsIn(text).length, jobsIn(text).includes("other")], [101, true]);
  assert.deepEqual(jobsIn(short), ["approval", "echo", "other"]);
  const completed = linesOf(text, "holdfast_runs").filter((line) => line.includes('status="completed"'));
  assert.equal(completed.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0), 497);
  checkFormat(text);
});

/** Checks the rules of the text format 0.0.4 that `promtool check metrics` checks, and those of names. */
function checkFormat(text: string): void {
  assert.ok(text.endsWith("\n"));
  const types = new Map<string, string>();
  const seen = new Set<string>();
  let current = "";
  for (const line of text.split("\n").slice(0, -1)) {
    const comment = /^# (HELP|TYPE) ([a-z_]+) (.+)$/.exec(line);
    if (comment !== null) {
      const [, kind, name, rest] = comment as unknown as [string, string, string, string];
      if (kind === "HELP") {
        assert.ok(!types.has(name), `${name} begins twice`);
        current = name;
      } else {
        assert.equal(name, current);
        assert.match(rest, /^(gauge|counter|histogram)$/);
        types.set(name, rest);
      }
      continue;
    }
    const sample = /^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*\})? (-?[0-9.e+-]+)$/.exec(line);
    assert.ok(sample !== null, line);
    const [, name, labels = "", value] = sample as unknown as [string, string, string | undefined, string];
    const type = types.get(current)!;
    const suffix = type === "histogram" ? /^(_bucket|_sum|_count)$/ : /^$/;
    assert.ok(name.startsWith(current) && suffix.test(name.slice(current.length)), line);
    assert.ok(Number.isFinite(Number(value)), line);
    assert.equal(type === "counter", name.endsWith("_total"), line);
    assert.ok(!seen.has(name + labels), `${line} twice`);
    seen.add(name + labels);
  }
}
