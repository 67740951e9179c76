import assert from "node:assert/strict";
import { ClientError, createClient } from "../../src/client/mod.ts";
import { type Duration, toMs } from "../../src/values/duration.ts";
import { aService } from "./a_service.ts";

Deno.test("trigger() and waitForRun() answer the run with its output", async () => {
  await using service = await aService();
  const { client } = service;

  const { runId, disposition, status } = await client.trigger("greet", { name: "Ada", times: 2 });
  const { output, jobName, input } = await client.waitForRun(runId, { timeout: 10_000 });

  assert.deepEqual({ disposition, status }, { disposition: "created", status: "pending" });
  assert.deepEqual(
    { output, jobName, input },
    { output: { text: "Hello, Ada! Hello, Ada! " }, jobName: "greet", input: { name: "Ada", times: 2 } },
  );
});

Deno.test("trigger() sends its options", async () => {
  await using service = await aService();
  const { client } = service;
  const options = { idempotencyKey: "a", labels: { org: "x" }, priority: 3, delay: 60_000 };

  const first = await client.trigger("greet", { name: "Ada" }, options);
  const second = await client.trigger("greet", { name: "Ada" }, {
    ...options,
    abortSignal: new AbortController().signal,
  });
  const run = await client.run(first.runId);

  assert.deepEqual({ ...second, status: null }, { runId: first.runId, disposition: "idempotent", status: null });
  assert.deepEqual({ labels: run.labels, priority: run.priority }, { labels: { org: "x" }, priority: 3 });
  assert.ok(run.startAt! > run.createdAt);
});

Deno.test("steps(), waits(), wait(), signal() and logs() read and end what a run has", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("approve", {});
  for await (const event of client.watch(runId)) if (event.type === "run:waiting") break;
  const waits = await client.waits(runId);
  const signal = { signalId: "s-1", payload: { ok: true } };

  const wait = await client.wait(runId, waits[0]!.id);
  const receipt = await client.signal(runId, wait.id, signal);
  const again = await client.signal(runId, wait.id, signal);
  const { output } = await client.waitForRun(runId);
  const steps = await client.steps(runId);
  const logs = await client.logs(runId);

  assert.deepEqual({ name: wait.name, metadata: wait.metadata }, { name: "review", metadata: { for: "ana" } });
  assert.deepEqual([receipt.disposition, again.disposition], ["accepted", "duplicate"]);
  assert.deepEqual(receipt.wait, again.wait);
  assert.deepEqual(output, { isApproved: true, at: "1970-01-01T00:00:00.000Z" });
  assert.deepEqual({ steps, logs }, { steps: [], logs: [] });
});

Deno.test("cancel(), retrigger() and delete() change a run", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("approve", {});

  await client.cancel(runId);
  const cancelled = await client.run(runId);
  const { runId: retry } = await client.retrigger(runId, { from: "failure" });
  await client.delete(runId);

  assert.equal(cancelled.status, "cancelled");
  assert.equal((await client.run(retry)).retriggerOf, runId);
  await assert.rejects(client.run(runId), { code: "not_found", status: 404 });
});

Deno.test("page() answers one page, by filter", async () => {
  await using service = await aService();
  const { client, engine } = service;
  for (const n of [1, 2, 3]) {
    await engine.trigger("greet", { name: `${n}` }, { labels: { org: n < 3 ? "a" : "b" }, delay: 60_000 });
  }
  await engine.trigger("approve", {}, { delay: 60_000 });

  const byLabel = await client.page({ jobName: "greet", status: ["pending", "failed"], labels: { org: "a" } });
  const second = await client.page({ jobName: ["greet", "approve"] }, { limit: 1, offset: 1 });

  assert.deepEqual(byLabel.runs.map(({ input }) => input), [{ name: "2" }, { name: "1" }]);
  assert.deepEqual({ total: byLabel.total, hasMore: byLabel.hasMore }, { total: 2, hasMore: false });
  assert.deepEqual({ ...second, runs: second.runs.map(({ input }) => input) }, {
    runs: [{ name: "3" }],
    total: 4,
    hasMore: true,
  });
});

Deno.test("page() need not count", async () => {
  await using service = await aService();
  const { client, engine } = service;
  await engine.trigger("greet", { name: "a" }, { delay: 60_000 });

  const { runs, ...rest } = await client.page({}, { total: false });

  assert.deepEqual([runs.length, rest], [1, { hasMore: false }]);
});

Deno.test("page() finds runs by their parent, the reason of their failure, and when they were made and ended", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("fail", {});
  await assert.rejects(client.waitForRun(runId));
  const { createdAt, completedAt } = await client.run(runId);
  const later = (text: string) => new Date(Date.parse(text) + 1).toISOString();
  const counts = async (...filters: Parameters<typeof client.page>[0][]) =>
    await Promise.all(filters.map(async (filter) => (await client.page(filter)).total));

  const found = await counts(
    { failureKind: "error" },
    { createdAfter: createdAt, createdBefore: later(createdAt) },
    { completedAfter: completedAt!, completedBefore: later(completedAt!) },
  );
  const notFound = await counts(
    { failureKind: "timeout" },
    { parentRunId: runId },
    { createdBefore: createdAt },
    { completedAfter: later(completedAt!) },
  );

  assert.deepEqual([found, notFound], [[1, 1, 1], [0, 0, 0, 0]]);
});

Deno.test("page() finds held runs, and children() asks for the children of a run", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("fail", {});

  const held = await client.page({ held: true });
  const page = await client.children(runId, { status: ["failed", "pending"], held: false, limit: 2 });

  assert.equal(held.total, 0);
  assert.deepEqual([page.runId, page.total, page.children, page.next], [runId, 0, [], null]);
  await assert.rejects(client.children("none"), { code: "not_found" });
});

Deno.test("runs() reads all pages of a list, and leaves out what is triggered meanwhile", async () => {
  await using service = await aService();
  const { client, engine } = service;
  const items = Array.from({ length: 1_003 }, (_, n) => ({ input: { name: `${n}` }, delay: 60_000 }));
  await engine.jobs.greeting.batchTrigger(items);

  const names: unknown[] = [];
  for await (const { input } of client.runs({ jobName: "greet" })) {
    if (names.length === 5) await engine.jobs.greeting.trigger({ name: "late" }, { delay: 60_000 });
    names.push((input as { name: string }).name);
  }

  assert.deepEqual(names, items.map(({ input }) => input.name).toReversed());
});

for (const deleted of [1, 3, 1_000]) {
  Deno.test(`runs() goes on although the last ${deleted} of the runs that it has shown were deleted meanwhile`, async () => {
    await using service = await aService();
    const { client, engine } = service;
    const items = Array.from({ length: 1_003 }, (_, n) => ({ input: { name: `${n}` }, delay: 60_000 }));
    const runs = (await engine.jobs.greeting.batchTrigger(items)).toReversed();

    const seen: string[] = [];
    for await (const { id } of client.runs({ jobName: "greet" })) {
      seen.push(id);
      if (seen.length !== 1_000) continue;
      for (const { id } of runs.slice(1_000 - deleted, 1_000)) {
        await engine.cancel(id);
        await engine.deleteRun(id);
      }
    }

    assert.deepEqual(seen, runs.map(({ id }) => id));
  });
}

Deno.test("waitForRun() throws when the run has failed, was cancelled or deleted, or is late", async () => {
  await using service = await aService();
  const { client } = service;
  const failing = await client.trigger("fail", {});
  const waiting = await client.trigger("approve", {});
  const deleted = await client.trigger("greet", { name: "Ada" });
  await client.waitForRun(deleted.runId);
  await client.delete(deleted.runId);

  await assert.rejects(client.waitForRun(failing.runId), {
    code: "run_failed",
    message: `Run "${failing.runId}" ended as failed: boom`,
  });
  await assert.rejects(client.waitForRun(waiting.runId, { timeout: 50 }), {
    code: "timeout",
    message: `Run "${waiting.runId}" has not completed within 50 ms`,
  });
  await client.cancel(waiting.runId);
  await assert.rejects(client.waitForRun(waiting.runId), { code: "run_cancelled" });
  await assert.rejects(client.waitForRun(deleted.runId), { code: "not_found" });
});

Deno.test("waitForRun() and ask() read again what was not answered", async () => {
  let lost = 0;
  await using service = await aService({
    // A run is read for the snapshot and in the end, the steps are read for the answer: every other read is lost.
    between: (request, send) => {
      const isRead = /\/(run|steps)$/.test(new URL(request.url).pathname);
      return isRead && lost++ % 2 === 0 ? Promise.reject(new TypeError("connection reset")) : send(request);
    },
  });
  const { client } = service;
  const { runId } = await client.trigger("greet", { name: "Ada" });
  const chat = await client.trigger("chat", {});

  const [run, answer] = await Promise.all([
    client.waitForRun(runId),
    client.ask(chat.runId, { name: "text", payload: "hi" }),
  ]);

  assert.deepEqual([run.output, answer], [{ text: "Hello, Ada! " }, { heard: "hi" }]);
  assert.ok(lost >= 4, `${lost} reads`);
});

Deno.test("waitForRun() takes durations with a unit, as the server does", async () => {
  await using service = await aService();
  const { client } = service;
  const waiting = await client.trigger("approve", {});
  const { runId } = await client.trigger("greet", { name: "Ada" });
  const short = [20, "20ms", "20 milliseconds", "0.02s", "0.02 seconds", "0.0005m", "0.0005min", "0m1s"];
  const long = ["1h", "2 hours", "3d", "1d12h", "2w", "5 minutes"];

  for (const timeout of short as Duration[]) {
    await assert.rejects(client.waitForRun(waiting.runId, { timeout }), {
      code: "timeout",
      message: `Run "${waiting.runId}" has not completed within ${toMs(timeout)} ms`,
    });
  }
  for (const timeout of long as Duration[]) {
    assert.equal((await client.waitForRun(runId, { timeout })).status, "completed");
  }
});

Deno.test("waitForRun() with a timeout that no timer can have waits without limit", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("greet", { name: "Ada" }, { delay: 50 });

  const { status } = await client.waitForRun(runId, { timeout: 30 * 86_400_000 });

  assert.equal(status, "completed");
});

Deno.test("a refusal is a ClientError with the service's code, status and issues", async () => {
  await using service = await aService();

  const error = await service.client.trigger("greet", {} as never).catch((error) => error);

  assert.ok(error instanceof ClientError);
  assert.deepEqual({ code: error.code, status: error.status, path: error.issues[0]!.path }, {
    code: "invalid_input",
    status: 400,
    path: ["name"],
  });
  assert.match(error.message, /^POST \/trigger was answered 400: /);
});

Deno.test("an answer that is not the service's is a ClientError with its status, also where it is no JSON", async () => {
  const answer = () => new Response("<h1>no", { status: 502, headers: { "retry-after": "7" } });
  await using service = await aService({ between: () => Promise.resolve(answer()) });

  await assert.rejects(service.client.run("x"), { code: "http_502", status: 502, retryAfter: 7_000, issues: [] });
});

Deno.test("an answer of something else, though it is 200, is a ClientError with its status, and ends what waits", async () => {
  const page = () => new Response("<!doctype html>", { headers: { "content-type": "text/html" } });
  await using service = await aService({ between: () => Promise.resolve(page()) });
  const { client } = service;

  for (const call of [client.run("x"), client.waitForRun("x"), client.watch("x").next()]) {
    await assert.rejects(call, { name: "ClientError", code: "http_200", status: 200 });
  }
});

Deno.test("the time for which a service asks to wait may be a date", async () => {
  const header = { "retry-after": new Date(Date.now() + 20_000).toUTCString() };
  const past = { "retry-after": new Date(0).toUTCString() };
  const answers = [header, past, { "retry-after": "soon" }].map((headers) =>
    new Response("{}", { status: 503, headers })
  );
  await using service = await aService({ between: () => Promise.resolve(answers.shift()!) });
  const retryAfter = async () => await service.client.run("x").catch((error) => error.retryAfter);

  const [dated, over, unknown] = [await retryAfter(), await retryAfter(), await retryAfter()];

  assert.ok(dated > 15_000 && dated <= 20_000, `${dated}`);
  assert.deepEqual([over, unknown], [null, null]);
});

Deno.test("a list that is empty matches no run, and a filter without a value is refused", async () => {
  await using service = await aService();
  const { client } = service;
  await client.trigger("greet", { name: "Ada" });
  const nothing = { runs: [], total: 0, hasMore: false };

  assert.deepEqual([await client.page({ status: [] }), await client.page({ jobName: [] })], [nothing, nothing]);
  assert.deepEqual(await Array.fromAsync(client.runs({ status: [] })), []);
  const labels = { org: undefined } as unknown as Record<string, string>;
  await assert.rejects(client.page({ labels }), { name: "TypeError", message: "label.org has no value" });
  await assert.rejects(client.runs({ labels }).next(), TypeError);
  await assert.rejects(client.watchRuns({ labels }).next(), TypeError);
  await assert.rejects(client.watchRuns({ jobName: [] }).next(), { message: "jobName has no value" });
  await assert.rejects(client.children("x", { status: [] }), { message: "status has no value" });
});

Deno.test("what JSON would lose is refused, and not sent as something else", async () => {
  await using service = await aService();
  const greet = (name: unknown) => service.client.trigger("greet", { name: name as string });

  for (const lost of [NaN, -Infinity, new Map(), new Set(), [undefined], () => 1, Symbol("s"), 1n, new Headers()]) {
    await assert.rejects(greet(lost), TypeError, String(lost));
    await assert.rejects(service.client.signal("x", "y", { signalId: "s", payload: { deep: [lost] } }), TypeError);
  }
  const { runId } = await service.client.trigger("greet", Object.assign(Object.create(null), { name: "Ada" }));
  assert.equal((await service.client.waitForRun(runId)).status, "completed");
  await assert.rejects(greet(new Date(0)).then(() => greet({ at: undefined })), { code: "invalid_input" });
});

Deno.test("a call ends when its signal fires, also while its headers or its fetch do not settle", async () => {
  const never = () => new Promise<never>(() => {});
  for (const options of [{ headers: never }, { fetch: never }]) {
    const client = createClient({ url: "http://127.0.0.1:1/api", ...options });
    await assert.rejects(client.run("x", { abortSignal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
    await assert.rejects(client.waitForRun("x", { timeout: 20 }), { code: "timeout" });
    await assert.rejects(client.run("x", { abortSignal: AbortSignal.abort(new Error("enough")) }), /enough/);
  }
});

Deno.test("waitForRun() refuses a timeout that is no duration", async () => {
  const client = createClient({ url: "http://127.0.0.1:1/api", fetch: () => new Promise(() => {}) });

  for (const timeout of ["soon", "500", "1e3ms", "1.2.3s", ".s", "1 month", "", NaN, -1, null]) {
    await assert.rejects(client.waitForRun("x", { timeout: timeout as never }), { name: "TypeError" }, `${timeout}`);
  }
  for (const timeout of [20, "20ms", "0.01s 10ms", "20 milliseconds"]) {
    await assert.rejects(client.waitForRun("x", { timeout: timeout as never }), { message: /within 20 ms/ });
  }
});

Deno.test("a request without an answer is a ClientError with the code network, and is not repeated", async () => {
  let sent = 0;
  const lost = () => (sent++, Promise.reject(new TypeError("no route to host")));
  const headers = { "content-type": "application/json" };
  const cut = () => Promise.resolve(new Response('{"id":', { headers }));
  await using away = await aService({ between: lost });
  await using cutting = await aService({ between: cut });

  await assert.rejects(away.client.trigger("greet", { name: "Ada" }), {
    code: "network",
    status: null,
    message: "POST /trigger was not answered: no route to host",
  });
  await assert.rejects(cutting.client.run("x"), { code: "network" });
  assert.equal(sent, 1);
});

Deno.test("a call that is stopped throws the reason of its abortSignal", async () => {
  const reason = new Error("enough");
  const never = (request: Request) =>
    new Promise<Response>((_, reject) => request.signal.addEventListener("abort", () => reject(request.signal.reason)));
  await using service = await aService({ between: never });
  const ending = new AbortController();

  const calls = [
    service.client.run("x", { abortSignal: ending.signal }),
    service.client.waitForRun("x", { abortSignal: ending.signal }),
    service.client.watch("x", { abortSignal: ending.signal }).next(),
  ];
  ending.abort(reason);

  for (const call of calls) await assert.rejects(call, reason);
});

for (const status of [200, 500]) {
  Deno.test(`a call that is stopped ends a body of status ${status} that a fetch has not tied to the signal`, async () => {
    const reason = new Error("enough");
    const cancelled: unknown[] = [];
    const hanging = () => {
      const body = new ReadableStream({ cancel: (why) => void cancelled.push(why) });
      return Promise.resolve(new Response(body, { status }));
    };
    await using service = await aService({ between: hanging });
    const ending = new AbortController();
    const { signal: abortSignal } = ending;

    const calls = [
      service.client.run("x", { abortSignal }),
      service.client.watch("x", { abortSignal }).next(),
    ];
    setTimeout(() => ending.abort(reason), 20);

    for (const call of calls) await assert.rejects(call, reason);
    assert.ok(cancelled.length >= 2 && cancelled.every((why) => why === reason));
  });
}

Deno.test("headers are asked for at each request", async () => {
  const seen: (string | null)[] = [];
  let tokens = 0;
  await using service = await aService({
    between: (request, send) => (seen.push(request.headers.get("authorization")), send(request)),
    headers: () => Promise.resolve({ authorization: `Bearer ${++tokens}` }),
  });

  await service.client.page();
  await service.client.page();

  assert.deepEqual(seen, ["Bearer 1", "Bearer 2"]);
});

Deno.test("a redirect is refused: neither headers nor bodies go to another address", async () => {
  const seen: string[] = [];
  await using elsewhere = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, ({ url }) => {
    seen.push(url);
    return Response.json({ runId: "x" });
  });
  const there = `http://127.0.0.1:${elsewhere.addr.port}/`;
  await using server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, () => {
    return new Response(null, { status: 307, headers: { location: there } });
  });
  const client = createClient({ url: `http://127.0.0.1:${server.addr.port}`, headers: { "x-api-key": "secret" } });

  await assert.rejects(client.trigger("greet", {}), { code: "network" });
  await assert.rejects(client.run("x"), { code: "network" });

  assert.deepEqual(seen, []);
});

Deno.test("createClient() refuses a relative url where there is no page, and one with a query or a fragment", () => {
  for (const url of ["/api", "https://example.com/api?x=1", "https://example.com/api#x"]) {
    assert.throws(() => createClient({ url }), {
      name: "TypeError",
      message: `url must be absolute here, without "?" and "#": ${url}`,
    });
  }
});

Deno.test("ask() sends a message, and answers what the run has responded; a repeated call finds the answer", async () => {
  await using service = await aService();
  const { client, engine } = service;
  const { runId } = await client.trigger("chat", {});
  const hi = { name: "text", payload: "hi", id: "m1" };

  const answer = await client.ask<{ heard: string }>(runId, hi);
  const again = await client.ask(runId, hi);
  const byKey = await client.ask({ jobName: "chat", key: "room", start: { input: {} } }, {
    name: "text",
    payload: "yo",
  });

  assert.deepEqual([answer, again, byKey], [{ heard: "hi" }, { heard: "hi" }, { heard: "yo" }]);
  const abortSignal = AbortSignal.timeout(20);
  await assert.rejects(client.ask(runId, { name: "shush", payload: null }, { abortSignal }), { name: "TimeoutError" });
  const asked = client.ask(runId, { name: "stop", payload: null, id: "m9" });
  await assert.rejects(asked, {
    code: "conflict",
    message: `Run "${runId}" has not answered message "m9"`,
  });
  await assert.rejects(client.ask(runId, { name: "text", payload: "late" }), { code: "run_ended", status: 409 });
  assert.equal((await client.messages(runId)).length, 3);
  const other = await client.trigger("chat", {});
  const cancelled = client.ask(other.runId, { name: "shush", payload: null });
  cancelled.catch(() => {});
  while ((await engine.getMessages(other.runId)).length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await client.cancel(other.runId);
  await assert.rejects(cancelled, { code: "run_cancelled" });
});
