import { INVARIANTS } from "./invariants.ts";
import { type Situation, SITUATIONS } from "./situations.ts";
import type { Verdict } from "./simulation.ts";

const TOLD_LINES = 40;
const TOLD_WIDTH = 400;
// More than so many names are no command that one would type.
const MAX_ONLY = 12;

/** What many simulations came to. */
export class Totals {
  seeds = 0;
  events = 0;
  calls = 0;
  simulatedMs = 0;
  readonly situations = new Map<Situation, number>();
  readonly failed: Verdict[] = [];

  /** Adds one. */
  add(verdict: Verdict): void {
    this.seeds += 1;
    this.events += verdict.events;
    this.calls += verdict.calls;
    this.simulatedMs += verdict.simulatedMs;
    for (const [situation, count] of verdict.situations) {
      this.situations.set(situation, (this.situations.get(situation) ?? 0) + count);
    }
    if (verdict.violation !== null) this.failed.push(verdict);
  }

  /** All of it as numbers. */
  toCounts(): Record<string, number> {
    return {
      "seeds": this.seeds,
      "events": this.events,
      "calls to the store": this.calls,
      "simulated minutes": Math.round(this.simulatedMs / 60_000),
      "situations": this.situations.size,
      "known situations": SITUATIONS.length,
    };
  }

  /** What should have happened and never did. */
  missing(): Situation[] {
    return SITUATIONS.filter((situation) => !this.situations.has(situation));
  }
}

/**
 * Tells of a broken promise, and how to see it again.
 *
 * @param command What repeats the simulation.
 */
export function toFailure({ violation, happened, lastLines }: Verdict, command: string): string {
  const only = happened.length > MAX_ONLY ? "" : ` --only "${happened.join(",")}"`;
  return [
    `Broken: ${violation!.message}`,
    `${violation!.invariant} says: ${INVARIANTS[violation!.invariant]}`,
    "What happened last:",
    ...lastLines.slice(-TOLD_LINES).map((line) => `  ${line.slice(0, TOLD_WIDTH)}`),
    `Faults and requests: ${happened.length === 0 ? "nothing" : happened.join(", ")}`,
    `To see it again: ${command}${only}`,
  ].join("\n");
}
