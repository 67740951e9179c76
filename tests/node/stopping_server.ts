// Serves an engine with an http.Server of Node, and stops when it gets SIGTERM.

import type { AddressInfo } from "node:net";
import { createEngine, createHandler, MemoryStore, shutdownOnSignal } from "../../mod.ts";
import { listen } from "../../src/node/mod.ts";

const engine = createEngine({ store: new MemoryStore(), jobs: {} });
await engine.start();

const server = await listen(createHandler(engine), { port: 0, hostname: "127.0.0.1" });
console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
await shutdownOnSignal(engine, { server });
console.log("stopped");
