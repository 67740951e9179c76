import type { ListFilter } from "../../src/run.ts";
import { inTime, until } from "../processes/deadline.ts";
import { Chance } from "../support/chance.ts";
import { Asker } from "./asker.ts";
import { Book } from "./book.ts";
import { Calm } from "./calm.ts";
import { Client, LANES } from "./client.ts";
import { CopyThread } from "./copy_thread.ts";
import { Examiner } from "./examiner.ts";
import { Fleet } from "./fleet.ts";
import { History } from "./history.ts";
import { JOB_NAMES } from "./jobs.ts";
import { LedgerReader } from "./ledger.ts";
import type { Sights } from "./sights.ts";
import { Sizes } from "./sizes.ts";
import { RETURNS, Subscriber } from "./subscriber.ts";
import { Tally } from "./tally.ts";
import { Violations } from "./violations.ts";

// How many follow lists, and each list for how long.
const LISTS = 6;
const LIST_MS = [3_000, 20_000] as const;

/** What a crew is made of. */
export interface CrewOptions {
  /** An empty folder for everything that it leaves. */
  folder: string;
  /** What decides what the clients ask. */
  seed: number;
  /** How many workers serve at the same time. */
  workers: number;
  /** How many clients there are. */
  clients: number;
  /** How long a lease lasts, in milliseconds. */
  leaseMs: number;
}

/** Everybody who takes part in a storm but those who do harm: workers, clients, and who checks what they do. */
export class Crew implements AsyncDisposable {
  readonly tally = new Tally();
  readonly violations = new Violations();
  readonly sights: Sights = { unfinished: 0, triggered: 0, ended: [] };
  readonly book = new Book((message, run) => this.violations.add(message, run));
  readonly longest = { backupMs: 0 };
  readonly calm = new Calm();
  readonly copies = new CopyThread();
  readonly database: string;
  readonly sizes: Sizes;
  readonly ledger: LedgerReader;
  readonly history: History;
  readonly examiner: Examiner;
  readonly fleet: Fleet;
  readonly #over = new AbortController();
  readonly #clients: Client[];
  readonly #asker: Asker;
  readonly #seed: number;
  readonly #subscribers = new Map<Subscriber, ListFilter>();
  #visits: Promise<void>[] = [];

  /** Gathers everybody; nobody begins. */
  constructor({ folder, seed, workers, clients, leaseMs }: CrewOptions) {
    const { tally, violations, sights, book } = this;
    const ledgerPath = `${folder}/ledger.jsonl`;
    const database = `${folder}/jobs.db`;
    const onTrouble = (message: string) => violations.add(message);
    this.database = database;
    this.sizes = new Sizes(database);
    this.ledger = new LedgerReader(ledgerPath);
    this.history = new History(tally, (message, run, facts) => {
      violations.add(message, run, facts.map((fact) => JSON.stringify(fact)));
    });
    this.examiner = new Examiner({ ...this, ledger: this.ledger, history: this.history, database });
    const onSuspension = (pid: number) => this.history.noteSuspension(pid);
    this.fleet = new Fleet({ database, ledgerPath, leaseMs, size: workers, onSuspension, onTrouble });
    const asker = new Asker(this.fleet, new Chance(seed, "asker"), tally, this.#over.signal);
    this.#asker = asker;
    this.#seed = seed;
    this.#clients = Array.from({ length: clients }, (_, number) =>
      new Client({
        asker,
        book,
        chance: new Chance(seed, "client", number),
        sights,
        tally,
        onProblem: (message, run) => violations.add(message, run),
        onChain: (chain) => this.examiner.hear(chain),
      }));
  }

  /**
   * Lets workers and clients begin, and resolves when the workers serve.
   *
   * @param quiet When it is aborted, clients only answer what is still waited for.
   */
  async begin(quiet: AbortSignal): Promise<void> {
    await this.fleet.start();
    this.#visits = this.#clients.map((client) =>
      client.use(quiet, this.#over.signal).catch((error) => {
        this.violations.add(`a client broke: ${error instanceof Error ? error.stack : error}`);
      })
    );
    for (let number = 0; number < LISTS; number++) this.#visits.push(this.#followLists(number, quiet));
  }

  /** Follows one list after another; the last one until everything is over. */
  async #followLists(number: number, quiet: AbortSignal): Promise<void> {
    const { tally, violations, examiner } = this;
    const chance = new Chance(this.#seed, "list", number);
    while (!this.#over.signal.aborted) {
      const leaving = new AbortController();
      const timer = setTimeout(() => quiet.aborted || leaving.abort(), chance.between(...LIST_MS));
      const filter = chance.pick<ListFilter>([
        {},
        { labels: { lane: chance.pick(LANES) } },
        { jobName: chance.pick(JOB_NAMES), labels: { storm: "yes" } },
      ]);
      const subscriber = new Subscriber({ runId: null, filter, returns: chance.pick(RETURNS) }, {
        asker: this.#asker,
        chance,
        tally,
        mayBeGone: () => false,
        onProblem: (message, run) => violations.add(message, run),
        onChain: (chain) => examiner.hear(chain),
      });
      this.#subscribers.set(subscriber, filter);
      await subscriber.follow(AbortSignal.any([leaving.signal, this.#over.signal]));
      this.#subscribers.delete(subscriber);
      clearTimeout(timer);
    }
  }

  /** Ends clients and workers as they end when nobody does harm. */
  async end(): Promise<void> {
    await this.#seeTheEnd().catch((error) => this.violations.add(String(error)));
    await inTime(this.#endClients(), "the clients were to end");
    await this.fleet.retire();
  }

  /** Every run has ended: whoever follows has to receive that. */
  async #seeTheEnd(): Promise<void> {
    const followed = Promise.all(this.#clients.map((client) => client.followed()));
    await inTime(followed, "those who follow runs were to receive their ends");
    this.examiner.look();
    const { journal } = this.examiner;
    const isUpToDate = () =>
      [...this.#subscribers].every(([subscriber, filter]) => subscriber.hasComeTo(journal.lastNumber(filter)));
    await until(isUpToDate, "those who follow lists were to receive everything");
  }

  async #endClients(): Promise<void> {
    this.#over.abort();
    await Promise.all([...this.#visits, ...this.#clients.map((client) => client.leave())]);
  }

  /** Ends everybody, whatever they are doing. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.fleet[Symbol.asyncDispose]();
    await this.#endClients();
    this.copies[Symbol.dispose]();
    this.ledger[Symbol.dispose]();
  }
}
