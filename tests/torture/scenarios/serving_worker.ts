// Executes runs and serves their HTTP interface on a free port of 127.0.0.1. At `/facts` it tells what has gone wrong
// since it was last asked there. It stops when it hears the word "stop", and ends when nobody can say it any more.
// Arguments: the database, the ledger, the settings of the worker as JSON.

import { createEngine, createHandler, defineJob, SqliteStore } from "../../../mod.ts";
import { anything } from "../../processes/anything.ts";
import { Ledger } from "../../processes/ledger.ts";
import { heardLines, say } from "../../processes/parent.ts";
import { GapWatch } from "../gap_watch.ts";
import type { OrderInput, Receipt } from "./orders.ts";
import type { Facts } from "./service.ts";

const [path, ledgerPath, settings] = Deno.args as [string, string, string];
const ledger = new Ledger(ledgerPath);

const order = defineJob({
  name: "order",
  input: anything<OrderInput>(),
  async run(step, { steps, stepMs, hasRetry, bytes }) {
    const receipts: string[] = [];
    for (let number = 0; number < steps; number++) {
      const name = `step-${number}`;
      const { receipt } = await step.run(name, async ({ attempt }): Promise<Receipt> => {
        ledger.write("start", step.runId, name, step.execution, Deno.pid);
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 2 * stepMs));
        if (hasRetry && number === 1 && attempt === 1) throw new Error("This attempt always fails");
        return { receipt: crypto.randomUUID(), padding: "x".repeat(bytes) };
      }, { retry: { maxAttempts: 2, delay: 5 } });
      ledger.write("ack", step.runId, name, step.execution, receipt);
      receipts.push(receipt);
    }
    return receipts;
  },
});

const approval = defineJob({
  name: "approval",
  input: anything(),
  async run(step) {
    await step.run("ask", (): Receipt => ({ receipt: crypto.randomUUID(), padding: "" }));
    return await step.wait("answer");
  },
});

const greet = defineJob({ name: "greet", input: anything(), run: () => {} });

const gaps = new GapWatch();
let workerErrors: Record<string, number> = {};
let hiddenErrors: Record<string, number> = {};
let renewals = 0;

const count = (counts: Record<string, number>, error: unknown) => {
  const text = String(error);
  counts[text] = (counts[text] ?? 0) + 1;
};

function tellFacts(): Response {
  const facts: Facts = { workerErrors, hiddenErrors, renewals, longestBlockMs: gaps.takeLongest().wallMs };
  workerErrors = {};
  hiddenErrors = {};
  renewals = 0;
  return Response.json(facts);
}

try {
  const store = await SqliteStore.open(path);
  const engine = createEngine({ store, jobs: { order, approval, greet }, worker: JSON.parse(settings), logger: null });
  engine.on("worker:error", ({ error }) => count(workerErrors, error));
  engine.on("run:lease-renewed", () => renewals++);
  const handler = createHandler(engine, {
    basePath: "/api/jobs",
    onError: (error) => count(hiddenErrors, error),
  });
  await engine.start();
  const server = Deno.serve({
    hostname: "127.0.0.1",
    port: 0,
    onListen: ({ port }) => say({ type: "serving", port }),
  }, (request) => new URL(request.url).pathname === "/facts" ? tellFacts() : handler.fetch(request));
  for await (const word of heardLines()) {
    if (word !== "stop") continue;
    await engine.stop({ timeout: 2_000 });
    await store.close();
    await server.shutdown();
    break;
  }
  Deno.exit(0);
} catch (error) {
  say({ type: "failed", told: String(error), code: (error as { code?: unknown }).code ?? null });
  Deno.exit(1);
}
