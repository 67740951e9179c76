interface Timer {
  dueAt: number;
  callback: () => void;
}

/** A clock that only a test moves, with the timers of all processes that follow it. Instants are in milliseconds. */
export class TestClock {
  /** When it was created. */
  readonly startedAt: number;
  readonly #timers = new Set<Timer>();
  #now: number;

  constructor(startedAt: number) {
    this.startedAt = startedAt;
    this.#now = startedAt;
  }

  /** The current instant. */
  get now(): number {
    return this.#now;
  }

  /** When the next timer is due; `null` if there is none. */
  get nextDueAt(): number | null {
    let next = Infinity;
    for (const { dueAt } of this.#timers) if (dueAt < next) next = dueAt;
    return next === Infinity ? null : next;
  }

  /** Calls back after a time; with `Infinity` never. The returned function cancels the call. */
  schedule(ms: number, callback: () => void): () => void {
    if (ms === Infinity) return () => {};
    const timer = { dueAt: this.#now + Math.ceil(Math.max(0, ms)), callback };
    this.#timers.add(timer);
    return () => void this.#timers.delete(timer);
  }

  /** Sets the clock to an instant that is not past, and calls back what is due by then, in the order of the instants. */
  moveTo(instant: number): void {
    this.#now = Math.max(this.#now, instant);
    const due = [...this.#timers].filter(({ dueAt }) => dueAt <= this.#now)
      .toSorted((one, other) => one.dueAt - other.dueAt);
    for (const timer of due) {
      // A timer before it may have cancelled it.
      if (this.#timers.delete(timer)) timer.callback();
    }
  }
}

/**
 * The milliseconds of an instant.
 *
 * @throws {RangeError} It is none.
 */
export function toInstant(date: Date | string | number): number {
  const instant = new Date(date).getTime();
  if (Number.isNaN(instant)) throw new RangeError(`${JSON.stringify(date)} is no instant: a Date, or ISO 8601`);
  return instant;
}
