import { DatabaseSync, type StatementSync } from "node:sqlite";

/** A run that {@linkcode RawDatabase.claim} has taken. */
export interface RawRun {
  /** Its place in the table: what the other statements find it by. */
  seq: number;
  /** Its lease: the writes under it name it. */
  generation: number;
  /** Its input, as JSON. */
  input: string;
}

/**
 * Raw SQLite, as every workload measures it beside ours: the least SQL that keeps what a durable job engine has to
 * keep. One connection, the pragmas of our store, every statement prepared once, no check of any value.
 *
 * A run is one row: its id (a unique text), job, status, input, output, lease and times. A step is one row, unique by
 * run and name, and is recorded together with an update of its run that the lease guards: without that guard a worker
 * that has lost its lease could write, and no engine may leave it out. Runs are claimed through an index of pending
 * ones alone, so that what has ended costs a claim nothing.
 */
export class RawDatabase {
  /** The connection, for what only one workload does. */
  readonly connection: DatabaseSync;
  /** How long all commits have taken, in milliseconds: that is when SQLite writes to the disk and waits for it. */
  commitMs = 0;
  readonly #begin: StatementSync;
  readonly #commit: StatementSync;
  readonly #insertRun: StatementSync;
  readonly #claim: StatementSync;
  readonly #touch: StatementSync;
  readonly #insertStep: StatementSync;
  readonly #complete: StatementSync;

  /** Opens a file, or makes it. */
  constructor(path: string) {
    const db = new DatabaseSync(path);
    this.connection = db;
    db.exec(`
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = FULL;
      PRAGMA foreign_keys = ON;
      PRAGMA journal_size_limit = 67108864;
      CREATE TABLE IF NOT EXISTS runs (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        job TEXT NOT NULL,
        status TEXT NOT NULL,
        input TEXT,
        output TEXT,
        lease_owner TEXT,
        lease_expires_at INTEGER,
        lease_generation INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        completed_at INTEGER
      ) STRICT;
      CREATE INDEX IF NOT EXISTS runs_pending ON runs (job, seq) WHERE status = 'pending';
      CREATE TABLE IF NOT EXISTS steps (
        run_seq INTEGER NOT NULL,
        name TEXT NOT NULL,
        output TEXT,
        completed_at INTEGER NOT NULL,
        PRIMARY KEY (run_seq, name)
      ) STRICT, WITHOUT ROWID;
    `);
    this.#begin = db.prepare("BEGIN IMMEDIATE");
    this.#commit = db.prepare("COMMIT");
    this.#insertRun = db.prepare(
      "INSERT INTO runs (id, job, status, input, created_at, updated_at) VALUES (?, ?, 'pending', ?, ?, ?)",
    );
    this.#claim = db.prepare(
      `UPDATE runs SET status = 'running', lease_owner = 'raw', lease_expires_at = ?,
         lease_generation = lease_generation + 1, updated_at = ?
       WHERE seq IN (SELECT seq FROM runs WHERE status = 'pending' AND job = ? ORDER BY seq LIMIT ?)
       RETURNING seq, lease_generation AS generation, input`,
    );
    this.#touch = db.prepare(
      "UPDATE runs SET updated_at = ? WHERE seq = ? AND lease_generation = ? AND status = 'running'",
    );
    this.#insertStep = db.prepare("INSERT INTO steps (run_seq, name, output, completed_at) VALUES (?, ?, ?, ?)");
    this.#complete = db.prepare(
      `UPDATE runs SET status = 'completed', output = ?, lease_owner = NULL, lease_expires_at = NULL, updated_at = ?,
         completed_at = ? WHERE seq = ? AND lease_generation = ? AND status = 'running'`,
    );
  }

  /** Makes what the work writes durable together. */
  transaction<T>(work: () => T): T {
    this.#begin.run();
    const answer = work();
    const startedAt = performance.now();
    this.#commit.run();
    this.commitMs += performance.now() - startedAt;
    return answer;
  }

  /** Adds a run. */
  insertRun(job: string, input: string): void {
    const now = Date.now();
    this.#insertRun.run(crypto.randomUUID(), job, input, now, now);
  }

  /** Takes the oldest pending runs of a job. */
  claim(job: string, limit: number): RawRun[] {
    const now = Date.now();
    return this.#claim.all(now + 30_000, now, job, limit) as unknown as RawRun[];
  }

  /** Records a step of a run that is leased. */
  recordStep(run: RawRun, name: string, output: string): void {
    const now = Date.now();
    const { changes } = this.#touch.run(now, run.seq, run.generation);
    if (changes === 1) this.#insertStep.run(run.seq, name, output, now);
  }

  /** Ends a run that is leased. */
  complete(run: RawRun, output: string | null): void {
    const now = Date.now();
    this.#complete.run(output, now, now, run.seq, run.generation);
  }

  /** Closes the connection. */
  [Symbol.dispose](): void {
    this.connection.close();
  }
}
