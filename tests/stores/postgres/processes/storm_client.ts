import { ConflictError, createEngine, type Engine, NotFoundError, type TriggerOptions } from "../../../../mod.ts";
import type { RunEvent } from "../../../../src/model/event.ts";
import type { Store } from "../../../../src/store/store.ts";
import type { Chance } from "../../../support/chance.ts";
import { type StormInput, stormJobs } from "./storm_jobs.ts";
import type { Tally } from "./tally.ts";

/** What was asked for one run, and what was acknowledged of that. */
export interface Receipt {
  id: string;
  job: string;
  /** When it may start, in milliseconds after its trigger. */
  delayMs: number;
  isCancelAsked: boolean;
  isCancelled: boolean;
  isDeleteAsked: boolean;
  isDeleted: boolean;
  /** The payload of the signal that was accepted. */
  answer: string | null;
}

/** A run that somebody has followed. */
export interface Followed {
  id: string;
  events: RunEvent[];
  /** Why the stream has failed; `null`: it has come to its end. */
  error: string | null;
}

/** What clients share. */
export interface StormClientDeps {
  store: Store;
  chance: Chance;
  tally: Tally;
  /** Whether enough has been asked for. */
  isOver(): boolean;
  /** How many runs have not ended. */
  unfinished(): number;
}

type Jobs = ReturnType<typeof stormJobs>;

const KEYS = 5;
const STEP_MS = 20;
const DELAY_MS = 700;
const MOST_UNFINISHED = 200;
// How many trigger and how many follow at the same time. A connection that is frozen holds up one of them.
const TRIGGERING = 4;
const FOLLOWERS = 4;
const REMEMBERED = 200;

/** Asks for runs of all jobs, answers waits, cancels, retriggers, deletes and follows; repeats what was not answered. */
export class StormClient {
  /** Of each trigger that was acknowledged, by the id of its run. */
  readonly receipts = new Map<string, Receipt>();
  /** The retries that were acknowledged, by their ids, with the runs of which they are. */
  readonly retries = new Map<string, string>();
  /** The streams that have ended. */
  readonly followed: Followed[] = [];
  readonly #deps: StormClientDeps;
  readonly #engines: Engine<Jobs>[];
  readonly #latest: Receipt[] = [];
  readonly #payloads = new Map<string, string>();
  #following = 0;
  readonly #streams = new Set<Promise<void>>();

  /** Asks for nothing yet. */
  constructor(deps: StormClientDeps) {
    this.#deps = deps;
    this.#engines = [1, 2].map((version) => {
      return createEngine({ store: deps.store, jobs: stormJobs(version, () => {}), logger: null });
    });
  }

  get #engine(): Engine<Jobs> {
    return this.#engines[0]!;
  }

  /** Asks until it is over; then answers waits until it is told to stop. */
  async ask(stopped: AbortSignal): Promise<void> {
    const { isOver } = this.#deps;
    let n = 0;
    await Promise.all([
      ...Array.from({ length: TRIGGERING }, () => repeat(10, isOver, () => this.#trigger(n++))),
      repeat(50, () => stopped.aborted, () => this.#answer()),
      repeat(300, isOver, () => this.#cancel()),
      repeat(500, isOver, () => this.#retrigger()),
      repeat(500, isOver, () => this.#delete()),
      repeat(50, isOver, () => this.#follow()),
    ]);
  }

  /** Lets the schedule fire no more. */
  async pauseSchedule(): Promise<void> {
    await this.#untilAnswered(() => this.#engine.schedules.pause("ticks"));
  }

  /** Resolves when all streams have ended and the engines are stopped. */
  async leave(): Promise<void> {
    await Promise.all(this.#streams);
    await Promise.all(this.#engines.map((engine) => engine.stop()));
  }

  async #trigger(n: number): Promise<void> {
    const { chance, unfinished, tally } = this.#deps;
    while (unfinished() > MOST_UNFINISHED && !this.#deps.isOver()) await pause(20);
    const { jobs } = this.#engines[n % 2]!;
    const input: StormInput = { n, stepMs: STEP_MS };
    const name =
      (["keyed", "keyed", "keyed", "plain", "plain", "asking", "limited", "rated", "parent"] as const)[n % 9]!;
    const delayMs = name === "plain" && chance.happens(0.3) ? DELAY_MS : 0;
    const options: TriggerOptions = {
      idempotencyKey: `trigger ${n}`,
      ...(name === "keyed" ? { concurrencyKey: `key ${chance.int(KEYS)}` } : {}),
      ...(name === "limited" ? { priority: chance.int(3), fairnessKey: `org ${chance.int(4)}` } : {}),
      ...(delayMs > 0 ? { delay: delayMs } : {}),
    };
    const { id } = await this.#untilAnswered(() => jobs[name].trigger(input, options));
    tally.add("runs triggered");
    const receipt = {
      id,
      job: name,
      delayMs,
      isCancelAsked: false,
      isCancelled: false,
      isDeleteAsked: false,
      isDeleted: false,
      answer: null,
    };
    this.receipts.set(id, receipt);
    this.#latest.push(receipt);
    if (this.#latest.length > REMEMBERED) this.#latest.shift();
  }

  /** Repeats a call until it has an answer. The idempotency key finds what was committed without one. */
  async #untilAnswered<T>(call: () => Promise<T>): Promise<T> {
    while (true) {
      try {
        return await call();
      } catch {
        this.#deps.tally.add("calls repeated");
        await pause(50);
      }
    }
  }

  async #answer(): Promise<void> {
    const { chance, tally } = this.#deps;
    const { runs } = await this.#engine.getRuns({ jobName: "asking", status: "waiting", limit: 50 });
    await Promise.all(runs.map(async ({ id }) => {
      const wait = (await this.#engine.getWaits(id)).find(({ status }) => status === "pending");
      if (wait === undefined) return;
      // A repeated signal has the payload of the first one.
      const payload = this.#payloads.get(id) ?? `answer ${chance.next()}`;
      this.#payloads.set(id, payload);
      const { disposition } = await this.#engine.signal(wait.id, { signalId: "answer", payload });
      tally.add(`signals ${disposition}`);
      const receipt = this.receipts.get(id);
      if (receipt !== undefined) receipt.answer = payload;
    }));
  }

  async #cancel(): Promise<void> {
    const { chance } = this.#deps;
    const candidates = this.#latest.filter(({ job }) => job !== "rated");
    if (candidates.length === 0) return;
    const receipt = chance.pick(candidates);
    receipt.isCancelAsked = true;
    const run = await this.#engine.cancel(receipt.id);
    receipt.isCancelled = run.status === "cancelled";
    this.#deps.tally.add("runs cancelled");
  }

  async #pickCompleted(): Promise<Receipt | undefined> {
    const { runs } = await this.#engine.getRuns({ jobName: "plain", status: "completed", limit: 20 });
    const receipts = runs.map(({ id }) => this.receipts.get(id)).filter((receipt) => receipt !== undefined);
    return receipts.length === 0 ? undefined : this.#deps.chance.pick(receipts);
  }

  async #retrigger(): Promise<void> {
    const receipt = await this.#pickCompleted();
    if (receipt === undefined) return;
    const { id } = await this.#engine.retrigger(receipt.id);
    this.#deps.tally.add("runs retriggered");
    this.retries.set(id, receipt.id);
  }

  async #delete(): Promise<void> {
    const receipt = await this.#pickCompleted();
    if (receipt === undefined) return;
    receipt.isDeleteAsked = true;
    await this.#engine.deleteRun(receipt.id);
    receipt.isDeleted = true;
    this.#deps.tally.add("runs deleted");
  }

  #follow(): Promise<void> {
    const receipt = this.#latest.at(-1);
    if (receipt === undefined || this.#following >= FOLLOWERS) return Promise.resolve();
    this.#following += 1;
    const stream = this.#read(receipt.id).finally(() => {
      this.#following -= 1;
      this.#streams.delete(stream);
    });
    this.#streams.add(stream);
    return Promise.resolve();
  }

  async #read(id: string): Promise<void> {
    const events: RunEvent[] = [];
    let error: string | null = null;
    try {
      for await (const event of this.#engine.subscribe(id)) events.push(event);
    } catch (thrown) {
      error = String(thrown);
    }
    this.followed.push({ id, events, error });
    this.#deps.tally.add("runs followed");
    this.#deps.tally.add("events received", events.length);
  }
}

/** Does something over and over. What fails is done again. What the state of a run does not allow is no failure. */
async function repeat(everyMs: number, isOver: () => boolean, work: () => Promise<void>): Promise<void> {
  while (!isOver()) {
    try {
      await work();
    } catch (error) {
      if (!isUnavailable(error) && !(error instanceof ConflictError) && !(error instanceof NotFoundError)) throw error;
    }
    await pause(everyMs);
  }
}

function isUnavailable(error: unknown): boolean {
  return (error as { code?: unknown }).code === "unavailable";
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
