import { until } from "../../processes/deadline.ts";
import { nap } from "../nap.ts";

/** How a scenario waits: until it is interrupted. Then each wait throws, so that the scenario ends and tidies up. */
export class Patience {
  readonly #abortSignal: AbortSignal;

  /** @param abortSignal Interrupts the scenario. */
  constructor(abortSignal: AbortSignal) {
    this.#abortSignal = abortSignal;
  }

  /** Throws if the scenario was interrupted. */
  check(): void {
    this.#abortSignal.throwIfAborted();
  }

  /** Resolves after so many milliseconds. */
  async pause(ms: number): Promise<void> {
    await nap(ms, this.#abortSignal);
    this.check();
  }

  /** Resolves when a condition is true. `what` says what was waited for. */
  async until(isTrue: () => boolean | Promise<boolean>, what: string): Promise<void> {
    await until(() => {
      this.check();
      return isTrue();
    }, what);
  }
}
