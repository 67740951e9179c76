// Executes orders until it is killed, or sends messages to them for some time. Arguments: `worker` or the name of a sender,
// the kind of the store, its file or address, the schema, the ledger, and for how many milliseconds to send.

import { createEngine, SqliteStore, StoreError } from "../../../mod.ts";
import { PostgresStore } from "../../../src/stores/postgres/mod.ts";
import { say } from "../../processes/parent.ts";
import { orderJob } from "./order.ts";

const [role, kind, place, schema, ledger, ms] = Deno.args as [
  string,
  "sqlite" | "postgres",
  string,
  string,
  string,
  string,
];
const KEYS = 12;
const REPEATED = 0.3;

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

const store = kind === "sqlite" ? await SqliteStore.open(place) : await PostgresStore.open(place, { schema });
const order = orderJob(ledger);
const worker = { concurrency: 10, staleThreshold: 5_000, heartbeatInterval: 1_000, pollingInterval: 100 };
const engine = createEngine({ store, jobs: { order }, worker, logger: null });

if (role === "worker") {
  await engine.start();
  say({ type: "serving" });
} else {
  say({ type: "serving" });
  const endsAt = performance.now() + Number(ms);
  for (let no = 0; performance.now() < endsAt; no++) {
    const id = `${role} ${no}`;
    const key = `order ${Math.floor(Math.random() * KEYS)}`;
    try {
      const { runId } = await engine.jobs.order.send({ key }, "item", { no }, { id, start: { input: { key } } });
      say({ type: "told", id, runId });
      while (Math.random() < REPEATED) {
        const again = await engine.jobs.order.send(runId, "item", { no }, { id });
        if (again.disposition !== "duplicate") say({ type: "told", wrong: `${id} was accepted twice by ${runId}` });
      }
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
    }
    await pause(Math.random() < 0.1 ? 400 * Math.random() : 10 * Math.random());
  }
  say({ type: "told", isDone: true });
}
