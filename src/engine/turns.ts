import type { Host } from "../host.ts";

/**
 * Lets results that were recorded at about the same time reach the job in the order of their records, one after
 * another: a replay delivers them so.
 */
export class Turns {
  readonly #host: Host;
  readonly #held: { recordedNo: number; resolve: () => void }[] = [];
  #answersDue = 0;
  #isScheduled = false;

  /** Holds nothing yet. */
  constructor(host: Host) {
    this.#host = host;
  }

  /** Whether results wait for their turn. */
  get isHolding(): boolean {
    return this.#held.length > 0;
  }

  /** Notes a call to the store that may answer with a record: until it does, nobody has a turn. */
  async expect<T>(answer: Promise<T>): Promise<T> {
    this.#answersDue += 1;
    try {
      return await answer;
    } finally {
      this.#answersDue -= 1;
      this.#schedule();
    }
  }

  /** Resolves when everything that was recorded before, as far as it is known, has reached the job. */
  wait(recordedNo: number): Promise<void> {
    return new Promise((resolve) => {
      this.#held.push({ recordedNo, resolve });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled || this.#held.length === 0) return;
    this.#isScheduled = true;
    this.#host.defer(() => {
      this.#isScheduled = false;
      if (this.#answersDue > 0) return;
      this.#held.sort((left, right) => left.recordedNo - right.recordedNo).shift()?.resolve();
      this.#schedule();
    });
  }
}
