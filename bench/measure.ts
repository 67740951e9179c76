import type { Setting } from "./setting.ts";
import { speedRatio, summarize, type Summary } from "./statistics.ts";
import {
  type Baseline,
  type Contender,
  CONTENDERS,
  type Figure,
  type Goal,
  isPeer,
  type Measure,
  type Trial,
  type Unit,
  UNITS,
  type Workload,
} from "./workload.ts";

/** How to measure. */
export interface MeasureOptions {
  /** How often, instead of what each trial says. */
  rounds: number | null;
  /** Whether the peers are measured, too. */
  peers: boolean;
  /** Whether to try only if everything works, in next to no time: the numbers mean nothing then. */
  quick: boolean;
  /** A directory for what is prepared once. */
  shared: string;
  /** Hears what is going on. */
  progress: { begin(topic: string): void; detail(text: string): void };
}

/** What was found out about one figure. */
export interface Result {
  /** The name of its workload. */
  workload: string;
  /** The name of its trial. */
  trial: string;
  /** The figure. */
  figure: Figure;
  /** What each contender has answered, a number a round. */
  samples: Partial<Record<Contender, number[]>>;
  /** The same, summed up. */
  summaries: Partial<Record<Contender, Summary>>;
  /** How fast ours is, measured by each baseline: 1 is as fast. */
  ratios: Partial<Record<Baseline, number>>;
  /** The goals that are missed, and how many times better ours would have to be. */
  missed: { goal: Goal; factor: number }[];
}

/**
 * Measures a workload: in each round every contender once, in another order, each on files of its own. What is
 * measured first in a process is slower, so that each does everything once before, in small.
 */
export async function measure(workload: Workload, options: MeasureOptions): Promise<Result[]> {
  const results: Result[] = [];
  for (const trial of workload.trials) {
    options.progress.begin(`${workload.name}: ${trial.name}`);
    const samples = await sampleTrial(trial, options);
    if (samples.length === 0) continue; // it is about the peers alone
    results.push(...trial.figures.map((figure, position) => {
      const own = samples.map(({ contender, rows }) => [contender, rows.map((row) => row[position] ?? null)] as const);
      return toResult(workload.name, trial.name, figure, own);
    }));
  }
  return results;
}

// A trial that takes longer, on a slow disk or a busy machine, makes no further round.
const MAX_TRIAL_MS = 60_000;

interface Sampled {
  contender: Contender;
  /** What it answered, round by round. */
  rows: (readonly (number | null)[])[];
}

async function sampleTrial(trial: Trial, options: MeasureOptions): Promise<Sampled[]> {
  const sampled: Sampled[] = CONTENDERS
    .filter((contender) => trial.contenders[contender] !== undefined && (options.peers || !isPeer(contender)))
    .map((contender) => ({ contender, rows: [] }));
  const rounds = options.quick ? 1 : options.rounds ?? trial.rounds;
  const peerRounds = Math.min(rounds, trial.peerRounds ?? rounds);
  const startedAt = performance.now();
  for (let round = options.quick ? 1 : 0; round <= rounds; round++) {
    if (round > 1 && performance.now() - startedAt > MAX_TRIAL_MS) break;
    // Round 0 is the one that does not count.
    const isWarmUp = round === 0;
    for (let turn = 0; turn < sampled.length; turn++) {
      const { contender, rows } = sampled[(round + turn) % sampled.length]!;
      if (isPeer(contender) && (isWarmUp || round > peerRounds)) continue;
      const where = `${isWarmUp ? "warm-up" : `round ${round} of ${rounds}`}, ${contender}`;
      options.progress.detail(where);
      const row = await measureOnce(trial.contenders[contender]!, {
        quick: options.quick || isWarmUp,
        shared: options.shared,
        say: (text) => options.progress.detail(`${where}, ${text}`),
      });
      if (!isWarmUp) rows.push(row);
    }
  }
  return sampled;
}

async function measureOnce(
  measure: Measure,
  { quick, shared, say }: { quick: boolean; shared: string; say: Setting["say"] },
): Promise<readonly (number | null)[]> {
  const folder = await Deno.makeTempDir({ prefix: "holdfast_bench_" });
  try {
    collectGarbage();
    return await measure({ folder, shared, say, size: (full, small) => quick ? small : full });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** So that nobody pays for what another has left behind. */
function collectGarbage(): void {
  // Only there with --v8-flags=--expose-gc.
  (globalThis as { gc?: () => void }).gc?.();
}

/** Sums up what the contenders have answered for one figure; `null` where one has no such number. */
export function toResult(
  workload: string,
  trial: string,
  figure: Figure,
  answers: readonly (readonly [Contender, readonly (number | null)[]])[],
): Result {
  const samples: Result["samples"] = {};
  for (const [contender, values] of answers) {
    const numbers = values.filter((value) => value !== null);
    if (numbers.length > 0) samples[contender] = numbers;
  }
  const summaries = Object.fromEntries(
    Object.entries(samples).map(([contender, values]) => [contender, summarize(values)]),
  ) as Result["summaries"];
  const ratios: Result["ratios"] = {};
  for (const baseline of isAboutSpeed(figure.unit) ? ["raw", "empty"] as const : []) {
    if (samples.holdfast === undefined || samples[baseline] === undefined) continue;
    const ratio = speedRatio(samples.holdfast, samples[baseline], UNITS[figure.unit]);
    ratios[baseline] = ratio;
  }
  const missed = figure.goals.flatMap((goal) => {
    const factor = missedBy(goal, summaries.holdfast, ratios);
    return factor === null || factor <= 1 ? [] : [{ goal, factor }];
  });
  return { workload, trial, figure, samples, summaries, ratios, missed };
}

/** Whether it makes sense to ask how fast one is, measured by another. */
function isAboutSpeed(unit: Unit): boolean {
  return unit === "per second" || unit === "ms" || unit === "µs";
}

/** How many times better ours would have to be: 1 or less if the goal is reached, `null` if that was not measured. */
function missedBy(goal: Goal, ours: Summary | undefined, ratios: Result["ratios"]): number | null {
  if (ours === undefined) return null;
  if ("below" in goal) return ours.median / goal.below;
  if ("above" in goal) return goal.above / ours.median;
  const ratio = ratios[goal.of];
  return ratio === undefined ? null : goal.atLeast / ratio;
}
