import { setImmediate } from "node:timers";

/**
 * The engine's sources of nondeterminism: time, timers, randomness and ids. It is passed in, so that a test or a
 * simulation can control it.
 */
export interface Host {
  /** The wall clock, in milliseconds since 1970 (UTC). It may jump in both directions. */
  now(): number;
  /** A clock that never goes back, in milliseconds since an arbitrary moment. It measures durations. */
  monotonic(): number;
  /**
   * Calls back once after `ms` milliseconds of {@linkcode Host.monotonic} time. There is no upper limit.
   *
   * @returns A function that cancels the call; it has no effect after the call.
   */
  schedule(ms: number, callback: () => void): () => void;
  /** Calls back in a new macrotask, after everything that is ready to run. */
  defer(callback: () => void): void;
  /** A random number, at least 0 and below 1. */
  random(): number;
  /** A new UUIDv7 (RFC 9562, section 5.7). */
  newId(): string;
}

/** The host of a real process: the system's clock, timers and random numbers. */
export const systemHost: Host = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule: scheduleInSlices,
  defer: (callback) => void setImmediate(callback),
  random: () => Math.random(),
  newId: () => uuidV7(Date.now()),
};

// A timer of 2^31 ms or more fires at once, so longer ones are made of slices.
const MAX_SLICE_MS = 2 ** 30;

function scheduleInSlices(ms: number, callback: () => void): () => void {
  let left = Math.max(0, ms);
  let timer: ReturnType<typeof setTimeout>;
  const next = () => {
    const slice = Math.min(left, MAX_SLICE_MS);
    left -= slice;
    timer = setTimeout(left > 0 ? next : callback, slice);
  };
  next();
  return () => clearTimeout(timer);
}

/** Creates a UUIDv7: 48 bits of time, then 74 random bits (RFC 9562, section 5.7). */
export function uuidV7(now: number): string {
  const random = crypto.randomUUID(); // version 4: its random bits are kept, its version is replaced
  const time = Math.max(0, Math.trunc(now)).toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8, 12)}-7${random.slice(15)}`;
}

/** Waits for something, but not longer than `ms` milliseconds of the host's time. */
export async function within(host: Host, ms: number, work: Promise<unknown>): Promise<void> {
  const enough = new AbortController();
  try {
    await Promise.race([work, pause(host, ms, enough.signal)]);
  } finally {
    enough.abort();
  }
}

/** Waits for `ms` milliseconds of the host's time, or until `abortSignal` fires. */
export function pause(host: Host, ms: number, abortSignal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (abortSignal?.aborted) return resolve();
    const done = () => {
      cancel();
      abortSignal?.removeEventListener("abort", done);
      resolve();
    };
    const cancel = host.schedule(ms, done);
    abortSignal?.addEventListener("abort", done);
  });
}

/** Gives everything else that is ready to run a turn of the event loop. */
export function nextTurn(host: Host): Promise<void> {
  return new Promise((resolve) => host.defer(resolve));
}

/**
 * A sleep that can be ended at any time. A wake-up before the sleep begins prevents it, so that none is lost between
 * a check for work and the sleep.
 */
export class InterruptibleSleep {
  readonly #host: Host;
  #isWoken = false;
  #end: (() => void) | null = null;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Ends the sleep, or prevents the next one. */
  wake(): void {
    this.#isWoken = true;
    this.#end?.();
  }

  /** Sleeps for at most `ms` milliseconds. */
  async sleep(ms: number): Promise<void> {
    if (!this.#isWoken) {
      await new Promise<void>((resolve) => {
        const cancel = this.#host.schedule(ms, resolve);
        this.#end = () => {
          cancel();
          resolve();
        };
      });
    }
    this.#end = null;
    this.#isWoken = false;
  }
}
