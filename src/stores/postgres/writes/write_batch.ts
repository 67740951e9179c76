import { StoreError } from "../../../model/error.ts";
import { isOfOneCall, type Lane, NotSentError, storeError } from "../database/client.ts";
import type { PostgresDatabase } from "../database/postgres_database.ts";
import { MAX_LOCKS } from "../sql/writes/apply.ts";
import { type GroupedWrite, toGroupedWrite, toWriteGroup, type WriteList, type WriteParameter } from "./write_group.ts";
import { fitLine, type NewLogEntry } from "../../../model/log.ts";

/** A write that waits for its answer. */
interface Write extends GroupedWrite {
  resolve(answer: unknown): void;
  reject(error: unknown): void;
}

// The maximum number of writes, and of characters of JSON, in one group. A write that is longer goes alone.
const MAX_WRITES = 200;
const MAX_LENGTH = 1_000_000;
// So many groups are under way at most. The second one begins only with so many writes: a smaller one costs the server
// more than it saves.
const MAX_GROUPS = 2;
const MIN_BESIDE = 16;

/**
 * Performs writes in groups: those that arrive while a group is under way go together in the next one. A group is one
 * statement, and so one transaction and one flush of the server's disk.
 *
 * Two groups can be under way, if they cannot depend on each other: steps, pauses and endings of different runs.
 */
export class WriteBatch {
  readonly #database: PostgresDatabase;
  #queue: Write[] = [];
  readonly #sent = new Set<readonly Write[]>();
  /** Urgent writes that later ones to their runs wait for. */
  readonly #awaited = new Set<Write>();
  #isStarting = false;
  #pending = new Set<Promise<unknown>>();

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  /**
   * Performs a write, and returns its answer, which can be a refusal.
   *
   * @param options.isUrgent It waits for no other write: it is sent alone, on the connections for leases.
   * @param options.isAwaited Later writes to its runs wait for it, if it is urgent. Others are in order anyway.
   */
  submit(write: WriteParameter, { isUrgent = false, isAwaited = false } = {}): Promise<unknown> {
    const answer = new Promise<unknown>((resolve, reject) => {
      const waiting = { ...toGroupedWrite(write), resolve, reject };
      if (isUrgent) return void this.#sendUrgent(waiting, isAwaited);
      this.#queue.push(waiting);
      this.#startSoon();
    });
    this.#pending.add(answer);
    const forget = () => this.#pending.delete(answer);
    answer.then(forget, forget);
    return answer;
  }

  /** Completes the writes that are pending. */
  async close(): Promise<void> {
    await Promise.allSettled(this.#pending);
  }

  async #sendUrgent(write: Write, isAwaited: boolean): Promise<void> {
    if (isAwaited) this.#awaited.add(write);
    await this.#send([write], "leases");
    if (this.#awaited.delete(write)) this.#start();
  }

  /** Sends a group of what is written at the same moment. */
  #startSoon(): void {
    if (this.#isStarting || this.#sent.size >= MAX_GROUPS) return;
    this.#isStarting = true;
    queueMicrotask(() => {
      this.#isStarting = false;
      this.#start();
    });
  }

  #start(): void {
    while (this.#sent.size < MAX_GROUPS) {
      const group = this.#take();
      if (group.length === 0) return;
      this.#sent.add(group);
      this.#send(group, "writes").finally(() => {
        this.#sent.delete(group);
        this.#start();
      });
    }
  }

  /** Takes the next writes out of the queue: beside another group, those that cannot depend on it. */
  #take(): Write[] {
    const others = [...this.#sent].flat();
    const isAlone = others.length === 0;
    if (!isAlone && this.#queue.length < MIN_BESIDE) return [];
    const busy = new Set([...others, ...this.#awaited].flatMap(({ runIds }) => runIds));
    const group: Write[] = [];
    let [length, locks] = [0, 0];
    for (const write of this.#queue) {
      length += write.text.length;
      locks += write.locks;
      if (group.length === MAX_WRITES) break;
      if (group.length > 0 && (length > MAX_LENGTH || locks > MAX_LOCKS)) break;
      // What has to be alone waits for the groups that are under way, and what comes after it waits with it.
      if (!isAlone && !write.isOwn) break;
      const isBusy = write.runIds.some((id) => busy.has(id));
      if (!isBusy) group.push(write);
    }
    if (!isAlone && group.length < MIN_BESIDE) return [];
    const taken = new Set(group);
    this.#queue = this.#queue.filter((write) => !taken.has(write));
    return group;
  }

  async #send(group: readonly Write[], lane: Lane): Promise<void> {
    const failure = await this.#trySend(group, lane);
    if (failure === null) return;
    if (group.length === 1 || !isOfOneWrite(failure)) return rejectAll(group, failure.error);
    // The server has refused the statement because of one of the writes: the others are not to suffer for it.
    for (const [at, write] of group.entries()) {
      const own = await this.#trySend([write], lane);
      if (own === null) continue;
      write.reject(own.error);
      if (isOfOneWrite(own)) continue;
      return rejectAll(group.slice(at + 1), storeError(new NotSentError(own.error), { writes: true }));
    }
  }

  /** Returns why the group could not be written, or `null` if each of its writes has its answer. */
  async #trySend(group: readonly Write[], lane: Lane): Promise<Failure | null> {
    try {
      const { text, lists } = toWriteGroup(group);
      const answers = await this.#database.apply(text, lane);
      for (const [list, indexes] of Object.entries(lists)) {
        for (const [no, at] of indexes.entries()) group[at]!.resolve(answers[list as WriteList][no]); // of this group
      }
      return null;
    } catch (error) {
      return { error };
    }
  }
}

interface Failure {
  error: unknown;
}

function isOfOneWrite({ error }: Failure): boolean {
  return error instanceof StoreError && isOfOneCall(error.cause);
}

function rejectAll(group: readonly Write[], error: unknown): void {
  for (const { reject } of group) reject(error);
}

interface Append {
  entries: readonly NewLogEntry[];
  resolve(): void;
  reject(error: unknown): void;
}

// The most calls whose lines are stored by one statement. A line has at most 8 KiB.
const MAX_CALLS = 100;

/**
 * Stores log lines in the order of the calls: on connections of their own, two calls could overtake each other. What is
 * appended while a statement is under way goes together in the next one.
 */
export class LogQueue {
  readonly #database: PostgresDatabase;
  readonly #waiting: Append[] = [];
  #isRunning = false;
  #running: Promise<void> = Promise.resolve();

  constructor(database: PostgresDatabase) {
    this.#database = database;
  }

  /** Stores lines after those of earlier calls. */
  append(entries: readonly NewLogEntry[]): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ entries, resolve, reject });
      if (!this.#isRunning) this.#running = this.#run();
    });
  }

  /** Resolves when everything has been stored, or was refused. */
  async close(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const group = this.#waiting.splice(0, MAX_CALLS);
      try {
        const lines = group.flatMap(({ entries }) => entries.map(fitLine));
        if (lines.length > 0) await this.#database.write("append_logs", lines);
        for (const { resolve } of group) resolve();
      } catch (error) {
        for (const { reject } of group) reject(error);
      }
    }
    // In the same turn as the last look: what is appended from now on begins the next run.
    this.#isRunning = false;
  }
}
