// deno run -A examples/chat/server.ts                 a chat with useChat() of the AI SDK, on port 8000
// deno run -A examples/chat/server.ts 8080 chat.db    on another port, and kept in a file
//
// Each answer is a run, whose step streams the parts of the message. Press "Kill the worker" in the middle of an answer:
// another worker writes it again, and the page never shows words of both. Reload the page: it continues.
// The model is a mock, so it needs no keys: see jobs.ts.

import { createEngine, createHandler, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { jobs } from "./jobs.ts";

const [port = "8000", database = `${await Deno.makeTempDir()}/chat.db`] = Deno.args;
const fileAt = (path: string) => new URL(path, import.meta.url);

const { success, stdout } = await new Deno.Command(Deno.execPath(), {
  args: ["bundle", "--quiet", "--minify", "--platform", "browser", fileAt("page.tsx").href],
  stderr: "inherit",
}).output();
if (!success) Deno.exit(1);
const files: Record<string, { type: string; body: Uint8Array<ArrayBuffer> }> = {
  "/": { type: "text/html", body: await Deno.readFile(fileAt("page.html")) },
  "/page.js": { type: "text/javascript", body: stdout },
};

await using store = await SqliteStore.open(database);
await using engine = createEngine({ store, jobs }); // it is not started: another process executes the runs

let worker = startWorker();
function startWorker(): Deno.ChildProcess {
  return new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", "--no-lock", fileAt("worker.ts").href, database],
    stdin: "piped", // it ends with this process
  }).spawn();
}

const allowedHosts = ["localhost", "127.0.0.1", "[::1]"];
const handler = createHandler(engine, { basePath: "/api/jobs", allowedHosts });
const onListen = ({ port }: Deno.NetAddr) => console.log(`Open http://127.0.0.1:${port}/`);
const server = Deno.serve({ port: Number(port), hostname: "127.0.0.1", onListen }, (request) => {
  const { pathname } = new URL(request.url);
  if (request.method === "POST" && pathname === "/kill-the-worker") {
    worker.kill("SIGKILL");
    worker = startWorker();
    return new Response(null, { status: 204 });
  }
  const file = files[pathname];
  if (file === undefined) return handler.fetch(request);
  return new Response(file.body, { headers: { "content-type": `${file.type}; charset=utf-8` } });
});

await shutdownOnSignal(engine, { server });
worker.kill();
