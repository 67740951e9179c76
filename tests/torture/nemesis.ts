import type { Chance } from "../support/chance.ts";
import type { Calm } from "./calm.ts";
import type { Member, WorkerPool } from "./worker_pool.ts";
import { nap } from "./nap.ts";
import type { Tally } from "./tally.ts";

// At the pace of these numbers there are more than three kills a second.
const KILL_AFTER_MS = [40, 440] as const;
const SUSPEND_AFTER_MS = [200, 1_500] as const;
const SUSPENDED_MS = [200, 1_100] as const;
const DISMISS_AFTER_MS = [2_000, 7_000] as const;

/** Who does harm to the workers at random moments. */
export class Nemesis {
  readonly #pool: WorkerPool;
  readonly #chance: (path: string) => Chance;
  readonly #calm: Calm;
  readonly #tally: Tally;

  /** Does nothing yet. */
  constructor(pool: WorkerPool, chance: (path: string) => Chance, calm: Calm, tally: Tally) {
    this.#pool = pool;
    this.#chance = chance;
    this.#calm = calm;
    this.#tally = tally;
  }

  /** Goes on until the signal is aborted; then everybody is as they were before, and runs. */
  async rage(abortSignal: AbortSignal): Promise<void> {
    await Promise.all([this.#kill(abortSignal), this.#suspend(abortSignal), this.#dismiss(abortSignal)]);
  }

  async #kill(abortSignal: AbortSignal): Promise<void> {
    const chance = this.#chance("kill");
    await this.#strike(() => chance.between(...KILL_AFTER_MS), abortSignal, () => {
      // The eldest is spared more often, so that something that takes longer comes to its end now and then.
      const victim = this.#pick(chance, (place) => place === 0 ? 1 : 3);
      if (victim === null) return;
      this.#pool.kill(victim);
      this.#tally.add("kills");
    });
  }

  async #suspend(abortSignal: AbortSignal): Promise<void> {
    const chance = this.#chance("suspend");
    await this.#strike(() => chance.between(...SUSPEND_AFTER_MS), abortSignal, async () => {
      const victim = this.#pick(chance, () => 1);
      if (victim === null) return;
      await this.#pool.suspend(victim);
      this.#tally.add("suspensions");
      await nap(chance.between(...SUSPENDED_MS), abortSignal);
      await this.#pool.thawed();
      this.#pool.resume(victim);
    });
  }

  async #dismiss(abortSignal: AbortSignal): Promise<void> {
    const chance = this.#chance("dismiss");
    await this.#strike(() => chance.between(...DISMISS_AFTER_MS), abortSignal, async () => {
      const victim = this.#pick(chance, () => 1);
      if (victim === null || victim.isStopped) return;
      await this.#pool.dismiss(victim);
      this.#tally.add("graceful stops");
    });
  }

  /** Does harm again and again, each time after a while. */
  async #strike(afterMs: () => number, abortSignal: AbortSignal, harm: () => void | Promise<void>): Promise<void> {
    while (!abortSignal.aborted) {
      await nap(afterMs(), abortSignal);
      await this.#calm.disturb(async () => {
        await this.#pool.thawed();
        if (!abortSignal.aborted) await harm();
      });
    }
  }

  #pick(chance: Chance, weigh: (place: number) => number): Member | null {
    const members = this.#pool.members.filter(({ isSpared }) => !isSpared);
    if (members.length === 0) return null;
    return chance.weighted(members.map((member, place) => [weigh(place), member] as const));
  }
}
