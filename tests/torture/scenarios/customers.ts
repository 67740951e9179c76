import { assertNone } from "./assert_none.ts";
import type { OrderInput } from "./orders.ts";
import type { Patience } from "./patience.ts";
import type { Answer, Service } from "./service.ts";

/** What customers were answered, by the number of answers. */
export interface Counts {
  /** Triggers and signals that were carried out. */
  carriedOut: number;
  /** Triggers and signals that were answered 503. */
  refused: number;
  /** Reads that were answered. */
  reads: number;
  /** Reads that were answered 503. */
  refusedReads: number;
}

/** What customers are like. */
export interface CustomersOptions {
  /** How much room the input of each order takes, in bytes. Default 0. */
  inputBytes?: number;
  /** How many of them order. Default 3. */
  clients?: number;
  /** Whether a step of each order fails at first. Default `true`. */
  hasRetries?: boolean;
}

const TURN_MS = 20;
const MOST_PENDING = 50;
const OPEN = "status=pending&status=leased&status=running&status=waiting";
const PATIENCE_MS = 500;

/**
 * Clients of a service: some trigger runs, one answers waits, one looks at what there is. Each of them asks again, under
 * the same key, until it is answered; so in the end there has to be exactly one run for each order.
 */
export class Customers {
  /** How much room the input of each order takes. */
  readonly #inputBytes: number;
  readonly #hasRetries: boolean;
  readonly #patience: Patience;
  /** The process that they ask; `null` while there is none. */
  service: Service | null;
  /** The run of each order that was accepted, by its key. */
  readonly accepted = new Map<string, string>();
  /** The payload that was accepted for the wait of a run. */
  readonly signalled = new Map<string, string>();
  /** What they were answered so far. */
  readonly counts: Counts = { carriedOut: 0, refused: 0, reads: 0, refusedReads: 0 };
  /** How long they have waited for the answer to a read at most, in milliseconds. */
  longestReadMs = 0;
  /** What was answered otherwise than with 200 or with 503 and Retry-After; or not at all, by who is still there. */
  readonly oddities: string[] = [];
  #pending = 0;
  #isOrdering = true;
  #isOpen = true;
  readonly #ordering: Promise<unknown>;
  readonly #others: Promise<unknown>;

  /** They begin at once. */
  constructor(service: Service, patience: Patience, options: CustomersOptions = {}) {
    this.service = service;
    this.#patience = patience;
    this.#inputBytes = options.inputBytes ?? 0;
    this.#hasRetries = options.hasRetries ?? true;
    this.#ordering = Promise.all(Array.from({ length: options.clients ?? 3 }, (_, name) => this.#order(`${name}`)));
    this.#others = Promise.all([this.#approve(), this.#look()]);
  }

  async #order(name: string): Promise<void> {
    for (let number = 0; this.#isOrdering; number++) {
      const idempotencyKey = `${name}-${number}`;
      const isApproval = number % 5 === 4;
      const input: OrderInput = {
        steps: 3,
        stepMs: number % 20 === 3 ? 300 : 5,
        hasRetry: this.#hasRetries,
        bytes: 2_000,
        padding: "x".repeat(this.#inputBytes),
      };
      const body = { jobName: isApproval ? "approval" : "order", input, idempotencyKey };
      while (!this.accepted.has(idempotencyKey) && this.#isOpen) {
        const answer = await this.#write("/trigger", body);
        if (answer !== null) this.accepted.set(idempotencyKey, answer.body.runId);
        await pause(Math.random() * 2 * TURN_MS);
      }
      // What they order now would be worked off long after the fault is over.
      if (this.#pending > MOST_PENDING) await pause(PATIENCE_MS);
    }
  }

  async #approve(): Promise<void> {
    for (; this.#isOpen; await pause(TURN_MS)) {
      const list = await this.#read("/runs?status=waiting&jobName=approval&limit=20");
      for (const { id } of list?.body.runs ?? []) {
        const wait = (await this.#read(`/waits?runId=${id}`))?.body[0];
        if (wait?.status !== "pending") continue;
        const payload = `answer to ${id}`;
        const answer = await this.#write(`/signal?runId=${id}&waitId=${wait.id}`, { signalId: "answer", payload });
        if (answer !== null) this.signalled.set(id, payload);
      }
    }
  }

  async #look(): Promise<void> {
    for (; this.#isOpen; await pause(TURN_MS)) {
      const list = await this.#read("/runs?status=pending&limit=5");
      if (list !== null) this.#pending = list.body.total;
      const runIds = [...this.accepted.values()];
      const runId = runIds[Math.floor(Math.random() * runIds.length)];
      if (runId === undefined) continue;
      await this.#read(`/run?runId=${runId}`);
      await this.#read(`/steps?runId=${runId}`);
    }
  }

  async #write(path: string, body: unknown): Promise<Answer | null> {
    const answer = await this.#ask((service) => service.post(path, body));
    if (answer?.status === 200) this.counts.carriedOut++;
    if (answer?.status === 503) this.counts.refused++;
    return answer?.status === 200 ? answer : null;
  }

  async #read(path: string): Promise<Answer | null> {
    const answer = await this.#ask((service) => service.get(path));
    if (answer === null) return null;
    if (answer.status === 503) this.counts.refusedReads++;
    else this.counts.reads++;
    this.longestReadMs = Math.max(this.longestReadMs, answer.ms);
    return answer.status === 200 ? answer : null;
  }

  async #ask(ask: (service: Service) => Promise<Answer>): Promise<Answer | null> {
    const { service } = this;
    if (service === null) return null;
    try {
      const answer = await ask(service);
      const isRight = answer.status === 200 || (answer.status === 503 && answer.hasRetryAfter);
      if (!isRight) this.oddities.push(`${answer.status} ${JSON.stringify(answer.body)}`);
      return answer;
    } catch (error) {
      // Only who was taken away meanwhile may leave a call unanswered; and nobody answers with what is no JSON.
      const isExcused = this.service !== service && !(error instanceof SyntaxError);
      if (!isExcused) this.oddities.push(`no answer: ${error}`);
      return null;
    }
  }

  /** Resolves when so many more triggers and signals were carried out. Answers after how many milliseconds. */
  async carryOut(more: number): Promise<number> {
    return await this.#count("carriedOut", more);
  }

  /** Resolves when so many more triggers and signals were refused. Answers after how many milliseconds. */
  async areRefused(more: number): Promise<number> {
    return await this.#count("refused", more);
  }

  async #count(name: keyof Counts, more: number): Promise<number> {
    const since = performance.now();
    const goal = this.counts[name] + more;
    await this.#patience.until(() => this.counts[name] >= goal, `${more} more calls were to be "${name}"`);
    return performance.now() - since;
  }

  /** Resolves when so many more runs have completed. Answers after how many milliseconds. */
  async seeCompleted(more: number): Promise<number> {
    const since = performance.now();
    const countCompleted = async () => (await this.service!.get("/runs?status=completed&limit=0")).body.total as number;
    const goal = await countCompleted() + more;
    await this.#patience.until(async () => await countCompleted() >= goal, "the worker was to complete runs again");
    return performance.now() - since;
  }

  /** Lets them order nothing more, and resolves when all has ended that they have ordered. Answers how long it took. */
  async settle(): Promise<number> {
    const since = performance.now();
    this.#isOrdering = false;
    await this.#ordering;
    const open = async () =>
      (await this.service!.get(`/runs?${OPEN}&limit=3`)).body as { total: number; runs: unknown };
    await this.#patience.until(async () => (await open()).total === 0, "all runs were to end").catch(async (error) => {
      this.#patience.check();
      throw new Error(`Some runs have not ended: ${JSON.stringify(await open())}`, { cause: error });
    });
    await this.leave();
    assertNone(this.oddities, "Some answers were neither 200 nor 503 with Retry-After");
    return performance.now() - since;
  }

  /** Lets them go, whatever they still wait for. */
  async leave(): Promise<void> {
    this.#isOrdering = false;
    this.#isOpen = false;
    await Promise.all([this.#ordering, this.#others]);
  }

  /** The same as {@linkcode Customers.leave}. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.leave();
  }
}

/** Resolves after so many milliseconds. */
function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
