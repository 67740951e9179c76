interface Sample {
  runs: number;
  databaseBytes: number;
}

/** How large the files of a database are, and were. */
export class Sizes {
  readonly #database: string;
  #first: Sample | null = null;
  #last: Sample | null = null;
  #longestWalBytes = 0;

  /** Begins with nothing measured. */
  constructor(database: string) {
    this.#database = database;
  }

  /** Measures. Only by `stat`: opening the files is for SQLite. */
  sample(runs: number): void {
    this.#last = { runs, databaseBytes: bytesOf(this.#database) };
    this.#first ??= this.#last;
    this.#longestWalBytes = Math.max(this.#longestWalBytes, bytesOf(`${this.#database}-wal`));
  }

  /** A few words on it: the latest sizes, the largest log, and by how much the file has grown for each run. */
  describe(): string {
    if (this.#first === null || this.#last === null) return "not measured";
    const { runs, databaseBytes } = this.#last;
    const bytesPerRun = (databaseBytes - this.#first.databaseBytes) / Math.max(1, runs - this.#first.runs);
    return `${megabytes(databaseBytes)}, log up to ${megabytes(this.#longestWalBytes)}, ` +
      `${Math.round(bytesPerRun)} bytes a run`;
  }
}

function bytesOf(path: string): number {
  try {
    return Deno.statSync(path).size;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return 0;
    throw error;
  }
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}
