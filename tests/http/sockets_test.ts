import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import type { HandlerOptions } from "../../src/http/handler_options.ts";
import { MemoryStore } from "../../src/stores/memory/memory_store.ts";
import { EventReader } from "../support/http/event_reader.ts";
import { FakeHost } from "../support/fake_host.ts";
import { aService, type Service } from "../support/http/http.ts";
import { aJob } from "../support/jobs.ts";

/** A service on a real socket, under `/mount`. Its time stands still unless a test lets it pass. */
interface Server extends Service {
  /** What the host was told of what is hidden. */
  heard: unknown[];
  /** What the handler did not answer itself: nothing. */
  escaped: unknown[];
  /** Where it is served. */
  url: string;
  /** Opens a connection, and sends what a client sends. */
  connect(...sent: (string | Uint8Array)[]): Promise<Client>;
}

function aServer(options: HandlerOptions = {}, jobs = {}): Server {
  const heard: unknown[] = [];
  const host = new FakeHost();
  const store = new MemoryStore({ host });
  const onError = (error: unknown) => void heard.push(error);
  const service = aService({ basePath: "/mount", onError, ...options }, { store, host }, jobs);
  const escaped: unknown[] = [];
  const server = Deno.serve({
    hostname: "127.0.0.1",
    port: 0,
    onListen: () => {},
    onError: (error) => {
      escaped.push(error);
      return new Response(null, { status: 500 });
    },
  }, service.handler.fetch);
  return {
    ...service,
    heard,
    escaped,
    url: `http://127.0.0.1:${server.addr.port}/mount`,
    connect: (...sent) => Client.connect(server.addr.port, sent),
    [Symbol.asyncDispose]: async () => {
      await service.engine.stop();
      await server.shutdown();
    },
  };
}

/** What came back over a connection. */
interface Reply {
  status: number;
  headers: Headers;
  text: string;
}

/** A connection on which nothing is done but what a test asks for. */
class Client implements Disposable {
  readonly #connection: Deno.TcpConn;
  #received: Uint8Array<ArrayBuffer> = new Uint8Array();
  #isClosed = false;

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
  }

  static async connect(port: number, sent: (string | Uint8Array)[]): Promise<Client> {
    const client = new Client(await Deno.connect({ hostname: "127.0.0.1", port }));
    for (const part of sent) await client.send(part);
    return client;
  }

  /** Sends all of it; throws when nobody takes it any more. */
  async send(part: string | Uint8Array): Promise<void> {
    const bytes = typeof part === "string" ? bytesOf(part) : part;
    for (let sent = 0; sent < bytes.length;) sent += await this.#connection.write(bytes.subarray(sent));
  }

  /** Says that nothing more is to come, and goes on listening. */
  async endSending(): Promise<void> {
    await this.#connection.closeWrite();
  }

  /** Reads the next answer, or `null` if the connection ends without one. */
  async reply(): Promise<Reply | null> {
    const head = await this.#readUntil("\r\n\r\n");
    if (head === null) return null;
    const [line, ...fields] = head.split("\r\n");
    const headers = new Headers(
      fields.filter((field) => field !== "").map((field) => field.split(/:\s*/, 2) as [string, string]),
    );
    const text = await this.#readBytes(Number(headers.get("content-length") ?? 0));
    return { status: Number(line!.split(" ")[1]), headers, text };
  }

  /** Reads until something has come, or the connection has ended. */
  async hear(text: string): Promise<boolean> {
    return await this.#readUntil(text) !== null;
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#connection.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  async #readUntil(end: string): Promise<string | null> {
    while (true) {
      const text = new TextDecoder("latin1").decode(this.#received);
      const at = text.indexOf(end);
      if (at >= 0) {
        this.#received = this.#received.slice(at + end.length);
        return text.slice(0, at);
      }
      if (!await this.#receive()) return null;
    }
  }

  async #readBytes(count: number): Promise<string> {
    while (this.#received.length < count && await this.#receive());
    const bytes = this.#received.slice(0, count);
    this.#received = this.#received.slice(count);
    return new TextDecoder().decode(bytes);
  }

  async #receive(): Promise<boolean> {
    const buffer = new Uint8Array(65_536);
    const count = await this.#connection.read(buffer).catch(() => null); // reset by the server: as good as its end
    if (count === null) return false;
    const joined = new Uint8Array(this.#received.length + count);
    joined.set(this.#received);
    joined.set(buffer.subarray(0, count), this.#received.length);
    this.#received = joined;
    return true;
  }
}

const bytesOf = (text: string) => new TextEncoder().encode(text);
const TRIGGER = '{"jobName":"echo","input":{"n":1}}';

/** The head of a request. */
function head(method: string, path: string, ...fields: string[]): string {
  return [`${method} /mount${path} HTTP/1.1`, "Host: localhost", ...fields, "", ""].join("\r\n");
}

/** A whole request to trigger a run. */
function aTrigger(...fields: string[]): string {
  return head("POST", "/trigger", `Content-Length: ${TRIGGER.length}`, ...fields) + TRIGGER;
}

function aChunk(text: string): string {
  return `${bytesOf(text).length.toString(16)}\r\n${text}\r\n`;
}

/** Waits for what comes over a socket, which no fake clock can hurry. */
async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!await condition()) await setImmediate();
}

/** Sends a request on a new connection, and reads its answer. */
async function ask(server: Server, ...sent: (string | Uint8Array)[]): Promise<Reply | null> {
  using client = await server.connect(...sent);
  return await client.reply();
}

/** The answer is what a client may see, whatever it has sent. */
function assertRefused(reply: Reply | null, status: number, code: string): void {
  assert.equal(reply?.status, status);
  const body = JSON.parse(reply.text);
  assert.deepEqual([Object.keys(body).slice(0, 2), body.code], [["error", "code"], code]);
  assert.doesNotMatch(reply.text, /\n\s+at |file:\/\/|node:|ext:|SQLITE|holdfast_/);
}

/** The server does what it is there for. */
async function assertWell(server: Server): Promise<void> {
  const reply = await ask(server, aTrigger("Connection: close"));
  assert.equal(reply?.status, 200);
  assert.equal(JSON.parse(reply.text).disposition, "created");
  assert.deepEqual([server.heard, server.escaped], [[], []]);
}

async function countRuns({ engine }: Server): Promise<number> {
  return (await engine.getRuns({ limit: 0 })).total;
}

Deno.test("a body that says that it is too large is refused before it is sent", async () => {
  await using server = aServer();

  const reply = await ask(server, head("POST", "/trigger", "Content-Length: 1048577"));

  assertRefused(reply, 413, "body_too_large");
  await assertWell(server);
});

Deno.test("a body that says that it is as large as can be is refused before it is sent", async () => {
  await using server = aServer();

  const reply = await ask(server, head("POST", "/trigger", "Content-Length: 9223372036854775807"));

  assertRefused(reply, 413, "body_too_large");
  await assertWell(server);
});

Deno.test("a body in chunks without an end is refused when it has become too large", async () => {
  await using server = aServer();
  using client = await server.connect(head("POST", "/trigger", "Transfer-Encoding: chunked"));
  const chunk = aChunk(" ".repeat(65_536));
  let isAnswered = false;

  const replying = client.reply().finally(() => isAnswered = true);
  let sending = Promise.resolve();
  while (!isAnswered) {
    sending = client.send(chunk).catch(() => {}); // nobody may take it any more
    await Promise.race([sending, replying]);
  }
  const reply = await replying;
  client.close();
  await sending;

  assertRefused(reply, 413, "body_too_large");
  await assertWell(server);
});

Deno.test("a body in chunks is read whatever their sizes, extensions and trailers", async () => {
  await using server = aServer();
  const chunks = [...TRIGGER].map((letter) => `1;name="value"\r\n${letter}\r\n`).join("");
  const sent = `${head("POST", "/trigger", "Transfer-Encoding: chunked")}${chunks}0\r\nX-Trailer: 1\r\n\r\n`;

  const reply = await ask(server, sent);

  assert.equal(reply?.status, 200);
  assert.deepEqual((await server.engine.getRun(JSON.parse(reply.text).runId))!.payload, { n: 1 });
});

for (const [how, fields] of Object.entries({ length: "Content-Length: 1000", chunks: "Transfer-Encoding: chunked" })) {
  Deno.test(`a body by ${how} that stalls is answered after 10 seconds, and not before`, async () => {
    await using server = aServer();
    using client = await server.connect(head("POST", "/trigger", fields), how === "length" ? "{" : aChunk("{"));
    await until(() => server.host.timerCount === 1);
    let isAnswered = false;

    const replying = client.reply().finally(() => isAnswered = true);
    server.host.advance(9_999);
    await server.host.settle();
    const wasAnswered = isAnswered;
    server.host.advance(1);
    const reply = await replying;

    assert.equal(wasAnswered, false);
    assertRefused(reply, 408, "body_timeout");
    assert.equal(reply?.headers.get("connection"), "close");
    assert.deepEqual([server.host.timerCount, await countRuns(server)], [0, 0]);
    await assertWell(server);
  });

  for (const leave of ["closes the connection", "sends no more"]) {
    Deno.test(`a client who ${leave} in the middle of a body by ${how} leaves nothing behind`, async () => {
      await using server = aServer();
      using client = await server.connect(
        head("POST", "/trigger", fields),
        how === "length" ? TRIGGER : aChunk(TRIGGER),
      );
      await until(() => server.host.timerCount === 1);

      if (leave === "closes the connection") client.close();
      else await client.endSending();
      await until(() => server.host.timerCount === 0);

      assert.equal(await countRuns(server), 0);
      await assertWell(server);
    });
  }
}

Deno.test("a client who leaves while a hook decides gets nothing, and harms nothing", async () => {
  const asked = Promise.withResolvers<void>();
  const decided = Promise.withResolvers<void>();
  let isFirst = true;
  await using server = aServer({
    onRequest: () => {
      if (!isFirst) return;
      isFirst = false;
      asked.resolve();
      return decided.promise;
    },
  });
  const client = await server.connect(head("POST", "/trigger", "Content-Length: 1000"), TRIGGER);

  await asked.promise;
  client.close();
  decided.resolve();
  await until(() => server.host.timerCount === 0);

  assert.equal(await countRuns(server), 0);
  await assertWell(server);
});

Deno.test("a Content-Length that is too small makes of the rest another request, which is looked at like any other", async () => {
  await using server = aServer();
  const body = `{}${head("POST", "/trigger", "Content-Length: 2", "Sec-Fetch-Site: cross-site")}{}`;
  using client = await server.connect(head("POST", "/trigger", "Content-Length: 2"), body);

  const replies = [await client.reply(), await client.reply()];

  assertRefused(replies[0]!, 400, "invalid_request");
  assertRefused(replies[1]!, 403, "cross_origin");
  await assertWell(server);
});

const AMBIGUOUS: Record<string, string> = {
  "two lengths": head("POST", "/trigger", `Content-Length: ${TRIGGER.length}`, "Content-Length: 5") + TRIGGER,
  "a length below zero": head("POST", "/trigger", "Content-Length: -5") + TRIGGER,
  "a length that is no number": head("POST", "/trigger", "Content-Length: 0x22") + TRIGGER,
  "a length beyond 64 bits": head("POST", "/trigger", "Content-Length: 99999999999999999999") + TRIGGER,
  "a length beside chunks": head("POST", "/trigger", "Content-Length: 5", "Transfer-Encoding: chunked") +
    `${aChunk(TRIGGER)}0\r\n\r\n`,
  "a chunk whose size is none": `${head("POST", "/trigger", "Transfer-Encoding: chunked")}zz\r\n${TRIGGER}`,
  "a transfer encoding that nobody knows": head("POST", "/trigger", "Transfer-Encoding: gzip") + TRIGGER,
  "a field without a name": head("GET", "/runs", ": x"),
  "a field with a blank before its colon": head("GET", "/runs", "Accept : */*"),
  "a folded field": head("GET", "/runs", "Accept: a", " b"),
  "a field with U+0000": head("GET", "/runs", "Accept: a\0b"),
  "two hosts": head("GET", "/runs", "Host: evil.example"),
  "a path with a blank": "GET /mount/ru ns HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "a path that is none": "GET mount/runs HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "no path": "GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
  "a path of 70,000 letters": head("GET", `/${"a".repeat(70_000)}`),
  "a thousand fields": head("GET", "/runs", ...Array.from({ length: 1_000 }, (_, n) => `X-${n}: v`)),
  "an unknown version": "GET /mount/runs HTTP/3.7\r\nHost: localhost\r\n\r\n",
  "no version": "GET /mount/runs\r\n\r\n",
  "a handshake of TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
};

for (const [what, sent] of Object.entries(AMBIGUOUS)) {
  Deno.test(`a server refuses, or ends, a connection that sends ${what}`, async () => {
    await using server = aServer();

    const reply = await ask(server, sent);

    assert.ok(reply === null || reply.status >= 400 && reply.status < 500, `${reply?.status}`);
    assert.doesNotMatch(reply?.text ?? "", /\n\s+at |file:\/\//);
    assert.equal(await countRuns(server), 0);
    await assertWell(server);
  });
}

const PATHS: [path: string, status: number][] = [
  ["/mount/runs", 200],
  ["/mount/x/../runs", 200],
  ["/mount/./runs", 200],
  ["/mount/%2e/runs", 200],
  ["/x/%2E%2e/mount/runs", 200],
  ["/mount\\runs", 200],
  ["/mount/runs#/nowhere", 200],
  ["http://localhost/mount/runs", 200],
  ["http://evil.example/mount/runs", 200],
  ["http://user:password@evil.example/mount/runs", 200],
  ["/mount/runs?limit=%zz", 400],
  ["/mount/runs?limit=1%00", 400],
  ["/mount/run?runId=%ff", 404],
  ["/mount/run?runId=%f0%9f%92%a9", 404],
  ["/mount/../x", 404],
  ["/mount/../runs", 404],
  ["/mount/runs/..", 404],
  ["/", 404],
  ["//", 404],
  ["///mount/runs", 404],
  ["//evil.example/mount/runs", 404],
  ["/\\evil.example/mount/runs", 404],
  ["/mount//runs", 404],
  ["/mount/runs/", 404],
  ["/mount/%72uns", 404],
  ["/%6dount/runs", 404],
  ["/mount%2Fruns", 404],
  ["/mount/runs%2Fsubscribe", 404],
  ["/mount/runs%00", 404],
  ["/mount/runs%0d%0a", 404],
  ["/mount/runs;x=1", 404],
  ["/mount/%ff", 404],
  ["/mountx/runs", 404],
  ["/x/mount/runs", 404],
  ["/file:///etc/passwd", 404],
  ["http://evil.example:99999/mount/runs", 400],
  ["http://[::1/mount/runs", 400],
];

for (const [path, status] of PATHS) {
  Deno.test(`a server answers ${status} to ${path}`, async () => {
    await using server = aServer();

    const reply = await ask(server, `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);

    if (status === 200) assert.deepEqual(JSON.parse(reply!.text), { runs: [], total: 0, hasMore: false });
    else assertRefused(reply, status, status === 404 ? "not_found" : "invalid_request");
    assert.deepEqual([reply!.status, server.heard], [status, []]);
  });
}

const HOSTS: [fields: string, status: number][] = [
  ["", 200],
  ["Host: \r\n", 200],
  ["Host: evil.example\r\n", 200],
  ["Host: user@evil.example:1\r\n", 200],
  ["Host: b\u00fcro\r\n", 200],
  ["Host: a b\r\n", 400],
  ["Host: [::1\r\n", 400],
  ["Host: evil.example:99999\r\n", 400],
  ["Host: %00\r\n", 400],
];

for (const [fields, status] of HOSTS) {
  Deno.test(`a server answers ${status} to ${fields.trim() || "a request without a host"}`, async () => {
    await using server = aServer();

    const reply = await ask(server, `GET /mount/runs HTTP/1.1\r\n${fields}\r\n`);

    assert.deepEqual([reply?.status, server.heard], [status, []]);
  });
}

const LEADING_HOSTS: [host: string, path: string][] = [
  ["evil.example/mount", "/cancel?runId=ID"],
  ["evil.example/mount/cancel?runId=ID&", "/public"],
  ["evil.example/mount/cancel?runId=ID#", "/public"],
  ["evil.example\\mount\\cancel?runId=ID#", "/public"],
  ["evil.example?", "/mount/cancel?runId=ID"],
  ["evil.example#", "/mount/cancel?runId=ID"],
];

for (const [host, path] of LEADING_HOSTS) {
  // RFC 9112, section 3.2: a request whose Host is none is to be refused. Deno makes a URL of it all the same.
  Deno.test(`a server takes no part of a path from Host: ${host}`, async () => {
    await using server = aServer();
    const { id } = await server.engine.trigger("approval", {});
    const request = `POST ${path} HTTP/1.1\r\nHost: ${host}\r\nContent-Length: 0\r\n\r\n`;

    const reply = await ask(server, request.replace("ID", id));

    assert.ok([400, 404].includes(reply!.status), `${reply?.status}`);
    assert.equal((await server.engine.getRun(id))!.status, "pending");
    assert.deepEqual(server.heard, []);
  });
}

Deno.test("a server answers HTTP/1.0, with and without a host", async () => {
  await using server = aServer();

  const replies = [
    await ask(server, "GET /mount/runs HTTP/1.0\r\n\r\n"),
    await ask(server, "GET /mount/runs HTTP/1.0\r\nHost: localhost\r\n\r\n"),
    await ask(server, `POST /mount/trigger HTTP/1.0\r\nContent-Length: ${TRIGGER.length}\r\n\r\n${TRIGGER}`),
    await ask(server, `POST /mount/trigger HTTP/1.0\r\n\r\n${TRIGGER}`),
  ];

  assert.deepEqual(replies.map((reply) => reply?.status), [200, 200, 200, 400]);
  assert.equal(await countRuns(server), 1);
});

Deno.test("a server answers pipelined requests in their order, those that are refused as well", async () => {
  await using server = aServer();
  using client = await server.connect(
    aTrigger() + head("GET", "/nowhere") + head("POST", "/trigger", "Content-Length: 1") + "{" +
      head("POST", "/runs") + head("GET", "/runs?limit=0"),
  );

  const replies = [];
  for (let n = 0; n < 5; n++) replies.push(await client.reply());

  assert.deepEqual(replies.map((reply) => reply?.status), [200, 404, 400, 405, 200]);
  assert.equal(JSON.parse(replies[4]!.text).total, 1);
});

Deno.test("a server answers 405 to methods that nobody knows, and 404 to CONNECT", async () => {
  await using server = aServer();
  const methods = ["TRACE", "get", "PROPFIND", "X".repeat(100), "__proto__"];

  const replies = await Promise.all(methods.map((method) => ask(server, head(method, "/runs"))));
  const connect = await ask(server, "CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example\r\n\r\n");

  for (const reply of replies) {
    assertRefused(reply, 405, "method_not_allowed");
    assert.equal(reply!.headers.get("allow"), "GET");
  }
  assertRefused(connect, 404, "not_found");
});

const ODD_FIELDS: [what: string, status: number, fields: string[]][] = [
  ["bytes that are no ASCII", 200, ["X-Odd: b\u00fc\u0100\u{1f4a9}", "Cookie: \u00e9=\u00e9; =; ;"]],
  ["another content type twice", 200, ["Content-Type: text/html", "Content-Type: application/json"]],
  ["an upgrade, which has no body", 400, [
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: x",
  ]],
  ["an expectation that nobody knows", 200, ["Expect: 200-maybe"]],
  ["another method in a field", 200, ["X-HTTP-Method-Override: DELETE", "X-Original-URL: /mount/cancel"]],
  ["a value of 50,000 letters", 200, [`X-Long: ${"a".repeat(50_000)}`]],
  ["identity twice", 415, ["Content-Encoding: identity", "Content-Encoding: identity"]],
  ["gzip beside identity", 415, ["Content-Encoding: identity", "Content-Encoding: gzip"]],
  ["two sites", 403, ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"]],
  ["two origins", 403, ["Origin: http://localhost", "Origin: http://evil.example"]],
  ["an origin of bytes", 403, ["Origin: http://\u00ff\u0100"]],
];

for (const [what, status, fields] of ODD_FIELDS) {
  Deno.test(`a server answers ${status} to fields with ${what}`, async () => {
    await using server = aServer();

    const reply = await ask(server, aTrigger(...fields));

    assert.deepEqual([reply?.status, await countRuns(server)], [status, status === 200 ? 1 : 0]);
    await assertWell(server);
  });
}

Deno.test("a client that waits to be told to go on is told so, and may send a wrong body", async () => {
  await using server = aServer();
  using client = await server.connect(head("POST", "/trigger", "Content-Length: 2", "Expect: 100-continue"));

  const first = await client.reply();
  await client.send("[]");
  const second = await client.reply();

  assert.equal(first?.status, 100);
  assertRefused(second, 400, "invalid_request");
});

Deno.test("a Response that a hook throws again and again is sent each time, and does not end the server", async () => {
  const thrown = new Response("no", { status: 401 });
  let isOver = false;
  await using server = aServer({ onRequest: () => isOver ? undefined : Promise.reject(thrown) });

  const replies = [];
  for (let n = 0; n < 3; n++) replies.push(await ask(server, head("GET", "/runs")));
  isOver = true;
  replies.push(await ask(server, head("GET", "/runs")));

  assert.deepEqual(replies.map((reply) => reply?.status), [401, 401, 401, 200]);
  assert.equal(server.heard.length + server.escaped.length, 0);
});

for (const leave of ["closes the connection", "sends no more, then closes the connection"]) {
  Deno.test(`a reader of a stream who ${leave} makes room for another`, async () => {
    await using server = aServer({ limits: { maxStreams: 1 } });
    using first = await server.connect(head("GET", "/runs/subscribe"));
    await first.hear("text/event-stream");
    const isRefused = (await ask(server, head("GET", "/runs/subscribe")))?.status;

    if (leave !== "closes the connection") await first.endSending();
    first.close();
    await until(async () => {
      using next = await server.connect(head("GET", "/runs/subscribe"));
      return (await next.reply())?.status === 200;
    });

    assert.equal(isRefused, 503);
    await until(() => server.host.timerCount === 0);
    await assertWell(server);
  });
}

Deno.test("a stream tells a run on a real socket in whole events, whatever texts are in them", async () => {
  const odd = "\r\n\r\ndata: {}\n\nevent: x\u2028\u0000";
  const tells = aJob((step) => {
    step.log.info(odd);
    return odd;
  }, "tells");
  await using server = aServer({}, { tells });
  const { id } = await server.engine.trigger("tells", { odd });
  const reader = new EventReader(await fetch(`${server.url}/subscribe?runId=${id}`));

  await server.engine.runUntilIdle();
  await reader.ended;

  assert.deepEqual(reader.types, ["run:leased", "run:start", "log:write", "run:complete"]);
  assert.deepEqual(reader.events.flatMap((event) => event.type === "run:complete" ? [event.output] : []), [odd]);
  await assertWell(server);
});

Deno.test("two thousand bodies that stall keep no good request waiting, and all end at their time", async () => {
  const count = 2_000;
  await using server = aServer();
  const clients: Client[] = [];
  for (let n = 0; n < count; n += 100) {
    const connecting = Array.from(
      { length: 100 },
      () => server.connect(head("POST", "/trigger", "Content-Length: 1000"), "{"),
    );
    clients.push(...await Promise.all(connecting));
  }
  await until(() => server.host.timerCount === count);

  const good = await ask(server, aTrigger("Connection: close"));
  server.host.advance(10_000);
  const replies = await Promise.all(clients.map((client) => client.reply()));
  for (const client of clients) client.close();

  assert.equal(good?.status, 200);
  assert.deepEqual([...new Set(replies.map((reply) => reply?.status))], [408]);
  assert.deepEqual([server.host.timerCount, await countRuns(server)], [0, 1]);
  await assertWell(server);
});
