import { setImmediate } from "node:timers";
import { type Host, uuidV7 } from "../model/host.ts";
import { randomNumbers } from "./fake_globals.ts";

/** When the clock of a new {@linkcode FakeHost} stands: an instant that no real clock shows during a test. */
export const FAKE_START = Date.UTC(2040, 0, 1);

/** Calls that are under way. */
export interface OpenCalls {
  /** How many they are. */
  readonly count: number;
  /** Resolves when one of them has ended. */
  next(): Promise<void>;
}

/** The host of one store or engine, whose time and randomness belong to a test. */
export class FakeHost implements Host {
  #elapsed = 0;
  #wallOffset = FAKE_START;
  #timers: { dueAt: number; callback: () => void }[] = [];
  readonly #random: () => number;
  readonly #calls: OpenCalls | null;

  /**
   * Two hosts of one seed draw the same random numbers.
   *
   * @param options.calls What {@linkcode FakeHost.settle} waits for beside macrotasks.
   */
  constructor(options: { seed?: number; calls?: OpenCalls } = {}) {
    this.#random = randomNumbers(options.seed ?? 1);
    this.#calls = options.calls ?? null;
  }

  /** The wall clock: {@linkcode FAKE_START} at first. */
  now(): number {
    return this.#wallOffset + this.#elapsed;
  }

  /** Milliseconds that were advanced. */
  monotonic(): number {
    return this.#elapsed;
  }

  /** How many timers have been set and are not due yet. */
  get timerCount(): number {
    return this.#timers.length;
  }

  /** Calls back when the test has advanced so far. */
  schedule(ms: number, callback: () => void): () => void {
    const timer = { dueAt: this.#elapsed + Math.max(0, ms), callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** Calls back in a real macrotask. */
  defer(callback: () => void): void {
    setImmediate(callback);
  }

  /** The next of a sequence that depends on the seed alone. */
  random(): number {
    return this.#random();
  }

  /** A unique id. */
  newId(): string {
    return uuidV7(this.now());
  }

  /** Lets time pass on both clocks. Timers that become due are called in order, each at its own instant. */
  advance(ms: number): void {
    const end = this.#elapsed + ms;
    for (let timer = this.#takeDue(end); timer !== undefined; timer = this.#takeDue(end)) {
      this.#elapsed = Math.max(this.#elapsed, timer.dueAt);
      timer.callback();
    }
    this.#elapsed = end;
  }

  /** Lets time pass while the event loop is blocked: all timers that become due are called at the end. */
  block(ms: number): void {
    this.#elapsed += ms;
    this.advance(0);
  }

  /** Sets the wall clock forward or (below 0) back, as an administrator might. No time passes. */
  jump(ms: number): void {
    this.#wallOffset += ms;
  }

  /** Lets everything run that needs no time: what is deferred, and what follows from it, some turns deep. */
  async settle(turns = 20): Promise<void> {
    for (let turn = 0; turn < turns; turn++) {
      await new Promise<void>((resolve) => this.defer(resolve));
      while (this.#calls !== null && this.#calls.count > 0) {
        await this.#calls.next();
        turn = 0; // what follows from an answer may take as many turns
      }
    }
  }

  #takeDue(end: number): { dueAt: number; callback: () => void } | undefined {
    let next: { dueAt: number; callback: () => void } | undefined;
    for (const timer of this.#timers) {
      if (timer.dueAt <= end && (next === undefined || timer.dueAt < next.dueAt)) next = timer;
    }
    this.#timers = this.#timers.filter((timer) => timer !== next);
    return next;
  }
}
