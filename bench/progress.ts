import process from "node:process";

/** A line on standard error that says what is going on: rewritten where that can be seen, else one line a change. */
export class Progress {
  readonly #isTerminal = process.stderr.isTTY === true;
  readonly #startedAt = performance.now();
  #topic = "";

  /** Begins with something new. */
  begin(topic: string): void {
    this.#topic = topic;
    if (this.#isTerminal) this.detail("");
    else this.#write(`${this.#clock()} ${topic}\n`);
  }

  /** Says how far it has come. Only a terminal shows it. */
  detail(text: string): void {
    if (!this.#isTerminal) return;
    const line = `${this.#clock()} ${this.#topic}${text === "" ? "" : `: ${text}`}`;
    this.#write(`\r\x1b[K${line.slice(0, (process.stderr.columns ?? 100) - 1)}`);
  }

  /** Ends the line. */
  end(): void {
    if (this.#isTerminal) this.#write("\r\x1b[K");
  }

  #write(text: string): void {
    Deno.stderr.writeSync(new TextEncoder().encode(text));
  }

  #clock(): string {
    const seconds = Math.round((performance.now() - this.#startedAt) / 1_000);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  }
}
