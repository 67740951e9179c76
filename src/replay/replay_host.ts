import { type Host, systemHost } from "../model/host.ts";

interface Timer {
  dueAt: number;
  callback: () => void;
}

// A longer delay is a time limit of something that goes on outside of steps, and is counted in real time.
const LONGEST_SKIPPED_MS = 1_000;
// Into how many parts the patience is divided. After each of them what was due meanwhile has its turn, so that code that
// has blocked the event loop is not taken for silence.
const PARTS = 4;

/**
 * The host of one replay. Its clock stops while the job does something, and for some real time afterwards: the
 * job may await an import or a timer outside of its steps. Then the clock jumps to the next timer.
 */
export class ReplayHost implements Host {
  readonly #partMs: number;
  readonly #onQuiet: () => boolean;
  readonly #timers = new Set<Timer>();
  readonly #cancelReal = new Set<() => void>();
  #now = 0;
  #activities = 0;
  #seenActivities = -1;
  #quietParts = 0;
  #watch: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  /**
   * @param patienceMs For how much real time the job must do nothing before the clock jumps.
   * @param onQuiet Called before that. It returns whether it has done something, so that the clock does not jump yet.
   */
  constructor(patienceMs: number, onQuiet: () => boolean) {
    this.#partMs = patienceMs / PARTS;
    this.#onQuiet = onQuiet;
    this.#watchOn();
  }

  now(): number {
    return systemHost.now();
  }

  monotonic(): number {
    return this.#now;
  }

  schedule(ms: number, callback: () => void): () => void {
    this.noteActivity();
    if (ms > LONGEST_SKIPPED_MS) return this.#scheduleReal(ms, callback);
    const timer = { dueAt: this.#now + Math.max(0, ms), callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  defer(callback: () => void): void {
    this.noteActivity();
    systemHost.defer(() => {
      this.noteActivity();
      callback();
    });
  }

  random(): number {
    return systemHost.random();
  }

  newId(): string {
    return systemHost.newId();
  }

  /** Registers that the job has done something. */
  noteActivity(): void {
    this.#activities += 1;
  }

  /** Cancels all timers. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#watch);
    this.#timers.clear();
    for (const cancel of [...this.#cancelReal]) cancel();
  }

  #scheduleReal(ms: number, callback: () => void): () => void {
    const cancelTimer = systemHost.schedule(ms, () => {
      cancel();
      this.noteActivity();
      callback();
    });
    const cancel = () => {
      this.#cancelReal.delete(cancel);
      cancelTimer();
    };
    this.#cancelReal.add(cancel);
    return cancel;
  }

  #watchOn(): void {
    this.#watch = setTimeout(() => {
      const isQuiet = this.#activities === this.#seenActivities;
      this.#quietParts = isQuiet ? this.#quietParts + 1 : 0;
      this.#seenActivities = this.#activities;
      if (this.#quietParts >= PARTS) {
        this.#quietParts = 0;
        if (!this.#onQuiet()) this.#jump();
      }
      if (!this.#isClosed) this.#watchOn();
    }, this.#partMs);
  }

  /** Sets the clock to the next timer, and calls back those that are due then. */
  #jump(): void {
    if (this.#timers.size === 0) return;
    const timers = [...this.#timers].sort((one, other) => one.dueAt - other.dueAt);
    this.#now = Math.max(this.#now, timers[0]!.dueAt);
    for (const timer of timers) {
      if (timer.dueAt > this.#now || !this.#timers.delete(timer)) continue;
      this.noteActivity();
      timer.callback();
    }
  }
}
