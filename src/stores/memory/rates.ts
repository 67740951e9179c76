import type { Rate } from "../../flow.ts";

/** The starts that a rate counts. */
interface Window {
  /** The instants of the starts, the oldest first. */
  starts: number[];
  /** The longest period of the rates that look at them. */
  period: number;
}

/** The starts of jobs and of concurrency keys whose runs have a rate. */
export class MemoryRates {
  readonly #windows = new Map<string, Window>();

  /** Whether no start counts any more. */
  get isEmpty(): boolean {
    return this.#windows.size === 0;
  }

  /** Counts starts in the future as starts of now, and drops those that are too old to count. */
  update(now: number): void {
    for (const [scope, { starts, period }] of this.#windows) {
      for (let at = starts.length - 1; at >= 0 && starts[at]! > now; at--) starts[at] = now;
      const counting = starts.findIndex((start) => start + period > now);
      if (counting === -1) this.#windows.delete(scope);
      else starts.splice(0, counting);
    }
  }

  /** When a rate allows the next start: an instant that has passed if it is open. */
  opensAt(scope: string, { limit, period }: Rate): number {
    const start = this.#windows.get(scope)?.starts.at(-limit);
    return start === undefined ? -Infinity : start + period;
  }

  /** Counts a start. */
  count(scope: string, { period }: Rate, now: number): void {
    const window = this.#windows.get(scope) ?? { starts: [], period };
    window.period = Math.max(window.period, period);
    window.starts.push(now);
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
