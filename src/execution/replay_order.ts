import type { Host } from "../host.ts";

interface Held {
  recordedNo: number;
  resolve: () => void;
}

// ReplayOrder of the event loop that a replay asks for together: between two of them a job goes on as far as it can without one
// of its own, and one by one they would take most of a replay's time.
const TURNS_AT_ONCE = 32;

/**
 * Lets results reach the job in the order of their records, one after another: so that `Promise.race` and interleaved
 * branches go the same way in every execution.
 *
 * A result is delivered when the job asks for nothing more: so the job has gone on with one before it gets the next,
 * however many turns of its own that takes. Results that were recorded live wait for answers of the store that may
 * bring earlier ones; those of a replay are all known.
 */
export class ReplayOrder {
  readonly #host: Host;
  /** The place of the last result that was recorded before this execution. */
  readonly #lastNo: number;
  readonly #held: Held[] = [];
  #lastDelivered = 0;
  #hasNew = false;
  #isLeavingReplay = false;
  /** Those who wait until nothing is held. */
  readonly #whenEmpty: (() => void)[] = [];
  #answersDue = 0;
  #turnsDue = 0;
  /** The places of what a replay may deliver, in their order, and how many of them were delivered so. */
  readonly #replayed: readonly number[];
  #deliveredInOrder = 0;

  /** @param recordedNos The places of all results that were recorded before; 0 for none. */
  constructor(recordedNos: readonly number[], host: Host) {
    this.#replayed = [...new Set(recordedNos)].filter((no) => no > 0).sort((one, other) => one - other);
    this.#lastNo = this.#replayed.at(-1) ?? 0;
    this.#host = host;
  }

  /** Whether results wait for their turn. */
  get isHolding(): boolean {
    return this.#held.length > 0;
  }

  /** Whether the job still does over what it did before: until it is given the last of it, or has left it behind. */
  get isReplaying(): boolean {
    return !this.#hasNew && this.#lastDelivered < this.#lastNo;
  }

  /**
   * Says that the job asks for something new. What is left of the replay is behind it as soon as it asks for nothing
   * old any more: another branch may still do over what it did.
   */
  async noteNew(): Promise<void> {
    if (this.#isLeavingReplay || !this.isReplaying) return;
    this.#isLeavingReplay = true;
    await this.settled();
    this.#hasNew = true;
  }

  /** Notes a call to the store that may answer with a record: until it does, no live result has a turn. */
  async expect<T>(answer: Promise<T>): Promise<T> {
    this.#answersDue += 1;
    try {
      return await answer;
    } finally {
      this.#answersDue -= 1;
      this.#schedule();
    }
  }

  /** Resolves when everything that was recorded before, as far as it is asked for, has reached the job. */
  wait(recordedNo: number): Promise<void> {
    return new Promise((resolve) => {
      const after = this.#held.findLastIndex((held) => held.recordedNo <= recordedNo);
      this.#held.splice(after + 1, 0, { recordedNo, resolve });
      this.#schedule();
    });
  }

  /** Resolves when nothing waits for its turn. */
  async settled(): Promise<void> {
    do {
      if (this.isHolding) await new Promise<void>((resolve) => this.#whenEmpty.push(resolve));
      await new Promise<void>((resolve) => this.#host.defer(resolve));
    } while (this.isHolding);
  }

  #schedule(): void {
    if (this.#turnsDue > 0 || this.#held.length === 0) return;
    const left = this.#replayed.length - this.#deliveredInOrder;
    this.#turnsDue = this.#isFirstNext ? Math.min(left, TURNS_AT_ONCE) : 1;
    const turns = this.#turnsDue;
    for (let turn = 0; turn < turns; turn++) {
      this.#host.defer(() => {
        this.#turnsDue -= 1;
        // A branch that takes turns of its own may ask for something earlier: it is given a turn that begins after this.
        if (turn === 0 || this.#isFirstNext) this.#deliverFirst();
        else this.#schedule();
      });
    }
  }

  /** Whether nothing that was recorded before can come before the first that waits. */
  get #isFirstNext(): boolean {
    return this.#held[0] !== undefined && this.#held[0].recordedNo === this.#replayed[this.#deliveredInOrder];
  }

  #deliverFirst(): void {
    if (this.#held.length === 0) return;
    const { recordedNo, resolve } = this.#held[0]!;
    // The answer schedules the next delivery.
    if (recordedNo > this.#lastNo && this.#answersDue > 0) return;
    if (this.#isFirstNext) this.#deliveredInOrder += 1;
    this.#held.shift();
    this.#lastDelivered = Math.max(this.#lastDelivered, recordedNo);
    resolve();
    if (!this.isHolding) { for (const tell of this.#whenEmpty.splice(0)) tell(); }
    this.#schedule();
  }
}
