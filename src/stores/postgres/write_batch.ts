import { StoreError } from "../../error.ts";
import { isServerError, type Lane } from "./client.ts";
import { writeParameter } from "./portable_text.ts";
import type { PostgresDatabase } from "./postgres_database.ts";

/** A write that waits for its answer. */
interface Write {
  /** The write as JSON. */
  text: string;
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

// The maximum number of writes, and of characters of JSON, in one group. A write that is longer goes alone.
const MAX_WRITES = 200;
const MAX_LENGTH = 1_000_000;

/**
 * Performs writes in groups: those that arrive while a group is under way go together in the next one. A group is one
 * statement, and so one transaction and one flush of the server's disk.
 */
export class WriteBatch {
  readonly #database: PostgresDatabase;
  #queue: Write[] = [];
  #isRunning = false;
  #pending = new Set<Promise<unknown>>();

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  /**
   * Performs a write, and returns its answer, which can be a refusal.
   *
   * @param options.urgent It waits for no group: it is sent at once, on the connections for leases.
   */
  submit(write: object, { urgent = false }: { urgent?: boolean } = {}): Promise<unknown> {
    const answer = new Promise<unknown>((resolve, reject) => {
      const waiting = { text: writeParameter(write), resolve, reject };
      if (urgent) return void this.#send([waiting], "leases");
      this.#queue.push(waiting);
      if (!this.#isRunning) void this.#run();
    });
    this.#pending.add(answer);
    const forget = () => this.#pending.delete(answer);
    answer.then(forget, forget);
    return answer;
  }

  /** Completes the writes that are pending. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#pending);
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    await null; // what is written at the same moment goes together
    while (this.#queue.length > 0) await this.#send(this.#take(), "writes");
    this.#isRunning = false;
  }

  #take(): Write[] {
    let length = 0;
    const tooMuch = this.#queue.findIndex(({ text }, at) => (length += text.length) > MAX_LENGTH && at > 0);
    return this.#queue.splice(0, Math.min(MAX_WRITES, tooMuch === -1 ? this.#queue.length : tooMuch));
  }

  async #send(group: readonly Write[], lane: Lane): Promise<void> {
    try {
      const answers = await this.#database.apply(group.map(({ text }) => text), lane);
      for (const [at, { resolve }] of group.entries()) resolve(answers[at]);
    } catch (error) {
      if (group.length > 1 && error instanceof StoreError && isServerError(error.cause)) {
        // The server has refused the statement because of one of the writes: the others are not to suffer for it.
        for (const write of group) await this.#send([write], lane);
        return;
      }
      for (const { reject } of group) reject(error);
    }
  }
}
