import { Chance } from "../support/chance.ts";
import { allEnded } from "./all_ended.ts";
import { backUp } from "./back_up.ts";
import { StormParticipants } from "./storm_participants.ts";
import { nap } from "./nap.ts";
import type { Latencies } from "./latencies.ts";
import { Nemesis } from "./nemesis.ts";
import { losePower } from "./power_loss.ts";
import type { Observations } from "./observations.ts";
import type { Sizes } from "./sizes.ts";
import type { Tally } from "./tally.ts";
import type { Violations } from "./violations.ts";

/** What a storm is like. Durations are in milliseconds. */
export interface StormOptions {
  /** How long there is trouble. */
  ms: number;
  /** What decides which trouble. */
  seed: number;
  /** How many workers serve at the same time. */
  workers: number;
  /** How long the storm goes on between two power losses. */
  powerLossEveryMs: number;
  /** How long the storm goes on between two backups. */
  backupEveryMs: number;
  /** An empty folder for everything that it leaves. */
  folder: string;
  /** Ends it early. */
  abortSignal: AbortSignal;
  /** Hears now and then how things stand. */
  onProgress?: (progress: StormProgress) => void;
}

/** How far a storm has come. */
export interface StormProgress {
  /** For how long there has been trouble, in milliseconds. */
  ms: number;
  /** What has happened. */
  tally: Tally;
  /** What was seen last. */
  observations: Observations;
  /** How large the files are. */
  sizes: Sizes;
}

/** What a storm came to. */
export interface StormResult extends StormProgress {
  /** The promises that were broken. */
  violations: Violations;
  /** For how long an event loop stood still, and not on purpose. */
  longestGap: { wallMs: number; cpuMs: number };
  /** How long it took until every run had ended, once the trouble was over, in milliseconds. */
  drainMs: number;
  /** How long the slowest backup took, in milliseconds. */
  longestBackupMs: number;
  /** How fast events reached other processes. */
  latencies: Latencies;
  /** How many lines of the ledger were cut off. */
  tornLines: number;
}

const LEASE_MS = 500;
const CLIENTS = 12;
const LOOK_EVERY_MS = 1_000;
const LOOK_EVERY_MS_AT_THE_END = 100;
// Only reached when something is broken, and even then not by a slow machine: there are some dozens of runs left.
const TRIM_EVERY_MS = 2_000;
// Everything but the newest row, or all but the older ones.
const KEPT_BYTES = [1, 4_096, 32_768];
const LULL_EVERY_MS = 10_000;
const LULL_MS = 2_000;
const DRAIN_MS = 180_000;

/** Why there can be no storm on this machine; `null` if there can. */
export function findObstacle(): string | null {
  return Deno.build.os === "linux" ? null : "whether a process is suspended is told on Linux only";
}

/** Lets workers execute runs while they are killed and suspended, and clients ask for more; checks what comes of it. */
export async function storm(options: StormOptions): Promise<StormResult> {
  const { seed, folder, workers, abortSignal } = options;
  await using participants = new StormParticipants({ folder, seed, workers, clients: CLIENTS, leaseMs: LEASE_MS });
  const { violations, history, ledger, tally, observations, sizes } = participants;
  const isPlain = () => violations.found.length === 0 && !abortSignal.aborted;
  const calm = new AbortController();
  const isEnough = AbortSignal.any([calm.signal, abortSignal, violations.anyFound]);
  await participants.begin(isEnough);

  const since = performance.now();
  const progress = (): StormProgress => ({ ms: performance.now() - since, tally, observations, sizes });
  const look = () => {
    participants.examiner.look();
    sizes.sample(tally.get("runs that ended"));
    options.onProgress?.(progress());
  };
  const timer = setTimeout(() => calm.abort(), options.ms);
  await makeTrouble(participants, options, look, isEnough, () => calm.abort());
  clearTimeout(timer);
  const { ms } = progress();

  const drainMs = isPlain() ? await drain(look, participants) : 0;
  if (isPlain()) await participants.end();
  if (isPlain()) participants.examiner.lookAtAll();
  return {
    ...progress(),
    ms,
    violations,
    longestGap: history.longestGap,
    drainMs,
    longestBackupMs: participants.longest.backupMs,
    latencies: participants.examiner.latencies,
    tornLines: ledger.tornLines,
  };
}

async function makeTrouble(
  participants: StormParticipants,
  { folder, seed, powerLossEveryMs, backupEveryMs }: StormOptions,
  look: () => void,
  isEnough: AbortSignal,
  giveUp: () => void,
): Promise<void> {
  const powerLoss = { ...participants, folder, leaseMs: LEASE_MS, chance: new Chance(seed, "power loss") };
  const { calm, examiner } = participants;
  const chance = new Chance(seed, "trim");
  const disturb = (everyMs: number, work: (number: number) => void | Promise<void>) => {
    return repeat(everyMs, isEnough, (number) => calm.disturb(() => work(number)));
  };
  const troubles = [
    new Nemesis(participants.pool, (path) => new Chance(seed, path), calm, participants.tally).rage(isEnough),
    disturb(LOOK_EVERY_MS, look),
    disturb(TRIM_EVERY_MS, () => examiner.trim(chance.pick(KEPT_BYTES))),
    repeat(powerLossEveryMs, isEnough, (number) => losePower(number, powerLoss)),
    disturb(backupEveryMs, (number) => backUp(number, { ...participants, folder })),
    repeat(LULL_EVERY_MS, isEnough, () => calm.lull(LULL_MS, isEnough)),
  ];
  for (const trouble of troubles) trouble.catch(giveUp);
  await allEnded(troubles);
}

/** Does something again and again, with so many milliseconds in between, until the signal is aborted. */
async function repeat(
  everyMs: number,
  abortSignal: AbortSignal,
  work: (number: number) => void | Promise<void>,
): Promise<void> {
  for (let number = 1;; number++) {
    await nap(everyMs, abortSignal);
    if (abortSignal.aborted) return;
    await work(number);
  }
}

/** Waits until every run has ended. Answers how long that took. */
async function drain(look: () => void, { observations, violations }: StormParticipants): Promise<number> {
  const since = performance.now();
  while (true) {
    look();
    const ms = performance.now() - since;
    if (observations.unfinished === 0 || violations.found.length > 0) return ms;
    if (ms > DRAIN_MS) {
      violations.add(`${observations.unfinished} runs have not ended ${ms} ms after the trouble was over`);
    }
    await nap(LOOK_EVERY_MS_AT_THE_END, violations.anyFound);
  }
}
