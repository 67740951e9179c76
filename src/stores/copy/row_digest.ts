/** What the rows of a table are: how many, and a number that says which, whatever their order. */
export interface RowDigest {
  /** How many rows. */
  rows: number;
  /** The sum of the first 16 bytes of the SHA-256 of each row, modulo 2^128, in hexadecimal. */
  digest: string;
}

/** A row: columns by name. */
export type Row = Readonly<Record<string, unknown>>;

const MODULUS = 2n ** 128n;

/** Builds the digest of a table, row by row. */
export class RowDigester {
  readonly #columns: readonly string[];
  readonly #hash: (text: string) => string;
  #rows = 0;
  #sum = 0n;

  /** @param hash The SHA-256 of a string, in hexadecimal. */
  constructor(columns: readonly string[], hash: (text: string) => string) {
    this.#columns = columns;
    this.#hash = hash;
  }

  /** Adds a row. A column that is left out is `null`, and a boolean is 0 or 1. */
  add(row: Row): void {
    const values = this.#columns.map((column) => row[column] ?? null);
    const text = JSON.stringify(values.map((value) => typeof value === "boolean" ? Number(value) : value));
    this.#sum = (this.#sum + BigInt(`0x${this.#hash(text).slice(0, 32)}`)) % MODULUS;
    this.#rows += 1;
  }

  /** The digest of the rows so far. */
  get value(): RowDigest {
    return { rows: this.#rows, digest: this.#sum.toString(16) };
  }
}
