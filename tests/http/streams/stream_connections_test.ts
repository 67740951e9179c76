import assert from "node:assert/strict";
import { setImmediate } from "node:timers";
import { createHandler } from "../../../src/http/handler.ts";
import type { HandlerOptions } from "../../../src/http/handler_options.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import { EventReader } from "../../support/http/event_reader.ts";
import { forEachStore, pass } from "../../support/stores/for_each_store.ts";
import { aRequest, aService } from "../../support/http/http.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { aScript } from "../../support/jobs.ts";
import { aPlay, follow, followList, progressOf } from "../../support/http/streams.ts";

forEachStore("event streams show every 15 s that they live", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  const readers = [await follow(service, id), await followList(service)];
  await context.host.settle();

  await pass(context.host, 14_990, 1_000);
  const before = readers.map(({ comments }) => comments.length);
  await pass(context.host, 10);
  const after = readers.map(({ comments }) => comments.length);
  await pass(context.host, 30_000, 1_000);

  assert.deepEqual([before, after], [[0, 0], [1, 1]]);
  assert.deepEqual(readers.map(({ comments, types }) => [comments.length, types]), [[3, []], [3, []]]);
  for (const reader of readers) await reader.leave();
});

forEachStore(
  "limits.maxStreams bounds how many streams are open, and a reader who leaves makes room",
  async (context) => {
    await using service = aService({ limits: { maxStreams: 2 } }, context);
    const { id } = await service.engine.trigger("echo", 1);
    const readers = [await follow(service, id), await followList(service)];

    const refused = [
      await service.ask("GET", `/subscribe?runId=${id}`),
      await service.ask("GET", "/runs/subscribe"),
      await service.ask("GET", "/subscribe?runId=unknown"),
    ];
    await readers[1]!.leave();
    readers.push(await follow(service, id));
    const again = await service.ask("GET", "/runs/subscribe");
    await service.engine.runUntilIdle();
    await Promise.all([readers[0]!.ended, readers[2]!.ended]);
    readers.push(await followList(service), await followList(service));

    assert.deepEqual(refused.map(({ status, body }) => [status, body.code]), [
      [503, "unavailable"],
      [503, "unavailable"],
      [404, "not_found"],
    ]);
    assert.match(refused[0]!.headers.get("retry-after")!, /^[1-9]\d*$/);
    assert.equal(again.status, 503);
    for (const reader of readers) await reader.leave();
  },
);

forEachStore("event streams leave nothing behind when their readers go away", async (context) => {
  const { host } = context;
  const { service, id, step, end } = await aPlay(context);
  await context.host.settle();
  const timers = host.timerCount;
  const readers = [await follow(service, id), await follow(service, id), await followList(service)];
  await host.settle();
  for (const n of [1, 2]) step.progress(n); // the second one is held back
  const whileOpen = host.timerCount;

  for (const reader of readers) await reader.leave();
  step.progress(3);
  await pass(host, 300, 50); // until the worker has kept it

  assert.ok(whileOpen > timers);
  assert.equal(host.timerCount, timers);
  await end();
  await service.engine.stop();
  assert.equal(host.timerCount, 0);
});

forEachStore(
  "event streams leave nothing behind when their readers go away before they were told anything",
  async (context) => {
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("echo", 1);

    for (const path of [`/subscribe?runId=${id}`, "/runs/subscribe"]) {
      const response = await service.handler.fetch(aRequest("GET", path));
      await response.body!.cancel();
    }
    await pass(context.host, 1_000, 50);

    assert.equal(context.host.timerCount, 0);
  },
);

forEachStore(
  "event streams end when the engine stops, and can be opened again when it starts again",
  async (context) => {
    const { host } = context;
    await using service = aService({}, context);
    const { id } = await service.engine.trigger("approval", 1);
    await service.engine.start();
    const before = [await follow(service, id), await followList(service)];
    await host.settle();

    await service.engine.stop();
    await Promise.all(before.map(({ ended }) => ended));
    const timers = host.timerCount;
    await service.engine.start();
    const after = [await follow(service, id), await followList(service)];
    await host.settle();
    await service.engine.cancel(id);
    await after[0]!.ended;
    await service.engine.stop();
    await after[1]!.ended;

    assert.equal(timers, 0);
    assert.deepEqual(after.map(({ types }) => types.at(-1)), ["run:cancel", "run:cancel"]);
    assert.equal(host.timerCount, 0);
  },
);

forEachStore("event streams opened after others were ended unread are streams like any other", async (context) => {
  await using service = aService({}, context);
  const unread = await service.handler.fetch(aRequest("GET", "/runs/subscribe"));
  await service.engine.stop();
  await service.engine.start();
  await using reader = await followList(service);
  await context.host.settle();

  await unread.body!.cancel();
  await using other = await followList(service);
  await service.engine.trigger("approval", 1);
  await context.host.settle();

  assert.deepEqual([reader.types[0], other.types], ["run:trigger", reader.types]);
});

forEachStore("event streams of an engine that has stopped ask the client to come back, and end", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("approval", 1);
  await service.engine.stop();

  const readers = [await follow(service, id), await followList(service)];
  await Promise.all(readers.map(({ ended }) => ended));
  const inProcess = await Array.fromAsync(service.engine.subscribe(id));

  assert.deepEqual(readers.map(({ events, retries }) => [events, retries]), [[[], [1_000]], [[], [1_000]]]);
  assert.deepEqual(inProcess, []);
  assert.equal(context.host.timerCount, 0);
});

forEachStore("stop() closes streams whose readers have not read the end of their run", async (context) => {
  const service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.runUntilIdle();
  const unread = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`));
  await context.host.settle();

  await service.engine.stop();

  assert.equal(service.handler.closeStreams(() => true), 0);
  assert.equal(context.host.timerCount, 0);
  await unread.body!.cancel();
});

forEachStore("event streams that a keep-alive has closed leave no timer behind", async (context) => {
  await using service = aService({}, context);
  const { id } = await service.engine.trigger("echo", 1);
  await service.engine.runUntilIdle();
  const unread = await service.handler.fetch(aRequest("GET", `/subscribe?runId=${id}`));

  await pass(context.host, 60_000, 5_000);

  assert.equal(context.host.timerCount, 0);
  await unread.body!.cancel();
});

/** A server on a real socket. */
function aServer(options: HandlerOptions = {}) {
  const script = aScript();
  const engine = createEngine({ store: new MemoryStore(), jobs: { script: script.job } });
  const handler = createHandler(engine, options);
  const server = Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: () => {} }, handler.fetch);
  const { port } = server.addr;
  return { ...script, engine, server, port, url: `http://127.0.0.1:${port}` };
}

/** Opens a stream as soon as there is room for it. */
async function openWhenFree(url: string): Promise<Response> {
  while (true) {
    const response = await fetch(url);
    if (response.status === 200) return response;
    await response.body!.cancel();
  }
}

Deno.test("Deno.serve() closes the stream of a client that disconnects", async () => {
  const { engine, server, url } = aServer({ limits: { maxStreams: 1 } });
  const { id } = await engine.trigger("script", 1);

  for (let n = 0; n < 3; n++) {
    const away = new AbortController();
    const response = await fetch(`${url}/subscribe?runId=${id}`, { signal: away.signal });
    assert.equal(response.status, 200);
    away.abort();
    await response.body!.cancel().catch(() => {});
    const next = await openWhenFree(`${url}/runs/subscribe`);
    await next.body!.cancel();
    await openWhenFree(`${url}/runs/subscribe`).then(({ body }) => body!.cancel());
  }

  await engine.stop();
  await server.shutdown();
});

// Deno.serve() prints a warning when it is looked at, fires it after each response, and cancels the body of a response
// whose client disconnects.
Deno.test("fetch() does not look at the signal of a request", async () => {
  await using service = aService();
  let looks = 0;
  for (const [method, path] of [["GET", "/runs"], ["GET", "/runs/subscribe"], ["POST", "/trigger"]] as const) {
    const request = aRequest(method, path, method === "POST" ? { body: { jobName: "echo", input: {} } } : {});
    const { signal } = request;
    Object.defineProperty(request, "signal", { get: () => (looks++, signal) });

    const response = await service.handler.fetch(request);

    assert.equal(response.status, 200);
    await response.body!.cancel();
  }

  assert.equal(looks, 0);
});

Deno.test("Deno.serve() shuts down after engine.stop(), although clients follow runs", async () => {
  const { engine, server, url, begun, end } = aServer();
  const { id } = await engine.trigger("script", 1);
  await engine.start();
  const step = await begun;
  const readers = [];
  for (const path of [`/subscribe?runId=${id}`, `/subscribe?runId=${id}`, "/runs/subscribe"]) {
    readers.push(new EventReader(await fetch(url + path)));
  }
  step.progress(1);

  const stopping = engine.stop();
  end(1);
  await stopping;
  await server.shutdown();

  await Promise.all(readers.map(({ ended }) => ended));
});

/** A client that asks for a stream, and reads nothing of it until it begins to listen. */
interface Deaf extends AsyncDisposable {
  /** Reads all that was sent: how much it was, and the end of it. */
  listen(): Promise<{ bytes: number; last: string }>;
}

async function connectDeaf(port: number, path: string): Promise<Deaf> {
  const connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`;
  await connection.write(new TextEncoder().encode(request));
  return {
    async listen() {
      let bytes = 0;
      let last = "";
      for await (const chunk of connection.readable.pipeThrough(new TextDecoderStream())) {
        bytes += chunk.length;
        last = (last + chunk).slice(-10_000);
      }
      return { bytes, last };
    },
    [Symbol.asyncDispose]() {
      try {
        connection.close();
      } catch {
        // It was read to its end.
      }
      return Promise.resolve();
    },
  };
}

Deno.test("Deno.serve() leaves out progress that a client does not read in time", async () => {
  const { engine, server, url, port, begun, end } = aServer({ sseThrottleMs: 0 });
  const { id } = await engine.trigger("script", 1);
  const idle = engine.runUntilIdle();
  const step = await begun;
  await using deaf = await connectDeaf(port, `/subscribe?runId=${id}`);
  const reader = new EventReader(await fetch(`${url}/subscribe?runId=${id}`));
  const message = "x".repeat(900);

  for (let n = 1; n <= 20_000; n++) {
    step.progress(n, 20_000, message);
    if (n % 20 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  end("done");
  await idle;
  await reader.ended;
  const { bytes, last } = await deaf.listen();

  // All of it would be 20 MB. Some of that is in the buffers of the sockets.
  assert.ok(bytes < 12_000_000, `${bytes} bytes`);
  assert.match(last, /"current":20000,.*"type":"run:complete"/s);
  assert.equal(progressOf(reader).at(-1), 20_000);
  await engine.stop();
  await server.shutdown();
});

Deno.test("Deno.serve() closes the stream of a client that never reads what cannot be left out", async () => {
  const { engine, server, url, port, begun, end } = aServer({ limits: { maxStreams: 1 } });
  const { id } = await engine.trigger("script", 1);
  const idle = engine.runUntilIdle();
  const step = await begun;
  const deaf = await connectDeaf(port, `/subscribe?runId=${id}`);
  for (let status = 200; status === 200;) { // until the stream is open
    const response = await fetch(`${url}/runs/subscribe`);
    ({ status } = response);
    await response.body!.cancel();
  }
  const message = "x".repeat(10_000);

  let open: Response | null = null;
  while (open === null) {
    for (let n = 0; n < 100; n++) step.log.info(message);
    const response = await fetch(`${url}/runs/subscribe`);
    if (response.status === 200) open = response;
    else await response.body!.cancel();
  }

  await open.body!.cancel();
  end("done");
  await idle;
  await engine.stop();
  await deaf[Symbol.asyncDispose](); // what its socket has not taken would keep the server from shutting down
  await server.shutdown();
});
