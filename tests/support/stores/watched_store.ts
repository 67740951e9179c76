import type { ChangeListener, StoreWatch } from "../../../src/store/store.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";

/** A store that reports changes when a test says so, and counts what it is asked. */
export class WatchedStore extends MemoryStore {
  /** How often the version was asked for. */
  versionReads = 0;
  /** How often the journal was read. */
  journalReads = 0;
  /** How often the schedules were read. */
  scheduleReads = 0;
  readonly #listeners = new Set<ChangeListener>();
  #isLive = false;

  /** How many watch. */
  get watches(): number {
    return this.#listeners.size;
  }

  override watch(listener: ChangeListener): StoreWatch {
    this.#listeners.add(listener);
    const isLive = () => this.#isLive;
    return {
      get isLive() {
        return isLive();
      },
      stop: () => void this.#listeners.delete(listener),
    };
  }

  /** Reports a change. */
  report(): void {
    for (const { onChange } of this.#listeners) onChange();
  }

  /** Begins or ceases to report changes. */
  setLive(isLive: boolean): void {
    this.#isLive = isLive;
    this.report();
  }

  /** Reports an error. */
  fail(error: unknown): void {
    for (const { onError } of this.#listeners) onError(error);
  }

  override getVersion(): Promise<number> {
    this.versionReads += 1;
    return super.getVersion();
  }

  override readJournal(...parameters: Parameters<MemoryStore["readJournal"]>) {
    this.journalReads += 1;
    return super.readJournal(...parameters);
  }

  override getSchedules(...parameters: Parameters<MemoryStore["getSchedules"]>) {
    this.scheduleReads += 1;
    return super.getSchedules(...parameters);
  }
}
