import { createEngine, createHandler, persistLogs, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { dashboard } from "@holdfast/jobs/ui";
import { tokenAuth } from "./auth.ts";
import { jobs } from "./jobs.ts";

const hostname = Deno.env.get("HOST") || "127.0.0.1";
const port = Number(Deno.env.get("PORT") || "8000");
const token = Deno.env.get("TOKEN");
const isLocal = ["localhost", "127.0.0.1", "::1"].includes(hostname);
if (!isLocal && !token) throw new Error(`Set TOKEN: everybody who reaches ${hostname} could do everything`);

await using store = await SqliteStore.open(Deno.env.get("DATABASE") || "jobs.db");
await using engine = createEngine({ store, jobs });
engine.use(persistLogs());
await engine.start();

const handler = createHandler(engine, {
  basePath: "/api/jobs",
  ui: dashboard({ title: "my-app" }),
  // Only this machine's own names: a page of another site can point its own name at 127.0.0.1 (DNS rebinding).
  ...(isLocal ? { allowedHosts: ["localhost", "127.0.0.1", "[::1]"] } : {}),
  ...(token ? { auth: tokenAuth(token) } : { showFailures: true }),
});
const server = Deno.serve({
  hostname,
  port,
  onListen: ({ port }) => console.log(`Dashboard: http://${isLocal ? "127.0.0.1" : hostname}:${port}/api/jobs/ui/`),
}, handler.fetch);
await shutdownOnSignal(engine, { server });
