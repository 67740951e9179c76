import assert from "node:assert/strict";
import { Child } from "../../processes/child.ts";
import type { Scenario, ScenarioResult } from "../scenario.ts";
import { checkIntegrity } from "./audit.ts";
import { Place } from "./place.ts";
import { Service } from "./service.ts";

/** Many processes open and migrate a new file at the same moment, and each of them triggers a run. */
export const openingTogether: Scenario = {
  name: "many processes open a new file at once",
  async run({ isBrief, patience }): Promise<ScenarioResult> {
    const processes = isBrief ? 8 : 16;
    const rounds = isBrief ? 2 : 20;
    let slowestMs = 0;
    await using children = new AsyncDisposableStack();
    const openers = Array.from(
      { length: processes },
      () => children.use(new Child({ file: "opening.ts", isDetached: true })),
    );
    await Promise.all(openers.map((opener) => opener.hear("ready")));

    for (let round = 0; round < rounds; round++) {
      await using place = await Place.make();
      const since = performance.now();
      await Promise.all(openers.map((opener) => opener.tell(place.database)));
      const heard = await Promise.all(openers.map((opener) => opener.hear("triggered")));
      slowestMs = Math.max(slowestMs, performance.now() - since);
      assert.deepEqual(heard.map(({ error }) => error), Array(processes).fill(null));

      await using service = await Service.start(place);
      const listCompleted = async () => (await service.get("/runs?status=completed&limit=1000")).body;
      const hasCompleted = async () => (await listCompleted()).total === processes;
      await patience.until(hasCompleted, "one worker was to complete all runs");
      const { runs } = await listCompleted();
      await service.stop();

      assert.deepEqual(runs.map(({ id }: { id: string }) => id).sort(), heard.map(({ runId }) => runId).sort());
      assert.equal(checkIntegrity(place.database), "ok");
    }
    return {
      outcome: "held",
      told: `${rounds} new files, each opened by ${processes} processes at once: no error, ` +
        `${rounds * processes} runs triggered and completed, all had triggered after at most ${
          Math.round(slowestMs)
        } ms`,
    };
  },
};
