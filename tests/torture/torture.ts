import { parseArgs } from "node:util";
import { type Result, writeResults } from "../support/results.ts";
import type { Scenario } from "./scenario.ts";
import { Patience } from "./scenarios/patience.ts";
import { SCENARIOS } from "./scenarios/scenarios.ts";
import { runPostgresTorture } from "./postgres_torture.ts";
import { findObstacle, storm } from "./storm.ts";
import { countsOf, describeProgress, describeTotals } from "./storm_report.ts";

// The command line of the torture: `deno task torture --minutes 30`.

const HELP = `deno task torture [options]

  --minutes N     how long the storm lasts, the scenario of streams, and each way of the bank (default 3)
  --seed S        what decides which blow when, and what a client asks (default: another one each time).
                  The plan is the same for one seed, but the processes are real: no two storms are the same
  --workers N     how many workers serve at the same time (default 3)
  --only NAME     "storm", "scenarios", or the name of a scenario: this one alone
  --store KIND    sqlite (default), or postgres: starts a server, and has the scenarios "storm", "many runs", "streams"
                  "messages", and those of the bank
  --runs N        how many runs "many runs" has (default 10,000)
  --brief         scenarios that take seconds rather than minutes
  --json FILE     write what was counted to a file
  --keep          keep the folder with the database, the ledger of the workers and the copies

A storm lets several processes execute runs on one file while they are killed, suspended, blocked and stopped at random
moments, cuts the power, makes backups, and asks over HTTP. Afterwards everything is drained. A scenario causes one fault
(a full disk, a moved clock) on purpose.`;

const INTERRUPTIONS = ["SIGINT", "SIGTERM"] as const;
const TOLD_EVERY_MS = { terminal: 1_000, file: 10_000 };
const MINUTE_MS = 60_000;
const BRIEF_MS = 8_000;
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
      json: { type: "string" },
      keep: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) return console.log(HELP);
  if (values.store === "postgres") {
    const { minutes, seed, runs, only } = values;
    const results = await runPostgresTorture({
      minutes: positive(minutes),
      seed: positive(seed),
      runs: positive(runs),
      only: only ?? null,
    });
    await writeResults(values.json, results);
    Deno.exit(results.every(isKept) ? 0 : 1);
  }
  if (values.store !== "sqlite") throw new RangeError("--store must be sqlite or postgres");
  const names = ["storm", "scenarios", ...SCENARIOS.map(({ name }) => name)];
  if (values.only !== undefined && !names.includes(values.only)) {
    throw new RangeError(`--only must be one of:\n  ${names.join("\n  ")}`);
  }
  const minutes = positive(values.minutes);
  const seed = positive(values.seed);
  const workers = positive(values.workers);
  const isChosen = (name: string) =>
    values.only === undefined || values.only === name || (values.only === "scenarios" && name !== "storm");
  const interruption = new AbortController();
  const interrupt = () => interruption.abort();
  for (const signal of INTERRUPTIONS) Deno.addSignalListener(signal, interrupt);
  const { signal: abortSignal } = interruption;
  const results: Result[] = [];
  if (isChosen("storm")) results.push(await runStorm({ minutes, seed, workers, keeps: values.keep, abortSignal }));
  for (const scenario of SCENARIOS.filter(({ name }) => isChosen(name))) {
    if (!abortSignal.aborted) {
      results.push(await runScenario(scenario, values.brief, minutes * MINUTE_MS, abortSignal));
    }
  }
  if (abortSignal.aborted) console.log("Interrupted: not everything was tried");
  else await writeResults(values.json, results);
  Deno.exit(results.every(isKept) && !abortSignal.aborted ? 0 : 1);
}

/** Whether every promise was kept, or could not be tried here. */
function isKept({ broken }: Result): boolean {
  return broken === null || broken === 0;
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

async function runStorm({ minutes, seed, workers, keeps, abortSignal }: StormSettings): Promise<Result> {
  const obstacle = findObstacle();
  if (obstacle !== null) {
    console.log(`storm: skipped: ${obstacle}`);
    return { name: "storm", broken: null, counts: {}, told: obstacle };
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
    return { name: "storm", broken: found.length, counts: { seed, ...countsOf(result) } };
  } catch (error) {
    // What could not go on because it was interrupted is no failure.
    if (abortSignal.aborted) return { name: "storm", broken: null, counts: {}, told: "interrupted" };
    isKept = true;
    throw error;
  } finally {
    if (isKept) console.log(`What is left of it is in ${folder}`);
    else await Deno.remove(folder, { recursive: true });
  }
}

async function runScenario(
  { name, run }: Scenario,
  isBrief: boolean,
  ms: number,
  abortSignal: AbortSignal,
): Promise<Result> {
  try {
    const result = await run({ isBrief, ms: isBrief ? BRIEF_MS : ms, patience: new Patience(abortSignal) });
    console.log(`${name}: ${result.outcome === "held" ? `held; ${result.told}` : `skipped: ${result.reason}`}`);
    if (result.outcome === "skipped") return { name, broken: null, counts: {}, told: result.reason };
    return { name, broken: 0, counts: result.counts ?? {}, told: result.told };
  } catch (error) {
    const isInterrupted = abortSignal.aborted && error === abortSignal.reason;
    console.log(
      `${name}: ${isInterrupted ? "interrupted" : `BROKEN\n${error instanceof Error ? error.stack : error}`}`,
    );
    return { name, broken: isInterrupted ? null : 1, counts: {} };
  }
}
