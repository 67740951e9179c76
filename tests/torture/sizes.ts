/** How large the files of a database are, and were. */
export class Sizes {
  readonly #database: string;
  readonly #samples: { runs: number; databaseBytes: number; walBytes: number }[] = [];

  /** Begins with nothing measured. */
  constructor(database: string) {
    this.#database = database;
  }

  /** Measures. Only by `stat`: opening the files is for SQLite. */
  sample(runs: number): void {
    this.#samples.push({
      runs,
      databaseBytes: bytesOf(this.#database),
      walBytes: bytesOf(`${this.#database}-wal`),
    });
  }

  /** A few words on it: the latest sizes, the largest log, and by how much the file has grown for each run. */
  describe(): string {
    const first = this.#samples[0];
    const last = this.#samples.at(-1);
    if (first === undefined || last === undefined) return "not measured";
    const longest = this.#samples.reduce((longest, { walBytes }) => Math.max(longest, walBytes), 0);
    const bytesPerRun = (last.databaseBytes - first.databaseBytes) / Math.max(1, last.runs - first.runs);
    return `${megabytes(last.databaseBytes)}, log up to ${megabytes(longest)}, ${Math.round(bytesPerRun)} bytes a run`;
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
