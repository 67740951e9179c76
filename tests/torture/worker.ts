// A worker of the torture: executes runs, serves HTTP, and writes down all that it does. It waits for a line before it
// opens the database, so that it can be there before it is needed; "backup PATH" makes it copy the database. SIGTERM
// stops its engine. It ends when nobody is left to tell it anything.
// Arguments: the database, the ledger, how long a lease lasts in milliseconds.

import process from "node:process";
import { createEngine, createHandler, persistLogs, SqliteStore } from "../../mod.ts";
import { heardLines, say } from "../processes/parent.ts";
import { valueOf } from "./fact.ts";
import { GapWatch } from "./gap_watch.ts";
import { isExpectedError } from "./is_expected_error.ts";
import { tortureJobs } from "./jobs.ts";
import { knownStore } from "./known_store.ts";
import { LedgerWriter } from "./ledger.ts";

const [path, ledgerPath, leaseText] = Deno.args as [string, string, string];
const pid = Deno.pid;
const leaseMs = Number(leaseText);

await import("node:sqlite"); // so that nothing but the opening is left to do
const lines = heardLines()[Symbol.asyncIterator]();
say({ type: "ready" });
if ((await lines.next()).done) Deno.exit();

const ledger = new LedgerWriter(ledgerPath);
const complain = (error: unknown) => {
  ledger.write({ is: "error", pid, message: String(error), isExpected: isExpectedError(error) });
};
const gaps = new GapWatch((gap) => ledger.write({ is: "gap", pid, ...gap }));
const block = (ms: number) => {
  ledger.write({ is: "block", pid, from: Date.now(), ms });
  gaps.block(ms);
};
const store = await SqliteStore.open(path);
const engine = createEngine({
  logger: null,
  store: knownStore(store, ({ runId, generation }, call) => {
    ledger.write({ is: "refused", pid, run: runId, generation, call });
  }),
  jobs: tortureJobs({ write: (fact) => ledger.write(fact), block, leaseMs }),
  worker: {
    staleThreshold: leaseMs,
    heartbeatInterval: Math.floor(leaseMs / 4),
    pollingInterval: 100,
    concurrency: 8,
    maxAbandonments: 1_000,
  },
});
engine.use(persistLogs());
const stopHearing = engine.on("run:leased", ({ leaseOwner }) => {
  stopHearing();
  say({ type: "claimed", owner: leaseOwner });
});
engine.on("step:complete", ({ runId, stepName, output }) => {
  ledger.write({ is: "ack", pid, run: runId, step: stepName, attempt: 0, value: valueOf({ output }), isLast: true });
});
engine.on("step:fail", ({ runId, stepName, attempt, error, retryAt }) => {
  const isLast = retryAt === null;
  ledger.write({ is: "ack", pid, run: runId, step: stepName, attempt, value: valueOf({ error }), isLast });
});
engine.on("run:complete", ({ runId }) => ledger.write({ is: "over", pid, run: runId, status: "completed" }));
engine.on("run:fail", ({ runId }) => ledger.write({ is: "over", pid, run: runId, status: "failed" }));
engine.on("worker:error", ({ error }) => complain(error));
await engine.start();
const { fetch } = createHandler(engine, { onError: complain, limits: { maxStreamMs: 2_500 } });

// Before it says that it serves: whoever hears that may stop it at once.
process.on("SIGTERM", async () => {
  await engine.stop({ timeout: leaseMs / 2 });
  await server.shutdown();
  await store.close();
  Deno.exit(0);
});
const server = Deno.serve({
  port: 0,
  hostname: "127.0.0.1",
  onListen: ({ port }) => say({ type: "serving", port }),
}, fetch);

for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const [, target] = line.value.split(/^backup /);
  store.backup(target!).then(
    () => say({ type: "backed up", path: target, error: null }),
    (error) => say({ type: "backed up", path: target, error: String(error) }),
  );
}
Deno.exit();
