import assert from "node:assert/strict";
import { z } from "zod";
import { uuidV7 } from "../../src/host.ts";
import type { HandlerAuth } from "../../src/http/access/auth.ts";
import type { HandlerOptions } from "../../src/http/handler_options.ts";
import { type RouteFunctions, routes } from "../../src/http/routes.ts";
import { defineJob, type StepContext } from "../../src/job.ts";
import type { Run, RunFilter } from "../../src/run.ts";
import type { Schema } from "../../src/schema.ts";
import type { Store } from "../../src/store.ts";
import { Chance } from "../support/chance.ts";
import { EventReader } from "../support/event_reader.ts";
import { FakeHost } from "../support/fake_host.ts";
import { anything, forEachStore, forever, pass, recordEvents, type StoreTest } from "../support/for_each_store.ts";
import { type Answer, aRequest, aService, type Asked, type Service } from "../support/http.ts";

const all = Object.entries(routes) as [keyof RouteFunctions, typeof routes["run"]][];

/** What tells of how the service is built: a stack, a path, a module, the database. */
const INTERNALS = /\n\s+at |file:\/\/|node:|ext:|SQLITE|holdfast_/;
const HEADERS = [
  "allow",
  "cache-control",
  "content-type",
  "cross-origin-resource-policy",
  "retry-after",
  "x-content-type-options",
];

/** The names that every object has a member of, and a few that JavaScript looks for. */
const MEMBERS = ["__proto__", "constructor", "prototype", "toString", "hasOwnProperty", "valueOf", "then", "toJSON"];

/** What every object, list, text and function has: nothing that a client sends may add to it, or take from it. */
function membersOfAll(): PropertyKey[][] {
  return [Object, Array, String, Function, Map, Set, Promise].map(({ prototype }) => Reflect.ownKeys(prototype));
}

const membersBefore = membersOfAll();

/** Looks at what is true of every answer to a client who does something wrong. */
function assertTidy({ status, headers, body }: Answer): void {
  assert.ok(status >= 200 && status < 500, `${status}`);
  assert.deepEqual([...headers.keys()].filter((name) => !HEADERS.includes(name)), []);
  if (status === 200) return;
  const { issues = [], ...rest } = body;
  assert.deepEqual(Object.keys(rest), ["error", "code"]);
  for (const issue of issues) assert.deepEqual(Object.keys(issue), ["path", "message"]);
  assert.doesNotMatch(JSON.stringify(body), INTERNALS);
}

/** Asks for what should not be asked for. */
async function provoke(service: Service, method: string, path: string, asked?: Asked): Promise<Answer> {
  const answer = await service.ask(method, path, asked);
  assertTidy(answer);
  return answer;
}

/** The service does what it is there for, and nothing that all objects share has changed. */
async function assertWell({ engine, ask }: Service): Promise<void> {
  const { status, body } = await ask("POST", "/trigger", { body: { jobName: "echo", input: { well: true } } });
  await engine.runUntilIdle();
  assert.equal(status, 200);
  assert.deepEqual((await engine.getRun(body.runId))!.output, { well: true });
  assert.deepEqual(membersOfAll(), membersBefore);
}

/** A run that waits, and its wait. */
async function aWaitingRun({ engine }: Service): Promise<{ runId: string; waitId: string; query: string }> {
  const { id: runId } = await engine.trigger("approval", {});
  await engine.runUntilIdle();
  const [wait] = await engine.getWaits(runId);
  return { runId, waitId: wait!.id, query: `runId=${runId}&waitId=${wait!.id}` };
}

/** Hooks that let everybody do everything, but for those that are given. */
function hooks(given: Partial<HandlerAuth<unknown>> = {}): HandlerAuth<unknown> {
  return {
    authenticate: () => "ada",
    onTrigger: () => {},
    onRunAccess: () => {},
    onSignal: () => {},
    scopeRuns: (_context, filter) => filter,
    ...given,
  };
}

/** A service with all hooks, and what its host is told of what is hidden. */
function aGuardedService(
  given: Partial<HandlerAuth<unknown>> = {},
  context?: StoreTest,
  jobs = {},
  options: HandlerOptions = {},
): Service & { heard: unknown[] } {
  const heard: unknown[] = [];
  const onError = (error: unknown) => void heard.push(error);
  return { ...aService({ auth: hooks(given), onError, ...options }, context, jobs), heard };
}

/** A request with a body that comes as it likes. */
function aStreamedRequest(path: string, body: ReadableStream<Uint8Array>): Request {
  // Node asks for `duplex`; the type of a request does not know it everywhere.
  return new Request(`http://localhost${path}`, { method: "POST", body, duplex: "half" } as RequestInit);
}

const bytesOf = (text: string) => new TextEncoder().encode(text);
const SIGNAL = '{"signalId":"s","payload":1}';

const WRONG_SIGNAL_BODIES: Record<string, [status: number, body?: BodyInit, encoding?: string]> = {
  "no body": [400],
  "an empty body": [400, ""],
  "half an object": [400, "{"],
  "a trailing comma": [400, '{"signalId":"s","payload":1,}'],
  "NaN": [400, '{"signalId":"s","payload":NaN}'],
  "a byte order mark": [400, `\ufeff${SIGNAL}`],
  "UTF-16": [400, new Uint8Array(new Uint16Array([...SIGNAL].map((letter) => letter.charCodeAt(0))).buffer)],
  "invalid UTF-8": [400, new Uint8Array([...bytesOf('{"signalId":"s","payload":"'), 0xff, ...bytesOf('"}')])],
  "an infinite payload": [400, '{"signalId":"s","payload":1e999}'],
  "an infinite number deep in the payload": [400, '{"signalId":"s","payload":[{"a":-1e999}]}'],
  "a payload of 64 levels": [400, `{"signalId":"s","payload":${"[".repeat(64)}${"]".repeat(64)}}`],
  "a payload of half a million levels": [
    400,
    `{"signalId":"s","payload":${"[".repeat(500_000)}${"]".repeat(500_000)}}`,
  ],
  "a payload of more than 1 MiB": [413, `{"signalId":"s","payload":"${"x".repeat(1_048_576)}"}`],
  "a gzip body": [415, SIGNAL, "gzip"],
  "a signal for a prototype": [400, '{"__proto__":{"signalId":"s","payload":1}}'],
  "a payload in a prototype": [400, '{"signalId":"s","__proto__":{"payload":1}}'],
};

for (const [what, [expected, body, encoding]] of Object.entries(WRONG_SIGNAL_BODIES)) {
  Deno.test(`POST /signal answers ${expected} to ${what}`, async () => {
    await using service = aService();
    const { waitId, query } = await aWaitingRun(service);
    const headers: Record<string, string> = encoding === undefined ? {} : { "content-encoding": encoding };

    const answer = await provoke(service, "POST", `/signal?${query}`, {
      headers,
      ...(body === undefined ? {} : { body }),
    });

    const codes: Record<number, string> = {
      400: "invalid_request",
      413: "body_too_large",
      415: "unsupported_encoding",
    };
    assert.deepEqual([answer.status, answer.body.code], [expected, codes[expected]]);
    assert.equal((await service.engine.getWait(waitId))!.status, "pending");
    await assertWell(service);
  });
}

Deno.test("POST /signal answers 408 to a body that stalls, and keeps the wait open", async () => {
  await using service = aService();
  const { waitId, query } = await aWaitingRun(service);
  const stalled = new ReadableStream<Uint8Array>({ pull: forever });

  const answering = service.handler.fetch(aStreamedRequest(`/signal?${query}`, stalled));
  await service.host.settle();
  service.host.advance(10_000);
  const response = await answering;

  assert.deepEqual([response.status, (await response.json()).code], [408, "body_timeout"]);
  assert.equal((await service.engine.getWait(waitId))!.status, "pending");
  await assertWell(service);
});

for (const length of ["-1", "x", "1e3", "0x10", "5, 5", " 7 ", "0", "18446744073709551616", "Infinity"]) {
  Deno.test(`POST /trigger survives a Content-Length "${length}"`, async () => {
    await using service = aService();

    const { status } = await provoke(service, "POST", "/trigger", {
      headers: { "content-length": length },
      body: '{"jobName":"echo","input":{}}',
    });

    // What a server could believe is looked at before the body is read; the rest is for the server to refuse.
    assert.equal(status, Number(length) > 1_048_576 ? 413 : 200);
    await assertWell(service);
  });
}

Deno.test("POST /trigger shows hooks the same of two keys of one name as it stores", async () => {
  const seen: unknown[] = [];
  await using service = aGuardedService({
    onTrigger: (_context, { jobName, input, labels }) => seen.push({ jobName, input, labels }),
  });

  const { body } = await provoke(service, "POST", "/trigger", {
    body: '{"jobName":"fail","jobName":"echo","input":{"n":1},"input":{"n":2,"n":3},"labels":{"org":"b","org":"a"}}',
  });

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual(seen, [{ jobName: run.jobName, input: run.payload, labels: run.labels }]);
  assert.deepEqual(seen, [{ jobName: "echo", input: { n: 3 }, labels: { org: "a" } }]);
});

Deno.test("POST /trigger rounds an integer beyond 2^53 as JSON does, unless a schema refuses it", async () => {
  const whole = defineJob({ name: "whole", input: z.object({ n: z.int() }), run: () => {} });
  await using service = aService({}, undefined, { whole });
  const trigger = (jobName: string) =>
    provoke(service, "POST", "/trigger", { body: `{"jobName":"${jobName}","input":{"n":9007199254740993}}` });

  const [loose, strict] = [await trigger("echo"), await trigger("whole")];

  assert.deepEqual([loose.status, strict.status, strict.body.code], [200, 400, "invalid_input"]);
  assert.deepEqual((await service.engine.getRun(loose.body.runId))!.payload, { n: 9007199254740992 });
});

forEachStore("inputs and payloads keep texts and keys exactly, hooks or not", async (context) => {
  const seen: unknown[] = [];
  await using service = aGuardedService({
    onTrigger: (_context, { input }) => seen.push(input),
    onSignal: (_context, _run, _wait, { payload }) => seen.push(payload),
  }, context);
  const { waitId, query } = await aWaitingRun(service);
  const text = `{"a\\u0000":"\\u0000 \\ud800 \\u2028",${
    MEMBERS.map((name) => `"${name}":{"${name}":{"polluted":true}}`).join()
  }}`;

  const trigger = await provoke(service, "POST", "/trigger", { body: `{"jobName":"echo","input":${text}}` });
  const signal = await provoke(service, "POST", `/signal?${query}`, { body: `{"signalId":"s","payload":${text}}` });
  await service.engine.runUntilIdle();

  const run = await provoke(service, "GET", `/run?runId=${trigger.body.runId}`);
  const wait = (await service.engine.getWait(waitId))!;
  const kept = [run.body.input, run.body.output, signal.body.wait.payload, wait.payload, ...seen];
  for (const value of kept) assert.equal(JSON.stringify(value), JSON.stringify(JSON.parse(text)));
  assert.equal(kept.length, 6);
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
  await assertWell(service);
});

const SCHEMAS: Record<string, Schema> = {
  "z.looseObject": z.looseObject({}),
  "z.record": z.record(z.string(), z.any()),
  "z.object": z.object({ a: z.number().default(1) }),
  "z.json": z.json(),
  "no validator": anything,
};

for (const [library, input] of Object.entries(SCHEMAS)) {
  Deno.test(`POST /trigger hands a job no prototype through ${library}`, async () => {
    const tells = defineJob({
      name: "tells",
      input,
      run: (
        _step,
        given,
      ) => [Object.getPrototypeOf(given) === Object.prototype, (given as { admin?: true }).admin ?? null],
    });
    await using service = aService({}, undefined, { tells });

    const { status, body } = await provoke(service, "POST", "/trigger", {
      body: '{"jobName":"tells","input":{"__proto__":{"admin":true},"constructor":{"prototype":{"admin":true}}}}',
    });
    await service.engine.runUntilIdle();

    assert.equal(status, 200);
    assert.deepEqual((await service.engine.getRun(body.runId))!.output, [true, null]);
    await assertWell(service);
  });
}

const LARGE: Record<string, string> = {
  "half a million items": `{"a":[${"0,".repeat(500_000)}0]}`,
  "ninety thousand keys": JSON.stringify(
    Object.fromEntries(Array.from({ length: 90_000 }, (_, n) => [n.toString(36), 1])),
  ),
  "a text of controls": JSON.stringify({ a: "\u0001x".repeat(125_000) }),
};

for (const [what, value] of Object.entries(LARGE)) {
  Deno.test(`an input and a payload of ${what} pass all hooks, and can be read`, async () => {
    await using service = aGuardedService();
    const { query } = await aWaitingRun(service);

    const triggered = await provoke(service, "POST", "/trigger", { body: `{"jobName":"echo","input":${value}}` });
    const signalled = await provoke(service, "POST", `/signal?${query}`, {
      body: `{"signalId":"s","payload":${value}}`,
    });
    await service.engine.runUntilIdle();
    const run = await provoke(service, "GET", `/run?runId=${triggered.body.runId}`);

    assert.deepEqual([triggered.status, signalled.status, run.status], [200, 200, 200]);
    assert.equal(JSON.stringify(run.body.output), value);
    assert.deepEqual(service.heard, []);
  });
}

const ODD_SCHEMAS: Record<string, (value: unknown) => unknown> = {
  "rejects with an Error": () => Promise.reject(new Error("file:///secret")),
  "rejects with nothing": () => Promise.reject(),
  "answers nothing": () => undefined,
  "answers null": () => null,
  "answers issues that are no list": () => ({ issues: "node:secret" }),
  "answers issues that are null inside": () => ({ issues: [null] }),
  "answers issues that throw when they are read": () => ({
    issues: [{
      get message(): string {
        throw new Error("file:///secret");
      },
    }],
  }),
  "answers issues with odd paths": () => ({
    issues: [{ message: 7, path: [Symbol("a"), { key: Symbol("b") }, { key: "__proto__" }, 0] }],
  }),
  "answers what cannot be read": () => ({
    get issues(): never {
      throw new Error("file:///secret");
    },
  }),
  "answers a value that JSON would lose": () => ({ value: { n: 1n } }),
  "answers a value that throws when it is read": () => ({
    value: {
      toJSON: () => {
        throw new Error("file:///secret");
      },
    },
  }),
};

for (const [what, validate] of Object.entries(ODD_SCHEMAS)) {
  Deno.test(`POST /trigger answers 400 if a schema ${what}`, async () => {
    const input = { "~standard": { version: 1, vendor: "test", validate } } as Schema;
    const odd = defineJob({ name: "odd", input, run: () => {} });
    await using service = aService({ onError: () => {} }, undefined, { odd });

    const { status, body } = await provoke(service, "POST", "/trigger", { body: { jobName: "odd", input: {} } });

    assert.deepEqual([status, body.code], [400, "invalid_input"]);
    assert.doesNotMatch(JSON.stringify(body), /secret/);
    assert.equal((await service.engine.getRuns()).total, 0);
    await assertWell(service);
  });
}

for (const name of MEMBERS) {
  forEachStore(`a job, a step, a wait, labels and keys may be called ${name}`, async (context) => {
    const job = defineJob({
      name,
      input: anything,
      run: async (step: StepContext) => [await step.run(name, () => name), await step.wait(name)],
    });
    await using service = aGuardedService({}, context, { job });
    const labels = `{"${name}":"${name}"}`;
    const body =
      `{"jobName":"${name}","input":{},"labels":${labels},"idempotencyKey":"${name}","concurrencyKey":"${name}"}`;

    const first = await provoke(service, "POST", "/trigger", { body });
    const second = await provoke(service, "POST", "/trigger", { body });
    await service.engine.runUntilIdle();
    const runId = `runId=${first.body.runId}`;
    const waits = await provoke(service, "GET", `/waits?${runId}`);
    const signal = await provoke(service, "POST", `/signal?${runId}&waitId=${waits.body[0].id}`, {
      body: { signalId: name, payload: name },
    });
    await service.engine.runUntilIdle();
    const listed = await provoke(service, "GET", `/runs?jobName=${name}&label.${name}=${name}`);
    const others = await provoke(service, "GET", `/runs?label.${name}=other`);

    assert.deepEqual([first.body.disposition, second.body.disposition], ["created", "idempotent"]);
    assert.deepEqual([signal.body.disposition, waits.body[0].name], ["accepted", name]);
    assert.deepEqual([listed.body.total, others.body.total], [1, 0]);
    assert.equal(JSON.stringify(listed.body.runs[0].labels), labels);
    assert.equal(listed.body.runs[0].output[0], name);
    await assertWell(service);
  });

  Deno.test(`a field or a parameter called ${name} is ignored`, async () => {
    await using service = aService();
    const { runId, query } = await aWaitingRun(service);
    const odd = `"${name}":{"jobName":"fail","idempotencyKey":"k","signalId":"t","status":"failed"}`;
    const parameters = `${name}=1&${name}[runId]=x&${name}.limit=x&label=${name}&labels.${name}=x`;

    const run = await provoke(service, "GET", `/run?runId=${runId}&${parameters}`);
    const runs = await provoke(service, "GET", `/runs?${parameters}`);
    const trigger = await provoke(service, "POST", `/trigger?${parameters}`, {
      body: `{${odd},"jobName":"echo","input":{}}`,
    });
    const signal = await provoke(service, "POST", `/signal?${query}&${parameters}`, {
      body: `{${odd},"signalId":"s","payload":1}`,
    });

    assert.deepEqual([run.body.id, runs.body.total, trigger.body.disposition], [runId, 1, "created"]);
    assert.deepEqual([signal.body.disposition, signal.body.wait.signalId], ["accepted", "s"]);
    assert.equal((await service.engine.getRun(trigger.body.runId))!.idempotencyKey, null);
    await assertWell(service);
  });
}

Deno.test("POST /trigger answers a body with a hundred thousand issues with less than 10 KiB", async () => {
  const rows = z.array(z.object({ name: z.string(), price: z.number() }));
  const strict = defineJob({ name: "strict", input: z.object({ rows }), run: () => {} });
  await using service = aService({}, undefined, { strict });
  const body = { jobName: "strict", input: { rows: Array(100_000).fill({}) } };

  const response = await service.handler.fetch(aRequest("POST", "/trigger", { body }));
  const text = await response.text();

  assert.equal(response.status, 400);
  assert.ok(text.length < 10_240, `${text.length} bytes`);
  const { error, code, issues, issuesLeftOut } = JSON.parse(text);
  assert.deepEqual([code, issues.length, issuesLeftOut], ["invalid_input", 20, 199_980]);
  assert.equal(
    error,
    'The input of job "strict" does not fit its schema: 200000 issues, of which 199980 are left out',
  );
});

Deno.test("POST /trigger cuts what a schema says of a key of half a megabyte", async () => {
  const strict = defineJob({ name: "strict", input: z.record(z.string(), z.number()), run: () => {} });
  const closed = defineJob({ name: "closed", input: z.strictObject({}), run: () => {} });
  await using service = aService({}, undefined, { strict, closed });

  for (const jobName of ["strict", "closed"]) {
    const { status, body } = await service.ask("POST", "/trigger", {
      body: { jobName, input: { ["k".repeat(500_000)]: "" } },
    });
    assert.equal(status, 400);
    assert.ok(JSON.stringify(body).length < 2_000, `${JSON.stringify(body).length} bytes`);
  }
});

forEachStore("POST /trigger finds an idempotencyKey free once its run is deleted", async (context) => {
  await using service = aService({}, context);
  const trigger = () =>
    service.ask("POST", "/trigger", { body: { jobName: "echo", input: {}, idempotencyKey: "once" } });
  const first = await trigger();
  await service.engine.runUntilIdle();
  await service.ask("DELETE", `/run?runId=${first.body.runId}`);

  const second = await trigger();

  assert.equal(second.body.disposition, "created");
  assert.notEqual(second.body.runId, first.body.runId);
});

Deno.test("POST /trigger and POST /signal refuse texts of a megabyte wherever a name or a key belongs", async () => {
  await using service = aService();
  const { query } = await aWaitingRun(service);
  const texts = ["a".repeat(1_000_000), `${"a ".repeat(499_000)}!`];
  const fields = (text: string): Record<string, unknown>[] => [
    { jobName: text },
    { idempotencyKey: text },
    { concurrencyKey: text },
    { coalesce: text },
    { labels: { [text]: "v" } },
    { labels: { k: text } },
    { labels: text },
    { input: text },
  ];

  const answers = [];
  for (const text of texts) {
    for (const field of fields(text)) {
      answers.push(await provoke(service, "POST", "/trigger", { body: { jobName: "echo", input: {}, ...field } }));
    }
    answers.push(await provoke(service, "POST", `/signal?${query}`, { body: { signalId: text, payload: 1 } }));
    answers.push(await provoke(service, "GET", `/runs?jobName=${text}`));
    answers.push(await provoke(service, "GET", `/runs?label.${text}=${text}`));
    answers.push(await provoke(service, "GET", `/runs?limit=${text}&status=${text}`));
  }

  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [400]);
  await assertWell(service);
});

forEachStore(
  "GET /runs answers the last page that can be asked for, and refuses forty thousand job names",
  async (context) => {
    await using service = aService({}, context);
    await service.engine.trigger("echo", {});
    const names = Array.from({ length: 40_000 }, (_, n) => `jobName=job-${n}`).join("&");

    const last = await provoke(service, "GET", "/runs?offset=1000000");
    const many = await provoke(service, "GET", `/runs?${names}&jobName=echo`);

    assert.deepEqual(last.body, { runs: [], total: 1, hasMore: false });
    assert.deepEqual([many.status, many.body.code], [400, "invalid_request"]);
  },
);

Deno.test("GET /runs/subscribe ignores a limit, an offset and a status, whatever they are", async () => {
  await using service = aService();
  const query = "limit=1&limit=x&offset=-1&status=nonsense&runId=a&runId=b";

  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/runs/subscribe?${query}`)));
  for (const n of [1, 2]) await service.engine.trigger("echo", { n });
  await service.host.settle();

  assert.deepEqual(reader.types, ["run:trigger", "run:trigger"]);
});

const ODD_HEADERS: Record<string, string>[] = [
  { accept: "text/html;q=0.9, */*;q=nonsense", "accept-language": "x-klingon, *;q=-1", "accept-charset": "utf-7" },
  { range: "bytes=0-0", "if-range": '"a"', "if-none-match": "*", "if-modified-since": "yesterday", "if-match": '"x"' },
  { "last-event-id": "42", "cache-control": "only-if-cached", te: "trailers", expect: "100-continue" },
  { "last-event-id": "../../x", "x-http-method-override": "DELETE", "x-forwarded-host": "evil.example" },
  { "x-original-url": "/cancel", "x-rewrite-url": "/cancel", forwarded: "for=evil;host=evil.example", prefer: "x" },
  { cookie: "a=b; __proto__=c; =; ;;", authorization: "Basic \u00ff\u00fe", "content-type": "\u00e9;charset=utf-16" },
];

for (const headers of ODD_HEADERS) {
  Deno.test(`fetch() answers the same whatever these headers say: ${Object.keys(headers).join(", ")}`, async () => {
    await using service = aService();
    const { id } = await service.engine.trigger("echo", {});
    const ask = async (given: Record<string, string>) => {
      const answers = [
        await provoke(service, "GET", `/run?runId=${id}`, { headers: given }),
        await provoke(service, "GET", "/runs?limit=1", { headers: given }),
        await provoke(service, "GET", "/nowhere", { headers: given }),
      ];
      return answers.map(({ status, body, headers }) => ({ status, body, headers: [...headers] }));
    };
    const plain = await ask({});

    const answers = await ask(headers);
    const triggered = await provoke(service, "POST", "/trigger", { headers, body: '{"jobName":"echo","input":{}}' });
    const stream = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`, { headers }));
    await stream.body!.cancel();

    assert.deepEqual(answers, plain);
    assert.deepEqual([triggered.status, stream.status], [200, 200]);
    assert.equal((await service.engine.getRun(id))!.status, "pending");
  });
}

for (const what of ["reads the body", "takes the body for itself"]) {
  Deno.test(`fetch() answers 500, and does nothing, if authenticate ${what}`, async () => {
    await using service = aGuardedService({
      authenticate: what === "reads the body" ? (request) => request.text() : (request) => request.body?.getReader(),
    });
    const { waitId, query } = await aWaitingRun(service);

    const answers = [
      await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } }),
      await service.ask("POST", `/signal?${query}`, { body: SIGNAL }),
    ];
    const read = await service.ask("GET", `/run?${query}`);
    const cancelled = await service.ask("POST", `/cancel?${query}`, { body: "unread" });

    for (const { status, body } of answers) {
      assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
    }
    assert.deepEqual([read.status, cancelled.status, service.heard.length], [200, 200, 2]);
    assert.equal((await service.engine.getWait(waitId))!.status, "cancelled");
    assert.equal((await service.engine.getRuns()).total, 1);
  });
}

Deno.test("authenticate may read a copy of the request, and the handler still reads the body", async () => {
  const seen: string[] = [];
  await using service = aGuardedService(
    {
      authenticate: async (request) => {
        if (request.method === "POST") seen.push(await request.clone().text());
      },
    },
    undefined,
    {},
    { limits: { maxBodyBytes: 100 } },
  );
  const { query } = await aWaitingRun(service);
  const fits = '{"jobName":"echo","input":{"n":1}}';
  const tooLarge = `{"jobName":"echo","input":{"n":"${"x".repeat(100)}"}}`;

  const answers = [
    await provoke(service, "POST", "/trigger", { body: fits }),
    await provoke(service, "POST", `/signal?${query}`, { body: SIGNAL }),
    await provoke(service, "POST", "/trigger", { body: tooLarge }),
    await provoke(service, "POST", "/trigger", { body: "{" }),
  ];

  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 413, 400]);
  assert.deepEqual(seen, [fits, SIGNAL, tooLarge, "{"]);
});

Deno.test("a client who leaves while authenticate reads a copy of the body harms nobody", async () => {
  await using service = aGuardedService({ authenticate: (request) => request.clone().text() });
  const broken = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(bytesOf("{")),
    pull: (controller) => controller.error(new TypeError("connection reset")),
  });

  const response = await service.handler.fetch(aStreamedRequest("/trigger", broken));
  const text = await response.text();
  await service.host.settle();

  assert.deepEqual(Object.keys(JSON.parse(text)), ["error", "code"]);
  assert.doesNotMatch(text, /reset/);
  assert.equal((await service.engine.getRuns()).total, 0);
});

const MEDDLING: Record<string, Partial<HandlerAuth<unknown>>> = {
  "onTrigger adds to the input": { onTrigger: (_context, { input }) => ((input as { n: number }).n = 2) },
  "onTrigger changes what is deep in the input": {
    onTrigger: (_context, { input }) => ((input as { list: unknown[] }).list.push("more")),
  },
  "onTrigger changes a label": {
    onTrigger: (_context, { labels }) => ((labels as Record<string, string>).org = "b"),
  },
  "onTrigger names another job": {
    onTrigger: (_context, trigger) => ((trigger as { jobName: string }).jobName = "fail"),
  },
  "onRunAccess changes the status": { onRunAccess: (_context, run) => ((run as Run).status = "completed") },
  "onRunAccess changes the input": {
    onRunAccess: (_context, run) => ((run.payload as { n: number }).n = 2),
  },
  "onRunAccess changes the operation": {
    onRunAccess: (_context, _run, access) => ((access as { operation: string }).operation = "delete"),
  },
  "onSignal changes the payload": {
    onSignal: (_context, _run, _wait, { payload }) => ((payload as { n: number }).n = 2),
  },
  "onSignal changes the wait": {
    onSignal: (_context, _run, wait) => ((wait as { status: string }).status = "resolved"),
  },
};

for (const [what, given] of Object.entries(MEDDLING)) {
  forEachStore(`fetch() answers 500, and changes nothing, if ${what}`, async (context) => {
    await using service = aGuardedService(given, context);
    const { id } = await service.engine.trigger("approval", { n: 1 }, { labels: { org: "a" } });
    await service.engine.runUntilIdle();
    const [wait] = await service.engine.getWaits(id);
    const before = await service.engine.getRun(id);
    const [hook] = Object.keys(given);
    const asked: Record<string, [method: string, path: string, asked?: Asked]> = {
      onTrigger: ["POST", "/trigger", {
        body: { jobName: "echo", input: { n: 1, list: [{}] }, labels: { org: "a" } },
      }],
      onRunAccess: ["POST", `/cancel?runId=${id}`],
      onSignal: ["POST", `/signal?runId=${id}&waitId=${wait!.id}`, { body: { signalId: "s", payload: { n: 1 } } }],
    };

    const { status, body } = await service.ask(...asked[hook!]!);

    assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
    assert.ok(service.heard[0] instanceof TypeError);
    assert.deepEqual(await service.engine.getRun(id), before);
    assert.equal((await service.engine.getWait(wait!.id))!.status, "pending");
    assert.equal((await service.engine.getRuns()).total, 1);
  });
}

Deno.test("what is stored is what was asked for, though a hook meddles in silence, at once or later", async () => {
  const meddle = (value: unknown) => {
    for (const key of ["n", "org", "jobName", "payload", "input", "labels"]) Reflect.set(value as object, key, "evil");
  };
  const given: unknown[] = [];
  const keep = (...values: unknown[]) => {
    given.push(...values);
    values.forEach(meddle);
  };
  await using service = aGuardedService({
    onTrigger: (_context, trigger) => keep(trigger, trigger.input, trigger.labels),
    onSignal: (_context, run, wait, signal) => keep(run, run.labels, wait, signal, signal.payload),
  });
  const { waitId, query } = await aWaitingRun(service);

  const { body } = await provoke(service, "POST", "/trigger", {
    body: { jobName: "echo", input: { n: 1 }, labels: { org: "a" } },
  });
  await provoke(service, "POST", `/signal?${query}`, { body: { signalId: "s", payload: { n: 1 } } });
  given.forEach(meddle);
  await service.engine.runUntilIdle();

  const run = (await service.engine.getRun(body.runId))!;
  assert.deepEqual([run.jobName, run.payload, run.output, run.labels], ["echo", { n: 1 }, { n: 1 }, { org: "a" }]);
  assert.deepEqual((await service.engine.getWait(waitId))!.payload, { n: 1 });
});

const needARun = all.filter(([name]) => !["trigger", "runs", "runsSubscribe"].includes(name));

for (const [name, { method, path }] of needARun) {
  forEachStore(
    `${method} ${path} (${name}) survives that its run is deleted while onRunAccess takes its time`,
    async (context) => {
      const asked = Promise.withResolvers<void>();
      const allowed = Promise.withResolvers<void>();
      await using service = aGuardedService({
        onRunAccess: () => {
          asked.resolve();
          return allowed.promise;
        },
      }, context);
      const { runId, query } = await aWaitingRun(service);
      await service.engine.cancel(runId);
      const body = name === "signal" ? { body: SIGNAL } : {};

      const answering = service.handler.fetch(aRequest(method, `${path}?${query}`, body));
      await asked.promise;
      await service.engine.deleteRun(runId);
      allowed.resolve();
      const response = await answering;
      const text = await response.text();

      // What was read before may still be shown; a stream ends at once.
      assert.equal(response.status, ["run", "subscribe"].includes(name) ? 200 : 404);
      if (name === "subscribe") assert.equal(text, "");
      else if (name !== "run") assert.deepEqual(Object.keys(JSON.parse(text)), ["error", "code"]);
      assert.deepEqual(service.heard, []);
      assert.equal((await service.engine.getRuns()).total, 0);
      await assertWell(service);
    },
  );
}

forEachStore("POST /cancel answers 409 if the run ends while onRunAccess takes its time", async (context) => {
  await using service = aGuardedService({ onRunAccess: () => service.engine.runUntilIdle() }, context);
  const { id } = await service.engine.trigger("echo", {});

  const { status, body } = await provoke(service, "POST", `/cancel?runId=${id}`);

  assert.deepEqual([status, body.code], [409, "conflict"]);
  assert.equal((await service.engine.getRun(id))!.status, "completed");
});

const SCOPES: Record<string, unknown> = {
  "a hundred thousand job names and a wrong one": { jobName: [...Array(100_000).fill("echo"), ""] },
  "a limit that is no number": { limit: "all" },
  "an offset in labels": { labels: { a: 1 } },
  "a status that there is not": { status: "any" },
  "a promise of nothing": Promise.resolve(),
  "a proxy that throws": new Proxy({}, {
    get: () => {
      throw new Error("file:///secret");
    },
  }),
};

for (const [what, scope] of Object.entries(SCOPES)) {
  Deno.test(`GET /runs and GET /runs/subscribe answer 500, and show nothing, if a scope is ${what}`, async () => {
    await using service = aGuardedService({ scopeRuns: () => scope as RunFilter });
    await service.engine.trigger("echo", {});

    const answers = [await service.ask("GET", "/runs"), await service.ask("GET", "/runs/subscribe")];

    for (const { status, body } of answers) {
      assert.deepEqual([status, body], [500, { error: "Internal error", code: "internal" }]);
    }
    assert.equal(service.heard.length, 2);
  });
}

Deno.test("GET /runs shows nothing if scope and client together ask for more labels than a run can have", async () => {
  const labels = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`k${n}`, "v"]));
  const own = Object.fromEntries(Object.entries(labels).slice(15));
  const query = Object.keys(labels).slice(0, 16).map((key) => `label.${key}=v`).join("&");
  await using service = aGuardedService({
    scopeRuns: (_context, filter) => ({ ...filter, labels: { ...filter.labels, ...own, org: "a" } }),
  });
  await service.engine.trigger("echo", {}, { labels });

  const list = await provoke(service, "GET", `/runs?${query}`);
  const stream = await service.handler.fetch(aRequest("GET", `/runs/subscribe?${query}`));
  await stream.body!.cancel();

  assert.deepEqual([list.status, list.body.total, stream.status], [200, 0, 200]);
  assert.deepEqual(service.heard, []);
});

forEachStore(
  "GET /runs lists what the client asked for, though scopeRuns changes its copy of the filter",
  async (context) => {
    const meddling: ((filter: RunFilter) => void)[] = [
      (filter) => Reflect.set(filter.labels!, "org", "b"),
      (filter) => Reflect.deleteProperty(filter, "labels"),
      (filter) => (filter.jobName as string[]).push("fail"),
      (filter) => Object.assign(filter, { jobName: "fail", status: "failed", limit: 7 }),
    ];
    let meddle = meddling[0]!;
    await using service = aGuardedService({ scopeRuns: (_context, filter) => (meddle(filter), filter) }, context);
    for (const org of ["a", "b"]) {
      for (const jobName of ["echo", "fail"]) await service.engine.trigger(jobName, {}, { labels: { org } });
    }

    const shown = [];
    for (meddle of meddling) {
      const { body } = await provoke(service, "GET", "/runs?jobName=echo&jobName=approval&label.org=a");
      shown.push(body.runs.map(({ jobName, labels }: Run) => `${jobName} of ${labels.org}`));
    }

    assert.deepEqual(shown, [[], ["echo of a"], ["echo of a"], []]);
  },
);

/** Responses that cannot be sent, made anew: each can be used up once. */
const UNSENDABLE: Record<string, () => Promise<Response>> = {
  "was read": async () => {
    const response = new Response("once");
    await response.text();
    return response;
  },
  "is being read": () => {
    const response = new Response("once");
    response.body!.getReader();
    return Promise.resolve(response);
  },
  "is an error": () => Promise.resolve(Response.error()),
};

for (
  const hook of ["authenticate", "onTrigger", "onRunAccess", "onSignal", "scopeRuns", "scopeRunsSubscribe"] as const
) {
  for (const [what, make] of Object.entries(UNSENDABLE)) {
    Deno.test(`fetch() answers 500 if ${hook} throws a Response that ${what}`, async () => {
      const thrown = await make();
      await using service = aGuardedService({ [hook]: () => Promise.reject(thrown) });
      const { query } = await aWaitingRun(service);
      const asked: Record<typeof hook, [method: string, path: string, asked?: Asked]> = {
        authenticate: ["GET", "/nowhere"],
        onTrigger: ["POST", "/trigger", { body: { jobName: "echo", input: {} } }],
        onRunAccess: ["GET", `/steps?${query}`],
        onSignal: ["POST", `/signal?${query}`, { body: SIGNAL }],
        scopeRuns: ["GET", "/runs"],
        scopeRunsSubscribe: ["GET", "/runs/subscribe"],
      };

      const { status, body } = await service.ask(...asked[hook]);

      assert.deepEqual([status, body.code], [500, "internal"]);
      assert.match(String(service.heard[0]), /cannot be sent/);
      assert.equal((await service.engine.getRuns()).total, 1);
    });
  }
}

const CONTEXTS: Record<string, unknown> = {
  "a proxy that throws": new Proxy({}, {
    get: (_target, name) => {
      if (name === "then") return undefined;
      throw new Error("trap");
    },
    getPrototypeOf: () => {
      throw new Error("trap");
    },
  }),
  "an object without a prototype": Object.create(null),
  "a function": () => {},
  "a symbol": Symbol("context"),
};

for (const [what, context] of Object.entries(CONTEXTS)) {
  Deno.test(`authenticate may answer ${what}, and every hook is given it`, async () => {
    const seen: unknown[] = [];
    await using service = aGuardedService({
      authenticate: () => context,
      onRunAccess: (given) => seen.push(given),
      scopeRuns: (given, filter) => {
        seen.push(given);
        return filter;
      },
    });
    const { id } = await service.engine.trigger("echo", {});

    const answers = [await provoke(service, "GET", `/run?runId=${id}`), await provoke(service, "GET", "/runs")];

    assert.deepEqual(answers.map(({ status }) => status), [200, 200]);
    assert.ok(seen.length === 2 && seen.every((given) => given === context));
  });
}

/** A store that notes what it is asked. */
function aNotingStore(store: Store): { store: Store; calls: string[] } {
  const calls: string[] = [];
  const noting = new Proxy(store, {
    get: (target, name) => {
      const member = target[name as keyof Store];
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        calls.push(String(name));
        return (member as (...given: unknown[]) => unknown).apply(target, given);
      };
    },
  });
  return { store: noting, calls };
}

for (const [name, { method, path }] of needARun) {
  forEachStore(`${method} ${path} (${name}) asks the store as much for a foreign run as for none`, async (context) => {
    const { store, calls } = aNotingStore(context.store);
    await using service = aGuardedService({
      onRunAccess: (_context, { labels }) => {
        if (labels.org !== "a") {
          throw new Response('{"error":"There is no such run","code":"not_found"}', { status: 404 });
        }
      },
    }, { ...context, store });
    const { runId, waitId } = await aWaitingRun(service);
    const ask = async (run: string, wait: string) => {
      calls.length = 0;
      const body = name === "signal" ? { body: SIGNAL } : {};
      const { status } = await service.ask(method, `${path}?runId=${run}&waitId=${wait}`, body);
      return { status, calls: [...calls] };
    };

    const foreign = await ask(runId, waitId);
    const missing = await ask(uuidV7(0), waitId);
    const noWait = await ask(runId, uuidV7(0));

    const call = ["steps", "waits", "logs"].includes(name) ? "readRuns" : "getRun";
    assert.deepEqual(foreign, { status: 404, calls: [call] });
    assert.deepEqual([missing, noWait], [foreign, foreign]);
  });
}

const HOSTILE_TEXTS = [
  "\n",
  "\r",
  "\r\n",
  "\n\ndata: {}\n\n",
  "\nevent: run:complete\nid: 1\nretry: 0\n\n",
  "\r\rdata: {}\r\r",
  "\u2028\u2029\u0085\u000b\u000c",
  "\u0000\ufeff\ud800",
  ": comment",
  "</script><!--",
];

/** Reads a stream as the standard says (WHATWG HTML, section 9.2.6): the data of every event, and nothing else. */
function dataOf(text: string): string[] {
  const told: string[] = [];
  let data: string[] = [];
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line === "") {
      if (data.length > 0) told.push(data.join("\n"));
      data = [];
    } else if (!line.startsWith(":")) {
      assert.match(line, /^data: /);
      data.push(line.slice("data: ".length));
    }
  }
  return told;
}

Deno.test("event streams tell one event for each that happened, whatever texts are in it", async () => {
  const name = "büro \u2028 💩";
  const job = defineJob({
    name,
    input: anything,
    run: async (step: StepContext, input) => {
      for (const [n, text] of HOSTILE_TEXTS.entries()) {
        step.progress(n, 10, text);
        await service.host.settle(2); // its readers come along: nothing is superseded
        step.log.info(text, { [text]: text });
        await step.run(`${name} ${n}`, () => ({ [text]: text }));
        await step.run("fails", () => Promise.reject(new Error(text))).catch(() => {});
      }
      step.progress(10);
      throw new Error(JSON.stringify(input) + HOSTILE_TEXTS.join(""));
    },
  });
  await using service = aService({ sseThrottleMs: 0 }, undefined, { job });
  const happened = recordEvents(service.engine);
  const { id } = await service.engine.trigger(name, HOSTILE_TEXTS, { labels: { org: "\u2028" } });
  const follow = async (path: string) => (await service.handler.fetch(aRequest("GET", path))).text();
  const reading = [follow(`/subscribe?runId=${id}`), follow("/runs/subscribe")];
  await service.host.settle();

  await service.engine.runUntilIdle();
  await service.host.settle();
  await service.engine.stop();
  const [told, toldOfAll] = (await Promise.all(reading)).map((text) => dataOf(text).map((data) => JSON.parse(data)));

  const after = happened.filter(({ type }) => !["run:trigger", "run:lease-renewed"].includes(type));
  assert.equal(after.length, 3 + 1 + 6 * HOSTILE_TEXTS.length);
  // What was thrown itself stays in the process, and the numbers are those of the journal.
  const shown = after.map(({ sequence: _, ...event }) => ({ ...event, thrown: undefined }));
  assert.deepEqual(told!.map(({ sequence: _, ...event }) => event), JSON.parse(JSON.stringify(shown)));
  assert.deepEqual(
    toldOfAll!.map(({ type }) => type),
    after.map(({ type }) => type).filter((type) => type.startsWith("run:")),
  );
});

Deno.test("GET /subscribe tells of ten thousand calls of progress the first and the last", async () => {
  const busy = defineJob({
    name: "busy",
    input: anything,
    run: (step: StepContext) => {
      for (let n = 1; n <= 10_000; n++) step.progress(n);
    },
  });
  await using service = aService({}, undefined, { busy });
  const { id } = await service.engine.trigger("busy", {});
  await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`)));
  await service.host.settle();

  await service.engine.runUntilIdle();
  await reader.ended;

  const progress = reader.events.flatMap((event) => event.type === "run:progress" ? [event.progress.current] : []);
  assert.deepEqual(progress, [1, 10_000]);
});

forEachStore(
  "GET /subscribe loses no end that comes while onRunAccess takes its time, and tells it once",
  async (context) => {
    await using service = aGuardedService({ onRunAccess: () => service.engine.runUntilIdle() }, context);
    const { id } = await service.engine.trigger("echo", {});

    await using reader = new EventReader(await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`)));
    await context.host.settle();

    assert.deepEqual([reader.types, reader.isEnded], [["run:complete"], true]);
  },
);

forEachStore(
  "GET /run, /steps and /logs show of an error its message, and nothing of where it was thrown",
  async (context) => {
    const breaks = defineJob({
      name: "breaks",
      input: anything,
      run: async (step: StepContext) => {
        await step.run("cause", () => {
          throw new Error("no rows", { cause: new TypeError("hidden cause") });
        });
      },
    });
    await using service = aService({}, context, { breaks });
    const { id } = await service.engine.trigger("breaks", {});
    await service.engine.runUntilIdle();

    const answers = await Promise.all(
      ["run", "steps", "waits", "logs"].map((path) => provoke(service, "GET", `/${path}?runId=${id}`)),
    );
    const stream = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`));
    const texts = [...answers.map(({ body }) => JSON.stringify(body)), await stream.text()];

    assert.match(texts[0]!, /no rows/);
    for (const text of texts) {
      assert.doesNotMatch(text, INTERNALS);
      assert.doesNotMatch(text, /hidden cause|hostile_test|stack/);
    }
  },
);

forEachStore("a job of two thousand steps and as many log lines ends, and can be shown", async (context) => {
  const long = defineJob({
    name: "long",
    input: anything,
    run: async (step: StepContext) => {
      for (let n = 0; n < 2_000; n++) {
        step.log.info(`line ${n}`);
        await step.run("again", () => n);
      }
    },
  });
  await using service = aService({}, context, { long });
  const { id } = await service.engine.trigger("long", {});

  await service.engine.runUntilIdle();
  const { status, body } = await provoke(service, "GET", `/steps?runId=${id}`);

  assert.deepEqual([status, body.length, body.at(-1).name], [200, 2_000, "again#2000"]);
});

forEachStore("POST /signal gives the receipt of a prototype only to the same prototype", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = async (payload: string) => {
    const { status, body } = await provoke(service, "POST", `/signal?${query}`, {
      body: `{"signalId":"s","payload":${payload}}`,
    });
    return body.disposition ?? status;
  };

  const answers = [
    await signal('{"__proto__":{"a":1},"10":1,"9":[1.0,-0]}'),
    await signal('{"9":[1,0],"10":1e0,"__proto__":{"a":1}}'),
    await signal('{"10":1,"9":[1,0]}'),
    await signal('{"__proto__":{},"10":1,"9":[1,0]}'),
    await signal('{"__proto__":{"a":1},"10":1,"9":{"0":1,"1":0}}'),
    await signal('{"__proto__":{"a":1},"10":"1","9":[1,0]}'),
  ];

  assert.deepEqual(answers, ["accepted", "duplicate", 409, 409, 409, 409]);
});

forEachStore("POST /signal answers a duplicate byte for byte as it was answered first", async (context) => {
  await using service = aService({}, context);
  const { query } = await aWaitingRun(service);
  const signal = async () => {
    const response = await service.handler.fetch(aRequest("POST", `/signal?${query}`, { body: SIGNAL }));
    return (await response.text()).replace('"duplicate"', '"accepted"');
  };

  const first = await signal();
  const again = await signal();
  await service.engine.runUntilIdle();
  context.host.advance(60_000);

  assert.deepEqual([again, await signal()], [first, first]);
});

forEachStore("POST /signal answers 409 for a wait whose run has failed, and does not revive it", async (context) => {
  const breaks = defineJob({
    name: "breaks",
    input: anything,
    run: async (step: StepContext) => {
      await step.prepareWait("review");
      throw new Error("broken");
    },
  });
  await using service = aService({}, context, { breaks });
  const { id } = await service.engine.trigger("breaks", {});
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(id);

  const { status, body } = await provoke(service, "POST", `/signal?runId=${id}&waitId=${wait!.id}`, { body: SIGNAL });
  await service.engine.runUntilIdle();

  assert.deepEqual([status, body.code], [409, "conflict"]);
  assert.equal((await service.engine.getRun(id))!.status, "failed");
  assert.equal((await service.engine.getWait(wait!.id))!.status, "closed");
});

for (const [what, thrown] of Object.entries({ "an Error": new Error("file:///secret"), "nothing": undefined })) {
  forEachStore(
    `POST /signal keeps the wait open if onSignal throws ${what}, and takes the next try`,
    async (context) => {
      let tries = 0;
      await using service = aGuardedService({
        onSignal: () => {
          if (++tries === 1) throw thrown;
        },
      }, context);
      const { waitId, query } = await aWaitingRun(service);

      const first = await service.ask("POST", `/signal?${query}`, { body: SIGNAL });
      const between = (await service.engine.getWait(waitId))!;
      const second = await service.ask("POST", `/signal?${query}`, { body: SIGNAL });

      assert.deepEqual([first.status, first.body], [500, { error: "Internal error", code: "internal" }]);
      assert.deepEqual([between.status, between.signalId], ["pending", null]);
      assert.deepEqual([second.status, second.body.disposition], [200, "accepted"]);
    },
  );
}

forEachStore("POST /signal answers 404 if the run is deleted before the signal is stored", async (context) => {
  await using service = aGuardedService({
    onSignal: async (_context, { id }) => {
      await service.engine.cancel(id);
      await service.engine.deleteRun(id);
    },
  }, context);
  const { query } = await aWaitingRun(service);

  const { status, body } = await provoke(service, "POST", `/signal?${query}`, { body: SIGNAL });

  assert.deepEqual([status, body.code], [404, "not_found"]);
  assert.equal((await service.engine.getRuns()).total, 0);
});

forEachStore("POST /signal answers 410 if the deadline passes while onSignal takes its time", async (context) => {
  await using service = aGuardedService({ onSignal: () => context.host.advance(60_000) }, context, {}, {
    host: new FakeHost(),
  });
  const { waitId, query } = await aWaitingRun(service);

  const { status, body } = await provoke(service, "POST", `/signal?${query}`, { body: SIGNAL });

  assert.deepEqual([status, body.code], [410, "wait_expired"]);
  assert.equal((await service.engine.getWait(waitId))!.outcome, "timeout");
});

forEachStore("POST /signal and a worker that come at the deadline tell one outcome", async (context) => {
  await using service = aService({}, context);
  const { runId, waitId, query } = await aWaitingRun(service);
  context.host.advance(60_000);

  const [signal] = await Promise.all([
    provoke(service, "POST", `/signal?${query}`, { body: SIGNAL }),
    service.engine.runUntilIdle(),
  ]);
  await service.engine.runUntilIdle();

  assert.equal(signal.status, 410);
  assert.equal((await service.engine.getWait(waitId))!.outcome, "timeout");
  assert.deepEqual((await service.engine.getRun(runId))!.output, { outcome: "timeout" });
});

Deno.test("a page of another site cancels nothing with the cookies of its visitor", async () => {
  const authenticate = ({ headers }: Request) => {
    if (headers.get("cookie") !== "session=ada") throw new Response(null, { status: 401 });
  };
  await using service = aGuardedService({ authenticate });
  const { runId } = await aWaitingRun(service);
  const pages: Record<string, string>[] = [
    { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors" },
    { origin: "https://evil.example", "content-type": "text/plain" },
    { origin: "null", "content-type": "application/x-www-form-urlencoded" },
  ];

  const answers = [];
  for (const page of pages) {
    const headers = { cookie: "session=ada", ...page };
    answers.push(await provoke(service, "POST", `/cancel?runId=${runId}`, { headers }));
    answers.push(await provoke(service, "POST", "/trigger", { headers, body: '{"jobName":"echo","input":{}}' }));
  }
  const own = await service.ask("POST", `/cancel?runId=${runId}`, { headers: { cookie: "session=ada" } });

  assert.deepEqual([...new Set(answers.map(({ status, body }) => `${status} ${body.code}`))], ["403 cross_origin"]);
  assert.equal(own.status, 200);
  assert.equal((await service.engine.getRuns()).total, 1);
});

forEachStore("GET /run answers every guess alike", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", {});
  const guesses = Array.from({ length: 1_000 }, () => context.host.newId());

  const answers = new Set<string>();
  for (const guess of guesses) {
    const { status, headers, body } = await provoke(service, "GET", `/run?runId=${guess}`);
    answers.add(`${status} ${[...headers]} ${JSON.stringify(body).replace(guess, "?")}`);
  }

  assert.ok(!guesses.includes(id));
  assert.equal(answers.size, 1);
  assert.match([...answers][0]!, /^404 /);
});

Deno.test("no text of a run comes into a header", async () => {
  const name = "büro-💩\u2028";
  const breaks = defineJob({
    name,
    input: anything,
    run: (step: StepContext) => {
      step.progress(1, 2, "\r\nset-cookie: a=b");
      throw new Error("\r\nset-cookie: a=b \u0100");
    },
  });
  await using service = aService({}, undefined, { breaks });
  const triggered = await provoke(service, "POST", "/trigger", {
    body: { jobName: name, input: {}, labels: { org: "\u0100💩" }, idempotencyKey: "é\u0100", concurrencyKey: "💩" },
  });
  await service.engine.runUntilIdle();
  const query = `runId=${triggered.body.runId}&waitId=%0d%0aset-cookie:a&label.org=%C4%80`;

  const answers = [triggered];
  for (const [handlerName, { method, path }] of all) {
    if (handlerName !== "delete" && !path.endsWith("subscribe")) {
      answers.push(await provoke(service, method, `${path}?${query}`));
    }
  }
  answers.push(await provoke(service, "DELETE", `/run?${query}`));

  assert.equal(answers.length, all.length - 1);
  assert.deepEqual(new Set(answers.flatMap(({ headers }) => [...headers.values()])).size, 4);
});

forEachStore("a flood of triggers is stored whole, and costs no run its lease", async (context) => {
  const { host } = context;
  const begun = Promise.withResolvers<void>();
  const ending = Promise.withResolvers<void>();
  const slow = defineJob({
    name: "slow",
    input: anything,
    run: () => {
      begun.resolve();
      return ending.promise;
    },
  });
  await using service = aService({}, context, { slow });
  const { id } = await service.engine.trigger("slow", {});
  await service.engine.start();
  await begun.promise;

  const flood = Promise.all(
    Array.from(
      { length: 1_000 },
      (_, n) => service.ask("POST", "/trigger", { body: { jobName: "echo", input: { n } } }),
    ),
  );
  await pass(host, 60_000, 5_000);
  const answers = await flood;
  ending.resolve();
  await host.settle();
  await service.engine.stop();

  const run = (await service.engine.getRun(id))!;
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200]);
  assert.equal(new Set(answers.map(({ body }) => body.runId)).size, 1_000);
  assert.equal((await service.engine.getRuns({ limit: 0 })).total, 1_001);
  assert.deepEqual([run.status, run.leaseGeneration], ["completed", 1]);
});

/** Requests at random, of words that mean something to somebody. */
class Mischief {
  readonly #chance: Chance;
  readonly #ids: readonly string[];

  constructor(seed: number, ids: readonly string[]) {
    this.#chance = new Chance(seed);
    this.#ids = ids;
  }

  request(): [method: string, path: string, asked: Asked] {
    const chance = this.#chance;
    const methods = ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"];
    const path = chance.happens(0.9) ? chance.pick(all)[1].path : `/${this.#word()}`;
    const route = all.find(([, route]) => route.path === path)?.[1];
    const method = route !== undefined && chance.happens(0.8) ? route.method : chance.pick(methods);
    const names = [
      "runId",
      "waitId",
      "limit",
      "offset",
      "status",
      "jobName",
      "from",
      `label.${this.#word()}`,
      this.#word(),
    ];
    const parameters = Array.from({ length: chance.int(5) }, () => `${chance.pick(names)}=${this.#word()}`);
    const body = ["GET", "HEAD"].includes(method) || chance.happens(0.1) ? {} : { body: this.#body() };
    return [method, `${path}?runId=${this.#id()}&${parameters.join("&")}`.slice(0, 5_000), {
      ...body,
      headers: this.#headers(),
    }];
  }

  #word(): string {
    const odd = [
      "",
      "0",
      "-1",
      "1e9",
      "x".repeat(300),
      "%00",
      "%ff",
      "%",
      "..%2f",
      "💩",
      "'--",
      "null",
      "failed",
      "a=b",
    ];
    return this.#chance.pick([...MEMBERS, ...odd, ...this.#ids, "echo", "approval", "start", "failure"]);
  }

  #id(): string {
    return this.#chance.happens(0.7) ? this.#chance.pick(this.#ids) : this.#word();
  }

  #value(depth = 0): string {
    const chance = this.#chance;
    const scalars = ["null", "true", "0", "-0", "1e999", "1e-999", '""', '"\\ud800"', '"\\u0000"', "[]", "{}"];
    if (depth > 3 || chance.happens(0.5)) return chance.pick([...scalars, JSON.stringify(this.#word())]);
    const inner = () => this.#value(depth + 1);
    if (chance.happens(0.3)) return `[${inner()},${inner()}]`;
    return `{${JSON.stringify(this.#word())}:${inner()},${JSON.stringify(this.#word())}:${inner()}}`;
  }

  #body(): string {
    const chance = this.#chance;
    const good: Record<string, string> = {
      jobName: '"echo"',
      input: '{"n":1}',
      signalId: '"s"',
      payload: "1",
      labels: '{"org":"a"}',
      concurrencyKey: '"k"',
      idempotencyKey: '"i"',
      coalesce: '"active"',
    };
    const fields = Object.entries(good).filter(() => chance.happens(0.9)).map(([name, value]) =>
      `${JSON.stringify(chance.happens(0.05) ? this.#word() : name)}:${chance.happens(0.2) ? this.#value() : value}`
    );
    const text = `{${fields.join()}}`;
    return chance.happens(0.05) ? text.slice(0, chance.int(text.length)) : text;
  }

  #headers(): Record<string, string> {
    const names = ["content-type", "content-encoding", "content-length", "origin", "sec-fetch-site", "host", "range"];
    const values = ["", "identity", "gzip", "null", "same-origin", "cross-site", "http://localhost", "5", "1e9", "a,b"];
    if (this.#chance.happens(0.8)) return {};
    return { [this.#chance.pick(names)]: this.#chance.pick(values) };
  }
}

for (const seed of [1, 2, 3]) {
  forEachStore(
    `fetch() answers 4xx or does what was asked, whatever mischief ${seed} comes up with`,
    async (context) => {
      await using service = aGuardedService({}, context);
      const { runId, waitId } = await aWaitingRun(service);
      const { id } = await service.engine.trigger("echo", {}, { labels: { org: "a" } });
      const mischief = new Mischief(seed, [runId, waitId, id]);
      const statuses = new Set<number>();

      for (let n = 0; n < 400; n++) {
        const request = mischief.request();
        const response = await service.handler.fetch(aRequest(...request));
        const { status, headers } = response;
        statuses.add(status);
        if (headers.get("content-type") === "text/event-stream") await response.body!.cancel();
        else {
          const body = await response.json();
          assert.ok(status < 500, JSON.stringify({ n, request, body }));
          assertTidy({ status, headers, body });
        }
        if (n % 50 === 0) await service.engine.runUntilIdle();
      }

      assert.deepEqual(service.heard, []);
      for (const status of [200, 400, 404, 405]) assert.ok(statuses.has(status), `no ${status}`);
      await assertWell(service);
    },
  );
}

for (const name of MEMBERS) {
  Deno.test(`a filter by the label ${name} opens nothing that a scope has closed`, async () => {
    await using service = aGuardedService({ scopeRuns: () => ({ labels: { org: "a" } }) });
    await service.engine.trigger("echo", {}, { labels: JSON.parse(`{"org":"b","${name}":"x"}`) });
    await service.engine.trigger("echo", {}, { labels: JSON.parse(`{"org":"a","${name}":"x"}`) });

    const own = await provoke(service, "GET", `/runs?label.${name}=x`);
    const other = await provoke(service, "GET", `/runs?label.${name}=y`);
    const foreign = await provoke(service, "GET", `/runs?label.${name}=x&label.org=b`);

    assert.deepEqual([own.body.total, other.body.total, foreign.body.total], [1, 0, 0]);
  });
}
