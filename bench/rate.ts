import process from "node:process";
import type { Figure, Goal } from "./workload.ts";

/** The figures of {@linkcode Stopwatch.rate}: how many a second, and the processor time of each, which machines share more. */
export function rateFigures(name: string, of: string, goals: readonly Goal[]): Figure[] {
  return [
    { name, unit: "per second", goals },
    { name: `CPU of ${of}`, unit: "µs", goals: [] },
  ];
}

/** Measures from now on. */
export class Stopwatch {
  readonly #startedAt = performance.now();
  readonly #before = process.cpuUsage();

  /** How many a second there were, and how much processor time of this process each took, in microseconds. */
  rate(count: number): [perSecond: number, cpuUs: number] {
    const { user, system } = process.cpuUsage(this.#before);
    return [count / (performance.now() - this.#startedAt) * 1_000, (user + system) / count];
  }
}
