/**
 * A file that several processes append words to, a line at a time. Each line is one write to a file that was opened
 * for appending, so the order of the lines is the order of the events, and what was written survives its writer.
 */
export class Ledger {
  readonly #path: string;

  /** Names the file; the first line makes it. */
  constructor(path: string) {
    this.#path = path;
  }

  /** Adds a line. */
  write(...words: (string | number)[]): void {
    Deno.writeTextFileSync(this.#path, `${words.join(" ")}\n`, { append: true });
  }

  /** All lines so far, each as its words. */
  read(): string[][] {
    try {
      return Deno.readTextFileSync(this.#path).split("\n").slice(0, -1).map((line) => line.split(" "));
    } catch (error) {
      if (error instanceof Deno.errors.NotFound) return [];
      throw error;
    }
  }
}
