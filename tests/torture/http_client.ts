import type { Chance } from "../support/chance.ts";
import type { Member, WorkerPool } from "./worker_pool.ts";
import { nap } from "./nap.ts";
import type { Tally } from "./tally.ts";

const PATIENCE_MS = [300, 2_500] as const;
const LOOK_EVERY_MS = 20;

/** The answer to a request. */
export interface Answer {
  status: number;
  text: string;
}

/** What a request has besides its method and path. */
export interface RequestOptions {
  /** Sent as JSON. */
  body?: unknown;
  /** Is called before each attempt to send it: each attempt may be carried out, answered or not. */
  onSend?: () => void;
}

/** The storm is over, and no worker is left to answer. */
export class StormOver extends Error {}

/**
 * Sends requests to the workers over HTTP, and sends a request again, to another worker, if it was not answered in time.
 * So each request may be carried out several times, some of them late.
 */
export class HttpClient {
  readonly #pool: WorkerPool;
  readonly #chance: Chance;
  readonly #tally: Tally;
  readonly #over: AbortSignal;

  /** Begins. */
  constructor(pool: WorkerPool, chance: Chance, tally: Tally, over: AbortSignal) {
    this.#pool = pool;
    this.#chance = chance;
    this.#tally = tally;
    this.#over = over;
  }

  /**
   * Sends the request until a worker answers with a status other than 503.
   *
   * @throws {StormOver} The storm is over.
   */
  async request(method: string, path: string, { body, onSend }: RequestOptions = {}): Promise<Answer> {
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

  /** A worker that serves, as far as is known. */
  async findMember(): Promise<Member> {
    while (true) {
      if (this.#over.aborted) throw new StormOver();
      if (this.#pool.members.length > 0) return this.#chance.pick(this.#pool.members);
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
