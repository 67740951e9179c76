import type { ListFilter } from "../../src/model/run.ts";
import { inTime, until } from "../processes/deadline.ts";
import { Chance } from "../support/chance.ts";
import { HttpClient } from "./http_client.ts";
import { ClientRecords } from "./client_records.ts";
import { Calm } from "./calm.ts";
import { Client, LANES } from "./client.ts";
import { CopyThread } from "./copy_thread.ts";
import { Examiner } from "./examiner.ts";
import { WorkerPool } from "./worker_pool.ts";
import { History } from "./history.ts";
import { JOB_NAMES } from "./jobs.ts";
import { LedgerReader } from "./ledger.ts";
import type { Observations } from "./observations.ts";
import { Sizes } from "./sizes.ts";
import { RETURNS, Subscriber } from "./subscriber.ts";
import { Tally } from "./tally.ts";
import { Violations } from "./violations.ts";

// How many follow lists, and each list for how long.
const LISTS = 6;
const LIST_MS = [3_000, 20_000] as const;

/** What the participants of a storm are made of. */
export interface StormParticipantsOptions {
  /** An empty folder for the files that they write. */
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

/** All parts of a storm but the faults: workers, clients, and the checks of what they do. */
export class StormParticipants implements AsyncDisposable {
  readonly tally = new Tally();
  readonly violations = new Violations();
  readonly observations: Observations = { unfinished: 0, triggered: 0, ended: [] };
  readonly records = new ClientRecords((message, run) => this.violations.add(message, run));
  readonly longest = { backupMs: 0 };
  readonly calm = new Calm();
  readonly copies = new CopyThread();
  readonly database: string;
  readonly sizes: Sizes;
  readonly ledger: LedgerReader;
  readonly history: History;
  readonly examiner: Examiner;
  readonly pool: WorkerPool;
  readonly #over = new AbortController();
  readonly #clients: Client[];
  readonly #http: HttpClient;
  readonly #seed: number;
  readonly #subscribers = new Map<Subscriber, ListFilter>();
  #visits: Promise<void>[] = [];

  /** Makes all parts, and starts none. */
  constructor({ folder, seed, workers, clients, leaseMs }: StormParticipantsOptions) {
    const { tally, violations, observations, records } = this;
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
    this.pool = new WorkerPool({ database, ledgerPath, leaseMs, size: workers, onSuspension, onTrouble });
    const http = new HttpClient(this.pool, new Chance(seed, "asker"), tally, this.#over.signal);
    this.#http = http;
    this.#seed = seed;
    this.#clients = Array.from({ length: clients }, (_, number) =>
      new Client({
        http,
        records,
        chance: new Chance(seed, "client", number),
        observations,
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
    await this.pool.start();
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
        http: this.#http,
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
    await this.pool.retire();
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
    await this.pool[Symbol.asyncDispose]();
    await this.#endClients();
    this.copies[Symbol.dispose]();
    this.ledger[Symbol.dispose]();
  }
}
