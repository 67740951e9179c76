import { executeManyRuns } from "../stores/postgres/processes/many_runs.ts";
import { storm } from "../stores/postgres/processes/storm.ts";
import { type Server, startServer } from "../stores/postgres/server.ts";

/** What to try on a PostgreSQL server. */
export interface PostgresTortureOptions {
  /** How long the storm lasts. */
  minutes: number;
  /** What decides which faults and requests the storm has. */
  seed: number;
  /** How many runs the processes execute that nobody disturbs. */
  runs: number;
  /** The scenario, if it is one alone. */
  only: string | null;
}

const MINUTE_MS = 60_000;
const RESTART_EVERY_MS = 6_000;
const MAX_TOLD = 30;

/** Starts a server, and tries everything on it. Answers whether every promise was kept, or could not be tried here. */
export async function runPostgresTorture({ minutes, seed, runs, only }: PostgresTortureOptions): Promise<boolean> {
  const scenarios: Record<string, (server: Server) => Promise<string[]>> = {
    "storm": async (server) => {
      console.log(`A storm of ${minutes} minutes with seed ${seed}`);
      const { problems, tally, drainMs } = await storm(server, {
        ms: minutes * MINUTE_MS,
        seed,
        restartEveryMs: RESTART_EVERY_MS,
        onProgress: console.log,
      });
      console.log(`${tally.describe()}; drained in ${Math.round(drainMs)} ms`);
      return problems;
    },
    "many runs": async (server) => {
      const { problems, ms, steps, startedAgain } = await executeManyRuns(server, runs);
      console.log(
        `${runs} runs with ${steps} steps took ${Math.round(ms)} ms; ${startedAgain} steps were started again`,
      );
      return problems;
    },
  };
  if (only !== null && !(only in scenarios)) {
    throw new RangeError(`--only must be one of:\n  ${Object.keys(scenarios).join("\n  ")}`);
  }
  const server = startServer({ fsync: true, isOwn: true });
  if (server === null) return true;
  let isOk = true;
  for (const [name, run] of Object.entries(scenarios).filter(([name]) => only === null || only === name)) {
    const problems = await run(server);
    console.log(`${name}: ${problems.length === 0 ? "held" : `BROKEN\n${problems.slice(0, MAX_TOLD).join("\n")}`}`);
    isOk &&= problems.length === 0;
  }
  return isOk;
}
