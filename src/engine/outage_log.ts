import type { Host } from "../model/host.ts";
import type { Logger } from "../model/logger.ts";
import { describeDuration } from "./operate/explain/describe_duration.ts";

const LINE_EVERY_MS = 60_000;
// Calls that are answered between others that fail are not the end of an outage: longer than any pause between two tries.
const QUIET_MS = 15_000;

/**
 * Logs that the store does not answer: a line when that begins, one a minute while it lasts, and one when it has ended.
 * Everything that calls the store fails meanwhile, and a line for each would fill a disk.
 */
export class OutageLog {
  readonly #logger: Logger;
  readonly #host: Pick<Host, "monotonic">;
  /** `isAnswered`: a call was answered since the last one that failed. */
  #outage: { since: number; loggedAt: number; failedAt: number; failures: number; isAnswered: boolean } | null = null;

  /** Creates the log of an engine, and of the handlers that serve it. */
  constructor(logger: Logger, host: Pick<Host, "monotonic">) {
    this.#logger = logger;
    this.#host = host;
  }

  /** Something failed because the store did not answer. */
  noteFailure({ message }: Error): void {
    const now = this.#host.monotonic();
    if (this.#outage?.isAnswered) this.noteAnswer(); // it may have ended long ago, with no call since
    if (this.#outage === null) {
      this.#outage = { since: now, loggedAt: now, failedAt: now, failures: 1, isAnswered: false };
      return this.#logger.error(`The store does not answer; work goes on when it does. ${message}`);
    }
    const { since, loggedAt } = this.#outage;
    const failures = ++this.#outage.failures;
    this.#outage.failedAt = now;
    this.#outage.isAnswered = false;
    if (now - loggedAt < LINE_EVERY_MS) return;
    this.#outage.loggedAt = now;
    this.#logger.error(
      `The store has not answered for ${describeDuration(now - since)}, ${failures} times. ${message}`,
    );
  }

  /** The store has answered. */
  noteAnswer(): void {
    if (this.#outage === null) return;
    this.#outage.isAnswered = true;
    const { since, failedAt, failures } = this.#outage;
    if (this.#host.monotonic() - failedAt < QUIET_MS) return;
    this.#outage = null;
    const past = failures === 1
      ? "One call has failed"
      : `It did not for ${describeDuration(failedAt - since)}, ${failures} times`;
    this.#logger.warn(`The store answers again. ${past}`);
  }
}
