import type { Engine } from "../../../src/engine/engine.ts";
import type { DataSource } from "../../../src/model/data_source.ts";
import { NonRetryableError } from "../../../src/model/error.ts";
import { HoldfastError, StoreError } from "../../../src/model/error.ts";
import type { Host } from "../../../src/model/host.ts";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { Store } from "../../../src/store/store.ts";
import { SqliteDatabase, type SqliteDriver } from "../../../src/stores/sqlite/sqlite_database.ts";
import { SqliteStore } from "../../../src/stores/sqlite/sqlite_store.ts";
import { SqliteDataSource } from "../../../src/stores/sqlite/transactions/sqlite_data_source.ts";
import { type SqliteTransaction, UserStatements } from "../../../src/stores/sqlite/transactions/sqlite_transaction.ts";
import { WriteBatch } from "../../../src/stores/sqlite/write_batch.ts";
import { Chance } from "../../support/chance.ts";
import { createEngine } from "../../support/quiet_engine.ts";
import { anything } from "../../support/stores/for_each_store.ts";
import type { SimProcess } from "../sim_process.ts";
import type { Bank } from "./bank_simulation.ts";
import { ACCOUNTS } from "./books.ts";
import { reach, type Route } from "./reach.ts";

/** An order: money that goes from one account to another. */
interface Order {
  no: number;
  from: number;
  to: number;
  cents: number;
}

const CLIENT_PAUSE_MS = 300;
const APPROVAL_MS = 4_000;

/** A process of the bank: it takes orders, and executes their transfers. */
export class BankProcess {
  readonly process: SimProcess;
  readonly #bank: Bank;
  #engine: Engine | null = null;
  #death = Promise.withResolvers<void>();
  #source: DataSource<SqliteTransaction> | null = null;

  constructor(process: SimProcess, bank: Bank) {
    this.process = process;
    this.#bank = bank;
  }

  /** Starts it, unless it lives. */
  start(): void {
    if (this.process.isAlive) return;
    this.process.start();
    this.#bank.trace.note(`${this.process.label} starts`);
    void this.#serve();
  }

  /** Kills it. It comes back after `downMs` milliseconds. */
  kill(downMs: number): void {
    if (!this.process.isAlive) return;
    this.#bank.trace.note(`${this.process.label} is killed`);
    this.process.kill();
    this.#engine = null;
    this.#death.resolve();
    this.#death = Promise.withResolvers();
    this.process.world.after(downMs, null, () => this.start());
  }

  async #serve(): Promise<void> {
    const { process } = this;
    const { label } = process;
    const bank = this.#bank;
    const host = process.host;
    const { store, source } = await this.#open(host);
    const jobs = this.#jobs(source);
    const engine = createEngine({
      store,
      jobs,
      dataSources: { app: source },
      host,
      worker: {
        staleThreshold: bank.settings.staleThreshold,
        heartbeatInterval: bank.settings.staleThreshold / 4,
        pollingInterval: 100,
        concurrency: 4,
        maxAbandonments: 1_000,
      },
    });
    engine.on("*", (event) => {
      if ("runId" in event && process.label === label) bank.heard.add(event.runId);
    });
    this.#source = source;
    this.#engine = engine;
    while (process.label === label) {
      try {
        await engine.start();
        break;
      } catch (error) {
        if (!(error instanceof StoreError)) throw error;
        await process.sleep(50);
      }
    }
    void this.#cancelSome(label);
  }

  /** The store and the data source as this process reaches them. */
  async #open(host: Host): Promise<{ store: Store; source: DataSource<SqliteTransaction> }> {
    const { books, memory, options: { way, mutant } } = this.#bank;
    const driver = books.database as unknown as SqliteDriver;
    const db = new SqliteDatabase(driver);
    // All processes share one clock of the database, whatever theirs show.
    const shared = { ...host, now: () => this.#bank.world.wallNow };
    const sqlite = memory === null ? await SqliteStore.from(driver, { host: shared }) : null;
    const own = sqlite?.dataSource() ?? new SqliteDataSource(
      {
        db,
        writes: new WriteBatch(db, shared),
        statements: new UserStatements(() => driver),
        close: () => {},
      },
      null,
      { keepEffects: this.#bank.settings.keepEffects },
    );
    const effects = reach(mutant?.effects?.(own.effects) ?? own.effects, this.#route("bank", false));
    const source = { kind: "sqlite" as const, effects, store: null as Store | null };
    const inner: Store = memory ?? withSource(sqlite!, source, own);
    const store = reach(mutant?.store?.(inner, this.#bank.world) ?? inner, this.#route("store", way !== "joined"));
    if (way === "joined") source.store = store;
    return { store, source };
  }

  #route(what: string, isRemote: boolean): Route {
    const { options: { seed }, settings: { latency, trouble }, faults } = this.#bank;
    return {
      seed,
      what,
      process: this.process,
      unreliability: {
        latency,
        fails: trouble,
        diesBefore: trouble / 2,
        diesAfter: trouble,
        losesAnswer: trouble,
      },
      faults,
      isRemote,
      die: () => {
        this.#bank.notice(`a process died at a call to the ${what}`);
        this.kill(new Chance(seed, this.process.label, "down").between(20, 1_500));
      },
      called: (method) => this.#bank.called(method),
    };
  }

  #jobs(source: DataSource<SqliteTransaction>) {
    const bank = this.#bank;
    const { seed } = bank.options;
    const notice = defineJob({ name: "notice", input: anything, run: () => {} });
    const transfer = defineJob({
      name: "transfer",
      input: anything,
      retry: { maxAttempts: 1_000, delay: 20, maxDelay: 200 },
      run: async (step, { no, from, to, cents }: Order) => {
        const chance = new Chance(seed, step.runId);
        if (new Chance(seed, no, "approval").happens(0.3)) await step.wait("approval", { timeout: APPROVAL_MS });
        // What it throws depends on the attempt: some execution is the last.
        const throws = (name: string, attempt: number) =>
          attempt < 6 && new Chance(seed, step.runId, name, attempt).happens(0.25);
        const fails = chance.happens(0.15);
        await step.transaction("move", source, (tx, { attempt, idempotencyKey }) => {
          tx.run("UPDATE accounts SET cents = cents - ? WHERE id = ?", cents, from);
          if (throws("move", attempt)) throw new Error("The move fails between its halves");
          tx.run("UPDATE accounts SET cents = cents + ? WHERE id = ?", cents, to);
          note(tx, idempotencyKey, "move", step.runId, no, null);
          bank.notice("a transfer was executed");
          return cents;
        });
        await step.run("tell", () => fails && !bank.faults.isOver ? fail() : null);
        await step.transaction("fee", source, (tx, { attempt, idempotencyKey }) => {
          const { runId } = tx.trigger(notice, { no });
          note(tx, idempotencyKey, "fee", step.runId, no, runId);
          if (throws("fee", attempt)) throw new Error("The fee fails after its trigger");
        });
      },
    });
    return { transfer, notice };
  }

  /** Takes an order: row and run in one transaction. It is repeated until it is there. */
  async order(no: number): Promise<void> {
    const bank = this.#bank;
    const chance = new Chance(bank.options.seed, "order", no);
    const from = chance.int(ACCOUNTS);
    const input: Order = { no, from, to: (from + 1 + chance.int(ACCOUNTS - 1)) % ACCOUNTS, cents: 1 + chance.int(50) };
    const way = chance.pick(["engine", "inTransaction", "SQL"]);
    while (!bank.books.orderedRuns().has(no)) {
      const [engine, source] = [this.#engine, this.#source];
      if (engine === null || source === null) {
        await bank.world.pass(CLIENT_PAUSE_MS);
        continue;
      }
      const isRolledBack = chance.happens(0.3);
      try {
        // An answer that its process does not live to hear never comes.
        await Promise.race([
          this.#take(way, engine, source, input, isRolledBack),
          bank.world.pass(5_000),
        ]);
      } catch (error) {
        if (!(error instanceof HoldfastError || error instanceof RolledBack)) throw error;
      }
      await bank.world.pass(CLIENT_PAUSE_MS);
    }
    if (new Chance(bank.options.seed, no, "approval").happens(0.3)) await this.#approve(no);
  }

  async #take(
    way: string,
    engine: Engine,
    source: DataSource<SqliteTransaction>,
    input: Order,
    isRolledBack: boolean,
  ): Promise<void> {
    const bank = this.#bank;
    const { asked, books: { database } } = bank;
    const key = `order ${input.no}`;
    const insert = "INSERT INTO orders VALUES (?, ?, ?)";
    if (way === "engine") {
      await engine.transaction(source, (tx) => {
        if (tx.get("SELECT 1 FROM orders WHERE no = ?", input.no) !== undefined) return;
        const { runId } = tx.trigger("transfer", input, { idempotencyKey: key });
        asked.add(runId);
        tx.run(insert, input.no, way, runId);
        if (isRolledBack) throw new RolledBack();
      });
      return bank.notice("an order by engine.transaction()");
    }
    // The tables are there when the engine has started. In one turn of the event loop, since all share the connection.
    await engine.migrate();
    database.exec("BEGIN");
    const isThere = database.prepare("SELECT 1 FROM orders WHERE no = ?").get(input.no) !== undefined;
    if (isThere || !this.process.isAlive) return void database.exec("ROLLBACK");
    let runId = `sql-${input.no}-${asked.size}`;
    let triggered: Promise<{ runId: string }> | null = null;
    if (way === "SQL") {
      database.prepare(
        "INSERT INTO holdfast_outbox (id, kind, name, value, options) VALUES (?, 'trigger', 'transfer', ?, ?)",
      )
        .run(runId, JSON.stringify(input), JSON.stringify({ idempotencyKey: key }));
    } else {
      triggered = engine.inTransaction(source, database).trigger("transfer", input, { idempotencyKey: key });
      triggered.catch(() => {});
      runId = String(database.prepare("SELECT id FROM holdfast_outbox ORDER BY no DESC LIMIT 1").get()!.id);
    }
    asked.add(runId);
    database.prepare(insert).run(input.no, way, runId);
    database.exec(isRolledBack ? "ROLLBACK" : "COMMIT");
    bank.notice(`an order by ${way}`);
    await triggered;
  }

  /** Ends the wait of an order by a signal, in one transaction with a row. */
  async #approve(no: number): Promise<void> {
    const bank = this.#bank;
    const runId = bank.books.orderedRuns().get(no)!;
    for (let tries = 0; tries < 20; tries++) {
      await bank.world.pass(CLIENT_PAUSE_MS);
      const [engine, source] = [this.#engine, this.#source];
      if (engine === null || source === null) continue;
      const signalId = `approval ${no} ${tries}`;
      const approving = (async () => {
        const [wait] = await engine.getWaits(runId);
        if (wait?.status !== "pending") return wait !== undefined;
        await engine.transaction(source, (tx) => {
          tx.run("INSERT INTO approvals VALUES (?, ?)", wait.id, signalId);
          tx.signal(wait.id, { signalId, payload: no });
        });
        bank.notice("an approval");
        return true;
      })();
      const done = await Promise.race([approving, bank.world.pass(5_000)]).catch((error) => {
        if (!(error instanceof HoldfastError)) throw error;
        return false;
      });
      if (done === true) return;
    }
  }

  /** Retries from their failure what has failed or was cancelled, and was not retried. It resolves when the process dies, too. */
  async retryFailed(): Promise<void> {
    const engine = this.#engine;
    if (engine === null) return;
    const retrying = async () => {
      const filter = { jobName: "transfer", status: ["failed", "cancelled"], total: false } as const;
      const { runs } = await engine.getRuns(filter);
      for (const { id, retriggeredAs } of runs) {
        if (retriggeredAs !== null) continue;
        await engine.retrigger(id, { from: "failure" });
        this.#bank.notice("a retry from the failure");
      }
    };
    await Promise.race([retrying(), this.#death.promise]).catch((error) => {
      if (!(error instanceof HoldfastError)) throw error;
    });
  }

  /** Cancels runs while there is trouble. */
  async #cancelSome(label: string): Promise<void> {
    const { process } = this;
    const bank = this.#bank;
    const chance = new Chance(bank.options.seed, label, "cancels");
    while (process.label === label) {
      await process.sleep(chance.between(300, 2_000));
      if (bank.faults.isOver) return;
      try {
        const { runs } = await this.#engine!.getRuns({
          jobName: "transfer",
          status: ["running", "waiting"],
          total: false,
        });
        if (runs.length === 0) continue;
        const { id } = chance.pick(runs);
        if (!bank.faults.happens(`cancel ${label} ${id}`)) continue;
        const { status } = await this.#engine!.cancel(id);
        if (status !== "cancelled") continue;
        bank.cancelled.set(id, bank.books.countMade(id));
        bank.notice("a cancel was answered");
      } catch (error) {
        if (!(error instanceof HoldfastError)) throw error;
      }
    }
  }
}

class RolledBack extends Error {}

function fail(): never {
  throw new NonRetryableError("The run fails after its transfer");
}

function note(
  tx: SqliteTransaction,
  key: string,
  step: string,
  runId: string,
  no: number,
  noticeId: string | null,
): void {
  tx.run("INSERT INTO ledger VALUES (?, ?, ?, ?, ?)", key, step, runId, no, noticeId);
}

/** The store, whose data source is known to the engine by another object. */
function withSource(store: SqliteStore, given: DataSource, own: SqliteDataSource): Store {
  return new Proxy(store, {
    get: (_, name) => {
      if (name === "transact") {
        return (source: DataSource, ...rest: [never, never]) =>
          store.transact(source === given ? own : source, ...rest);
      }
      const value = store[name as keyof SqliteStore];
      return typeof value === "function" ? value.bind(store) : value;
    },
  });
}
