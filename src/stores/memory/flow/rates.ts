import type { Rate } from "../../../model/flow.ts";
import { STARTS_KEPT_MS } from "../../rules.ts";

/** The starts that a rate counts, the oldest first: as many as the largest limit. */
interface Window extends Rate {
  starts: number[];
}

/** The starts of jobs and of concurrency keys whose runs have a rate. */
export class MemoryRates {
  readonly #windows = new Map<string, Window>();

  /** Whether there is no start that could count. */
  get isEmpty(): boolean {
    return this.#windows.size === 0;
  }

  /** Makes starts in the future starts of now, and drops those that are too old to count. */
  update(now: number): void {
    for (const [scope, { starts, period }] of this.#windows) {
      for (let index = starts.length - 1; index >= 0 && starts[index]! > now; index--) starts[index] = now;
      if ((starts.at(-1) ?? 0) + period + STARTS_KEPT_MS <= now) this.#windows.delete(scope);
    }
  }

  /** When a rate allows the next start: an instant that has passed if it is open. */
  opensAt(scope: string, { limit, period }: Rate): number {
    const start = this.#windows.get(scope)?.starts.at(-limit);
    return start === undefined ? -Infinity : start + period;
  }

  /** How many starts a rate allows now, and when the next one may follow them. A start in the future is one of now. */
  roomOf(scope: string, { limit, period }: Rate, now: number): { allowed: number; opensAt: number } {
    const counting = (this.#windows.get(scope)?.starts ?? []).slice(-limit).filter((at) =>
      Math.min(at, now) + period > now
    );
    return { allowed: limit - counting.length, opensAt: Math.min(counting[0] ?? now, now) + period };
  }

  /** Counts a start. */
  count(scope: string, { limit, period }: Rate, now: number): void {
    const window = this.#windows.get(scope) ?? { starts: [], limit, period };
    window.limit = Math.max(window.limit, limit);
    window.period = Math.max(window.period, period);
    window.starts.push(now);
    if (window.starts.length > window.limit) window.starts.shift();
    this.#windows.set(scope, window);
  }
}

/** The starts of a job. */
export function jobScope(jobName: string): string {
  return `job ${jobName}`;
}

/** The starts of the runs of a concurrency key. */
export function keyScope(concurrencyKey: string): string {
  return `key ${concurrencyKey}`;
}
