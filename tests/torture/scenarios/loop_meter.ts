/** How long an event loop was kept from going on, since it was last read. */
export interface LoopDelays {
  /** The longest time for which it did not come round, in milliseconds. */
  longestBlockMs: number;
  /** How many times it did not come round for more than 50 ms. */
  longBlocks: number;
  /** How many times it came round. */
  turns: number;
}

const BEAT_MS = 2;
const LONG_MS = 50;

/** Measures how long the event loop of this process is blocked: a short timer that comes late has waited for it. */
export class LoopMeter {
  #delays = noDelays();
  #beatenAt = performance.now();

  /** Begins to measure, until the process ends. */
  constructor() {
    this.#beat();
  }

  #beat(): void {
    setTimeout(() => {
      const now = performance.now();
      const late = now - this.#beatenAt - BEAT_MS;
      this.#beatenAt = now;
      this.#delays.turns++;
      if (late > LONG_MS) this.#delays.longBlocks++;
      this.#delays.longestBlockMs = Math.max(this.#delays.longestBlockMs, late);
      this.#beat();
    }, BEAT_MS);
  }

  /** What was measured since it was last read. */
  read(): LoopDelays {
    const delays = this.#delays;
    this.#delays = noDelays();
    return delays;
  }
}

function noDelays(): LoopDelays {
  return { longestBlockMs: 0, longBlocks: 0, turns: 0 };
}
