import type { Chance } from "../support/chance.ts";
import type { Operation } from "./checker.ts";
import type { Ask, Told } from "./key_model.ts";
import type { ServiceClient } from "./service_client.ts";

/** A history of one key. */
export type KeyHistory = Operation<Ask, Told>[];

/** Several clients that ask for all that can be done with one idempotency key, at the same time. */
export class KeyClients {
  readonly history: KeyHistory = [];
  readonly #key: string;
  readonly #client: ServiceClient;
  readonly #chance: Chance;
  readonly #runs: string[] = [];
  readonly #first = new Set<string>();
  readonly #waits = new Map<string, string>();

  /** Begins. */
  constructor(key: string, client: ServiceClient, chance: Chance) {
    this.#key = key;
    this.#client = client;
    this.#chance = chance;
  }

  /** Asks until so many questions were asked. */
  async ask(questions: number, clients: number): Promise<void> {
    await Promise.all(Array.from({ length: clients }, async () => {
      while (this.history.length < questions) await this.#act();
    }));
  }

  async #act(): Promise<void> {
    const chance = this.#chance;
    const run = this.#runs.length === 0 ? null : chance.pick(this.#runs);
    if (run === null) return await this.#trigger();
    await chance.weighted<() => Promise<unknown>>([
      [3, () => this.#trigger()],
      [4, () => this.#send({ is: "read", run }, "GET", `/run?runId=${run}`)],
      [4, () => this.#signal(run)],
      [1, () => this.#send({ is: "cancel", run }, "POST", `/cancel?runId=${run}`)],
      [1, () => this.#send({ is: "delete", run }, "DELETE", `/run?runId=${run}`)],
      [2, () => this.#retrigger(run)],
    ])();
  }

  async #trigger(): Promise<void> {
    const until = this.#chance.pick(["forever", "ended"] as const);
    const body = { jobName: "order", input: null, idempotencyKey: this.#key, idempotencyUntil: until };
    const told = await this.#send({ is: "trigger", until }, "POST", "/trigger", body);
    if (told?.run === undefined) return;
    this.#note(told.run);
    if (told.disposition === "created") this.#first.add(told.run);
  }

  /** Only what was triggered is tried again: no retry of a retry. */
  async #retrigger(run: string): Promise<void> {
    if (!this.#first.has(run)) return;
    const told = await this.#send({ is: "retrigger", run }, "POST", `/retrigger?runId=${run}`);
    if (told?.run !== undefined) this.#note(told.run);
  }

  async #signal(run: string): Promise<void> {
    const wait = this.#waits.get(run) ?? await this.#findWait(run);
    if (wait === null) return;
    this.#waits.set(run, wait);
    const signal = this.#chance.pick(["one", "two"]);
    const body = { signalId: signal, payload: signal };
    await this.#send({ is: "signal", run, signal }, "POST", `/signal?runId=${run}&waitId=${wait}`, body);
  }

  async #findWait(run: string): Promise<string | null> {
    const answer = await this.#client.ask("GET", `/waits?runId=${run}`);
    return answer?.status === 200 ? (answer.body as { id: string }[])[0]?.id ?? null : null;
  }

  #note(run: string): void {
    if (!this.#runs.includes(run)) this.#runs.push(run);
  }

  /** Asks, and writes down what was told. */
  async #send(ask: Ask, method: string, path: string, body?: unknown): Promise<Told | null> {
    const operation: Operation<Ask, Told> = { ask, told: null, from: performance.now(), to: Infinity };
    this.history.push(operation);
    const answer = await this.#client.ask(method, path, body);
    if (answer === null) return null;
    operation.to = performance.now();
    const { runId, disposition, status } = answer.body as { [name: string]: string | undefined };
    const isMade = answer.status === 200 && (ask.is === "trigger" || ask.is === "retrigger");
    return operation.told = {
      status: answer.status,
      ...(isMade ? { run: runId! } : {}),
      ...(disposition === undefined ? {} : { disposition }),
      ...(ask.is === "read" && status !== undefined ? { phase: status } : {}),
    };
  }
}
