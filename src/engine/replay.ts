import type { Host } from "../host.ts";

/**
 * Delivers recorded results in the order in which they were committed, so that `Promise.race` and interleaved
 * branches go as they went.
 *
 * A result that is asked for alone and in its turn is delivered at once. Otherwise it waits until the job asks for
 * nothing more; then the first of those that were asked for is delivered, and what came before it is passed over: new
 * code may not ask for it any more. So the job has gone on with one result before it gets the next.
 */
export class Replay {
  readonly #host: Host;
  readonly #order: readonly number[];
  readonly #asked = new Map<number, PromiseWithResolvers<void>>();
  #next = 0;
  #hasEnded = false;
  #isWaitingForQuiet = false;
  /** Whether a result is on its way to the job. */
  #isDelivering = false;

  /** @param recordedNos The places of all recorded results in the order of their commits. */
  constructor(recordedNos: readonly number[], host: Host) {
    this.#order = recordedNos.toSorted((left, right) => left - right);
    this.#host = host;
  }

  /** Whether the job still does over what it did before. */
  get isUnderWay(): boolean {
    return !this.#hasEnded && this.#next < this.#order.length;
  }

  /** Says that the job has gone on to something new. Results that it asks for later still come in their order. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Says that what was delivered has reached the job. */
  noteArrival(): void {
    this.#isDelivering = false;
  }

  /** Resolves when everything that was asked for is delivered: what is recorded comes before what is new. */
  async caughtUp(): Promise<void> {
    while (this.#asked.size > 0) await new Promise<void>((resolve) => this.#host.defer(resolve));
  }

  /** Resolves when it is the turn of this result. */
  deliver(recordedNo: number): Promise<void> | undefined {
    const turn = this.#order[this.#next];
    // What was passed over, or was recorded only since, has no turn to wait for.
    if (turn === undefined || recordedNo < turn || recordedNo > this.#order.at(-1)!) return;
    if (recordedNo === turn && this.#asked.size === 0 && !this.#isDelivering) {
      this.#next += 1;
      this.#isDelivering = true;
      return;
    }
    // Two may ask for one result: a wait can be waited for twice.
    const asked = this.#asked.get(recordedNo) ?? Promise.withResolvers<void>();
    this.#asked.set(recordedNo, asked);
    this.#waitForQuiet();
    return asked.promise;
  }

  #waitForQuiet(): void {
    if (this.#isWaitingForQuiet || this.#asked.size === 0) return;
    this.#isWaitingForQuiet = true;
    const next = this.#next;
    this.#host.defer(() => {
      this.#isWaitingForQuiet = false;
      if (this.#next === next) this.#deliverFirst();
      this.#waitForQuiet();
    });
  }

  #deliverFirst(): void {
    while (!this.#asked.has(this.#order[this.#next]!)) this.#next += 1;
    const first = this.#order[this.#next]!;
    const { resolve } = this.#asked.get(first)!;
    this.#asked.delete(first);
    this.#next += 1;
    this.#isDelivering = true;
    resolve();
  }
}
