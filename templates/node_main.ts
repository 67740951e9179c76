import type { AddressInfo } from "node:net";
import { env } from "node:process";
import { createEngine, createHandler, persistLogs, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { listen } from "@holdfast/jobs/node";
import { dashboard } from "@holdfast/jobs/ui";
import { tokenAuth } from "./auth.ts";
import { jobs } from "./jobs.ts";

const hostname = env.HOST || "127.0.0.1";
const port = Number(env.PORT || "8000");
const token = env.TOKEN;
const isLocal = ["localhost", "127.0.0.1", "::1"].includes(hostname);
if (!isLocal && !token) throw new Error(`Set TOKEN: everybody who reaches ${hostname} could do everything`);

const store = await SqliteStore.open(env.DATABASE || "jobs.db");
const engine = createEngine({ store, jobs });
engine.use(persistLogs());
await engine.start();

const handler = createHandler(engine, {
  basePath: "/api/jobs",
  ui: dashboard({ title: "my-app" }),
  // Only this machine's own names: a page of another site can point its own name at 127.0.0.1 (DNS rebinding).
  ...(isLocal ? { allowedHosts: ["localhost", "127.0.0.1", "[::1]"] } : {}),
  ...(token ? { auth: tokenAuth(token) } : { showFailures: true }),
});
const server = await listen(handler, { port, hostname });
const { port: listeningPort } = server.address() as AddressInfo; // it listens on a port, not on a socket file
console.log(`Dashboard: http://${isLocal ? "127.0.0.1" : hostname}:${listeningPort}/api/jobs/ui/`);
await shutdownOnSignal(engine, { server });
await store.close();
