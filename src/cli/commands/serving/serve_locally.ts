import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { toFailure } from "../../../failure/to_failure.ts";
import { UsageError } from "../../usage_error.ts";

/** A server that only this machine can reach. */
export interface LocalServer {
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
