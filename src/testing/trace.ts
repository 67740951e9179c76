import type { TestClock } from "./test_clock.ts";

/** Something that has happened in a test. */
export interface TraceLine {
  /** When, in milliseconds since the test began. */
  at: number;
  /** Who did it, such as `worker 1`. */
  who: string;
  /** What it was. */
  what: string;
  /** The run that it belongs to; `null`: to none. */
  runId: string | null;
}

// A test that needs more is not understood by its trace.
const MAX_LINES = 10_000;
const MAX_SHOWN = 60;

/** What has happened in a test, in order. */
export class Trace {
  readonly #clock: TestClock;
  readonly #lines: TraceLine[] = [];

  constructor(clock: TestClock) {
    this.#clock = clock;
  }

  /** Adds a line. */
  add(who: string, what: string, runId: string | null = null): void {
    if (this.#lines.length >= 2 * MAX_LINES) this.#lines.splice(0, MAX_LINES);
    this.#lines.push({ at: this.#clock.now - this.#clock.startedAt, who, what, runId });
  }

  /** The lines of a run and those that belong to none, as text: the newest 60. */
  show(runId: string | null = null): string {
    const lines = this.#lines.filter((line) => runId === null || line.runId === null || line.runId === runId);
    const left = lines.length - MAX_SHOWN;
    const shown = lines.slice(-MAX_SHOWN).map(({ at, who, what }) => `${seconds(at)}  ${who}  ${what}`);
    return [...(left > 0 ? [`     (${left} earlier lines left out)`] : []), ...shown].join("\n");
  }
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)}s`.padStart(10);
}
