import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/http";
import { z } from "zod";
import type { HandlerAuth } from "../../../src/http/access/auth_hooks.ts";
import { createHandler } from "../../../src/http/handler.ts";
import { mcp, type McpOptions } from "../../../src/http/mcp/mcp.ts";
import { notFound } from "../../../src/http/response.ts";
import type { Wait } from "../../../src/model/wait.ts";
import { signedLinks } from "../../../src/links/signed_links.ts";
import { createEngine, MemoryStore } from "@holdfast/jobs";
import { internalsOf } from "../../../src/engine/engine_internals.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { rpc, type RpcAnswer, type RpcOptions } from "../../mcp/stateless_client.ts";
import { aService } from "../../support/http/http.ts";
import { CAREFUL, type Org } from "../../support/http/tenant_hooks.ts";
import { Chance } from "../../support/chance.ts";

const sum = defineJob({
  name: "sum",
  input: z.object({ numbers: z.array(z.number()) }),
  output: z.object({ sum: z.number() }),
  run: (step, { numbers }) => step.run("add", () => ({ sum: numbers.reduce((one, other) => one + other, 0) })),
});
const broken = defineJob({
  name: "broken",
  input: z.object({}),
  async run(step) {
    await step.run("begin", () => 1);
    await step.run("break", () => {
      throw new Error("It is broken");
    });
  },
});
const refund = defineJob({
  name: "refund",
  input: z.object({ order: z.string() }),
  async run(step, { order }) {
    const answer = await step.wait("approve", {
      timeout: 60_000,
      metadata: { message: `Refund ${order}?` },
      schema: z.object({ approved: z.boolean(), reason: z.enum(["late", "broken"]).optional() }),
    });
    return answer.outcome === "signal" ? answer.payload : "nobody answered";
  },
});
const choose = defineJob({
  name: "choose",
  input: z.object({}),
  async run(step) {
    const actions = [{ label: "Yes", payload: { yes: true } }, { label: "No", payload: { yes: false } }];
    const answer = await step.wait("choice", { metadata: { actions } });
    return answer.outcome === "signal" ? answer.payload : null;
  },
});
const nested = defineJob({
  name: "nested",
  input: z.object({}),
  run: (step) => step.wait("deep", { schema: z.object({ inner: z.object({ a: z.string() }) }) }),
});
const words = defineJob({
  name: "words",
  input: z.object({}),
  async run(step) {
    step.progress(1, 3, "one of three");
    await step.sleep("a while", 10_000);
    return "done";
  },
});
const gone = defineJob({ name: "gone", input: z.object({}), run: () => null });
const JOBS = { sum, broken, refund, choose, nested, words };
const tools = Object.values(JOBS).map((job) => ({ job, description: `Does ${job.name}` }));

type Auth = HandlerAuth<Org>;

/** A service with tools, and a client of the version without sessions. */
function aServer(options: Partial<McpOptions> = {}, auth?: Auth) {
  const service = aService(
    { mcp: mcp({ name: "test", tools, ...options }), ...(auth === undefined ? {} : { auth }) },
    undefined,
    JOBS,
  );
  const { engine, handler, host } = service;
  const ask = async (
    method: string,
    params?: Record<string, unknown>,
    options?: RpcOptions,
  ): Promise<RpcAnswer> => await rpc(handler.fetch, "http://localhost/mcp", method, params, options);
  const call = async (name: string, args: object = {}, options?: RpcOptions) =>
    await ask("tools/call", { name, arguments: args }, options);
  const get = async (taskId: string, options?: RpcOptions) => (await ask("tasks/get", { taskId }, options)).result;
  return { service, engine, handler, host, ask, call, get };
}

/** Calls a tool, and executes what it has triggered. */
async function start({ call, engine }: ReturnType<typeof aServer>, name: string, args: object = {}): Promise<string> {
  const { result } = await call(name, args);
  await engine.runUntilIdle();
  return result.taskId;
}

Deno.test("POST /mcp lists tools in their order, with the schemas of their jobs", async () => {
  const server = aServer({
    tools: [{ job: sum, name: "add_up", title: "Add up", description: "Adds numbers" }, ...tools],
  });
  await using _service = server.service;

  const { status, result } = await server.ask("tools/list");

  assert.equal(status, 200);
  assert.deepEqual(result.tools.map(({ name }: { name: string }) => name), ["add_up", ...Object.keys(JOBS)]);
  const { inputSchema, outputSchema, ...rest } = result.tools[0];
  assert.deepEqual(rest, { name: "add_up", title: "Add up", description: "Adds numbers" });
  assert.equal(inputSchema.properties.numbers.type, "array");
  assert.equal(outputSchema.properties.sum.type, "number");
});

Deno.test("tools/call makes a task of a run, after its commit, and tasks/get has its result", async () => {
  const server = aServer();
  await using _service = server.service;

  const { result: task } = await server.call("sum", { numbers: [1, 2] });
  const before = await server.get(task.taskId);
  await server.engine.runUntilIdle();
  const after = await server.get(task.taskId);

  assert.deepEqual([task.resultType, task.status, task.pollIntervalMs, task.ttlMs], ["task", "working", 1_000, null]);
  assert.equal((await server.engine.getRun(task.taskId))?.jobName, "sum");
  assert.deepEqual([before.resultType, before.status], ["complete", "working"]);
  assert.deepEqual([after.status, after.result], ["completed", {
    content: [{ type: "text", text: '{"sum":3}' }],
    structuredContent: { sum: 3 },
  }]);
});

Deno.test("a task that has ended says how long it is kept, if its run is deleted some time", async () => {
  await using service = aService({}, undefined, {});
  const { host } = service;
  await using engine = createEngine({
    store: new MemoryStore({ host }),
    host,
    jobs: JOBS,
    retention: { completed: "1h", failed: Infinity },
  });
  const { fetch } = createHandler(engine, { host, mcp: mcp({ name: "test", tools }) });
  const ask = async (method: string, params: Record<string, unknown>) =>
    (await rpc(fetch, "http://localhost/mcp", method, params)).result;
  const asked = await ask("tools/call", { name: "sum", arguments: { numbers: [1] } });
  const failing = await ask("tools/call", { name: "broken", arguments: {} });
  host.advance(2_000);
  await engine.runUntilIdle();

  const [ended, failed] = [await ask("tasks/get", asked), await ask("tasks/get", failing)];

  assert.deepEqual([asked.ttlMs, ended.status, ended.ttlMs], [null, "completed", 3_602_000]);
  assert.equal(failed.ttlMs, null);
});

Deno.test("tasks/get shows the progress of a run, that it is held, and how it ended", async () => {
  const server = aServer();
  await using _service = server.service;

  const failed = await server.get(await start(server, "broken"));
  const waiting = await server.get(await start(server, "words"));
  const late = await server.engine.trigger("words", {}, { startAt: "2100-01-01", startWithin: 1_000 });
  await server.engine.cancel(late.id);

  assert.deepEqual([failed.status, failed.result], ["completed", {
    content: [{ type: "text", text: "It is broken" }],
    isError: true,
  }]);
  assert.deepEqual([waiting.status, waiting.statusMessage], ["working", "one of three"]);
  assert.equal((await server.get(late.id)).status, "cancelled");
});

Deno.test("a run that its deadline failed is a task that failed", async () => {
  const server = aServer();
  await using _service = server.service;
  const { id } = await server.engine.trigger("words", {}, { finishWithin: 1_000 });
  await server.engine.runUntilIdle();
  server.host.advance(20_000);
  await server.engine.runUntilIdle();

  const task = await server.get(id);

  assert.equal(task.status, "failed");
  assert.equal(task.error.code, -32603);
  assert.equal(task.result, undefined);
});

Deno.test("input that does not fit is a result that the model can mend, and makes no run", async () => {
  const server = aServer();
  await using _service = server.service;

  const { status, result } = await server.call("sum", { numbers: "no" });

  assert.equal(status, 200);
  assert.equal(result.isError, true);
  assert.match(result.content[0].text, /numbers/);
  assert.equal((await server.engine.getRuns()).total, 0);
});

Deno.test("a wait is a question with the form of its schema; its answer resumes the run", async () => {
  const server = aServer();
  await using _service = server.service;
  const taskId = await start(server, "refund", { order: "o-1" });

  const asked = await server.get(taskId);
  const refused = await server.ask("tasks/update", {
    taskId,
    inputResponses: { approve: { action: "accept", content: { approved: "maybe" } } },
  });
  const inputResponses = {
    approve: { action: "accept", content: { approved: true, reason: "late" } },
    other: { ignored: true },
  };
  const accepted = await server.ask("tasks/update", { taskId, inputResponses });
  const repeated = await server.ask("tasks/update", { taskId, inputResponses });
  await server.engine.runUntilIdle();
  const after = await server.get(taskId);

  assert.deepEqual([asked.status, asked.pollIntervalMs], ["input_required", 5_000]);
  assert.deepEqual(asked.inputRequests.approve, {
    method: "elicitation/create",
    params: {
      mode: "form",
      message: "Refund o-1?",
      requestedSchema: {
        type: "object",
        properties: { approved: { type: "boolean" }, reason: { type: "string", enum: ["late", "broken"] } },
        required: ["approved"],
      },
    },
  });
  assert.deepEqual([refused.error.code, refused.error.data.issues[0].path], [-32602, ["approved"]]);
  assert.deepEqual([accepted.result.resultType, repeated.result.resultType], ["complete", "complete"]);
  assert.deepEqual(after.result.structuredContent, { approved: true, reason: "late" });
  const [wait] = await server.engine.getWaits(taskId);
  assert.equal(wait!.signalId, "mcp/approve");
});

Deno.test("actions are a choice, and decline and cancel change nothing", async () => {
  const server = aServer();
  await using _service = server.service;
  const taskId = await start(server, "choose");
  const answer = (response: unknown) => server.ask("tasks/update", { taskId, inputResponses: { choice: response } });

  const asked = await server.get(taskId);
  await answer({ action: "decline" });
  await answer({ action: "cancel" });
  const wrong = await answer({ action: "accept", content: { answer: "Maybe" } });
  const stillOpen = await server.get(taskId);
  await answer({ action: "accept", content: { answer: "No" } });
  await server.engine.runUntilIdle();

  assert.deepEqual(asked.inputRequests.choice.params.requestedSchema.properties, {
    answer: { type: "string", enum: ["Yes", "No"] },
  });
  assert.equal(wrong.error.code, -32602);
  assert.equal(stillOpen.status, "input_required");
  assert.deepEqual((await server.get(taskId)).result.structuredContent, { yes: false });
});

Deno.test("a question without a form, and one for a client without forms, is left out: the task is working", async () => {
  const server = aServer();
  await using _service = server.service;
  const withoutForms = { capabilities: { extensions: { "io.modelcontextprotocol/tasks": {} } } };

  const deep = await server.get(await start(server, "nested"));
  const flat = await server.get(await start(server, "refund", { order: "o-1" }), withoutForms);

  assert.deepEqual([deep.status, deep.inputRequests], ["working", undefined]);
  assert.deepEqual([flat.status, flat.inputRequests], ["working", undefined]);
});

Deno.test("a question without a form is the address of a page, for a client that takes addresses, if the handler has links", async () => {
  const url = "http://localhost";
  const links = signedLinks({ keys: ["a key of at least thirty-two characters"], url });
  const both = { extensions: { "io.modelcontextprotocol/tasks": {} }, elicitation: { form: {}, url: {} } };
  const addresses = { extensions: { "io.modelcontextprotocol/tasks": {} }, elicitation: { url: {} } };
  await using service = aService({ mcp: mcp({ name: "test", tools }), links }, undefined, JOBS);
  const ask = async (method: string, params: Record<string, unknown>, capabilities: object) =>
    (await rpc(service.handler.fetch, `${url}/mcp`, method, params, { capabilities })).result;
  const startOne = async (name: string, args: object) => {
    const { taskId } = await ask("tools/call", { name, arguments: args }, both);
    await service.engine.runUntilIdle();
    return taskId as string;
  };
  const taskId = await startOne("refund", { order: "o-1" });

  const asForm = await ask("tasks/get", { taskId }, both);
  const asAddress = await ask("tasks/get", { taskId }, addresses);
  const { params } = asAddress.inputRequests.approve;
  await ask("tasks/update", { taskId, inputResponses: { approve: { action: "accept" } } }, addresses);
  const page = await service.handler.fetch(new Request(params.url));
  const nestedId = await startOne("nested", {});

  assert.equal(asForm.inputRequests.approve.params.mode, "form");
  assert.deepEqual([params.mode, params.message], ["url", "Refund o-1?"]);
  assert.match(await page.text(), /Refund o-1\?/);
  assert.equal((await service.engine.getWaits(taskId))[0]!.status, "pending"); // the page takes the answer
  assert.equal((await ask("tasks/get", { taskId: nestedId }, both)).status, "working"); // the page has no form either
});

Deno.test("tasks/cancel cancels a run, and acknowledges one that has ended", async () => {
  const server = aServer();
  await using _service = server.service;
  const taskId = await start(server, "words");

  const first = await server.ask("tasks/cancel", { taskId });
  const second = await server.ask("tasks/cancel", { taskId });

  assert.deepEqual(first.result, second.result);
  assert.equal((await server.engine.getRun(taskId))?.status, "cancelled");
});

Deno.test("options of a tool give labels and keys, and an idempotency key makes repeated calls one run", async () => {
  const seen: unknown[] = [];
  const server = aServer({
    tools: [{
      job: refund,
      description: "Refunds",
      options: (input, context) => {
        seen.push([input, context]);
        const { order } = input as { order: string };
        return { labels: { org: "a" }, idempotencyKey: `refund/${order}`, priority: 5 };
      },
    }],
  }, CAREFUL);
  await using _service = server.service;
  const asA = { headers: { "x-org": "a" } };

  const first = await server.call("refund", { order: "o-1" }, asA);
  const second = await server.call("refund", { order: "o-1" }, asA);

  assert.equal(first.result.taskId, second.result.taskId);
  assert.deepEqual(seen[0], [{ order: "o-1" }, { org: "a" }]);
  const run = await server.engine.getRun(first.result.taskId);
  assert.deepEqual([run!.labels, run!.priority], [{ org: "a" }, 5]);
});

Deno.test("options of a tool are called with input that fits; a key or a label that cannot be made of it is the tool's answer", async () => {
  const asKey = {
    job: refund,
    description: "Refunds",
    options: (input: unknown) => {
      const order = (input as { order: string }).order.trim();
      return { idempotencyKey: `refund/${order}` };
    },
  };
  const asLabel = {
    job: refund,
    name: "labelled",
    description: "Refunds",
    options: (input: unknown) => ({
      labels: { order: (input as { order: string }).order },
    }),
  };
  const asSlot = {
    job: refund,
    name: "keyed",
    description: "Refunds",
    options: (input: unknown) => ({ idempotencyKey: (input as { order: string }).order }),
  };
  const server = aServer({ tools: [asKey, asLabel, asSlot] });
  await using _service = server.service;
  const answers: [tool: string, args: object, said: RegExp][] = [
    ["refund", {}, /^The input of job "refund" does not fit its schema: order: /],
    ["refund", { order: 17 }, /^The input of job "refund" does not fit its schema: order: /],
    ["refund", { order: "x".repeat(300) }, /idempotencyKey: must be a string of 1 to 255 characters/],
    ["refund", { order: "o\n17" }, /idempotencyKey: .*without control characters/],
    ["keyed", { order: "schedule/a" }, /idempotencyKey must not begin with/],
    ["labelled", { order: "x".repeat(300) }, /The value of label "order" must be a string of up to 255 characters/],
  ];

  for (const [tool, args, said] of answers) {
    const { status, result } = await server.call(tool, args);

    assert.deepEqual([status, result?.isError], [200, true], `${tool} ${JSON.stringify(args).slice(0, 40)}`);
    assert.match(result.content[0].text, said);
  }
  assert.equal((await server.engine.getRuns()).total, 0);
});

Deno.test("options of a tool that cannot be right are a 500 that is reported, and not the model's fault", async () => {
  const errors: unknown[] = [];
  await using service = aService(
    {
      mcp: mcp({
        name: "test",
        tools: [{ job: refund, description: "Refunds", options: () => ({ labels: { "": "" } }) }],
      }),
      onError: (error) => void errors.push(error),
    },
    undefined,
    JOBS,
  );

  const { status, text } = await rpc(service.handler.fetch, "http://localhost/mcp", "tools/call", {
    name: "refund",
    arguments: { order: "o-1" },
  });

  assert.equal(status, 500);
  assert.deepEqual(JSON.parse(text), { error: "Internal error", code: "internal" });
  assert.equal(errors.length, 1);
});

Deno.test("a call passes the hooks of its route, and a task and a run of another tenant are answered as those that do not exist", async () => {
  const options = (_input: unknown, { org }: Org) => ({ labels: { org } });
  const server = aServer({ tools: tools.map((tool) => ({ ...tool, options })), operate: true }, {
    ...CAREFUL,
    onRunAccess: ({ org }, { labels }) => {
      if (labels.org !== org) throw notFound();
    },
    onTrigger: (context, trigger) => {
      if (context.org === "guest") throw new Response("no", { status: 403 });
      return CAREFUL.onTrigger!(context, trigger);
    },
  });
  await using _service = server.service;
  const [asA, asB, asGuest] = ["a", "b", "guest"].map((org) => ({ headers: { "x-org": org } }));
  const { result: { taskId } } = await server.call("refund", { order: "o-1" }, asA);
  await server.engine.runUntilIdle();
  const unknown = "01b8dac5-b400-7001-8000-0000000000ff";

  const refused = await server.call("sum", { numbers: [] }, asGuest);
  for (const method of ["tasks/get", "tasks/cancel", "tasks/update"]) {
    const params = (taskId: string) => ({ taskId, inputResponses: {} });
    const ofOther = await server.ask(method, params(taskId), asB);
    const ofNobody = await server.ask(method, params(unknown), asB);
    assert.deepEqual([ofOther.status, ofOther.text], [ofNobody.status, ofNobody.text]);
    assert.equal(ofOther.error.code, -32602);
  }
  const [{ id: waitId }] = await server.engine.getWaits(taskId) as [Wait];
  const asked: [name: string, argumentsFor: (runId: string) => object][] = [
    ["list_runs", (before) => ({ before })],
    ["get_run", (runId) => ({ runId })],
    ["explain_run", (runId) => ({ runId })],
    ["retry_run", (runId) => ({ runId })],
    ["cancel_run", (runId) => ({ runId })],
    ["answer_wait", (runId) => ({ runId, waitId, payload: { approved: true } })],
  ];
  for (const [name, argumentsFor] of asked) {
    const ofOther = await server.call(name, argumentsFor(taskId), asB);
    const ofNobody = await server.call(name, argumentsFor(unknown), asB);
    assert.deepEqual([ofOther.status, ofOther.result], [ofNobody.status, ofNobody.result], name);
    assert.equal(ofOther.result.isError, true);
  }
  const listed = await server.call("list_runs", {}, asB);

  assert.deepEqual([refused.status, refused.text], [403, "no"]);
  assert.equal((await server.get(taskId, asA)).status, "input_required");
  assert.deepEqual(listed.result.structuredContent.runs, []);
});

Deno.test("who acts is recorded with what MCP does: the run, the answer and the cancel", async () => {
  const actor = ({ org }: Org) => `user-of-${org}`;
  const server = aServer({}, { authenticate: () => ({ org: "a" }), onRunAccess: () => {}, actor });
  await using _service = server.service;
  const answered = await start(server, "refund", { order: "o-1" });
  const cancelled = await start(server, "words");

  const inputResponses = { approve: { action: "accept", content: { approved: true } } };
  await server.ask("tasks/update", { taskId: answered, inputResponses });
  await server.ask("tasks/cancel", { taskId: cancelled });

  const [wait] = await server.engine.getWaits(answered);
  const run = await server.engine.getRun(cancelled);
  assert.deepEqual([wait!.signalledBy, run!.triggeredBy, run!.cancelledBy], Array(3).fill("user-of-a"));
});

Deno.test("a tool does not say which jobs there are to whoever names one that there is not", async () => {
  const server = aServer({ operate: true });
  await using _service = server.service;
  const other = createEngine({ store: internalsOf(server.engine).store, jobs: { gone }, logger: null });
  const { id: runId } = await other.trigger("gone", {});
  await other.runUntilIdle();

  const { result } = await server.call("retry_run", { runId });

  assert.deepEqual(result.content, [{ type: "text", text: 'There is no job "gone"' }]);
});

Deno.test("runs of other jobs are no tasks", async () => {
  const server = aServer({ tools: [{ job: sum, description: "Adds" }] });
  await using _service = server.service;
  const { id } = await server.engine.trigger("words", {});

  const { error } = await server.ask("tasks/get", { taskId: id });

  assert.deepEqual([error.code, error.message], [-32602, "There is no such task"]);
});

Deno.test("operate: true adds seven tools, which do what their routes do", async () => {
  const server = aServer({ operate: true });
  await using _service = server.service;
  const runId = await start(server, "refund", { order: "o-1" });
  const failedId = await start(server, "broken");
  const [wait] = await server.engine.getWaits(runId);
  const content = async (name: string, args: object) => (await server.call(name, args)).result;

  const { result: { tools } } = await server.ask("tools/list");
  const listed = await content("list_runs", { status: "failed", limit: 5 });
  const shown = await content("get_run", { runId });
  const explained = await content("explain_run", { runId });
  const failures = await content("list_failures", {});
  const retried = await content("retry_run", { runId: failedId });
  const wrong = await content("answer_wait", { runId, waitId: wait!.id, payload: { approved: "maybe" } });
  const answered = await content("answer_wait", { runId, waitId: wait!.id, payload: { approved: true } });
  const cancelled = await content("cancel_run", { runId: "nobody" });
  const unknown = await content("get_run", { runId, stack: true });

  assert.deepEqual(tools.slice(-7).map(({ name }: { name: string }) => name), [
    "list_runs",
    "get_run",
    "explain_run",
    "list_failures",
    "retry_run",
    "cancel_run",
    "answer_wait",
  ]);
  assert.deepEqual(tools.at(-2).annotations, { readOnlyHint: false, destructiveHint: true });
  assert.deepEqual(listed.structuredContent.runs.map(({ id }: { id: string }) => id), [failedId]);
  assert.equal(shown.structuredContent.status, "waiting");
  assert.ok(JSON.stringify(explained.structuredContent).includes(wait!.id), explained.content[0].text);
  assert.equal(failures.structuredContent.groups[0].error, "It is broken");
  assert.notEqual(retried.structuredContent.runId, failedId);
  assert.deepEqual([wrong.isError, answered.isError], [true, undefined]);
  assert.match(wrong.content[0].text, /approved/);
  assert.equal((await server.engine.getWait(wait!.id))?.status, "resolved");
  assert.equal(cancelled.isError, true);
  assert.match(unknown.content[0].text, /no parameter "stack"/);
});

Deno.test("retry_run keeps completed steps, also if a model sends null for what it leaves out", async () => {
  const server = aServer({ operate: true });
  await using _service = server.service;
  const runId = await start(server, "broken");

  const { result } = await server.call("retry_run", { runId, from: null });

  const steps = await server.engine.getSteps(result.structuredContent.runId);
  assert.deepEqual(steps.map(({ name }) => name), ["begin"]);
});

const WRONG: readonly [tool: string, args: object, message: RegExp][] = [
  ["list_runs", { status: "broken" }, /status/],
  ["list_runs", { status: ["failed"] }, /The parameter status must be a string or a number/],
  ["list_runs", { limit: 5_000 }, /limit/],
  ["list_runs", { limit: 1e21 }, /limit/],
  ["list_failures", { since: "yesterday" }, /since/],
  ["get_run", { runId: null }, /The parameter runId is missing/],
  ["get_run", { runId: { id: 1 } }, /The parameter runId must be a string or a number/],
  ["retry_run", { runId: "x", from: "the middle" }, /from/],
  ["answer_wait", { runId: "x", waitId: ["y"], payload: 1 }, /The parameter waitId must be/],
];
for (const [tool, args, message] of WRONG) {
  Deno.test(`${tool} says what is wrong with ${JSON.stringify(args)}, so that the model can mend it`, async () => {
    const server = aServer({ operate: true });
    await using _service = server.service;

    const { status, result } = await server.call(tool, args);

    assert.deepEqual([status, result?.isError], [200, true]);
    assert.match(result.content[0].text, message);
  });
}

/** A client of the SDK, which begins with a handshake. */
async function connect(server: ReturnType<typeof aServer>): Promise<Client> {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(
    new StreamableHTTPClientTransport(new URL("http://localhost/mcp"), {
      fetch: (url: string | URL, init?: RequestInit) => server.handler.fetch(new Request(url, init)),
    }),
  );
  return client;
}

Deno.test("the client of the SDK lists and calls tools after its handshake, and awaits the end of a run", async () => {
  const server = aServer({ instructions: "Add numbers with sum." });
  await using _service = server.service;
  const client = await connect(server);
  server.engine.on("run:trigger", () => void server.engine.runUntilIdle());

  const { tools } = await client.listTools();
  const result = await client.callTool({ name: "sum", arguments: { numbers: [4, 5] } });
  const wrong = await client.callTool({ name: "sum", arguments: {} });
  await client.ping();
  const unknown = client.callTool({ name: "nothing", arguments: {} });

  assert.equal(tools.length, Object.keys(JOBS).length);
  assert.deepEqual(result.structuredContent, { sum: 9 });
  assert.equal(wrong.isError, true);
  await assert.rejects(unknown, /There is no tool "nothing"/);
  assert.match(client.getInstructions()!, /^Add numbers with sum\.\n\n.*data/);
  await client.close();
});

Deno.test("a run that takes longer than callTimeout goes on, and its id is the result", async () => {
  const server = aServer({ callTimeout: "5s" });
  await using _service = server.service;
  const client = await connect(server);
  server.engine.on("run:waiting", () => void server.host.advance(6_000));

  const calling = client.callTool({ name: "words", arguments: {} });
  server.engine.on("run:trigger", () => void server.engine.runUntilIdle());
  const result = await calling;

  assert.equal(result.isError, undefined);
  assert.match((result.content as { text: string }[])[0]!.text, /^It goes on as run [0-9a-f-]{36}, which is waiting/);
  await client.close();
});

Deno.test("a call that waits is answered when the engine stops, so that its server can shut down", async () => {
  const server = aServer();
  await using _service = server.service;
  server.engine.on("run:trigger", () => void server.engine.runUntilIdle());
  server.engine.on("run:waiting", () => void server.engine.stop());

  const { body } = await server.service.ask("POST", "/mcp", {
    body: { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "words", arguments: {} } },
  });

  assert.match(body.result.content[0].text, /^It goes on as run [0-9a-f-]{36}, which is waiting/);
});

Deno.test("that a run goes on is an error only where the tool promises a structure", async () => {
  const jobs = {
    text: defineJob({ name: "text", input: z.object({}), output: z.string(), run: () => "done" }),
    structure: defineJob({
      name: "structure",
      input: z.object({}),
      output: z.object({ a: z.string() }),
      run: () => ({ a: "done" }),
    }),
  };
  const tools = Object.values(jobs).map((job) => ({ job, description: "Goes on", task: "never" as const }));
  await using service = aService({ mcp: mcp({ name: "test", tools, callTimeout: 0 }) }, undefined, jobs);

  const errors = await Promise.all(
    Object.keys(jobs).map(async (name) => {
      const { result } = await rpc(service.handler.fetch, "http://localhost/mcp", "tools/call", {
        name,
        arguments: {},
      });
      assert.match(result.content[0].text, /^It goes on as run/);
      return result.isError;
    }),
  );

  assert.deepEqual(errors, [undefined, true]);
});

const VERSION = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
const REFUSED: [
  what: string,
  request: [method: string, params?: Record<string, unknown>, options?: RpcOptions],
  status: number,
  code: number,
][] = [
  ["an unknown method", ["tools/delete"], 404, -32601],
  ["a method of sessions", ["initialize"], 404, -32601],
  ["tasks/list", ["tasks/list"], 404, -32601],
  ["tasks/result", ["tasks/result", { taskId: "a" }], 404, -32601],
  [
    "a method that differs from its header",
    ["tools/list", {}, { headers: { "mcp-method": "tools/call" } }],
    400,
    -32020,
  ],
  [
    "a name that differs from its header",
    ["tools/call", { name: "sum" }, { headers: { "mcp-name": "refund" } }],
    400,
    -32020,
  ],
  ["a request without a header", ["tools/list", {}, { headers: { "mcp-method": null } }], 400, -32020],
  [
    "a version that is not in the header",
    ["tools/list", {}, { headers: { "mcp-protocol-version": null } }],
    400,
    -32020,
  ],
  [
    "an unknown version",
    ["tools/list", {}, {
      headers: { "mcp-protocol-version": "2030-01-01" },
      meta: { [VERSION]: "2030-01-01", [CAPABILITIES]: {} },
    }],
    400,
    -32022,
  ],
  ["a request without _meta", ["tools/list", {}, { meta: null }], 400, -32602],
  ["a request without capabilities", ["tools/list", {}, { meta: { [VERSION]: "2026-07-28" } }], 400, -32602],
  ["a tool that does not exist", ["tools/call", { name: "nothing" }], 400, -32602],
  ["arguments that are no object", ["tools/call", { name: "sum", arguments: [1] }], 400, -32602],
  ["a task that does not exist", ["tasks/get", { taskId: "nobody" }], 400, -32602],
  ["answers that are no object", ["tasks/update", { taskId: "nobody", inputResponses: [] }], 400, -32602],
  ["tasks of a client without them", ["tasks/get", { taskId: "a" }, { capabilities: {} }], 400, -32021],
];

for (const [what, request, status, code] of REFUSED) {
  Deno.test(`POST /mcp refuses ${what} with ${code}`, async () => {
    const server = aServer();
    await using _service = server.service;

    const answer = await server.ask(...request);

    assert.deepEqual([answer.status, answer.error?.code], [status, code]);
  });
}

Deno.test("a name in a header may be in base64", async () => {
  const server = aServer();
  await using _service = server.service;

  const { status } = await server.call("sum", { numbers: [] }, {
    headers: { "mcp-name": `=?base64?${btoa("sum")}?=` },
  });

  assert.equal(status, 200);
});

Deno.test("POST /mcp refuses batches, null as an id and what is no JSON-RPC; it accepts notifications, and no other method", async () => {
  const server = aServer();
  await using _service = server.service;
  const post = async (body: string, method = "POST") => {
    const response = await server.handler.fetch(
      new Request("http://localhost/mcp", { method, ...(method === "POST" ? { body } : {}) }),
    );
    const text = await response.text();
    return [response.status, text === "" ? null : JSON.parse(text).error?.code ?? JSON.parse(text).code];
  };

  assert.deepEqual(await post("no"), [400, -32700]);
  assert.deepEqual(await post("[]"), [400, -32600]);
  assert.deepEqual(await post('"text"'), [400, -32600]);
  assert.deepEqual(await post('{"jsonrpc":"2.0","id":null,"method":"ping"}'), [400, -32600]);
  assert.deepEqual(await post('{"id":1,"method":"ping"}'), [400, -32600]);
  assert.deepEqual(await post('{"jsonrpc":"2.0","method":"notifications/initialized"}'), [202, null]);
  assert.deepEqual(await post("", "GET"), [405, "method_not_allowed"]);
  assert.deepEqual(await post("", "DELETE"), [405, "method_not_allowed"]);
});

Deno.test("POST /mcp answers everything with the protective headers, notifications too", async () => {
  const server = aServer();
  await using _service = server.service;

  for (const body of ["no", '{"jsonrpc":"2.0","id":1,"method":"ping"}', '{"jsonrpc":"2.0","method":"ping"}']) {
    const { headers } = await server.handler.fetch(new Request("http://localhost/mcp", { method: "POST", body }));
    const sent = ["cross-origin-resource-policy", "x-content-type-options"].map((name) => headers.get(name));
    assert.deepEqual(sent, ["same-origin", "nosniff"], body);
  }
});

Deno.test("10,000 random requests never lead to a 5xx", async () => {
  const errors: unknown[] = [];
  const service = aService(
    {
      mcp: mcp({ name: "test", tools, operate: true, callTimeout: 0 }),
      onError: (error) => void errors.push(error),
    },
    undefined,
    JOBS,
  );
  await using _service = service;
  const chance = new Chance(41_041);
  const { id } = await service.engine.trigger("refund", { order: "o-1" });
  await service.engine.runUntilIdle();
  const [wait] = await service.engine.getWaits(id);
  const scalars: unknown[] = [
    null,
    true,
    0,
    -1,
    1e308,
    "",
    "a",
    "sum",
    "refund",
    id,
    wait!.id,
    "__proto__",
    "\u0000",
    "\ud800",
  ];
  const value = (depth: number): unknown => {
    const kind = depth === 0 ? 0 : chance.int(4);
    if (kind < 2) return chance.pick(scalars);
    if (kind === 2) return Array.from({ length: chance.int(3) }, () => value(depth - 1));
    const keys = [
      "name",
      "arguments",
      "taskId",
      "inputResponses",
      "approve",
      "action",
      "content",
      "runId",
      "waitId",
      "payload",
      "_meta",
      "numbers",
      "order",
      "limit",
      "since",
      "status",
      "from",
      "__proto__",
    ];
    return Object.fromEntries(Array.from({ length: chance.int(5) }, () => [chance.pick(keys), value(depth - 1)]));
  };
  const methods = [
    "tools/call",
    "tools/list",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "server/discover",
    "initialize",
    "ping",
    "",
    "__proto__",
  ];
  const names = [
    ...Object.keys(JOBS),
    "list_runs",
    "get_run",
    "explain_run",
    "list_failures",
    "retry_run",
    "cancel_run",
    "answer_wait",
  ];
  const statuses = new Set<number>();
  for (let round = 0; round < 10_000; round++) {
    const method = chance.pick(methods);
    const params = value(3);
    const known = typeof params === "object" && params !== null && !Array.isArray(params)
      ? params as Record<string, unknown>
      : {};
    if (chance.happens(0.6)) Object.assign(known, { name: chance.pick(names), taskId: chance.pick([id, "nobody"]) });
    if (chance.happens(0.3)) known.inputResponses = { approve: value(3) };
    const isStateless = chance.happens(0.6);
    const meta = {
      [VERSION]: "2026-07-28",
      [CAPABILITIES]: chance.pick([{}, { elicitation: value(1), extensions: value(1) }, {
        extensions: { "io.modelcontextprotocol/tasks": {} },
        elicitation: {},
      }]),
    };
    const message = {
      jsonrpc: "2.0",
      id: chance.pick([round, "a", null, undefined]),
      method,
      params: isStateless ? { ...known, _meta: meta } : params,
    };
    const headers: Record<string, string> = isStateless
      ? { "mcp-protocol-version": "2026-07-28", "mcp-method": method }
      : {};
    const named = method === "tools/call" ? known.name : known.taskId;
    if (isStateless && typeof named === "string" && /^[\w/-]*$/.test(named)) headers["mcp-name"] = named;
    const body = chance.happens(0.05) ? JSON.stringify(message).slice(0, chance.int(40)) : JSON.stringify(message);
    const response = await service.handler.fetch(
      new Request("http://localhost/mcp", { method: "POST", headers, body }),
    );
    statuses.add(response.status);
    await response.body?.cancel();
  }

  assert.deepEqual(errors, []);
  assert.deepEqual([...statuses].filter((status) => status >= 500), []);
  assert.ok([200, 202, 400, 404].every((status) => statuses.has(status)), [...statuses].join());
});

Deno.test("mcp() refuses what cannot be served", async () => {
  const one = { job: sum, description: "Adds" };
  const array = defineJob({ name: "array", input: z.array(z.number()), run: () => {} });
  const cases: [McpOptions, RegExp][] = [
    [{ name: "", tools: [] }, /needs a name/],
    [{ name: "a", tools: [{ ...one, name: "with space" }] }, /1 to 128 characters/],
    [{ name: "a", tools: [{ ...one, description: " " }] }, /description of the tool "sum"/],
    [{ name: "a", tools: [one, one] }, /two tools "sum"/],
    [{ name: "a", tools: [{ ...one, name: "get_run" }], operate: true }, /two tools "get_run"/],
    [{ name: "a", tools: [{ job: array, description: "a" }] }, /must be an object/],
    [{ name: "a", tools: [{ ...one, task: "sometimes" as never }] }, /task of the tool/],
    [{ name: "a", tools: [{ ...one, job: {} as never }] }, /what defineJob\(\) returns/],
    [{ name: "a", tools: [{ ...one, labels: {} } as never] }, /no option "labels"/],
    [{ name: "a", tools: [], stdio: true } as never, /no option "stdio"/],
  ];
  for (const [options, message] of cases) assert.throws(() => mcp(options), message);

  await using service = aService();
  assert.throws(
    () => createHandler(service.engine, { mcp: mcp({ name: "a", tools: [one] }) }),
    new TypeError('mcp has a tool of job "sum", which the engine does not have'),
  );
  assert.throws(() => createHandler(service.engine, { mcp: {} as never }), /mcp must be what mcp\(\) returns/);
});

Deno.test("a handler without mcp has no path /mcp, and loads none of it", async () => {
  await using service = aService();
  const found = new Set([new URL("../../../mod.ts", import.meta.url).href]);

  const { status } = await rpc(service.handler.fetch, "http://localhost/mcp", "tools/list");
  for (const url of found) {
    const source = (await Deno.readTextFile(new URL(url))).replaceAll(/\/\*[\s\S]*?\*\//g, "");
    for (const [, path] of source.matchAll(/^(?:import (?!type\b)|export (?!type\b))[^;]*?from "(\.[^"]+)"/gm)) {
      found.add(new URL(path!, url).href);
    }
  }

  assert.equal(status, 404);
  assert.ok(found.size > 100);
  assert.deepEqual([...found].filter((url) => /\/src\/(?:http\/mcp\/|webhooks\/|ai\/)/.test(url)), []);
});
