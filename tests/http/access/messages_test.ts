import assert from "node:assert/strict";
import { z } from "zod";
import type { HandlerAuth, RequestedMessage } from "../../../src/http/access/auth_hooks.ts";
import { internalsOf } from "../../../src/engine/engine_internals.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import { anything } from "../../support/stores/for_each_store.ts";
import { aService } from "../../support/http/http.ts";
import { type Org } from "../../support/http/tenant_hooks.ts";
import { aRefusal } from "../../support/http/tenants.ts";

const chat = defineJob({
  name: "chat",
  input: anything,
  aliases: ["talk"],
  messages: { text: z.object({ text: z.string() }), stop: z.null() },
  run: (step) => step.receive("next", { names: ["text", "stop"], close: "always" }),
});

const HI = { name: "text", payload: { text: "hi" } };

Deno.test("POST /send sends a message to a run, and GET /messages shows it", async () => {
  await using service = aService({}, undefined, { chat });
  const { id } = await service.engine.trigger("chat", null);

  const sent = await service.ask("POST", `/send?runId=${id}`, { body: { ...HI, id: "m1" } });
  const again = await service.ask("POST", `/send?runId=${id}`, { body: { ...HI, id: "m1" } });
  await service.engine.runUntilIdle();
  const shown = await service.ask("GET", `/messages?runId=${id}`);

  const answer = { runId: id, messageId: "m1", disposition: "accepted", started: false };
  assert.deepEqual([sent.status, sent.body], [200, answer]);
  assert.deepEqual(again.body, { ...answer, disposition: "duplicate" });
  assert.deepEqual(
    shown.body.map(({ acceptedAt: _, receivedAt: __, ...message }: Record<string, unknown>) => message),
    [
      { id: "m1", name: "text", payload: { text: "hi" }, status: "received", receivedBy: "next" },
    ],
  );
});

Deno.test("GET /messages reads those behind one, up to a limit, in several reads of the store", async () => {
  await using service = aService({}, undefined, { chat });
  const { id } = await service.engine.trigger("chat", null);
  const text = "x".repeat(10_000); // four in one read
  for (let n = 1; n <= 9; n++) await service.engine.send(id, "text", { text }, { id: `m${n}` });
  const read = async (more: string) => {
    const { status, body } = await service.ask("GET", `/messages?runId=${id}${more}`);
    return status === 200 ? body.map((message: { id: string }) => message.id).join() : status;
  };

  const found = [
    await read("&limit=2"),
    await read("&after=m2&limit=6"),
    await read("&after=m7"),
    await read("&limit=0"),
  ];

  assert.deepEqual(found, ["m1,m2", "m3,m4,m5,m6,m7,m8", "m8,m9", 400]);
});

Deno.test("POST /send records who sends, as auth.actor says it, and refuses by", async () => {
  const auth: HandlerAuth<string> = {
    authenticate: (request) => request.headers.get("authorization") ?? "nobody",
    actor: (user) => user,
    onTrigger: () => {},
    onRunAccess: () => {},
    onSend: () => {},
  };
  await using service = aService({ auth }, undefined, { chat });
  const as = (user: string, body: object) =>
    service.ask("POST", "/send", {
      headers: { authorization: user },
      body: { jobName: "chat", key: "k", ...HI, ...body } as never,
    });

  const { body: { runId } } = await as("ada", { id: "m1", start: { input: null } });
  await as("bob", { id: "m2" });
  const refused = await as("bob", { id: "m3", by: "ada" });

  assert.deepEqual((await service.engine.getMessages(runId)).map(({ id, sentBy }) => [id, sentBy]), [
    ["m1", "ada"],
    ["m2", "bob"],
  ]);
  assert.equal((await service.engine.getRun(runId))!.triggeredBy, "ada");
  assert.deepEqual([refused.status, refused.body.error], [400, "by is set by the service"]);
});

Deno.test("POST /send finds the run of a key, or starts one", async () => {
  await using service = aService({}, undefined, { chat });
  const toKey = { jobName: "talk", key: "room 7" };

  const none = await service.ask("POST", "/send", { body: { ...toKey, ...HI } });
  const first = await service.ask("POST", "/send", {
    body: { ...toKey, ...HI, id: "m1", start: { input: { room: 7 }, labels: { org: "a" } } },
  });
  const second = await service.ask("POST", "/send", { body: { ...toKey, ...HI, id: "m2", start: {} } });
  await service.engine.runUntilIdle();

  assert.equal(none.status, 404);
  assert.deepEqual([first.body.started, second.body.started], [true, false]);
  assert.equal(second.body.runId, first.body.runId);
  const run = (await service.engine.getRun(first.body.runId))!;
  assert.deepEqual([run.jobName, run.idempotencyKey, run.labels], ["chat", "room 7", { org: "a" }]);
  assert.deepEqual(run.input, { room: 7 });
  assert.equal((await service.engine.getMessages(run.id)).length, 2);
});

Deno.test("POST /send refuses what is no message, and a run that takes none", async () => {
  await using service = aService({}, undefined, { chat });
  const { id } = await service.engine.trigger("chat", null, { idempotencyKey: "k" });
  const ask = async (query: string, body: Record<string, unknown>) => {
    const { status, body: answer } = await service.ask("POST", `/send${query}`, { body });
    return [status, answer.code ?? answer.error?.code ?? null] as const;
  };

  assert.equal((await ask(`?runId=${id}`, { name: "text" }))[0], 400);
  assert.equal((await ask(`?runId=${id}`, { name: "txt", payload: 1 }))[0], 400);
  assert.equal((await ask(`?runId=${id}`, { name: "text", payload: { text: 1 } }))[0], 400);
  for (const wrong of ["", "x".repeat(201)]) {
    const { status, body } = await service.ask("POST", `/send?runId=${id}`, { body: { ...HI, id: wrong } });
    const message = "must be a string of 1 to 200 characters, well-formed and without control characters";
    assert.deepEqual([status, body.issues], [400, [{ path: ["id"], message }]]);
  }
  assert.equal((await ask("", HI))[0], 400);
  assert.equal((await ask(`?runId=${id}`, { ...HI, jobName: "chat", key: "k" }))[0], 400);
  assert.equal((await ask("", { ...HI, jobName: "chat" }))[0], 400);
  assert.equal((await ask(`?runId=${id}`, { ...HI, start: {} }))[0], 400);
  assert.equal((await ask("", { ...HI, jobName: "chat", key: "k", start: { idempotencyKey: "x" } }))[0], 400);
  assert.equal((await ask("", { ...HI, jobName: "nobody", key: "k" }))[0], 404);
  assert.equal((await ask("?runId=nobody", HI))[0], 404);
  assert.deepEqual(await service.engine.getMessages(id), []);

  await service.engine.cancel(id);
  const { status, body } = await service.ask("POST", `/send?runId=${id}`, { body: HI });
  assert.equal(status, 409);
  assert.match(JSON.stringify(body), /run_ended/);
});

/** Hooks that note what they are asked. */
function hooks(asked: unknown[][], more: Partial<HandlerAuth<Org>> = {}): HandlerAuth<Org> {
  return {
    authenticate: (request) => ({ org: request.headers.get("x-org")! }),
    tenant: ({ org }) => org,
    scopeRuns: ({ org }, filter) => ({ ...filter, labels: { ...filter.labels, org } }),
    onTrigger: (_, { jobName, idempotencyKey }) => void asked.push(["onTrigger", jobName, idempotencyKey]),
    onRunAccess: ({ org }, { labels }, { operation }) => {
      asked.push(["onRunAccess", operation]);
      if (labels.org !== org) throw aRefusal();
    },
    onSend: (_, run, message: Readonly<RequestedMessage>) => {
      asked.push(["onSend", run === null ? null : run.id, message]);
      assert.ok(Object.isFrozen(message) && Object.isFrozen(message.payload));
    },
    ...more,
  };
}

const OF_A = { "x-org": "a" };

Deno.test("POST /send asks onRunAccess and onSend, but onSend not for a duplicate", async () => {
  const asked: unknown[][] = [];
  await using service = aService({ auth: hooks(asked) }, undefined, { chat });
  const { id } = await service.engine.trigger("chat", null, { labels: { org: "a" } });
  const send = () => service.ask("POST", `/send?runId=${id}`, { headers: OF_A, body: { ...HI, id: "m1" } });

  assert.equal((await send()).body.disposition, "accepted");
  assert.deepEqual(asked.filter(([name]) => name === "onSend"), [["onSend", id, { id: "m1", ...HI }]]);
  asked.length = 0;
  assert.equal((await send()).body.disposition, "duplicate");

  assert.deepEqual(asked, [["onRunAccess", "send"]]);
});

Deno.test("POST /send with start asks onTrigger first, and keeps the keys of tenants apart", async () => {
  const asked: unknown[][] = [];
  await using service = aService({ auth: hooks(asked) }, undefined, { chat });
  const start = (org: string, id: string) =>
    service.ask("POST", "/send", {
      headers: { "x-org": org },
      body: { jobName: "chat", key: "room", ...HI, id, start: { input: 1, labels: { org } } },
    });

  const ofA = await start("a", "m1");
  const names = asked.map(([name]) => name);
  const ofB = await start("b", "m1");
  const again = await start("a", "m2");

  assert.deepEqual(names, ["onTrigger", "onSend"]);
  assert.deepEqual(asked[0], ["onTrigger", "chat", "room"]);
  assert.deepEqual(asked[1]![1], null);
  assert.deepEqual([ofA.body.started, ofB.body.started, again.body.started], [true, true, false]);
  assert.notEqual(ofA.body.runId, ofB.body.runId);
  assert.equal(again.body.runId, ofA.body.runId);
  assert.equal((await service.engine.getRun(ofA.body.runId))!.idempotencyKey, "a/room");
});

Deno.test("POST /send names an unknown run by the key that the client has sent, and not as it is stored", async () => {
  await using service = aService({ auth: hooks([]) }, undefined, { chat });

  const body = { jobName: "talk", key: "room", ...HI };
  const { status, body: answer } = await service.ask("POST", "/send", { headers: OF_A, body });

  assert.deepEqual([status, answer.error], [404, 'There is no run of job "talk" with the key "room"']);
});

Deno.test("POST /send asks the hooks about a run that is triggered while they are asked for none", async () => {
  await using service = aService({ auth: hooks([]) }, undefined, { chat });
  const { store } = internalsOf(service.engine);
  const { send } = store;
  let calls = 0;
  // Right after the first look, which finds no run, there is one of another caller.
  store.send = async (request) => {
    const outcome = await send.call(store, request);
    calls += 1;
    if (calls === 1) await service.engine.trigger("chat", null, { labels: { org: "b" }, idempotencyKey: "a/room" });
    return outcome;
  };

  const { status } = await service.ask("POST", "/send", {
    headers: OF_A,
    body: { jobName: "chat", key: "room", ...HI },
  });

  const { runs: [run] } = await service.engine.getRuns();
  assert.equal(status, 404);
  assert.deepEqual(await service.engine.getMessages(run!.id), []);
});

Deno.test("POST /send with start names no run that a hook hides, whose key and message id it has", async () => {
  await using service = aService({ auth: hooks([], { tenant: () => "all" }) }, undefined, { chat });
  const send = (org: string, text: string) =>
    service.ask("POST", "/send", {
      headers: { "x-org": org },
      body: {
        jobName: "chat",
        key: "k",
        name: "text",
        payload: { text },
        id: "m1",
        start: { input: 1, labels: { org } },
      },
    });
  await send("a", "hi");
  await service.engine.runUntilIdle();

  const ofOther = await send("b", "ho");
  const own = await send("a", "ho");

  assert.equal(ofOther.status, aRefusal().status);
  assert.deepEqual([own.status, own.body.code], [409, "conflict"]);
});

Deno.test("POST /send is refused by a hook, and then nothing is stored", async () => {
  const refuse = () => {
    throw aRefusal();
  };
  for (const hook of ["onSend", "onRunAccess", "onTrigger"] as const) {
    await using service = aService({ auth: hooks([], { [hook]: refuse }) }, undefined, { chat });
    const { id } = await service.engine.trigger("chat", null, { labels: { org: "a" }, idempotencyKey: "a/k" });
    const body = { jobName: "chat", key: "k", ...HI, start: { input: 1, labels: { org: "a" } } };

    const toKey = await service.ask("POST", "/send", { headers: OF_A, body });
    if (hook !== "onTrigger") {
      const toRun = await service.ask("POST", `/send?runId=${id}`, { headers: OF_A, body: HI });
      assert.equal(toRun.status, toKey.status);
    }

    assert.ok(toKey.status >= 400, hook);
    assert.deepEqual(await service.engine.getMessages(id), []);
    assert.equal((await service.engine.getRuns()).total, 1);
  }
});

Deno.test("POST /send asks again if another run has the key by then, and gives up after five times", async () => {
  let changes = 0;
  const auth = hooks([], {
    async onSend() {
      changes += 1;
      const { runs: [open] } = await service.engine.getRuns({ jobName: "chat" });
      await service.engine.cancel(open!.id);
      await service.engine.trigger("chat", null, {
        labels: { org: "a" },
        idempotencyKey: "a/k",
        ...(changes < most ? { idempotencyUntil: "ended" } : {}),
      });
      if (changes >= most) return;
    },
  });
  let most = 100;
  await using service = aService({ auth }, undefined, { chat });
  await service.engine.trigger("chat", null, { labels: { org: "a" }, idempotencyKey: "a/k" });

  const never = await service.ask("POST", "/send", { headers: OF_A, body: { jobName: "chat", key: "k", ...HI } });

  assert.equal(never.status, 503);
  assert.equal(changes, 5);
  most = 0;
});

Deno.test("GET /messages and POST /send need the hook onRunAccess", async () => {
  const { onRunAccess: _, ...auth } = hooks([]);
  const { warn } = console;
  console.warn = () => {};
  await using service = aService({ auth }, undefined, { chat });
  console.warn = warn;
  const { id } = await service.engine.trigger("chat", null, { labels: { org: "a" } });

  const shown = await service.ask("GET", `/messages?runId=${id}`, { headers: OF_A });
  const sent = await service.ask("POST", `/send?runId=${id}`, { headers: OF_A, body: HI });
  const started = await service.ask("POST", "/send", {
    headers: OF_A,
    body: { jobName: "chat", key: "k", ...HI, start: { input: 1 } },
  });

  assert.deepEqual([shown.status, sent.status, started.status], [403, 403, 403]);
});
