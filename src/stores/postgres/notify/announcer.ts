import type { Host } from "../../../model/host.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";

// NOTIFY takes a lock that all who notify share, until its transaction ends: so it is a transaction of its own, which
// flushes nothing, and what is committed within this time shares one.
const REST_MS = 20;
const PAUSE_AFTER_ERROR_MS = 1_000;

/** Notifies other processes after commits. */
export class Announcer {
  readonly #database: PostgresDatabase;
  readonly #channel: string;
  readonly #host: Host;
  #isDue = false;
  #sending: Promise<void> | null = null;
  #cancelTimer: (() => void) | null = null;
  #isClosed = false;

  constructor(database: PostgresDatabase, channel: string, host: Host) {
    this.#database = database;
    this.#channel = channel;
    this.#host = host;
  }

  /** Notifies others now, or 20 ms after the last time. Never throws. */
  announce(): void {
    this.#isDue = true;
    if (this.#sending === null && this.#cancelTimer === null && !this.#isClosed) this.#sending = this.#send();
  }

  /** Notifies others of the last commits. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
    await this.#sending;
    if (this.#isDue) await this.#send();
  }

  async #send(): Promise<void> {
    this.#isDue = false;
    let restMs = REST_MS;
    try {
      await this.#database.notify(this.#channel);
    } catch {
      // Others find the commits by polling meanwhile.
      this.#isDue = !this.#isClosed;
      restMs = PAUSE_AFTER_ERROR_MS;
    }
    this.#sending = null;
    if (this.#isClosed) return;
    this.#cancelTimer = this.#host.schedule(restMs, () => {
      this.#cancelTimer = null;
      if (this.#isDue) this.announce();
    });
  }
}

/** The channel on which all stores of a schema are notified of changes. A channel has at most 63 characters. */
export function changeChannel(schema: string): string {
  return `holdfast_${schema}`; // a schema has at most 50
}

/** The channel on which new rows of the outbox in this schema are announced. */
export function outboxChannel(schema: string): string {
  return `hf_outbox_${schema}`;
}

/** A channel of one listener, which tests itself with it. */
export function testChannel(id: string): string {
  return `holdfast_test_${id.replaceAll("-", "")}`;
}
