// Serves the tools that the conformance suite of MCP asks for, and says where. It executes their runs itself.
// Arguments: the database, or nothing: in memory.

import { createEngine, createHandler, MemoryStore, SqliteStore } from "../../mod.ts";
import { mcp } from "../../src/http/mcp/mod.ts";
import { TOOLS } from "../mcp/conformance_tools.ts";
import { say } from "./parent.ts";

const [path] = Deno.args;
const engine = createEngine({
  store: path === undefined ? new MemoryStore() : await SqliteStore.open(path),
  jobs: Object.fromEntries(TOOLS.map(({ job }) => [job.name, job])),
  worker: { pollingInterval: 20, staleThreshold: 1_500, heartbeatInterval: 500, concurrency: 20 },
});
await engine.start();
const handler = createHandler(engine, {
  allowedHosts: ["localhost", "127.0.0.1"],
  mcp: mcp({ name: "conformance", tools: TOOLS }),
});
Deno.serve({
  port: 0,
  hostname: "127.0.0.1",
  onListen: ({ port }) => say({ type: "listening", url: `http://localhost:${port}/mcp` }),
}, handler.fetch);
