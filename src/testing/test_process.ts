import { setImmediate } from "node:timers";
import { StoreError } from "../model/error.ts";
import { createEngineIn } from "../engine/create_engine.ts";
import type { Engine } from "../engine/engine.ts";
import type { EngineOptions } from "../engine/engine_options.ts";
import type { Jobs } from "../engine/job_handle.ts";
import { internalsOf } from "../engine/engine_internals.ts";
import type { EngineEvent } from "../model/event.ts";
import type { Surroundings } from "../execution/surroundings.ts";
import type { Host } from "../model/host.ts";
import type { Store } from "../store/store.ts";
import type { ClaimResult } from "../store/claim.ts";
import { type Checkpoint, checkpointOf, claimOf, type Moment } from "./checkpoint.ts";
import { randomNumbers } from "./fake_globals.ts";
import type { TestClock } from "./test_clock.ts";
import type { Trace } from "./trace.ts";

// Taken when the kit is loaded: a test may replace the timers of its own code.
const macrotask = setImmediate;

/** What goes wrong at a checkpoint. */
export type Fault = "dies" | "answer lost" | "overtaken";

/** What a process shares with the others of its test. */
export interface SharedWorld {
  readonly clock: TestClock;
  readonly store: Store;
  readonly trace: Trace;
  readonly options: { seed: number; dataSources: NonNullable<EngineOptions<Jobs>["dataSources"]> };
  surroundingsOf(process: TestProcess): Surroundings;
  /** Decides what goes wrong at a checkpoint. */
  faultAt(checkpoint: Checkpoint, moment: Moment, process: TestProcess): Fault | null;
  onEvent(event: EngineEvent, process: TestProcess): void;
  /** Called when a process does something. */
  onActivity(): void;
  /** Adds a warning, once. */
  warn(text: string): void;
}

/** The error of a call whose answer was lost on purpose. */
export class LostAnswerError extends StoreError {
  constructor() {
    super("The answer was lost", { outcomeUnknown: true });
  }
}

const forever = () => new Promise<never>(() => {});

/** One process of a test: an engine that can be killed, or suspended for a while, at any call of its store. */
export class TestProcess {
  /** Its name: `worker 1`. */
  readonly name: string;
  /** Its jobs. */
  readonly jobs: Jobs;
  /** Its engine. */
  readonly engine: Engine;
  readonly #world: SharedWorld;
  readonly #cancels = new Set<() => void>();
  #isAlive = true;
  #resumed: PromiseWithResolvers<void> | null = null;
  #wasSuspended = false;
  #heldBack: (() => void)[] = [];
  #open = 0;

  constructor(no: number, jobs: Jobs, world: SharedWorld) {
    this.name = `worker ${no}`;
    this.jobs = jobs;
    this.#world = world;
    this.engine = createEngineIn(world.surroundingsOf(this), {
      store: this.#storeOf(world.store),
      host: this.#hostOf(no),
      jobs,
      dataSources: world.options.dataSources,
      logger: { info: () => {}, warn: (text) => world.warn(text), error: () => {} },
    });
    this.engine.on("*", (event) => world.onEvent(event, this));
  }

  /** Whether it was not killed. */
  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** Whether nothing happens to it until it is resumed. */
  get isSuspended(): boolean {
    return this.#resumed !== null;
  }

  /** Whether it was suspended at some time. */
  get wasSuspended(): boolean {
    return this.#wasSuspended;
  }

  /** How many of its calls to the store, and of its deferred callbacks, are under way. */
  get openCount(): number {
    return this.#isAlive ? this.#open : 0;
  }

  /** The runs whose jobs do something outside of their steps. */
  get runsInOwnCode(): string[] {
    return this.#isAlive && !this.isSuspended ? internalsOf(this.engine).lifecycle.worker.runsInOwnCode() : [];
  }

  /** Looks for work at once. */
  wake(): void {
    if (!this.#isAlive) return;
    const { lifecycle, scheduler } = internalsOf(this.engine);
    lifecycle.worker.wake();
    scheduler.wake();
  }

  /** Kills it: nothing that was to happen to it happens any more. */
  kill(): void {
    if (!this.#isAlive) return;
    this.#isAlive = false;
    for (const cancel of this.#cancels) cancel();
    this.#heldBack = [];
    internalsOf(this.engine).lifecycle.discard();
  }

  /** Suspends it: what is to happen to it happens when it is resumed. */
  suspend(): void {
    this.#wasSuspended = true;
    this.#resumed ??= Promise.withResolvers<void>();
  }

  /** Resumes it. */
  resume(): void {
    this.#resumed?.resolve();
    this.#resumed = null;
    for (const callback of this.#heldBack.splice(0)) this.#happen(callback);
  }

  #happen(callback: () => void): void {
    if (!this.#isAlive) return;
    if (this.isSuspended) this.#heldBack.push(callback);
    else callback();
  }

  #hostOf(no: number): Host {
    const { clock, options } = this.#world;
    const random = randomNumbers(options.seed + no * 7_919);
    let ids = 0;
    return {
      now: () => clock.now,
      monotonic: () => clock.now,
      schedule: (ms, callback) => {
        if (!this.#isAlive) return () => {};
        const cancel = clock.schedule(ms, () => {
          this.#cancels.delete(cancel);
          this.#happen(callback);
        });
        this.#cancels.add(cancel);
        return () => {
          this.#cancels.delete(cancel);
          cancel();
        };
      },
      defer: (callback) => {
        if (!this.#isAlive) return;
        this.#open += 1;
        macrotask(() => {
          this.#open -= 1;
          this.#happen(callback);
        });
      },
      random,
      newId: () => testId(clock.now, no, ids++),
    };
  }

  #storeOf(store: Store): Store {
    return new Proxy(store, {
      get: (_, name) => {
        const method = store[name as keyof Store];
        if (typeof method !== "function" || typeof name === "symbol") return method;
        return (...parameters: never[]) => this.#call(name as keyof Store, parameters);
      },
    });
  }

  /** Makes a call to the store. A process that is dead, or dies, gets no answer. */
  #call(method: keyof Store, parameters: readonly unknown[]): Promise<unknown> {
    if (!this.#isAlive) return forever();
    this.#open += 1;
    this.#world.onActivity();
    return new Promise((resolve, reject) => {
      const end = (settle: () => void) => {
        this.#open -= 1;
        this.#happen(settle);
      };
      this.#perform(method, parameters).then((value) => end(() => resolve(value)), (error) => end(() => reject(error)));
    });
  }

  async #perform(method: keyof Store, parameters: readonly unknown[]): Promise<unknown> {
    const { store, trace } = this.#world;
    const perform = () => (store[method] as (...parameters: readonly unknown[]) => Promise<unknown>)(...parameters);
    const checkpoint = checkpointOf(method, parameters);
    if (checkpoint !== null) {
      const note = (what: string) => trace.add(this.name, `${checkpoint.what}${what}`, checkpoint.runId);
      const fault = this.#world.faultAt(checkpoint, "before", this);
      if (fault === "dies") return note(": DIES before the commit"), this.#die();
      if (fault === "overtaken") await this.#pause(() => note(": SUSPENDED before the commit"));
      if (!this.#isAlive) return forever();
      let value: unknown;
      try {
        value = await perform();
      } catch (error) {
        note(`: refused, ${(error as Error).message}`);
        throw error;
      }
      return await this.#after(checkpoint, value, note);
    }
    const value = await perform();
    const claimed = method === "claim" ? claimOf(value as ClaimResult) : null; // what the call answers
    if (claimed === null) return value;
    const note = (what: string) => trace.add(this.name, `${claimed.what}${what}`, claimed.runId);
    return await this.#after(claimed, value, note);
  }

  async #after(checkpoint: Checkpoint, value: unknown, note: (what: string) => void): Promise<unknown> {
    switch (this.#world.faultAt(checkpoint, "after", this)) {
      case "dies":
        return note(": DIES after the commit"), this.#die();
      case "answer lost":
        note(": the answer is LOST");
        throw new LostAnswerError();
      case "overtaken":
        await this.#pause(() => note(": SUSPENDED after the commit"));
        return value;
      default:
        note("");
        return value;
    }
  }

  #die(): Promise<never> {
    this.kill();
    return forever();
  }

  /** Suspends the process. What is open in it counts again when it is resumed. */
  async #pause(note: () => void): Promise<void> {
    note();
    this.suspend();
    this.#open -= 1;
    await this.#resumed!.promise;
    this.#open += 1;
  }
}

/** An id that follows from the clock and a count, in the form of a UUIDv7. */
function testId(now: number, process: number, count: number): string {
  const time = Math.trunc(now).toString(16).padStart(12, "0");
  const [no, last] = [process.toString(16).padStart(3, "0").slice(-3), count.toString(16).padStart(12, "0")];
  return `${time.slice(0, 8)}-${time.slice(8)}-7${no}-8000-${last}`;
}
