// deno run -A examples/import_worker.ts jobs.db
// deno run -A examples/import_worker.ts postgres://user:password@host/database
//
// Executes imports until SIGTERM or until its standard input ends, so it never outlives its parent process.
// Every line that it prints is an event, as JSON.

import { createEngine, shutdownOnSignal } from "@holdfast/jobs";
import { openStore } from "./demo/open_store.ts";
import { importEarthquakes } from "./import_earthquakes.ts";

const [database] = Deno.args;
if (database === undefined) throw new TypeError("Which database? Give its path or its address as an argument");

await using store = await openStore(database);
await using engine = createEngine({
  store,
  jobs: { importEarthquakes },
  // A short lease: the run of a worker that was killed is taken over after a second and a half.
  worker: { pollingInterval: 200, heartbeatInterval: 400, staleThreshold: 1_500 },
});
engine.on("*", (event) => {
  if (event.type !== "worker:error") console.log(JSON.stringify(event));
});
await engine.start();

const stopped = new AbortController();
shutdownOnSignal(engine).then(() => stopped.abort());
await Deno.stdin.readable.pipeTo(new WritableStream(), { signal: stopped.signal }).catch(() => {});
