import assert from "node:assert/strict";
import {
  ConflictError,
  type ErrorCode,
  HoldfastError,
  LeaseLostError,
  NotFoundError,
  RunCancelledError,
  RunFailedError,
  SerializationError,
  StepError,
  StoreError,
  TimeoutError,
  ValidationError,
  WaitExpiredError,
} from "../../src/model/error.ts";
import { jsonResponse, MethodNotAllowedError, notFound, refuse } from "../../src/http/response.ts";
import { routes } from "../../src/http/routes.ts";
import { defineJob } from "../../src/model/job/define_job.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aFailure } from "../support/fixtures.ts";
import { aRequest, aService, type Asked } from "../support/http/http.ts";
import { sightOf } from "../support/http/tenants.ts";

const HEADERS = {
  "content-type": "application/json",
  "cache-control": "no-store",
  "cross-origin-resource-policy": "same-origin",
  "x-content-type-options": "nosniff",
};

const SHOWN: [error: HoldfastError, status: number, code: ErrorCode][] = [
  [new ValidationError("no"), 400, "invalid_request"],
  [new ValidationError("no", { code: "invalid_input" }), 400, "invalid_input"],
  [new SerializationError("no", { cause: new TypeError("refused") }), 400, "invalid_input"],
  [new HoldfastError("forbidden", "no"), 403, "forbidden"],
  [new HoldfastError("cross_origin", "no"), 403, "cross_origin"],
  [new NotFoundError("no"), 404, "not_found"],
  [new HoldfastError("body_timeout", "no"), 408, "body_timeout"],
  [new ConflictError("no"), 409, "conflict"],
  [new ConflictError("no", { code: "key_in_use" }), 409, "key_in_use"],
  [new WaitExpiredError("no"), 410, "wait_expired"],
  [new HoldfastError("body_too_large", "no"), 413, "body_too_large"],
  [new HoldfastError("unsupported_encoding", "no"), 415, "unsupported_encoding"],
  [new HoldfastError("unknown_host", "no"), 421, "unknown_host"],
];

for (const [error, status, code] of SHOWN) {
  Deno.test(`refuse() answers ${status} to ${error.name} (${code}), with its message`, async () => {
    const { response, hidden } = refuse(error);

    assert.equal(response.status, status);
    const closing = status === 408 ? { connection: "close" } : {}; // RFC 9110, section 15.5.9
    assert.deepEqual(Object.fromEntries(response.headers), { ...HEADERS, ...closing });
    assert.deepEqual(await response.json(), { error: "no", code });
    assert.equal(hidden, null);
  });
}

const HIDDEN: unknown[] = [
  new Error("secret"),
  new TypeError("secret"),
  "secret",
  undefined,
  null,
  { code: "not_found", message: "secret" },
  new HoldfastError("internal", "secret"),
  new StoreError("secret", { code: "internal" }),
  new LeaseLostError({ runId: "secret", generation: 1 }),
  new StepError(aFailure({ message: "secret" }), { name: "secret", attempts: 1 }),
  new RunFailedError({
    runId: "secret",
    jobName: "secret",
    stepName: null,
    failure: aFailure({ message: "secret" }),
  }),
  new RunCancelledError("secret"),
  new TimeoutError("secret"),
  new HoldfastError("non_retryable", "secret"),
];

for (const thrown of HIDDEN) {
  Deno.test(`refuse() hides ${thrown instanceof Error ? thrown.name : JSON.stringify(thrown)} behind a 500`, async () => {
    const { response, hidden } = refuse(thrown);

    assert.equal(response.status, 500);
    assert.deepEqual(Object.fromEntries(response.headers), HEADERS);
    assert.deepEqual(await response.json(), { error: "Internal error", code: "internal" });
    assert.deepEqual(hidden, { error: thrown });
  });
}

Deno.test("refuse() answers 503 to a store that cannot answer, and hides why", async () => {
  const error = new StoreError('Cannot open the database "/secret/jobs.db"');

  const { response, hidden } = refuse(error);

  assert.equal(response.status, 503);
  assert.match(response.headers.get("retry-after")!, /^[1-9]\d*$/);
  assert.deepEqual(await response.json(), { error: "The service cannot answer now", code: "unavailable" });
  assert.deepEqual(hidden, { error });
});

Deno.test("refuse() answers 503 to what is said to be unavailable", async () => {
  const { response, hidden } = refuse(new HoldfastError("unavailable", "There are 10000 streams already"));

  assert.deepEqual([response.status, response.headers.has("retry-after"), hidden], [503, true, null]);
  assert.deepEqual(await response.json(), { error: "There are 10000 streams already", code: "unavailable" });
});

Deno.test("refuse() answers 429 to too many streams, and says when to come back", async () => {
  const { response, hidden } = refuse(new HoldfastError("too_many_streams", "no"));

  assert.deepEqual([response.status, response.headers.get("retry-after"), hidden], [429, "1", null]);
  assert.deepEqual(await response.json(), { error: "no", code: "too_many_streams" });
});

Deno.test("refuse() tells what a schema refused once: not in the text as well", async () => {
  const issue = { path: ["rows", 0, "n"], message: "must be a number" };
  const refusals = [
    new ValidationError("no", { code: "invalid_input", issues: [issue] }),
    new ValidationError("no", { code: "invalid_input", issues: [issue, issue] }),
    new ValidationError("no", { code: "invalid_input", issues: [issue], issuesLeftOut: 7 }),
  ];

  const bodies = await Promise.all(refusals.map((error) => refuse(error).response.json()));

  assert.deepEqual(bodies, [
    { error: "no: 1 issue", code: "invalid_input", issues: [issue] },
    { error: "no: 2 issues", code: "invalid_input", issues: [issue, issue] },
    { error: "no: 8 issues, of which 7 are left out", code: "invalid_input", issues: [issue], issuesLeftOut: 7 },
  ]);
});

Deno.test("refuse() tells which methods a path has", () => {
  const { response } = refuse(new MethodNotAllowedError(["GET", "DELETE"]));

  assert.deepEqual([response.status, response.headers.get("allow")], [405, "GET, DELETE"]);
});

Deno.test("refuse() passes on a Response", () => {
  const response = new Response(null, { status: 401 });

  assert.deepEqual(refuse(response), { response, hidden: null });
});

Deno.test("jsonResponse() sends JSON that nobody keeps or takes for something else", async () => {
  const response = jsonResponse([null]);

  assert.equal(response.status, 200);
  assert.deepEqual(Object.fromEntries(response.headers), HEADERS);
  assert.equal(await response.text(), "[null]");
});

Deno.test("fetch() answers 503 and tells onError while the store cannot answer", async () => {
  const heard: unknown[] = [];
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const error = new StoreError("The database is locked: /secret/jobs.db");
  store.findRuns = () => Promise.reject(error);
  store.enqueue = () => Promise.reject(error);
  await using service = aService({ onError: (error) => heard.push(error) }, { store, host });

  const answers = [
    await service.ask("GET", "/runs"),
    await service.ask("POST", "/trigger", { body: { jobName: "echo", input: {} } }),
  ];

  for (const { status, headers, body } of answers) {
    assert.deepEqual([status, headers.get("retry-after"), body.code], [503, "1", "unavailable"]);
    assert.doesNotMatch(JSON.stringify(body), /secret/);
  }
  assert.deepEqual(heard, [error, error]);
});

for (const [what, thrown] of Object.entries({ "an Error": new Error("secret"), "nothing": undefined })) {
  Deno.test(`fetch() answers 400 and tells onError if a schema throws ${what}`, async () => {
    const heard: unknown[] = [];
    const validate = () => {
      throw thrown;
    };
    const odd = defineJob({ name: "odd", input: { "~standard": { version: 1, vendor: "test", validate } }, run() {} });
    await using service = aService({ onError: (error) => heard.push(error) }, undefined, { odd });

    const { status, body } = await service.ask("POST", "/trigger", { body: { jobName: "odd", input: {} } });

    assert.deepEqual([status, body.code, heard.length], [400, "invalid_input", 1]);
    assert.doesNotMatch(JSON.stringify(body), /secret/);
    if (thrown !== undefined) assert.equal(heard[0], thrown);
  });
}

Deno.test("fetch() tells onError nothing of what clients do wrong", async () => {
  const heard: unknown[] = [];
  await using service = aService({ onError: (error) => heard.push(error) });

  await service.ask("GET", "/nowhere");
  await service.ask("GET", "/run");
  await service.ask("POST", "/trigger", { body: "{" });
  await service.ask("POST", "/trigger", { body: { jobName: "unknown", input: {} } });

  assert.deepEqual(heard, []);
});

Deno.test("fetch() answers every success and every refusal with the same headers", async () => {
  await using service = aService();
  const { id } = await service.engine.trigger("echo", {});

  const answers = [
    await service.ask("GET", `/run?runId=${id}`),
    await service.ask("GET", "/runs"),
    await service.ask("GET", "/nowhere"),
    await service.ask("POST", `/cancel?runId=${id}`),
    await service.ask("POST", `/cancel?runId=${id}`),
  ];

  for (const { headers } of answers) assert.deepEqual(Object.fromEntries(headers), HEADERS);
});

Deno.test("notFound() makes the very Response of an unknown run, a new one each time", async () => {
  await using service = aService();

  const unknown = await sightOf(await service.handler.fetch(aRequest("GET", "/run?runId=unknown")));

  assert.deepEqual(await sightOf(notFound()), unknown);
  assert.deepEqual(await sightOf(notFound()), unknown);
});

Deno.test("a run that a hook hides with notFound() cannot be told from an unknown one", async () => {
  const hide = () => {
    throw notFound();
  };
  await using service = aService({ auth: { authenticate: () => {}, onTrigger: () => {}, onRunAccess: hide } });
  const { id } = await service.engine.trigger("echo", {});

  for (const [method, path] of [["GET", "/run"], ["GET", "/subscribe"], ["POST", "/cancel"], ["DELETE", "/run"]]) {
    const views = [];
    for (const runId of [id, "unknown"]) {
      views.push(await sightOf(await service.handler.fetch(aRequest(method!, `${path}?runId=${runId}`))));
    }
    assert.deepEqual(views[0], views[1], path!);
  }
});

Deno.test("every Response of ours says that no page of another origin may embed it", async () => {
  const body = { jobName: "approval", input: {} };
  await using service = aService();
  const { body: { runId } } = await service.ask("POST", "/trigger", { body });
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(runId);
  const bodies: Record<string, Asked> = {
    trigger: { body },
    signal: { body: { signalId: "s", payload: 1 } },
  };
  const statuses = new Set<number>();

  for (const [name, { method, path }] of Object.entries(routes)) {
    for (const query of [`?runId=${runId}&waitId=${wait!.id}`, "?runId=unknown&waitId=unknown", "?limit=x"]) {
      const response = await service.handler.fetch(aRequest(method, path + query, bodies[name]));
      await response.body!.cancel();
      statuses.add(response.status);

      assert.equal(response.headers.get("cross-origin-resource-policy"), "same-origin", `${path}${query}`);
      assert.equal(response.headers.get("x-content-type-options"), "nosniff", `${path}${query}`);
    }
  }

  await service.engine.stop();
  const ended = await service.handler.fetch(aRequest("GET", "/runs/subscribe"));

  assert.deepEqual([...statuses].sort(), [200, 400, 403, 404, 409]); // 403: stacks without `showFailures`
  assert.equal(await ended.text(), "retry: 1000\n\n");
  assert.equal(ended.headers.get("cross-origin-resource-policy"), "same-origin");
});

Deno.test("a hook's Response is passed on as it is", async () => {
  const refusal = new Response("no", { status: 403 });
  await using service = aService({
    auth: {
      authenticate: () => {
        throw refusal;
      },
    },
  });

  const response = await service.handler.fetch(aRequest("GET", "/runs"));

  assert.equal(response, refusal);
  assert.deepEqual([...response.headers.keys()], ["content-type"]);
});
