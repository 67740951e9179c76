import { type Host, nextTurn } from "../../model/host.ts";

interface Held {
  recordedNo: number;
  onDelivery: (() => void) | undefined;
  resolve: () => void;
}

// A replay delivers one result in each macrotask, and the job continues as far as it can before the next one. This many
// macrotasks are scheduled at once: scheduled one by one, they would take most of a replay's time.
const TURNS_AT_ONCE = 32;

/**
 * Delivers results to the job in the order of their records, one by one, so that `Promise.race` and interleaved
 * branches behave the same in every execution.
 *
 * A result is delivered when the job makes no further calls. So the job has processed one result before it receives
 * the next, even if that takes several turns of the event loop. Live results wait for pending answers of the
 * store, which may bring earlier records; the results of a replay are all known.
 */
export class ResultOrder {
  readonly #host: Host;
  /** The position of the last result that was recorded before this execution. */
  readonly #lastNo: number;
  readonly #held: Held[] = [];
  #lastDelivered = 0;
  #hasNew = false;
  #isLeavingReplay = false;
  /** Callbacks for when no result is held. */
  readonly #whenEmpty: (() => void)[] = [];
  #answersDue = 0;
  #holding = 0;
  #turnsDue = 0;
  /** The positions of the results that a replay may deliver, in order, and how many of them were delivered. */
  readonly #replayed: readonly number[];
  #deliveredInOrder = 0;

  /** @param recordedNos The positions of all results that were recorded before; 0 for none. */
  constructor(recordedNos: readonly number[], host: Host) {
    this.#replayed = recordedNos.length === 0 ? recordedNos : inOrder(recordedNos);
    this.#lastNo = this.#replayed.at(-1) ?? 0;
    this.#host = host;
  }

  /** Whether results are held back. */
  get isHolding(): boolean {
    return this.#held.length > 0;
  }

  /** Whether the job still replays: until the last recorded result is delivered, or the job has moved past it. */
  get isReplaying(): boolean {
    return !this.#hasNew && this.#lastDelivered < this.#lastNo;
  }

  /**
   * Registers that the job begins something new. The replay does not end at once, since another branch may still be
   * replaying: it ends when all recorded results that the job requests are delivered.
   */
  noteNew(): void {
    if (!this.#isLeavingReplay && this.isReplaying) this.#leaveReplay();
  }

  async #leaveReplay(): Promise<void> {
    this.#isLeavingReplay = true;
    await this.settled();
    this.#hasNew = true;
  }

  /**
   * Registers a call to the store that may return a record: until it answers, no live result is delivered. Returns the
   * same promise.
   */
  expect<T>(answer: Promise<T>): Promise<T> {
    this.#answersDue += 1;
    const end = () => {
      this.#answersDue -= 1;
      this.#schedule();
    };
    answer.then(end, end);
    return answer;
  }

  /** Delivers no result until this work has settled: the next part of a result that has its turn. */
  hold<T>(work: Promise<T>): Promise<T> {
    this.#holding += 1;
    const end = () => {
      this.#holding -= 1;
      this.#schedule();
    };
    work.then(end, end);
    return work;
  }

  /**
   * Resolves when all earlier records that the job has requested are delivered.
   *
   * @param onDelivery Called right before the job gets the result.
   */
  wait(recordedNo: number, onDelivery?: () => void): Promise<void> {
    return new Promise((resolve) => {
      const after = this.#held.findLastIndex((held) => held.recordedNo <= recordedNo);
      this.#held.splice(after + 1, 0, { recordedNo, onDelivery, resolve });
      this.#schedule();
    });
  }

  /** Resolves when no result is held back. */
  async settled(): Promise<void> {
    do {
      if (this.isHolding) await new Promise<void>((resolve) => this.#whenEmpty.push(resolve));
      await nextTurn(this.#host);
    } while (this.isHolding);
  }

  #schedule(): void {
    if (this.#turnsDue > 0 || this.#held.length === 0 || this.#holding > 0) return;
    const left = this.#replayed.length - this.#deliveredInOrder;
    this.#turnsDue = this.#isFirstNext ? Math.min(left, TURNS_AT_ONCE) : 1;
    const turns = this.#turnsDue;
    for (let turn = 0; turn < turns; turn++) {
      this.#host.defer(() => {
        this.#turnsDue -= 1;
        // A branch that awaits other promises may request an earlier record: it gets another turn of the event loop.
        if (turn === 0 || this.#isFirstNext) this.#deliverFirst();
        else this.#schedule();
      });
    }
  }

  /** Whether no earlier record can precede the first waiting result. */
  get #isFirstNext(): boolean {
    return this.#held[0] !== undefined && this.#held[0].recordedNo === this.#replayed[this.#deliveredInOrder];
  }

  #deliverFirst(): void {
    if (this.#held.length === 0 || this.#holding > 0) return;
    const { recordedNo, onDelivery, resolve } = this.#held[0]!;
    // The answer schedules the next delivery.
    if (recordedNo > this.#lastNo && this.#answersDue > 0) return;
    if (this.#isFirstNext) this.#deliveredInOrder += 1;
    this.#held.shift();
    this.#lastDelivered = Math.max(this.#lastDelivered, recordedNo);
    onDelivery?.();
    resolve();
    if (!this.isHolding) { for (const resolve of this.#whenEmpty.splice(0)) resolve(); }
    this.#schedule();
  }
}

function inOrder(recordedNos: readonly number[]): readonly number[] {
  return [...new Set(recordedNos)].filter((no) => no > 0).sort((one, other) => one - other);
}
