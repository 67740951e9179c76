import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream as NodeStream } from "node:stream/web";

/** What answers requests: a handler of `createHandler()`, or anything else with its `fetch`. */
export interface FetchHandler {
  /** Answers a request. */
  readonly fetch: (request: Request) => Response | Promise<Response>;
}

/** A listener of the event `request` of `http.Server`, and middleware of Express. */
export type NodeListener = (incoming: IncomingMessage, outgoing: ServerResponse) => void;

/** Options of {@linkcode listen}. */
export interface ListenOptions {
  /** The port; 0 lets the system choose one, which `server.address()` then has. */
  port: number;
  /** The address of the machine to listen on. Default: all of them, as with `server.listen()`. */
  hostname?: string;
}

/**
 * Starts an `http.Server` that answers all requests with a handler.
 *
 * @returns Resolves when it listens. `shutdownOnSignal(engine, { server })` ends it.
 * @throws {Error} It cannot listen: the port is in use, for example.
 */
export async function listen(handler: FetchHandler, { port, hostname }: ListenOptions): Promise<Server> {
  const server = createServer(toNodeListener(handler));
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, hostname, resolve);
  });
  server.removeAllListeners("error");
  return server;
}

/**
 * Turns a handler into a listener of `node:http`. Event streams are sent as they come, and end when the client leaves; the
 * `signal` of a request fires then, too.
 *
 * The body must not have been read before, as `express.json()` does: register the handler before it. Such a request is
 * answered with 500 and a message that says so. An error that the handler throws is 500 and is printed.
 *
 * @example Express
 * ```ts ignore
 * app.use("/api/jobs", toNodeListener(handler)); // before app.use(express.json())
 * ```
 */
export function toNodeListener(handler: FetchHandler): NodeListener {
  return (incoming, outgoing) => void answer(handler, incoming, outgoing);
}

async function answer(handler: FetchHandler, incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
  try {
    if (mayHaveBody(incoming) && incoming.readableDidRead) return refuse(outgoing, 500, BODY_WAS_READ);
    const client = new AbortController();
    outgoing.once("close", () => client.abort());
    const request = toRequest(incoming, client.signal);
    if (request === null) return refuse(outgoing, 400, "There can be no such request");
    const { status, headers, body } = await handler.fetch(request);
    // It has left meanwhile: pipeline() would not cancel the body, on Node 24.
    if (client.signal.aborted) return await body?.cancel();
    outgoing.writeHead(status, [...headers].flat());
    if (body === null) return void outgoing.end();
    outgoing.flushHeaders(); // an event stream may have nothing to send for a while
    await pipeline(Readable.fromWeb(body as NodeStream), outgoing);
  } catch (error) {
    if (outgoing.destroyed) return; // the client has left
    console.error(error);
    if (outgoing.headersSent) outgoing.destroy();
    else refuse(outgoing, 500, "Internal error");
  }
}

const BODY_WAS_READ = "The body of the request was read before the handler was called: " +
  "register the handler before what parses bodies, such as express.json()";

/** Sends an error, as the handler does. */
function refuse(outgoing: ServerResponse, status: number, error: string): void {
  const code = status === 500 ? "internal" : "invalid_request";
  outgoing.writeHead(status, {
    "content-type": "application/json",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
  });
  outgoing.end(JSON.stringify({ error, code }));
}

function mayHaveBody({ method }: IncomingMessage): boolean {
  return method !== "GET" && method !== "HEAD";
}

/** `null`: no `Request` can have this address, or this method. */
function toRequest(incoming: IncomingMessage, signal: AbortSignal): Request | null {
  const { method = "GET", headersDistinct: { host } } = incoming;
  // A router of Express takes the path that it is mounted at away from `url`.
  const { originalUrl, url = "/" } = incoming as IncomingMessage & { originalUrl?: string };
  const scheme = "encrypted" in incoming.socket ? "https" : "http"; // a property of tls.TLSSocket
  const headers = Object.entries(incoming.headersDistinct).flatMap(([name, values = []]) =>
    values.map((value): [string, string] => [name, value])
  );
  const body = mayHaveBody(incoming) ? bodyOf(incoming) : null;
  const target = originalUrl ?? url;
  try {
    // Relative to it, a path that begins with "//" would be that of another host.
    const { origin } = new URL(`${scheme}://${host}`);
    const address = new URL(target.startsWith("/") ? origin + target : target);
    return new Request(address, { method, headers, body, signal, duplex: "half" } as RequestInit);
  } catch {
    return null; // such as the method TRACE, or an address with a password
  }
}

/**
 * The body of a request, read as it is asked for. Not `Readable.toWeb()`: that throws outside of all calls when data
 * arrives after it was cancelled, such as the rest of a body that is too large.
 */
function bodyOf(incoming: IncomingMessage): ReadableStream<Uint8Array> {
  const parts = incoming.iterator({ destroyOnReturn: false });
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await parts.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel() {
      // The rest is read, and not kept: an answer that came before it could be lost.
      parts.return!().then(() => incoming.resume()).catch(() => {});
    },
  }, { highWaterMark: 0 });
}
