import process from "node:process";

const EVERY_MS = 10;
const NOTABLE_MS = 20;
const NO_GAP: Gap = { wallMs: 0, cpuMs: 0 };

/** How long the event loop stood still. */
export interface Gap {
  /** How long it was, in milliseconds. */
  wallMs: number;
  /** How long the whole process was on a processor meanwhile, in milliseconds. */
  cpuMs: number;
}

/**
 * Measures for how long the event loop of this process stands still, by a timer that comes late. Left out is what
 * blocks it on purpose. What a SIGSTOP was a part of is for the driver to leave out. Not left out, since no process can
 * tell, is the time in which others had the processors or the disk: how long it was on a processor itself bounds its
 * own part.
 */
export class GapWatch {
  readonly #tell: (gap: Gap) => void;
  #longest = NO_GAP;
  #blockedMs = 0;

  /** @param tell Hears of each gap that is longer than any before it. */
  constructor(tell: (gap: Gap) => void = () => {}) {
    this.#tell = tell;
    this.#watch();
  }

  /** The longest gap since this was last asked. */
  takeLongest(): Gap {
    const longest = this.#longest;
    this.#longest = NO_GAP;
    return longest;
  }

  /** Blocks the event loop on purpose, in milliseconds. */
  block(ms: number): void {
    // Asleep, not busy: the others need the processor.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    this.#blockedMs += ms;
  }

  async #watch(): Promise<void> {
    while (true) {
      const blockedMs = this.#blockedMs;
      const cpuBefore = cpuMs();
      const before = performance.now();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
      const gap = { wallMs: Math.round(performance.now() - before - EVERY_MS), cpuMs: Math.round(cpuMs() - cpuBefore) };
      const isNotable = gap.wallMs > Math.max(NOTABLE_MS, this.#longest.wallMs);
      if (!isNotable || this.#blockedMs > blockedMs) continue;
      this.#longest = gap;
      this.#tell(gap);
    }
  }
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
