// Executes the runs of server.ts, which starts it.

import { createEngine, SqliteStore } from "@holdfast/jobs";
import { jobs } from "./jobs.ts";

const [database] = Deno.args;
await using store = await SqliteStore.open(database!); // the server names it
await using engine = createEngine({
  store,
  jobs,
  worker: { heartbeatInterval: 500, staleThreshold: 2_000 }, // short, so that a killed worker is soon made up for
});
await engine.start();
for await (const _ of Deno.stdin.readable);
Deno.exit(); // the server has ended, whatever ended it; another worker goes on
