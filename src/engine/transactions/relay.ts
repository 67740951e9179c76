import { InterruptibleSleep } from "../../execution/interruptible_sleep.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { OutboxRow } from "../../model/effects.ts";
import { ConflictError, StoreError } from "../../model/error.ts";
import type { Signal, SignalReceipt } from "../../model/wait.ts";
import { parseValue } from "../../values/json.ts";
import type { Enqueued } from "../../store/new_run.ts";
import type { TriggerOptions } from "../triggers/new_run.ts";
import type { Triggers } from "../triggers/triggers.ts";

const FIRST_LOOK_MS = 5;
const PAGE = 100;
const COUNT_EVERY_MS = 60_000;
// How long a caller waits for its own rows.
const LONGEST_WAIT_MS = 5_000;

/** What has become of a row. `run`: `null` if it was deleted since. */
export type Relayed = { run: Enqueued | null } | { signal: SignalReceipt };

/** The dependencies of a {@linkcode Relay}. */
export interface RelayDeps extends Pick<ExecutionDeps, "host" | "hub"> {
  /** The data sources of the engine, with their names. */
  sources: ReadonlyMap<DataSource, string>;
  /** The names of the jobs of the engine. */
  jobs: readonly string[];
  /** The id of the store. */
  storeId: () => Promise<string>;
  /** How often it looks, in milliseconds. */
  intervalMs: number;
  triggers: Pick<Triggers, "requestNow" | "add">;
  /** Delivers a signal. */
  signal: (waitId: string, signal: Signal, by: string | null) => Promise<SignalReceipt>;
}

/**
 * Moves rows of outboxes to the store: first it adds the run under the id of the row, or delivers the signal, then it
 * deletes the row. After a crash in between it does so again, and the store knows the id.
 */
export class Relay {
  /** How many rows were refused, by the names of data sources: those that have some. */
  readonly refused = new Map<string, number>();
  readonly #deps: RelayDeps;
  readonly #idle: InterruptibleSleep;
  /** What a caller waits for, by the ids of rows. */
  readonly #expected = new Map<string, (result: Relayed) => void>();
  #nextLookMs: number;
  #nextCountAt = 0;

  constructor(deps: RelayDeps) {
    this.#deps = deps;
    this.#idle = new InterruptibleSleep(deps.host);
    this.#nextLookMs = deps.intervalMs;
  }

  /** Relays the rows that were committed just now. `null`: they were not, after some seconds; the relay does it later. */
  async relayNow(ids: readonly string[]): Promise<Relayed[] | null> {
    const results = Promise.all(ids.map((id) => new Promise<Relayed>((resolve) => this.#expected.set(id, resolve))));
    const late = Promise.withResolvers<null>();
    const cancel = this.#deps.host.schedule(LONGEST_WAIT_MS, () => late.resolve(null));
    try {
      this.wake();
      this.relayAll().catch((error) => this.#deps.hub.publishError(error));
      return await Promise.race([results, late.promise]);
    } finally {
      cancel();
      for (const id of ids) this.#expected.delete(id);
    }
  }

  /** Looks soon, and again and again: a transaction of this process is about to commit a row. */
  wake(): void {
    this.#nextLookMs = FIRST_LOOK_MS;
    this.#idle.wake();
  }

  /** Looks until the signal fires. */
  async run(abortSignal: AbortSignal): Promise<void> {
    if (this.#deps.sources.size === 0) return;
    const end = () => this.#idle.wake();
    abortSignal.addEventListener("abort", end, { once: true });
    while (!abortSignal.aborted) {
      const moved = await this.relayAll().catch((error) => {
        this.#deps.hub.publishError(error);
        return 0;
      });
      if (moved === 0 && !abortSignal.aborted) await this.#idle.sleep(this.#nextLookMs);
      this.#nextLookMs = Math.min(this.#deps.intervalMs, 2 * this.#nextLookMs);
    }
  }

  /** Relays what the outboxes have now. Answers how many rows it has moved. */
  async relayAll(): Promise<number> {
    let moved = 0;
    const now = this.#deps.host.monotonic();
    const counts = this.#nextCountAt <= now;
    if (counts) this.#nextCountAt = now + COUNT_EVERY_MS;
    for (const [source, name] of this.#deps.sources) {
      moved += await this.#relay(source);
      if (counts) await this.#countRefused(source, name);
    }
    return moved;
  }

  async #countRefused({ effects }: DataSource, name: string): Promise<void> {
    const refused = await effects.countRefused();
    if (refused > 0) this.refused.set(name, refused);
    else this.refused.delete(name);
  }

  async #relay({ effects }: DataSource): Promise<number> {
    const { jobs, host } = this.#deps;
    const storeId = await this.#deps.storeId();
    const rows = await effects.takeRows({ storeId, jobs, now: host.now(), limit: PAGE });
    const done: { row: OutboxRow; result: Relayed }[] = [];
    try {
      for (const row of rows) {
        const result = await this.#perform(row).catch(async (error) => {
          if (error instanceof StoreError) throw error; // the row is relayed later
          this.#nextCountAt = 0;
          await effects.refuseRow(row.no, error instanceof Error ? error.message : String(error));
          return null;
        });
        if (result !== null) done.push({ row, result });
      }
    } finally {
      // Even after an error: what was moved is not moved again.
      try {
        if (done.length > 0) await effects.deleteRows(done.map(({ row }) => row.no));
      } finally {
        for (const { row, result } of done) this.#expected.get(row.id)?.(result);
      }
    }
    return done.length;
  }

  async #perform({ id, kind, name, value, options }: OutboxRow): Promise<Relayed> {
    const { triggers, signal } = this.#deps;
    const parsed = parseValue(value);
    const given = options === null ? {} : JSON.parse(options) as TriggerOptions & { by?: string };
    if (kind === "signal") return { signal: await signal(name, { signalId: id, payload: parsed }, given.by ?? null) };
    if (given.coalesce !== undefined) {
      throw new TypeError("coalesce is not possible: it would decide anew after a crash");
    }
    const run = await triggers.requestNow(name, parsed, given);
    const added = await triggers.add({ ...run, id }).catch((error) => {
      if (error instanceof ConflictError) return null; // it was added before, and deleted since
      throw error;
    });
    return { run: added };
  }
}
