import assert from "node:assert/strict";
import process from "node:process";
import { type ClientEvent, createClient } from "../../src/client/mod.ts";
import { aService, type SendRequest } from "./a_service.ts";

/** Ends the body of an answer after each message, once for each number of messages that it is to let through. */
function cutting(messages: number[]): (request: Request, send: SendRequest) => Promise<Response> {
  return async (request, send) => {
    const response = await send(request);
    if (!isStream(request) || response.body === null) return response;
    const most = messages.shift() ?? Infinity;
    if (most === Infinity) return response;
    let seen = "";
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      transform(bytes, controller) {
        for (const byte of bytes) {
          seen += String.fromCharCode(byte);
          controller.enqueue(Uint8Array.of(byte));
          if (seen.split("\n\n").length > most) return controller.terminate();
        }
      },
    });
    return new Response(response.body.pipeThrough(cut), response);
  };
}

function isStream(request: Request): boolean {
  return new URL(request.url).pathname.endsWith("/subscribe");
}

function typesOf(events: readonly { type: string }[]): string[] {
  return events.map(({ type }) => type);
}

Deno.test("watch() begins with a snapshot, shows each event, and ends with the run", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("approve", {});
  const seen: string[] = [];

  for await (const event of client.watch(runId)) {
    seen.push(event.type);
    if (event.type === "snapshot" && event.run.status === "waiting" || event.type === "run:waiting") {
      const [wait] = await client.waits(runId);
      await client.signal(runId, wait!.id, { signalId: "s", payload: 1 });
    }
  }

  assert.equal(seen[0], "snapshot");
  assert.equal(seen.filter((type) => type === "snapshot").length, 1);
  assert.equal(seen.at(-1), "run:complete");
});

Deno.test("watch() of a run that has ended shows the snapshot and the last event", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("greet", { name: "Ada" });
  await client.waitForRun(runId);

  const seen = await Array.fromAsync(client.watch(runId));

  assert.deepEqual(typesOf(seen), ["snapshot", "run:complete"]);
});

Deno.test("watch() resumes with the last id after a connection that breaks, and misses nothing", async () => {
  const lastIds: (string | null)[] = [];
  const cut = cutting(Array.from({ length: 8 }, () => 3));
  await using service = await aService({
    between: (request, send) => {
      if (isStream(request)) lastIds.push(new URL(request.url).searchParams.get("lastEventId"));
      return cut(request, send);
    },
  });
  const { client, engine } = service;
  const whole: string[] = [];
  engine.on("*", (event) => void ("runId" in event && whole.push(event.type)));
  const { runId } = await client.trigger("approve", {});

  const seen = new Map<number, string>();
  for await (const event of client.watch(runId)) {
    if (event.type === "snapshot") continue;
    seen.set(event.sequence, event.type);
    if (event.type !== "run:waiting") continue;
    const [wait] = await client.waits(runId);
    await client.signal(runId, wait!.id, { signalId: "s", payload: 1 });
  }

  assert.ok(lastIds.length > 2, `${lastIds.length} connections`);
  assert.equal(lastIds[0], null);
  assert.ok(lastIds.at(-1) !== null);
  assert.deepEqual([...seen.keys()], [...seen.keys()].toSorted((a, b) => a - b));
  assert.deepEqual([...seen.values()], whole.slice(-seen.size));
});

/** Ends the pauses between connections: the browser is online again, all the time. */
function hurry() {
  const timer = setInterval(() => globalThis.dispatchEvent(new Event("online")), 5);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** What `watch()` shows of a service whose streams are these, one after another; after them comes 404. */
async function watchStreams(...streams: (() => Response)[]) {
  using _ = hurry();
  const events: ({ type: string } & Record<string, unknown>)[] = [];
  const lastIds: (string | null)[] = [];
  const client = createClient({
    url: "http://127.0.0.1/",
    fetch: (url) => {
      const { pathname, searchParams } = url as URL;
      if (pathname !== "/subscribe") return Promise.resolve(Response.json([]));
      lastIds.push(searchParams.get("lastEventId"));
      return Promise.resolve(streams.shift()?.() ?? new Response("{}", { status: 404 }));
    },
  });
  const watching = async () => {
    for await (const event of client.watch("r")) events.push(event as { type: string });
  };
  const error = await watching().catch((error) => error);
  return { events, lastIds, error };
}

/** A stream of messages: an id, or an event, with a number that is its own. */
function aStream(...messages: (string | { type: string; [field: string]: unknown })[]): () => Response {
  const texts = messages.map((message, sequence) =>
    typeof message === "string" ? `id: ${message}\n\n` : `data: ${JSON.stringify({ ...message, sequence })}\n\n`
  );
  return () => new Response(texts.join(""));
}

const FIELDS = { runId: "r", jobName: "j", labels: { timestamp: "{" } };

/** An event of a run. */
function anEvent(type: string, second: number, fields: object = {}) {
  return { type, ...fields, ...FIELDS, timestamp: `2030-01-01T00:00:0${second}.000Z` };
}

Deno.test("watch() shows no event twice: those after the last id come again, with other numbers", async () => {
  const tick = anEvent("log:write", 1, { message: "tick", data: { timestamp: 1 } });
  const [begun, done] = [anEvent("step:start", 1), anEvent("run:complete", 2)];

  const { events, lastIds } = await watchStreams(
    aStream("1-a", begun, tick, tick),
    aStream(begun, tick),
    aStream(begun, tick, tick, tick, "5-a", tick),
    aStream(tick, done, "7-a"),
  );

  assert.deepEqual(lastIds, [null, "1-a", "1-a", "5-a"]);
  assert.deepEqual(typesOf(events), ["snapshot", "step:start", ...Array(4).fill("log:write"), "run:complete"]);
});

Deno.test("watch() shows the latest progress once, with which a stream goes on", async () => {
  const progress = (current: number, second: number) => anEvent("run:progress", second, { progress: { current } });

  const { events } = await watchStreams(
    aStream("1-a", progress(1, 1), "2-a", progress(2, 1), "3-a", anEvent("step:start", 2), "4-a"),
    aStream(progress(2, 3), "4-a", progress(2, 4)),
    aStream(progress(3, 5), "6-a", anEvent("run:complete", 6)),
  );

  const shown = events.flatMap(({ progress }) => progress === undefined ? [] : [(progress as { current: 1 }).current]);
  assert.deepEqual(shown, [1, 2, 2, 3]);
});

Deno.test("watch() of a tenant shows each event once through connections that break after each message", async () => {
  using _ = hurry();
  await using service = await aService({
    between: cutting([2, ...Array.from({ length: 40 }, (_, n) => 1 + n % 3)]),
    handler: {
      auth: {
        authenticate: () => ({}),
        onRunAccess: () => {},
        onTrigger: () => {},
        scopeRuns: (_context, filter) => filter,
        tenant: () => "ana",
      },
    },
  });
  const { client, engine } = service;
  const whole: string[] = [];
  engine.on("*", (event) => void ("runId" in event && whole.push(event.type)));
  const { runId } = await client.trigger("approve", {});

  const seen: string[] = [];
  for await (const event of client.watch(runId)) {
    if (event.type !== "snapshot") seen.push(event.type);
    if (event.type !== "run:waiting") continue;
    const [wait] = await client.waits(runId);
    await client.signal(runId, wait!.id, { signalId: "s", payload: 1 });
  }

  assert.deepEqual(seen, whole.slice(-seen.length));
  assert.ok(seen.length > 3, `${seen}`);
});

/** Calls back at once what timers are set for, and returns their milliseconds. */
function skipTime() {
  const { setTimeout } = globalThis;
  const pauses: number[] = [];
  globalThis.setTimeout = ((callback: () => void, ms: number) => {
    if (ms !== 45_000) pauses.push(ms); // the time without a message
    return setTimeout(callback, ms === 45_000 ? ms : 0);
  }) as typeof setTimeout;
  return { pauses, [Symbol.dispose]: () => void (globalThis.setTimeout = setTimeout) };
}

/** An answer of a service that is busy. */
function busy(retryAfter?: number): () => Response {
  return () => new Response("{}", { status: 503, headers: { "retry-after": `${retryAfter ?? ""}` } });
}

Deno.test("watch() pauses for half a second to one at first, then twice as long each time, and anew after a message", async () => {
  using time = skipTime();

  await watchStreams(busy(), busy(), busy(), aStream("1-a"), busy());

  const shortest = [500, 1_000, 2_000, 500, 1_000];
  assert.equal(time.pauses.length, shortest.length);
  shortest.forEach((ms, at) => {
    const pause = time.pauses[at]!;
    assert.ok(pause >= ms && pause <= 2 * ms, `pause ${at}: ${pause} ms`);
  });
});

Deno.test("watch() pauses also if the service asks for a longer time than a timer can have", async () => {
  using time = skipTime();

  const { lastIds, error } = await watchStreams(busy(30 * 86_400));

  assert.equal(error.status, 404);
  assert.equal(lastIds.length, 2);
  assert.ok(time.pauses[0]! > 20 * 86_400_000 && time.pauses[0]! < 2 ** 31, `${time.pauses}`);
});

Deno.test("watch() ends with the error of headers() that throw, also when it reconnects", async () => {
  const reason = new Error("no token");
  let calls = 0;
  await using service = await aService({
    between: cutting([1, 1, 1, 1]),
    headers: () => {
      if (++calls === 5) throw reason;
      return {};
    },
  });
  const { runId } = await service.client.trigger("approve", {});

  await assert.rejects(Array.fromAsync(service.client.watch(runId)), reason);

  assert.equal(calls, 5);
});

Deno.test("watch() ends when a message has no end, and does not keep more than 64 Mi characters of it", async () => {
  let chunks = 0;
  const endless = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(1 << 20).fill(120, ++chunks)),
  });

  const { error } = await watchStreams(() => new Response(endless));

  assert.ok(error instanceof RangeError, `${error}`);
  assert.ok(chunks < 80, `${chunks} MiB were read`);
});

Deno.test("watch() reads the state again when the service does not have the missed events any more", async () => {
  let connections = 0;
  await using service = await aService({
    between: async (request, send) => {
      if (!isStream(request)) return await send(request);
      connections++;
      if (connections === 1) return new Response('id: 1-a\n\ndata: {"type":"run:start"}\n\n');
      return new Response('event: gap\r\ndata: {"type":"gap"}\r\n\r\nretry: 5\n\ndata: {"type":"run:complete"}\n\n');
    },
  });
  const { runId } = await service.client.trigger("greet", { name: "Ada" });

  const seen = await Array.fromAsync(service.client.watch(runId));

  assert.deepEqual(typesOf(seen), ["snapshot", "run:start", "snapshot", "run:complete"]);
});

Deno.test("watch() reads the state again after a break of a stream without ids", async () => {
  let connections = 0;
  await using service = await aService({
    between: async (request, send) => {
      if (!isStream(request)) return await send(request);
      const type = ++connections === 1 ? "run:start" : "run:complete";
      return new Response(`: hello\n\ndata: {"type":"${type}","note":"\u2028"}\n\n`);
    },
  });
  const { runId } = await service.client.trigger("greet", { name: "Ada" });

  const seen = await Array.fromAsync(service.client.watch(runId));

  assert.deepEqual(typesOf(seen), ["snapshot", "run:start", "snapshot", "run:complete"]);
  assert.equal((seen[3] as ClientEvent & { note: string }).note, "\u2028");
});

Deno.test("watch() ends where the service says that there is nothing more", async () => {
  await using service = await aService({
    between: (request, send) =>
      isStream(request) ? Promise.resolve(new Response(null, { status: 204 })) : send(request),
  });

  assert.deepEqual(await Array.fromAsync(service.client.watch("x")), []);
});

Deno.test("watch() connects again after 503, not before the service asks for, and ends at 401", async () => {
  const at: number[] = [];
  await using service = await aService({
    between: (request, send) => {
      if (!isStream(request)) return send(request);
      at.push(Date.now());
      return Promise.resolve(
        at.length === 1
          ? new Response("{}", { status: 503, headers: { "retry-after": "1" } })
          : Response.json({ error: "Who?", code: "unauthorized" }, { status: 401 }),
      );
    },
  });

  await assert.rejects(Array.fromAsync(service.client.watch("x")), { code: "unauthorized", status: 401 });

  assert.equal(at.length, 2);
  assert.ok(at[1]! - at[0]! >= 990, `${at[1]! - at[0]!} ms`);
});

Deno.test("watch() shows no waits to a caller who may not read them", async () => {
  await using service = await aService({
    between: (request, send) =>
      new URL(request.url).pathname.endsWith("/waits")
        ? Promise.resolve(Response.json({ error: "No", code: "forbidden" }, { status: 403 }))
        : send(request),
  });
  const { runId } = await service.client.trigger("greet", { name: "Ada" });

  const [snapshot] = await Array.fromAsync(service.client.watch(runId));

  assert.ok(snapshot?.type === "snapshot");
  assert.deepEqual(snapshot.waits, []);
});

Deno.test("a loop over watch() that is left closes its connection, and so does an abort", async () => {
  await using service = await aService();
  const { client } = service;
  const { runId } = await client.trigger("approve", {});
  const ending = new AbortController();
  const reason = new Error("enough");

  for await (const event of client.watch(runId)) if (event.type === "snapshot") break;
  const aborted = async () => {
    for await (const _ of client.watch(runId, { abortSignal: ending.signal })) setTimeout(() => ending.abort(reason));
  };

  await assert.rejects(aborted(), reason);
});

Deno.test("an abort ends a stream that a fetch has not tied to the signal", async () => {
  const ending = new AbortController();
  const reason = new Error("enough");
  let cancelledBy: unknown;
  await using service = await aService({
    between: (request, send) => {
      if (!isStream(request)) return send(request);
      const body = new ReadableStream({ cancel: (why) => void (cancelledBy = why) });
      return Promise.resolve(new Response(body));
    },
  });
  const { runId } = await service.client.trigger("approve", {});

  const watching = async () => {
    for await (const _ of service.client.watch(runId, { abortSignal: ending.signal })) {
      setTimeout(() => ending.abort(reason), 20);
    }
  };

  await assert.rejects(watching(), reason);
  assert.equal(cancelledBy, reason);
});

Deno.test("an abort ends the pause before the next connection", async () => {
  const ending = new AbortController();
  await using service = await aService({
    between: () => Promise.resolve(new Response("{}", { status: 503, headers: { "retry-after": "3600" } })),
  });

  const watching = Array.fromAsync(service.client.watch("x", { abortSignal: ending.signal }));
  setTimeout(() => ending.abort(new Error("enough")), 20);

  await assert.rejects(watching, { message: "enough" });
});

Deno.test("the browser's event online ends the pause before the next connection", async () => {
  let connections = 0;
  await using service = await aService({
    between: (request, send) => {
      if (!isStream(request)) return send(request);
      const isFirst = ++connections === 1;
      if (isFirst) setTimeout(() => globalThis.dispatchEvent(new Event("online")), 20);
      return Promise.resolve(new Response("{}", { status: isFirst ? 503 : 404, headers: { "retry-after": "3600" } }));
    },
  });

  await assert.rejects(Array.fromAsync(service.client.watch("x")), { status: 404 });
});

Deno.test("watchRuns() begins with the newest runs, and shows the events of those that fit", async () => {
  await using service = await aService();
  const { client, engine } = service;
  await engine.trigger("greet", { name: "old" }, { labels: { org: "a" }, delay: 60_000 });

  const seen: string[] = [];
  for await (const event of client.watchRuns({ jobName: "greet", labels: { org: "a" } })) {
    if (event.type === "snapshot") {
      seen.push(`${event.page.total} runs`);
      await engine.trigger("greet", { name: "b" }, { labels: { org: "b" } });
      await engine.trigger("greet", { name: "a" }, { labels: { org: "a" } });
    } else seen.push(`${event.type} ${event.labels.org}`);
    if (event.type === "run:complete") break;
  }

  assert.deepEqual(seen.filter((type) => !type.startsWith("step:")), [
    "1 runs",
    "run:trigger a",
    "run:leased a",
    "run:start a",
    "run:complete a",
  ]);
});

Deno.test("watch() takes an output in time in proportion to its size, whatever it has", async () => {
  const output = [...Array.from({ length: 40_000 }, () => "timestamp"), {}];
  const event = { type: "run:complete", output, timestamp: "2030-01-01T00:00:00.000Z", sequence: 1 };
  await using service = await aService({
    between: (request, send) =>
      isStream(request) ? Promise.resolve(new Response(`data: ${JSON.stringify(event)}\n\n`)) : send(request),
  });
  const { runId } = await service.client.trigger("greet", { name: "Ada" });
  const { user: before } = process.cpuUsage();

  const seen = await Array.fromAsync(service.client.watch(runId));

  const { user } = process.cpuUsage();
  assert.deepEqual(seen.at(-1), event);
  assert.ok(user - before < 3_000_000, `${user - before} us`); // a pattern that looked for the end took half a minute
});
