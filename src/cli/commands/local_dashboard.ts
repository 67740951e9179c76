import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Engine } from "../../engine/engine.ts";
import { createHandler } from "../../http/handler.ts";
import { dashboard } from "../../ui/dashboard.ts";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { toFailure } from "../../model/failure/to_failure.ts";
import { UsageError } from "../arguments.ts";

/** The dashboard of a database, for one user of this machine. */
interface LocalDashboard {
  /** The address that opens it. Its fragment has the token, which a browser sends to no server. */
  address: string;
  /** Answers a request. */
  fetch(request: Request): Promise<Response>;
  /** Ends all event streams. */
  closeStreams(): void;
}

/** Where it is served. */
interface LocalDashboardOptions {
  /** The port on 127.0.0.1. */
  port: number;
  /** Receives errors that a response hides. */
  onError: (error: unknown) => void;
}

const TOKEN_BYTES = 32;
const HEADERS = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-resource-policy": "same-origin",
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};
const PAGE = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Holdfast</title>
<script src="open.js"></script>
<noscript>The dashboard needs JavaScript.</noscript>
</html>
`;
// Where the dashboard looks for a token. It is kept for this tab and this port: a cookie would be sent to all ports.
const SCRIPT = `const token = location.hash.slice(1);
if (token !== "") sessionStorage.setItem("holdfast-token", token);
location.replace("ui/");
`;

/**
 * The dashboard over an engine. Each request for data needs a token that is made here, so that neither other users of the
 * machine nor pages of other sites can read or change anything.
 */
export function localDashboard(engine: Engine, { port, onError }: LocalDashboardOptions): LocalDashboard {
  const token = randomBytes(TOKEN_BYTES).toString("base64url");
  const origin = `http://127.0.0.1:${port}`;
  const handler = createHandler(engine, {
    auth: {
      authenticate: (request) => {
        if (!isSame(request.headers.get("authorization") ?? "", `Bearer ${token}`)) {
          throw Response.json({ error: "The token is missing or wrong", code: "forbidden" }, { status: 401 });
        }
      },
      onTrigger: () => {},
      onRunAccess: () => {},
      onOperate: () => {},
      scopeRuns: (_, filter) => filter,
      open: ["ui"],
    },
    allowedHosts: [`127.0.0.1:${port}`, `localhost:${port}`],
    ui: dashboard(),
    onError,
  });
  return {
    address: `${origin}/#${token}`,
    fetch: async (request) => {
      const { pathname } = new URL(request.url);
      if (request.method === "GET" && pathname === "/") return fileOf(PAGE, "text/html");
      if (request.method === "GET" && pathname === "/open.js") return fileOf(SCRIPT, "text/javascript");
      return await handler.fetch(request);
    },
    closeStreams: () => void handler.closeStreams(() => true),
  };
}

function fileOf(text: string, type: string): Response {
  return new Response(text, { headers: { ...HEADERS, "content-type": `${type}; charset=utf-8` } });
}

/** Whether two strings are the same: the time says nothing about where they differ. */
function isSame(one: string, other: string): boolean {
  const [left, right] = [one, other].map((text) => createHash("sha256").update(text).digest());
  return timingSafeEqual(left!, right!); // there are two
}

/** A server that only this machine can reach. */
interface LocalServer {
  /** Its port on 127.0.0.1. */
  readonly port: number;
  /** Answers all further requests by a function. */
  answer(fetch: (request: Request) => Promise<Response>): void;
  /** Refuses new connections, and ends all others. */
  close(): Promise<void>;
}

const HOST = "127.0.0.1";

/**
 * Starts a server on 127.0.0.1, on Deno and on Node.
 *
 * @param port 0: any that is free.
 * @throws {UsageError} The port is in use, or not allowed.
 */
export async function serveLocally(port: number): Promise<LocalServer> {
  let fetch: (request: Request) => Promise<Response> = () => Promise.resolve(new Response(null, { status: 503 }));
  const server = createServer((incoming, response) => {
    respond(incoming, response, fetch).catch(() => response.destroy()); // its client has gone
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => {
      reject(new UsageError(`Cannot listen on ${HOST}:${port}: ${toFailure(error).message}`, { cause: error }));
    });
    server.listen(port, HOST, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port, // it listens on a port
    answer: (given) => {
      fetch = given;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function respond(
  incoming: IncomingMessage,
  response: ServerResponse,
  fetch: (request: Request) => Promise<Response>,
): Promise<void> {
  const { method = "GET", url = "/", headers } = incoming;
  const hasBody = method !== "GET" && method !== "HEAD";
  const request = new Request(new URL(url, `http://${headers.host ?? HOST}`), {
    method,
    headers: Object.entries(headers).flatMap(([name, value]): [string, string][] =>
      value === undefined ? [] : [[name, Array.isArray(value) ? value.join(", ") : value]]
    ),
    ...(hasBody ? { body: Readable.toWeb(incoming) as ReadableStream, duplex: "half" } : {}),
  });
  const { status, headers: answered, body } = await fetch(request);
  response.writeHead(status, Object.fromEntries(answered));
  response.flushHeaders();
  if (body === null) response.end();
  else await pipeline(Readable.fromWeb(body as never), response); // the type of Node for the same stream
}
