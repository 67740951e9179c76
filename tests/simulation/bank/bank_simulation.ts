import type { Engine } from "../../../src/engine/engine.ts";
import type { Run } from "../../../src/model/run.ts";
import { MemoryStore } from "../../../src/stores/memory/memory_store.ts";
import type { SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { Chance } from "../../support/chance.ts";
import { findWrongCount } from "../../support/counts.ts";
import { findBrokenLine } from "../../support/lines.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { Violation } from "../facts.ts";
import { Faults, type Selection } from "../faults.ts";
import type { Invariant } from "../invariants.ts";
import { SimProcess } from "../sim_process.ts";
import { Trace } from "../trace.ts";
import { World } from "../world.ts";
import type { BankMutant } from "./bank_mutants.ts";
import { BankProcess } from "./bank_process.ts";
import { Books } from "./books.ts";

/** Whether the bank is in the file of the store, or the store is a `MemoryStore` and the bank a file with effects. */
export const BANK_WAYS = ["joined", "effects"] as const;

/** One of them. */
export type BankWay = typeof BANK_WAYS[number];

/** What to simulate. */
export interface BankOptions {
  seed: number;
  way: BankWay;
  selection?: Selection;
  mutant?: BankMutant;
}

/** What came of it. */
export interface BankVerdict {
  seed: number;
  violation: Violation | null;
  /** Stands for all that happened. */
  hash: string;
  happened: string[];
  /** What happened how often. */
  counts: ReadonlyMap<string, number>;
  events: number;
  calls: number;
  simulatedMs: number;
  lastLines: string[];
}

const PROCESSES = 3;
const TROUBLE_MS = 12_000;
const DRAIN_MS = 120_000;
const LOOK_EVERY_MS = 100;
const COUNT_EVERY_MS = 500;
// After the last run has ended, what was relayed is deleted.
const LAST_ROWS_MS = 8_000;
const MAX_ORDERS = 40;
const KEPT_LINES = 60;
const PAGE = 100;

/**
 * Simulates a bank: orders of money that processes move between accounts in transactions of steps, while they are killed,
 * suspended and do not reach their databases; then peace, in which each order has to be done, once.
 */
export async function simulateBank(options: BankOptions): Promise<BankVerdict> {
  const restore = options.mutant?.code?.() ?? (() => {});
  const world = new World();
  const bank = new Bank(options, world);
  const stray = (event: PromiseRejectionEvent) => {
    event.preventDefault();
    bank.violation ??= new Violation("error", `a promise was rejected that nobody hears: ${event.reason?.stack}`);
  };
  globalThis.addEventListener("unhandledrejection", stray);
  try {
    await bank.run();
  } catch (error) {
    bank.violation ??= error instanceof Violation ? error : new Violation("error", (error as Error).stack!);
  } finally {
    globalThis.removeEventListener("unhandledrejection", stray);
    restore();
    bank.close();
  }
  return bank.verdict;
}

/** A bank with its processes, its clients, and what they were told. */
export class Bank {
  readonly books = new Books();
  readonly world: World;
  readonly faults: Faults;
  readonly trace: Trace;
  readonly options: BankOptions;
  readonly settings: { staleThreshold: number; keepEffects: number; latency: number; trouble: number };
  /** Ids of runs of orders that a transaction was to trigger, committed or not. */
  readonly asked = new Set<string>();
  /** How many rows of the ledger runs had when their cancel was answered. */
  readonly cancelled = new Map<string, number>();
  /** The runs that events were heard of. */
  readonly heard = new Set<string>();
  readonly #counts = new Map<string, number>();
  readonly #processes: BankProcess[];
  readonly #memory: MemoryStore | null;
  #observer: Engine | null = null;
  #looked = -1;
  #nextCountAt = 0;
  #calls = 0;
  #isOver = false;
  violation: Violation | null = null;

  constructor(options: BankOptions, world: World) {
    const { seed, way, selection } = options;
    this.options = options;
    this.world = world;
    this.trace = new Trace(KEPT_LINES, () => world.now);
    this.faults = new Faults(selection);
    const chance = new Chance(seed, "bank");
    this.settings = {
      staleThreshold: chance.pick([400, 800, 2_000]),
      keepEffects: chance.pick([200, 500, 60_000]),
      latency: chance.pick([1, 10, 60]),
      trouble: chance.pick([0, 0.005, 0.01, 0.03]),
    };
    this.#memory = way === "joined" ? null : new MemoryStore({ host: this.#host() });
    this.#processes = Array.from(
      { length: PROCESSES },
      (_, at) => new BankProcess(new SimProcess(`p${at}`, world, seed), this),
    );
  }

  /** The shared store; `null`: it is in the file of the bank. */
  get memory(): MemoryStore | null {
    return this.#memory;
  }

  /** Something happened that is counted. */
  notice(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  /** A call to a database was carried out. */
  called(method: string): void {
    this.#calls += 1;
    this.trace.count(method);
  }

  /** What came of it. */
  get verdict(): BankVerdict {
    return {
      seed: this.options.seed,
      violation: this.violation,
      hash: this.trace.hash,
      happened: this.faults.happened,
      counts: this.#counts,
      events: this.world.steps,
      calls: this.#calls,
      simulatedMs: this.world.now,
      lastLines: this.trace.lastLines,
    };
  }

  /** Lets everything happen. */
  async run(): Promise<void> {
    const { seed } = this.options;
    const { world } = this;
    const store = this.#memory ?? await this.#openStore();
    await store.migrate();
    this.#observer = createEngine({ store, jobs: {}, host: this.#host() });
    const chance = new Chance(seed, "orders");
    for (const process of this.#processes) process.start();
    const orders = 8 + chance.int(MAX_ORDERS - 8);
    for (let no = 1; no <= orders; no++) {
      const process = chance.pick(this.#processes);
      world.after(chance.next() * TROUBLE_MS, null, () => void process.order(no));
    }
    this.#planFaults();
    void this.#retryFailed();
    world.after(TROUBLE_MS, null, () => void this.#calm());
    await world.run(() => this.#isOver || this.violation !== null, () => this.#look());
    if (this.violation === null) await this.#lookAtTheEnd();
  }

  /** Closes the database. */
  close(): void {
    this.books.database.close();
  }

  #host() {
    const { world } = this;
    let ids = 0;
    return {
      now: () => world.wallNow,
      monotonic: () => world.now,
      schedule: (ms: number, callback: () => void) => world.after(ms, null, callback),
      defer: queueMicrotask,
      random: () => 0.5,
      newId: () => `bank-${ids++}`,
    };
  }

  #planFaults(): void {
    const chance = new Chance(this.options.seed, "faults");
    for (let no = chance.int(12); no > 0; no--) {
      const at = chance.next() * TROUBLE_MS;
      const process = chance.pick(this.#processes);
      const ms = chance.between(50, 3 * this.settings.staleThreshold);
      const kind = chance.pick(["kill", "kill", "suspend", "jump"]);
      const by = Math.round(chance.between(-10_000, 10_000));
      this.world.after(at, null, () => {
        if (!this.faults.happens(`fault ${no} ${kind}`)) return;
        this.trace.note(`${kind} ${process.process.label}`);
        this.notice(kind);
        if (kind === "kill") process.kill(ms);
        else if (kind === "suspend") process.process.pause(ms);
        else this.world.jump(by);
      });
    }
  }

  /** One client retries what has failed: two could retry the same run, one after the other. */
  async #retryFailed(): Promise<void> {
    const chance = new Chance(this.options.seed, "retries");
    while (!this.#isOver) {
      await this.world.pass(chance.between(50, 1_500));
      await chance.pick(this.#processes).retryFailed();
    }
  }

  /** Nothing goes wrong any more: all that is open comes to its end. */
  async #calm(): Promise<void> {
    this.faults.end();
    this.trace.note("nothing goes wrong any more");
    for (const process of this.#processes) process.start();
    const until = this.world.now + DRAIN_MS;
    let doneSince: number | null = null;
    while (doneSince === null || this.world.now - doneSince < LAST_ROWS_MS) {
      await this.world.pass(LOOK_EVERY_MS);
      const open = await this.#findOpen();
      if (open.length === 0) doneSince ??= this.world.now;
      else doneSince = null;
      if (this.world.now < until) continue;
      this.violation ??= new Violation("B4", `after ${DRAIN_MS} ms without trouble: ${open.slice(0, 5).join("; ")}`);
      return;
    }
    this.#isOver = true;
  }

  /** The runs that are not done, and orders without a run. */
  async #findOpen(): Promise<string[]> {
    const runs = await this.#allRuns();
    const ids = new Set(runs.map(({ id }) => id));
    const open = runs.filter(({ status, retriggeredAs }) => status !== "completed" && retriggeredAs === null);
    const missing = [...this.books.orderedRuns()].filter(([, id]) => !ids.has(id));
    return [
      ...open.map(({ id, jobName, status }) => `${jobName} ${id} is ${status}`),
      ...missing.map(([no, id]) => `the run ${id} of order ${no} is missing`),
    ];
  }

  async #allRuns(): Promise<Run[]> {
    const runs: Run[] = [];
    while (true) {
      const page = await this.#observer!.getRuns({ limit: PAGE, offset: runs.length, total: false });
      runs.push(...page.runs);
      if (!page.hasMore) return runs;
    }
  }

  #look(): void {
    const { books, options: { way } } = this;
    if (books.changes === this.#looked) return;
    this.#looked = books.changes;
    this.#expect("B1", books.findWrongTotal());
    this.#expect("B3", books.findTwice());
    if (way !== "joined") return;
    this.#expect("B2", books.findUnrecorded());
    this.#expect("B4", books.findOrderWithoutRun());
    for (const [runId, made] of this.cancelled) {
      const now = books.countMade(runId);
      if (now !== made) this.#expect("B6", `${runId} was cancelled with ${made} transactions, and has ${now}`);
    }
    if (this.world.now < this.#nextCountAt) return;
    this.#nextCountAt = this.world.now + COUNT_EVERY_MS;
    this.#expect("B5", findBrokenLine(books.database) ?? findWrongCount(books.database));
  }

  async #lookAtTheEnd(): Promise<void> {
    const { books } = this;
    this.#expect("B7", books.findLeft());
    const runs = await this.#allRuns();
    const ordered = new Set(books.orderedRuns().values());
    const first = runs.filter(({ jobName, retriggerOf }) => jobName === "transfer" && retriggerOf === null);
    const found = new Set(first.map(({ id }) => id));
    for (const id of ordered) if (!found.has(id)) this.#expect("B4", `the run ${id} of an order is missing`);
    for (const { id } of first) if (!ordered.has(id)) this.#expect("B4", `${id} has no order`);
    const never = [...this.asked].filter((id) => !ordered.has(id));
    for (const id of never) {
      if (this.heard.has(id)) this.#expect("B5", `an event tells of ${id}, which was rolled back`);
    }
    const ledger = books.ledger();
    const notices = new Set(runs.filter(({ jobName }) => jobName === "notice").map(({ id }) => id));
    for (const { noticeId, key } of ledger) {
      if (noticeId === null) continue;
      if (!notices.delete(noticeId)) this.#expect("B4", `the run ${noticeId} that ${key} has triggered is missing`);
    }
    for (const id of notices) this.#expect("B4", `${id} was triggered by nothing that was committed`);
    const keys = new Set(ledger.map(({ key }) => key));
    for (const [no, id] of books.orderedRuns()) {
      for (const step of ["move", "fee"]) {
        const made = ledger.filter((row) => row.no === no && row.step === step).length;
        if (made !== 1) this.#expect("B3", `${step} of order ${no} was made ${made} times`);
        if (!keys.has(`${id}/${step}`)) this.#expect("B3", `${step} of order ${no} has another key than that of ${id}`);
      }
    }
    await this.#lookAtJournal();
  }

  /** B5: the journal has facts of runs that exist, and of no others. */
  async #lookAtJournal(): Promise<void> {
    const store = this.#memory ?? await this.#openStore();
    const numbers = new Set<number>();
    for (let after = 0;;) {
      const page = await store.readJournal(after, Infinity);
      for (const { facts } of page?.rows ?? []) for (const [run] of facts) numbers.add(run);
      if (page === null || page.rows.length === 0) break;
      after = page.rows.at(-1)!.position;
    }
    const known = await store.getRunIdentities([...numbers]);
    if (known.includes(null)) this.#expect("B5", "the journal tells of a run that does not exist");
  }

  #openStore(): Promise<SqliteStore> {
    return SqliteStore.from(this.books.database as unknown as SqliteDriver, { host: this.#host() });
  }

  #expect(invariant: Invariant, problem: string | null): void {
    if (problem !== null) throw new Violation(invariant, problem);
  }
}
