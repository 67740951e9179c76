import type { RunEvent } from "../model/event.ts";
import type { Host } from "../model/host.ts";
import type { Store } from "../store/store.ts";
import { isoTime } from "../values/iso_time.ts";
import { openingEvents } from "./opening_events.ts";

const LOOK_EVERY_MS = 1_000;

interface Deps {
  store: Pick<Store, "getRunState">;
  host: Host;
}

/**
 * Publishes how many of its children have ended, while a run that somebody follows waits for them: at most once a second.
 * The end of a child is no event of its parent, which pays nothing for it: so this looks at the state of the run.
 */
export class ChildProgress {
  readonly #runId: string;
  readonly #deps: Deps;
  readonly #publish: (event: RunEvent) => void;
  #cancelTimer: (() => void) | null = null;
  #latest = "";
  /** The number of the newest event of the run: what was read before it is out of date. */
  #sequence = 0;

  /** @param publish Is given the events. */
  constructor(runId: string, deps: Deps, publish: (event: RunEvent) => void) {
    this.#runId = runId;
    this.#deps = deps;
    this.#publish = publish;
  }

  /** Looks at an event of the run, which says whether it may wait for children. */
  note(event: RunEvent): void {
    this.#sequence = Math.max(this.#sequence, event.sequence);
    const mayWait = mayAwaitChildren(event);
    if (mayWait === true) this.start();
    else if (mayWait === false) this.stop();
  }

  /** Begins to look. */
  start(): void {
    this.#cancelTimer ??= this.#deps.host.schedule(LOOK_EVERY_MS, () => void this.#look());
  }

  /** Looks no more. */
  stop(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  async #look(): Promise<void> {
    const looking = this.#cancelTimer;
    const event = await this.#read();
    if (this.#cancelTimer !== looking) return; // it was stopped meanwhile
    this.#cancelTimer = null;
    if (event === null) return;
    this.start();
    if (event === undefined || event.sequence <= this.#sequence) return;
    const progress = "progress" in event ? JSON.stringify(event.progress) : "";
    if (progress !== this.#latest) this.#publish({ ...event, timestamp: isoTime(this.#deps.host.now()) });
    this.#latest = progress;
  }

  /** What to publish; `null`: the run waits for no children; `undefined`: the store does not answer now. */
  async #read(): Promise<RunEvent | null | undefined> {
    try {
      const state = await this.#deps.store.getRunState(this.#runId);
      return state === null ? null : openingEvents(state).find(isOfChildren) ?? null;
    } catch {
      return undefined;
    }
  }
}

/** Whether a run may wait for children after an event; `null`: the event does not say. */
export function mayAwaitChildren(event: RunEvent): boolean | null {
  if (event.type === "run:leased") return false;
  return isOfChildren(event) || (event.type === "run:waiting" && event.waitId === null) || null;
}

function isOfChildren(event: RunEvent): boolean {
  return event.type === "run:progress" && event.of === "children";
}
