// deno run -A examples/live_server.ts                 a page that shows runs as they happen, on port 8000
// deno run -A examples/live_server.ts 8080 live.db    on another port, and kept in a file
//
// Kept in a file, a run survives the server: kill it (kill -9), start it again, and watch the page.

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
const ROWS_A_STEP = 100;

const importFile = defineJob({
  name: "import",
  input: z.object({ file: z.string().min(1).max(100), rows: z.number().int().min(1).max(5_000) }),
  async run(step, { file, rows }) {
    const steps = 2 + Math.ceil(rows / ROWS_A_STEP);
    step.progress(0, steps, `Reading ${file}`);
    step.log.info(`Importing ${file}`, { rows });
    await step.run("read", ({ abortSignal }) => work(abortSignal));

    step.progress(1, steps, "Checking the rows");
    await step.run("check", async ({ abortSignal, attempt }) => {
      await work(abortSignal);
      if (attempt === 1) throw new Error("The exchange rates did not arrive in time");
      step.log.warn("3 prices changed by more than half");
    }, { retry: { maxAttempts: 3, delay: 400 } });

    step.progress(2, steps, "Ready to write");
    const review = await step.wait("review", {
      timeout: 60 * 60 * 1_000,
      metadata: { file, rows, suspicious: 3 },
      schema: z.object({ approved: z.boolean() }),
    });
    if (review.outcome === "timeout") throw new Error("Nobody reviewed the import within an hour");
    if (!review.payload.approved) throw new Error("The import was rejected in its review");

    for (let first = 1, done = 3; first <= rows; first += ROWS_A_STEP, done++) {
      const last = Math.min(first + ROWS_A_STEP - 1, rows);
      await step.run(`write ${first}–${last}`, ({ abortSignal }) => work(abortSignal));
      step.progress(done, steps, `${last} rows written`);
    }
    step.log.info(`Imported ${file}`);
    return { file, rows };
  },
});

await using store = database === undefined ? new MemoryStore() : await SqliteStore.open(database);
await using engine = createEngine({
  store,
  jobs: { importFile },
  worker: { heartbeatInterval: 500, staleThreshold: 2_000 }, // short, so that a killed server is soon made up for
});
engine.use(persistLogs());
await engine.start();

const handler = createHandler(engine, { basePath: "/api/jobs" });
const page = new URL("live.html", import.meta.url);
const onListen = ({ port }: Deno.NetAddr) => console.log(`Open http://127.0.0.1:${port}/`);
const server = Deno.serve({ port: Number(port), hostname: "127.0.0.1", onListen }, async (request) => {
  if (new URL(request.url).pathname !== "/") return handler.fetch(request);
  return new Response(await Deno.readTextFile(page), { headers: { "content-type": "text/html; charset=utf-8" } });
});

await shutdownOnSignal(engine, { server });

/** Takes as long as something real. */
function work(abortSignal: AbortSignal): Promise<void> {
  return setTimeout(500, undefined, { signal: abortSignal });
}
