import type { Host } from "../model/host.ts";
import type { WorkerSettings } from "./worker_settings.ts";

/** What an execution does with the slot of its worker. */
export interface Slot {
  /** Whether the execution has it: it may begin something new. */
  readonly isTaken: boolean;
  /** Gives it up while nothing of the job can begin. It may stay taken. */
  giveUp(): void;
  /** Resolves when the execution has it again. Executions that wait for this come before new claims. */
  take(): Promise<void>;
  /** Notes that the code of the job fits what the run has recorded, or goes on anyway. */
  noteFit(): void;
  /** Notes that the job has returned, and that the end of the run is being saved. */
  noteEnding(): void;
  /**
   * Notes that the execution is over.
   *
   * @param fits Whether the code of the job fits the run; `null`: it is not known.
   */
  end(fits: boolean | null): void;
}

type SlotSettings = Pick<WorkerSettings, "concurrency" | "pollingInterval">;

// One slot in so many tries held runs.
const SLOTS_PER_TRIAL = 10;
// How many held runs are tried in a polling interval before it is known that the code fits one of them.
const MAX_TRIALS = 20;
// After how many polling intervals without a trial one comes before other runs.
const MAX_INTERVALS = 3;
// How many records the histories of executions without a slot have, so that they need little memory. Each counts as some.
const MAX_RECORDS = 10_000;
const RECORDS_OF_EXECUTION = 10;

/**
 * The slots of a worker. An execution uses one until its job has returned.
 *
 * While it waits for its replay to become quiet, it gives its slot up: each run whose code does not fit would cost the
 * others a second otherwise.
 *
 * A claim of a held run is a trial, until it is known whether the code fits now. Trials come after all other due runs,
 * and use one slot in ten at most. 20 are made in each polling interval. Once the code has fitted a run, more follow at
 * once, until it does not fit another.
 */
export class Slots {
  readonly #settings: SlotSettings;
  readonly #host: Host;
  readonly #onFree: () => void;
  #used = 0;
  #ending = 0;
  #recordsWithoutSlot = 0;
  readonly #trials = new Set<Place>();
  /** Who waits for a slot, in the order of the waits. */
  readonly #waiting = new Map<Place, () => void>();
  #trialsLeft = 0;
  #nextTrialsAt = -Infinity;
  #triedAt: number;

  /** @param onFree Called when a slot has become free, or more trials may follow. */
  constructor(settings: SlotSettings, host: Host, onFree: () => void) {
    this.#settings = settings;
    this.#host = host;
    this.#onFree = onFree;
    this.#triedAt = host.monotonic();
  }

  /** How many executions use a slot. */
  get busy(): number {
    return this.#used;
  }

  /** How many more runs may be executed; less than 0 while too many ends cannot be saved. */
  get free(): number {
    const { concurrency } = this.#settings;
    // While the store is out of reach, runs that cannot be ended do not accumulate.
    return concurrency - this.#used - Math.max(0, this.#ending - concurrency);
  }

  /**
   * How many held runs may be tried now.
   *
   * @param isUnpaced Whether only the slots limit it.
   */
  countTrials(isUnpaced: boolean): number {
    const now = this.#host.monotonic();
    if (now >= this.#nextTrialsAt) {
      this.#nextTrialsAt = now + this.#settings.pollingInterval;
      this.#trialsLeft = MAX_TRIALS;
    }
    const most = Math.max(1, Math.floor(this.#settings.concurrency / SLOTS_PER_TRIAL));
    const used = [...this.#trials].filter(({ state }) => state === "used").length;
    return Math.max(0, Math.min(this.free, most - used, isUnpaced ? MAX_TRIALS : this.#trialsLeft));
  }

  /** Whether other runs have left no slot for trials for so long that one comes before them. */
  get areTrialsOverdue(): boolean {
    return this.#host.monotonic() - this.#triedAt >= MAX_INTERVALS * this.#settings.pollingInterval;
  }

  /** Notes how many held runs a claim has taken. If it has taken less than its limit, there are no more. */
  noteTrials(claimed: number, limit: number): void {
    this.#triedAt = this.#host.monotonic();
    this.#trialsLeft = claimed < limit ? 0 : Math.max(0, this.#trialsLeft - claimed);
  }

  /**
   * Gives a slot to a new execution.
   *
   * @param records How many records its run has.
   * @param isTrial Whether it was held until its claim.
   */
  begin(records: number, isTrial: boolean): Slot {
    const place: Place = { state: "used", records: RECORDS_OF_EXECUTION + records };
    this.#used += 1;
    if (isTrial) this.#trials.add(place);
    return {
      get isTaken() {
        return place.state === "used";
      },
      giveUp: () => this.#giveUp(place),
      take: () => this.#take(place),
      noteFit: () => this.#noteFit(place),
      noteEnding: () => {
        if (place.state !== "over") this.#move(place, "ending"); // it is over if the run was claimed again meanwhile
      },
      end: (fits) => {
        this.#move(place, "over");
        if (fits === true) this.#noteFit(place);
        else if (this.#trials.delete(place) && fits === false) this.#trialsLeft = 0;
      },
    };
  }

  /** Gives free slots to those who wait for one. If the worker stops, all of them get one: they begin nothing. */
  serve(isStopping = false): void {
    for (const place of this.#waiting.keys()) {
      if (this.free <= 0 && !isStopping) return;
      this.#move(place, "used");
    }
  }

  /** Not if too many are without one. */
  #giveUp(place: Place): void {
    if (place.state !== "used" || this.#recordsWithoutSlot + place.records > MAX_RECORDS) return;
    this.#move(place, "without");
    this.#onFree();
  }

  /** It resolves, too, when the execution is over. */
  async #take(place: Place): Promise<void> {
    if (place.state !== "without") return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.set(place, resolve);
    this.serve();
    await promise;
  }

  #noteFit(place: Place): void {
    if (!this.#trials.delete(place)) return;
    this.#trialsLeft = MAX_TRIALS;
    this.#onFree();
  }

  #move(place: Place, state: Place["state"]): void {
    this.#count(place, -1);
    place.state = state;
    this.#count(place, 1);
    this.#waiting.get(place)?.();
    this.#waiting.delete(place);
  }

  #count({ state, records }: Place, change: number): void {
    if (state === "used") this.#used += change;
    if (state === "ending") this.#ending += change;
    if (state === "without") this.#recordsWithoutSlot += change * records;
  }
}

/** What is known of the slot of an execution. */
interface Place {
  state: "used" | "without" | "ending" | "over";
  /** How many records the history of the execution has, and some for itself. */
  readonly records: number;
}
