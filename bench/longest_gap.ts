import process from "node:process";

/** For how long nothing else could happen. */
export interface Gaps {
  /** The longest time between two calls of a timer that is set to 1 ms, in milliseconds. */
  longestMs: number;
  /**
   * The longest without the time that was spent on the disk meanwhile, or in which other processes had the processor,
   * in milliseconds.
   */
  longestOwnMs: number;
}

/**
 * Does some work and watches how long the event loop is held.
 *
 * @param diskMs How long commits have taken since the connection was opened, in milliseconds.
 */
export async function longestGap(diskMs: () => number, work: () => Promise<unknown>): Promise<Gaps> {
  const gaps = { longestMs: 0, longestOwnMs: 0 };
  const read = () => ({ now: performance.now(), disk: diskMs(), processor: processorMs() });
  let last = read();
  const look = () => {
    const { now, disk, processor } = read();
    const gap = now - last.now;
    // The processor time of all threads: what the garbage collector does beside us makes it longer, never shorter.
    const own = Math.min(gap - (disk - last.disk), processor - last.processor);
    gaps.longestMs = Math.max(gaps.longestMs, gap);
    gaps.longestOwnMs = Math.max(gaps.longestOwnMs, own);
    last = read();
  };
  const timer = setInterval(look, 1);
  try {
    await work();
    look();
  } finally {
    clearInterval(timer);
  }
  return gaps;
}

function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}
