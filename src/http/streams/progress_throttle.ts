import type { RunEvent } from "../../event.ts";
import type { Host } from "../../host.ts";

interface Rest {
  /** The latest progress that came meanwhile. */
  held: RunEvent | null;
  cancelTimer: () => void;
}

/**
 * Holds back progress that comes too fast, of each run by itself: the first is told at once, and of what follows the
 * latest, after a while or right before the run's next `run:` event.
 */
export class ProgressThrottle {
  readonly #restMs: number;
  readonly #host: Host;
  readonly #publish: (event: RunEvent) => void;
  readonly #rests = new Map<string, Rest>();

  /** @param restMs How long progress is held back, in milliseconds; 0: not at all. */
  constructor(restMs: number, host: Host, publish: (event: RunEvent) => void) {
    this.#restMs = restMs;
    this.#host = host;
    this.#publish = publish;
  }

  /** Tells an event, or holds it back. */
  publish(event: RunEvent): void {
    const rest = this.#rests.get(event.runId);
    if (event.type !== "run:progress") {
      if (event.type.startsWith("run:") && rest !== undefined) this.#endRest(event.runId, rest);
      this.#publish(event);
    } else if (rest !== undefined) rest.held = event;
    else this.#publishAndRest(event);
  }

  /** Passes on what is held, and holds nothing any more. */
  flush(): void {
    const rests = [...this.#rests.values()];
    this.stop();
    for (const { held } of rests) if (held !== null) this.#publish(held);
  }

  /** Holds nothing any more, and tells nothing. */
  stop(): void {
    for (const { cancelTimer } of this.#rests.values()) cancelTimer();
    this.#rests.clear();
  }

  #publishAndRest(event: RunEvent): void {
    if (this.#restMs > 0) {
      const cancelTimer = this.#host.schedule(this.#restMs, () => this.#awake(event.runId));
      this.#rests.set(event.runId, { held: null, cancelTimer });
    }
    this.#publish(event);
  }

  #awake(runId: string): void {
    const held = this.#rests.get(runId)?.held ?? null;
    this.#rests.delete(runId);
    if (held !== null) this.#publishAndRest(held);
  }

  #endRest(runId: string, { held, cancelTimer }: Rest): void {
    cancelTimer();
    this.#rests.delete(runId);
    if (held !== null) this.#publish(held);
  }
}
