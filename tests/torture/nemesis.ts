import type { Chance } from "../support/chance.ts";
import type { Fleet, Member } from "./fleet.ts";
import { nap } from "./nap.ts";
import type { Tally } from "./tally.ts";

// At the pace of these numbers there are more than three kills a second.
const KILL_AFTER_MS = [40, 440] as const;
const SUSPEND_AFTER_MS = [200, 1_500] as const;
const SUSPENDED_MS = [200, 1_100] as const;
const DISMISS_AFTER_MS = [2_000, 7_000] as const;

/** Who does harm to the workers at random moments. */
export class Nemesis {
  readonly #fleet: Fleet;
  readonly #chance: (path: string) => Chance;
  readonly #tally: Tally;

  /** Does nothing yet. */
  constructor(fleet: Fleet, chance: (path: string) => Chance, tally: Tally) {
    this.#fleet = fleet;
    this.#chance = chance;
    this.#tally = tally;
  }

  /** Goes on until the signal is aborted; then everybody is as they were before, and runs. */
  async rage(abortSignal: AbortSignal): Promise<void> {
    await Promise.all([this.#kill(abortSignal), this.#suspend(abortSignal), this.#dismiss(abortSignal)]);
  }

  async #kill(abortSignal: AbortSignal): Promise<void> {
    const chance = this.#chance("kill");
    while (await this.#mayStrike(chance.between(...KILL_AFTER_MS), abortSignal)) {
      // The eldest is spared more often, so that something that takes longer comes to its end now and then.
      const victim = this.#pick(chance, (place) => place === 0 ? 1 : 3);
      if (victim === null) continue;
      this.#fleet.kill(victim);
      this.#tally.add("kills");
    }
  }

  async #suspend(abortSignal: AbortSignal): Promise<void> {
    const chance = this.#chance("suspend");
    while (await this.#mayStrike(chance.between(...SUSPEND_AFTER_MS), abortSignal)) {
      const victim = this.#pick(chance, () => 1);
      if (victim === null) continue;
      await this.#fleet.suspend(victim);
      this.#tally.add("suspensions");
      await nap(chance.between(...SUSPENDED_MS), abortSignal);
      await this.#fleet.thawed();
      this.#fleet.resume(victim);
    }
  }

  async #dismiss(abortSignal: AbortSignal): Promise<void> {
    const chance = this.#chance("dismiss");
    while (await this.#mayStrike(chance.between(...DISMISS_AFTER_MS), abortSignal)) {
      const victim = this.#pick(chance, () => 1);
      if (victim === null || victim.isStopped) continue;
      await this.#fleet.dismiss(victim);
      this.#tally.add("graceful stops");
    }
  }

  /** Waits. Answers whether there is still harm to be done. */
  async #mayStrike(afterMs: number, abortSignal: AbortSignal): Promise<boolean> {
    await nap(afterMs, abortSignal);
    await this.#fleet.thawed();
    return !abortSignal.aborted;
  }

  #pick(chance: Chance, weigh: (place: number) => number): Member | null {
    const members = this.#fleet.members.filter(({ isSpared }) => !isSpared);
    if (members.length === 0) return null;
    return chance.weighted(members.map((member, place) => [weigh(place), member] as const));
  }
}
