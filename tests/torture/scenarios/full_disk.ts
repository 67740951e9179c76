import assert from "node:assert/strict";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { audit } from "./audit.ts";
import { Customers } from "./customers.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";
import { Tmpfs } from "./tmpfs.ts";

const REFUSALS = 25; // that customers have to see in each round
const READS = 25;

/** What happens to the process while the disk is full. The last of all rounds shows that it goes on by itself. */
const FATES = ["is killed and started", "is stopped and started", "goes on"] as const;

/** A disk is full again and again: calls are refused, runs do not notice, and all goes on when there is space again. */
export const fullDisk: Scenario = {
  name: "a full disk",
  async run({ isBrief }): Promise<ScenarioResult> {
    const disk = await Tmpfs.mount(isBrief ? 32 : 128);
    if (!(disk instanceof Tmpfs)) return { outcome: "skipped", reason: disk.reason };
    await using _ = disk;
    await using place = await Place.make(disk.folder);
    await using services = new AsyncDisposableStack();
    let service = services.use(await Service.start(place));
    await using customers = new Customers(service, { inputBytes: 8_000 });
    await customers.carryOut(10);
    const resumedAfter: number[] = [];
    const completedAfter: number[] = [];
    const starts = { good: 0, refused: 0 };
    let longestBlockMs = 0;
    let workerErrors = 0;

    for (let round = 0; round < (isBrief ? 3 : 12); round++) {
      const fate = FATES[round % FATES.length]!;
      const { reads } = customers.counts;
      disk.fill();
      await customers.areRefused(REFUSALS);
      await new Promise((resolve) => setTimeout(resolve, isBrief ? 500 : 3_000 * Math.random()));
      assert.ok(customers.counts.reads >= reads + READS, `Only ${customers.counts.reads - reads} reads were answered`);
      const facts = await service.facts();
      longestBlockMs = Math.max(longestBlockMs, facts.longestBlockMs);
      workerErrors += countFull(facts.workerErrors);
      assert.ok(countFull(facts.hiddenErrors) > 0, `The host was not told why: ${JSON.stringify(facts.hiddenErrors)}`);
      if (fate !== "goes on") {
        customers.service = null;
        if (fate === "is killed and started") await service.kill();
        else assert.equal((await service.stop()).code, 0);
        const started = await Service.tryToStart(place);
        if (started instanceof Service) {
          starts.good++;
          customers.service = service = services.use(started);
        } else {
          starts.refused++;
          assert.deepEqual([started.code, started.exitCode], ["unavailable", 1], started.told);
        }
      }
      disk.free();
      if (customers.service === null) customers.service = service = services.use(await Service.start(place));
      resumedAfter.push(await customers.carryOut(10));
      completedAfter.push(await customers.seeCompleted(10));
    }
    const drainedMs = await customers.settle();
    await service.stop();

    const { runs, acknowledged } = await audit(place.database, place.ledger, customers);
    const { counts } = customers;
    assert.equal(counts.refusedReads, 0, "Reads were to go on");
    assert.ok(workerErrors > 0, "The worker itself has not met the full disk");
    return {
      outcome: "held",
      told:
        `${resumedAfter.length} times full: ${counts.refused} calls refused with 503, ${counts.reads} reads answered, ` +
        `${workerErrors} times the worker had to try again; ` +
        `10 calls carried out at most ${Math.round(Math.max(...resumedAfter))} ms after there was space, ` +
        `the worker had completed as many runs at most ${Math.round(Math.max(...completedAfter))} ms later; ` +
        `${starts.good} starts on a full disk succeeded, ${starts.refused} were refused; ` +
        `${runs} runs completed, none failed, ${acknowledged} step results kept; ` +
        `drained in ${(drainedMs / 1_000).toFixed(1)} s, longest block of the event loop ${
          Math.round(longestBlockMs)
        } ms`,
    };
  },
};

/** How many errors say that the disk is full. */
function countFull(errors: Record<string, number>): number {
  return Object.entries(errors).filter(([text]) => text.includes("disk is full")).reduce((sum, [, n]) => sum + n, 0);
}
