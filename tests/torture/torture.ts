import { parseArgs } from "node:util";
import type { Scenario } from "./scenario.ts";
import { Patience } from "./scenarios/patience.ts";
import { SCENARIOS } from "./scenarios/scenarios.ts";
import { runPostgresTorture } from "./postgres_torture.ts";
import { findObstacle, storm } from "./storm.ts";
import { describeProgress, describeTotals } from "./storm_report.ts";

// The command line of the torture: `deno task torture --minutes 30`.

const HELP = `deno task torture [options]

  --minutes N     how long the storm lasts (default 3)
  --seed S        what decides which blow when, and what a client asks (default: another one each time).
                  The plan is the same for one seed, but the processes are real: no two storms are the same
  --workers N     how many workers serve at the same time (default 3)
  --only NAME     "storm", or the name of a scenario: this one alone
  --store KIND    sqlite (default), or postgres: starts a server, and has the scenarios "storm" and "many runs"
  --runs N        how many runs "many runs" has (default 10,000)
  --brief         scenarios that take seconds rather than minutes
  --keep          keep the folder with the database, the ledger of the workers and the copies

A storm lets several processes execute runs on one file while they are killed, suspended, blocked and stopped at random
moments, cuts the power, makes backups, and asks over HTTP. Afterwards everything is drained. A scenario causes one fault
(a full disk, a moved clock) on purpose.`;

const INTERRUPTIONS = ["SIGINT", "SIGTERM"] as const;
const TOLD_EVERY_MS = { terminal: 1_000, file: 10_000 };
const MINUTE_MS = 60_000;
const SEEDS = 1_000_000;

await main();

async function main(): Promise<void> {
  const { values } = parseArgs({
    args: Deno.args,
    options: {
      minutes: { type: "string", default: "3" },
      seed: { type: "string", default: String(1 + Math.floor(Math.random() * SEEDS)) },
      workers: { type: "string", default: "3" },
      only: { type: "string" },
      store: { type: "string", default: "sqlite" },
      runs: { type: "string", default: "10000" },
      brief: { type: "boolean", default: false },
      keep: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  if (values.store === "postgres") {
    const { minutes, seed, runs, only } = values;
    const isOk = await runPostgresTorture({
      minutes: positive(minutes),
      seed: positive(seed),
      runs: positive(runs),
      only: only ?? null,
    });
    Deno.exit(isOk ? 0 : 1);
  }
  if (values.store !== "sqlite") throw new RangeError("--store must be sqlite or postgres");
  const names = ["storm", ...SCENARIOS.map(({ name }) => name)];
  if (values.only !== undefined && !names.includes(values.only)) {
    throw new RangeError(`--only must be one of:\n  ${names.join("\n  ")}`);
  }
  const minutes = positive(values.minutes);
  const seed = positive(values.seed);
  const workers = positive(values.workers);
  const isChosen = (name: string) => values.only === undefined || values.only === name;
  const interruption = new AbortController();
  const interrupt = () => interruption.abort();
  for (const signal of INTERRUPTIONS) Deno.addSignalListener(signal, interrupt);
  const { signal: abortSignal } = interruption;
  let isOk = !isChosen("storm") || await runStorm({ minutes, seed, workers, keeps: values.keep, abortSignal });
  for (const scenario of SCENARIOS.filter(({ name }) => isChosen(name))) {
    if (!abortSignal.aborted) isOk = await runScenario(scenario, values.brief, abortSignal) && isOk;
  }
  if (abortSignal.aborted) console.log("Interrupted: not everything was tried");
  Deno.exit(isOk && !abortSignal.aborted ? 0 : 1);
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0 && value < Infinity)) throw new RangeError(`${text} is no positive number`);
  return value;
}

interface StormSettings {
  minutes: number;
  seed: number;
  workers: number;
  /** Whether its folder is kept even if nothing is wrong. */
  keeps: boolean;
  abortSignal: AbortSignal;
}

/** Answers whether every promise was kept, or could not be tried here. */
async function runStorm({ minutes, seed, workers, keeps, abortSignal }: StormSettings): Promise<boolean> {
  const obstacle = findObstacle();
  if (obstacle !== null) {
    console.log(`storm: skipped: ${obstacle}`);
    return true;
  }
  const folder = await Deno.makeTempDir({ prefix: "holdfast-storm-" });
  const ms = minutes * MINUTE_MS;
  const tellEveryMs = Deno.stdout.isTerminal() ? TOLD_EVERY_MS.terminal : TOLD_EVERY_MS.file;
  let toldAt = -Infinity;
  let isKept = keeps;
  try {
    console.log(`A storm of ${minutes} minutes with seed ${seed} and ${workers} workers in ${folder}`);
    const result = await storm({
      ms,
      seed,
      workers,
      folder,
      powerLossEveryMs: Math.min(20_000, ms / 8),
      backupEveryMs: Math.min(15_000, ms / 10),
      abortSignal,
      onProgress: (progress) => {
        if (performance.now() - toldAt < tellEveryMs) return;
        toldAt = performance.now();
        console.log(describeProgress(progress));
      },
    });
    console.log(describeTotals(result));
    const { found } = result.violations;
    if (found.length > 0) {
      isKept = true;
      const text = `Seed ${seed}, ${workers} workers\n\n${result.violations.describe()}\n`;
      await Deno.writeTextFile(`${folder}/violations.txt`, text);
      console.log(`\n${text}`);
    }
    return found.length === 0;
  } catch (error) {
    // What could not go on because it was interrupted is no failure.
    if (abortSignal.aborted) return false;
    isKept = true;
    throw error;
  } finally {
    if (isKept) console.log(`What is left of it is in ${folder}`);
    else await Deno.remove(folder, { recursive: true });
  }
}

/** Answers whether every promise was kept, or could not be tried here. */
async function runScenario({ name, run }: Scenario, isBrief: boolean, abortSignal: AbortSignal): Promise<boolean> {
  try {
    const result = await run({ isBrief, patience: new Patience(abortSignal) });
    console.log(`${name}: ${result.outcome === "held" ? `held; ${result.told}` : `skipped: ${result.reason}`}`);
    return true;
  } catch (error) {
    const isInterrupted = abortSignal.aborted && error === abortSignal.reason;
    console.log(
      `${name}: ${isInterrupted ? "interrupted" : `BROKEN\n${error instanceof Error ? error.stack : error}`}`,
    );
    return false;
  }
}
