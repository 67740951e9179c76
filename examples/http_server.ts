// deno run -A examples/http_server.ts                 on port 8000, in memory
// deno run -A examples/http_server.ts 8080 jobs.db    on another port, and kept in a file
//
// It prints what to ask it with curl. Ctrl-C stops it.

import { setTimeout } from "node:timers/promises";
import {
  createEngine,
  createHandler,
  defineJob,
  MemoryStore,
  persistLogs,
  shutdownOnSignal,
  SqliteStore,
} from "@holdfast/jobs";
import { z } from "zod";

const [port = Deno.env.get("PORT") ?? "8000", database] = Deno.args;

const importRows = defineJob({
  name: "import",
  input: z.object({ rows: z.number().int().min(1).max(1_000).default(5) }),
  async run(step, { rows }) {
    const review = await step.wait("review", { timeout: 60 * 60 * 1_000, metadata: { rows } });
    if (review.outcome === "timeout") throw new Error("Nobody reviewed the import");
    for (let row = 1; row <= rows; row++) {
      await step.run("insert", ({ abortSignal }) => setTimeout(300, row, { signal: abortSignal }));
      step.progress(row, rows);
    }
    step.log.info("imported", { rows });
    return { rows, review: review.payload };
  },
});

await using store = database === undefined ? new MemoryStore() : await SqliteStore.open(database);
await using engine = createEngine({ store, jobs: { importRows } });
engine.use(persistLogs());
await engine.start();

// Only this machine's own names: a page of another site can point its own name at 127.0.0.1 (DNS rebinding).
const allowedHosts = ["localhost", "127.0.0.1", "[::1]"];
const handler = createHandler(engine, { basePath: "/api/jobs", allowedHosts });
const server = Deno.serve({ port: Number(port), hostname: "127.0.0.1" }, handler.fetch);
const base = `http://127.0.0.1:${server.addr.port}/api/jobs`;

console.log(`
Trigger a run:     curl -X POST ${base}/trigger -d '{"jobName":"import","input":{"rows":5}}'
List runs:         curl '${base}/runs?jobName=import&status=waiting'
Watch all runs:    curl -N ${base}/runs/subscribe
Watch a run:       curl -N '${base}/subscribe?runId=RUN_ID'
See what it wants: curl '${base}/waits?runId=RUN_ID'
Signal:            curl -X POST '${base}/signal?runId=RUN_ID&waitId=WAIT_ID' -d '{"signalId":"1","payload":"fine"}'`);

// The same with the ids, once there are some.
engine.on("run:trigger", ({ runId }) => {
  console.log(`\nRun ${runId} was triggered. Watch it:\n  curl -N '${base}/subscribe?runId=${runId}'`);
});
engine.on("run:waiting", ({ runId, waitId }) => {
  const url = `${base}/signal?runId=${runId}&waitId=${waitId}`;
  console.log(`\nIt waits for a review. Signal:\n  curl -X POST '${url}' -d '{"signalId":"1","payload":"fine"}'`);
});
engine.on("run:complete", ({ runId }) => console.log(`\nRun ${runId} has completed.`));

await shutdownOnSignal(engine, { server });
