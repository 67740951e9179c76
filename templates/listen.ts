import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";

type Fetch = (request: Request) => Promise<Response>;

/** Answers requests with a fetch handler; resolves when it listens. */
export async function listen(fetch: Fetch, { port, hostname }: { port: number; hostname: string }): Promise<Server> {
  const server = createServer((incoming, outgoing) => void answer(fetch, incoming, outgoing));
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, resolve);
  });
  return server;
}

async function answer(fetch: Fetch, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  const request = toRequest(incoming);
  if (request === null) return void outgoing.writeHead(400).end();
  try {
    const { status, headers, body } = await fetch(request);
    outgoing.writeHead(status, [...headers].flat());
    if (body === null) return void outgoing.end();
    outgoing.flushHeaders(); // an event stream may have nothing to send for a while
    await pipeline(Readable.fromWeb(body as ReadableStream), outgoing);
  } catch (error) {
    if (outgoing.destroyed) return; // the client has left
    console.error(error);
    if (outgoing.headersSent) outgoing.destroy();
    else outgoing.writeHead(500).end();
  }
}

/** `null`: no `Request` can have this address, or this method. */
function toRequest(incoming: IncomingMessage): Request | null {
  const { method = "GET", url = "/", headersDistinct: { host } } = incoming;
  const headers = Object.entries(incoming.headersDistinct).flatMap(([name, values = []]) =>
    values.map((value): [string, string] => [name, value])
  );
  const hasBody = method !== "GET" && method !== "HEAD";
  const body = hasBody ? Readable.toWeb(incoming) as unknown as BodyInit : null;
  try {
    return new Request(new URL(url, `http://${host}`), { method, headers, body, duplex: "half" } as RequestInit);
  } catch {
    return null; // such as the method TRACE, or an address with a password
  }
}
