// deno run -A examples/approval.ts                      imports, and asks before it writes
// deno run -A examples/approval.ts approve <wait id>    answers, from another terminal
// deno run -A examples/approval.ts reject <wait id>
// deno run -A examples/approval.ts serve                lets curl answer, on port 8000
//
// While it waits, stop it (Ctrl-C), kill it or restart the machine: the next start goes on where it was.

import { createEngine, createHandler, defineJob, shutdownOnSignal, SqliteStore } from "@holdfast/jobs";
import { z } from "zod";

const PORT = 8000;
const Answer = z.object({ approved: z.boolean() });

const importPrices = defineJob({
  name: "import-prices",
  input: z.object({ prices: z.record(z.string(), z.number()) }),
  async run(step, { prices }) {
    const changes = await step.run("compare", () => Object.keys(prices).length);
    // Prepared before anybody is asked: an answer that comes at once is kept.
    const review = await step.prepareWait("review", { timeout: 24 * 60 * 60 * 1_000, metadata: { changes } });
    await step.run("ask", () => ask(step.runId, review.id, changes));
    const answer = await step.waitFor(review, { schema: Answer });

    if (answer.outcome === "timeout") return { written: 0, reason: "nobody answered within a day" };
    if (!answer.payload.approved) return { written: 0, reason: "rejected" };
    const written = await step.run("write", () => changes);
    return { written, reason: "approved" };
  },
});

await using store = await SqliteStore.open("approval.db");
await using engine = createEngine({ store, jobs: { importPrices } });
engine.on(
  "run:waiting",
  ({ waitName }) => console.log(`Waiting for "${waitName}", without a worker, a lease or memory.`),
);

const [verb, waitId] = Deno.args;
if (verb === "approve" || verb === "reject") {
  if (waitId === undefined) throw new TypeError(`Which wait? Give its id after "${verb}"`);
  const { disposition } = await engine.signal(waitId, {
    signalId: `${verb}-${waitId}`,
    payload: { approved: verb === "approve" },
  });
  console.log(`Your answer was ${disposition === "accepted" ? "accepted" : "known already"}.`);
} else if (verb === "serve") {
  await engine.migrate(); // enough for a process that executes nothing itself
  const server = Deno.serve({ port: PORT, hostname: "127.0.0.1" }, createHandler(engine).fetch);
  await shutdownOnSignal(engine, { server });
} else {
  await engine.start();
  const today = new Date().toISOString().slice(0, 10);
  const prices = { apples: 2.4, pears: 3.1, plums: 4.7 };
  const run = await engine.jobs.importPrices.triggerAndWait({ prices }, { idempotencyKey: `prices-${today}` });
  console.log(`${run.output.written} prices written: ${run.output.reason}.`);
}

/** Would send a message; the step's result is recorded, so nobody is asked twice. */
function ask(runId: string, waitId: string, changes: number): void {
  console.log(`${changes} prices are to be written. Answer with:`);
  console.log(`  deno run -A examples/approval.ts approve ${waitId}`);
  console.log('or, while "approval.ts serve" runs as well, with:');
  console.log(`  curl -X POST 'http://127.0.0.1:${PORT}/signal?runId=${runId}&waitId=${waitId}' \\`);
  console.log(`    -d '{"signalId":"approve-${waitId}","payload":{"approved":true}}'`);
}
