import { createEngine, type Engine, type Run, SqliteStore } from "../../../mod.ts";
import { PostgresStore } from "../../../src/stores/postgres/mod.ts";
import { Child } from "../../processes/child.ts";
import { type Entry, orderJob } from "./order.ts";

/** Where the runs are. */
export type MessagePlaces = { kind: "sqlite"; path: string } | { kind: "postgres"; url: string; schema: string };

/** What a torture of messages came to. */
export interface MessageTortureResult {
  /** What was wrong: nothing, if each promise held. */
  problems: string[];
  /** How often what has happened. */
  tally: Record<string, number>;
}

const WORKERS = 2;
const SENDERS = ["ada", "bob"];
const KILL_EVERY_MS = 4_000;
const CANCEL_EVERY_MS = 300;
const DRAIN_MS = 120_000;
const PAGE = 200;
const OPEN = ["pending", "leased", "running", "waiting"] as const;
// What has to happen: otherwise the rest proves nothing.
const AT_LEAST = { sent: 50, cancels: 3, kills: 1, completed: 1 };

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Lets two processes send messages to orders by their keys, while workers are killed and runs are cancelled. In the end each
 * message is in one run and at most once in the ledger, and of each reservation there is either a shipment or a release.
 */
export async function tortureMessages(
  places: MessagePlaces,
  { ms, ledger, check = () => {} }: { ms: number; ledger: string; check?: () => void },
): Promise<MessageTortureResult> {
  await using store = places.kind === "sqlite"
    ? await SqliteStore.open(places.path)
    : await PostgresStore.open(places.url, { schema: places.schema });
  await using engine = createEngine({ store, jobs: { order: orderJob(ledger) }, logger: null });
  await engine.migrate();
  await Deno.writeTextFile(ledger, "");
  await using torture = new MessageTorture(places, engine, { ms, ledger, check });
  return await torture.run();
}

/** One line of what has happened. */
export function describeMessages({ tally }: Pick<MessageTortureResult, "tally">): string {
  return Object.entries(tally).sort().map(([what, count]) => `${count} ${what}`).join(", ");
}

class MessageTorture implements AsyncDisposable {
  readonly #places: MessagePlaces;
  readonly #engine: Engine;
  readonly #options: { ms: number; ledger: string; check: () => void };
  readonly #workers: Child[] = [];
  readonly #senders: Child[] = [];
  readonly #problems: string[] = [];
  readonly #tally: Record<string, number> = {};
  /** The run of each message that a sender was answered. */
  readonly #sent = new Map<string, string>();

  constructor(places: MessagePlaces, engine: Engine, options: { ms: number; ledger: string; check: () => void }) {
    this.#places = places;
    this.#engine = engine;
    this.#options = options;
  }

  async run(): Promise<MessageTortureResult> {
    for (let at = 0; at < WORKERS; at++) this.#workers[at] = await this.#start("worker");
    for (const name of SENDERS) this.#senders.push(await this.#start(name));
    const sending = Promise.all(this.#senders.map((sender) => this.#listen(sender)));
    const state = { isOver: false };
    const harm = Promise.all([this.#kill(state), this.#cancel(state)]);
    await sending;
    state.isOver = true;
    await harm;
    await this.#drain();
    await this.#checkAll();
    for (const [what, least] of Object.entries(AT_LEAST)) {
      const count = this.#tally[what] ?? 0;
      if (count < least) this.#problems.push(`too mild: ${count} ${what}`);
    }
    return { problems: this.#problems, tally: this.#tally };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of [...this.#workers, ...this.#senders]) await child[Symbol.asyncDispose]();
  }

  #count(what: string, count = 1): void {
    this.#tally[what] = (this.#tally[what] ?? 0) + count;
  }

  async #start(role: string): Promise<Child> {
    const { kind, ...place } = this.#places;
    const { ledger, ms } = this.#options;
    const where = "path" in place ? [place.path, ""] : [place.url, place.schema];
    const file = new URL("order_process.ts", import.meta.url).href;
    const child = new Child({ file }, role, kind, ...where, ledger, `${ms}`);
    await child.hear("serving");
    return child;
  }

  async #listen(sender: Child): Promise<void> {
    while (true) {
      const { id, runId, wrong, isDone } = await sender.hear("told");
      if (isDone === true) return;
      if (wrong !== undefined) {
        this.#problems.push(String(wrong));
        continue;
      }
      this.#sent.set(String(id), String(runId));
      this.#count("sent");
    }
  }

  async #kill(state: { isOver: boolean }): Promise<void> {
    while (!state.isOver) {
      this.#options.check();
      await pause(KILL_EVERY_MS * (0.5 + Math.random()));
      const at = Math.floor(Math.random() * WORKERS);
      await this.#workers[at]!.end("SIGKILL");
      this.#workers[at] = await this.#start("worker");
      this.#count("kills");
    }
  }

  async #cancel(state: { isOver: boolean }): Promise<void> {
    while (!state.isOver) {
      await pause(2 * CANCEL_EVERY_MS * Math.random());
      const { runs } = await this.#engine.getRuns({ jobName: "order", status: OPEN, limit: 50 });
      const run = runs[Math.floor(Math.random() * runs.length)];
      if (run === undefined) continue;
      const isCancelled = await this.#engine.cancel(run.id).then(() => true, () => false); // it may have ended
      if (isCancelled) this.#count("cancels");
    }
  }

  async #drain(): Promise<void> {
    const endsAt = performance.now() + DRAIN_MS;
    while ((await this.#engine.getRuns({ status: OPEN, limit: 1 })).total > 0) {
      if (performance.now() > endsAt) return void this.#problems.push("runs have not ended");
      await pause(200);
    }
  }

  async #checkAll(): Promise<void> {
    const lines = (await Deno.readTextFile(this.#options.ledger)).split("\n");
    const entries = lines.filter((line) => line !== "").map((line): Entry => JSON.parse(line));
    const ofRuns = Map.groupBy(entries, ({ runId }) => runId);
    const found = new Map<string, string>();
    for await (const run of this.#runs()) {
      this.#count(run.status);
      const own = ofRuns.get(run.id) ?? [];
      await this.#checkRun(run, own);
      await this.#checkMessages(run, own, found);
    }
    for (const [id, runId] of this.#sent) {
      if (found.get(id) !== runId) this.#problems.push(`${id} was accepted by ${runId}, and is in ${found.get(id)}`);
    }
  }

  async *#runs(): AsyncGenerator<Run> {
    for (let offset = 0;; offset += PAGE) {
      const { runs, hasMore } = await this.#engine.getRuns({ jobName: "order", limit: PAGE, offset });
      yield* runs;
      if (!hasMore) return;
    }
  }

  /** Reservations less shipments less releases are zero, and nothing is done for a run after it was released. */
  async #checkRun({ id, status, endRunId }: Run, entries: readonly Entry[]): Promise<void> {
    const has = (kind: Entry["kind"]) => entries.some((entry) => entry.kind === kind);
    const reserved = has("reserve") ? 1 : 0;
    const shipped = has("ship") && !has("unship") ? 1 : 0;
    const released = has("release") ? reserved : 0;
    const told = `${status} run ${id}: ${entries.map(({ kind }) => kind).join(", ")}`;
    if (reserved - shipped - released !== 0) this.#problems.push(`the balance is not zero of ${told}`);
    const isBefore = (earlier: Entry["kind"], later: Entry["kind"]) =>
      entries.findIndex(({ kind }) => kind === later) > entries.findLastIndex(({ kind }) => kind === earlier);
    if (has("release") && !isBefore("reserve", "release")) this.#problems.push(`reserved after its release: ${told}`);
    if (has("unship") && !isBefore("ship", "unship")) this.#problems.push(`shipped after it was taken back: ${told}`);
    if ((status === "completed") !== (endRunId === null)) this.#problems.push(`the end run ${endRunId} of ${told}`);
    const end = endRunId === null ? null : await this.#engine.getRun(endRunId);
    if (endRunId !== null && end?.status !== "completed") this.#problems.push(`its end run is ${end?.status}: ${told}`);
  }

  /** Each message is in one run, and was booked by one step, in the order in which it was accepted. */
  async #checkMessages({ id, status }: Run, entries: readonly Entry[], found: Map<string, string>): Promise<void> {
    const messages = await this.#engine.getMessages(id);
    const booked = new Map<string, Set<string>>();
    for (const { kind, messageId, key } of entries) {
      if (kind !== "book") continue;
      booked.set(messageId!, (booked.get(messageId!) ?? new Set()).add(key)); // a booking has one
    }
    for (const { id: messageId, status: of } of messages) {
      if (found.has(messageId)) this.#problems.push(`${messageId} is in ${id}, and in ${found.get(messageId)}`);
      found.set(messageId, id);
      const count = booked.get(messageId)?.size ?? 0;
      const isRight = status === "completed" ? of === "received" && count === 1 : count <= 1;
      if (!isRight) {
        this.#problems.push(`${messageId} of the ${status} run ${id} is ${of}, and was booked ${count} times`);
      }
      this.#count(`messages ${of}`);
    }
    const order = messages.map((message) => message.id).filter((messageId) => booked.has(messageId));
    if (order.join() !== [...booked.keys()].join()) this.#problems.push(`the bookings of ${id} are not in order`);
  }
}
