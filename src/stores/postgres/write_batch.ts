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
  #urgent: Write[] = [];
  #queue: Write[] = [];
  #isRunning = false;
  /** Whether a group is under way: nothing can join it any more. */
  #isSent = false;
  #pending = new Set<Promise<unknown>>();

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  /**
   * Performs a write, and returns its answer, which can be a refusal.
   *
   * @param options.urgent It precedes the others, and waits for no group that is under way: then it is sent on the
   * connections for leases.
   * @param options.isAlone It is sent so in any case.
   */
  submit(write: object, { urgent = false, isAlone = false } = {}): Promise<unknown> {
    const answer = new Promise<unknown>((resolve, reject) => {
      const waiting = { text: writeParameter(write), resolve, reject };
      if (isAlone || (urgent && this.#isSent)) return void this.#send([waiting], "leases");
      (urgent ? this.#urgent : this.#queue).push(waiting);
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
    while (this.#urgent.length + this.#queue.length > 0) {
      const group = this.#take();
      this.#isSent = true;
      await this.#send(group, "writes");
      this.#isSent = false;
    }
    this.#isRunning = false;
  }

  #take(): Write[] {
    const waiting = [...this.#urgent, ...this.#queue];
    let length = 0;
    const tooMuch = waiting.findIndex(({ text }, at) => (length += text.length) > MAX_LENGTH && at > 0);
    const group = waiting.slice(0, Math.min(MAX_WRITES, tooMuch === -1 ? waiting.length : tooMuch));
    const left = Math.max(0, group.length - this.#urgent.length);
    this.#urgent = this.#urgent.slice(group.length);
    this.#queue = this.#queue.slice(left);
    return group;
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
