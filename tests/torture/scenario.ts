import type { Patience } from "./scenarios/patience.ts";

/** What a scenario is given. */
export interface ScenarioOptions {
  /** Whether it takes seconds rather than minutes: fewer rounds, not fewer promises. */
  isBrief: boolean;
  /** How long a scenario causes faults that comes at random moments, in milliseconds. */
  ms: number;
  /** How it waits, so that it can be interrupted. */
  patience: Patience;
}

/** A fault of the outside world that is caused on purpose, with real processes, and the promises that have to hold. */
export interface Scenario {
  /** What happens, as a few words. */
  name: string;

  /**
   * Brings it about and looks at what comes of it. It leaves no process, mount or file behind.
   *
   * @throws A promise was broken, and the error says which and how things stand; or too little was exercised to tell; or
   * it was interrupted.
   */
  run(options: ScenarioOptions): Promise<ScenarioResult>;
}

/** How a scenario ended: all promises held, or the fault cannot be caused on this machine. */
export type ScenarioResult =
  /** `told` is one line of what was measured, `counts` the same for programs. */
  | { outcome: "held"; told: string; counts?: Record<string, number> }
  | { outcome: "skipped"; reason: string };
