import assert from "node:assert/strict";
import { z } from "zod";
import { defineJob } from "../../../src/model/job/define_job.ts";
import type { ScheduleSlot } from "../../../src/model/job/step_calls.ts";
import { replay } from "../../../src/replay/mod.ts";
import { engineOfStoredRuns } from "../../../src/cli/service/database_service.ts";
import { forEachStore } from "../../support/stores/for_each_store.ts";
import { createEngine } from "../../support/quiet_engine.ts";

const TIMING = { cron: "30 0 * * *", timezone: "Europe/Berlin", input: null };

/** Of the night in which Berlin sets its clocks forward: the slot before is 23 hours earlier. */
const SLOT: ScheduleSlot = {
  at: "2040-03-25T22:30:00.000Z",
  timezone: "Europe/Berlin",
  localDate: "2040-03-26",
  previousAt: "2040-03-24T23:30:00.000Z",
};

/** A job that naps and fails, and the slots of its executions. */
function aReport() {
  const seen: (ScheduleSlot | null)[] = [];
  const report = defineJob({
    name: "report",
    input: z.null(),
    async run(step) {
      seen.push(step.slot);
      await step.sleep("nap", 60_000);
      throw new Error("broken");
    },
  });
  return { report, seen };
}

forEachStore(
  "step.slot is the same in each execution, retry and replay, whatever becomes of the schedule",
  async ({ store, host }) => {
    const { report, seen } = aReport();
    await using engine = createEngine({ store, host, jobs: { report } });
    const goOn = async () => {
      await engine.runUntilIdle();
      host.advance(60_000);
      await engine.runUntilIdle();
    };
    await engine.schedules.set("nightly", { job: report, ...TIMING });
    host.advance(Date.parse(SLOT.at) - host.now());

    await engine.runUntilIdle();
    await engine.schedules.set("nightly", { job: report, ...TIMING, cron: "@hourly", timezone: "Asia/Kolkata" });
    await goOn();
    await engine.schedules.delete("nightly");
    const first = (await engine.getRuns()).runs[0]!;
    const fromStart = await engine.retrigger(first.id);
    await goOn();
    const fromFailure = await engine.retrigger(fromStart.id, { from: "failure" });
    await goOn();
    await engineOfStoredRuns(store, host).retrigger(fromFailure.id);
    await goOn();

    assert.deepEqual(seen, Array(7).fill(SLOT)); // the retry from the failure has the nap as a copy
    const { runs } = await engine.getRuns();
    assert.equal(runs.length, 4);
    for (const { id } of runs) {
      const history = await engine.exportHistory(id);
      const replayed = aReport();
      (await replay(JSON.parse(JSON.stringify(history)), replayed.report)).assertGoesOn();
      assert.deepEqual([history.slot, replayed.seen], [SLOT, [SLOT]]);
    }
  },
);

forEachStore("step.slot is null in a run that was triggered without a slot", async ({ store, host }) => {
  const { report, seen } = aReport();
  await using engine = createEngine({ store, host, jobs: { report } });
  await engine.schedules.set("nightly", { job: report, ...TIMING });

  const { id } = await engine.schedules.trigger("nightly");
  await engine.trigger(report, null);
  await engine.runUntilIdle();

  assert.deepEqual(seen, [null, null]);
  assert.equal("slot" in await engine.exportHistory(id), false);
});
