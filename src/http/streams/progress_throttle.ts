import type { RunEvent } from "../../model/event.ts";
import type { Host } from "../../model/host.ts";

interface Rest {
  /** The latest progress since the last published one. */
  held: RunEvent | null;
  cancelTimer: () => void;
}

/**
 * Throttles progress events, separately for each run: the first is published at once, and then only the latest, after
 * the interval or right before the run's next `run:` event.
 */
export class ProgressThrottle {
  readonly #restMs: number;
  readonly #host: Host;
  readonly #publish: (event: RunEvent) => void;
  readonly #rests = new Map<string, Rest>();

  /** @param restMs The minimum interval between two progress events of a run, in milliseconds; 0: no throttling. */
  constructor(restMs: number, host: Host, publish: (event: RunEvent) => void) {
    this.#restMs = restMs;
    this.#host = host;
    this.#publish = publish;
  }

  /** Publishes an event, or delays it. */
  publish(event: RunEvent): void {
    const rest = this.#rests.get(event.runId);
    if (event.type !== "run:progress") {
      if (event.type.startsWith("run:") && rest !== undefined) this.#endRest(event.runId, rest);
      this.#publish(event);
    } else if (rest !== undefined) rest.held = event;
    else this.#publishAndRest(event);
  }

  /** Publishes all delayed events. */
  flush(): void {
    const rests = [...this.#rests.values()];
    this.stop();
    for (const { held } of rests) if (held !== null) this.#publish(held);
  }

  /** Discards all delayed events. */
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
