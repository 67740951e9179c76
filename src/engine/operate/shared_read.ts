import type { Host } from "../../model/host.ts";

// A result is as old as this at most.
const SHARED_MS = 1_000;

/** A read whose result all callers share for a second. */
export class SharedRead<T> {
  readonly #host: Host;
  readonly #read: () => Promise<T>;
  #latest: { at: number; answer: Promise<T> } | null = null;

  constructor(host: Host, read: () => Promise<T>) {
    this.#host = host;
    this.#read = read;
  }

  /** The result, a second old at most. An error is not shared with later callers. */
  get(): Promise<T> {
    const now = this.#host.monotonic();
    if (this.#latest !== null && now - this.#latest.at < SHARED_MS) return this.#latest.answer;
    const latest = { at: now, answer: this.#read() };
    this.#latest = latest;
    latest.answer.catch(() => {
      if (this.#latest === latest) this.#latest = null;
    });
    return latest.answer;
  }

  /** Forgets the result: something has changed. */
  forget(): void {
    this.#latest = null;
  }
}
