import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer, type IncomingMessage } from "node:http";
import { listen, toNodeListener } from "../../src/node/listen.ts";

/** What a server answers to a request that is written by hand. */
async function sendRaw(port: number, lines: readonly string[]): Promise<string> {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  await connection.write(new TextEncoder().encode([...lines, "Connection: close", "", ""].join("\r\n")));
  return await new Response(connection.readable).text();
}

for (
  const [what, lines] of [
    ["the method TRACE", ["TRACE / HTTP/1.1", "Host: localhost"]],
    ["an address that is not valid", ["GET http://:x/ HTTP/1.1", "Host: localhost"]],
    ["a host that is not valid", ["GET / HTTP/1.1", "Host: a b"]],
  ] as const
) {
  Deno.test(`listen() answers 400 to ${what}, and serves the next request`, async () => {
    const server = await listen({ fetch: () => new Response("served") }, { port: 0, hostname: "127.0.0.1" });
    const { port } = server.address() as AddressInfo;

    const refused = await sendRaw(port, lines);
    const served = await fetch(`http://127.0.0.1:${port}/`);

    const text = await served.text();
    server.closeAllConnections();
    server.close();
    await once(server, "close");
    assert.match(refused, /^HTTP\/1\.1 400 /);
    assert.match(refused, /cross-origin-resource-policy: same-origin\r\n/i);
    assert.match(refused, /x-content-type-options: nosniff\r\n/i);
    assert.equal(text, "served");
  });
}

Deno.test("listen() takes the host from the Host header, though the path begins with two slashes", async () => {
  const server = await listen({ fetch: ({ url }) => new Response(url) }, { port: 0, hostname: "127.0.0.1" });
  const { port } = server.address() as AddressInfo;

  const answer = await sendRaw(port, ["GET //example.org/api HTTP/1.1", "Host: localhost"]);

  server.close();
  await once(server, "close");
  assert.match(answer, /http:\/\/localhost\/\/example\.org\/api/);
});

const LARGE = "x".repeat(8_000_000);

for (
  const [what, head, body] of [
    ["with its length", `Content-Length: ${LARGE.length}`, LARGE],
    ["in parts", "Transfer-Encoding: chunked", `${LARGE.length.toString(16)}\r\n${LARGE}\r\n0\r\n\r\n`],
  ] as const
) {
  Deno.test(`listen() answers before it has all of a large body, sent ${what}, and serves the next request`, async () => {
    const refuse = async (request: Request) => {
      const reader = request.body?.getReader();
      await reader?.read();
      await reader?.cancel();
      return new Response("answered");
    };
    const server = await listen({ fetch: refuse }, { port: 0, hostname: "127.0.0.1" });
    const { port } = server.address() as AddressInfo;
    using connection = await Deno.connect({ hostname: "127.0.0.1", port });
    const requests = `POST / HTTP/1.1\r\nHost: a\r\n${head}\r\n\r\n${body}` +
      "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    const [answers] = await Promise.all([
      new Response(connection.readable).text(),
      new Blob([requests]).stream().pipeTo(connection.writable, { preventClose: true }),
    ]);

    server.close();
    await once(server, "close");
    assert.equal(answers.split("answered").length, 3, answers);
  });
}

Deno.test("listen() rejects when the port is in use", async () => {
  const handler = { fetch: () => new Response() };
  const server = await listen(handler, { port: 0, hostname: "127.0.0.1" });
  const { port } = server.address() as AddressInfo;

  const second = listen(handler, { port, hostname: "127.0.0.1" });

  await assert.rejects(second, { code: "EADDRINUSE" });
  server.close();
  await once(server, "close");
});

Deno.test("listen() aborts the signal of a request whose client has left", async () => {
  const asked = Promise.withResolvers<Request>();
  const left = Promise.withResolvers<void>();
  const handler = {
    fetch: async (request: Request) => {
      request.signal.addEventListener("abort", () => left.resolve());
      asked.resolve(request);
      await left.promise;
      return new Response();
    },
  };
  const server = await listen(handler, { port: 0, hostname: "127.0.0.1" });
  const { port } = server.address() as AddressInfo;
  const client = new AbortController();
  const answer = fetch(`http://127.0.0.1:${port}/`, { signal: client.signal });
  const { signal } = await asked.promise;

  assert.equal(signal.aborted, false);
  client.abort();
  await assert.rejects(answer);
  await left.promise;

  server.close();
  await once(server, "close");
});

Deno.test("listen() cancels the body of a response whose client left before there was one", async () => {
  const asked = Promise.withResolvers<void>();
  let isCancelled = false;
  const handler = {
    fetch: async ({ url, signal }: Request) => {
      if (!url.endsWith("/stream")) return new Response("served");
      asked.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      return new Response(new ReadableStream({ cancel: () => void (isCancelled = true) }));
    },
  };
  const server = await listen(handler, { port: 0, hostname: "127.0.0.1" });
  const { port } = server.address() as AddressInfo;
  const client = new AbortController();
  const answer = fetch(`http://127.0.0.1:${port}/stream`, { signal: client.signal });
  await asked.promise;

  client.abort();
  await assert.rejects(answer);
  const next = await fetch(`http://127.0.0.1:${port}/`);
  await next.text();
  const last = await fetch(`http://127.0.0.1:${port}/`);
  await last.text();

  assert.equal(isCancelled, true);
  server.closeAllConnections();
  server.close();
  await once(server, "close");
});

/** Sends a request to a server whose requests pass a middleware first. */
async function sendThrough(
  middleware: (incoming: IncomingMessage) => Promise<void>,
  init: RequestInit,
): Promise<{ status: number; text: string }> {
  const listener = toNodeListener({
    fetch: async (request) => new Response(`${new URL(request.url).pathname} ${await request.text()}`),
  });
  const server = createServer(async (incoming, outgoing) => {
    await middleware(incoming);
    listener(incoming, outgoing);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const response = await fetch(`http://127.0.0.1:${port}/api/jobs/trigger`, init);
  const text = await response.text();
  server.closeAllConnections();
  server.close();
  await once(server, "close");
  return { status: response.status, text };
}

Deno.test("toNodeListener() says that the body was read before, as by express.json()", async () => {
  const readBody = async (incoming: IncomingMessage) => void (await incoming.toArray());

  const { status, text } = await sendThrough(readBody, { method: "POST", body: "{}" });

  assert.equal(status, 500);
  assert.match(text, /read before the handler was called.*express\.json\(\)/);
});

Deno.test("toNodeListener() takes the whole path from a router that cuts off where it is mounted", async () => {
  const mount = (incoming: IncomingMessage & { originalUrl?: string }) => {
    incoming.originalUrl = incoming.url!; // a request has one
    incoming.url = "/trigger";
    return Promise.resolve();
  };

  const answer = await sendThrough(mount, { method: "POST", body: "{}" });

  assert.deepEqual(answer, { status: 200, text: "/api/jobs/trigger {}" });
});
