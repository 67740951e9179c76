import { hashText } from "../support/chance.ts";

// What a runtime writes of a stack is not always the same.
const STACK = /"stack":"(?:[^"\\]|\\.)*",?/g;

/** Writes down what happens, and keeps the end of it. */
export class Trace {
  /** The last things that happened, each in a line. */
  readonly lastLines: string[] = [];
  readonly #keptLines: number;
  readonly #now: () => number;
  #hash = hashText("");

  /** Begins with nothing. */
  constructor(keptLines: number, now: () => number) {
    this.#keptLines = keptLines;
    this.#now = now;
  }

  /** Stands for all that was written down: two histories that are the same have the same. */
  get hash(): string {
    return (this.#hash >>> 0).toString(16).padStart(8, "0");
  }

  /** Writes a line. */
  note(text: string): void {
    const line = `${this.#now().toFixed(1)} ${text}`;
    this.count(line);
    this.lastLines.push(line);
    if (this.lastLines.length > this.#keptLines) this.lastLines.shift();
  }

  /** Writes down what is not worth a line. */
  count(text: string): void {
    this.#hash = hashText(text.replaceAll(STACK, ""), this.#hash);
  }
}
