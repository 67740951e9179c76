// Serves an engine with an http.Server of Node, and stops when it gets SIGTERM.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { createEngine, createHandler, MemoryStore, shutdownOnSignal } from "../../mod.ts";

const engine = createEngine({ store: new MemoryStore(), jobs: {} });
await engine.start();
const handler = createHandler(engine);

async function answer({ url, method }: IncomingMessage, response: ServerResponse): Promise<void> {
  const { status, headers, body } = await handler.fetch(new Request(`http://localhost${url}`, { method: method! }));
  response.writeHead(status, Object.fromEntries(headers));
  response.flushHeaders();
  for await (const chunk of Readable.fromWeb(body as never)) response.write(chunk);
  response.end();
}

const server = createServer(answer).listen(0, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
await shutdownOnSignal(engine, { server });
console.log("stopped");
