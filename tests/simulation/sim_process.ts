import type { Host } from "../../src/model/host.ts";
import { Chance } from "../support/chance.ts";
import type { Mortal, World } from "./world.ts";

// How late a timer may be, and how long what is deferred waits for its turn, in milliseconds.
const TIMER_LATENESS_MS = 2;
const DEFER_MS = 0.3;
// How far the wall clock of a process may be from that of its store, in milliseconds, in half of all worlds.
const MOST_SKEW_MS = 60_000;

/** A process: it can be killed, stopped for a while and started again, and takes its time and its chance from the world. */
export class SimProcess implements Mortal {
  readonly name: string;
  readonly world: World;
  readonly #seed: number;
  readonly #skewMs: number;
  #incarnation = 0;
  #pausedUntil = 0;
  #isAlive = false;
  #chance: Chance;
  #deferredUntil = 0;

  /** Makes a process that was not started. */
  constructor(name: string, world: World, seed: number) {
    this.name = name;
    this.world = world;
    this.#seed = seed;
    const isSkewed = new Chance(seed, "clocks").happens(0.5);
    this.#skewMs = isSkewed ? Math.round(new Chance(seed, name, "clock").between(-MOST_SKEW_MS, MOST_SKEW_MS)) : 0;
    this.#chance = new Chance(seed, name, 0);
  }

  /** How often it was started. */
  get incarnation(): number {
    return this.#incarnation;
  }

  /** Until when nothing happens to it. */
  get pausedUntil(): number {
    return this.#pausedUntil;
  }

  /** Whether it was started and not killed since. */
  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** Its name and how often it was started. */
  get label(): string {
    return `${this.name}.${this.#incarnation}`;
  }

  /** Starts it anew: nothing is left of what it was. */
  start(): void {
    this.#incarnation += 1;
    this.#isAlive = true;
    this.#pausedUntil = 0;
    this.#deferredUntil = 0;
    this.#chance = new Chance(this.#seed, this.name, this.#incarnation);
  }

  /** Kills it: nothing that was to happen to it happens any more. */
  kill(): void {
    this.#incarnation += 1;
    this.#isAlive = false;
  }

  /** Stops it for a while, as a blocked event loop, a debugger or SIGSTOP does. */
  pause(ms: number): void {
    this.#pausedUntil = Math.max(this.#pausedUntil, this.world.now + ms);
  }

  /** Resolves after `ms` milliseconds; never, if it is killed before. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.world.after(ms, this, resolve));
  }

  /** The world as this incarnation sees it. */
  get host(): Host {
    const chance = this.#chance;
    const { world } = this;
    const id = `${this.#seed.toString(16)}${this.label}`;
    let ids = 0;
    const incarnation = this.#incarnation;
    const after = (ms: number, callback: () => void) =>
      incarnation === this.#incarnation ? world.after(ms, this, callback) : () => {};
    return {
      now: () => world.wallNow + this.#skewMs,
      monotonic: () => world.now,
      schedule: (ms, callback) => after(ms + chance.next() * TIMER_LATENESS_MS, callback),
      defer: (callback) => {
        // What is deferred first happens first.
        this.#deferredUntil = Math.max(this.#deferredUntil, world.now + chance.next() * DEFER_MS);
        after(this.#deferredUntil - world.now, callback);
      },
      random: () => chance.next(),
      newId: () => `${id}-${ids++}`,
    };
  }
}
