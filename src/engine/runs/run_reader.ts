import type { RunText } from "../../model/run.ts";
import type { Store } from "../../store/store.ts";
import { refuseUnknownRun } from "./read_run.ts";

// Of so many runs, or so many characters, one call of the store reads no more.
const MAX_RUNS = 100;
const MAX_LENGTH = 1024 * 1024;

/** A run that is to be read, and those who wait for it. */
type Asked = PromiseWithResolvers<RunText | null>;

/**
 * Reads runs for many who wait for one each: all that is asked for while a call of the store is under way is read by the
 * next one. A store has few connections, and after a change each waiter reads its run again.
 */
export class RunReader {
  readonly #store: Pick<Store, "readRuns" | "getWait">;
  #asked = new Map<string, Asked>();
  #isReading = false;

  constructor(store: Pick<Store, "readRuns" | "getWait">) {
    this.#store = store;
  }

  /**
   * Reads a run, later than now.
   *
   * @throws {NotFoundError} There is no such run.
   */
  async read(runId: string): Promise<RunText> {
    const asked: Asked = this.#asked.get(runId) ?? Promise.withResolvers();
    this.#asked.set(runId, asked);
    void this.#readAll();
    return await asked.promise ?? await refuseUnknownRun(this.#store, runId);
  }

  async #readAll(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    while (this.#asked.size > 0) {
      const asked = [...this.#asked];
      this.#asked = new Map();
      await this.#readThese(asked);
    }
    this.#isReading = false;
  }

  async #readThese(asked: readonly [runId: string, Asked][]): Promise<void> {
    let rest = asked;
    try {
      while (rest.length > 0) {
        const runs = await this.#store.readRuns(rest.slice(0, MAX_RUNS).map(([runId]) => runId), MAX_LENGTH);
        runs.forEach((run, index) => rest[index]![1].resolve(run)); // as many as were asked for, or fewer
        rest = rest.slice(runs.length);
      }
    } catch (error) {
      for (const [, { reject }] of rest) reject(error);
    }
  }
}
