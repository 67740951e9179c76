import type { Chance } from "../support/chance.ts";

const PATIENCE_MS = 1_500;
// A run that has lost its lease twice is claimed alone, and such runs take turns: on a busy machine there can be dozens.
const ENDED_WITHIN_MS = 300_000;
const LOOK_EVERY_MS = 150;
// Longer than a process is suspended: what it was asked before, it may do when it goes on.
const DONE_WITHIN_MS = 5_000;

/** What the service told. */
export interface Answer {
  status: number;
  // deno-lint-ignore no-explicit-any -- what it is depends on the route; a wrong answer makes a history wrong
  body: any;
}

/** Asks processes of the service over HTTP. */
export class ServiceClient {
  readonly #address: () => string;
  #lastUnanswered = -Infinity;

  /** @param address Answers the address of one of the processes. */
  constructor(address: () => string) {
    this.#address = address;
  }

  /** Asks one of them. `null`: nothing was told, so that nobody knows whether it was done. */
  async ask(method: string, path: string, body?: unknown): Promise<Answer | null> {
    const answer = await this.#ask(method, path, body);
    if (answer === null) this.#lastUnanswered = performance.now();
    return answer;
  }

  /** Resolves when all that was asked is done by now, or never: what was told nothing, too. */
  async settle(): Promise<void> {
    while (true) {
      const leftMs = this.#lastUnanswered + DONE_WITHIN_MS - performance.now();
      if (leftMs <= 0) return;
      await nap(leftMs);
    }
  }

  async #ask(method: string, path: string, body: unknown): Promise<Answer | null> {
    try {
      const response = await fetch(`${this.#address()}${path}`, {
        method,
        signal: AbortSignal.timeout(PATIENCE_MS),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const answer = { status: response.status, body: await response.json() };
      // A 503 says that it is not known whether it was done.
      return answer.status === 503 ? null : answer;
    } catch {
      return null;
    }
  }

  /** Resolves as soon as all runs of what is examined have ended, or after five minutes, with those that have not. */
  async openRuns(of: string): Promise<string[]> {
    const open = ["pending", "leased", "running", "waiting"].map((status) => `status=${status}`).join("&");
    const deadline = Date.now() + ENDED_WITHIN_MS;
    while (true) {
      const answer = await this.ask("GET", `/runs?label.of=${of}&${open}&limit=5`);
      if (answer?.body.total === 0) return [];
      if (Date.now() >= deadline) {
        const runs: { id: string; status: string }[] | undefined = answer?.body.runs;
        return runs?.map(({ id, status }) => `${id}: ${status}`) ?? ["nobody answers"];
      }
      await nap(LOOK_EVERY_MS);
    }
  }
}

/** Some time, at most so many milliseconds. */
export function someTime(chance: Chance, mostMs: number): Promise<void> {
  return nap(chance.int(mostMs));
}

function nap(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
