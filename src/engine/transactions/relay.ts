import { errorMessage } from "../../values/unknown_values.ts";
import { InterruptibleSleep } from "../../model/host.ts";
import type { ExecutionDeps } from "../../execution/execution.ts";
import type { DataSource } from "../../model/data_source.ts";
import type { NewOutboxRow, OutboxRow, StuckRows } from "../../model/effects.ts";
import { ConflictError, StoreError } from "../../model/error.ts";
import type { SendResult } from "../../model/message.ts";
import type { SignalReceipt } from "../../model/wait.ts";
import { actorOf, encodeOrigin } from "../../model/origin.ts";
import { decode, parseValue } from "../../values/json.ts";
import type { Enqueued, NewRun } from "../../store/new_run.ts";
import type { Messages } from "../messages.ts";
import type { RunChanges } from "../runs/run_changes.ts";
import type { RowOptions, SendRowOptions } from "./requests.ts";
import type { Triggers } from "../triggers/triggers.ts";
import { UnknownJobError } from "../../model/job/job_catalog.ts";

const FIRST_LOOK_MS = 5;
const PAGE = 100;
// Runs whose inputs are together as long are added in one commit.
const MAX_GROUP_LENGTH = 1_048_576;
const COUNT_EVERY_MS = 60_000;
const PUBLISH_EVERY_MS = 60_000;
// A row that waits for longer needs attention.
const LONG_MS = 60_000;
// How long a caller waits for its own rows.
const LONGEST_WAIT_MS = 5_000;

/** What has become of a row. `run`: `null` if it was deleted since. */
export type Relayed = { run: Enqueued | null } | { signal: SignalReceipt } | { message: SendResult };

/** A row whose caller waits for it. */
interface Expected {
  row: NewOutboxRow;
  /** `null`: it was refused. */
  resolve: (result: Relayed | null) => void;
}

/** The dependencies of a {@linkcode Relay}. */
interface RelayDeps extends Pick<ExecutionDeps, "host" | "hub" | "store"> {
  /** The data sources of the engine, with their names. */
  sources: ReadonlyMap<DataSource, string>;
  /** The names of the jobs of the engine, and their aliases. */
  jobs: readonly string[];
  /** Creates the tables of a data source, if that was not done before. */
  migrate: (source: DataSource) => Promise<void>;
  /** The id of the store. */
  storeId: () => Promise<string>;
  /** How often it looks, in milliseconds. */
  intervalMs: number;
  triggers: Pick<Triggers, "requestNow" | "requestChecked" | "add" | "addTogether" | "enqueue" | "asksPlugins">;
  runs: Pick<RunChanges, "signal">;
  messages: () => Pick<Messages, "send">;
}

/**
 * Moves rows of outboxes to the store: first it adds the run under the id of the row, or delivers the signal or the
 * message with that id, then it deletes the row. After a crash in between it does so again, and the store knows the id.
 */
export class Relay {
  /** The rows that need attention, by the names of data sources. */
  readonly stuck = new Map<string, StuckRows>();
  readonly #deps: RelayDeps;
  readonly #idle: InterruptibleSleep;
  /** The rows that callers wait for, in the order of their calls. Two may be equal: the same signal, twice. */
  readonly #expected = new Set<Expected>();
  /** The messages to runs whose jobs this engine does not have: it leaves them to others for a while. */
  readonly #left = new Map<DataSource, number[]>();
  /** What looks for callers, beside {@linkcode Relay.run}. */
  readonly #looking = new Set<Promise<void>>();
  #nextLookMs: number;
  #nextCountAt = 0;
  /** When an error of a data source that fails was published. */
  readonly #publishedAt = new Map<DataSource, number>();

  constructor(deps: RelayDeps) {
    this.#deps = deps;
    this.#idle = new InterruptibleSleep(deps.host);
    this.#nextLookMs = deps.intervalMs;
  }

  /**
   * Relays the rows that were committed just now. `null`: one was refused, or they were not relayed, after some seconds:
   * the relay does it later.
   */
  async relayNow(source: DataSource, rows: readonly NewOutboxRow[]): Promise<Relayed[] | null> {
    const { host, hub } = this.#deps;
    const mine = new Set<Expected>();
    const results = Promise.all(
      rows.map((row) => new Promise<Relayed | null>((resolve) => mine.add({ row, resolve }))),
    );
    for (const expected of mine) this.#expected.add(expected);
    const late = Promise.withResolvers<null>();
    const cancel = host.schedule(LONGEST_WAIT_MS, () => late.resolve(null));
    const idle = new InterruptibleSleep(host);
    try {
      this.wake();
      const looking = this.#relayUntilDone(source, mine, idle).catch((error) => hub.publishError(error))
        .finally(() => this.#looking.delete(looking));
      this.#looking.add(looking);
      const relayed = await Promise.race([results, late.promise]);
      return relayed === null || relayed.includes(null) ? null : relayed as Relayed[];
    } finally {
      cancel();
      for (const expected of mine) this.#settle(expected, null);
      mine.clear();
      idle.wake();
    }
  }

  /** Looks until nothing of this is expected any more. */
  async #relayUntilDone(
    { effects }: DataSource,
    mine: ReadonlySet<Expected>,
    idle: InterruptibleSleep,
  ): Promise<void> {
    const open = () => [...mine].filter((expected) => this.#expected.has(expected));
    for (let pauseMs = FIRST_LOOK_MS;; pauseMs *= 2) {
      await this.relayAll();
      if (open().length === 0) return;
      await idle.sleep(pauseMs);
      if (open().length === 0) return;
      const found = await effects.findRows(open().map(({ row }) => row.id));
      for (const expected of open()) {
        const row = found.find((one) => isSame(one, expected.row));
        if (row === undefined) this.#settle(expected, await this.#repeat(expected.row));
        else if (row.error !== null) this.#settle(expected, null);
      }
    }
  }

  #settle(expected: Expected, result: Relayed | null): void {
    this.#expected.delete(expected);
    expected.resolve(result);
  }

  /** What has become of a row that another engine has relayed: the same again, which changes nothing. */
  async #repeat(row: NewOutboxRow): Promise<Relayed | null> {
    try {
      return await this.#perform(row, (...given) => this.#deps.triggers.enqueue(...given)); // the other one published it
    } catch (error) {
      if (error instanceof StoreError) throw error;
      return null;
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
    const ignore = () => {}; // others watch for these
    const watch = this.#deps.store.watch?.({ onOutboxRow: () => this.wake(), onChange: ignore, onError: ignore });
    while (!abortSignal.aborted) {
      const moved = await this.relayAll();
      if (moved > 0) this.#nextLookMs = FIRST_LOOK_MS; // more may be on its way
      else if (!abortSignal.aborted) {
        await this.#idle.sleep(this.#nextLookMs);
        this.#nextLookMs = Math.min(this.#deps.intervalMs, 2 * this.#nextLookMs);
      }
    }
    watch?.stop();
    await Promise.all(this.#looking); // the data source may be closed after this
  }

  /** Relays until the outboxes have nothing more, or the signal fires. Answers how many rows it has moved. */
  async relayDue(abortSignal: AbortSignal): Promise<number> {
    let all = 0;
    for (let moved = 1; moved > 0 && !abortSignal.aborted; all += moved) moved = await this.relayAll();
    return all;
  }

  /** Relays what the outboxes have now; one that fails holds up no other. Answers how many rows it has moved. */
  async relayAll(): Promise<number> {
    let moved = 0;
    const now = this.#deps.host.monotonic();
    const counts = this.#nextCountAt <= now;
    if (counts) {
      this.#nextCountAt = now + COUNT_EVERY_MS;
      this.#left.clear();
    }
    for (const [source, name] of this.#deps.sources) {
      try {
        await this.#deps.migrate(source);
        moved += await this.#relay(source);
        this.#publishedAt.delete(source);
        if (counts) {
          const before = this.#deps.host.now() - LONG_MS;
          this.stuck.set(name, await source.effects.countStuck(await this.#deps.storeId(), before));
        }
      } catch (error) {
        // What is left there is relayed later. A log line for each look would fill a disk.
        if (now - (this.#publishedAt.get(source) ?? -Infinity) < PUBLISH_EVERY_MS) continue;
        this.#publishedAt.set(source, now);
        this.#deps.hub.publishError(error);
      }
    }
    return moved;
  }

  async #relay(source: DataSource): Promise<number> {
    const { jobs, host } = this.#deps;
    const { effects } = source;
    const storeId = await this.#deps.storeId();
    const left = this.#left.get(source) ?? [];
    const rows = await effects.takeRows({ storeId, jobs, except: left, now: host.now(), limit: PAGE });
    const done: { row: OutboxRow; result: Relayed }[] = [];
    try {
      for (const group of toGroups(rows, this.#deps.triggers.asksPlugins)) {
        const together = group.length > 1 ? await this.#addTogether(group) : null;
        for (const [at, row] of group.entries()) {
          const result = together?.[at] ?? await this.#perform(row).catch(async (error) => {
            if (error instanceof StoreError) throw error; // the row is relayed later
            if (row.kind === "send" && error instanceof UnknownJobError) {
              this.#left.set(source, left);
              left.push(row.no);
              this.#settleFirst(row, null);
              return null;
            }
            this.#nextCountAt = 0;
            await effects.refuseRow(row.no, errorMessage(error));
            this.#settleFirst(row, null);
            return null;
          });
          if (result !== null) done.push({ row, result });
        }
      }
    } finally {
      // Even after an error: what was moved is not moved again.
      try {
        if (done.length > 0) await effects.deleteRows(done.map(({ row }) => row.no));
      } finally {
        for (const { row, result } of done) this.#settleFirst(row, result);
      }
    }
    return done.length;
  }

  #settleFirst(row: OutboxRow, result: Relayed | null): void {
    for (const expected of this.#expected) {
      if (isSame(expected.row, row)) return this.#settle(expected, result);
    }
  }

  /** Adds the runs of several rows in one commit; `null`: one of them was refused, so each is tried alone. */
  async #addTogether(rows: readonly OutboxRow[]): Promise<Relayed[] | null> {
    try {
      const requests: NewRun[] = [];
      for (const row of rows) requests.push((await this.#toRequest(row)).run);
      return (await this.#deps.triggers.addTogether(requests)).map((run) => ({ run }));
    } catch (error) {
      if (error instanceof StoreError) throw error;
      return null;
    }
  }

  async #perform(
    row: Omit<OutboxRow, "no">,
    add = (request: NewRun, isTraced: boolean) => this.#deps.triggers.add(request, isTraced),
  ): Promise<Relayed> {
    const { id, kind, name, value } = row;
    if (kind === "signal") {
      const signal = { signalId: id, payload: parseValue(value) };
      return { signal: await this.#deps.runs.signal(name, signal, optionsOf(row).by ?? null) };
    }
    if (kind === "send") {
      const { to, ...options } = JSON.parse(row.options ?? "{}") as SendRowOptions;
      return { message: await this.#deps.messages().send(to, name, parseValue(value), { ...options, id }) };
    }
    const { run, isTraced } = await this.#toRequest(row);
    const added = await add(run, isTraced).catch((error) => {
      if (error instanceof ConflictError) return null; // it was added before, and deleted since
      throw error;
    });
    return { run: added };
  }

  /** The request for the run of a row. */
  async #toRequest(row: Omit<OutboxRow, "no">): Promise<{ run: NewRun; isTraced: boolean }> {
    const { trace, isOfStep = false, ...given } = optionsOf(row);
    if (given.coalesce !== undefined) {
      throw new TypeError("coalesce is not possible: it would decide anew after a crash");
    }
    const { triggers } = this.#deps;
    const input = decode(row.value);
    const run =
      await (isOfStep ? triggers.requestChecked(row.name, input, given) : triggers.requestNow(row.name, input, given));
    const origin = trace === undefined ? run.trace : encodeOrigin(trace, actorOf(run.trace));
    return { run: { ...run, id: row.id, trace: origin }, isTraced: trace !== undefined };
  }
}

function optionsOf({ options }: Pick<OutboxRow, "options">): RowOptions {
  return options === null ? {} : JSON.parse(options) ?? {};
}

/** The rows in their order; triggers that need nothing but the store are put together, as far as one call takes them. */
function toGroups(rows: readonly OutboxRow[], asksPlugins: boolean): OutboxRow[][] {
  const groups: OutboxRow[][] = [];
  let length = Infinity;
  for (const row of rows) {
    const isPlain = row.kind === "trigger" && !asksPlugins;
    length += row.value?.length ?? 0;
    if (isPlain && length <= MAX_GROUP_LENGTH) groups.at(-1)!.push(row);
    else {
      groups.push([row]);
      length = isPlain ? row.value?.length ?? 0 : Infinity;
    }
  }
  return groups;
}

type RowIdentity = Pick<OutboxRow, "id" | "kind" | "name" | "options">;

/** Whether two rows ask for the same. The options of a message say which run it is for. */
function isSame(left: RowIdentity, right: RowIdentity): boolean {
  return left.id === right.id && left.kind === right.kind && left.name === right.name && left.options === right.options;
}
