import { executeManyRuns } from "../stores/postgres/processes/many_runs.ts";
import { storm } from "../stores/postgres/processes/storm.ts";
import { POSTGRES_BANKS } from "./postgres_banks.ts";
import { Patience } from "./scenarios/patience.ts";
import { type Server, startServer } from "../stores/postgres/server.ts";
import type { Result } from "../support/results.ts";
import { describeMessages, tortureMessages } from "./messages/message_torture.ts";
import { describeStreams, tortureStreams } from "./streams/stream_torture.ts";

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

interface Tried {
  /** The promises that were broken. */
  problems: string[];
  counts: Record<string, number>;
}

/** Starts a server, and tries everything on it. */
export async function runPostgresTorture({ minutes, seed, runs, only }: PostgresTortureOptions): Promise<Result[]> {
  const scenarios: Record<string, (server: Server) => Promise<Tried>> = {
    "storm": async (server) => {
      console.log(`A storm of ${minutes} minutes with seed ${seed}`);
      const { problems, tally, drainMs } = await storm(server, {
        ms: minutes * MINUTE_MS,
        seed,
        restartEveryMs: RESTART_EVERY_MS,
        onProgress: console.log,
      });
      console.log(`${tally.describe()}; drained in ${Math.round(drainMs)} ms`);
      return { problems, counts: { seed, ...tally.toRecord(), minutes } };
    },
    "many runs": async (server) => {
      const { problems, ms, steps, startedAgain } = await executeManyRuns(server, runs);
      console.log(
        `${runs} runs with ${steps} steps took ${Math.round(ms)} ms; ${startedAgain} steps were started again`,
      );
      return { problems, counts: { runs, steps, "steps started again": startedAgain } };
    },
    "streams": async (server) => {
      const schema = `streams_${crypto.randomUUID().replaceAll("-", "")}`;
      const places = { kind: "postgres", url: server.url, schema, restart: () => server.restart() } as const;
      const result = await tortureStreams(places, { ms: minutes * MINUTE_MS });
      console.log(describeStreams(result));
      return { problems: result.problems, counts: result.tally };
    },
    "messages": async (server) => {
      const schema = `messages_${crypto.randomUUID().replaceAll("-", "")}`;
      const ledger = await Deno.makeTempFile({ prefix: "ledger-" });
      const places = { kind: "postgres", url: server.url, schema } as const;
      const result = await tortureMessages(places, { ms: minutes * MINUTE_MS, ledger });
      await Deno.remove(ledger);
      console.log(describeMessages(result));
      return { problems: result.problems, counts: result.tally };
    },
    ...Object.fromEntries(POSTGRES_BANKS.map((kind) => [kind.name, async (server: Server) => {
      const patience = new Patience(new AbortController().signal);
      const result = await kind.run(server, { ms: minutes * MINUTE_MS, patience });
      console.log(result);
      return { problems: [], counts: {} };
    }])),
  };
  if (only !== null && !(only in scenarios)) {
    throw new RangeError(`--only must be one of:\n  ${Object.keys(scenarios).join("\n  ")}`);
  }
  const server = startServer({ fsync: true, isOwn: true });
  if (server === null) return [{ name: "all", broken: null, counts: {}, told: "there is no PostgreSQL" }];
  const results: Result[] = [];
  for (const [name, run] of Object.entries(scenarios).filter(([name]) => only === null || only === name)) {
    const { problems, counts } = await run(server);
    console.log(`${name}: ${problems.length === 0 ? "held" : `BROKEN\n${problems.slice(0, MAX_TOLD).join("\n")}`}`);
    results.push({ name, broken: problems.length, counts });
  }
  return results;
}
