import type { Chance } from "../support/chance.ts";
import type { Fleet, Member } from "./fleet.ts";
import { nap } from "./nap.ts";
import type { Tally } from "./tally.ts";

const PATIENCE_MS = [300, 2_500] as const;
const LOOK_EVERY_MS = 20;

/** What a request was answered in the end. */
export interface Answer {
  status: number;
  text: string;
}

/** What a request has besides its method and path. */
export interface Asked {
  /** Sent as JSON. */
  body?: unknown;
  /** Is called each time before it is sent: each of them may be carried out, answered or not. */
  onSend?: () => void;
}

/** The storm is over, and nobody is left to answer. */
export class NobodyLeft extends Error {}

/**
 * Asks workers over HTTP as a client has to: what was not answered (in time) is asked again, of another worker. So each
 * request may be carried out several times, some of them late.
 */
export class Asker {
  readonly #fleet: Fleet;
  readonly #chance: Chance;
  readonly #tally: Tally;
  readonly #over: AbortSignal;

  /** Begins. */
  constructor(fleet: Fleet, chance: Chance, tally: Tally, over: AbortSignal) {
    this.#fleet = fleet;
    this.#chance = chance;
    this.#tally = tally;
    this.#over = over;
  }

  /**
   * Asks until somebody answers something else than that he cannot do it now.
   *
   * @throws {NobodyLeft} The storm is over.
   */
  async ask(method: string, path: string, { body, onSend }: Asked = {}): Promise<Answer> {
    for (let tries = 1;; tries++) {
      const { port } = await this.findMember();
      this.#tally.add("requests");
      if (tries > 1) this.#tally.add("requests that were repeated");
      onSend?.();
      try {
        const answer = await this.#fetch(port, method, path, body);
        if (answer.status !== 503) return answer;
      } catch {
        this.#tally.add("requests without an answer");
      }
      await nap(this.#chance.int(50), this.#over);
    }
  }

  /** Somebody who serves, as far as is known. */
  async findMember(): Promise<Member> {
    while (true) {
      if (this.#over.aborted) throw new NobodyLeft();
      if (this.#fleet.members.length > 0) return this.#chance.pick(this.#fleet.members);
      await nap(LOOK_EVERY_MS, this.#over);
    }
  }

  async #fetch(port: number, method: string, path: string, body: unknown): Promise<Answer> {
    const impatience = new AbortController();
    const timer = setTimeout(() => impatience.abort(), this.#chance.between(...PATIENCE_MS));
    try {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, {
        method,
        signal: AbortSignal.any([impatience.signal, this.#over]),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, text: await response.text() };
    } finally {
      clearTimeout(timer);
    }
  }
}
