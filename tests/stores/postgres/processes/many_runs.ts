import { createEngine } from "../../../../mod.ts";
import { PostgresStore } from "../../../../src/stores/postgres/postgres_store.ts";
import type { Server } from "../server.ts";
import { findFault } from "../postgres_faults.ts";
import { drain } from "./drain.ts";
import { connect } from "./lease_sampler.ts";
import { findWrongOrder, findWrongSteps, readStored } from "./storm_checks.ts";
import { STEPS, stormJobs } from "./storm_jobs.ts";
import { Tally } from "./tally.ts";
import { Workers } from "./workers.ts";

/** What came of many runs. */
export interface ManyRunsResult {
  /** What is wrong. */
  problems: string[];
  /** How long it took from the first trigger to the last end, in milliseconds. */
  ms: number;
  /** How many steps were recorded. */
  steps: number;
  /** How many of them were started again, by an execution after one that had lost its lease. */
  startedAgain: number;
}

const WORKERS = 4;
const KEYS = 50;
const BATCH = 500;

/** Lets four processes execute many runs of five steps, of which those of one key come one after another. */
export async function executeManyRuns(server: Server, runs: number): Promise<ManyRunsResult> {
  const schema = `many_${crypto.randomUUID().replaceAll("-", "")}`;
  const { url } = server;
  await using store = await PostgresStore.open(url, { schema, durability: "relaxed" });
  await store.migrate();
  const kind = { version: 1, clockOffsetMs: 0, jobs: ["keyed"] };
  await using workers = await Workers.start(Array(WORKERS).fill(kind), { url, schema, tally: new Tally() });
  const since = performance.now();
  const engine = createEngine({ store, jobs: stormJobs(1, () => {}), logger: null });
  for (let n = 0; n < runs; n += BATCH) {
    const batch = Array.from({ length: Math.min(BATCH, runs - n) }, (_, at) => ({
      input: { n: n + at, stepMs: 0 },
      concurrencyKey: `key ${(n + at) % KEYS}`,
    }));
    await engine.jobs.keyed.batchTrigger(batch);
  }
  await drain(url, schema);
  const ms = performance.now() - since;
  await workers.stop();
  await engine.stop();

  const database = await connect(url);
  try {
    const stored = await readStored(database, schema);
    const lines = workers.ledger.read();
    const steps = [...stored.steps.values()].reduce((sum, { size }) => sum + size, 0);
    // An execution that has lost its lease, since its process did not get to run for so long, is followed by another one.
    const started = lines.filter(([word]) => word === "start").map((words) => words.join(" "));
    const twice = started.length - new Set(started).size;
    const open = [...stored.runs.values()].filter(({ status }) => status !== "completed");
    const fault = await findFault(database, schema);
    return {
      problems: [
        ...(stored.runs.size === runs ? [] : [`there are ${stored.runs.size} runs`]),
        ...(steps === runs * STEPS ? [] : [`${steps} steps are recorded`]),
        ...(twice === 0 ? [] : [`${twice} steps were started twice in one execution`]),
        ...open.map(({ id, status }) => `${id} is ${status}`),
        ...findWrongSteps(stored, lines, new Map()),
        ...findWrongOrder(stored, lines),
        ...(fault === null ? [] : [fault]),
      ],
      ms,
      steps,
      startedAgain: started.length - steps,
    };
  } finally {
    await database.end();
  }
}
