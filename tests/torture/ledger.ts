import type { Fact } from "./fact.ts";

const NEW_LINE = 10;

/**
 * Writes facts to a file that all workers append to.
 *
 * One file, not one for each worker: appending is atomic, so the order of its lines is the order in which things
 * happened, whichever process they happened in. No clock has to be believed.
 */
export class LedgerWriter<F extends object = Fact> implements Disposable {
  readonly #file: Deno.FsFile;
  readonly #encoder = new TextEncoder();

  /** Opens the file for appending. */
  constructor(path: string) {
    this.#file = Deno.openSync(path, { append: true, create: true });
  }

  /** Writes a fact down, and returns when that is done: what is written survives the death of its writer. */
  write(fact: F): void {
    // A line break on both sides: a line that was cut off by a SIGKILL spoils no other.
    this.#file.writeSync(this.#encoder.encode(`\n${JSON.stringify(fact)}\n`));
  }

  /** Closes the file. */
  [Symbol.dispose](): void {
    this.#file.close();
  }
}

/** Reads a ledger in pieces, as it grows. */
export class LedgerReader<F extends object = Fact> implements Disposable {
  readonly #file: Deno.FsFile;
  #rest: Uint8Array<ArrayBuffer> = new Uint8Array();
  #lines = 0;
  #tornLines = 0;

  /** Opens the file, or makes it. */
  constructor(path: string) {
    this.#file = Deno.openSync(path, { read: true, append: true, create: true });
  }

  /** How many lines were cut off because their writer was killed. */
  get tornLines(): number {
    return this.#tornLines;
  }

  /** The facts that were written since the last call. */
  readNew(): (F & { at: number })[] {
    const facts: (F & { at: number })[] = [];
    for (const line of this.#readLines()) {
      const fact = parse<F>(line);
      if (fact === null) this.#tornLines += 1;
      else facts.push({ ...fact, at: this.#lines++ });
    }
    return facts;
  }

  *#readLines(): Generator<string> {
    const decoder = new TextDecoder();
    const piece = new Uint8Array(1 << 18);
    // No further than it is long now: others go on writing.
    let left = this.#file.statSync().size - this.#file.seekSync(0, Deno.SeekMode.Current);
    while (left > 0) {
      const length = this.#file.readSync(piece.subarray(0, Math.min(left, piece.length))) ?? 0;
      left = length === 0 ? 0 : left - length;
      const bytes = joined(this.#rest, piece.subarray(0, length));
      const end = bytes.lastIndexOf(NEW_LINE) + 1;
      this.#rest = bytes.slice(end);
      yield* decoder.decode(bytes.subarray(0, end)).split("\n").filter((line) => line !== "");
    }
  }

  /** Closes the file. */
  [Symbol.dispose](): void {
    this.#file.close();
  }
}

function parse<F>(line: string): F | null {
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}

function joined(left: Uint8Array, right: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(left.length + right.length);
  bytes.set(left);
  bytes.set(right, left.length);
  return bytes;
}
