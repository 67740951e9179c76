import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { Engine } from "../../engine/engine.ts";
import { createHandler } from "../../http/handler.ts";
import { listen } from "../../node/listen.ts";
import { EVERYTHING } from "../service/database_service.ts";
import { dashboard } from "../../ui/dashboard.ts";
import type { AddressInfo } from "node:net";
import { toFailure } from "../../model/to_failure.ts";
import { UsageError } from "../command.ts";

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

const HOST = "127.0.0.1";

/**
 * Serves the dashboard over an engine on 127.0.0.1. Each request for data needs a token that is made here, so that neither
 * other users of the machine nor pages of other sites can read or change anything.
 *
 * @param port 0: any that is free.
 * @param onError Receives errors that a response hides.
 * @returns The address that opens it: its fragment has the token, which a browser sends to no server. `close()` ends all
 * event streams and connections.
 * @throws {UsageError} The port is in use, or not allowed.
 */
export async function serveDashboard(
  engine: Engine,
  port: number,
  onError: (error: unknown) => void,
): Promise<{ address: string; close: () => Promise<void> }> {
  let answer = (_: Request) => Promise.resolve(new Response(null, { status: 503 })); // until its port is known
  const server = await listen({ fetch: (request) => answer(request) }, { port, hostname: HOST }).catch((error) => {
    throw new UsageError(`Cannot listen on ${HOST}:${port}: ${toFailure(error).message}`, { cause: error });
  });
  const { port: chosen } = server.address() as AddressInfo; // it listens on a port
  const token = randomBytes(TOKEN_BYTES).toString("base64url");
  const handler = createHandler(engine, {
    auth: {
      authenticate: (request) => {
        if (!isSame(request.headers.get("authorization") ?? "", `Bearer ${token}`)) {
          throw Response.json({ error: "The token is missing or wrong", code: "forbidden" }, { status: 401 });
        }
      },
      ...EVERYTHING,
      open: ["ui"],
    },
    allowedHosts: [`${HOST}:${chosen}`, `localhost:${chosen}`],
    ui: dashboard(),
    onError,
  });
  answer = async (request) => {
    const { pathname } = new URL(request.url);
    if (request.method === "GET" && pathname === "/") return fileOf(PAGE, "text/html");
    if (request.method === "GET" && pathname === "/open.js") return fileOf(SCRIPT, "text/javascript");
    return await handler.fetch(request);
  };
  return {
    address: `http://${HOST}:${chosen}/#${token}`,
    close: () => {
      handler.closeStreams(() => true);
      return new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
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
