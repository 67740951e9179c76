import assert from "node:assert/strict";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import { Place } from "./place.ts";
import { type Facts, Service } from "./service.ts";
import { Tmpfs } from "./tmpfs.ts";

const REFUSALS = 25; // that customers have to see in each round
const READS = 25;

/** What happens to the process while the disk is full. The last of all rounds shows that it goes on by itself. */
const FATES = ["is killed and started", "is stopped and started", "goes on"] as const;

/** A disk is full again and again: calls are refused, runs do not notice, and all goes on when there is space again. */
export const fullDisk: Scenario = {
  name: "a full disk",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    const disk = await Tmpfs.mount(isBrief ? 32 : 128);
    if (!(disk instanceof Tmpfs)) return { outcome: "skipped", reason: disk.reason };
    await using _ = disk;
    await using place = await Place.make(disk.folder);
    await using services = new AsyncDisposableStack();
    let service = services.use(await Service.start(place));
    await using customers = new Customers(service, patience, { inputBytes: 8_000 });
    await customers.carryOut(10);
    const met = new Met();
    const resumedAfter: number[] = [];
    const completedAfter: number[] = [];

    for (let round = 0; round < (isBrief ? 3 : 12); round++) {
      const { reads } = customers.counts;
      disk.fill();
      await customers.areRefused(REFUSALS);
      await patience.pause(isBrief ? 500 : 3_000 * Math.random());
      assert.ok(customers.counts.reads >= reads + READS, `Only ${customers.counts.reads - reads} reads were answered`);
      met.take(await service.facts());
      const fate = FATES[round % FATES.length]!;
      if (fate === "goes on") disk.free();
      else {
        customers.service = null;
        await end(service, fate);
        const started = services.use(await startOrNull(place));
        met.noteStart(started);
        disk.free();
        customers.service = service = started ?? services.use(await Service.start(place));
      }
      resumedAfter.push(await customers.carryOut(10));
      completedAfter.push(await customers.seeCompleted(10));
    }
    const drainedMs = await customers.settle();
    await service.stop();

    const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
    const { counts } = customers;
    assert.equal(counts.refusedReads, 0, "Reads were to go on");
    assert.ok(met.workerErrors > 0, "The worker itself has not met the full disk");
    return {
      outcome: "held",
      told:
        `${resumedAfter.length} times full: ${counts.refused} calls refused with 503, ${counts.reads} reads answered, ` +
        `10 calls carried out at most ${Math.round(Math.max(...resumedAfter))} ms after there was space, ` +
        `the worker had completed as many runs at most ${Math.round(Math.max(...completedAfter))} ms later; ` +
        `${met.describe()}; ${runs} runs completed, none failed, ${acknowledged} step results kept; ` +
        `drained in ${(drainedMs / 1_000).toFixed(1)} s`,
    };
  },
};

async function end(service: Service, fate: Exclude<typeof FATES[number], "goes on">): Promise<void> {
  if (fate === "is killed and started") await service.kill();
  else assert.equal((await service.stop()).code, 0);
}

/** A service on a full disk, or `null` if it has refused to start, as it may. */
async function startOrNull(place: Place): Promise<Service | null> {
  const started = await Service.tryToStart(place);
  if (started instanceof Service) return started;
  assert.deepEqual([started.code, started.exitCode], ["unavailable", 1], started.told);
  return null;
}

/** What services have met while the disk was full. */
class Met {
  workerErrors = 0;
  #longestBlockMs = 0;
  #goodStarts = 0;
  #refusedStarts = 0;

  /** Looks whether the host was told why, and counts. */
  take({ workerErrors, hiddenErrors, longestBlockMs }: Facts): void {
    assert.ok(countFull(hiddenErrors) > 0, `The host was not told why: ${JSON.stringify(hiddenErrors)}`);
    this.workerErrors += countFull(workerErrors);
    this.#longestBlockMs = Math.max(this.#longestBlockMs, longestBlockMs);
  }

  noteStart(started: Service | null): void {
    if (started === null) this.#refusedStarts++;
    else this.#goodStarts++;
  }

  describe(): string {
    return `${this.workerErrors} times the worker had to try again, ` +
      `longest block of the event loop ${Math.round(this.#longestBlockMs)} ms; ` +
      `${this.#goodStarts} starts on a full disk succeeded, ${this.#refusedStarts} were refused`;
  }
}

/** How many errors say that the disk is full. */
function countFull(errors: Record<string, number>): number {
  return Object.entries(errors).filter(([text]) => text.includes("disk is full")).reduce((sum, [, n]) => sum + n, 0);
}
