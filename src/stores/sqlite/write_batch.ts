import { HoldfastError, StoreError, WorkError } from "../../model/error.ts";
import { StoreClosedError } from "../../model/store_closed_error.ts";
import { type Host, nextTurn, pause } from "../../model/host.ts";
import { writeCounts } from "./run_counts.ts";
import { isBusy, isConstraint, type SqliteDatabase, storeError } from "./sqlite_database.ts";
import { settleHeads } from "./flow/turns.ts";
import { writeJournal } from "./journal/journal.ts";

// How long a batch may work before it commits, so that the event loop stays free.
const MAX_WORK_MS = 5;
// From this many writes on, those that are plain are written together.
const MANY_WRITES = 8;
// For so many batches they are not, after one that had to be repeated.
const REST_AFTER_STALE = 32;
// How long a write waits for another process to release the lock.
const MAX_BUSY_MS = 10_000;
// It tries again in each turn of the event loop for as long as a group of writes usually takes. Then it pauses before
// each try.
const BUSY_TURNS_MS = 1;
const MAX_BUSY_PAUSE_MS = 5;

interface Write {
  work: (now: number) => unknown;
  resolve: (value: unknown) => void;
  reject: (error: unknown) => void;
}

/** A write throws it to refuse after it has changed something: all is rolled back, and `refusal` is the answer. */
export class Undone extends Error {
  /** The answer. */
  readonly refusal: HoldfastError;

  /** Creates the wrapper of a refusal. */
  constructor(refusal: HoldfastError) {
    super(refusal.message);
    this.refusal = refusal;
  }
}

/**
 * Group commit: writes that are ready at the same moment share one transaction, since a commit costs as much as
 * dozens of rows. Each caller receives its own result, after the commit.
 *
 * A write is synchronous and may refuse by throwing a {@linkcode HoldfastError}, before it has changed anything:
 * so a refusal does not affect other writes. A {@linkcode StoreError} is no refusal: it and any other error roll the
 * batch back, and each write is tried again alone; plain ones that were written together ({@linkcode PlainWrites}) first one
 * after another. {@linkcode Undone} is a refusal after changes: it does that, too, and
 * is answered when it is alone.
 */
export class WriteBatch {
  readonly #database: SqliteDatabase;
  readonly #host: Host;
  readonly #check: (now: number) => void;
  #urgent: Write[] = [];
  #queue: Write[] = [];
  /** Writes of a batch in which a plain one failed: they are tried again with a statement for each. */
  #again: Write[] = [];
  /** For how many batches plain writes are not put together. */
  #rest = 0;
  /** Writes of a batch that failed: each is tried again alone. */
  #alone: Write[] = [];
  #flush: Promise<void> | null = null;
  #closed = false;

  /**
   * Creates a queue of writes to one connection.
   *
   * @param check Called before each batch with an instant of the monotonic clock. What it throws refuses all writes.
   */
  constructor(database: SqliteDatabase, host: Host, check: (now: number) => void = () => {}) {
    this.#database = database;
    this.#host = host;
    this.#check = check;
  }

  /**
   * Carries out a write in the next batch. Urgent ones (heartbeats) go first.
   *
   * @param work Gets the wall clock as it was when the batch began.
   */
  submit<T>(work: (now: number) => T, options: { urgent?: boolean } = {}): Promise<T> {
    if (this.#closed) return Promise.reject(new StoreClosedError());
    return new Promise<T>((resolve, reject) => {
      // The cast hides the type of the result: `#perform` resolves a write with what its own `work` returned.
      const write: Write = { work, resolve: resolve as (value: unknown) => void, reject };
      (options.urgent ? this.#urgent : this.#queue).push(write);
      this.#flush ??= this.#flushAll();
    });
  }

  /** Accepts no more writes, and resolves when all accepted writes are done. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#flush;
  }

  async #flushAll(): Promise<void> {
    let busySince: number | null = null;
    do {
      // A macrotask between two batches: it gathers what is ready, and leaves the lock free for a moment, since
      // SQLite has no queue for it.
      await nextTurn(this.#host);
      if (this.#commitBatch()) {
        busySince = null;
        continue;
      }
      const now = this.#host.monotonic();
      busySince ??= now;
      if (now - busySince > MAX_BUSY_MS) {
        this.#rejectAll(new StoreError(`The database was locked by another process for ${MAX_BUSY_MS} ms`));
        busySince = null;
      } else if (now - busySince > BUSY_TURNS_MS) {
        await pause(this.#host, 1 + this.#host.random() * MAX_BUSY_PAUSE_MS);
      }
    } while (this.#alone.length + this.#again.length + this.#urgent.length + this.#queue.length > 0);
    this.#flush = null;
  }

  /** Commits as many writes as fit in a batch. Returns `false` if the lock is not available. */
  #commitBatch(): boolean {
    const startedAt = this.#host.monotonic();
    try {
      this.#check(startedAt);
      // Not a deferred transaction: its first write would fail at once if another process has written meanwhile.
      this.#database.exec("BEGIN IMMEDIATE");
    } catch (error) {
      if (isBusy(error)) return false;
      this.#rejectAll(storeError(error));
      return true;
    }
    const taken: Write[] = [];
    const answers: (() => void)[] = [];
    const now = this.#host.now();
    const isAlone = this.#alone.length > 0;
    let isWritten = false;
    const { plain } = this.#database;
    plain.isOpen = !isAlone && this.#rest === 0 && this.#queue.length >= MANY_WRITES;
    try {
      for (let write = this.#take(); write !== undefined; write = this.#take()) {
        taken.push(write);
        answers.push(this.#perform(write, now));
        if (isAlone || this.#host.monotonic() - startedAt > MAX_WORK_MS) break;
      }
      writeCounts(this.#database);
      writeJournal(this.#database, () => this.#host.now());
      isWritten = true;
      this.#database.commit();
    } catch (error) {
      this.#rollBack();
      const [write, ...others] = taken;
      if (plain.isOpen) {
        this.#again.push(...taken);
        this.#rest = REST_AFTER_STALE;
      } else if (write !== undefined && others.length === 0) {
        // A deferred constraint, which only a table of the user can have: nothing was committed.
        if (isWritten && isConstraint(error)) write.reject(new WorkError(error));
        else write.reject(error instanceof Undone ? error.refusal : storeError(error, { outcomeUnknown: true }));
      } else this.#alone.push(...taken);
      return true;
    }
    if (this.#again.length === 0) this.#rest = Math.max(0, this.#rest - 1);
    for (const answer of answers) answer();
    return true;
  }

  /** Performs a write and holds its result until the commit. A refusal is a result. */
  #perform(write: Write, now: number): () => void {
    const { facts } = this.#database;
    const before = facts.length;
    try {
      const value = write.work(now);
      settleHeads(this.#database);
      return () => write.resolve(value);
    } catch (error) {
      if (!(error instanceof HoldfastError) || error instanceof StoreError) throw error;
      facts.cutBackTo(before);
      return () => write.reject(error);
    }
  }

  #rollBack(): void {
    this.#database.counts.clear();
    this.#database.touchedGroups.clear();
    this.#database.requeued.clear();
    this.#database.facts.clear();
    this.#database.leased.clear();
    this.#database.rollBack();
  }

  #rejectAll(error: StoreError): void {
    const all = [...this.#alone, ...this.#again, ...this.#urgent, ...this.#queue];
    this.#alone = [];
    this.#again = [];
    this.#urgent = [];
    this.#queue = [];
    for (const write of all) write.reject(error);
  }

  #take(): Write | undefined {
    return this.#alone.shift() ?? this.#again.shift() ?? this.#urgent.shift() ?? this.#queue.shift();
  }
}
