import { type PostgresName, STEPS } from "../postgres/contender.ts";
import { measureDrain } from "../postgres/measure_drain.ts";
import { measureIdle, measureNotice } from "../postgres/notice.ts";
import { serverUrl } from "../postgres/server_url.ts";
import type { Goal, Measure, Trial, Workload } from "../workload.ts";

const RUNS = 12_000;
const PEER_RUNS = 400;
const CONCURRENCY = 100;
const NOTICED_RUNS = 60;
const IDLE_MS = 10_000;

/** How fast processes work off runs on a PostgreSQL server, and how soon they notice each other. */
export const postgres: Workload = {
  name: "postgres",
  title: "PostgreSQL: 12,000 runs of 5 steps",
  about:
    "One server, synchronous_commit = on; each worker is a process of its own. Raw claims 100 runs by one statement and " +
    "records what they do at the same moment by one statement. HOLDFAST_POSTGRES_URL names a server on another machine, " +
    "HOLDFAST_BENCH_WORKER a command that starts a worker there. Peers have 400 runs. pg-boss is a queue: it has no steps. " +
    "A core is one of workers and server together. DBOS publishes 43,000 workflows a second on a server with 96 vCPUs, 450 " +
    "for each of them without those of the workers (dbos.dev/blog/benchmarking-workflow-execution-scalability-on-postgres); " +
    "we know of no such figure of the others.",
  trials: [
    drain("concurrency 100, one process", 1, [{ atLeast: 0.3, of: "raw" }]),
    drain("concurrency 100, four processes", 4, [{ atLeast: 0.3, of: "raw" }]),
    {
      name: "a trigger of another process is noticed",
      figures: [{ name: "p50", unit: "ms", goals: [{ below: 10 }] }, { name: "p99", unit: "ms", goals: [] }],
      rounds: 2,
      contenders: { holdfast: ({ size }) => measureNotice(serverUrl(), size(NOTICED_RUNS, 3)) },
    },
    {
      name: "an idle process sends",
      figures: [{ name: "", unit: "statements/s", goals: [{ below: 2 }] }],
      rounds: 1,
      contenders: { holdfast: ({ size }) => measureIdle(serverUrl(), size(IDLE_MS, 500)) },
    },
  ],
};

function drain(name: string, processes: number, goals: readonly Goal[]): Trial {
  const measure = (contender: PostgresName, runs: number): Measure => async ({ size }) => {
    const count = size(runs, 100);
    const options = { name: contender, processes, concurrency: CONCURRENCY, count };
    const [speed = null, workers = null, server = null] = await measureDrain({ url: serverUrl(), ...options });
    const perCore = workers === null || server === null ? null : STEPS / (workers + server) * 1_000_000;
    return [speed, workers, server, contender === "pg-boss" ? null : perCore];
  };
  return {
    name,
    figures: [
      { name: "runs", unit: "per second", goals },
      { name: "CPU of the workers a run", unit: "µs", goals: [] },
      { name: "CPU of the server a run", unit: "µs", goals: [] },
      { name: "steps a second and core", unit: "per second", goals: [] },
    ],
    rounds: 3,
    peerRounds: 1,
    contenders: {
      raw: measure("raw", RUNS),
      holdfast: measure("holdfast", RUNS),
      dbos: measure("dbos", PEER_RUNS),
      durably: measure("durably", PEER_RUNS),
      openworkflow: measure("openworkflow", PEER_RUNS),
      "pg-boss": measure("pg-boss", PEER_RUNS),
    },
  };
}
