// The handler behind a server of the runtime, and the client that calls it.
import assert from "node:assert/strict";
import { type AddressInfo, connect } from "node:net";
import { text } from "node:stream/consumers";
import { createEngine, createHandler, defineJob, MemoryStore } from "@holdfast/jobs";
import { ClientError, createClient } from "@holdfast/jobs/client";
import { listen } from "@holdfast/jobs/node";
import { dashboard } from "@holdfast/jobs/ui";
import { z } from "zod";

const greet = defineJob({
  name: "greet",
  input: z.object({ name: z.string() }),
  async run(step, { name }) {
    const wait = await step.wait("review", { timeout: 60_000 });
    return { text: await step.run("compose", () => `Hello, ${name}!`), outcome: wait.outcome };
  },
});
const jobs = { greet };
const engine = createEngine({ store: new MemoryStore(), jobs });
await engine.start();
const handler = createHandler(engine, { basePath: "/api/jobs", ui: dashboard() });

async function passes(origin: string): Promise<void> {
  const url = `${origin}/api/jobs`;
  const client = createClient<typeof jobs>({ url });
  const { runId } = await client.trigger("greet", { name: "Ada" });
  const types: string[] = [];
  for await (const { type } of client.watch(runId)) {
    types.push(type);
    if (type !== "run:waiting") continue;
    const [wait] = await client.waits(runId);
    await client.signal(runId, wait!.id, { signalId: "1", payload: { ok: true } });
  }
  const { output } = await client.waitForRun(runId, { timeout: 30_000 });
  assert.deepEqual(output, { text: "Hello, Ada!", outcome: "signal" });
  assert.equal(types.at(-1), "run:complete");
  await assert.rejects(client.run("none"), ClientError);
  await assert.rejects(client.trigger("greet", { name: 7 as never }), /does not fit its schema/);
  await servesDashboard(`${url}/ui/`);
}

async function servesDashboard(url: string): Promise<void> {
  const response = await fetch(url);
  const page = await response.text();
  assert.equal(response.status, 200);
  assert.match(page, /<!doctype html>/i);
  assert.match(response.headers.get("content-security-policy") ?? "", /^default-src 'none'; script-src 'self';/);
  const paths = new Set([...page.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path!));
  assert.ok(paths.size > 2, `the page names ${paths.size} files`);
  for (const path of paths) {
    const file = await fetch(new URL(path, url));
    assert.equal(file.status, 200, path);
    assert.ok((await file.text()).length > 0, path);
    assert.match(file.headers.get("content-type")!, /^(?:text\/(?:css|javascript); charset=utf-8|image\/svg\+xml)$/);
  }
}

/** What a server answers to a request that is written by hand. */
async function sendRaw(port: number, request: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  socket.write(`${request}\r\nConnection: close\r\n\r\n`);
  return await text(socket);
}

const server = await listen(handler, { port: 0, hostname: "127.0.0.1" });
const { port } = server.address() as AddressInfo; // it listens on a port
for (
  const request of [
    "TRACE / HTTP/1.1\r\nHost: localhost",
    "GET http://a:b@localhost/ HTTP/1.1\r\nHost: localhost",
    "GET / HTTP/1.1\r\nHost: a:b@localhost",
  ]
) {
  // 400, or 404 where the runtime accepts such a request.
  assert.match(await sendRaw(port, request), /^HTTP\/1\.1 40[04] /);
}
await passes(`http://127.0.0.1:${port}`);
server.close();

const { Bun } = globalThis as { Bun?: { serve(options: object): { port: number; stop(): Promise<void> } } };
if (Bun !== undefined) {
  const own = Bun.serve({ hostname: "127.0.0.1", port: 0, fetch: handler.fetch });
  await passes(`http://127.0.0.1:${own.port}`);
  await own.stop();
}

await engine.stop();
server.closeAllConnections();
console.log("the service passes");
