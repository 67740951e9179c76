/** A promise that was broken, with what is needed to look at it. */
export interface Violation {
  /** What is wrong. */
  message: string;
  /** The run that it is about. */
  run: string | null;
  /** Lines of the ledger, rows, and the like. */
  evidence: string[];
}

const ENOUGH = 20;

/** The promises that were broken. */
export class Violations {
  readonly found: Violation[] = [];
  readonly #first = new AbortController();

  /** Aborted as soon as something is found: a storm need not go on. */
  get anyFound(): AbortSignal {
    return this.#first.signal;
  }

  /** Adds one. Only the first ones are kept. */
  add(message: string, run: string | null = null, evidence: string[] = []): void {
    if (this.found.length < ENOUGH) this.found.push({ message, run, evidence });
    this.#first.abort();
  }

  /** All of them as a text. */
  describe(): string {
    return this.found.map(({ message, run, evidence }) =>
      [`BROKEN${run === null ? "" : ` in run ${run}`}: ${message}`, ...evidence.map((line) => `    ${line}`)].join("\n")
    ).join("\n\n");
  }
}
