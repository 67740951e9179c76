import { setImmediate } from "node:timers";

/** Where the wall clock of a new world stands. */
export const START = Date.UTC(2040, 0, 1);

/** Who an event happens to: it is lost when that process has died meanwhile, and late while it is paused. */
export interface Mortal {
  /** How often it was started. */
  readonly incarnation: number;
  /** Until when nothing happens to it, on the world's clock. */
  readonly pausedUntil: number;
}

interface Happening {
  dueAt: number;
  /** When it was due at first: what waits for the end of a pause happens in that order. */
  firstDueAt: number;
  /** Decides between happenings of the same instant: the order in which they were asked for. */
  no: number;
  whom: Mortal | null;
  incarnation: number;
  happen: (() => void) | null;
}

/**
 * Owns time. Whatever happens is an event at an instant of a simulated clock, and events happen one after another:
 * each when everything that the one before had caused has been done.
 */
export class World {
  #now = 0;
  #wallOffset = START;
  #steps = 0;
  readonly #agenda = new Agenda();

  /** Milliseconds since the beginning, on a clock that never jumps. */
  get now(): number {
    return this.#now;
  }

  /** What a wall clock shows. */
  get wallNow(): number {
    return Math.floor(this.#wallOffset + this.#now);
  }

  /** How many events have happened. */
  get steps(): number {
    return this.#steps;
  }

  /** Sets the wall clock forward or (below 0) back. */
  jump(ms: number): void {
    this.#wallOffset += ms;
  }

  /**
   * Lets something happen after `ms` milliseconds.
   *
   * @param whom To which process, or `null` if it happens whoever dies.
   * @returns Cancels it; harmless when it has happened.
   */
  after(ms: number, whom: Mortal | null, happen: () => void): () => void {
    const dueAt = this.#now + Math.max(0, ms);
    const happening: Happening = {
      dueAt,
      firstDueAt: dueAt,
      no: 0,
      whom,
      incarnation: whom?.incarnation ?? 0,
      happen,
    };
    this.#agenda.add(happening);
    return () => void (happening.happen = null);
  }

  /** Resolves after `ms` milliseconds, whoever dies meanwhile. */
  pass(ms: number): Promise<void> {
    return new Promise((resolve) => void this.after(ms, null, resolve));
  }

  /** Lets one event after another happen until `isOver` or nothing is left; `afterEach` looks at what it has caused. */
  async run(isOver: () => boolean, afterEach: () => Promise<void> | void): Promise<void> {
    while (!isOver()) {
      const next = this.#agenda.takeFirst();
      if (next === undefined) return;
      const { whom, happen } = next;
      if (happen === null || (whom !== null && whom.incarnation !== next.incarnation)) continue;
      if (whom !== null && whom.pausedUntil > Math.max(this.#now, next.dueAt)) {
        next.dueAt = whom.pausedUntil;
        this.#agenda.add(next);
        continue;
      }
      this.#now = Math.max(this.#now, next.dueAt);
      this.#steps += 1;
      happen();
      // A real macrotask: all that follows without time, however many promises deep, is done when it comes.
      await new Promise<void>((resolve) => setImmediate(resolve));
      const looking = afterEach();
      if (looking !== undefined) await looking;
    }
  }

  /** How many events are still to happen to a process. */
  countAhead(whom: Mortal): number {
    return this.#agenda.count((other) =>
      other.whom === whom && other.incarnation === whom.incarnation && other.happen !== null
    );
  }
}

/** What is to happen, first things first (a binary heap). */
class Agenda {
  readonly #heap: Happening[] = [];
  #added = 0;

  add(happening: Happening): void {
    happening.no = this.#added++;
    const heap = this.#heap;
    let at = heap.push(happening) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!isBefore(happening, heap[parent]!)) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = happening;
  }

  takeFirst(): Happening | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (heap.length === 0 || last === undefined) return first;
    let at = 0;
    while (true) {
      let child = 2 * at + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1;
      if (!isBefore(heap[child]!, last)) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
    return first;
  }

  count(matches: (happening: Happening) => boolean): number {
    return this.#heap.filter(matches).length;
  }
}

function isBefore(left: Happening, right: Happening): boolean {
  if (left.dueAt !== right.dueAt) return left.dueAt < right.dueAt;
  return left.firstDueAt < right.firstDueAt || (left.firstDueAt === right.firstDueAt && left.no < right.no);
}
