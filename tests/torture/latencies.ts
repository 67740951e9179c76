import type { Connection } from "./checks/check_chain.ts";
import type { KnownEvent } from "./known_journal.ts";

const KINDS: Partial<Record<KnownEvent["kind"], string>> = {
  step_started: "step:start",
  progressed: "run:progress",
  logged: "log:write",
  step_completed: "step:complete",
  completed: "the end of a run",
  failed: "the end of a run",
  cancelled: "run:cancel",
};

/** How long after its commit an event was received by a client of another process. */
export class Latencies {
  readonly #samples = new Map<string, number[]>();
  readonly #isCalm: (at: number, pid: number) => boolean;

  /** @param isCalm Whether nothing kept a process from its work around an instant: all else is not measured. */
  constructor(isCalm: (at: number, pid: number) => boolean) {
    this.#isCalm = isCalm;
  }

  /** Takes in that an event was received: told live, by a process that has not committed it (a cancel: by any). */
  note({ kind, at, owner }: KnownEvent, heardAt: number, connection: Connection): void {
    const name = KINDS[kind];
    const isForeign = kind === "cancelled" || owner !== connection.owner;
    if (name === undefined || !isForeign || at < connection.openedAt || !this.#isCalm(at, connection.pid)) return;
    const samples = this.#samples.get(name) ?? [];
    this.#samples.set(name, samples);
    samples.push(heardAt - at);
  }

  /** The median and the slowest hundredth of each kind. */
  describe(): [what: string, value: string][] {
    return [...this.#samples].map(([name, samples]) => {
      const sorted = samples.toSorted((one, other) => one - other);
      const quantile = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
      return [
        `${name} in another process, when it is calm`,
        `p50 ${quantile(0.5)} ms, p99 ${quantile(0.99)} ms (${sorted.length})`,
      ];
    });
  }
}
