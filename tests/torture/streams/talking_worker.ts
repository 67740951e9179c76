// Executes runs whose steps stream items and fail at random, and serves them over HTTP on a free port of 127.0.0.1, until it
// is killed. Arguments: the kind of the store, its file or address, the schema.

import {
  createEngine,
  createHandler,
  defineJob,
  defineStream,
  SqliteStore,
  type StepContext,
  StoreError,
} from "../../../mod.ts";
import { PostgresStore } from "../../../src/stores/postgres/mod.ts";
import { anything } from "../../processes/anything.ts";
import { say } from "../../processes/parent.ts";
import { BRANCHES, type Said, type Spoken, STEPS } from "./talk.ts";

const [kind, place, schema] = Deno.args as ["sqlite" | "postgres", string, string];
const FAILURES = 0.3;
const DELAYS = { left: 0, right: 1_200 };

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function speak(step: StepContext, branch: typeof BRANCHES[number]): Promise<void> {
  const items = defineStream<Said>(branch);
  for (let no = 0; no < STEPS; no++) {
    await step.run(`${branch}-${no}`, async ({ stream, abortSignal }): Promise<Spoken> => {
      const writer = stream(items);
      const attempt = crypto.randomUUID();
      const of = 1 + Math.floor(Math.random() * 60);
      const failsAt = Math.random() < FAILURES ? Math.floor(Math.random() * of) : -1;
      for (let said = 0; said < of; said++) {
        if (said === failsAt) throw new Error("This attempt fails");
        const written = writer.write({ step: no, attempt, no: said, of });
        if (Math.random() < 0.5) await written;
        else written.catch(() => {});
        if (Math.random() < 0.5) await pause(Math.random() * 30);
        abortSignal.throwIfAborted();
      }
      return { attempt, of };
    }, { retry: { maxAttempts: 3, delay: DELAYS[branch] } });
  }
}

function isPassing(error: unknown): false {
  if (error instanceof StoreError) return false;
  throw error;
}

const talk = defineJob({
  name: "talk",
  input: anything(),
  run: async (step) => {
    await Promise.all(BRANCHES.map((branch) => speak(step, branch)));
  },
});

const store = kind === "sqlite" ? await SqliteStore.open(place) : await PostgresStore.open(place, { schema });
const engine = createEngine({
  store,
  jobs: { talk },
  logger: null,
  worker: { concurrency: 8, staleThreshold: 600, heartbeatInterval: 150, pollingInterval: 100, maxAbandonments: 1_000 },
});
const handler = createHandler(engine);
// The server may be restarting.
while (!await engine.start().then(() => true, isPassing)) await pause(100);
Deno.serve(
  { hostname: "127.0.0.1", port: 0, onListen: ({ port }) => say({ type: "serving", port }) },
  handler.fetch,
);
