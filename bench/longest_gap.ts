/** For how long nothing else could happen. */
export interface Gaps {
  /** The longest time between two calls of a timer that is set to 1 ms, in milliseconds. */
  longestMs: number;
  /** The longest without the time that was spent on the disk meanwhile, in milliseconds. */
  longestOwnMs: number;
}

/**
 * Does some work and watches how long the event loop is held.
 *
 * @param diskMs How long commits have taken since the connection was opened, in milliseconds.
 */
export async function longestGap(diskMs: () => number, work: () => Promise<unknown>): Promise<Gaps> {
  const gaps = { longestMs: 0, longestOwnMs: 0 };
  let last = performance.now();
  let lastDiskMs = diskMs();
  const look = () => {
    const gap = performance.now() - last;
    gaps.longestMs = Math.max(gaps.longestMs, gap);
    gaps.longestOwnMs = Math.max(gaps.longestOwnMs, gap - (diskMs() - lastDiskMs));
    last = performance.now();
    lastDiskMs = diskMs();
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
