// deno run -A examples/react_server.ts                 a page in React that follows runs, on port 8000
// deno run -A examples/react_server.ts 8080 books.db   on another port, and kept in a file
//
// The page is react.html. Its code is in react/, and is bundled when the server starts. use_run.ts and run_state.ts are
// what another page in React needs.

import { createEngine, createHandler, MemoryStore, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { jobs } from "./react/jobs.ts";

const [port = "8000", database] = Deno.args;
const fileAt = (path: string) => new URL(path, import.meta.url);

const { success, stdout } = await new Deno.Command(Deno.execPath(), {
  args: ["bundle", "--quiet", "--minify", "--platform", "browser", fileAt("react/page.tsx").href],
  stderr: "inherit",
}).output();
if (!success) Deno.exit(1);
const files: Record<string, { type: string; body: Uint8Array<ArrayBuffer> }> = {
  "/": { type: "text/html", body: await Deno.readFile(fileAt("react.html")) },
  "/react.js": { type: "text/javascript", body: stdout },
};

await using store = database === undefined ? new MemoryStore() : await SqliteStore.open(database);
await using engine = createEngine({
  store,
  jobs,
  worker: { heartbeatInterval: 500, staleThreshold: 2_000 }, // short, so that a killed server is soon made up for
});
await engine.start();

// Only this machine's own names: a page of another site can point its own name at 127.0.0.1 (DNS rebinding).
const allowedHosts = ["localhost", "127.0.0.1", "[::1]"];
const handler = createHandler(engine, { basePath: "/api/jobs", allowedHosts });
const onListen = ({ port }: Deno.NetAddr) => console.log(`Open http://127.0.0.1:${port}/`);
const server = Deno.serve({ port: Number(port), hostname: "127.0.0.1", onListen }, (request) => {
  const file = files[new URL(request.url).pathname];
  if (file === undefined) return handler.fetch(request);
  return new Response(file.body, { headers: { "content-type": `${file.type}; charset=utf-8` } });
});

await shutdownOnSignal(engine, { server });
